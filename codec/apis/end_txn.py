"""EndTxn (key 26): commit or abort a transaction.

Sent by a transactional producer to its transaction coordinator when all its batches are acknowledged. The response
means that the outcome is decided and stored. The markers for consumers are written to the partitions afterwards
(WriteTxnMarkers), so a read_committed consumer may see the records a moment later, and the next transaction may have to
wait (CONCURRENT_TRANSACTIONS).

From version 5 on every transaction ends with a new epoch, and sometimes a new producer id, which the producer must use
from then on. So a late batch of the last transaction can never become part of the next one.

The request can be repeated: if the transaction has already ended in the same way, the answer is 0.

Errors:
    CONCURRENT_TRANSACTIONS: the coordinator is still writing the markers of this transaction: repeat after a short
        pause.
    INVALID_TXN_STATE: no transaction is open (v5+ may abort nevertheless), or it ended the other way, for example
        aborted by its timeout.
    PRODUCER_FENCED (v2+; before: INVALID_PRODUCER_EPOCH): a newer producer with the same transactional id has taken
        over: stop.
    INVALID_PRODUCER_ID_MAPPING: the coordinator has another producer id for the transactional id, or has forgotten it
        (`transactional.id.expiration.ms`, seven days): fatal.
    TRANSACTION_ABORTABLE (v4+): abort the transaction.
    COORDINATOR_LOAD_IN_PROGRESS: repeat after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator
        and repeat.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the principal may not write with the id.

Versions:
    0 (0.11.0): new (KIP-98).
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.7): the same bytes; PRODUCER_FENCED may be returned (KIP-588).
    3 (2.8): flexible.
    4 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).
    5 (4.0): the response has the next id and epoch (KIP-890), with `transaction.version` 2.

Source: TransactionCoordinator.scala, endTransaction.
"""

from ottla.codec.wire import Boolean, Int16, Int32, Int64, String, message, wire


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    """From InitProducerId, or from the last EndTxn."""
    producer_epoch: int = wire(Int16)
    """From InitProducerId, or from the last EndTxn."""
    committed: bool = wire(Boolean)
    """``False``: abort."""


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    producer_id: int = wire(Int64, "5+", default=-1, ignorable=True)
    """For the next transaction; -1 if there is an error."""
    producer_epoch: int = wire(Int16, "5+", default=-1, ignorable=True)
    """For the next transaction; -1 if there is an error."""
