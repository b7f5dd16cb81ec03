"""DescribeAcls (key 29)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = wire(Int8)
    resource_name_filter: str | None = wire(String, null="0+")
    pattern_type_filter: int = wire(Int8, "1+", default=3)
    principal_filter: str | None = wire(String, null="0+")
    host_filter: str | None = wire(String, null="0+")
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@struct
class AclDescription:
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@struct
class DescribeAclsResource:
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    pattern_type: int = wire(Int8, "1+", default=3)
    acls: tuple[AclDescription, ...] = wire(Array(AclDescription))


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resources: tuple[DescribeAclsResource, ...] = wire(Array(DescribeAclsResource))
