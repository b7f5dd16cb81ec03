"""ElectLeaders (key 43)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@struct
class TopicPartitions:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = wire(Int8, "1+", default=0)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(Array(TopicPartitions), null="0+")
    timeout_ms: int = wire(Int32, default=60000)


@struct
class PartitionResult:
    partition_id: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@struct
class ReplicaElectionResult:
    topic: str = wire(String)
    partition_result: tuple[PartitionResult, ...] = wire(Array(PartitionResult))


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16, "1+", default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(Array(ReplicaElectionResult))
