"""Stores consumer groups as records of `__consumer_offsets` in Kafka's own format, and loads them.

Rules:
- A group is stored in pieces, and each piece when it changes.
- A resolved pattern is stored when its topics change, not when it is resolved again with the same result.
- `ottla.brokerlite.machines.consumer_groups.epoch_group_log` has more rules, and what both kinds of groups share.

Source: GroupCoordinatorRecordHelpers.java, GroupMetadataManager.java (replay).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.epoch_group_log import (
    Piece,
    Reader,
    RecordTypes,
    common_readers,
    common_records,
    gone,
    record,
    restored,
)
from ottla.brokerlite.machines.consumer_groups.member import (
    AssignedMember,
    ClassicPart,
    MemberProgress,
    Owned,
)
from ottla.brokerlite.machines.consumer_groups.subscriptions import ANOTHER_START, ResolvedPattern
from ottla.brokerlite.machines.groups.group import Group, Protocol
from ottla.brokerlite.machines.groups.group_log import GroupLog
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, Loaded, Pair
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, parse_prefixed
from ottla.codec.stored.consumer_groups import (
    MEMBER_STATES,
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from uuid import UUID


class ConsumerGroupLog:
    """Writes the records of consumer groups, and of classic groups that become consumer groups or come of them.

    Args:
        log: the log of all groups.
        classic: knows which classic groups have a record there.
    """

    def __init__(self, log: KeyedLog, classic: GroupLog) -> None:
        self._log = log
        self._classic = classic

    def write(self, pairs: Iterable[Pair], *, ends: Group | None = None, begins: Group | None = None) -> None:
        """Write records in one batch, if there are any.

        Args:
            ends: a classic group that ends with them.
            begins: a classic group that begins with them.

        Raises:
            BrokerError: the disk refused.
        """
        batch = list(pairs)
        if ends is not None:
            batch = [*self._classic.pairs_of(ends, gone=True), *batch]
        if begins is not None:
            batch += self._classic.pairs_of(begins, gone=False)
        if batch:
            self._log.write(batch)
        for group in filter(None, (ends, begins)):
            self._classic.note(group, gone=group is ends)


def load(loaded: Loaded, groups: dict[str, ConsumerGroup]) -> None:
    """Put the stored groups into ``groups``."""
    found = restored(loaded, "consumer", lambda group_id: Change(ConsumerGroup(group_id)), _READERS, _MAKE_A_GROUP)
    for group_id, change in found.items():
        change.group.apply(change)
        groups[group_id] = change.group


def _read_member(key: bytes, value: bytes, piece: Piece[Change]) -> str:
    name, _ = messages.parse(ConsumerGroupMemberMetadataKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ConsumerGroupMemberMetadataValue, value)
    classic = read.classic_member_metadata
    # Kafka writes `null`; the default of the message is an empty struct, which means the same here.
    is_classic = classic is not None and bool(classic.supported_protocols)
    piece(name.group_id).describe(
        AssignedMember(
            member_id=name.member_id,
            instance_id=read.instance_id,
            rack_id=read.rack_id,
            client_id=read.client_id,
            client_host=read.client_host,
            rebalance_timeout_ms=read.rebalance_timeout_ms,
            topics=frozenset(read.subscribed_topic_names),
            pattern=read.subscribed_topic_regex or "",
            assignor=read.server_assignor,
            classic=ClassicPart(
                classic.session_timeout_ms,
                tuple(Protocol(each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            )
            if classic is not None and is_classic
            else None,
        )
    )
    return name.group_id


def _read_progress(key: bytes, value: bytes, piece: Piece[Change]) -> str:
    name, _ = messages.parse(ConsumerGroupCurrentMemberAssignmentKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ConsumerGroupCurrentMemberAssignmentValue, value)
    piece(name.group_id).advance(
        name.member_id,
        epoch=read.member_epoch,
        previous_epoch=read.previous_member_epoch,
        state=MemberProgress(read.state) if read.state in MEMBER_STATES else MemberProgress.UNKNOWN,
        assigned=_read_owned(read.assigned_partitions),
        revoking=_read_owned(read.partitions_pending_revocation),
    )
    return name.group_id


def _read_owned(topics: Iterable[AssignedTopicPartitions]) -> dict["UUID", dict[int, int]]:
    """Return partitions with their epochs; brokers before 4.3 stored none, so every commit is as new."""
    return {
        each.topic_id: dict(zip(each.partitions, each.assignment_epochs or [0] * len(each.partitions), strict=False))
        for each in topics
    }


def _read_pattern(key: bytes, value: bytes, piece: Piece[Change]) -> str:
    name, _ = messages.parse(ConsumerGroupRegularExpressionKey, 0, key, SIZE)
    _, read, _ = parse_prefixed(ConsumerGroupRegularExpressionValue, value)
    # The stored version may by chance be one of this start: then topics created meanwhile would seem to be resolved.
    resolved = ResolvedPattern(frozenset(read.topics), ANOTHER_START, read.timestamp)
    piece(name.group_id).patterns[name.regular_expression] = resolved
    return name.group_id


# -- writing


def records_of(change: Change) -> Iterator[Pair]:
    """Return the records that store a change."""
    return common_records(change, _TYPES, _of_patterns(change))


def _of_patterns(change: Change) -> Iterator[Pair]:
    for pattern, resolved in change.patterns.items():
        known = change.group.patterns.get(pattern)
        if resolved is None or known is None or known.topics != resolved.topics:
            yield _of_pattern(change.group.group_id, pattern, resolved)


def tombstones(group: ConsumerGroup) -> Iterator[Pair]:
    """Return the records that remove a group."""
    for member_id in group.members:
        yield from gone(group.group_id, member_id, _TYPES)
    for pattern in group.patterns:
        yield _of_pattern(group.group_id, pattern, None)
    yield record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield record(ConsumerGroupMetadataKey(group_id=group.group_id), None)


def _of_member(member: AssignedMember) -> ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=each.name, metadata=each.metadata) for each in classic.protocols
            ),
        ),
    )


def _of_progress(member: AssignedMember) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.revoking),
    )


def _owned(owned: Owned) -> tuple[AssignedTopicPartitions, ...]:
    return tuple(
        AssignedTopicPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(partitions)),
            assignment_epochs=tuple(epoch for _, epoch in sorted(partitions.items())),
        )
        for topic_id, partitions in owned.items()
    )


def _of_pattern(group_id: str, pattern: str, resolved: ResolvedPattern | None) -> Pair:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if resolved is None:
        return record(key, None)
    value = ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)), version=resolved.version, timestamp=resolved.timestamp
    )
    return record(key, value)


_TYPES = RecordTypes(
    epoch=(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    member=(ConsumerGroupMemberMetadataKey, _of_member),
    target=(ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    target_of_member=(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    progress=(ConsumerGroupCurrentMemberAssignmentKey, _of_progress),
)
_READERS: Mapping[int, Reader[Change]] = {
    **common_readers(_TYPES),
    5: _read_member,
    8: _read_progress,
    16: _read_pattern,
}
"""The type of a record -> what reads it."""
_MAKE_A_GROUP = (3, 5)
"""The types of records that make a group: its epoch, and its members."""
