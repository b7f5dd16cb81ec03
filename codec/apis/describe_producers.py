"""DescribeProducers (key 61): which idempotent and transactional producers a partition remembers.

Sent by administrators (Admin.describeProducers, kafka-transactions.sh describe-producers) to the leader of the
partitions, or to any replica, whose own state it then tells. It takes the right to read each topic. It serves to find
hanging transactions: one that began long ago and that its coordinator (DescribeTransactions) knows nothing of holds
back the last stable offset, hence all `read_committed` consumers, until WriteTxnMarkers ends it.

Producers that have been silent for `producer.id.expiration.ms` (1 day), and have no open transaction, are forgotten.

Errors:
    NOT_LEADER_OR_FOLLOWER: the broker has no replica of the partition: ask Metadata.
    KAFKA_STORAGE_ERROR: the disk of this replica is offline: ask another one.
    UNKNOWN_TOPIC_OR_PARTITION: no such partition.
    INVALID_TOPIC_EXCEPTION: no topic can have this name.

Versions:
    0 (2.8)

Source: KafkaApis.scala, handleDescribeProducersRequest; UnifiedLog.scala, activeProducers; KIP-664.
"""

from ottla.codec.wire import Array, Int16, Int32, Int64, String, message, struct, wire


@struct
class TopicRequest:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...] = wire(Array(TopicRequest))


@struct
class ProducerState:
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int32)
    """An int32 only here; other APIs have it as an int16."""
    last_sequence: int = wire(Int32, default=-1)
    """Sequence number of the last record; -1: none is remembered, as after a marker alone."""
    last_timestamp: int = wire(Int64, default=-1)
    """Of the last batch or marker, in milliseconds since 1970; -1: none."""
    coordinator_epoch: int = wire(Int32)
    """Of the coordinator that wrote the last marker; -1: none yet."""
    current_txn_start_offset: int = wire(Int64, default=-1)
    """Where the open transaction begins in this partition; -1: none is open."""


@struct
class PartitionResponse:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    active_producers: tuple[ProducerState, ...] = wire(Array(ProducerState))


@struct
class TopicResponse:
    name: str = wire(String)
    partitions: tuple[PartitionResponse, ...] = wire(Array(PartitionResponse))


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    topics: tuple[TopicResponse, ...] = wire(Array(TopicResponse))
