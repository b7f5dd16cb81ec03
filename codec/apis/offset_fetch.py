"""OffsetFetch (key 9): read the committed offsets of groups.

Sent to the groups' coordinator by a consumer that has got partitions and wants to know where to start, and by tools
(Admin.listConsumerGroupOffsets, for many groups at once). The request changes nothing, so it may be repeated freely,
and clients that are not members may send it as well.

A partition without a committed offset is no error: its `committed_offset` is -1, and `auto.offset.reset` decides. The
same is true for groups that do not exist.

Errors:
    UNSTABLE_OFFSET_COMMIT (v7+, with `require_stable`): a transaction that has sent offsets for the partition
        (TxnOffsetCommit) is undecided: ask again after a pause, or records may be read twice.
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (v9+): only if member id and epoch were sent: heartbeat or join first.
    UNKNOWN_TOPIC_ID (v10+): for one topic.
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED: if all topics are asked for, hidden topics are left
        out.
    COORDINATOR_LOAD_IN_PROGRESS: ask again after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask
        FindCoordinator again.

Versions:
    0 (0.8.2): read from ZooKeeper; dropped by Kafka 4.0.
    1 (0.8.2): read from the coordinator.
    2 (0.10.2): ``None`` asks for all topics; `error_code` of the group (KIP-88).
    3 (0.11.0): `throttle_time_ms`.
    4 (2.0): throttled after the answer (KIP-219).
    5 (2.1): `committed_leader_epoch` (KIP-320).
    6 (2.4): flexible.
    7 (2.5): `require_stable` (KIP-447).
    8 (3.0): many groups at once, in `groups` (KIP-709).
    9 (3.7): `member_id` and `member_epoch`, for the new groups (KIP-848).
    10 (4.2): topics by id (KIP-848).

Source: OffsetMetadataManager.java, fetchOffsets.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Boolean, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class OffsetFetchRequestTopic:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@struct
class OffsetFetchRequestTopics:
    name: str = wire(String, "8-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@struct
class OffsetFetchRequestGroup:
    group_id: str = wire(String)
    member_id: str | None = wire(String, "9+", null="9+", default=None, ignorable=True)
    """``None``: do not check membership."""
    member_epoch: int = wire(Int32, "9+", default=-1, ignorable=True)
    """-1: do not check membership."""
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(Array(OffsetFetchRequestTopics), null="0+")
    """``None``: every topic for which the group has offsets."""


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    """v0-7 ask for one group at the top of the message, v8+ for any number in `groups`."""

    group_id: str = wire(String, "0-7", default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(
        Array(OffsetFetchRequestTopic), "0-7", null="2-7", default=()
    )
    """``None`` (v2+): every topic for which the group has offsets."""
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(Array(OffsetFetchRequestGroup), "8+", default=())
    require_stable: bool = wire(Boolean, "7+", default=False)
    """Return UNSTABLE_OFFSET_COMMIT rather than an offset that a transaction is about to replace."""


@struct
class OffsetFetchResponsePartition:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    """The next offset to read; -1: none was committed."""
    committed_leader_epoch: int = wire(Int32, "5+", default=-1, ignorable=True)
    """Leader epoch of the last record processed; -1: unknown."""
    metadata: str | None = wire(String, null="0+")
    """As committed."""
    error_code: int = wire(Int16)


@struct
class OffsetFetchResponseTopic:
    name: str = wire(String)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(Array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    """The next offset to read; -1: none was committed."""
    committed_leader_epoch: int = wire(Int32, default=-1, ignorable=True)
    """Leader epoch of the last record processed; -1: unknown."""
    metadata: str | None = wire(String, null="0+")
    """As committed."""
    error_code: int = wire(Int16)


@struct
class OffsetFetchResponseTopics:
    name: str = wire(String, "8-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire(Array(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup:
    group_id: str = wire(String)
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(Array(OffsetFetchResponseTopics))
    error_code: int = wire(Int16, default=0)
    """Error of the group; then `topics` is empty."""


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    """v0-7 use `topics` and `error_code`, v8+ use `groups`."""

    throttle_time_ms: int = wire(Int32, "3+", default=0, ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(Array(OffsetFetchResponseTopic), "0-7", default=())
    error_code: int = wire(Int16, "2-7", default=0, ignorable=True)
    """Error of the group. v0-1 have it in each partition instead."""
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(Array(OffsetFetchResponseGroup), "8+", default=())
