"""DescribeTransactions (key 65)."""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = wire(Array(String))


@struct
class TopicData:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class TransactionState:
    error_code: int = wire(Int16)
    transactional_id: str = wire(String)
    transaction_state: str = wire(String)
    transaction_timeout_ms: int = wire(Int32)
    transaction_start_time_ms: int = wire(Int64)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    topics: tuple[TopicData, ...] = wire(Array(TopicData))


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    transaction_states: tuple[TransactionState, ...] = wire(Array(TransactionState))
