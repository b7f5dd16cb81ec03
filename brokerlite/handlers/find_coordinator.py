"""FindCoordinator v0-6: names this broker, the coordinator of every group and transaction.

The coordinators of share partitions, for which only brokers ask, are refused with INVALID_REQUEST; a share group has a
coordinator like any other group.

v1+: key types and messages. v4+: many keys at once.
"""

from ottla.acl.rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.codec.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest

MANY_KEYS_SINCE = 4
_GROUP, _TRANSACTION = 0, 1
_NEEDS = {_GROUP: DESCRIBE_GROUP, _TRANSACTION: DESCRIBE_TRANSACTIONAL_ID}


def handle(broker: BrokerCore, call: Call) -> FindCoordinatorResponse:
    request: FindCoordinatorRequest = call.message
    if call.header.api_version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=tuple(
                _find(broker, call, key, request.key_type) for key in dict.fromkeys(request.coordinator_keys)
            )
        )
    found = _find(broker, call, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(broker: BrokerCore, call: Call, key: str, key_type: int) -> Coordinator:
    settings = broker.settings
    try:
        if key_type not in _NEEDS:
            raise InvalidRequest(f"this broker has no coordinators of type {key_type}")
        broker.access.require(call.session, _NEEDS[key_type], key)
        if (own := CONSUMER_OFFSETS if key_type == _GROUP else TRANSACTION_STATE) in broker.topics.unserved:
            # A coordinator without its log would answer that no offset is committed.
            raise CoordinatorNotAvailable(broker.topics.missing(own).detail)
    except BrokerError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.detail or None
        )
    host, port = settings.address_for(call.session)
    return Coordinator(
        key=key,
        node_id=settings.node_id,
        host=host,
        port=port,
        error_code=0,
        error_message=None,
    )
