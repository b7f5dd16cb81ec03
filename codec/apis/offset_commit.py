"""OffsetCommit (key 8)."""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, Int64, String, Uuid, message, struct, wire


@struct
class OffsetCommitRequestPartition:
    partition_index: int = wire(Int32)
    committed_offset: int = wire(Int64)
    committed_leader_epoch: int = wire(Int32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = wire(Int64, "1", default=-1)
    committed_metadata: str | None = wire(String, null="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = wire(String, "0-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(Array(OffsetCommitRequestPartition))


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = wire(String)
    generation_id_or_member_epoch: int = wire(Int32, "1+", default=-1, ignorable=True)
    member_id: str = wire(String, "1+", default="", ignorable=True)
    group_instance_id: str | None = wire(String, "7+", null="7+", default=None)
    retention_time_ms: int = wire(Int64, "2-4", default=-1, ignorable=True)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(Array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class OffsetCommitResponseTopic:
    name: str = wire(String, "0-9", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(Array(OffsetCommitResponsePartition))


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = wire(Int32, "3+", default=0, ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(Array(OffsetCommitResponseTopic))
