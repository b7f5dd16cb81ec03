"""InitProducerId (key 22): get a producer id and epoch, the identity of an idempotent or transactional producer.

Sent by a producer before its first batch: without a transactional id to any broker, with one to the transaction
coordinator (FindCoordinator). Every batch carries id and epoch, so that brokers recognise repeated ones and turn old
producers away.

With a transactional id, whoever asks gets the same producer id each time with an epoch one higher, which fences all
that had it before. If there is a transaction left open, the coordinator first aborts it and answers
CONCURRENT_TRANSACTIONS until that is done. When the epochs are used up (32767), the producer id changes.

A running producer asks again to have its epoch raised, after an error that left its sequences in doubt (v3+): it tells
the id and epoch it has, and is fenced if they are not the last ones.

Errors:
    CONCURRENT_TRANSACTIONS: an earlier transaction is still being ended: repeat after a short pause.
    PRODUCER_FENCED (v4+; before: INVALID_PRODUCER_EPOCH): the id and epoch told are not the last ones: a newer producer
        has taken over. Stop.
    INVALID_TRANSACTION_TIMEOUT: not positive, or over the broker's `transaction.max.timeout.ms` (15 minutes).
    INVALID_REQUEST: the transactional id is empty, or only one of id and epoch was told.
    TRANSACTION_ABORTABLE (v5+): abort, then go on.
    COORDINATOR_LOAD_IN_PROGRESS: repeat after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator
        and repeat.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED: no right to the id; or, without one, neither to
        idempotent writes nor to any topic.

Versions:
    0 (0.11.0): new (KIP-98).
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.4): flexible.
    3 (2.5): the producer tells the id and epoch it has (KIP-360).
    4 (2.7): the same bytes; PRODUCER_FENCED may come back (KIP-588).
    5 (3.8): the same bytes; TRANSACTION_ABORTABLE may come back (KIP-890).
    6 (unstable in 4.3): two-phase commit (KIP-939).

Source: TransactionCoordinator.scala, handleInitProducerId.
"""

from ottla.codec.wire import Boolean, Int16, Int32, Int64, String, message, wire


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = wire(String, null="0+")
    """``None``: merely idempotent."""
    transaction_timeout_ms: int = wire(Int32)
    """The coordinator aborts a transaction that is open for longer. Without meaning if there is no transactional id."""
    producer_id: int = wire(Int64, "3+", default=-1)
    """What the producer has, to have its epoch raised; -1: nothing yet."""
    producer_epoch: int = wire(Int16, "3+", default=-1)
    """What the producer has; -1: nothing yet."""
    enable2pc: bool = wire(Boolean, "6+", default=False)
    """An external coordinator decides on transactions: they have no timeout."""
    keep_prepared_txn: bool = wire(Boolean, "6+", default=False)
    """Leave the open transaction as it is, for that coordinator to decide."""


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    error_code: int = wire(Int16)
    producer_id: int = wire(Int64, default=-1)
    """-1 where there is an error."""
    producer_epoch: int = wire(Int16)
    """0 for a new id; -1 where there is an error."""
    ongoing_txn_producer_id: int = wire(Int64, "6+", default=-1)
    """With `keep_prepared_txn`: whose transaction is open; -1: none is."""
    ongoing_txn_producer_epoch: int = wire(Int16, "6+", default=-1)
    """Its epoch; -1: none is open."""
