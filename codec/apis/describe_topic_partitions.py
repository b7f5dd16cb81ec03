"""DescribeTopicPartitions (key 75): topics and their partitions, page by page, with the eligible leaders (KIP-966).

Sent by an administrator (Admin.describeTopics, `kafka-topics.sh --describe`) to any broker. Unlike Metadata it limits
the size of the response, has no addresses of brokers, and never creates a topic: use DescribeCluster to resolve the
node ids. Clients that produce and consume keep using Metadata.

Topics are sorted by name. If the response has a `next_cursor`, ask again with it as `cursor` and the same `topics`.
Each page shows the state at its own time.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION: the topic does not exist.
    INVALID_TOPIC_EXCEPTION: no topic can have this name.
    TOPIC_AUTHORIZATION_FAILED: the topic may not be described. Such topics come after the others.
    INVALID_REQUEST: `cursor` has a topic that is not among `topics`, or a negative partition.

Versions:
    0 (3.8): flexible.

Source: DescribeTopicPartitionsRequestHandler.java; KRaftMetadataCache.scala; KIP-966.
"""

import uuid

from ottla.codec.wire import Array, Boolean, Int16, Int32, Nested, String, Uuid, message, struct, wire


@struct
class TopicRequest:
    name: str = wire(String)


@struct
class Cursor:
    """The first partition of the next page; it need not exist."""

    topic_name: str = wire(String)
    partition_index: int = wire(Int32)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: tuple[TopicRequest, ...] = wire(Array(TopicRequest))
    """``()``: all topics that may be described."""
    response_partition_limit: int = wire(Int32, default=2000)
    """How many partitions the answer may have, at least 1; a broker lowers it to `max.request.partition.size.limit`."""
    cursor: Cursor | None = wire(Nested(Cursor), null="0+", default=None)
    """``None``: from the start. Else `next_cursor` of the previous page."""


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire(Int16)
    partition_index: int = wire(Int32)
    leader_id: int = wire(Int32)
    """-1: no leader is alive and has the listener that received the request."""
    leader_epoch: int = wire(Int32, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(Array(Int32))
    """The preferred leader first."""
    isr_nodes: tuple[int, ...] = wire(Array(Int32))
    """The replicas in sync, including the leader."""
    eligible_leader_replicas: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=None)
    """Replicas that fell out of sync while fewer than `min.insync.replicas` were in sync. They have all committed
    records, so they may lead."""
    last_known_elr: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=None)
    """Replicas that were eligible until an unclean shutdown made that uncertain."""
    offline_replicas: tuple[int, ...] = wire(Array(Int32), ignorable=True)
    """Replicas on brokers that are down, or in directories that failed."""


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire(Int16)
    name: str | None = wire(String, null="0+")
    topic_id: uuid.UUID = wire(Uuid, ignorable=True)
    is_internal: bool = wire(Boolean, default=False, ignorable=True)
    """One of Kafka's own topics, for example `__consumer_offsets`."""
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    """Only some of them if the page begins or ends within the topic."""
    topic_authorized_operations: int = wire(Int32, default=-(2**31))
    """Always sent."""


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = wire(Nested(Cursor), null="0+", default=None)
    """``None``: this is the last page."""
