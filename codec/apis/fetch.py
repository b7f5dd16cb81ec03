"""Fetch (key 1): read record batches from partitions, and wait for a while if there are too few.

Sent by consumers to the leader of each partition, or to a replica near them (KIP-392); and by followers to the leader,
because replication works this way too. The response comes as soon as `min_bytes` are available, after `max_wait_ms` at
the latest, and at once if a partition has an error.

`records` holds batches as they are in the log, not exactly the requested records. The first batch may begin before the
requested offset: drop the records before it. The last may be truncated anywhere: drop it, and fetch it again. The
limits `max_bytes` and `partition_max_bytes` do not apply to the first batch of the first partition that has one, so
that no consumer gets stuck at a large batch (v3+, KIP-74). Partitions are served in the order of the request, so rotate
them.

With `isolation_level` 1 the response ends before the first undecided transaction, and `aborted_transactions` says which
records to drop: the records of `producer_id` from `first_offset` up to its abort marker. Markers are control batches;
they are in `records` too, and no application should see them.

Sessions (v7+, KIP-227) save naming every partition every time. A request with `session_id` 0 and `session_epoch` 0
names all partitions and opens a session; the response has its id (0: the broker has no room, continue without). Then
epochs 1, 2, 3, … (after 2**31-1 comes 1) name only partitions that are new, have changed (their `fetch_offset`, say),
or are to be removed; responses leave out partitions without news. Epoch -1 closes the session, or uses none.

Errors:
    OFFSET_OUT_OF_RANGE: before `log_start_offset` or after the end. From a preferred replica: ask the leader. From the
        leader: `auto.offset.reset` decides.
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH: the leader has moved: look it up (v16+: `current_leader` may have it).
    UNKNOWN_LEADER_EPOCH: the client knows a newer leader epoch than the broker: repeat after a pause.
    REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR (v6+): look up the leader, repeat.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID: deleted, recreated, or not known here yet: ask
        Metadata.
    TOPIC_AUTHORIZATION_FAILED: the principal may not read the topic.
    UNSUPPORTED_COMPRESSION_TYPE: the topic is compressed with zstd, and the version is below 10.
    FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: at the top: the broker
        dropped the session, a response was lost, or version 13 was crossed. Open a new session.
    OFFSET_MOVED_TO_TIERED_STORAGE (v14+): only to followers.

Versions:
    0 (0.8.2): message sets of magic 0. Versions 0-3 were dropped by Kafka 4.0.
    1 (0.9.0): `throttle_time_ms`.
    2 (0.10.0): message sets of magic 1 (KIP-32).
    3 (0.10.1): `max_bytes`, and the first batch always fits (KIP-74).
    4 (0.11.0): record batches v2, `isolation_level`, `last_stable_offset`, `aborted_transactions` (KIP-98).
    5 (0.11.0): `log_start_offset` (KIP-107).
    6 (1.0): the same bytes; KAFKA_STORAGE_ERROR may be returned (KIP-112).
    7 (1.1): sessions (KIP-227).
    8 (2.0): throttled after the answer (KIP-219).
    9 (2.1): `current_leader_epoch` (KIP-320).
    10 (2.1): zstd may be returned (KIP-110).
    11 (2.3): `rack_id` and `preferred_read_replica` (KIP-392).
    12 (2.7): flexible; `last_fetched_epoch`, `diverging_epoch`, `current_leader`, `snapshot_id`, `cluster_id`
        (KIP-595).
    13 (3.1): topics by id (KIP-516).
    14 (3.5): the same bytes; OFFSET_MOVED_TO_TIERED_STORAGE may be returned (KIP-405).
    15 (3.5): `replica_state` in place of `replica_id` (KIP-903).
    16 (3.7): `node_endpoints` (KIP-951).
    17 (3.9): `replica_directory_id` (KIP-853).
    18 (4.1): the follower's `high_watermark` (KIP-1166).

Source: KafkaApis.scala, handleFetchRequest; FetchSession.scala, newContext.
"""

import uuid

from ottla.codec.wire import (
    NO_UUID,
    Array,
    Buffer,
    Int8,
    Int16,
    Int32,
    Int64,
    Nested,
    Records,
    String,
    Uuid,
    message,
    struct,
    wire,
)


@struct
class ReplicaState:
    """Identifies a follower. Consumers leave it at its defaults, which keeps it out of the request."""

    replica_id: int = wire(Int32, default=-1)
    replica_epoch: int = wire(Int64, default=-1)
    """The epoch of the follower's registration with the controller."""


@struct
class FetchPartition:
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "9+", default=-1, ignorable=True)
    """The leader epoch known to the client, so that a former leader refuses; -1: no check."""
    fetch_offset: int = wire(Int64)
    """The first offset to read."""
    last_fetched_epoch: int = wire(Int32, "12+", default=-1)
    """Leader epoch of the last record read, so that `diverging_epoch` reports truncation; -1: no check."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    """The follower's own first offset. Consumers: -1."""
    partition_max_bytes: int = wire(Int32)
    """A limit for this partition, in bytes; the first batch of the answer may exceed it (v3+)."""
    replica_directory_id: uuid.UUID = wire(Uuid, "17+", default=NO_UUID, tag=0, ignorable=True)
    """Id of the follower's log directory (controllers only)."""
    high_watermark: int = wire(Int64, "18+", default=2**63 - 1, tag=1, ignorable=True)
    """The follower's high watermark, so that the leader answers when it has a newer one; -1: none. 2**63-1: the
    follower does not support this."""


@struct
class FetchTopic:
    topic: str = wire(String, "0-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(Array(FetchPartition))


@struct
class ForgottenTopic:
    topic: str = wire(String, "7-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partitions: tuple[int, ...] = wire(Array(Int32))
    """Partitions to remove from the session."""


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire(String, "12+", null="12+", default=None, tag=0, ignorable=True)
    """The cluster of the follower, or ``None``. Consumers leave it out."""
    replica_id: int = wire(Int32, "0-14", default=-1)
    """-1 for consumers."""
    replica_state: ReplicaState = wire(Nested(ReplicaState), "15+", default=ReplicaState(), tag=1)
    max_wait_ms: int = wire(Int32)
    """How long the broker may wait for `min_bytes`."""
    min_bytes: int = wire(Int32)
    """1: answer as soon as there is anything. 0: answer at once."""
    max_bytes: int = wire(Int32, "3+", default=2**31 - 1, ignorable=True)
    """A limit for the whole response, in bytes; its first batch may exceed it."""
    isolation_level: int = wire(Int8, "4+", default=0, ignorable=True)
    """0: read_uncommitted. 1: read_committed."""
    session_id: int = wire(Int32, "7+", default=0, ignorable=True)
    """0: none yet."""
    session_epoch: int = wire(Int32, "7+", default=-1, ignorable=True)
    """0 opens a session, -1 closes it or uses none; otherwise one more than last time."""
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    """In a session, only partitions that are new or have changed."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), "7+", default=())
    rack_id: str = wire(String, "11+", default="", ignorable=True)
    """`client.rack` of the consumer, so that the broker can choose a near replica. ``""``: unknown."""


@struct
class EpochEndOffset:
    epoch: int = wire(Int32, default=-1)
    """-1: no divergence."""
    end_offset: int = wire(Int64, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32, default=-1)
    """-1: unknown."""
    leader_epoch: int = wire(Int32, default=-1)


@struct
class SnapshotId:
    """KRaft only: the snapshot to load with FetchSnapshot, because the requested offset is no longer in the log."""

    end_offset: int = wire(Int64, default=-1)
    epoch: int = wire(Int32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)
    """First offset of the transaction in this partition; it ends with the producer's next abort marker."""


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    high_watermark: int = wire(Int64)
    """One past the last record that every in-sync replica has: consumers see nothing beyond. -1 with an error."""
    last_stable_offset: int = wire(Int64, "4+", default=-1, ignorable=True)
    """One past the last record before the first undecided transaction; -1: unknown."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    """The first offset of the log; -1: unknown."""
    diverging_epoch: EpochEndOffset = wire(Nested(EpochEndOffset), "12+", default=EpochEndOffset(), tag=0)
    """Set if the log does not contain what `last_fetched_epoch` and `fetch_offset` claim: truncate to the part of this
    epoch that both have. `records` is empty then."""
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch), "12+", default=LeaderIdAndEpoch(), tag=1)
    """The current leader, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""
    snapshot_id: SnapshotId = wire(Nested(SnapshotId), "12+", default=SnapshotId(), tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        Array(AbortedTransaction), "4+", null="4+", default=(), ignorable=True
    )
    """``None`` for read_uncommitted."""
    preferred_read_replica: int = wire(Int32, "11+", default=-1)
    """Fetch from this node from now on, and from the leader again after `metadata.max.age.ms` or an error; -1: no
    change. `records` is empty then."""
    records: Buffer | None = wire(Records, null="0+")
    """Batches, the last one possibly truncated; ``None`` or empty if there are none."""


@struct
class FetchableTopicResponse:
    topic: str = wire(String, "0-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=1, versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16, "7+", default=0, ignorable=True)
    """Error of the session; `responses` is empty then."""
    session_id: int = wire(Int32, "7+", default=0)
    """0: no session."""
    responses: tuple[FetchableTopicResponse, ...] = wire(Array(FetchableTopicResponse))
    """In a session only partitions with records, an error, or changed offsets."""
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), "16+", default=(), tag=0)
    """Addresses of the leaders named in `current_leader`."""
