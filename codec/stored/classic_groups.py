"""Records of ``__consumer_offsets``, types 0 to 2: committed offsets of all groups, and groups of the classic protocol.

A group coordinator keeps its state in this topic. The topic is compacted: of each key only the last record counts, and
a null value deletes the key (an offset has expired or was deleted, a group is gone). A group belongs to one partition:
Java's hash of its id, modulo the number of partitions (50). The leader of that partition coordinates the group. A new
leader reads the partition from the beginning, and answers COORDINATOR_LOAD_IN_PROGRESS until it has finished.

A commit is one record for each partition committed (type 1). Commits of a transaction are in transactional batches, and
count once its marker is written; until then OffsetFetch answers UNSTABLE_OFFSET_COMMIT to requests for stable offsets.
A commit expires `offsets.retention.minutes` (7 days) after its group became empty.

A classic group (JoinGroup, SyncGroup) is one record (type 2), written for each new generation, with the subscription
and the assignment of every member. Groups that only store offsets have one too, without members.

Versions of OffsetCommitValue:
    0 (0.8.2)
    1 (0.9): `expire_timestamp`, which 2 removes again.
    2 (2.1): the expiry of a commit depends on the group only (KIP-211).
    3 (2.1): `leader_epoch` (KIP-320).
    4 (3.5): flexible, so that older brokers can read records of newer ones (KIP-915).

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
    """Type 0, of Kafka 0.8; replaced by type 1."""

    group: str = wire(String)
    topic: str = wire(String)
    partition: int = wire(Int32)


@message(key=0, versions="0")
class LegacyOffsetCommitValue:
    offset: int = wire(Int64)
    """Offset of the next record to consume."""
    metadata: str = wire(String)
    """Any text of the committer."""
    commit_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""


@message(key=1, versions="0")
class OffsetCommitKey:
    """Type 1: a group's committed offset in a partition."""

    group: str = wire(String)
    topic: str = wire(String)
    partition: int = wire(Int32)


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = wire(Int64)
    """Offset of the next record to consume."""
    leader_epoch: int = wire(Int32, "3+", default=-1, ignorable=True)
    """Leader epoch of the last record consumed; -1 if it is unknown."""
    metadata: str = wire(String)
    """Any text of the committer."""
    commit_timestamp: int = wire(Int64)
    """Milliseconds since 1970."""
    expire_timestamp: int = wire(Int64, "1", default=-1, ignorable=True)
    """Milliseconds since 1970; -1: after the broker's retention time."""
    topic_id: uuid.UUID = wire(Uuid, "4+", default=NO_UUID, tag=0, ignorable=True)
    """Prevents the use of the offset for a recreated topic; `NO_UUID` if it is unknown."""


@message(key=2, versions="0")
class GroupMetadataKey:
    """Type 2: a classic group."""

    group: str = wire(String)


@struct
class MemberMetadata:
    member_id: str = wire(String)
    """Assigned by the coordinator."""
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None, ignorable=True)
    """Set by the user for a static member; ``None`` for others."""
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address from which the member connected, with a slash in front."""
    rebalance_timeout: int = wire(Int32, "1+", default=-1, ignorable=True)
    """How long the member may take to rejoin, in milliseconds; -1 (v0): as `session_timeout`."""
    session_timeout: int = wire(Int32)
    """The member is removed if it sends no heartbeat for this long, in milliseconds."""
    subscription: bytes = wire(Bytes)
    """For consumers see `ottla.codec.consumer_protocol`; other kinds of groups define their own."""
    assignment: bytes = wire(Bytes)
    """The same, as the leader assigned it; empty for a member without an assignment."""


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = wire(String)
    """``"consumer"``, ``"connect"`` …; empty for a group that only stores offsets."""
    generation: int = wire(Int32)
    """Counts the rebalances."""
    protocol: str | None = wire(String, null="0+")
    """The assignor of this generation, or whatever else the members choose from; ``None`` if there is none yet."""
    leader: str | None = wire(String, null="0+")
    """The `member_id` of the leader, who assigns; ``None`` if there is none yet."""
    current_state_timestamp: int = wire(Int64, "2+", default=-1, ignorable=True)
    """When the group entered its state, in milliseconds since 1970; -1 if it is unknown."""
    members: tuple[MemberMetadata, ...] = wire(Array(MemberMetadata))
