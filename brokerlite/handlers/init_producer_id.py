"""InitProducerId v0-5: a producer id for an idempotent producer.

An id is never given twice, also after kill -9. v3+: a producer that names the id and epoch it has (KIP-360) gets a
new id, which is as good. Transactional ids are refused with INVALID_REQUEST; an empty one always is. v5 is v4.
"""

import logging

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import InvalidRequest, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")


def handle(broker: BrokerCore, call: Call) -> InitProducerIdResponse:
    request: InitProducerIdRequest = call.message
    if request.transactional_id is not None:
        log.warning("transactional producer refused: this broker has no transactions yet")
        return InitProducerIdResponse(error_code=InvalidRequest.code, producer_epoch=-1)
    try:
        return InitProducerIdResponse(error_code=0, producer_id=broker.new_producer_id(), producer_epoch=0)
    except KafkaStorageError as error:
        log.error("no producer id: %s", error)
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
