"""Fetch (key 1): read record batches from partitions, waiting a while where there is little to read.

Sent by consumers to the leader of each partition, or to a replica near them (KIP-392); and by followers to the leader,
for this is also how partitions are replicated. The answer comes as soon as `min_bytes` are there, at the latest after
`max_wait_ms`, and at once if a partition has an error.

`records` holds batches as they lie in the log, not records cut to measure. The first may begin before the offset that
was asked for: drop the records before it. The last may be torn anywhere: drop it, and fetch it again. The limits
`max_bytes` and `partition_max_bytes` do not bind the first batch of the first partition that has one, so that nobody
gets stuck at a large batch (v3+, KIP-74); partitions are served in the order of the request, so rotate them.

With `isolation_level` 1 the answer ends before the first transaction that is undecided, and `aborted_transactions`
tells whose records to drop: those of `producer_id` from `first_offset` up to its abort marker. Markers are control
batches; they are in `records` too and no application should see them.

Sessions (v7+, KIP-227) save naming every partition every time. A request with `session_id` 0 and `session_epoch` 0
names all partitions and opens one; the answer gives its id (0: the broker has no room, go on without). Then epochs 1,
2, 3, … (after 2**31-1 comes 1) name only partitions that are new or have changed, such as in `fetch_offset`, and those
to forget; answers leave out partitions that have nothing new. Epoch -1 closes the session or does without one.

Errors:
    OFFSET_OUT_OF_RANGE: before `log_start_offset` or behind the end. From a preferred replica: ask the leader. From the
        leader: `auto.offset.reset` decides.
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH: the leader has moved: look it up (v16+: it may stand in
        `current_leader`).
    UNKNOWN_LEADER_EPOCH: the client knows a newer leader epoch than the broker: repeat after a pause.
    REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR (v6+): look up the leader, repeat.
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID: gone, recreated, or not known here yet: ask
        Metadata.
    TOPIC_AUTHORIZATION_FAILED: the principal may not read the topic.
    UNSUPPORTED_COMPRESSION_TYPE: the topic is compressed with zstd, and the version is below 10.
    FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: at the top: the broker
        dropped the session, an answer was lost, or version 13 was crossed. Begin a new one.
    OFFSET_MOVED_TO_TIERED_STORAGE (v14+): only to followers.

Versions:
    0 (0.8.2): message sets of magic 0. Versions 0-3 were dropped by Kafka 4.0.
    1 (0.9.0): `throttle_time_ms`.
    2 (0.10.0): message sets of magic 1 (KIP-32).
    3 (0.10.1): `max_bytes`, and the first batch always fits (KIP-74).
    4 (0.11.0): record batches v2, `isolation_level`, `last_stable_offset`, `aborted_transactions` (KIP-98).
    5 (0.11.0): `log_start_offset` (KIP-107).
    6 (1.0): the same bytes; KAFKA_STORAGE_ERROR may come back (KIP-112).
    7 (1.1): sessions (KIP-227).
    8 (2.0): throttled after the answer (KIP-219).
    9 (2.1): `current_leader_epoch` (KIP-320).
    10 (2.1): zstd may come back (KIP-110).
    11 (2.3): `rack_id` and `preferred_read_replica` (KIP-392).
    12 (2.7): flexible; `last_fetched_epoch`, `diverging_epoch`, `current_leader`, `snapshot_id`, `cluster_id`
        (KIP-595).
    13 (3.1): topics by id (KIP-516).
    14 (3.5): the same bytes; OFFSET_MOVED_TO_TIERED_STORAGE may come back (KIP-405).
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
    """Who a follower is. Consumers leave it at its defaults, and so out of the request."""

    replica_id: int = wire(Int32, default=-1)
    replica_epoch: int = wire(Int64, default=-1)
    """The epoch of its registration with the controller."""


@struct
class FetchPartition:
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "9+", default=-1, ignorable=True)
    """The leader epoch that the client knows, so that an old leader cannot answer; -1: no check."""
    fetch_offset: int = wire(Int64)
    """The first offset wanted."""
    last_fetched_epoch: int = wire(Int32, "12+", default=-1)
    """Leader epoch of the last record read, to be told of truncation in `diverging_epoch`; -1: no check."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    """The follower's own first offset. Consumers: -1."""
    partition_max_bytes: int = wire(Int32)
    """A limit for this partition, in bytes; the first batch of the answer may exceed it (v3+)."""
    replica_directory_id: uuid.UUID = wire(Uuid, "17+", default=NO_UUID, tag=0, ignorable=True)
    """Which log directory of the follower asks (controllers only)."""
    high_watermark: int = wire(Int64, "18+", default=2**63 - 1, tag=1, ignorable=True)
    """What the follower knows, so that the leader answers when it has a newer one; -1: nothing. 2**63-1: it does not
    take part."""


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
    """To be taken out of the session."""


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire(String, "12+", null="12+", default=None, tag=0, ignorable=True)
    """``None``, or the cluster the follower means. Consumers leave it out."""
    replica_id: int = wire(Int32, "0-14", default=-1)
    """-1 for consumers."""
    replica_state: ReplicaState = wire(Nested(ReplicaState), "15+", default=ReplicaState(), tag=1)
    max_wait_ms: int = wire(Int32)
    """How long the broker may wait for `min_bytes`."""
    min_bytes: int = wire(Int32)
    """1: answer as soon as there is anything. 0: answer at once."""
    max_bytes: int = wire(Int32, "3+", default=2**31 - 1, ignorable=True)
    """A limit for the whole answer, in bytes, that its first batch may exceed."""
    isolation_level: int = wire(Int8, "4+", default=0, ignorable=True)
    """0: read_uncommitted. 1: read_committed."""
    session_id: int = wire(Int32, "7+", default=0, ignorable=True)
    """0: none yet."""
    session_epoch: int = wire(Int32, "7+", default=-1, ignorable=True)
    """0 opens a session, -1 closes it or does without one; otherwise one more than last time."""
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    """In a session only what is new or has changed."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), "7+", default=())
    rack_id: str = wire(String, "11+", default="", ignorable=True)
    """`client.rack` of the consumer, for the broker to choose a near replica. ``""``: unknown."""


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
    """In KRaft only: what to load with FetchSnapshot, as the offset asked for is gone from the log."""

    end_offset: int = wire(Int64, default=-1)
    epoch: int = wire(Int32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)
    """Of the transaction in this partition; it ends with the producer's next abort marker."""


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    high_watermark: int = wire(Int64)
    """One past the last record that every in-sync replica has: consumers see nothing beyond. -1 with an error."""
    last_stable_offset: int = wire(Int64, "4+", default=-1, ignorable=True)
    """One past the last record before the first undecided transaction; -1: unknown."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    """The first offset there is; -1: unknown."""
    diverging_epoch: EpochEndOffset = wire(Nested(EpochEndOffset), "12+", default=EpochEndOffset(), tag=0)
    """Set if the log does not hold what `last_fetched_epoch` and `fetch_offset` claim: truncate to what both have of
    this epoch. `records` is empty then."""
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch), "12+", default=LeaderIdAndEpoch(), tag=1)
    """Where the partition is led now, with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""
    snapshot_id: SnapshotId = wire(Nested(SnapshotId), "12+", default=SnapshotId(), tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        Array(AbortedTransaction), "4+", null="4+", default=(), ignorable=True
    )
    """``None`` for read_uncommitted."""
    preferred_read_replica: int = wire(Int32, "11+", default=-1)
    """Ask this node from now on, and again the leader after `metadata.max.age.ms` or an error; -1: stay. `records` is
    empty then."""
    records: Buffer | None = wire(Records, null="0+")
    """Batches, the last one possibly torn; ``None`` or empty where there is nothing."""


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
    """Of the session; `responses` is empty then."""
    session_id: int = wire(Int32, "7+", default=0)
    """0: no session."""
    responses: tuple[FetchableTopicResponse, ...] = wire(Array(FetchableTopicResponse))
    """In a session only partitions with records, an error, or changed offsets."""
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), "16+", default=(), tag=0)
    """Where the leaders named in `current_leader` listen."""
