"""LeaveGroup (key 13): remove members from a classic group at once, instead of after their session timeout.

Sent to the group's coordinator by a dynamic consumer that closes or unsubscribes, so that the others rebalance without
delay. A static member does not send it when it closes, because it wants its partitions back after a restart. An
operator removes static members by their `group_instance_id` alone (Admin.removeMembersFromConsumerGroup).

Removed members are not notified: their next request gets UNKNOWN_MEMBER_ID. From version 3 on each member in the
request has its own code, and the code at the top is for the request as a whole; before that, the code at the top is for
the member.

Errors:
    UNKNOWN_MEMBER_ID: no such member or group; a member that wanted to leave has left.
    FENCED_INSTANCE_ID: `group_instance_id` belongs to another `member_id` now.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator, or let the session
        time out.

Versions:
    0 (0.9.0)
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.4): many members at once, by id or by `group_instance_id` (KIP-345).
    4 (2.4): flexible.
    5 (3.2): `reason` (KIP-800).

Source: GroupMetadataManager.java, classicGroupLeaveToClassicGroup.
"""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class MemberIdentity:
    member_id: str = wire(String)
    """``""``: the member with the `group_instance_id`."""
    group_instance_id: str | None = wire(String, null="0+", default=None)
    """``None`` for a dynamic member."""
    reason: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    """For the broker's log. Java sends at most 255 characters."""


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = wire(String)
    member_id: str = wire(String, "0-2", default="")
    members: tuple[MemberIdentity, ...] = wire(Array(MemberIdentity), "3+", default=())
    """``()`` gets the response ``()``."""


@struct
class MemberResponse:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, null="0+")
    error_code: int = wire(Int16)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    """v0-2: result of the member. v3+: error of the request as a whole."""
    members: tuple[MemberResponse, ...] = wire(Array(MemberResponse), "3+", default=())
    """In the order of the request."""
