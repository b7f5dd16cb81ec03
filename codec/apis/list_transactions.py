"""ListTransactions (key 66): the transactional ids that a broker coordinates, and their states.

Sent by an administrator (Admin.listTransactions, `kafka-transactions.sh list`) to every broker, because each answers
for the ids that it coordinates. An id is listed from its first InitProducerId until it expires, whether it has an open
transaction or not. Ids that the principal may not describe are left out without an error.

An id is listed only if it passes all filters.

Errors:
    COORDINATOR_LOAD_IN_PROGRESS: the broker is still loading a partition of `__transaction_state`, and lists nothing
        until that is done. Ask again after a pause.
    COORDINATOR_NOT_AVAILABLE: the broker is starting or stopping: ask again after a pause.
    INVALID_REGULAR_EXPRESSION: v2+, `transactional_id_pattern` is invalid.

Versions:
    0 (3.0): flexible.
    1 (3.8): `duration_filter` (KIP-994).
    2 (4.1): `transactional_id_pattern` (KIP-1152).

Source: TransactionStateManager.scala, listTransactionStates; KIP-664.
"""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = wire(Array(String))
    """Names of states, as in `TransactionState`; ``()``: all."""
    producer_id_filters: tuple[int, ...] = wire(Array(Int64))
    """``()``: all."""
    duration_filter: int = wire(Int64, "1+", default=-1)
    """In milliseconds: only ids whose last transaction began longer ago, or that never had one; combine it with
    `state_filters` to find open transactions. A negative number: all."""
    transactional_id_pattern: str | None = wire(String, "2+", null="2+", default=None)
    """A regular expression in RE2's syntax that must match the whole id; ``None`` or ``""``: all."""


@struct
class TransactionState:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    transaction_state: str = wire(String)
    """``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit``, ``CompleteAbort``, or
    ``PrepareEpochFence``."""


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    unknown_state_filters: tuple[str, ...] = wire(Array(String))
    """Unknown names in `state_filters`. They match nothing, and are no error."""
    transaction_states: tuple[TransactionState, ...] = wire(Array(TransactionState))
