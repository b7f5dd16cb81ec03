"""DeleteRecords (key 21): delete all records of a partition before an offset.

Sent by tools and administrative clients (Admin.deleteRecords, kafka-delete-records.sh) to the leader of each partition.
The leader moves the start of its log up to the offset, and answers when all live replicas have followed. From then on
no consumer sees the records; the files are deleted later, segment by segment. This cannot be undone.

An offset before the start of the log changes nothing, and is no error.

Errors:
    OFFSET_OUT_OF_RANGE: beyond the high watermark, or negative.
    POLICY_VIOLATION: the topic's `cleanup.policy` does not contain ``delete``.
    REQUEST_TIMED_OUT: the leader has deleted the records, but not all replicas have followed in time.
    NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR: look up the leader, repeat.
    UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED: no such partition, or no right to delete from it.

Versions:
    0 (0.11.0): new (KIP-107).
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.6): flexible.

Source: Partition.scala, deleteRecordsOnLeader.
"""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@struct
class DeleteRecordsPartition:
    partition_index: int = wire(Int32)
    offset: int = wire(Int64)
    """The first offset to keep; -1: the high watermark, which deletes everything."""


@struct
class DeleteRecordsTopic:
    name: str = wire(String)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(Array(DeleteRecordsPartition))


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...] = wire(Array(DeleteRecordsTopic))
    timeout_ms: int = wire(Int32)
    """How long to wait for the replicas."""


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = wire(Int32)
    low_watermark: int = wire(Int64)
    """The first offset that all live replicas have now; -1 if there is an error."""
    error_code: int = wire(Int16)


@struct
class DeleteRecordsTopicResult:
    name: str = wire(String)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(Array(DeleteRecordsPartitionResult))


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(Array(DeleteRecordsTopicResult))
