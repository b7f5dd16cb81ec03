"""ShareFetch (key 78)."""

import uuid

from ottla.codec.wire import (
    Array,
    Boolean,
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
class AcknowledgementBatch:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    acknowledge_types: tuple[int, ...] = wire(Array(Int8))


@struct
class FetchPartition:
    partition_index: int = wire(Int32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(Array(AcknowledgementBatch))


@struct
class FetchTopic:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[FetchPartition, ...] = wire(Array(FetchPartition))


@struct
class ForgottenTopic:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+")
    share_session_epoch: int = wire(Int32)
    max_wait_ms: int = wire(Int32)
    min_bytes: int = wire(Int32)
    max_bytes: int = wire(Int32, default=2**31 - 1)
    max_records: int = wire(Int32)
    batch_size: int = wire(Int32)
    share_acquire_mode: int = wire(Int8, "2+", default=0, ignorable=True)
    is_renew_ack: bool = wire(Boolean, "2+", default=False)
    topics: tuple[FetchTopic, ...] = wire(Array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(Array(ForgottenTopic))


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class AcquiredRecords:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    delivery_count: int = wire(Int16)


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    acknowledge_error_code: int = wire(Int16)
    acknowledge_error_message: str | None = wire(String, null="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch))
    records: Buffer | None = wire(Records, null="0")
    acquired_records: tuple[AcquiredRecords, ...] = wire(Array(AcquiredRecords))


@struct
class ShareFetchableTopicResponse:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(Int32)
    responses: tuple[ShareFetchableTopicResponse, ...] = wire(Array(ShareFetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint))
