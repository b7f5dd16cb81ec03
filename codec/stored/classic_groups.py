"""Records of ``__consumer_offsets``, types 0 to 2: committed offsets of all groups, and groups of the classic protocol.

The topic is how a group coordinator remembers. It is compacted: of each key the last record holds, and a null value
takes it back (an offset has expired or was deleted, a group is gone). A group belongs to the partition that Java's hash
of its id gives, modulo the number of partitions (50), and whoever leads that partition coordinates it: it reads the
partition from the beginning when it becomes leader, and answers COORDINATOR_LOAD_IN_PROGRESS until it is through.

A commit is one record for each partition committed (type 1). Commits of a transaction lie in transactional batches, and
count once its marker is there; until then OffsetFetch says UNSTABLE_OFFSET_COMMIT to those who ask for stable ones.
A commit expires `offsets.retention.minutes` (7 days) after its group became empty.

A classic group (JoinGroup, SyncGroup) is one record (type 2), written with each new generation, with all that each
member subscribes to and was assigned. Groups that only keep offsets have one too, without members.

Versions of OffsetCommitValue:
    0 (0.8.2)
    1 (0.9): `expire_timestamp`, which 2 drops again.
    2 (2.1): when a commit expires depends on the group only (KIP-211).
    3 (2.1): `leader_epoch` (KIP-320).
    4 (3.5): flexible, so that older brokers can read what newer ones write (KIP-915).

Versions of GroupMetadataValue:
    0 (0.9)
    1 (0.10.1): `rebalance_timeout` (KIP-62).
    2 (2.1): `current_state_timestamp` (KIP-211).
    3 (2.3): `group_instance_id`, static members (KIP-345).
    4 (3.5): flexible (KIP-915).

Source: GroupCoordinatorRecordHelpers.java, OffsetMetadataManager.java.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Bytes, Int32, Int64, String, Uuid, message, struct, wire


@message(key=0, versions="0")
class LegacyOffsetCommitKey:
    """Type 0, of Kafka 0.8; what type 1 replaced."""

    group: str = wire(String)
    topic: str = wire(String)
    partition: int = wire(Int32)


@message(key=0, versions="0")
class LegacyOffsetCommitValue:
    offset: int = wire(Int64)
    """Of the next record to consume."""
    metadata: str = wire(String)
    """Whatever the committer wrote beside it."""
    commit_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""


@message(key=1, versions="0")
class OffsetCommitKey:
    """Type 1: where a group is in a partition."""

    group: str = wire(String)
    topic: str = wire(String)
    partition: int = wire(Int32)


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = wire(Int64)
    """Of the next record to consume."""
    leader_epoch: int = wire(Int32, "3+", default=-1, ignorable=True)
    """Of the last record consumed; -1 where it is unknown."""
    metadata: str = wire(String)
    """Whatever the committer wrote beside it."""
    commit_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""
    expire_timestamp: int = wire(Int64, "1", default=-1, ignorable=True)
    """Milliseconds since 1970; -1: when the broker's retention is over."""
    topic_id: uuid.UUID = wire(Uuid, "4+", default=NO_UUID, tag=0, ignorable=True)
    """So that an offset is not taken for one of a later topic of the same name; `NO_UUID` where it is unknown."""


@message(key=2, versions="0")
class GroupMetadataKey:
    """Type 2: a classic group."""

    group: str = wire(String)


@struct
class MemberMetadata:
    member_id: str = wire(String)
    """Given by the coordinator."""
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None, ignorable=True)
    """Given by the user to a static member; ``None`` for others."""
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address the member connected from, with a slash before it."""
    rebalance_timeout: int = wire(Int32, "1+", default=-1, ignorable=True)
    """How long it may take to rejoin, in milliseconds; -1 (v0): as `session_timeout`."""
    session_timeout: int = wire(Int32)
    """After how long without a heartbeat it is dropped, in milliseconds."""
    subscription: bytes = wire(Bytes)
    """For consumers as `ottla.codec.consumer_protocol` says, for other kinds of groups whatever they agreed on."""
    assignment: bytes = wire(Bytes)
    """The same, as the leader decided; empty for a member that has none."""


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = wire(String)
    """``"consumer"``, ``"connect"`` …; empty for a group that only keeps offsets."""
    generation: int = wire(Int32)
    """Counts the rebalances."""
    protocol: str | None = wire(String, null="0+")
    """The assignor (or what else the members could choose from) of this generation; ``None`` while there is none."""
    leader: str | None = wire(String, null="0+")
    """The `member_id` that assigns; ``None`` while there is none."""
    current_state_timestamp: int = wire(Int64, "2+", default=-1, ignorable=True)
    """Since when the group is in its state, in milliseconds since 1970; -1 where it is unknown."""
    members: tuple[MemberMetadata, ...] = wire(Array(MemberMetadata))
