"""The ACLs of a proxy, as its configuration file has them.

    super-users = ["User:admin"]

    [[acls]]
    principal = "User:billing"
    allow = ["Read", "Describe"]
    topic = "orders"            # or group, transactional-id, cluster = true
    pattern = "prefixed"
    host = "10.0.0.7"

Rules:
- Each table names one principal, either ``allow`` or ``deny``, and one resource. ``*`` stands for all names.
- Operations have the names of Kafka's tools, such as DescribeConfigs. An operation that the type of resource
  does not have is refused: it would have no effect.

Source: AclCommand.scala; AclEntry.java (supportedOperations).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ottla.acl.acls import ANY_HOST, CLUSTER_NAME, Acl, is_principal, kafkas_name
from ottla.acl.authorizer import Authorizer
from ottla.acl.rights import SUPPORTED
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError, InvalidRequest

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    **SUPPORTED,
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE),
}
_PERMISSIONS = {"allow": AclPermissionType.ALLOW, "deny": AclPermissionType.DENY}
_PATTERNS = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
_KEYS = ("principal", *_PERMISSIONS, *_RESOURCES, "pattern", "host")


@dataclass(frozen=True)
class AclRules:
    """The ACLs of a proxy.

    Attributes:
        super_users: principals with every right.
        allow_if_none: whether everyone may use a resource without ACLs.

    Raises:
        ConfigurationError: they allow nobody anything, or a principal has no type.
    """

    acls: tuple[Acl, ...] = ()
    super_users: tuple[str, ...] = ()
    allow_if_none: bool = False

    def __post_init__(self) -> None:
        if wrong := next((each for each in self.super_users if not is_principal(each)), None):
            raise ConfigurationError(f"super-users has {wrong!r}; a principal has a type, as in User:{wrong}")
        if not (self.super_users or self.allow_if_none or self.acls):
            raise ConfigurationError("acls has no rule, so all requests would be denied: add one, or super-users")

    def authorizer(self) -> Authorizer:
        """The authorizer that decides by them."""
        return Authorizer(self.acls, super_users=self.super_users, allow_if_none=self.allow_if_none)


def read_acl_rules(file: ConfigFile, acls: Any, super_users: Any, allow_if_none: Any) -> AclRules | None:
    """The ACLs in the values of ``acls``, ``super-users`` and ``allow-if-no-acl``; ``None`` if no value is given.

    Raises:
        ConfigurationError: a value cannot be used; the message names the file and the entry.
    """
    if acls is None and super_users is None and allow_if_none is None:
        return None
    if allow_if_none is not None and not isinstance(allow_if_none, bool):
        raise file.error(f"allow-if-no-acl is {allow_if_none!r}; it must be true or false")
    users = [] if super_users is None else super_users
    if not isinstance(users, list) or not all(isinstance(each, str) for each in users):
        raise file.error('super-users is a list such as ["User:admin"]')
    tables = [] if acls is None else acls
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise file.error("acls are tables: write [[acls]], and below it principal, allow and topic")
    try:
        read = (acl for number, table in enumerate(tables, 1) for acl in _read(number, table))
        return AclRules(tuple(dict.fromkeys(read)), tuple(users), bool(allow_if_none))
    except ConfigurationError as error:
        raise file.error(str(error)) from None


def _read(number: int, table: Mapping[str, Any]) -> Iterator[Acl]:
    where = f"[[acls]] number {number}"
    for key in table:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, 1)
            advice = f"do you mean {near[0]}?" if near else f"there are {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where} has {key}: {advice}")
    resources = [each for each in _RESOURCES if each in table]
    if len(resources) != 1:
        raise ConfigurationError(f"{where} must have one of {', '.join(_RESOURCES)}, and has {len(resources)}")
    permissions = [each for each in _PERMISSIONS if each in table]
    if len(permissions) != 1:
        raise ConfigurationError(f"{where} must have either allow or deny, as in allow = ['Read']")
    kind, permission = _RESOURCES[resources[0]], permissions[0]
    name = _cluster(where, table) if kind is ResourceType.CLUSTER else _text(where, table, resources[0])
    pattern = _text(where, table, "pattern", "literal")
    if pattern not in _PATTERNS:
        raise ConfigurationError(f"{where}: pattern is {pattern!r}; it must be literal or prefixed")
    for operation in _operations(where, permission, table[permission], kind):
        try:
            yield Acl.checked(
                kind,
                name,
                _PATTERNS[pattern],
                _text(where, table, "principal"),
                _text(where, table, "host", ANY_HOST),
                operation,
                _PERMISSIONS[permission],
            )
        except InvalidRequest as error:
            raise ConfigurationError(f"{where}: {error.detail}") from None


def _cluster(where: str, table: Mapping[str, Any]) -> str:
    if table["cluster"] is not True:
        raise ConfigurationError(f"{where}: cluster must be true: there is one cluster, and it has no name here")
    return CLUSTER_NAME


def _text(where: str, table: Mapping[str, Any], key: str, default: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where} must have a {key} that is a text")
    return value


def _operations(where: str, permission: str, names: Any, kind: ResourceType) -> Iterator[AclOperation]:
    known = {kafkas_name(each): each for each in (*_OPERATIONS[kind], AclOperation.ALL)}
    if not isinstance(names, list) or not names:
        raise ConfigurationError(f"{where}: {permission} is a list of operations, such as ['Read', 'Describe']")
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"{where}: {name!r} is not an operation on a {kafkas_name(kind)}; there are {', '.join(known)}"
            )
        yield known[name]
