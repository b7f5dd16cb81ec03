"""InitializeShareGroupState (key 83)."""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)
    state_epoch: int = wire(Int32)
    start_offset: int = wire(Int64)


@struct
class InitializeStateData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = wire(String)
    topics: tuple[InitializeStateData, ...] = wire(Array(InitializeStateData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: tuple[InitializeStateResult, ...] = wire(Array(InitializeStateResult))
