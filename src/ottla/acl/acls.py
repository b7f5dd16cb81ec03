"""An ACL, and filters that find ACLs.

Rules:
- An ACL allows or denies a principal an operation on the resources that match a pattern, from a host or from all hosts.
- Filters compare the text of an ACL, not its effect; only `PatternType.MATCH` finds the ACLs that apply to a name.
- An ACL for a principal without a type (``alice``) is refused. Apache Kafka stores it, and then fails each request for
  the resource.

Source: AclApis.scala (handleCreateAcls), AclControlManager.java (validateNewAcl, validateFilter),
ResourcePatternFilter.java, AccessControlEntryFilter.java.
"""

import enum
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple, TypeVar

from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import InvalidRequest

E = TypeVar("E", bound=enum.IntEnum)

EVERYONE = "User:*"
"""The principal of ACLs for everyone."""
ANY_HOST = "*"
ANY_NAME = "*"
"""The name of literal ACLs for all resources of a type."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type `ResourceType.CLUSTER`."""


class Acl(NamedTuple):
    """One ACL."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    @classmethod
    def checked(
        cls,
        resource_type: int,
        resource_name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> "Acl":
        """Return the ACL with these codes.

        Raises:
            InvalidRequest: there is no such ACL.
        """
        acl = cls(
            _code(ResourceType, resource_type, "resource type"),
            resource_name,
            _code(PatternType, pattern_type, "pattern type"),
            principal,
            host,
            _code(AclOperation, operation, "operation"),
            _code(AclPermissionType, permission, "permission type"),
        )
        for value in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission):
            if value.name in ("ANY", "MATCH"):
                raise InvalidRequest(f"{value.name} is only for filters")
        if not resource_name:
            raise InvalidRequest("the name of the resource is empty")
        if acl.resource_type is ResourceType.CLUSTER and resource_name != CLUSTER_NAME:
            raise InvalidRequest(f"the only valid name for the cluster is {CLUSTER_NAME}")
        if not is_principal(principal):
            raise InvalidRequest(f"{principal!r} is not a principal, as in User:alice")
        return acl


class AclFilter(NamedTuple):
    """Finds ACLs; ``None`` and the members ``ANY`` match everything."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    @classmethod
    def checked(
        cls,
        resource_type: int,
        resource_name: str | None,
        pattern_type: int,
        principal: str | None,
        host: str | None,
        operation: int,
        permission: int,
    ) -> "AclFilter":
        """Return the filter with these codes.

        Raises:
            InvalidRequest: a code is unknown.
        """
        return cls(
            _code(ResourceType, resource_type, "resource type"),
            resource_name,
            _code(PatternType, pattern_type, "pattern type"),
            principal,
            host,
            _code(AclOperation, operation, "operation"),
            _code(AclPermissionType, permission, "permission type"),
        )

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermissionType.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == ANY_NAME


@lru_cache(4096)
def normal_host(host: str) -> str:
    """Return an IP address in the form in which addresses are compared; other texts stay as they are.

    IPv6 has several forms of one address, and a listener for IPv4 and IPv6 sees IPv4 addresses mapped to IPv6.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_principal(text: str) -> bool:
    """Whether the text has a type and a name, as ``User:alice``."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


def kafkas_name(member: enum.Enum) -> str:
    """Return a code's name as Kafka's tools write it: ``DescribeConfigs``."""
    return "".join(word.capitalize() for word in member.name.split("_"))


def _code(codes: type[E], code: int, what: str) -> E:
    try:
        return codes(code)
    except ValueError:
        raise InvalidRequest(f"{code} is not the code of a {what}") from None
