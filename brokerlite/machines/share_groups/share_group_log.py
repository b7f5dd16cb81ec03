"""Stores share groups as records of `__consumer_offsets` in Kafka's own format, and loads them.

`ottla.brokerlite.machines.consumer_groups.epoch_group_log` has the rules, and what both kinds of groups share.

Source: GroupCoordinatorRecordHelpers.java (newShareGroup…), GroupMetadataManager.java (replay).
"""

from collections.abc import Iterator, Mapping

from ottla.brokerlite.machines.consumer_groups.epoch_group_log import (
    Piece,
    Reader,
    RecordTypes,
    built_partitions,
    common_readers,
    common_records,
    gone,
    partitions_in,
    record,
    restored,
)
from ottla.brokerlite.machines.consumer_groups.member import MemberProgress
from ottla.brokerlite.machines.share_groups.share_group import (
    AssignedShareMember,
    InitializedTopic,
    ShareChange,
    ShareGroup,
)
from ottla.brokerlite.machines.topics.keyed_log import Loaded, Pair
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, parse_prefixed
from ottla.codec.stored.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)

# -- loading


def load(loaded: Loaded, groups: dict[str, ShareGroup]) -> None:
    """Put the stored groups into ``groups``."""
    found = restored(loaded, "share", lambda group_id: ShareChange(ShareGroup(group_id)), _READERS, _MAKE_A_GROUP)
    for group_id, change in found.items():
        change.group.apply(change)
        groups[group_id] = change.group


def _read_member(key: bytes, value: bytes, piece: Piece[ShareChange]) -> str:
    name, _ = messages.parse(ShareGroupMemberMetadataKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ShareGroupMemberMetadataValue, value)
    piece(name.group_id).restore_member(
        name.member_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        topics=frozenset(read.subscribed_topic_names),
    )
    return name.group_id


def _read_progress(key: bytes, value: bytes, piece: Piece[ShareChange]) -> str:
    name, _ = messages.parse(ShareGroupCurrentMemberAssignmentKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ShareGroupCurrentMemberAssignmentValue, value)
    piece(name.group_id).restore_member(
        name.member_id,
        epoch=read.member_epoch,
        previous_epoch=read.previous_member_epoch,
        assigned=partitions_in(read.assigned_partitions),
    )
    return name.group_id


def _read_initialized(key: bytes, value: bytes, piece: Piece[ShareChange]) -> str:
    name, _ = messages.parse(ShareGroupStatePartitionMetadataKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ShareGroupStatePartitionMetadataValue, value)
    # Partitions that Kafka was initializing, or deleting, are initialized by the next heartbeat that needs them.
    piece(name.group_id).initialize(
        {
            each.topic_id: InitializedTopic(each.topic_name, frozenset(each.partitions))
            for each in read.initialized_topics
        }
    )
    return name.group_id


# -- writing


def records_of(change: ShareChange) -> Iterator[Pair]:
    """Return the records that store a change."""
    changed = change.initialized != change.group.initialized
    return common_records(change, _TYPES, (_of_initialized(change),) if changed else ())


def tombstones(group: ShareGroup) -> Iterator[Pair]:
    """Return the records that remove a group."""
    for member_id in group.members:
        yield from gone(group.group_id, member_id, _TYPES)
    yield record(ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield record(ShareGroupStatePartitionMetadataKey(group_id=group.group_id), None)
    yield record(ShareGroupMetadataKey(group_id=group.group_id), None)


def _of_member(member: AssignedShareMember) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
    )


def _of_progress(member: AssignedShareMember) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=MemberProgress.STABLE.value,
        assigned_partitions=built_partitions(member.assigned),
    )


def _of_initialized(change: ShareChange) -> Pair:
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=(),
        initialized_topics=tuple(
            TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(topic.partitions)))
            for topic_id, topic in change.initialized.items()
        ),
        deleting_topics=(),
    )
    return record(ShareGroupStatePartitionMetadataKey(group_id=change.group.group_id), value)


_TYPES = RecordTypes(
    epoch=(ShareGroupMetadataKey, ShareGroupMetadataValue),
    member=(ShareGroupMemberMetadataKey, _of_member),
    target=(ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    target_of_member=(ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    progress=(ShareGroupCurrentMemberAssignmentKey, _of_progress),
)
_READERS: Mapping[int, Reader[ShareChange]] = {
    **common_readers(_TYPES),
    10: _read_member,
    14: _read_progress,
    15: _read_initialized,
}
"""The type of a record -> what reads it."""
_MAKE_A_GROUP = (10, 11)
"""The types of records that make a group: its epoch, and its members."""
