"""ConsumerGroupHeartbeat (key 68): join, stay in, and leave a group whose partitions the coordinator assigns (KIP-848).

Sent by each member (a consumer with `group.protocol=consumer`) to the group's coordinator every `heartbeat_interval_ms`
of the last response, and at once if something changed. This one API does what JoinGroup, SyncGroup, Heartbeat and
LeaveGroup do for classic groups: the coordinator computes the assignment, and no member waits for the slowest one.

Rebalances are incremental, one member at a time. The coordinator answers with the partitions that the member may have
now. The member gives up the partitions that are missing there (after committing), and reports in its next heartbeat
the partitions that it still owns. Only when it has given up all of them does its epoch rise, and other members get the
partitions. A member that takes longer than `rebalance_timeout_ms` to give them up is fenced. A member that sends no
heartbeat for `group.consumer.session.timeout.ms` (45 s) is removed; so it must keep sending while it processes records.

Fields that have not changed since the last heartbeat are left out (``None``, or -1). All are sent when joining
(`member_epoch` 0) and after any error or lost response; the coordinator answers such a full request with the whole
assignment. OffsetCommit and OffsetFetch (v9+) take the `member_epoch` in place of a generation.

Errors:
    UNKNOWN_MEMBER_ID: the member was removed: drop all partitions, join with epoch 0 and the same member id.
    FENCED_MEMBER_EPOCH: the member's epoch is not the coordinator's: do the same. (An epoch one behind is accepted if
        the owned partitions match, because a response may have been lost.)
    UNRELEASED_INSTANCE_ID: another live member has this `instance_id`: stop.
    FENCED_INSTANCE_ID: another member took over this `instance_id`: stop.
    UNSUPPORTED_ASSIGNOR: `server_assignor` is not in the broker's `group.consumer.assignors`: stop.
    INVALID_REGULAR_EXPRESSION: v1+, `subscribed_topic_regex` is not valid in RE2's syntax: stop.
    GROUP_MAX_SIZE_REACHED: the group has `group.consumer.max.size` members: stop.
    INVALID_REQUEST: a field is missing that the state requires, for example `rebalance_timeout_ms` when joining.
    GROUP_ID_NOT_FOUND: not a group of this kind, or, when not joining, no group at all.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (3.7): flexible. Early access; on by default since 4.0.
    1 (4.0): `subscribed_topic_regex`; the member makes its own member id (KIP-1082).

Source: GroupMetadataManager.java, consumerGroupHeartbeat; GroupCoordinatorService.java; KIP-848.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Nested, String, Uuid, message, struct, wire

JOIN = 0
"""As `member_epoch`: join, or join again."""
LEAVE = -1
"""As `member_epoch`: leave for good."""
LEAVE_STATIC = -2
"""As `member_epoch`: a static member leaves for a while; its partitions wait for it until the session timeout."""


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = wire(String)
    member_id: str = wire(String)
    """v0: empty when joining, then as in the response. v1+: a random UUID that the member creates once and keeps."""
    member_epoch: int = wire(Int32)
    """The one in the last response, or `JOIN`, `LEAVE` or `LEAVE_STATIC`."""
    instance_id: str | None = wire(String, null="0+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    rack_id: str | None = wire(String, null="0+", default=None)
    """The `client.rack`; ``None``: none, or unchanged."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long the member may take to give up partitions, Java's `max.poll.interval.ms`; -1: unchanged."""
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(String), null="0+", default=None)
    """``None``: unchanged. ``()``: no subscription by name."""
    subscribed_topic_regex: str | None = wire(String, "1+", null="1+", default=None)
    """The coordinator resolves it, in RE2's syntax, in addition to the names. ``None``: unchanged. ``""``: none."""
    server_assignor: str | None = wire(String, null="0+", default=None)
    """``uniform`` or ``range``, as the broker names them; ``None``: its choice, or unchanged."""
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(Array(TopicPartitions), null="0+", default=None)
    """The partitions that the member owns now; ``None``: unchanged. ``()`` when joining."""


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    """All partitions that the member may have now, not only new ones."""


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+", default=None)
    """v0: assigned by the coordinator if the request had none."""
    member_epoch: int = wire(Int32)
    """Send it in the next heartbeat, and in OffsetCommit."""
    heartbeat_interval_ms: int = wire(Int32)
    """`group.consumer.heartbeat.interval.ms` (5 s), which can be set for each group."""
    assignment: Assignment | None = wire(Nested(Assignment), null="0+", default=None)
    """``None``: as before."""
