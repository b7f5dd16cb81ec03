"""InitProducerId v0-5: assigns an idempotent producer an id, and a transactional one an id and an epoch.

A producer without a transactional id needs the right to write idempotently or to write to any topic (KIP-679).

An id is never assigned twice, even after kill -9. v3+: a producer that sends its id and epoch (KIP-360) gets the next
epoch; without a transactional id it gets a new id, which serves as well. v4+: PRODUCER_FENCED; before that
INVALID_PRODUCER_EPOCH. v5 is the same as v4.

Source: KafkaApis.scala (handleInitProducerIdRequest).
"""

from ottla.acl.rights import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import BrokerError, InvalidRequest

_NONE = -1


def handle(broker: BrokerCore, call: Call) -> InitProducerIdResponse:
    request: InitProducerIdRequest = call.message
    try:
        _check_access(broker, call, request.transactional_id)
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            raise InvalidRequest("give a producer id and its epoch together")
        if request.transactional_id is None:
            return InitProducerIdResponse(error_code=0, producer_id=broker.assign_producer_id(), producer_epoch=0)
        asked = None if request.producer_id == _NONE else (request.producer_id, request.producer_epoch)
        begun = broker.transactions.initialize(request.transactional_id, request.transaction_timeout_ms, asked)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=known(error, call).code, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=begun.producer_id, producer_epoch=begun.epoch)


def _check_access(broker: BrokerCore, call: Call, transactional_id: str | None) -> None:
    if transactional_id is not None:
        broker.access.require(call.session, WRITE_TRANSACTIONAL_ID, transactional_id)
    elif not broker.access.allows_any(call.session, WRITE_TOPIC):
        broker.access.require(call.session, IDEMPOTENT_WRITE)
