"""ListTransactions v0-1: lists the transactional ids and their states, if the client may describe them.

v1+: a filter for transactions open longer than a duration. v2, which has patterns in RE2's syntax, is not served:
Python's regular expressions differ, and may run without end.

Source: TransactionStateManager.scala (listTransactionStates).
"""

from ottla.acl.rights import DESCRIBE_TRANSACTIONAL_ID
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.transactions.transaction_metadata import TransactionalIdState
from ottla.codec.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState

_NAMES = {state.value for state in TransactionalIdState} | {"PrepareEpochFence", "Dead"}
"""All names of states, including Kafka's transient ones."""


def handle(broker: BrokerCore, call: Call) -> ListTransactionsResponse:
    request: ListTransactionsRequest = call.message
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    began_before = broker.clock.timestamp - request.duration_filter
    return ListTransactionsResponse(
        error_code=0,
        unknown_state_filters=tuple(each for each in dict.fromkeys(request.state_filters) if each not in _NAMES),
        transaction_states=tuple(
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in broker.transactions.by_id.values()
            if (not states or each.state.value in states)
            and (not producers or each.producer_id in producers)
            and (request.duration_filter < 0 or each.started < began_before)
            and broker.access.shows(call.session, DESCRIBE_TRANSACTIONAL_ID, each.transactional_id)
        ),
    )
