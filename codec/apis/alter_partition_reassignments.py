"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop such a move.

Sent by administrators (Admin.alterPartitionReassignments, kafka-reassign-partitions.sh --execute, --cancel) to any
broker, which forwards it to the controller. Requires the right to alter the cluster.

The response only says that the move began. The new replicas are added and copy the partition; when all are in sync, the
old ones are removed. Watch it with ListPartitionReassignments; meanwhile Metadata shows old and new replicas together.
A new target replaces a move under way. Copying uses the full network bandwidth unless it is throttled
(`leader.replication.throttled.rate` and similar settings).

Each partition succeeds or fails independently.

Errors:
    INVALID_REPLICA_ASSIGNMENT: the list is empty, a broker is unknown or repeated, or a cancellation would need an
        unclean election that the topic does not allow.
    NO_REASSIGNMENT_IN_PROGRESS: there is nothing to cancel.
    INVALID_REPLICATION_FACTOR: more or fewer replicas than before, while `allow_replication_factor_change` is false.
    UNKNOWN_TOPIC_OR_PARTITION: no such partition.
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. See Metadata.
    REQUEST_TIMED_OUT: the move may have begun nevertheless: list the moves before trying again.

Versions:
    0 (2.4)
    1 (4.1): `allow_replication_factor_change` (KIP-860).

Source: ReplicationControlManager.java, alterPartitionReassignment; KIP-455.
"""

from ottla.codec.wire import Array, Boolean, Int16, Int32, String, message, struct, wire


@struct
class ReassignablePartition:
    partition_index: int = wire(Int32)
    replicas: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=None)
    """Broker ids of the complete new list, the preferred leader first. ``None``: cancel, return to the old list."""


@struct
class ReassignableTopic:
    name: str = wire(String)
    partitions: tuple[ReassignablePartition, ...] = wire(Array(ReassignablePartition))


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = wire(Int32, default=60000)
    """Time limit of the response; the move itself has none."""
    allow_replication_factor_change: bool = wire(Boolean, "1+", default=True)
    """``False``: refuse partitions that would have more or fewer replicas than now, which happens if a list was made
    from Metadata during a move."""
    topics: tuple[ReassignableTopic, ...] = wire(Array(ReassignableTopic))


@struct
class ReassignablePartitionResponse:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@struct
class ReassignableTopicResponse:
    name: str = wire(String)
    partitions: tuple[ReassignablePartitionResponse, ...] = wire(Array(ReassignablePartitionResponse))


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    allow_replication_factor_change: bool = wire(Boolean, "1+", default=True, ignorable=True)
    """As in the request."""
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    responses: tuple[ReassignableTopicResponse, ...] = wire(Array(ReassignableTopicResponse))
