"""DescribeTransactions v0: describes the state of transactional ids, and the partitions in their transactions, if the
client may describe their topics.

Source: TransactionCoordinator.scala (handleDescribeTransactions).
"""

from ottla.acl.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.errors import BrokerError, InvalidRequest, TransactionalIdNotFound


def handle(broker: BrokerCore, call: Call) -> DescribeTransactionsResponse:
    request: DescribeTransactionsRequest = call.message
    return DescribeTransactionsResponse(
        transaction_states=tuple(_described(broker, call, each) for each in dict.fromkeys(request.transactional_ids))
    )


def _described(broker: BrokerCore, call: Call, transactional_id: str) -> TransactionState:
    try:
        broker.access.require(call.session, DESCRIBE_TRANSACTIONAL_ID, transactional_id)
        if (transaction := broker.transactions.by_id.get(transactional_id)) is None:
            raise TransactionalIdNotFound if transactional_id else InvalidRequest
    except BrokerError as error:
        return TransactionState(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        if broker.access.shows(call.session, DESCRIBE_TOPIC, topic):
            topics.setdefault(topic, []).append(partition)
    return TransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=tuple(TopicData(topic=topic, partitions=tuple(indexes)) for topic, indexes in topics.items()),
    )
