"""ConsumerGroupDescribe (key 69): the members of consumer groups (KIP-848), what they have, and what they shall have.

Sent by an administrator (Admin.describeConsumerGroups, `kafka-consumer-groups.sh --describe`) to the coordinator of the
groups. It knows only groups of the new protocol; for the others it says GROUP_ID_NOT_FOUND, and one asks with
DescribeGroups. A group that converges has members with `assignment` unlike `target_assignment`.

Three epochs tell how far it is: `group_epoch` rises with every change of members, subscriptions or topics;
`assignment_epoch` is the group epoch that the current target was computed for; a member's epoch is that of the target
it has reached.

Errors:
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    INVALID_GROUP_ID: an empty group id.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.
    TOPIC_AUTHORIZATION_FAILED: some topic of the group may not be described; then nothing of the group is shown.

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
    """-2: a static member that is away for a while."""
    client_id: str = wire(String)
    """From the header of its last heartbeat."""
    client_host: str = wire(String)
    """Its address, such as ``/192.0.2.1``."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, null="0+", default=None)
    assignment: Assignment = wire(Nested(Assignment))
    """What the member has."""
    target_assignment: Assignment = wire(Nested(Assignment))
    """What it shall have, once others have given it up."""
    member_type: int = wire(Int8, "1+", default=-1, ignorable=True)
    """1: of the new protocol. 0: a classic member in a group that is migrating. -1: not known."""


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    """``Empty``: no members. ``Assigning``: a new target is to be computed. ``Reconciling``: members are on the way
    to it. ``Stable``: all have reached it. ``Dead``: gone. ``""`` with an error."""
    group_epoch: int = wire(Int32)
    assignment_epoch: int = wire(Int32)
    assignor_name: str = wire(String)
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
