"""AlterPartitionReassignments (key 45)."""

from ottla.codec.wire import Array, Boolean, Int16, Int32, String, message, struct, wire


@struct
class ReassignablePartition:
    partition_index: int = wire(Int32)
    replicas: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=None)


@struct
class ReassignableTopic:
    name: str = wire(String)
    partitions: tuple[ReassignablePartition, ...] = wire(Array(ReassignablePartition))


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = wire(Int32, default=60000)
    allow_replication_factor_change: bool = wire(Boolean, "1+", default=True)
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
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    responses: tuple[ReassignableTopicResponse, ...] = wire(Array(ReassignableTopicResponse))
