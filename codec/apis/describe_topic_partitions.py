"""DescribeTopicPartitions (key 75)."""

import uuid

from ottla.codec.wire import Array, Boolean, Int16, Int32, Nested, String, Uuid, message, struct, wire


@struct
class TopicRequest:
    name: str = wire(String)


@struct
class Cursor:
    topic_name: str = wire(String)
    partition_index: int = wire(Int32)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: tuple[TopicRequest, ...] = wire(Array(TopicRequest))
    response_partition_limit: int = wire(Int32, default=2000)
    cursor: Cursor | None = wire(Nested(Cursor), null="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire(Int16)
    partition_index: int = wire(Int32)
    leader_id: int = wire(Int32)
    leader_epoch: int = wire(Int32, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(Array(Int32))
    isr_nodes: tuple[int, ...] = wire(Array(Int32))
    eligible_leader_replicas: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=None)
    last_known_elr: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=None)
    offline_replicas: tuple[int, ...] = wire(Array(Int32), ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire(Int16)
    name: str | None = wire(String, null="0+")
    topic_id: uuid.UUID = wire(Uuid, ignorable=True)
    is_internal: bool = wire(Boolean, default=False, ignorable=True)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = wire(Int32, default=-(2**31))


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = wire(Nested(Cursor), null="0+", default=None)
