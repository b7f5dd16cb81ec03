"""InitProducerId (key 22): get a producer id and epoch, the identity of an idempotent or transactional producer.

Sent by a producer before its first batch: without a transactional id to any broker, with one to the transaction
coordinator (FindCoordinator). Every batch carries id and epoch, so that brokers recognize repeated batches and refuse
former producers.

With a transactional id, the response always has the same producer id, with the epoch one higher, which fences all
earlier producers. If a transaction is still open, the coordinator first aborts it, and answers CONCURRENT_TRANSACTIONS
until that is done. When the epochs are used up (32767), the producer id changes.

A running producer sends the request again to bump its epoch, after an error that left the outcome of its sequences
unknown (v3+). It sends its current id and epoch, and is fenced if they are not the latest ones.

Errors:
    CONCURRENT_TRANSACTIONS: an earlier transaction is still being ended: repeat after a short pause.
    PRODUCER_FENCED (v4+; before: INVALID_PRODUCER_EPOCH): the given id and epoch are not the latest: a newer producer
        has taken over. Stop.
    INVALID_TRANSACTION_TIMEOUT: not positive, or over the broker's `transaction.max.timeout.ms` (15 minutes).
    INVALID_REQUEST: the transactional id is empty, or only one of id and epoch is given.
    TRANSACTION_ABORTABLE (v5+): abort, then continue.
    COORDINATOR_LOAD_IN_PROGRESS: repeat after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator
        and repeat.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED: the principal may not use the id; or, without
        an id, may neither write idempotently nor to any topic.

Versions:
    0 (0.11.0): new (KIP-98).
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.4): flexible.
    3 (2.5): the producer sends its current id and epoch (KIP-360).
    4 (2.7): the same bytes; PRODUCER_FENCED may be returned (KIP-588).
    5 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).
    6 (unstable in 4.3): two-phase commit (KIP-939).

Source: TransactionCoordinator.scala, handleInitProducerId.
"""

from ottla.codec.wire import Boolean, Int16, Int32, Int64, String, message, wire


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = wire(String, null="0+")
    """``None``: only idempotent."""
    transaction_timeout_ms: int = wire(Int32)
    """The coordinator aborts a transaction that is open for longer. Ignored without a transactional id."""
    producer_id: int = wire(Int64, "3+", default=-1)
    """The producer's current id, to bump its epoch; -1: none yet."""
    producer_epoch: int = wire(Int16, "3+", default=-1)
    """The producer's current epoch; -1: none yet."""
    enable2pc: bool = wire(Boolean, "6+", default=False)
    """An external coordinator decides about transactions: they have no timeout."""
    keep_prepared_txn: bool = wire(Boolean, "6+", default=False)
    """Keep the open transaction, so that the external coordinator can decide about it."""


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    error_code: int = wire(Int16)
    producer_id: int = wire(Int64, default=-1)
    """-1 if there is an error."""
    producer_epoch: int = wire(Int16)
    """0 for a new id; -1 if there is an error."""
    ongoing_txn_producer_id: int = wire(Int64, "6+", default=-1)
    """With `keep_prepared_txn`: the producer id of the open transaction; -1: none is open."""
    ongoing_txn_producer_epoch: int = wire(Int16, "6+", default=-1)
    """Its epoch; -1: none is open."""
