"""Records of ``__consumer_offsets``, types 3 to 8 and 16: groups of the consumer protocol (KIP-848, Kafka 4.0).

Here the coordinator assigns, and members only do as they are told by the answers to their heartbeats. It stores a
group piece by piece, each piece when it changes: the group with its epoch (3), each member and what it subscribes to
(5), the assignment that is the target (6 as a whole, 7 for each member), and how far each member has come (8). A null
value takes a piece back: a member that left is three of them.

Epochs count what changed. The group's rises with members, subscriptions and the topics subscribed to. The target's
follows, when the assignment for it has been computed. A member's follows that, when it has given back what it must and
taken over what is free; while its epoch is below the target's it is not there yet.

Offsets are committed as in classic groups: `classic_groups`, type 1.

Source: GroupCoordinatorRecordHelpers.java, ConsumerGroupMember.java, CurrentAssignmentBuilder.java.
"""

import uuid

from ottla.codec.wire import Array, Bytes, Int8, Int32, Int64, Nested, String, Uuid, message, struct, wire

MEMBER_STATES = {0: "stable", 1: "unrevoked_partitions", 2: "unreleased_partitions", 127: "unknown"}
"""1: it must give partitions back first. 2: it waits for partitions that others must give back."""


@message(key=3, versions="0")
class ConsumerGroupMetadataKey:
    """Type 3: the group."""

    group_id: str = wire(String)


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = wire(Int32)
    metadata_hash: int = wire(Int64, default=0, tag=0)
    """Of all topics subscribed to: it changes with partitions and racks, and the group is assigned again (KIP-1101)."""


@message(key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    """Type 4: the topics as the group knew them; before 4.1, where `metadata_hash` replaced it."""

    group_id: str = wire(String)


@struct
class PartitionMetadata:
    partition: int = wire(Int32)
    racks: tuple[str, ...] = wire(Array(String))
    """Of its replicas."""


@struct
class TopicMetadata:
    topic_id: uuid.UUID = wire(Uuid)
    topic_name: str = wire(String)
    num_partitions: int = wire(Int32)
    partition_metadata: tuple[PartitionMetadata, ...] = wire(Array(PartitionMetadata))
    """Empty where racks are unknown, and from 4.0 on."""


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: tuple[TopicMetadata, ...] = wire(Array(TopicMetadata))


@message(key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    """Type 5: a member and what it wants."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class ClassicProtocol:
    name: str = wire(String)
    """The assignor."""
    metadata: bytes = wire(Bytes)
    """As `ottla.codec.consumer_protocol` says of subscriptions."""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = wire(Int32)
    """After how long without a heartbeat it is dropped, in milliseconds."""
    supported_protocols: tuple[ClassicProtocol, ...] = wire(Array(ClassicProtocol))


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = wire(String, null="0+")
    """Given by the user to a static member; ``None`` for others."""
    rack_id: str | None = wire(String, null="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address the member connected from, with a slash before it."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, null="0+")
    """Of RE2; ``None`` where it subscribes by name only."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long it may take to give partitions back, in milliseconds."""
    server_assignor: str | None = wire(String, null="0+")
    """``None``: the broker's default."""
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        Nested(ClassicMemberMetadata),
        null="0+",
        default=ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=()),
        tag=0,
    )
    """``None`` but for a member that still speaks the classic protocol, while the group is being moved from it."""


@message(key=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Type 6: the target assignment as a whole."""

    group_id: str = wire(String)


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(Int32)
    """The group's epoch that it was computed for."""
    assignment_timestamp: int = wire(Int64, default=0, tag=0, ignorable=True)
    """When it was computed, in milliseconds since 1970; 0 before 4.3 (KIP-1263)."""


@message(key=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    """Type 7: the target assignment of a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class TopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))


@message(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@message(key=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Type 8: what a member has now."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class AssignedTopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))
    assignment_epochs: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=(), tag=0)
    """One for each of `partitions`: a commit from before it is refused. ``()``, ``None``: the broker knew of none."""


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(Int32)
    """What the member's heartbeats must say."""
    previous_member_epoch: int = wire(Int32)
    """What they may say too, because the answer with the newer one may have been lost."""
    state: int = wire(Int8)
    """As `MEMBER_STATES` says."""
    assigned_partitions: tuple[AssignedTopicPartitions, ...] = wire(Array(AssignedTopicPartitions))
    partitions_pending_revocation: tuple[AssignedTopicPartitions, ...] = wire(Array(AssignedTopicPartitions))
    """Those of which the member has not yet said that it gave them back."""


@message(key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    """Type 16: the topics that a regular expression stands for."""

    group_id: str = wire(String)
    regular_expression: str = wire(String)


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: tuple[str, ...] = wire(Array(String))
    version: int = wire(Int64)
    """Of the cluster's metadata in which they were looked up."""
    timestamp: int = wire(Int64)
    """When, in milliseconds since 1970."""
