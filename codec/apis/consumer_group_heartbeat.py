"""ConsumerGroupHeartbeat (key 68)."""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Nested, String, Uuid, message, struct, wire


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = wire(String)
    member_id: str = wire(String)
    member_epoch: int = wire(Int32)
    instance_id: str | None = wire(String, null="0+", default=None)
    rack_id: str | None = wire(String, null="0+", default=None)
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(String), null="0+", default=None)
    subscribed_topic_regex: str | None = wire(String, "1+", null="1+", default=None)
    server_assignor: str | None = wire(String, null="0+", default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(Array(TopicPartitions), null="0+", default=None)


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+", default=None)
    member_epoch: int = wire(Int32)
    heartbeat_interval_ms: int = wire(Int32)
    assignment: Assignment | None = wire(Nested(Assignment), null="0+", default=None)
