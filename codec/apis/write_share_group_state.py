"""WriteShareGroupState (key 85)."""

import uuid

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class StateBatch:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    delivery_state: int = wire(Int8)
    delivery_count: int = wire(Int16)


@struct
class PartitionData:
    partition: int = wire(Int32)
    state_epoch: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    start_offset: int = wire(Int64)
    delivery_complete_count: int = wire(Int32, "1+", default=-1, ignorable=True)
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))


@struct
class WriteStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[WriteStateData, ...] = wire(Array(WriteStateData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class WriteStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: tuple[WriteStateResult, ...] = wire(Array(WriteStateResult))
