"""LeaveGroup v0-5: removes members from a group at once.

v0-2: one member; its error is the response's. v3+: many members, by member id or instance id, each with its own error,
even if the group does not exist. v5+: a reason, for the log.
"""

from ottla.acl.rights import READ_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.groups import LeavingMember
from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.errors import BrokerError, UnknownMemberId

MANY_SINCE = 3


def handle(broker: BrokerCore, call: Call) -> LeaveGroupResponse:
    request: LeaveGroupRequest = call.message
    many = call.header.api_version >= MANY_SINCE
    leavers = (
        [LeavingMember(each.member_id, each.group_instance_id, each.reason) for each in request.members]
        if many
        else [LeavingMember(request.member_id)]
    )
    try:
        broker.access.require(call.session, READ_GROUP, request.group_id)
        codes = broker.groups.serving(request.group_id).leave(request.group_id, leavers, call.now)
    except UnknownMemberId as error:
        codes = [error.code] * len(leavers)
    except BrokerError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not many:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=0,
        members=tuple(
            MemberResponse(member_id=each.member_id, group_instance_id=each.instance_id, error_code=code)
            for each, code in zip(leavers, codes, strict=True)
        ),
    )
