"""DescribeProducers (key 61)."""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@struct
class TopicRequest:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...] = wire(Array(TopicRequest))


@struct
class ProducerState:
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int32)
    last_sequence: int = wire(Int32, default=-1)
    last_timestamp: int = wire(Int64, default=-1)
    coordinator_epoch: int = wire(Int32)
    current_txn_start_offset: int = wire(Int64, default=-1)


@struct
class PartitionResponse:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    active_producers: tuple[ProducerState, ...] = wire(Array(ProducerState))


@struct
class TopicResponse:
    name: str = wire(String)
    partitions: tuple[PartitionResponse, ...] = wire(Array(PartitionResponse))


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    topics: tuple[TopicResponse, ...] = wire(Array(TopicResponse))
