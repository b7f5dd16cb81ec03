"""DescribeGroups v0-6: describes the state and the members of groups.

Only a stable group's response has the protocol and the members' subscriptions. v3+: authorized operations. v4+:
instance ids. v6: a group that does not exist is an error; before that ``Dead``. Groups of other kinds do not exist for
this API: ConsumerGroupDescribe describes them.

Source: GroupMetadataManager.java (describeGroups), ClassicGroupMember.java (describe).
"""

from functools import partial

from ottla.acl.rights import DESCRIBE_GROUP
from ottla.brokerlite.handlers.described_groups import NOT_ASKED, describe_each, operations
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group import DEAD, GroupState
from ottla.codec.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.errors import BrokerError, GroupAuthorizationFailed, GroupIdNotFound

NOT_FOUND_SINCE = 6
_MEMBER = 100
"""Bytes counted for a member in addition to the data from its client."""


def handle(broker: BrokerCore, call: Call) -> DescribeGroupsResponse:
    request: DescribeGroupsRequest = call.message
    describe = partial(_described, broker, call)
    return DescribeGroupsResponse(groups=describe_each(request.groups, describe, _refused, _size_of))


def _size_of(member: DescribedGroupMember) -> int:
    names = len(member.client_id) + len(member.group_instance_id or "")
    return _MEMBER + names + len(member.member_metadata) + len(member.member_assignment)


def _described(broker: BrokerCore, call: Call, group_id: str) -> DescribedGroup:
    if not broker.access.allows(call.session, DESCRIBE_GROUP, group_id):
        return _undescribed(group_id, GroupAuthorizationFailed.code, None, state="")
    allowed = operations(broker, call, group_id)
    if (group := broker.groups.classic.by_id.get(group_id)) is None:
        if call.header.api_version < NOT_FOUND_SINCE:
            return _undescribed(group_id, 0, None, operations=allowed)
        other = broker.groups.get(group_id) is not None
        why = f"Group {group_id} is not a classic group." if other else f"Group {group_id} not found."
        return _undescribed(group_id, GroupIdNotFound.code, why)
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
        authorized_operations=allowed,
    )


def _refused(group_id: str, error: BrokerError) -> DescribedGroup:
    return _undescribed(group_id, error.code, error.detail or None)


def _undescribed(
    group_id: str, error_code: int, error_message: str | None, *, state: str = DEAD, operations: int = NOT_ASKED
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=error_message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )
