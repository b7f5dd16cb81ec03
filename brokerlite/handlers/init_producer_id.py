"""InitProducerId v0-5: a producer id for an idempotent producer, id and epoch for a transactional one.

An id is never given twice, also after kill -9. v3+: a producer that names the id and epoch it has (KIP-360) gets the
next epoch; without a transactional id it gets a new id, which is as good. v4+: PRODUCER_FENCED; before, it is
INVALID_PRODUCER_EPOCH. v5 is v4.

Source: KafkaApis.scala (handleInitProducerIdRequest).
"""

from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import BrokerError, InvalidRequest

_NONE = -1


def handle(broker: BrokerCore, call: Call) -> InitProducerIdResponse:
    request: InitProducerIdRequest = call.message
    try:
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            raise InvalidRequest("give a producer id and its epoch together")
        if request.transactional_id is None:
            return InitProducerIdResponse(error_code=0, producer_id=broker.new_producer_id(), producer_epoch=0)
        asked = None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch)
        begun = broker.transactions.initialize(request.transactional_id, request.transaction_timeout_ms, asked)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=known(error, call).code, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=begun.producer_id, producer_epoch=begun.epoch)
