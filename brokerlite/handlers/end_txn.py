"""EndTxn v0-5: commits or aborts a transaction.

v2+: PRODUCER_FENCED; before that INVALID_PRODUCER_EPOCH. v5: transactions of version 2 (KIP-890): the response has the
producer's next epoch, and sometimes a new producer id.

Source: KafkaApis.scala (handleEndTxnRequest).
"""

from ottla.acl.rights import WRITE_TRANSACTIONAL_ID
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.errors import BrokerError

EPOCH_RISES_SINCE = 5


def handle(broker: BrokerCore, call: Call) -> EndTxnResponse:
    request: EndTxnRequest = call.message
    asked = Producing(request.transactional_id, request.producer_id, request.producer_epoch)
    version = EPOCH_RISES if call.header.api_version >= EPOCH_RISES_SINCE else 0
    try:
        broker.access.require(call.session, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        producer_id, epoch = broker.transactions.end(asked, commit=request.committed, version=version)
    except BrokerError as error:
        return EndTxnResponse(error_code=known(error, call).code)
    return EndTxnResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch)
