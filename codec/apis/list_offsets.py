"""ListOffsets (key 2): the offset of the first record at or after a time, or of an end of the log.

Sent by consumers to the leader of each partition, to find where to start (`auto.offset.reset`, offsetsForTimes) or
where the log ends (lag), and by tools (Admin.listOffsets, kafka-get-offsets.sh). `timestamp` is in milliseconds since
1970, or one of the special values below.

An offset -1 without an error means that all records are older, that the log is empty (`MAX_TIMESTAMP`), or that no
record is tiered. For a consumer the log ends at the high watermark, with `isolation_level` 1 at the last stable offset,
and records after that are not found.

Errors:
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR: look up the leader,
        repeat.
    UNKNOWN_LEADER_EPOCH, LEADER_NOT_AVAILABLE: repeat after a pause.
    OFFSET_NOT_AVAILABLE (v5+): a leader just elected does not know the high watermark of its epoch yet: repeat after a
        pause. Before version 5: LEADER_NOT_AVAILABLE.
    UNSUPPORTED_FOR_MESSAGE_FORMAT: the log is in a format without timestamps (before 0.10).
    UNSUPPORTED_VERSION: for one partition: this version does not have the special timestamp.
    INVALID_REQUEST: for one partition: the request names it twice.
    REQUEST_TIMED_OUT (v10+): the tiered storage did not answer within `timeout_ms`.
    TOPIC_AUTHORIZATION_FAILED: the principal may not describe the topic.

Versions:
    0 (0.8.2): up to `max_num_offsets` offsets, only where segments begin. Dropped by Kafka 4.0.
    1 (0.10.1): one offset and its timestamp, from the time index (KIP-79).
    2 (0.11.0): `isolation_level`, `throttle_time_ms` (KIP-98).
    3 (2.0): throttled after the answer (KIP-219).
    4 (2.1): leader epochs (KIP-320).
    5 (2.2): the same bytes; OFFSET_NOT_AVAILABLE may be returned (KIP-207).
    6 (2.8): flexible.
    7 (3.0): `MAX_TIMESTAMP` (KIP-734).
    8 (3.5): `EARLIEST_LOCAL` (KIP-405).
    9 (3.9): `LATEST_TIERED` (KIP-1005).
    10 (4.0): `timeout_ms`, for tiered storage (KIP-1075).
    11 (4.2): `EARLIEST_PENDING_UPLOAD` (KIP-1023).

Source: ReplicaManager.scala, fetchOffset; UnifiedLog.scala, fetchOffsetByTimestamp.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, message, struct, wire

LATEST = -1
"""The end of the log: the offset that the next record will get."""
EARLIEST = -2
"""The first offset of the log, tiered or not."""
MAX_TIMESTAMP = -3
"""The record with the largest timestamp. v7+."""
EARLIEST_LOCAL = -4
"""The first offset on the leader's own disks; older ones are only in tiered storage. v8+."""
LATEST_TIERED = -5
"""The last offset in tiered storage. v9+."""
EARLIEST_PENDING_UPLOAD = -6
"""The first offset not yet in tiered storage. v11+."""


@struct
class ListOffsetsPartition:
    partition_index: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "4+", default=-1, ignorable=True)
    """The leader epoch known to the client, so that a former leader refuses; -1: no check."""
    timestamp: int = wire(Int64)
    """Milliseconds since 1970, or one of the special values above."""
    max_num_offsets: int = wire(Int32, "0", default=1)
    """Maximum number of offsets in `old_style_offsets`."""


@struct
class ListOffsetsTopic:
    name: str = wire(String)
    partitions: tuple[ListOffsetsPartition, ...] = wire(Array(ListOffsetsPartition))


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = wire(Int32)
    """-1 for consumers."""
    isolation_level: int = wire(Int8, "2+", default=0)
    """0: read_uncommitted. 1: read_committed."""
    topics: tuple[ListOffsetsTopic, ...] = wire(Array(ListOffsetsTopic))
    timeout_ms: int = wire(Int32, "10+", default=0, ignorable=True)
    """How long the broker may wait for its tiered storage; 0: as long as its own setting says."""


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    old_style_offsets: tuple[int, ...] = wire(Array(Int64), "0", default=())
    """Offsets at which segments begin, the highest first; the first may be the end of the log."""
    timestamp: int = wire(Int64, "1+", default=-1)
    """Timestamp of the record at `offset`; -1 for an end of the log."""
    offset: int = wire(Int64, "1+", default=-1)
    """-1: no such offset."""
    leader_epoch: int = wire(Int32, "4+", default=-1)
    """Leader epoch of the record at `offset`; -1: unknown."""


@struct
class ListOffsetsTopicResponse:
    name: str = wire(String)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(Array(ListOffsetsPartitionResponse))


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(Array(ListOffsetsTopicResponse))
