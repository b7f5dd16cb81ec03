"""Reads stored groups with epochs, piece by piece, and writes records: the common part of both kinds of groups.

Rules:
- The records of one request are one batch: after a crash all of them are there, or none.
- A group without a record of its epoch or of a member is none, whatever other records it has.
- A record that cannot be parsed is skipped and logged. The group goes on in the highest epoch of its other records.

Source: GroupCoordinatorRecordHelpers.java, GroupMetadataManager.java (replay).
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.brokerlite.machines.consumer_groups.epoch_group import C, GroupChange
from ottla.brokerlite.machines.consumer_groups.member import Partitions, grouped
from ottla.brokerlite.machines.topics.keyed_log import Loaded, Pair
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed, version_of
from ottla.codec.stored.consumer_groups import TopicPartitions
from ottla.codec.wire import Declared, api
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite.groups")

KeyAndValue = tuple[type[Any], type[Any]]


class RecordTypes(NamedTuple):
    """The messages in the records of one kind of group.

    Attributes:
        member: the key, and what returns the value about everything that a member has told.
        progress: the key, and what returns the value about everything that the coordinator has decided for a member.
    """

    epoch: KeyAndValue
    member: tuple[type[Any], Callable[[Any], Declared]]
    target: KeyAndValue
    target_of_member: KeyAndValue
    progress: tuple[type[Any], Callable[[Any], Declared]]


T = TypeVar("T")
Piece = Callable[[str], T]
"""Returns the change that restores a group, by the group's id."""
Reader = Callable[[bytes, bytes, Piece[C]], str]
"""Puts a record into the change that restores its group; returns the group's id."""


# -- loading


def restored(
    loaded: Loaded,
    kind: str,
    begin: Callable[[str], C],
    readers: Mapping[int, Reader[C]],
    makers: Container[int],
) -> dict[str, C]:
    """Return the change that restores each stored group, by the group's id.

    Args:
        kind: the kind of the groups, for the log.
        begin: returns an empty change of a new group.
        readers: the type of a record -> what reads it.
        makers: the types of records that make a group: its epoch, and its members.
    """
    pieces: dict[str, C] = {}

    def piece(group_id: str) -> C:
        if group_id not in pieces:
            pieces[group_id] = begin(group_id)
        return pieces[group_id]

    stored: set[str] = set()
    for entry in sorted(loaded.entries, key=lambda entry: entry.offset):
        if entry.value is None:
            continue
        try:
            if (read := readers.get(version_of(entry.key))) is not None:
                group_id = read(entry.key, entry.value, piece)
                if version_of(entry.key) in makers:
                    stored.add(group_id)
        except DecodeError as error:
            log.error("damaged record of the %s groups skipped: %s", kind, error)
    for group_id, change in pieces.items():
        if group_id not in stored:
            log.error("records of a %s group without epoch and members skipped", kind, extra={"group": group_id})
            continue
        for member_id in list(change.target):
            if member_id not in change.members:
                del change.target[member_id]
        # The record of the epoch may be damaged. In an older epoch than its target, the group would get no new target.
        epochs = [member.epoch for member in change.members.values() if member is not None]
        change.restore_epoch(max(change.epoch, change.target_epoch, *epochs), change.topics_hash)
    return {group_id: change for group_id, change in pieces.items() if group_id in stored}


def common_readers(types: RecordTypes) -> dict[int, Reader[Any]]:
    """Return what reads the records of epochs and of target assignments."""

    def read_epoch(key: bytes, value: bytes, piece: Piece[Any]) -> str:
        name, read = _parsed(types.epoch, key, value)
        piece(name.group_id).restore_epoch(read.epoch, read.metadata_hash)
        return str(name.group_id)

    def read_target(key: bytes, value: bytes, piece: Piece[Any]) -> str:
        name, read = _parsed(types.target, key, value)
        piece(name.group_id).restore_target_epoch(read.assignment_epoch, read.assignment_timestamp)
        return str(name.group_id)

    def read_target_of_member(key: bytes, value: bytes, piece: Piece[Any]) -> str:
        name, read = _parsed(types.target_of_member, key, value)
        piece(name.group_id).target[name.member_id] = partitions_in(read.topic_partitions)
        return str(name.group_id)

    return {
        api(types.epoch[0]).key: read_epoch,
        api(types.target[0]).key: read_target,
        api(types.target_of_member[0]).key: read_target_of_member,
    }


def _parsed(types: KeyAndValue, key: bytes, value: bytes) -> tuple[Any, Any]:
    name, _ = messages.parse(types[0], 0, key, SIZE)
    _, read, _ = parse_prefixed(types[1], value)
    return name, read


def partitions_in(topics: Iterable[TopicPartitions]) -> Partitions:
    """Return the partitions in a record."""
    return grouped((each.topic_id, each.partitions) for each in topics)


# -- writing


def common_records(change: GroupChange[Any, Any], types: RecordTypes, more: Iterable[Pair]) -> Iterator[Pair]:
    """Return the records that store a change, in Kafka's order: tombstones first.

    Args:
        more: records that only this kind of group has.
    """
    group = change.group
    for member_id, member in change.members.items():
        if member is None:
            yield from gone(group.group_id, member_id, types)
    for member_id, member in change.members.items():
        before = group.members.get(member_id)
        if member is not None and (before is None or before.described != member.described):
            key, value = types.member
            yield record(key(group_id=group.group_id, member_id=member_id), value(member))
    yield from more
    if (change.epoch, change.topics_hash) != (group.epoch, group.topics_hash):
        key, value = types.epoch
        stored = value(epoch=change.epoch, metadata_hash=change.topics_hash)
        yield record(key(group_id=group.group_id), stored)
    for member_id, target in change.target.items():
        if target is not None:
            key, value = types.target_of_member
            stored = value(topic_partitions=built_partitions(target))
            yield record(key(group_id=group.group_id, member_id=member_id), stored)
    if change.target_epoch != group.target_epoch:
        key, value = types.target
        stored = value(assignment_epoch=change.target_epoch, assignment_timestamp=change.target_timestamp)
        yield record(key(group_id=group.group_id), stored)
    for member_id, member in change.members.items():
        before = group.members.get(member_id)
        if member is not None and (before is None or before.progress != member.progress):
            key, value = types.progress
            yield record(key(group_id=group.group_id, member_id=member_id), value(member))


def gone(group_id: str, member_id: str, types: RecordTypes) -> Iterator[Pair]:
    """Return the records that remove a member."""
    for key in (types.progress[0], types.target_of_member[0], types.member[0]):
        yield record(key(group_id=group_id, member_id=member_id), None)


def record(key: Declared, value: Declared | None) -> Pair:
    """Return a record with the types of its key and its value; ``None``: a tombstone."""
    number = api(type(key)).key.to_bytes(SIZE, "big")
    return number + messages.build(key, 0), None if value is None else build_prefixed(value, 0)


def built_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """Return partitions for a record."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(indexes)))
        for topic_id, indexes in partitions.items()
    )
