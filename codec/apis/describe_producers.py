"""DescribeProducers (key 61): the idempotent and transactional producers that a partition remembers.

Sent by administrators (Admin.describeProducers, kafka-transactions.sh describe-producers) to the leader of the
partitions, or to any replica, which then reports its own state. Requires the right to read each topic. It helps to find
hanging transactions, which began long ago and are unknown to their coordinator (DescribeTransactions). They hold back
the last stable offset, and with it all `read_committed` consumers, until WriteTxnMarkers ends them.

Producers that were inactive for `producer.id.expiration.ms` (1 day), and have no open transaction, are removed.

Errors:
    NOT_LEADER_OR_FOLLOWER: the broker has no replica of the partition: ask Metadata.
    KAFKA_STORAGE_ERROR: the disk of this replica is offline: ask another replica.
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
    """An int32 here, but an int16 in other APIs."""
    last_sequence: int = wire(Int32, default=-1)
    """Sequence number of the last record; -1: none, for example after a marker alone."""
    last_timestamp: int = wire(Int64, default=-1)
    """Timestamp of the last batch or marker, in milliseconds since 1970; -1: none."""
    coordinator_epoch: int = wire(Int32)
    """Epoch of the coordinator that wrote the last marker; -1: none yet."""
    current_txn_start_offset: int = wire(Int64, default=-1)
    """First offset of the open transaction in this partition; -1: none is open."""


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
