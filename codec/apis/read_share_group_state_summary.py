"""ReadShareGroupStateSummary (key 87)."""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class PartitionData:
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class ReadStateSummaryData:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = wire(String)
    topics: tuple[ReadStateSummaryData, ...] = wire(Array(ReadStateSummaryData))


@struct
class PartitionResult:
    partition: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    state_epoch: int = wire(Int32)
    leader_epoch: int = wire(Int32)
    start_offset: int = wire(Int64)
    delivery_complete_count: int = wire(Int32, "1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: tuple[ReadStateSummaryResult, ...] = wire(Array(ReadStateSummaryResult))
