"""Produce (key 0): append record batches to partitions.

Sent by producers to the leader of each partition, with one batch for each: one request carries many partitions, and
each of them succeeds or fails independently. With ``acks`` -1 the leader answers when all in-sync replicas have the
batch, with 1 when it has the batch itself. With 0 it **never answers**: the next request may follow at once, and if
anything fails the broker closes the connection, so that the client at least looks up the leader again.

A batch of an idempotent producer carries producer id, epoch and sequence, and can be repeated safely: the leader
recognizes the last five batches of a producer and answers a repeated batch with its original offset. Without
idempotence, a repeat after a lost response may store the records twice, and a repeat after a later batch
changes their order.

Kafka 4.x claims to support versions 0-2 as well, because librdkafka would not compress otherwise (KAFKA-18659), but
refuses them.

Errors:
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (v13+), KAFKA_STORAGE_ERROR (v4+): look up the
        leader (v10+: `current_leader` may have it), repeat there.
    REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND: the leader has the batch, but not all replicas got it in time;
        it may survive or not: repeat.
    NOT_ENOUGH_REPLICAS: fewer in-sync replicas than `min.insync.replicas`, so the batch was not stored: repeat.
    MESSAGE_TOO_LARGE: over `max.message.bytes` of the topic: split the batch if it has more than one record.
    RECORD_LIST_TOO_LARGE: the batch is larger than a segment of the log.
    INVALID_RECORD, INVALID_TIMESTAMP: the topic does not accept such records; `record_errors` names them. No record was
        stored.
    CORRUPT_MESSAGE: the checksum is wrong: repeat.
    UNSUPPORTED_COMPRESSION_TYPE: zstd before version 7.
    INVALID_REQUIRED_ACKS: `acks` is not 0, 1 or -1.
    DUPLICATE_SEQUENCE_NUMBER: a batch older than the last five: it is stored, but its offset is unknown.
    OUT_OF_ORDER_SEQUENCE_NUMBER: a batch before this one is missing: wait until it is repeated. If it never is, records
        are lost, and the producer has to bump its epoch (InitProducerId).
    UNKNOWN_PRODUCER_ID: the leader has forgotten the producer, because all its records are gone: start again at
        sequence 0 with a new epoch.
    INVALID_PRODUCER_EPOCH: a newer producer with the same transactional id has taken over: stop.
    INVALID_TXN_STATE, TRANSACTION_ABORTABLE (v11+): abort the transaction.
    TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the principal may not write.

Versions:
    0 (0.8.2): message sets of magic 0. Versions 0-2 were dropped by Kafka 4.0.
    1 (0.9.0): `throttle_time_ms`.
    2 (0.10.0): message sets of magic 1, `log_append_time_ms` (KIP-32).
    3 (0.11.0): record batches v2, `transactional_id` (KIP-98).
    4 (1.0): the same bytes; KAFKA_STORAGE_ERROR may be returned (KIP-112).
    5 (1.0): `log_start_offset`, to distinguish a forgotten producer from lost records.
    6 (2.0): throttled after the answer (KIP-219).
    7 (2.1): zstd allowed (KIP-110).
    8 (2.4): `record_errors` and `error_message` (KIP-467).
    9 (2.8): flexible.
    10 (3.7): the response has the current leader (KIP-951).
    11 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).
    12 (4.0): the same bytes; adds a partition to the transaction without AddPartitionsToTxn (KIP-890). If
        `transaction.version` is below 2, transactional producers use version 11.
    13 (4.1): topics by id (KIP-516).

Source: KafkaApis.scala, handleProduceRequest; ProduceRequest.java, validateRecords; TransactionManager.java, canRetry.
"""

import uuid

from ottla.codec.wire import (
    NO_UUID,
    Array,
    Buffer,
    Int16,
    Int32,
    Int64,
    Nested,
    Records,
    String,
    Uuid,
    message,
    struct,
    wire,
)


@struct
class PartitionProduceData:
    index: int = wire(Int32)
    records: Buffer | None = wire(Records, null="0+")
    """v3+: exactly one batch, of format v2. Before: a message set."""


@struct
class TopicProduceData:
    name: str = wire(String, "0-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(Array(PartitionProduceData))


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = wire(String, "3+", null="3+", default=None)
    """``None`` outside transactions. Only used to check the right to use it."""
    acks: int = wire(Int16)
    """0: no response. 1: the leader has it. -1: every in-sync replica has it."""
    timeout_ms: int = wire(Int32)
    """With `acks` -1: how long the leader waits for the replicas before it answers REQUEST_TIMED_OUT."""
    topic_data: tuple[TopicProduceData, ...] = wire(Array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = wire(Int32)
    """Index of the record in the batch, from 0."""
    batch_index_error_message: str | None = wire(String, null="0+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = wire(Int32, default=-1)
    """-1: unknown."""
    leader_epoch: int = wire(Int32, default=-1)


@struct
class PartitionProduceResponse:
    index: int = wire(Int32)
    error_code: int = wire(Int16)
    base_offset: int = wire(Int64)
    """Offset of the first record; -1: unknown. The others follow it without gaps."""
    log_append_time_ms: int = wire(Int64, "2+", default=-1, ignorable=True)
    """The timestamp of all records, if the topic has `message.timestamp.type=LogAppendTime`; -1: they kept their
    own."""
    log_start_offset: int = wire(Int64, "5+", default=-1, ignorable=True)
    """First offset of the log; -1: unknown."""
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        Array(BatchIndexAndErrorMessage), "8+", default=(), ignorable=True
    )
    """The records because of which the broker refused the batch; all others in it are valid."""
    error_message: str | None = wire(String, "8+", null="8+", default=None, ignorable=True)
    """The common error of `record_errors`."""
    current_leader: LeaderIdAndEpoch = wire(Nested(LeaderIdAndEpoch), "10+", default=LeaderIdAndEpoch(), tag=0)
    """The current leader, with NOT_LEADER_OR_FOLLOWER."""


@struct
class TopicProduceResponse:
    name: str = wire(String, "0-12", default="", ignorable=True)
    topic_id: uuid.UUID = wire(Uuid, "13+", default=NO_UUID, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(Array(PartitionProduceResponse))


@struct
class NodeEndpoint:
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    rack: str | None = wire(String, null="0+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...] = wire(Array(TopicProduceResponse))
    """In any order; contains every partition of the request."""
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(Array(NodeEndpoint), "10+", default=(), tag=0)
    """Addresses of the leaders named in `current_leader`."""
