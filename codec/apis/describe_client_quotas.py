"""DescribeClientQuotas (key 48)."""

from ottla.codec.wire import Array, Boolean, Float64, Int8, Int16, Int32, String, message, struct, wire


@struct
class ComponentData:
    entity_type: str = wire(String)
    match_type: int = wire(Int8)
    match: str | None = wire(String, null="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...] = wire(Array(ComponentData))
    strict: bool = wire(Boolean)


@struct
class EntityData:
    entity_type: str = wire(String)
    entity_name: str | None = wire(String, null="0+")


@struct
class ValueData:
    key: str = wire(String)
    value: float = wire(Float64)


@struct
class EntryData:
    entity: tuple[EntityData, ...] = wire(Array(EntityData))
    values: tuple[ValueData, ...] = wire(Array(ValueData))


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    entries: tuple[EntryData, ...] | None = wire(Array(EntryData), null="0+")
