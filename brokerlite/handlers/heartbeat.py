"""Heartbeat v0-4: keeps a member in its group, and answers whether the group rebalances.

v3+: static members.
"""

from ottla.acl.rights import READ_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> HeartbeatResponse:
    request: HeartbeatRequest = call.message
    try:
        broker.access.require(call.session, READ_GROUP, request.group_id)
        broker.groups.serving(request.group_id).heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, call.now
        )
    except BrokerError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse(error_code=0)
