"""ListTransactions (key 66)."""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = wire(Array(String))
    producer_id_filters: tuple[int, ...] = wire(Array(Int64))
    duration_filter: int = wire(Int64, "1+", default=-1)
    transactional_id_pattern: str | None = wire(String, "2+", null="2+", default=None)


@struct
class TransactionState:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    transaction_state: str = wire(String)


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    unknown_state_filters: tuple[str, ...] = wire(Array(String))
    transaction_states: tuple[TransactionState, ...] = wire(Array(TransactionState))
