"""ListGroups v0-5: lists the groups.

Clients that may describe the cluster see all groups; other clients see the groups that they may describe.

v4+: requests filter by state, ignoring case, and responses have it. v5+: the same for types: ``classic``, ``consumer``
and ``share``.

Source: GroupMetadataManager.java (listGroups).
"""

from ottla.acl.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(broker: BrokerCore, call: Call) -> ListGroupsResponse:
    request: ListGroupsRequest = call.message
    states = {state.strip().lower() for state in request.states_filter}
    types = {each.strip().lower() for each in request.types_filter}
    all_shown = broker.access.shows(call.session, DESCRIBE_CLUSTER)
    return ListGroupsResponse(
        error_code=0,
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in broker.groups.all()
            if (not types or group.kind in types)
            and (not states or group.state_name.lower() in states)
            and (all_shown or broker.access.shows(call.session, DESCRIBE_GROUP, group.group_id))
        ),
    )
