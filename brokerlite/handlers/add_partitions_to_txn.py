"""AddPartitionsToTxn v0-5: partitions join a transaction, all of them or none.

v0-3: one transaction, of a client. v4+: many, of brokers, which may merely verify. v2+: PRODUCER_FENCED; before, it is
INVALID_PRODUCER_EPOCH. v5+: TRANSACTION_ABORTABLE; before, a partition that is not part of it is INVALID_TXN_STATE.

Source: KafkaApis.scala (handleAddPartitionsToTxnRequest).
"""

from collections.abc import Sequence

from ottla.brokerlite.handlers.end_txn import known_code
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics import INTERNAL
from ottla.brokerlite.machines.transactions import Producing
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.errors import (
    BrokerError,
    InvalidTxnState,
    OperationNotAttempted,
    TransactionAbortable,
    UnknownTopicOrPartition,
)

MANY_SINCE = 4
ABORTABLE_SINCE = 5


def handle(broker: BrokerCore, call: Call) -> AddPartitionsToTxnResponse:
    request: AddPartitionsToTxnRequest = call.message
    if call.header.api_version < MANY_SINCE:
        asked = Producing(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_add(broker, call, asked, request.v3_and_below_topics)
        )
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=(_verify if each.verify_only else _add)(
                    broker, call, Producing(each.transactional_id, each.producer_id, each.producer_epoch), each.topics
                ),
            )
            for each in request.transactions
        )
    )


def _add(
    broker: BrokerCore, call: Call, asked: Producing, topics: Sequence[AddPartitionsToTxnTopic]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    places = [(topic.name, index) for topic in topics for index in topic.partitions]
    unknown = {place for place in places if place[0] in INTERNAL or broker.topics.partition(*place) is None}
    code = OperationNotAttempted.code if unknown else 0
    if not unknown:
        try:
            broker.transactions.add(asked, places, 0)
        except BrokerError as error:
            code = known_code(error, call)
    return _results(topics, {place: UnknownTopicOrPartition.code if place in unknown else code for place in places})


def _verify(
    broker: BrokerCore, call: Call, asked: Producing, topics: Sequence[AddPartitionsToTxnTopic]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    codes = {}
    for place in [(topic.name, index) for topic in topics for index in topic.partitions]:
        try:
            broker.transactions.verify(asked, place)
            codes[place] = 0
        except TransactionAbortable as error:
            codes[place] = (error if call.header.api_version >= ABORTABLE_SINCE else InvalidTxnState).code
        except BrokerError as error:
            codes[place] = error.code
    return _results(topics, codes)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: dict[tuple[str, int], int]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
