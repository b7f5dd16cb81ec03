"""Produce (key 0): append record batches to partitions.

One request carries at most one batch per partition (magic 2, from v3 on). With ``acks=0`` the broker sends no answer
at all. An answer names every partition that the request named.

Versions: 0-2 carry message sets of magic 0 and 1 (brokers before 4.0). 3: record batches v2, transactions. 5:
`log_start_offset`. 7: zstd allowed. 8: per-record errors. 9: flexible. 10: leader hints (KIP-951). 11, 12: the same
bytes; 12 tells the broker that partitions join the transaction implicitly (KIP-890). 13: topics by id.
"""

import uuid

from ottla.codec.wire import (
    NO_UUID,
    Array,
    Buffer,
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
class PartitionProduceData:
    index: int = wire(Int32)
    records: Buffer | None = wire(Records, null="0+")
    """One record batch."""


@struct
class TopicProduceData:
    name: str = wire(String, "0-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(Array(PartitionProduceData))


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = wire(String, "3+", null="3+", default=None)
    """``None`` outside transactions."""
    acks: int = wire(Int16)
    """0: no answer. 1: the leader has it. -1: every in-sync replica has it."""
    timeout_ms: int = wire(Int32)
    """How long the broker may wait for the replicas, in milliseconds."""
    topic_data: tuple[TopicProduceData, ...] = wire(Array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = wire(Int32)
    """Index of the record within the batch."""
    batch_index_error_message: str | None = wire(String, null="0+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32, default=-1)
    leader_epoch: int = wire(Int32, default=-1)


@struct
class PartitionProduceResponse:
    index: int = wire(Int32)
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    base_offset: int = wire(Int64)
    """Offset of the first record; -1 where it is unknown."""
    log_append_time_ms: int = wire(Int64, "2+", default=-1, ignorable=True)
    """-1 unless the topic stamps records itself (LogAppendTime)."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        Array(BatchIndexAndErrorMessage), "8+", default=(), ignorable=True
    )
    """Which records made the broker refuse the batch."""
    error_message: str | None = wire(String, "8+", null="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch), "10+", default=LeaderIdAndEpoch(), tag=0)


@struct
class TopicProduceResponse:
    name: str = wire(String, "0-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(Array(PartitionProduceResponse))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...] = wire(Array(TopicProduceResponse))
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), "10+", default=(), tag=0)
    """Where the leaders named in `current_leader` listen."""
