"""JoinGroup v0-9: adds a member to a group, or takes a member into the next generation.

v0: the rebalance timeout is the session timeout. v4+: the first response to a new dynamic member has only its member id
(KIP-394). v5+: static members. v7+: the response has the protocol type, and null instead of an empty protocol. v8+: a
reason, for the log. v9+: a restarted leader need not assign again (KIP-814).
"""

from ottla.acl.rights import READ_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group import Joined, Protocol
from ottla.brokerlite.machines.groups.joins import JoinRequest
from ottla.brokerlite.machines.requests.waits import Later
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.errors import GroupAuthorizationFailed

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(broker: BrokerCore, call: Call) -> JoinGroupResponse | Later:
    request: JoinGroupRequest = call.message
    version = call.header.api_version
    if not broker.access.allows(call.session, READ_GROUP, request.group_id):
        return _message(version, Joined(error=GroupAuthorizationFailed.code))
    later = Later()
    broker.groups.serving(request.group_id).join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=call.header.client_id or "",
            client_host=f"/{call.session.peer_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in request.protocols),
            requires_id=version >= MEMBER_ID_REQUIRED_SINCE,
            skips_assignment=version >= SKIP_ASSIGNMENT_SINCE,
            reason=request.reason or "",
            answer=lambda joined: later.give(_message(version, joined)),
            creator=broker.access.limited(call.session),
        ),
        call.now,
    )
    return later


def _message(version: int, joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name="" if joined.protocol is None and version < NULL_PROTOCOL_SINCE else joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in joined.members
        ),
    )
