"""Stores groups and their offsets as records of `__consumer_offsets` in Kafka's own format, and loads them.

Rules:
- A restart restores the last stored state of a group, not its latest state in memory: a group in a rebalance is
  restored in the previous generation, which its members notice.
- A consumer group of KIP-848 that has just become a classic one is stored before its rebalance, without a leader. So
  the rebalance begins again after a restart: the partitions of members that left have no reader until then. Kafka can
  read such a record, and elects the first member. Kafka itself stores a leader, and these partitions may stay unread.
- A record that cannot be parsed is skipped and logged.

Source: GroupCoordinatorRecordHelpers.java, GroupMetadataManager.java and OffsetMetadataManager.java (replay).
"""

import logging
from collections.abc import Container, Mapping

from ottla.brokerlite.machines.groups.group import Group, JoinedMember, Protocol
from ottla.brokerlite.machines.groups.offsets import Committed, Offsets
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, KeyedRecord, Loaded, Pair, Transactional
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed, version_of
from ottla.codec.stored.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.codec.wire import NO_UUID, Declared, api
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite.groups")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 2**20), "max.message.bytes": str(64 * 2**20)}
"""The topic's configuration. Kafka's segments have 100 MiB; smaller ones are compacted sooner, so a start is faster."""

_OFFSET_VERSION, _EXPIRING_OFFSET_VERSION, _GROUP_VERSION = 4, 1, 3
"""Versions of record values, as Kafka 4.3 writes them. Version 1 of offsets is the only one with an expiry."""


class GroupLog:
    """Writes and loads the log of all groups and their offsets."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._stored: set[str] = set()
        """The groups that have a record."""

    def store_group(self, group: Group, gone: bool) -> None:
        """Write a group's state, or a tombstone if it is ``gone``.

        Raises:
            BrokerError: the disk refused.
        """
        if gone and group.group_id not in self._stored:
            return
        self._log.write([_of_group(group, gone)])
        self.note(group, gone=gone)

    def pairs_of(self, group: Group, *, gone: bool) -> list[Pair]:
        """Return the records that store a group, or that remove it; another writes them, and calls `note`."""
        return [] if gone and group.group_id not in self._stored else [_of_group(group, gone)]

    def note(self, group: Group, *, gone: bool) -> None:
        """Notice that the group has a record, or none any more."""
        (self._stored.discard if gone else self._stored.add)(group.group_id)

    def store_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed | None], transactional: Transactional | None
    ) -> int:
        """Write committed offsets of a group, with a tombstone for ``None``; return the offset of the first record.

        Raises:
            BrokerError: the disk refused.
        """
        return self._log.write([_of_offset(group_id, place, each) for place, each in offsets.items()], transactional)

    def load(
        self, loaded: Loaded, groups: dict[str, Group], offsets: Offsets, others: Container[str] = frozenset()
    ) -> None:
        """Put the stored groups and offsets into ``groups`` and ``offsets``.

        Args:
            others: the ids of groups of other kinds, whose offsets need no classic group.
        """
        for entry in loaded.entries:
            self._restore(entry, groups, offsets, others)
        for producer_id, pending in loaded.pending.items():
            for entry in pending:
                self._restore(entry, groups, offsets, others, producer_id)
        for group in groups.values():
            group.learn_subscriptions()

    def _restore(
        self,
        entry: KeyedRecord,
        groups: dict[str, Group],
        offsets: Offsets,
        others: Container[str],
        producer_id: int | None = None,
    ) -> None:
        if entry.value is None:
            return
        try:
            match version_of(entry.key):
                case 1:  # an offset
                    place, _ = messages.parse(OffsetCommitKey, 0, entry.key, SIZE)
                    _, commit, _ = parse_prefixed(OffsetCommitValue, entry.value)
                    if place.group not in others:
                        groups.setdefault(place.group, Group(place.group))
                    committed = _committed(commit, entry.offset)
                    offsets.restore(place.group, (place.topic, place.partition), committed, producer_id)
                case 2:  # a group
                    name, _ = messages.parse(GroupMetadataKey, 0, entry.key, SIZE)
                    _, described, _ = parse_prefixed(GroupMetadataValue, entry.value)
                    groups[name.group] = _group(name.group, described)
                    self._stored.add(name.group)
                case _:  # groups of other kinds: `consumer_group_log`
                    pass
        except DecodeError as error:
            log.error("damaged record of %s skipped: %s", self._log.name, error)


def _committed(value: OffsetCommitValue, record_offset: int) -> Committed:
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        None if value.topic_id == NO_UUID else value.topic_id,
        record_offset,
    )


def _record(key: Declared, value: Declared | None, version: int) -> Pair:
    number = api(type(key)).key.to_bytes(SIZE, "big")
    return number + messages.build(key, 0), None if value is None else build_prefixed(value, version)


def _of_group(group: Group, gone: bool) -> Pair:
    key = GroupMetadataKey(group=group.group_id)
    if gone:
        return _record(key, None, -1)
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=None if group.rebalance_due else group.leader,
        current_state_timestamp=group.since,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
    return _record(key, value, _GROUP_VERSION)


def _of_offset(group_id: str, place: tuple[str, int], committed: Committed | None) -> Pair:
    key = OffsetCommitKey(group=group_id, topic=place[0], partition=place[1])
    if committed is None:
        return _record(key, None, -1)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id or NO_UUID,
    )
    return _record(key, value, _OFFSET_VERSION if committed.expire_timestamp < 0 else _EXPIRING_OFFSET_VERSION)


def _group(group_id: str, value: GroupMetadataValue) -> Group:
    """Return the group that a record describes: stable, or empty."""
    group = Group(group_id, since=value.current_state_timestamp, generation=value.generation, protocol=value.protocol)
    for each in value.members:
        member = JoinedMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout,
            each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
            (Protocol(value.protocol or "", bytes(each.subscription)),),
            bytes(each.assignment),
        )
        group.add(member, value.protocol_type)
    group.load(value.protocol_type or None, value.leader)
    return group
