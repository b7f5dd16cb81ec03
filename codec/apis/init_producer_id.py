"""InitProducerId (key 22): a producer id and epoch, for idempotent and transactional producers.

Versions: 2: flexible. 3: the producer tells the id and epoch it has, to have its epoch raised (KIP-360). 4:
PRODUCER_FENCED may come back. 5: TRANSACTION_ABORTABLE may come back. 6: two-phase commit (KIP-939), unstable in 4.3.
"""

from ottla.codec.wire import Boolean, Int16, Int32, Int64, String, message, wire


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = wire(String, null="0+")
    """``None``: merely idempotent."""
    transaction_timeout_ms: int = wire(Int32)
    """After how long the coordinator aborts a transaction, in milliseconds."""
    producer_id: int = wire(Int64, "3+", default=-1)
    """The id the producer has; -1 for none."""
    producer_epoch: int = wire(Int16, "3+", default=-1)
    """The epoch the producer has; -1 for none."""
    enable2pc: bool = wire(Boolean, "6+", default=False)
    keep_prepared_txn: bool = wire(Boolean, "6+", default=False)


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = wire(Int32, default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    producer_id: int = wire(Int64, default=-1)
    producer_epoch: int = wire(Int16)
    ongoing_txn_producer_id: int = wire(Int64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire(Int16, "6+", default=-1)
