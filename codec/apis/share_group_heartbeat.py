"""ShareGroupHeartbeat (key 76)."""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Nested, String, Uuid, message, struct, wire


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = wire(String)
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    rack_id: str | None = wire(String, null="0+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(String), null="0+", default=None)


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+", default=None)
    member_epoch: int = wire(Int32)
    heartbeat_interval_ms: int = wire(Int32)
    assignment: Assignment | None = wire(Nested(Assignment), null="0+", default=None)
