"""Fetch (key 1): read record batches from partitions, waiting a while if there is little to read.

The answer holds whole batches, the first of which may begin before the offset asked for, and may end in a torn one.
The first non-empty partition returns at least one full batch whatever the limits say (v3+).

Versions: 3: `max_bytes`. 4: `isolation_level`, aborted transactions, record batches v2. 5: `log_start_offset`. 7:
incremental sessions (KIP-227). 9: `current_leader_epoch`. 10: zstd. 11: rack and preferred replica (KIP-392). 12:
flexible, divergence (KIP-595). 13: topics by id. 15: `replica_state` in place of `replica_id`. 16: leader hints
(KIP-951). 17: replica directories. 18: the follower's high watermark.
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
    replica_id: int = wire(Int32, default=-1)
    replica_epoch: int = wire(Int64, default=-1)


@struct
class FetchPartition:
    partition: int = wire(Int32)
    current_leader_epoch: int = wire(Int32, "9+", default=-1, ignorable=True)
    """The leader epoch the client knows; -1 skips the check."""
    fetch_offset: int = wire(Int64)
    last_fetched_epoch: int = wire(Int32, "12+", default=-1)
    """Leader epoch of the last record read, to notice truncation (KIP-320); -1 for none."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    """Used by followers only."""
    partition_max_bytes: int = wire(Int32)
    replica_directory_id: uuid.UUID = wire(Uuid, "17+", default=NO_UUID, tag=0, ignorable=True)
    high_watermark: int = wire(Int64, "18+", default=2**63 - 1, tag=1, ignorable=True)


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


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire(String, "12+", null="12+", default=None, tag=0, ignorable=True)
    replica_id: int = wire(Int32, "0-14", default=-1)
    """-1 for consumers."""
    replica_state: ReplicaState = wire(Nested(ReplicaState), "15+", default=ReplicaState(), tag=1)
    max_wait_ms: int = wire(Int32)
    """How long the broker may wait for `min_bytes`, in milliseconds."""
    min_bytes: int = wire(Int32)
    max_bytes: int = wire(Int32, "3+", default=2**31 - 1, ignorable=True)
    """A limit in bytes that the first batch may exceed."""
    isolation_level: int = wire(Int8, "4+", default=0, ignorable=True)
    """0: read_uncommitted. 1: read_committed."""
    session_id: int = wire(Int32, "7+", default=0, ignorable=True)
    """0 with `session_epoch` 0 opens a session; 0 with -1 does without."""
    session_epoch: int = wire(Int32, "7+", default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic), "7+", default=())
    rack_id: str = wire(String, "11+", default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int = wire(Int32, default=-1)
    end_offset: int = wire(Int64, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32, default=-1)
    leader_epoch: int = wire(Int32, default=-1)


@struct
class SnapshotId:
    end_offset: int = wire(Int64, default=-1)
    epoch: int = wire(Int32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = wire(Int64)
    first_offset: int = wire(Int64)


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    high_watermark: int = wire(Int64)
    """One past the last record that every in-sync replica has."""
    last_stable_offset: int = wire(Int64, "4+", default=-1, ignorable=True)
    """One past the last record whose transaction is decided; -1 for old brokers."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(Nested(EpochEndOffset), "12+", default=EpochEndOffset(), tag=0)
    """Set where the log was truncated behind the reader."""
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch), "12+", default=LeaderIdAndEpoch(), tag=1)
    snapshot_id: SnapshotId = wire(Nested(SnapshotId), "12+", default=SnapshotId(), tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        Array(AbortedTransaction), "4+", null="4+", default=(), ignorable=True
    )
    """For read_committed: whose records to drop, from which offset on."""
    preferred_read_replica: int = wire(Int32, "11+", default=-1)
    """-1, or the node to read from instead."""
    records: Buffer | None = wire(Records, null="0+")
    """Record batches, the last one possibly torn; ``None`` or empty where there is nothing."""


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
    """How long the broker held the answer back because of a quota, in milliseconds."""
    error_code: int = wire(Int16, "7+", default=0, ignorable=True)
    """0, or a code of `ottla.errors`."""
    session_id: int = wire(Int32, "7+", default=0)
    """0: no session."""
    responses: tuple[FetchableTopicResponse, ...] = wire(Array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), "16+", default=(), tag=0)
    """Where the leaders named in `current_leader` listen."""
