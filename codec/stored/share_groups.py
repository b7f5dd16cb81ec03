"""Records of ``__consumer_offsets``, types 10 to 15: share groups (KIP-932, Kafka 4.2), whose members share partitions.

A partition may be assigned to several members at once; each of them gets different records. Pieces and epochs are as in
`consumer_groups`, but a member need not give up a partition before another may have it, so members have no pending
revocations. The share coordinator keeps which records were delivered, and what became of them: `share_group_state`.
Type 15 lists the partitions that have a state there, so that each state is initialized and deleted exactly once.

Source: GroupCoordinatorRecordHelpers.java, ShareGroup.java.
"""

import uuid

from ottla.codec.stored.consumer_groups import TopicPartitions
from ottla.codec.wire import Array, Int8, Int32, Int64, String, Uuid, message, struct, wire


@message(key=10, versions="0")
class ShareGroupMemberMetadataKey:
    """Type 10: a member and its subscription."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@message(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = wire(String, null="0+")
    client_id: str = wire(String)
    client_host: str = wire(String)
    """Address from which the member connected, with a slash in front."""
    subscribed_topic_names: tuple[str, ...] = wire(Array(String))


@message(key=11, versions="0")
class ShareGroupMetadataKey:
    """Type 11: the group."""

    group_id: str = wire(String)


@message(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int = wire(Int32)
    metadata_hash: int = wire(Int64)
    """Hash of all subscribed topics: when it changes, the group is reassigned."""


@message(key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    """Type 12: the target assignment as a whole."""

    group_id: str = wire(String)


@message(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire(Int32)
    """The group epoch that it was computed for."""
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
    """Type 14: the current assignment of a member."""

    group_id: str = wire(String)
    member_id: str = wire(String)


@message(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire(Int32)
    """The epoch that the member's heartbeats must carry."""
    previous_member_epoch: int = wire(Int32)
    """An epoch that they may also carry, because the response with the newer one may have been lost."""
    state: int = wire(Int8)
    """One of `consumer_groups.MEMBER_STATES`; a share group's members are always stable."""
    assigned_partitions: tuple[TopicPartitions, ...] = wire(Array(TopicPartitions))


@message(key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    """Type 15: the partitions of which the share coordinator has a state for the group."""

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
    """The share coordinator was asked to initialize the state, and has not answered yet."""
    initialized_topics: tuple[TopicPartitionsInfo, ...] = wire(Array(TopicPartitionsInfo))
    deleting_topics: tuple[TopicInfo, ...] = wire(Array(TopicInfo))
    """The share coordinator was asked to delete the state, and has not answered yet."""
