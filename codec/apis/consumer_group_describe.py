"""ConsumerGroupDescribe (key 69)."""

import uuid

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Nested, String, Uuid, message, struct, wire


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...] = wire(Array(String))
    include_authorized_operations: bool = wire(Boolean)


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    topic_name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@struct
class Member:
    member_id: str = wire(String)
    instance_id: str | None = wire(String, null="0+", default=None)
    rack_id: str | None = wire(String, null="0+", default=None)
    member_epoch: int = wire(Int32)
    client_id: str = wire(String)
    client_host: str = wire(String)
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, null="0+", default=None)
    assignment: Assignment = wire(Nested(Assignment))
    target_assignment: Assignment = wire(Nested(Assignment))
    member_type: int = wire(Int8, "1+", default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    assignor_name: str = wire(String)
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
