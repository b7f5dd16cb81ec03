"""AddPartitionsToTxn (key 24)."""

from ottla.codec.wire import Array, Boolean, Int16, Int32, Int64, String, message, struct, wire


@struct
class AddPartitionsToTxnTopic:
    name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    verify_only: bool = wire(Boolean, default=False)
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic))


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire(
        Array(AddPartitionsToTxnTransaction), "4+", default=()
    )
    v3_and_below_transactional_id: str = wire(String, "0-3", default="")
    v3_and_below_producer_id: int = wire(Int64, "0-3", default=0)
    v3_and_below_producer_epoch: int = wire(Int16, "0-3", default=0)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic), "0-3", default=())


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire(Int32)
    partition_error_code: int = wire(Int16)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = wire(String)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(Array(AddPartitionsToTxnPartitionResult))


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = wire(String)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire(Array(AddPartitionsToTxnTopicResult))


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16, "4+", default=0, ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire(
        Array(AddPartitionsToTxnResult), "4+", default=()
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        Array(AddPartitionsToTxnTopicResult), "0-3", default=()
    )
