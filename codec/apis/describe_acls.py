"""DescribeAcls (key 29): list the access rules that match a filter.

Sent by administrators (Admin.describeAcls, kafka-acls.sh --list) to any broker, which answers from its own copy; from
4.0 on Java's Admin may ask a controller directly. Requires the right to describe the cluster. The request is one
filter; the response has the rules that match all its fields, by resource. For rules and the enumerations see
create_acls.py.

Filters compare the text of a rule, not its effect: principal ``User:alice`` does not match rules for ``User:*``, and
host ``10.0.0.1`` does not match rules for ``*``. Only names can be matched by effect, with `PatternType.MATCH`.

Errors:
    SECURITY_DISABLED: the broker has no authorizer (`authorizer.class.name`).
    UNSUPPORTED_VERSION: v0, and a matching rule is not literal.

Versions:
    0 (0.11.0): patterns are literal.
    1 (2.0): pattern types (KIP-290); throttled after the answer (KIP-219).
    2 (2.5): flexible.
    3 (3.3): the same bytes; `ResourceType.USER` (KIP-373).

Source: AclApis.scala, handleDescribeAcls; ResourcePatternFilter.java; AccessControlEntryFilter.java.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = wire(Int8)
    """A `ResourceType`; `ANY`: all."""
    resource_name_filter: str | None = wire(String, null="0+")
    """``None``: all. ``*``: only the rules for ``*``."""
    pattern_type_filter: int = wire(Int8, "1+", default=3)
    """A `PatternType`; v0 means `LITERAL`."""
    principal_filter: str | None = wire(String, null="0+")
    """``User:alice``; ``None``: all."""
    host_filter: str | None = wire(String, null="0+")
    """``None``: all."""
    operation: int = wire(Int8)
    """An `AclOperation`; `ANY`: all. `ALL` finds only rules for all operations."""
    permission_type: int = wire(Int8)
    """An `AclPermissionType`; `ANY`: both."""


@struct
class AclDescription:
    principal: str = wire(String)
    """``User:alice``, or ``User:*`` for everyone."""
    host: str = wire(String)
    """An IP address; ``*``: all."""
    operation: int = wire(Int8)
    """An `AclOperation`."""
    permission_type: int = wire(Int8)
    """An `AclPermissionType`."""


@struct
class DescribeAclsResource:
    resource_type: int = wire(Int8)
    """A `ResourceType`."""
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8, "1+", default=3)
    """`PatternType.LITERAL` or `PREFIXED`."""
    acls: tuple[AclDescription, ...] = wire(Array(AclDescription))


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resources: tuple[DescribeAclsResource, ...] = wire(Array(DescribeAclsResource))
