"""ConsumerGroupHeartbeat (key 68): join, stay in, and leave a group whose partitions the coordinator assigns (KIP-848).

Sent by each member (a consumer with `group.protocol=consumer`) to the group's coordinator every `heartbeat_interval_ms`
of the last answer, and at once when something changed. It does alone what JoinGroup, SyncGroup, Heartbeat and
LeaveGroup do for classic groups: the coordinator computes the assignment, and nobody waits for the slowest member.

Rebalances are incremental, one member at a time. The coordinator answers with the partitions that the member may have
now; the member gives up what is missing (after committing), and says in its next heartbeat what it owns then. Only when
all of that is given up does its epoch rise, and the partitions go to others. A member that takes longer than
`rebalance_timeout_ms` to give up is fenced. One that is not heard of for `group.consumer.session.timeout.ms` (45 s) is
removed; it must therefore keep sending while it processes records.

Fields that did not change since the last heartbeat are left out (``None``, or -1). All are sent when joining
(`member_epoch` 0) and after any error or lost answer; the coordinator answers such a full request with the whole
assignment. OffsetCommit and OffsetFetch (v9+) take the `member_epoch` in place of a generation.

Errors:
    UNKNOWN_MEMBER_ID: the member was removed: drop all partitions, join with epoch 0 and the same member id.
    FENCED_MEMBER_EPOCH: the member's epoch is not the coordinator's: the same. (An epoch one behind is accepted while
        the owned partitions fit, since an answer may have been lost.)
    UNRELEASED_INSTANCE_ID: another live member has this `instance_id`: stop.
    FENCED_INSTANCE_ID: another member took over this `instance_id`: stop.
    UNSUPPORTED_ASSIGNOR: `server_assignor` is not in the broker's `group.consumer.assignors`: stop.
    INVALID_REGULAR_EXPRESSION: v1+, `subscribed_topic_regex` is not one in RE2's syntax: stop.
    GROUP_MAX_SIZE_REACHED: the group has `group.consumer.max.size` members: stop.
    INVALID_REQUEST: a field lacks that its state requires, such as `rebalance_timeout_ms` when joining.
    GROUP_ID_NOT_FOUND: not a group of this kind, or, when not joining, no group at all.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    0 (3.7): flexible. An early access then; on by default since 4.0.
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
    """v0: empty when joining, then as the answer gives it. v1+: a random UUID that the member makes once and keeps."""
    member_epoch: int = wire(Int32)
    """As in the last answer, or `JOIN`, `LEAVE` or `LEAVE_STATIC`."""
    instance_id: str | None = wire(String, null="0+", default=None)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    rack_id: str | None = wire(String, null="0+", default=None)
    """The `client.rack`; ``None``: none, or unchanged."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long the member may take to give partitions up, Java's `max.poll.interval.ms`; -1: unchanged."""
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(String), null="0+", default=None)
    """``None``: unchanged. ``()``: subscribed to none by name."""
    subscribed_topic_regex: str | None = wire(String, "1+", null="1+", default=None)
    """The coordinator resolves it, in RE2's syntax, in addition to the names. ``None``: unchanged. ``""``: none."""
    server_assignor: str | None = wire(String, null="0+", default=None)
    """``uniform`` or ``range``, as the broker names them; ``None``: its choice, or unchanged."""
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(Array(TopicPartitions), null="0+", default=None)
    """What the member owns now; ``None``: unchanged. ``()`` when joining."""


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    """All that the member may have now, not only what was added."""


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+", default=None)
    """v0: made by the coordinator if the request had none."""
    member_epoch: int = wire(Int32)
    """To be sent in the next heartbeat, and in OffsetCommit."""
    heartbeat_interval_ms: int = wire(Int32)
    """`group.consumer.heartbeat.interval.ms` (5 s), which can be set for each group."""
    assignment: Assignment | None = wire(Nested(Assignment), null="0+", default=None)
    """``None``: as before."""
