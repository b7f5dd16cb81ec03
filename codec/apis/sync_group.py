"""SyncGroup (key 14): the leader of a classic group submits the assignment, and every member receives its part.

Sent to the group's coordinator by every member right after JoinGroup: by the leader with `assignments`, by the others
without. The coordinator holds the responses back until the leader's request has arrived and is stored in
`__consumer_offsets`. Then the group is stable, and each response has the member's part in `assignment`. In a stable
group the request is answered at once with the current assignment, so it can be repeated.

A member that does not send it within the rebalance timeout is removed, and the group rebalances again.

Errors:
    REBALANCE_IN_PROGRESS: a member has joined or left since: send JoinGroup again.
    ILLEGAL_GENERATION: the group has a newer generation: join again with the same member id.
    UNKNOWN_MEMBER_ID: the member was removed: join with an empty member id.
    FENCED_INSTANCE_ID: another process has taken the `group_instance_id`: stop.
    INCONSISTENT_GROUP_PROTOCOL (v5+): `protocol_type` or `protocol_name` differs from JoinGroup's response.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find the coordinator, join again.

Versions:
    0 (0.9.0)
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.3): `group_instance_id`, static members (KIP-345).
    4 (2.4): flexible.
    5 (2.5): `protocol_type` and `protocol_name`, checked by the coordinator, and in the response (KIP-559).

Source: GroupMetadataManager.java, classicGroupSync.
"""

from ottla.codec.wire import Array, Bytes, Int16, Int32, String, message, struct, wire


@struct
class SyncGroupRequestAssignment:
    member_id: str = wire(String)
    assignment: bytes = wire(Bytes)
    """For consumers a ConsumerProtocolAssignment."""


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = wire(String)
    generation_id: int = wire(Int32)
    """From JoinGroup."""
    member_id: str = wire(String)
    """From JoinGroup."""
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    protocol_type: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    """Required from version 5 on; from JoinGroup."""
    protocol_name: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    """Required from version 5 on; from JoinGroup."""
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(Array(SyncGroupRequestAssignment))
    """From the leader, one for each member; a member that is left out gets an empty one. ``()`` from all others."""


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    protocol_type: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    assignment: bytes = wire(Bytes)
    """Empty if there is an error, or if the leader gave this member nothing."""
