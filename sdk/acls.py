"""ACLs as administrators write them: who may do what. Plain data; names are Kafka's."""

import enum
from collections.abc import Mapping, Sequence

from ottla.codec.apis.create_acls import AclOperation, PatternType, ResourceType
from ottla.errors import ConfigurationError, RemoteProtocolError
from ottla.late_dataclass import dataclass
from ottla.sdk.arguments import known, string

PATTERNS = ("literal", "prefixed", "match")


def _names(codes: type[enum.IntEnum], only_in_filters: Sequence[str] = ("ANY",)) -> dict[str, int]:
    """Kafka's names, as its tools write them (``DescribeConfigs``), and their codes."""
    named = {each.name: each.value for each in codes if each.name not in only_in_filters}
    return {"".join(word.capitalize() for word in name.split("_")): code for name, code in named.items()}


RESOURCE_TYPES = _names(ResourceType)
OPERATIONS = _names(AclOperation)
_CONFIGS = ("DescribeConfigs", "AlterConfigs")
FITTING: Mapping[str, tuple[str, ...]] = {
    "Topic": ("All", "Read", "Write", "Create", "Delete", "Alter", "Describe", *_CONFIGS),
    "Group": ("All", "Read", "Delete", "Describe", *_CONFIGS),
    "Cluster": ("All", "Create", "Alter", "Describe", "ClusterAction", *_CONFIGS, "IdempotentWrite"),
    "TransactionalId": ("All", "Write", "Describe", "TwoPhaseCommit"),
    "DelegationToken": ("All", "Describe"),
    "User": ("All", "CreateTokens", "DescribeTokens"),
}
"""Type of resource -> the operations that have a meaning there. (AclEntry.java, supportedOperations)"""
CLUSTER = "kafka-cluster"
"""The name of the only resource of the type ``Cluster``."""


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An ACL: it allows or denies a principal an operation on resources.

    Attributes:
        principal: ``User:alice``, or ``User:*`` for everyone.
        operation: ``Read``, ``Write``, ``Create``, ``Delete``, ``Alter``, ``Describe``, ``ClusterAction``,
            ``DescribeConfigs``, ``AlterConfigs``, ``IdempotentWrite``, …, or ``All``; case-insensitive.
        resource_type: ``Topic``, ``Group``, ``Cluster``, ``TransactionalId``, ``DelegationToken`` or ``User``;
            case-insensitive.
        name: of the resource; ``*``: all resources of the type. That of the cluster is ``kafka-cluster``.
        prefixed: the ACL is for all resources whose names begin with ``name``.
        host: the client's IP address; ``*``: all.
        deny: the ACL denies, and wins over all that allow.

    Raises:
        ConfigurationError: there is no such operation or type.
    """

    principal: str
    operation: str
    resource_type: str
    name: str
    prefixed: bool = False
    host: str = "*"
    deny: bool = False

    def __post_init__(self) -> None:
        for field in ("principal", "name", "host"):
            string(field, getattr(self, field))
        object.__setattr__(self, "operation", known("operation", list(OPERATIONS), [self.operation])[0])
        object.__setattr__(self, "resource_type", known("resource type", list(RESOURCE_TYPES), [self.resource_type])[0])

    def __str__(self) -> str:
        verb, pattern = "deny" if self.deny else "allow", "*" if self.prefixed else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{verb} {self.principal} {self.operation} on {self.resource_type} {self.name}{pattern}{host}"


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Finds ACLs by their text, not by their effect; ``None`` matches everything.

    Attributes:
        principal, operation, resource_type, name, host: as in `AclBinding`. ``User:alice`` does not find ACLs for
            ``User:*``.
        pattern: ``literal`` or ``prefixed`` ACLs; or ``match``: all ACLs that apply to a resource of that ``name``.
        deny: ACLs that deny, or ACLs that allow.

    Raises:
        ConfigurationError: there is no such operation, type or pattern.
    """

    principal: str | None = None
    operation: str | None = None
    resource_type: str | None = None
    name: str | None = None
    pattern: str | None = None
    host: str | None = None
    deny: bool | None = None

    def __post_init__(self) -> None:
        for field, kind, names in (
            ("operation", "operation", list(OPERATIONS)),
            ("resource_type", "resource type", list(RESOURCE_TYPES)),
            ("pattern", "pattern", PATTERNS),
        ):
            if (given := getattr(self, field)) is not None:
                object.__setattr__(self, field, known(kind, names, [string(field, given)])[0])


def pattern_code(pattern: str | None) -> int:
    """Return the code of a filter's pattern."""
    return PatternType.ANY if pattern is None else PatternType[pattern.upper()]


def check_new(acl: AclBinding) -> None:
    """Check an ACL that is to be created. Clusters may have others: Apache Kafka checks less.

    Raises:
        ConfigurationError: the ACL would have no effect.
    """
    kind, _, name = acl.principal.partition(":")
    if not kind or not name:
        raise ConfigurationError(f"principal is {acl.principal!r}; it must be a type and a name, as in User:alice")
    if not acl.name:
        raise ConfigurationError("the name of the resource is empty; * is every name")
    fitting = FITTING[acl.resource_type]
    if acl.operation not in fitting:
        raise ConfigurationError(
            f"{acl.operation} has no meaning on {acl.resource_type}: there are {', '.join(sorted(fitting))}"
        )
    if acl.resource_type == "Cluster" and acl.name != CLUSTER:
        raise ConfigurationError(f"the name of the cluster is {CLUSTER}, not {acl.name!r}")


def name_of(names: Mapping[str, int], code: int) -> str:
    """Return the name of a code in a response.

    Raises:
        RemoteProtocolError: the code is unknown.
    """
    found = next((name for name, known_code in names.items() if known_code == code), None)
    if found is None:
        raise RemoteProtocolError(f"an ACL has the unknown code {code}: this version of ottla cannot show it")
    return found
