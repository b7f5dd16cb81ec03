"""Records of ``__consumer_offsets``, types 3 to 8 and 16: groups of the consumer protocol (KIP-848, Kafka 4.0).

In this protocol the coordinator assigns, and members follow the responses to their heartbeats. The coordinator stores a
group in pieces, and writes each piece when it changes: the group with its epoch (3), each member and its subscription
(5), the target assignment (6 as a whole, 7 for each member), and the current assignment of each member (8). A null
value deletes a piece; when a member leaves, three of them are deleted.

Epochs count changes. The group's epoch rises with changes of members, subscriptions and subscribed topics. The target's
epoch follows when the assignment for it has been computed. A member's epoch follows when the member has given up the
partitions that it must and has received the free ones; while it is below the target's, the member is still
reconciling.

Offsets are committed as in classic groups: `classic_groups`, type 1.

Source: GroupCoordinatorRecordHelpers.java, ConsumerGroupMember.java, CurrentAssignmentBuilder.java.
"""

import uuid

from ottla.codec.wire import Array, Bytes, Int8, Int32, Int64, Nested, String, Uuid, message, struct, wire

MEMBER_STATES = {0: "stable", 1: "unrevoked_partitions", 2: "unreleased_partitions", 127: "unknown"}
"""1: the member must first give up partitions. 2: it waits for partitions that other members must give up."""


@message(key=3, versions="0")
class ConsumerGroupMetadataKey:
    """Type 3: the group."""

    group_id: str = wire(String)


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = wire(Int32)
    metadata_hash: int = wire(Int64, default=0, tag=0)
    """Hash of all subscribed topics. It changes with partitions and racks; then the group is reassigned (KIP-1101)."""


@message(key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    """Type 4: the topics as the group knew them; before 4.1, in which `metadata_hash` replaced it."""

    group_id: str = wire(String)


@struct
class PartitionMetadata:
    partition: int = wire(Int32)
    racks: tuple[str, ...] = wire(Array(String))
    """Racks of the partition's replicas."""


@struct
class TopicMetadata:
    topic_id: uuid.UUID = wire(Uuid)
    topic_name: str = wire(String)
    num_partitions: int = wire(Int32)
    partition_metadata: tuple[PartitionMetadata, ...] = wire(Array(PartitionMetadata))
    """Empty if racks are unknown, and from 4.0 on."""


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: tuple[TopicMetadata, ...] = wire(Array(TopicMetadata))


@message(key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    """Type 5: a member and its subscription."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class ClassicProtocol:
    name: str = wire(String)
    """The assignor."""
    metadata: bytes = wire(Bytes)
    """A subscription, see `ottla.codec.consumer_protocol`."""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = wire(Int32)
    """The member is removed if it sends no heartbeat for this long, in milliseconds."""
    supported_protocols: tuple[ClassicProtocol, ...] = wire(Array(ClassicProtocol))


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = wire(String, null="0+")
    """Set by the user for a static member; ``None`` for others."""
    rack_id: str | None = wire(String, null="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address from which the member connected, with a slash in front."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))
    subscribed_topic_regex: str | None = wire(String, null="0+")
    """In RE2 syntax; ``None`` if the member subscribes by name only."""
    rebalance_timeout_ms: int = wire(Int32, default=-1)
    """How long the member may take to give up partitions, in milliseconds."""
    server_assignor: str | None = wire(String, null="0+")
    """``None``: the broker's default."""
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        Nested(ClassicMemberMetadata),
        null="0+",
        default=ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=()),
        tag=0,
    )
    """Only for a member that still uses the classic protocol while the group is being upgraded; else ``None``."""


@message(key=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Type 6: the target assignment as a whole."""

    group_id: str = wire(String)


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(Int32)
    """The group epoch that it was computed for."""
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
    """Type 8: the current assignment of a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@struct
class AssignedTopicPartitions:
    topic_id: uuid.UUID = wire(Uuid)
    partitions: tuple[int, ...] = wire(Array(Int32))
    assignment_epochs: tuple[int, ...] | None = wire(Array(Int32), null="0+", default=(), tag=0)
    """One for each of `partitions`; commits with an older epoch are refused. ``()``, ``None``: the broker knew none."""


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(Int32)
    """The epoch that the member's heartbeats must carry."""
    previous_member_epoch: int = wire(Int32)
    """An epoch that they may also carry, because the response with the newer one may have been lost."""
    state: int = wire(Int8)
    """One of `MEMBER_STATES`."""
    assigned_partitions: tuple[AssignedTopicPartitions, ...] = wire(Array(AssignedTopicPartitions))
    partitions_pending_revocation: tuple[AssignedTopicPartitions, ...] = wire(Array(AssignedTopicPartitions))
    """Partitions that the member has not yet confirmed to have given up."""


@message(key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    """Type 16: the topics that match a regular expression."""

    group_id: str = wire(String)
    regular_expression: str = wire(String)


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: tuple[str, ...] = wire(Array(String))
    version: int = wire(Int64)
    """Version of the cluster metadata in which they were looked up."""
    timestamp: int = wire(Int64)
    """When they were looked up, in milliseconds since 1970."""
