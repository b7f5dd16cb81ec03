"""DeleteGroups v0-2: deletes groups without members, and their offsets.

Source: GroupCoordinatorService.java (deleteGroups), ClassicGroup.java (validateDeleteGroup).
"""

from ottla.acl.rights import DELETE_GROUP
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> DeleteGroupsResponse:
    request: DeleteGroupsRequest = call.message
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=_delete(broker, call, group_id))
            for group_id in dict.fromkeys(request.groups_names)
        )
    )


def _delete(broker: BrokerCore, call: Call, group_id: str) -> int:
    try:
        broker.access.require(call.session, DELETE_GROUP, group_id)
        broker.offsets.delete_group(group_id)
    except BrokerError as error:
        return error.code
    return 0
