"""JoinGroup (key 11): become a member of a classic group, or take part in its next generation.

Sent to the group's coordinator by each consumer (or Connect worker) that starts, that gets REBALANCE_IN_PROGRESS, or
whose subscription has changed. The response waits until every known member has joined too, at most for the longest
`rebalance_timeout_ms` among them; members that have not joined by then are removed. A group that was empty waits
`group.initial.rebalance.delay.ms` (3 s) for others. So the client's own timeout for this request must be longer: Java's
adds five seconds.

The response starts a generation and names a leader. Only the leader gets all members with their subscriptions; it
computes the assignment with the protocol that the coordinator chose, and everyone continues with SyncGroup. The
coordinator parses neither metadata nor assignments: for consumers (`protocol_type` ``consumer``) they are the
ConsumerProtocolSubscription and ConsumerProtocolAssignment messages.

A new member joins twice: with an empty id it only gets its id (MEMBER_ID_REQUIRED), so that clients that disappear
after the first request leave no ghost members in the group. Static members (with a `group_instance_id`) join at once,
in place of the member that had the name before.

Errors:
    MEMBER_ID_REQUIRED (v4+): join again at once with the `member_id` of the answer.
    UNKNOWN_MEMBER_ID: the id is not (or no longer) in the group: join with an empty id.
    INCONSISTENT_GROUP_PROTOCOL: the group has another `protocol_type`, or no protocol in common with this member, or
        the member named none: change `partition.assignment.strategy`.
    INVALID_SESSION_TIMEOUT: outside `group.min.session.timeout.ms` and `group.max.session.timeout.ms` (6 s and 30 min).
    INVALID_GROUP_ID: it is empty.
    GROUP_MAX_SIZE_REACHED: the group is full (`group.max.size`); give up.
    FENCED_INSTANCE_ID: another process has taken the `group_instance_id`: stop.
    COORDINATOR_LOAD_IN_PROGRESS: ask again after a pause.
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask FindCoordinator again.

Versions:
    0 (0.9.0)
    1 (0.10.1): `rebalance_timeout_ms`, so that processing may take longer than the session timeout (KIP-62).
    2 (0.11.0): `throttle_time_ms`.
    3 (2.0): throttled after the answer (KIP-219).
    4 (2.2): MEMBER_ID_REQUIRED (KIP-394).
    5 (2.3): `group_instance_id`, static members (KIP-345).
    6 (2.4): flexible.
    7 (2.5): the response has `protocol_type` (KIP-559).
    8 (3.2): `reason` (KIP-800).
    9 (3.2): `skip_assignment` (KIP-814).

Source: GroupMetadataManager.java, classicGroupJoin.
"""

from ottla.codec.wire import Array, Boolean, Bytes, Int16, Int32, String, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    name: str = wire(String)
    """For consumers the name of an assignor: ``range``, ``roundrobin``, ``sticky``, ``cooperative-sticky``."""
    metadata: bytes = wire(Bytes)
    """Data for the leader; for consumers the subscription."""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = wire(String)
    session_timeout_ms: int = wire(Int32)
    """The coordinator removes the member if it receives no heartbeat for this long."""
    rebalance_timeout_ms: int = wire(Int32, "1+", default=-1, ignorable=True)
    """How long a rebalance waits for this member to join; the longest in the group counts. v0: the session timeout.
    Consumers send `max.poll.interval.ms`."""
    member_id: str = wire(String)
    """``""`` the first time, then the id from the response."""
    group_instance_id: str | None = wire(String, "5+", null="5+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    protocol_type: str = wire(String)
    """``consumer`` for consumers, ``connect`` for Connect workers. The first member sets it for the group."""
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(Array(JoinGroupRequestProtocol))
    """The protocols that the member supports, best first. The coordinator picks a common protocol by vote."""
    reason: str | None = wire(String, "8+", null="8+", default=None, ignorable=True)
    """For the broker's log. Java sends at most 255 characters."""


@struct
class JoinGroupResponseMember:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    metadata: bytes = wire(Bytes)
    """The member's metadata for the chosen protocol."""


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    generation_id: int = wire(Int32, default=-1)
    """Rises with each rebalance; goes into Heartbeat, SyncGroup and OffsetCommit. -1 if there is an error."""
    protocol_type: str | None = wire(String, "7+", null="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(String, null="7+")
    """The chosen protocol. ``None`` with an error (before version 7 ``""``)."""
    leader: str = wire(String)
    """Its member id."""
    skip_assignment: bool = wire(Boolean, "9+", default=False)
    """The leader is static and was restarted: the assignment stays. It sends SyncGroup without assignments, and uses
    `members` only to notice later changes of partitions."""
    member_id: str = wire(String)
    members: tuple[JoinGroupResponseMember, ...] = wire(Array(JoinGroupResponseMember))
    """For the leader; ``()`` for all others."""
