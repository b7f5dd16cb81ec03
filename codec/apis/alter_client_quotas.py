"""AlterClientQuotas (key 49)."""

from ottla.codec.wire import Array, Boolean, Float64, Int16, Int32, String, message, struct, wire


@struct
class EntityData:
    entity_type: str = wire(String)
    entity_name: str | None = wire(String, null="0+")


@struct
class OpData:
    key: str = wire(String)
    value: float = wire(Float64)
    remove: bool = wire(Boolean)


@struct
class EntryData:
    entity: tuple[EntityData, ...] = wire(Array(EntityData))
    ops: tuple[OpData, ...] = wire(Array(OpData))


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: tuple[EntryData, ...] = wire(Array(EntryData))
    validate_only: bool = wire(Boolean)


@struct
class EntryDataResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    entity: tuple[EntityData, ...] = wire(Array(EntityData))


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    entries: tuple[EntryDataResponse, ...] = wire(Array(EntryDataResponse))
