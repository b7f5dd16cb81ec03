"""DeleteAcls (key 31)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@struct
class DeleteAclsFilter:
    resource_type_filter: int = wire(Int8)
    resource_name_filter: str | None = wire(String, null="0+")
    pattern_type_filter: int = wire(Int8, "1+", default=3)
    principal_filter: str | None = wire(String, null="0+")
    host_filter: str | None = wire(String, null="0+")
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...] = wire(Array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8, "1+", default=3)
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@struct
class DeleteAclsFilterResult:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(Array(DeleteAclsMatchingAcl))


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(Array(DeleteAclsFilterResult))
