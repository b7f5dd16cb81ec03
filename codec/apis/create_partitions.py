"""CreatePartitions (key 37): give topics more partitions.

Sent by administrators (Admin.createPartitions, kafka-topics.sh --alter --partitions) to any broker, which forwards it
to the controller. It takes the right to alter each topic. Partitions can be added, never taken away.

The records that are there stay where they are, while new ones with the same key may go to another partition: the order
of a key's records, and whatever relies on a key's partition (joins, compaction), breaks at that point. Brokers and
clients learn of the new partitions a little later, by Metadata.

Each topic succeeds or fails as a whole, and by itself.

Errors:
    INVALID_PARTITIONS: `count` is not more than there are.
    INVALID_REPLICA_ASSIGNMENT: not one assignment for each new partition, a broker that does not exist or comes twice,
        or not as many replicas as the topic's other partitions have.
    INVALID_REPLICATION_FACTOR: too few brokers are alive.
    UNKNOWN_TOPIC_OR_PARTITION: no such topic.
    THROTTLING_QUOTA_EXCEEDED: over the quota on such changes (`controller_mutation_rate`); retry after
        `throttle_time_ms`. Before v3 the request is carried out, and the client throttled.
    REASSIGNMENT_IN_PROGRESS: the topic's partitions are moving; only brokers with ZooKeeper say so: wait.
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. Metadata tells it.
    REQUEST_TIMED_OUT: look whether it happened before trying again.
    INVALID_REQUEST: a topic comes twice.

Versions:
    0 (1.0)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.5): flexible.
    3 (2.7): the same bytes; THROTTLING_QUOTA_EXCEEDED may come back (KIP-599).

Source: ControllerApis.scala, createPartitions; ReplicationControlManager.java, createPartitions; KIP-195.
"""

from ottla.codec.wire import Array, Boolean, Int16, Int32, String, message, struct, wire


@struct
class CreatePartitionsAssignment:
    """The replicas of one new partition."""

    broker_ids: tuple[int, ...] = wire(Array(Int32))
    """The first is the preferred leader."""


@struct
class CreatePartitionsTopic:
    name: str = wire(String)
    count: int = wire(Int32)
    """How many partitions there shall be in all."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(Array(CreatePartitionsAssignment), null="0+")
    """One for each new partition, in their order; ``None``: the controller chooses."""


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(Int32)
    """How long the answer may take."""
    validate_only: bool = wire(Boolean)
    """Check everything, create nothing."""


@struct
class CreatePartitionsTopicResult:
    name: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(Array(CreatePartitionsTopicResult))
