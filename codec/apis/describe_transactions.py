"""DescribeTransactions (key 65): the state and the partitions of transactional ids.

Sent by an administrator (Admin.describeTransactions, `kafka-transactions.sh describe`) to the transaction coordinator
of each id; find it with FindCoordinator. It helps to find hanging transactions (KIP-664): DescribeProducers shows the
view of a partition, this API shows the coordinator's view. A transaction that is open there but not here hangs.

Topics that the principal may not describe are left out without an error.

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
    """Ids with the same coordinator; ``()`` describes none."""


@struct
class TopicData:
    topic: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class TransactionState:
    """With an error, only `transactional_id` has a meaning."""

    error_code: int = wire(Int16)
    transactional_id: str = wire(String)
    transaction_state: str = wire(String)
    """``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit``, ``CompleteAbort``, or
    ``PrepareEpochFence``."""
    transaction_timeout_ms: int = wire(Int32)
    """From the producer's InitProducerId: a transaction that is open for longer is aborted."""
    transaction_start_time_ms: int = wire(Int64)
    """When the first partition was added, in milliseconds since 1970; -1 if none has been added yet."""
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    topics: tuple[TopicData, ...] = wire(Array(TopicData))
    """The partitions of the open transaction. While it commits or aborts, those without the marker."""


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    transaction_states: tuple[TransactionState, ...] = wire(Array(TransactionState))
    """One for each id, in the order of the request."""
