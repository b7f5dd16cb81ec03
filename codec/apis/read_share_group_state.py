"""ReadShareGroupState (key 84)."""

import uuid

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class ReadStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[ReadStateData, ...] = wire(Array(ReadStateData))


@struct
class StateBatch:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    delivery_state: int = wire(Int8)
    delivery_count: int = wire(Int16)


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    state_epoch: int = wire(Int32)
    start_offset: int = wire(Int64)
    state_batches: tuple[StateBatch, ...] = wire(Array(StateBatch))


@struct
class ReadStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: tuple[ReadStateResult, ...] = wire(Array(ReadStateResult))
