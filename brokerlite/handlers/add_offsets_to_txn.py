"""AddOffsetsToTxn v0-4: adds the offsets of a group to a transaction.

v2+: PRODUCER_FENCED; before that INVALID_PRODUCER_EPOCH.

Source: KafkaApis.scala (handleAddOffsetsToTxnRequest).
"""

from ottla.acl.rights import READ_GROUP, WRITE_TRANSACTIONAL_ID
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.errors import BrokerError

OFFSETS = CONSUMER_OFFSETS, 0
"""The partition that stores the offsets of all groups."""


def handle(broker: BrokerCore, call: Call) -> AddOffsetsToTxnResponse:
    request: AddOffsetsToTxnRequest = call.message
    asked = Producing(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        broker.access.require(call.session, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        broker.access.require(call.session, READ_GROUP, request.group_id)
        broker.offsets_log.topic()
        broker.transactions.add(asked, [OFFSETS], 0)
    except BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=known(error, call).code)
    return AddOffsetsToTxnResponse(error_code=0)
