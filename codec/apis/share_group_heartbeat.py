"""ShareGroupHeartbeat (key 76): join, stay in, and leave a share group, whose members share partitions (KIP-932).

Sent by each member (Java's ShareConsumer) to the group's coordinator every `heartbeat_interval_ms` of the last
response. A member without heartbeats for `group.share.session.timeout.ms` (45 s) is removed.

A share group is a queue over topics: many members may be assigned the same partition, and each gets different records
of it (ShareFetch), which it acknowledges one by one (ShareAcknowledge). So a member need not give up a partition before
another may read it, and no rebalance is needed: a new assignment is valid as soon as the member receives it.

Fields that have not changed since the last heartbeat are ``None``; all are sent when joining, and after an error.

Errors:
    UNKNOWN_MEMBER_ID: the member was removed: drop the assignment, join with epoch 0 and the same member id.
    FENCED_MEMBER_EPOCH: neither the coordinator's epoch of this member nor the one before it: do the same.
    GROUP_MAX_SIZE_REACHED: the group has `group.share.max.size` (200) members: stop.
    GROUP_ID_NOT_FOUND: the group is of another kind, or, when not joining, does not exist.
    INVALID_REQUEST: an empty id, an epoch below -1, or no topics when joining.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS: send it again after a pause.

Versions:
    1 (4.1): flexible. Version 0 was an early access in 4.0, and was removed.

Source: GroupMetadataManager.java, shareGroupHeartbeat; GroupCoordinatorService.java; KIP-932.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, Nested, String, Uuid, message, struct, wire

JOIN = 0
"""As `member_epoch`: join, or join again."""
LEAVE = -1
"""As `member_epoch`: leave."""


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = wire(String)
    member_id: str = wire(String)
    """A random UUID that the member creates once and keeps."""
    member_epoch: int = wire(Int32)
    """The one in the last response, or `JOIN` or `LEAVE`."""
    rack_id: str | None = wire(String, null="0+", default=None)
    """The `client.rack`; ``None``: none, or unchanged."""
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(String), null="0+", default=None)
    """``None``: unchanged."""


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))
    """All partitions, not only new ones."""


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    member_id: str | None = wire(String, null="0+", default=None)
    """As in the request."""
    member_epoch: int = wire(Int32)
    """Send it in the next heartbeat."""
    heartbeat_interval_ms: int = wire(Int32)
    """`group.share.heartbeat.interval.ms` (5 s), which can be set for each group."""
    assignment: Assignment | None = wire(Nested(Assignment), null="0+", default=None)
    """``None``: as before."""
