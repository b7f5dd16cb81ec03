"""CreatePartitions (key 37): give topics more partitions.

Sent by administrators (Admin.createPartitions, kafka-topics.sh --alter --partitions) to any broker, which forwards it
to the controller. Requires the right to alter each topic. Partitions can be added, but never removed.

Existing records stay where they are, but new ones with the same key may go to another partition: from then on, the
order of a key's records, and everything that relies on a key's partition (joins, compaction), is broken. Brokers and
clients learn of the new partitions a little later, by Metadata.

Each topic succeeds or fails as a whole, and independently of the others.

Errors:
    INVALID_PARTITIONS: `count` is not more than the topic has.
    INVALID_REPLICA_ASSIGNMENT: not one assignment for each new partition, a broker that does not exist or is repeated,
        or not as many replicas as the topic's other partitions have.
    INVALID_REPLICATION_FACTOR: too few brokers are alive.
    UNKNOWN_TOPIC_OR_PARTITION: no such topic.
    THROTTLING_QUOTA_EXCEEDED: over the quota on such changes (`controller_mutation_rate`); retry after
        `throttle_time_ms`. Before v3 the request is carried out, and the client throttled.
    REASSIGNMENT_IN_PROGRESS: the topic's partitions are moving: wait. Only from brokers with ZooKeeper.
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. See Metadata.
    REQUEST_TIMED_OUT: the outcome is unknown: check before trying again.
    INVALID_REQUEST: the request names a topic twice.

Versions:
    0 (1.0)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.5): flexible.
    3 (2.7): the same bytes; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599).

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
    """Total number of partitions after the request."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(Array(CreatePartitionsAssignment), null="0+")
    """One for each new partition, in their order; ``None``: the controller chooses."""


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(Int32)
    """How long the response may take."""
    validate_only: bool = wire(Boolean)
    """Check the request without creating anything."""


@struct
class CreatePartitionsTopicResult:
    name: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(Array(CreatePartitionsTopicResult))
