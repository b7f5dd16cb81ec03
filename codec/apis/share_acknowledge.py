"""ShareAcknowledge (key 79)."""

import uuid

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, Nested, String, Uuid, message, struct, wire


@struct
class AcknowledgementBatch:
    first_offset: int = wire(Int64)
    last_offset: int = wire(Int64)
    acknowledge_types: tuple[int, ...] = wire(Array(Int8))


@struct
class AcknowledgePartition:
    partition_index: int = wire(Int32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(Array(AcknowledgementBatch))


@struct
class AcknowledgeTopic:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[AcknowledgePartition, ...] = wire(Array(AcknowledgePartition))


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+")
    share_session_epoch: int = wire(Int32)
    is_renew_ack: bool = wire(Boolean, "2+", default=False)
    topics: tuple[AcknowledgeTopic, ...] = wire(Array(AcknowledgeTopic))


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32)


@struct
class PartitionData:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch))


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[PartitionData, ...] = wire(Array(PartitionData))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = wire(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint))
