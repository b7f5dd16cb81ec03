"""Heartbeat (key 12): a member of a classic group reports that it is alive, and learns whether the group rebalances.

Sent by each member to the group's coordinator every `heartbeat.interval.ms` (3 s), after JoinGroup. If the coordinator
receives none for the session timeout given in JoinGroup, it removes the member, and the others rebalance. Heartbeats
say nothing about progress: a member that is stuck must stop them itself, as Java's consumer does after
`max.poll.interval.ms`.

The response is only a code. A rebalance is announced only here, so the interval bounds how long one takes to begin.
Members of the new groups (KIP-848) use ConsumerGroupHeartbeat instead.

Errors:
    REBALANCE_IN_PROGRESS: finish the current batch, commit, and send JoinGroup within the rebalance timeout; the member
        counts as alive.
    ILLEGAL_GENERATION: the group has moved on without the member: join again with the same member id.
    UNKNOWN_MEMBER_ID: the member was removed, or the group is gone: drop the assignment, join with an empty member id.
    FENCED_INSTANCE_ID: another process uses the same `group_instance_id`: stop, do not rejoin.
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask FindCoordinator again. A coordinator that is still loading the
        group answers 0.

Versions:
    0 (0.9.0)
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.3): `group_instance_id`, static members (KIP-345).
    4 (2.4): flexible.

Source: GroupMetadataManager.java, classicGroupHeartbeat.
"""

from ottla.codec.wire import Int16, Int32, String, message, wire


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = wire(String)
    generation_id: int = wire(Int32)
    """From JoinGroup."""
    member_id: str = wire(String)
    """From JoinGroup."""
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
