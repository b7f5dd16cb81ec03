"""DeleteAcls (key 31): remove the rules that filters match.

Sent by administrators (Admin.deleteAcls, kafka-acls.sh --remove) to any broker, which forwards it to the controller;
from 4.0 on Java's Admin may ask a controller directly. Requires the right to alter the cluster. For rules and the
enumerations see create_acls.py; filters compare as in DescribeAcls.

Each filter has its own result, in the order of the request, with the rules that it removed. A filter that matches no
rule succeeds. A KRaft cluster removes all matching rules of a request at once; one request may remove at most 10,000.

Errors:
    SECURITY_DISABLED: the brokers have no authorizer (`authorizer.class.name`).
    INVALID_REQUEST: the filter has a code that the broker does not know.
    UNSUPPORTED_VERSION: v0, and a rule that was removed is not literal.

Versions:
    0 (0.11.0): patterns are literal.
    1 (2.0): pattern types (KIP-290); throttled after the answer (KIP-219).
    2 (2.5): flexible.
    3 (3.3): the same bytes; `ResourceType.USER` (KIP-373).

Source: AclApis.scala, handleDeleteAcls; AclControlManager.java, deleteAcls.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@struct
class DeleteAclsFilter:
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


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...] = wire(Array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl:
    """A rule that was removed, or could not be removed."""

    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    """A `ResourceType`."""
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8, "1+", default=3)
    """`PatternType.LITERAL` or `PREFIXED`."""
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    """An `AclOperation`."""
    permission_type: int = wire(Int8)
    """An `AclPermissionType`."""


@struct
class DeleteAclsFilterResult:
    error_code: int = wire(Int16)
    """Error of the filter; each rule has its own."""
    error_message: str | None = wire(String, null="0+")
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(Array(DeleteAclsMatchingAcl))


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(Array(DeleteAclsFilterResult))
    """One for each of `filters`, in their order."""
