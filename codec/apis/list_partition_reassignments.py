"""ListPartitionReassignments (key 46)."""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class ListPartitionReassignmentsTopics:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = wire(Int32, default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        Array(ListPartitionReassignmentsTopics), null="0+", default=None
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = wire(Int32)
    replicas: tuple[int, ...] = wire(Array(Int32))
    adding_replicas: tuple[int, ...] = wire(Array(Int32))
    removing_replicas: tuple[int, ...] = wire(Array(Int32))


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
