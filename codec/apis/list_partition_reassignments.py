"""ListPartitionReassignments (key 46): which partitions are moving between brokers.

Sent by administrators (Admin.listPartitionReassignments, kafka-reassign-partitions.sh --list, --verify) to any broker,
which forwards it to the controller. Requires the right to describe the cluster. Partitions that do not move, or do not
exist, are left out without an error. So if a requested partition is missing, its move is complete, or never began.
AlterPartitionReassignments starts the moves.

Errors:
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. See Metadata.

Versions:
    0 (2.4)

Source: ReplicationControlManager.java, listPartitionReassignments; KIP-455.
"""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class ListPartitionReassignmentsTopics:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = wire(Int32, default=60000)
    """How long the response may take."""
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        Array(ListPartitionReassignmentsTopics), null="0+", default=None
    )
    """``None``: all partitions that are moving."""


@struct
class OngoingPartitionReassignment:
    partition_index: int = wire(Int32)
    replicas: tuple[int, ...] = wire(Array(Int32))
    """Broker ids: remaining, added and removed ones together. After the move: these without `removing_replicas`."""
    adding_replicas: tuple[int, ...] = wire(Array(Int32))
    """Brokers to be added, whether they have caught up or not."""
    removing_replicas: tuple[int, ...] = wire(Array(Int32))
    """Brokers to be removed."""


@struct
class OngoingTopicReassignment:
    name: str = wire(String)
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(Array(OngoingPartitionReassignment))


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    topics: tuple[OngoingTopicReassignment, ...] = wire(Array(OngoingTopicReassignment))
