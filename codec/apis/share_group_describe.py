"""ShareGroupDescribe (key 77): the members of share groups (KIP-932), and the partitions that each reads.

Sent by an administrator (Admin.describeShareGroups, `kafka-share-groups.sh --describe`) to the coordinator of the
groups. For a group's progress use DescribeShareGroupOffsets.

Errors:
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    INVALID_GROUP_ID: an empty group id.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.
    TOPIC_AUTHORIZATION_FAILED: a topic of the group may not be described; then the group is not shown at all.

Versions:
    1 (4.1): flexible. Version 0 was an early access in 4.0, and was removed.
"""

import uuid

from ottla.codec.wire import Array, Boolean, Int16, Int32, Nested, String, Uuid, message, struct, wire


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
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
    rack_id: str | None = wire(String, null="0+", default=None)
    member_epoch: int = wire(Int32)
    client_id: str = wire(String)
    """From the header of its last heartbeat."""
    client_host: str = wire(String)
    """Its address, for example ``/192.0.2.1``."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))
    assignment: Assignment = wire(Nested(Assignment))
    """The member's partitions, possibly shared with others."""


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    """``Empty``: no members. ``Stable``: has members. ``Dead``: gone. ``""`` with an error."""
    group_epoch: int = wire(Int32)
    """Rises with every change of members, subscriptions or topics."""
    assignment_epoch: int = wire(Int32)
    """The group epoch that the current assignment was computed for."""
    assignor_name: str = wire(String)
    members: tuple[Member, ...] = wire(Array(Member))
    authorized_operations: int = wire(Int32, default=-(2**31))


@message(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
