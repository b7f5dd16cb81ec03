"""CreateAcls (key 30)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@struct
class AclCreation:
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    resource_pattern_type: int = wire(Int8, "1+", default=3)
    principal: str = wire(String)
    host: str = wire(String)
    operation: int = wire(Int8)
    permission_type: int = wire(Int8)


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: tuple[AclCreation, ...] = wire(Array(AclCreation))


@struct
class AclCreationResult:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[AclCreationResult, ...] = wire(Array(AclCreationResult))
