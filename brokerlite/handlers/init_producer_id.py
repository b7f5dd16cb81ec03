"""InitProducerId v0-5: assigns an idempotent producer an id, and a transactional one an id and an epoch.

An id is never assigned twice, even after kill -9. v3+: a producer that sends its id and epoch (KIP-360) gets the next
epoch; without a transactional id it gets a new id, which serves as well. v4+: PRODUCER_FENCED; before that
INVALID_PRODUCER_EPOCH. v5 is the same as v4.

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
            return InitProducerIdResponse(error_code=0, producer_id=broker.assign_producer_id(), producer_epoch=0)
        asked = None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch)
        begun = broker.transactions.initialize(request.transactional_id, request.transaction_timeout_ms, asked)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=known(error, call).code, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=begun.producer_id, producer_epoch=begun.epoch)
