"""ListOffsets (key 2): the offset at a time, or at an end of the log.

The special timestamps are below. For any other, the answer is the first offset whose timestamp is at or after it, -1
where there is none.

Versions: 0: up to `max_num_offsets` offsets of segments (brokers before 4.0). 1: one offset with its timestamp. 2:
`isolation_level`. 4: leader epochs. 6: flexible. 7: the maximum timestamp (-3). 8: the local log start (-4). 9: the
last tiered offset (-5). 10: `timeout_ms`. 11: the earliest pending upload (-6).
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, Int64, String, message, struct, wire

LATEST = -1
"""The high watermark, or the last stable offset for read_committed."""
EARLIEST = -2
"""The first offset of the log."""
MAX_TIMESTAMP = -3
"""The record with the largest timestamp."""


@struct
class ListOffsetsPartition:
    partition_index: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(Int64)
    """Milliseconds since 1970, or one of the special timestamps."""
    max_num_offsets: int = wire(Int32, "0", default=1)


@struct
class ListOffsetsTopic:
    name: str = wire(String)
    partitions: tuple[ListOffsetsPartition, ...] = wire(Array(ListOffsetsPartition))


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = wire(Int32)
    """-1 for consumers."""
    isolation_level: int = wire(Int8, "2+", default=0)
    """With 1 (read_committed) the latest offset is the last stable one."""
    topics: tuple[ListOffsetsTopic, ...] = wire(Array(ListOffsetsTopic))
    timeout_ms: int = wire(Int32, "10+", default=0, ignorable=True)
    """How long the broker may ask its remote storage, in milliseconds."""


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    old_style_offsets: tuple[int, ...] = wire(Array(Int64), "0", default=())
    timestamp: int = wire(Int64, "1+", default=-1)
    offset: int = wire(Int64, "1+", default=-1)
    """-1 where no record is that young."""
    leader_epoch: int = wire(Int32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = wire(String)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(Array(ListOffsetsPartitionResponse))


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(Array(ListOffsetsTopicResponse))
