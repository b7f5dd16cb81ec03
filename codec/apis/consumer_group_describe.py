"""ConsumerGroupDescribe (key 69): members of consumer groups (KIP-848), with their current and target assignments.

Sent by an administrator (Admin.describeConsumerGroups, `kafka-consumer-groups.sh --describe`) to the coordinator of the
groups. It knows only groups of the new protocol, and answers GROUP_ID_NOT_FOUND for others; use DescribeGroups for
those. In a group that is reconciling, `assignment` and `target_assignment` of some members differ.

Three epochs show the progress: `group_epoch` rises with every change of members, subscriptions or topics;
`assignment_epoch` is the group epoch that the current target was computed for; a member's epoch is the epoch
of the target that it has reached.

Errors:
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    INVALID_GROUP_ID: an empty group id.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.
    TOPIC_AUTHORIZATION_FAILED: a topic of the group may not be described; then the group is not shown at all.

Versions:
    0 (3.8): flexible.
    1 (4.0): `member_type` (KIP-1099).

Source: KafkaApis.scala, handleConsumerGroupDescribe; ConsumerGroup.java; KIP-848.
"""

import uuid

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Nested, String, Uuid, message, struct, wire


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...] = wire(Array(String))
    include_authorized_operations: bool = wire(Boolean)


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    topic_name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@struct
class Member:
    member_id: str = wire(String)
    instance_id: str | None = wire(String, null="0+", default=None)
    """``None``: a dynamic member."""
    rack_id: str | None = wire(String, null="0+", default=None)
    member_epoch: int = wire(Int32)
    """-2: a static member that is temporarily away."""
    client_id: str = wire(String)
    """From the header of its last heartbeat."""
    client_host: str = wire(String)
    """Its address, for example ``/192.0.2.1``."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, null="0+", default=None)
    assignment: Assignment = wire(Nested(Assignment))
    """The current assignment."""
    target_assignment: Assignment = wire(Nested(Assignment))
    """The future assignment, once other members have given up its partitions."""
    member_type: int = wire(Int8, "1+", default=-1, ignorable=True)
    """1: uses the new protocol. 0: a classic member in a group that is migrating. -1: unknown."""


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    """``Empty``: no members. ``Assigning``: a new target is being computed. ``Reconciling``: members are moving to the
    target. ``Stable``: all have reached it. ``Dead``: gone. ``""`` with an error."""
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    assignor_name: str = wire(String)
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
