"""DescribeGroups v0-6: describes the state and the members of groups.

Only a stable group's response has the protocol and the members' subscriptions. v3+: authorized operations. v4+:
instance ids. v6: a group that does not exist is an error; before that ``Dead``. Groups of other kinds do not exist for
this API: ConsumerGroupDescribe describes them.

Source: GroupMetadataManager.java (describeGroups), ClassicGroupMember.java (describe).
"""

from ottla.acl.rights import DESCRIBE_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.group import DEAD, GroupState
from ottla.codec.apis.create_acls import ResourceType
from ottla.codec.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.errors import CoordinatorLoadInProgress, GroupAuthorizationFailed, GroupIdNotFound

NOT_FOUND_SINCE = 6
MOST_BYTES = 16 * 2**20
"""The most bytes of members in a response; the client has to request the remaining groups again."""
_MEMBER = 100
"""Bytes counted for a member in addition to the data from its client."""
NOT_ASKED = -(2**31)


def handle(broker: BrokerCore, call: Call) -> DescribeGroupsResponse:
    request: DescribeGroupsRequest = call.message
    groups, size = [], 0
    for group_id in dict.fromkeys(request.groups):
        if size > MOST_BYTES:
            described = _undescribed(group_id, CoordinatorLoadInProgress.code, "too many groups at once")
        else:
            described = _described(broker, call, group_id)
        groups.append(described)
        size += sum(map(_size_of, described.members))
    return DescribeGroupsResponse(groups=tuple(groups))


def _size_of(member: DescribedGroupMember) -> int:
    names = len(member.client_id) + len(member.group_instance_id or "")
    return _MEMBER + names + len(member.member_metadata) + len(member.member_assignment)


def _described(broker: BrokerCore, call: Call, group_id: str) -> DescribedGroup:
    if not broker.access.allows(call.session, DESCRIBE_GROUP, group_id):
        return _undescribed(group_id, GroupAuthorizationFailed.code, None, state="")
    asks = call.message.include_authorized_operations
    operations = broker.access.operations(call.session, ResourceType.GROUP, group_id) if asks else NOT_ASKED
    if (group := broker.groups.classic.by_id.get(group_id)) is None:
        if call.header.api_version < NOT_FOUND_SINCE:
            return _undescribed(group_id, 0, None, operations=operations)
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
        authorized_operations=operations,
    )


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
