"""SyncGroup v0-5: takes the leader's assignments, and returns each member its own.

v3+: static members. v5+: the request has the protocol type and name, which must be the group's.
"""

from ottla.acl.rights import READ_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group import Synced
from ottla.brokerlite.machines.groups.groups import SyncRequest
from ottla.brokerlite.machines.requests.waits import Later
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.errors import GroupAuthorizationFailed, InconsistentGroupProtocol

PROTOCOL_SINCE = 5


def handle(broker: BrokerCore, call: Call) -> SyncGroupResponse | Later:
    request: SyncGroupRequest = call.message
    if call.header.api_version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code, assignment=b"")
    if not broker.access.allows(call.session, READ_GROUP, request.group_id):
        return SyncGroupResponse(error_code=GroupAuthorizationFailed.code, assignment=b"")
    later = Later()
    broker.groups.serving(request.group_id).sync(
        SyncRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
            answer=lambda synced: later.give(_message(synced)),
        ),
        call.now,
    )
    return later


def _message(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
