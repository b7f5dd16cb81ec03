"""AddPartitionsToTxn (key 24): tell the coordinator that a transaction is about to write to these partitions.

Sent by a transactional producer to its transaction coordinator, before the transaction's first batch for a partition;
the first such request opens the transaction. The coordinator records the partitions in `__transaction_state`, because
these must get a marker at the end. From Produce version 12 on (`transaction.version` 2), clients need not send it: the
leader of the partition asks the coordinator itself.

Versions 0-3 are for clients, one transaction each, in the fields `v3_and_below_…`. Versions 4 and later are for
brokers, which need the right to CLUSTER_ACTION: they ask for many transactions at once, and may only check with
`verify_only`.

The request succeeds or fails as a whole: if one partition is refused, the others get OPERATION_NOT_ATTEMPTED.

Errors:
    CONCURRENT_TRANSACTIONS: the last transaction is still being ended: repeat after a short pause.
    PRODUCER_FENCED (v2+; before: INVALID_PRODUCER_EPOCH): a newer producer with the same transactional id has taken
        over: stop.
    INVALID_PRODUCER_ID_MAPPING: the coordinator has another producer id for the transactional id, or has forgotten it
        (`transactional.id.expiration.ms`, seven days): fatal.
    INVALID_TXN_STATE: the coordinator has aborted the transaction meanwhile, or is in the wrong state.
    TRANSACTION_ABORTABLE (v5+): abort the transaction. With `verify_only`: the partition is not part of it.
    UNKNOWN_TOPIC_OR_PARTITION: repeat after a pause. OPERATION_NOT_ATTEMPTED: another partition failed.
    COORDINATOR_LOAD_IN_PROGRESS: repeat after a pause. COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator
        and repeat.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED: the principal may not write there.

Versions:
    0 (0.11.0): new (KIP-98).
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.7): the same bytes; PRODUCER_FENCED may be returned (KIP-588).
    3 (2.8): flexible.
    4 (3.6): from brokers, for many transactions, `verify_only` (KIP-890).
    5 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).

Source: KafkaApis.scala, handleAddPartitionsToTxnRequest; TransactionCoordinator.scala,
    handleAddPartitionsToTransaction.
"""

from ottla.codec.wire import Array, Boolean, Int16, Int32, Int64, String, message, struct, wire


@struct
class AddPartitionsToTxnTopic:
    name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    """From InitProducerId."""
    producer_epoch: int = wire(Int16)
    """From InitProducerId."""
    verify_only: bool = wire(Boolean, default=False)
    """Only check whether the partitions belong to the transaction."""
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic))


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire(
        Array(AddPartitionsToTxnTransaction), "4+", default=()
    )
    v3_and_below_transactional_id: str = wire(String, "0-3", default="")
    v3_and_below_producer_id: int = wire(Int64, "0-3", default=0)
    """From InitProducerId."""
    v3_and_below_producer_epoch: int = wire(Int16, "0-3", default=0)
    """From InitProducerId."""
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic), "0-3", default=())


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire(Int32)
    partition_error_code: int = wire(Int16)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = wire(String)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(Array(AddPartitionsToTxnPartitionResult))


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = wire(String)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire(Array(AddPartitionsToTxnTopicResult))


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16, "4+", default=0, ignorable=True)
    """Error of the request as a whole. v0-3 have it in each partition."""
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire(
        Array(AddPartitionsToTxnResult), "4+", default=()
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        Array(AddPartitionsToTxnTopicResult), "0-3", default=()
    )
