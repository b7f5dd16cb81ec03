"""AddOffsetsToTxn (key 25): tell the coordinator that a transaction is about to commit offsets of a group.

Sent by a transactional producer to its transaction coordinator (Producer.sendOffsetsToTransaction), before
TxnOffsetCommit goes to the coordinator of the group. It adds the group's partition of `__consumer_offsets` to the
transaction, as AddPartitionsToTxn would, so that the offsets become valid with the transaction's marker and not before.
From TxnOffsetCommit version 5 on (`transaction.version` 2), clients need not send it.

Errors:
    CONCURRENT_TRANSACTIONS: the last transaction is still being ended: repeat after a short pause.
    PRODUCER_FENCED (v2+; before: INVALID_PRODUCER_EPOCH): a newer producer with the same transactional id has taken
        over: stop.
    INVALID_PRODUCER_ID_MAPPING: the coordinator has another producer id for the transactional id, or has forgotten it
        (`transactional.id.expiration.ms`, seven days): fatal.
    INVALID_TXN_STATE: the coordinator has aborted the transaction meanwhile, or is in the wrong state.
    TRANSACTION_ABORTABLE (v4+): abort the transaction.
    COORDINATOR_LOAD_IN_PROGRESS: repeat after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator
        and repeat.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED: the principal may not write with the id, or not
        read with the group.

Versions:
    0 (0.11.0): new (KIP-98).
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.7): the same bytes; PRODUCER_FENCED may be returned (KIP-588).
    3 (2.8): flexible.
    4 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).

Source: KafkaApis.scala, handleAddOffsetsToTxnRequest.
"""

from ottla.codec.wire import Int16, Int32, Int64, String, message, wire


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    """From InitProducerId."""
    producer_epoch: int = wire(Int16)
    """From InitProducerId."""
    group_id: str = wire(String)


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
