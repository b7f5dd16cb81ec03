"""EndTxn v0-5: commit or abort a transaction.

v2+: PRODUCER_FENCED; before, it is INVALID_PRODUCER_EPOCH. v5: transactions of version 2 (KIP-890), whose producers
are told the epoch to go on with, and sometimes another id.

Source: KafkaApis.scala (handleEndTxnRequest).
"""

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.transaction import EPOCH_RISES
from ottla.brokerlite.machines.transactions import Producing
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.errors import BrokerError, InvalidProducerEpoch, ProducerFenced

EPOCH_RISES_SINCE = 5
FENCED_SINCE = 2
"""The version of EndTxn, AddPartitionsToTxn and AddOffsetsToTxn from which clients know PRODUCER_FENCED."""


def handle(broker: BrokerCore, call: Call) -> EndTxnResponse:
    request: EndTxnRequest = call.message
    asked = Producing(request.transactional_id, request.producer_id, request.producer_epoch)
    version = EPOCH_RISES if call.header.api_version >= EPOCH_RISES_SINCE else 0
    try:
        producer_id, epoch = broker.transactions.end(asked, commit=request.committed, version=version)
    except BrokerError as error:
        return EndTxnResponse(error_code=known_code(error, call))
    return EndTxnResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch)


def known_code(error: BrokerError, call: Call) -> int:
    """The code of an error, as a client of that version knows it."""
    fenced = isinstance(error, ProducerFenced) and call.header.api_version < FENCED_SINCE
    return InvalidProducerEpoch.code if fenced else error.code
