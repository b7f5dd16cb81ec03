"""DescribeTransactions (key 65): in which state some transactional ids are, and which partitions they hold.

Sent by an administrator (Admin.describeTransactions, `kafka-transactions.sh describe`) to the transaction coordinator
of each id; ask FindCoordinator first. Made for finding transactions that hang (KIP-664): DescribeProducers tells what a
partition believes, this tells what the coordinator believes, and a transaction open there but not here hangs.

Topics that the principal may not describe are left out in silence.

Errors:
    TRANSACTIONAL_ID_NOT_FOUND: no producer used this id, or it expired (`transactional.id.expiration.ms`).
    INVALID_REQUEST: an empty transactional id.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.

Versions:
    0 (3.0): flexible.

Source: TransactionCoordinator.scala, handleDescribeTransactions; KIP-664.
"""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = wire(Array(String))
    """All coordinated by the same broker; ``()`` describes none."""


@struct
class TopicData:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class TransactionState:
    """Where there is an error, only `transactional_id` has a meaning."""

    error_code: int = wire(Int16)
    transactional_id: str = wire(String)
    transaction_state: str = wire(String)
    """``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit``, ``CompleteAbort``, or
    ``PrepareEpochFence``."""
    transaction_timeout_ms: int = wire(Int32)
    """As the producer asked for in InitProducerId: a transaction open for longer is aborted."""
    transaction_start_time_ms: int = wire(Int64)
    """When the first partition joined, in milliseconds since 1970; -1 where none did yet."""
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    topics: tuple[TopicData, ...] = wire(Array(TopicData))
    """The partitions of the open transaction. While it commits or aborts, those that still lack the marker."""


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    transaction_states: tuple[TransactionState, ...] = wire(Array(TransactionState))
    """One for each id, in the order of the request."""
