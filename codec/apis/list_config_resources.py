"""ListConfigResources (key 74)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = wire(Array(Int8), "1+", default=())


@struct
class ConfigResource:
    resource_name: str = wire(String)
    resource_type: int = wire(Int8, "1+", default=16, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    config_resources: tuple[ConfigResource, ...] = wire(Array(ConfigResource))
