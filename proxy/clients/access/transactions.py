"""Produce, and requests that name transactional ids.

Rule: transactional records and offsets must have the producer id of the transactional id that the request names. A
broker compares the two only for what begins a transaction in a partition. So a client could write into a transaction
of others that is open there, and be committed with it. The proxy learns the pairs from the coordinator's responses. If
it does not know a pair, because it has restarted, the client aborts its transaction and opens another.

Source: KafkaApis.scala (handleProduceRequest, handleInitProducerIdRequest, handleAddPartitionsToTxnRequest and others).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ottla.acl.rights import (
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.codec.apis.describe_transactions import DescribeTransactionsResponse, TransactionState
from ottla.codec.apis.end_txn import EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_transactions import ListTransactionsResponse
from ottla.codec.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.codec.wire import Buffer
from ottla.errors import OperationNotAttempted, TransactionalIdAuthorizationFailed
from ottla.proxy.clients.access.screening import PASS, Asked, Verdict, adding, sorted_out
from ottla.proxy.clients.walks import ProduceHead

_ATTRIBUTES = slice(21, 23)
"""Where the attributes are in a batch of records."""
_PRODUCER_ID = slice(43, 51)
"""Where the producer id is."""
_MAGIC, _BATCHES = 16, 2
"""Where the format is, and the one of batches."""
_TRANSACTIONAL = 0x10


# -- Produce


def produce(asked: Asked) -> Verdict:
    request: ProduceRequest = asked.message
    records = (data.records for topic in request.topic_data for data in topic.partition_data)
    transactional = [each for each in records if each is not None and _is_transactional(each)]
    whole = _refusal_of_transaction(asked, request.transactional_id, transactional) if transactional else 0
    kept, denied = sorted_out(request.topic_data, lambda topic: whole or asked.refusal(WRITE_TOPIC, topic.name))
    if not denied:
        return PASS
    if request.acks == 0:  # as Kafka does: no response could say it
        return Verdict(
            closes="a record set sent with acks=0 was refused, because its client may not write to the topic"
        )
    results = tuple(_not_produced(asked, *each) for each in denied)
    if not kept:
        return Verdict(answer=ProduceResponse(responses=results))
    return Verdict(request=replace(request, topic_data=kept), change=adding("responses", results))


def may_produce(asked: Asked, head: ProduceHead) -> bool:
    """Whether a Produce request for one partition, of which the beginning is known, needs no other screen."""
    if not asked.shows(WRITE_TOPIC, head.topic) or len(head.data) < _PRODUCER_ID.stop:
        return False
    if not _is_transactional(head.data):
        return True
    if head.transactional_id is None:
        return False
    owner = asked.owners.of(_producer_id(head.data))
    return owner == head.transactional_id and asked.shows(WRITE_TRANSACTIONAL_ID, head.transactional_id)


def _refusal_of_transaction(asked: Asked, transactional_id: str | None, records: Iterable[Buffer]) -> int:
    """The error code if a client may not send these transactional record sets with this id, otherwise 0."""
    if transactional_id is None:
        return TransactionalIdAuthorizationFailed.code
    if code := asked.refusal(WRITE_TRANSACTIONAL_ID, transactional_id):
        return code
    producer_ids = dict.fromkeys(map(_producer_id, records))
    codes = (asked.refusal_of_producer(transactional_id, each, asked.abort) for each in producer_ids)
    return next(filter(None, codes), 0)


def _producer_id(records: Buffer) -> int:
    return int.from_bytes(records[_PRODUCER_ID], "big", signed=True)


def _is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch is transactional; brokers refuse a record set whose other batches differ from it."""
    if records is None or len(records) < _PRODUCER_ID.stop or records[_MAGIC] < _BATCHES:
        return False
    return bool(int.from_bytes(records[_ATTRIBUTES], "big") & _TRANSACTIONAL)


def _not_produced(asked: Asked, topic: TopicProduceData, code: int) -> TopicProduceResponse:
    message = asked.denial(WRITE_TOPIC, topic.name, code=code)
    partitions = (
        PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1, error_message=message)
        for each in topic.partition_data
    )
    return TopicProduceResponse(name=topic.name, partition_responses=tuple(partitions))


# -- transactions


def init_producer_id(asked: Asked) -> Verdict:
    request: InitProducerIdRequest = asked.message
    if request.transactional_id is not None:
        code = asked.refusal(WRITE_TRANSACTIONAL_ID, request.transactional_id)
    elif asked.access.allows_any(asked.client, WRITE_TOPIC):
        code = 0
    else:
        code = asked.refusal(IDEMPOTENT_WRITE)
    return Verdict(answer=InitProducerIdResponse(error_code=code, producer_epoch=-1)) if code else PASS


def add_partitions_to_txn(asked: Asked) -> Verdict:
    """Add all partitions, or none: with a denied topic, the others get OPERATION_NOT_ATTEMPTED."""
    request: AddPartitionsToTxnRequest = asked.message
    whole = asked.refusal(WRITE_TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    codes = {each.name: whole or asked.refusal(WRITE_TOPIC, each.name) for each in topics}
    if not any(codes.values()) and not whole:
        return PASS
    results = (
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes[topic.name] or OperationNotAttempted.code,
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
    return Verdict(answer=AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(results)))


def add_offsets_to_txn(asked: Asked) -> Verdict:
    code = asked.refusal(WRITE_TRANSACTIONAL_ID, asked.message.transactional_id) or asked.refusal(
        READ_GROUP, asked.message.group_id
    )
    return Verdict(answer=AddOffsetsToTxnResponse(error_code=code)) if code else PASS


def end_txn(asked: Asked) -> Verdict:
    code = asked.refusal(WRITE_TRANSACTIONAL_ID, asked.message.transactional_id)
    return Verdict(answer=EndTxnResponse(error_code=code)) if code else PASS


# -- administrators


def describe_transactions(asked: Asked) -> Verdict:
    """Describe transactions, without topics that the client may not describe."""
    kept, denied = sorted_out(
        asked.message.transactional_ids, lambda each: asked.refusal(DESCRIBE_TRANSACTIONAL_ID, each)
    )
    results = tuple(_undescribed(*each) for each in denied)
    if not kept:
        return Verdict(answer=DescribeTransactionsResponse(transaction_states=results))

    def change(answer: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        states = (
            replace(each, topics=tuple(topic for topic in each.topics if asked.shows(DESCRIBE_TOPIC, topic.topic)))
            for each in answer.transaction_states
        )
        return replace(answer, transaction_states=(*states, *results))

    return Verdict(request=replace(asked.message, transactional_ids=kept) if denied else None, change=change)


def _undescribed(transactional_id: str, code: int) -> TransactionState:
    nothing: dict[str, Any] = {
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }
    return TransactionState(error_code=code, transactional_id=transactional_id, **nothing)


def list_transactions(asked: Asked) -> Verdict:
    def change(answer: ListTransactionsResponse) -> ListTransactionsResponse:
        shown = (
            each for each in answer.transaction_states if asked.shows(DESCRIBE_TRANSACTIONAL_ID, each.transactional_id)
        )
        return replace(answer, transaction_states=tuple(shown))

    return Verdict(change=change)
