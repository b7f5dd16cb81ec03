"""DeleteRecords (key 21)."""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@struct
class DeleteRecordsPartition:
    partition_index: int = wire(Int32)
    offset: int = wire(Int64)


@struct
class DeleteRecordsTopic:
    name: str = wire(String)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(Array(DeleteRecordsPartition))


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...] = wire(Array(DeleteRecordsTopic))
    timeout_ms: int = wire(Int32)


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = wire(Int32)
    low_watermark: int = wire(Int64)
    error_code: int = wire(Int16)


@struct
class DeleteRecordsTopicResult:
    name: str = wire(String)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(Array(DeleteRecordsPartitionResult))


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(Array(DeleteRecordsTopicResult))
