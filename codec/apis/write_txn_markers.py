"""WriteTxnMarkers (key 27): end a transaction in its partitions.

Sent by a transaction's coordinator to the leaders of those partitions once the outcome is stored in
`__transaction_state`. Each leader appends a control record, the marker, which says whether the producer's records
before it count. Until the marker is written, a `read_committed` consumer stops at the transaction's first record (the
last stable offset).

Administrators send it too: Admin.abortTransaction (kafka-transactions.sh abort) frees a partition from a hanging
transaction, which its coordinator does not know any more, with the data from DescribeProducers. Requires the right to
alter the cluster, or to CLUSTER_ACTION, as brokers have.

The response has neither throttling nor a code at the top: every partition has its own code.

Errors:
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR: send the marker again, to the partition's current leader. The
        coordinator does so until it succeeds. `__consumer_offsets` also answers NOT_LEADER_OR_FOLLOWER while its group
        coordinator is not ready.
    INVALID_PRODUCER_EPOCH: a newer epoch of the producer has written here: this marker is out of date, drop it.
    TRANSACTION_COORDINATOR_FENCED: a newer coordinator has written here: drop it.
    UNSUPPORTED_FOR_MESSAGE_FORMAT: the partition holds records older than batches v2, so no transactions.

Versions:
    0 (0.11.0)
    1 (2.8): flexible.
    2 (4.2): `transaction_version` (KIP-1228).

Source: KafkaApis.scala, handleWriteTxnMarkersRequest; TransactionMarkerRequestCompletionHandler.scala; KIP-98, KIP-664.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, String, message, struct, wire


@struct
class WritableTxnMarkerTopic:
    name: str = wire(String)
    """`__consumer_offsets` if the transaction commits offsets."""
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@struct
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    transaction_result: bool = wire(Boolean)
    """``True``: commit. ``False``: abort."""
    topics: tuple[WritableTxnMarkerTopic, ...] = wire(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(Int32)
    """Leader epoch of the coordinator's partition of `__transaction_state`; the marker contains it, and it fences older
    coordinators."""
    transaction_version: int = wire(Int8, "2+", default=0, ignorable=True)
    """Level of the feature `transaction.version`. 2 (KIP-890): the epoch must be higher than the records' epoch,
    because each transaction has its own. 0 or 1: it may be the same."""


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...] = wire(Array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class WritableTxnMarkerTopicResult:
    name: str = wire(String)
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire(Array(WritableTxnMarkerPartitionResult))


@struct
class WritableTxnMarkerResult:
    producer_id: int = wire(Int64)
    """As in the request; results of several markers of one producer are merged."""
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire(Array(WritableTxnMarkerTopicResult))


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...] = wire(Array(WritableTxnMarkerResult))
