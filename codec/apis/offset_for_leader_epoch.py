"""OffsetForLeaderEpoch (key 23)."""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@struct
class OffsetForLeaderPartition:
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "2+", default=-1, ignorable=True)
    leader_epoch: int = wire(Int32)


@struct
class OffsetForLeaderTopic:
    topic: str = wire(String)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(Array(OffsetForLeaderPartition))


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = wire(Int32, "3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(Array(OffsetForLeaderTopic))


@struct
class EpochEndOffset:
    error_code: int = wire(Int16)
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32, "1+", default=-1, ignorable=True)
    end_offset: int = wire(Int64, default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = wire(String)
    partitions: tuple[EpochEndOffset, ...] = wire(Array(EpochEndOffset))


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(Array(OffsetForLeaderTopicResult))
