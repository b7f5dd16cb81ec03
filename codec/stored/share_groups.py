"""Records of ``__consumer_offsets``, types 10 to 15: share groups (KIP-932, Kafka 4.2), whose members share partitions.

A partition may be assigned to several members at once, each of which gets other records of it. Pieces and epochs are
those of `consumer_groups`, but nothing needs to be given back before another may have it, so a member has nothing
pending. What was delivered to whom, and what became of it, is the share coordinator's: `share_group_state`. Type 15
notes which partitions have a state there, so that each is begun, and in the end deleted, exactly once.

Source: GroupCoordinatorRecordHelpers.java, ShareGroup.java.
"""

import uuid

from ottla.codec.stored.consumer_groups import TopicPartitions
from ottla.codec.wire import Array, Int8, Int32, Int64, String, Uuid, message, struct, wire


@message(key=10, versions="0")
class ShareGroupMemberMetadataKey:
    """Type 10: a member and what it wants."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@message(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = wire(String, null="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address the member connected from, with a slash before it."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))


@message(key=11, versions="0")
class ShareGroupMetadataKey:
    """Type 11: the group."""

    group_id: str = wire(String)


@message(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int = wire(Int32)
    metadata_hash: int = wire(Int64)
    """Of all topics subscribed to: when it changes the group is assigned again."""


@message(key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    """Type 12: the target assignment as a whole."""

    group_id: str = wire(String)


@message(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(Int32)
    """The group's epoch that it was computed for."""
    assignment_timestamp: int = wire(Int64, default=0, tag=0, ignorable=True)
    """When it was computed, in milliseconds since 1970; 0 before 4.3 (KIP-1263)."""


@message(key=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    """Type 13: the target assignment of a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@message(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@message(key=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    """Type 14: what a member has now."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@message(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(Int32)
    """What the member's heartbeats must say."""
    previous_member_epoch: int = wire(Int32)
    """What they may say too, because the answer with the newer one may have been lost."""
    state: int = wire(Int8)
    """As `consumer_groups.MEMBER_STATES` says; a share group's members are always stable."""
    assigned_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@message(key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    """Type 15: of which partitions the group has a state with the share coordinator."""

    group_id: str = wire(String)


@struct
class TopicPartitionsInfo:
    topic_id: uuid.UUID = wire(Uuid)
    topic_name: str = wire(String)
    partitions: tuple[int, ...] = wire(Array(Int32))


@struct
class TopicInfo:
    topic_id: uuid.UUID = wire(Uuid)
    topic_name: str = wire(String)


@message(key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: tuple[TopicPartitionsInfo, ...] = wire(Array(TopicPartitionsInfo))
    """The share coordinator has been asked to begin a state, and has not answered yet."""
    initialized_topics: tuple[TopicPartitionsInfo, ...] = wire(Array(TopicPartitionsInfo))
    deleting_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    """It has been asked to forget them, and has not answered yet."""
