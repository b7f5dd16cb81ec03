"""AddPartitionsToTxn v0-5: adds partitions to a transaction, all of them or none.

v0-3: clients send one transaction. v4+: brokers send many, and may only verify them: a partition outside its
transaction is TRANSACTION_ABORTABLE. v2+: PRODUCER_FENCED; before that INVALID_PRODUCER_EPOCH.

Source: KafkaApis.scala (handleAddPartitionsToTxnRequest).
"""

from collections.abc import Sequence

from ottla.acl.rights import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import INTERNAL, TopicPartition
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES
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
    ClusterAuthorizationFailed,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)

MANY_SINCE = 4


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
    if not broker.access.allows(call.session, CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ClusterAuthorizationFailed.code, results_by_transaction=())
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_add(
                    broker,
                    call,
                    Producing(each.transactional_id, each.producer_id, each.producer_epoch),
                    each.topics,
                    verify_only=each.verify_only,
                ),
            )
            for each in request.transactions
        )
    )


def _add(
    broker: BrokerCore,
    call: Call,
    asked: Producing,
    topics: Sequence[AddPartitionsToTxnTopic],
    *,
    verify_only: bool = False,
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    places = [(topic.name, index) for topic in topics for index in topic.partitions]
    if _comes_from_client(call) and not broker.access.allows(
        call.session, WRITE_TRANSACTIONAL_ID, asked.transactional_id
    ):
        return _results(topics, dict.fromkeys(places, TransactionalIdAuthorizationFailed.code))
    refused = {place: code for place in dict.fromkeys(places) if (code := _refused(broker, call, place))}
    codes = dict.fromkeys(places, OperationNotAttempted.code if refused else 0) | refused
    if not refused:
        try:
            if verify_only:
                codes |= {place: error.code for place, error in broker.transactions.verify(asked, places).items()}
            else:
                broker.transactions.add(asked, places, EPOCH_RISES if call.header.api_version >= MANY_SINCE else 0)
        except BrokerError as error:
            codes = dict.fromkeys(places, known(error, call).code)
    return _results(topics, codes)


def _comes_from_client(call: Call) -> bool:
    """Whether the client sends the request itself; brokers send later versions for their clients."""
    return call.header.api_version < MANY_SINCE


def _refused(broker: BrokerCore, call: Call, place: TopicPartition) -> int:
    """Return an error code if clients may not add the partition to a transaction, otherwise 0."""
    if place[0] in INTERNAL:
        return TopicAuthorizationFailed.code
    if _comes_from_client(call) and not broker.access.allows(call.session, WRITE_TOPIC, place[0]):
        return TopicAuthorizationFailed.code
    return UnknownTopicOrPartition.code if broker.topics.partition(*place) is None else 0


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
