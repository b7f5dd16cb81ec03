"""TxnOffsetCommit (key 28)."""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(String, null="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = wire(String, "0-5", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "6+", default=NO_UUID, ignorable=True)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(Array(TxnOffsetCommitRequestPartition))


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = wire(String)
    group_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    generation_id_or_member_epoch: int = wire(Int32, "3+", default=-1)
    member_id: str = wire(String, "3+", default="")
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(Array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class TxnOffsetCommitResponseTopic:
    name: str = wire(String, "0-5", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "6+", default=NO_UUID, ignorable=True)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(Array(TxnOffsetCommitResponsePartition))


@message(key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(Array(TxnOffsetCommitResponseTopic))
