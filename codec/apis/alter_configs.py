"""AlterConfigs (key 33)."""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire


@struct
class AlterableConfig:
    name: str = wire(String)
    value: str | None = wire(String, null="0+")


@struct
class AlterConfigsResource:
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)
    configs: tuple[AlterableConfig, ...] = wire(Array(AlterableConfig))


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(Boolean)


@struct
class AlterConfigsResourceResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    resource_type: int = wire(Int8)
    resource_name: str = wire(String)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(Array(AlterConfigsResourceResponse))
