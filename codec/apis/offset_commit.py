"""OffsetCommit (key 8): store a group's progress.

Sent to the group's coordinator by its members, after they have processed records; by consumers that assign partitions
to themselves; and by tools that reset a group (Admin.alterConsumerGroupOffsets). The coordinator appends the offsets to
`__consumer_offsets` and answers when all in-sync replicas have them. The last commit of a partition counts, even if it
is lower.

A client that is not a member sends generation -1 and an empty member id, which works only while the group has no
members; this creates a group that does not exist. A member commits with its generation (classic groups) or member epoch
(new groups, version 9 and later). In classic groups a commit counts as a heartbeat.

Offsets of a transaction are sent with TxnOffsetCommit instead. The broker deletes offsets when the group has been
empty, or has not subscribed to the topic, for `offsets.retention.minutes` (seven days); if the group never had members,
this long after the commit.

Errors:
    ILLEGAL_GENERATION: the classic group has a newer generation, and another member may own the partitions. Join again,
        do not retry.
    REBALANCE_IN_PROGRESS: between JoinGroup and SyncGroup: finish joining first.
    UNKNOWN_MEMBER_ID: removed from the group, or not a member while the group has members.
    FENCED_INSTANCE_ID: another process has taken the `group_instance_id`.
    STALE_MEMBER_EPOCH (v9+): in a new group: repeat with the epoch of the last ConsumerGroupHeartbeat.
    GROUP_ID_NOT_FOUND (v9+): the group does not exist, but the request has a generation; before: ILLEGAL_GENERATION.
    OFFSET_METADATA_TOO_LARGE: longer than `offset.metadata.max.bytes` (4096).
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (v10+), TOPIC_AUTHORIZATION_FAILED: for one partition; the others are
        stored.
    COORDINATOR_LOAD_IN_PROGRESS: repeat after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator
        and repeat. Commits can be repeated as long as no later one was sent meanwhile.

Versions:
    0 (0.8.2): stored in ZooKeeper; dropped by Kafka 4.0.
    1 (0.8.2): stored by the coordinator; generation and member, `commit_timestamp`. Dropped by Kafka 4.0.
    2 (0.9.0): `retention_time_ms` in place of `commit_timestamp`.
    3 (0.11.0): `throttle_time_ms`.
    4 (2.0): throttled after the answer (KIP-219).
    5 (2.1): without `retention_time_ms` (KIP-211).
    6 (2.1): `committed_leader_epoch` (KIP-320).
    7 (2.3): `group_instance_id`, static members (KIP-345).
    8 (2.4): flexible.
    9 (3.7): the same bytes; the first version for the new groups (KIP-848).
    10 (4.2): topics by id (KIP-848).

Source: OffsetMetadataManager.java, commitOffset; ClassicGroup.java, validateOffsetCommit.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class OffsetCommitRequestPartition:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    """Offset of the next record to read: one past the last record processed."""
    committed_leader_epoch: int = wire(Int32, "6+", default=-1, ignorable=True)
    """Leader epoch of the last record processed, to notice truncation later; -1: unknown."""
    commit_timestamp: int = wire(Int64, "1", default=-1)
    """Milliseconds since 1970; -1: the time of arrival."""
    committed_metadata: str | None = wire(String, null="0+")
    """Free text, stored with the offset."""


@struct
class OffsetCommitRequestTopic:
    name: str = wire(String, "0-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(Array(OffsetCommitRequestPartition))


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = wire(String)
    generation_id_or_member_epoch: int = wire(Int32, "1+", default=-1, ignorable=True)
    """The generation of a classic group, or the member epoch in a new one; -1 if the sender is not a member."""
    member_id: str = wire(String, "1+", default="", ignorable=True)
    """``""`` if the sender is not a member."""
    group_instance_id: str | None = wire(String, "7+", null="7+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    retention_time_ms: int = wire(Int64, "2-4", default=-1, ignorable=True)
    """How long to keep the offsets after this commit; -1: use the broker's setting."""
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(Array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class OffsetCommitResponseTopic:
    name: str = wire(String, "0-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(Array(OffsetCommitResponsePartition))


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = wire(Int32, "3+", default=0, ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(Array(OffsetCommitResponseTopic))
