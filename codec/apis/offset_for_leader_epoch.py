"""OffsetForLeaderEpoch (key 23): where a leader epoch ended in the log, to find the point at which two logs diverge.

Sent to the leader of each partition: by consumers whose partition has a new leader, to check that the records they have
read still exist (KIP-320); by followers before they fetch (KIP-101), up to Fetch version 12, which includes this check.

The sender names the epoch of its last record. The response has the largest epoch in the leader's log that is not above
it, and the offset at which that epoch ended. If this offset is below the sender's position, or the epoch below its own,
then the log was truncated after an unclean election, and the records after that offset are gone: followers truncate,
consumers report it or apply `auto.offset.reset`.

Errors:
    FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER: look up the leader, ask there.
    UNKNOWN_LEADER_EPOCH: the client knows a newer leader epoch than the broker: repeat after a pause.
    KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION: look up the leader, repeat.
    TOPIC_AUTHORIZATION_FAILED: the principal may not describe the topic.

Versions:
    0 (0.11.0): for followers only (KIP-101). Versions 0-1 were dropped by Kafka 4.0.
    1 (2.0): the response has the epoch that was found (KIP-279).
    2 (2.1): `current_leader_epoch`, `throttle_time_ms`; for consumers too (KIP-320).
    3 (2.3): `replica_id` (KIP-392).
    4 (2.8): flexible.

Source: Partition.scala, lastOffsetForLeaderEpoch; LeaderEpochFileCache.java, endOffsetFor.
"""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@struct
class OffsetForLeaderPartition:
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "2+", default=-1, ignorable=True)
    """The leader epoch known to the client, so that a former leader refuses; -1: no check."""
    leader_epoch: int = wire(Int32)
    """The epoch to look up: the epoch of the sender's last record."""


@struct
class OffsetForLeaderTopic:
    topic: str = wire(String)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(Array(OffsetForLeaderPartition))


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = wire(Int32, "3+", default=-2, ignorable=True)
    """-1 for consumers; -2: for debugging, any replica may answer."""
    topics: tuple[OffsetForLeaderTopic, ...] = wire(Array(OffsetForLeaderTopic))


@struct
class EpochEndOffset:
    error_code: int = wire(Int16)
    partition: int = wire(Int32)
    leader_epoch: int = wire(Int32, "1+", default=-1, ignorable=True)
    """The largest epoch in the log that is not above the requested one; -1: none, or it is newer than all."""
    end_offset: int = wire(Int64, default=-1)
    """One past the last record of this epoch; -1: unknown."""


@struct
class OffsetForLeaderTopicResult:
    topic: str = wire(String)
    partitions: tuple[EpochEndOffset, ...] = wire(Array(EpochEndOffset))


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(Array(OffsetForLeaderTopicResult))
