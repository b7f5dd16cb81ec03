"""Stores share groups as records of `__consumer_offsets` in Kafka's own format, and loads them.

`ottla.brokerlite.machines.consumer_groups.epoch_group_log` has the rules, and what both kinds of groups share.

Source: GroupCoordinatorRecordHelpers.java (newShareGroup…), GroupMetadataManager.java (replay).
"""

from collections.abc import Callable, Iterator, Mapping

from ottla.brokerlite.machines.consumer_groups.epoch_group_log import (
    Piece,
    built_partitions,
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


def _read_epoch(key: bytes, value: bytes, piece: Piece[ShareChange]) -> str:
    name, _ = messages.parse(ShareGroupMetadataKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ShareGroupMetadataValue, value)
    piece(name.group_id).restore_epoch(read.epoch, read.metadata_hash)
    return name.group_id


def _read_target(key: bytes, value: bytes, piece: Piece[ShareChange]) -> str:
    name, _ = messages.parse(ShareGroupTargetAssignmentMetadataKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ShareGroupTargetAssignmentMetadataValue, value)
    piece(name.group_id).restore_target_epoch(read.assignment_epoch, read.assignment_timestamp)
    return name.group_id


def _read_target_of_member(key: bytes, value: bytes, piece: Piece[ShareChange]) -> str:
    name, _ = messages.parse(ShareGroupTargetAssignmentMemberKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ShareGroupTargetAssignmentMemberValue, value)
    piece(name.group_id).target[name.member_id] = partitions_in(read.topic_partitions)
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


_READERS: Mapping[int, Callable[[bytes, bytes, Piece[ShareChange]], str]] = {
    10: _read_member,
    11: _read_epoch,
    12: _read_target,
    13: _read_target_of_member,
    14: _read_progress,
    15: _read_initialized,
}
"""The type of a record -> what puts it into the change that restores its group; returns the group's id."""
_MAKE_A_GROUP = (10, 11)


# -- writing


def records_of(change: ShareChange) -> Iterator[Pair]:
    """Return the records that store a change, tombstones first."""
    group = change.group
    for member_id, member in change.members.items():
        if member is None:
            yield from _gone(group.group_id, member_id)
    for member_id, member in change.members.items():
        before = group.members.get(member_id)
        if member is not None and (before is None or before.described != member.described):
            yield _of_member(group.group_id, member)
    if change.initialized != group.initialized:
        yield _of_initialized(change)
    if (change.epoch, change.topics_hash) != (group.epoch, group.topics_hash):
        value = ShareGroupMetadataValue(epoch=change.epoch, metadata_hash=change.topics_hash)
        yield record(ShareGroupMetadataKey(group_id=group.group_id), value)
    for member_id, target in change.target.items():
        if target is not None:
            yield record(
                ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id),
                ShareGroupTargetAssignmentMemberValue(topic_partitions=built_partitions(target)),
            )
    if change.target_epoch != group.target_epoch:
        yield record(
            ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=change.target_epoch, assignment_timestamp=change.target_timestamp
            ),
        )
    for member_id, member in change.members.items():
        before = group.members.get(member_id)
        if member is not None and (before is None or before.progress != member.progress):
            yield _of_progress(group.group_id, member)


def tombstones(group: ShareGroup) -> Iterator[Pair]:
    """Return the records that remove a group."""
    for member_id in group.members:
        yield from _gone(group.group_id, member_id)
    yield record(ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield record(ShareGroupStatePartitionMetadataKey(group_id=group.group_id), None)
    yield record(ShareGroupMetadataKey(group_id=group.group_id), None)


def _gone(group_id: str, member_id: str) -> Iterator[Pair]:
    yield record(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
    yield record(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
    yield record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def _of_member(group_id: str, member: AssignedShareMember) -> Pair:
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
    )
    return record(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def _of_progress(group_id: str, member: AssignedShareMember) -> Pair:
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=MemberProgress.STABLE.value,
        assigned_partitions=built_partitions(member.assigned),
    )
    return record(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


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
