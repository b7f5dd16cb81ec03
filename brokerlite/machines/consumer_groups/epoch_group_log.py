"""Reads stored groups with epochs, piece by piece, and writes records: the common part of both kinds of groups.

Rules:
- The records of one request are one batch: after a crash all of them are there, or none.
- A group without a record of its epoch or of a member is none, whatever other records it has.
- A record that cannot be parsed is skipped and logged. The group goes on in the highest epoch of its other records.

Source: GroupCoordinatorRecordHelpers.java, GroupMetadataManager.java (replay).
"""

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeVar

from ottla.brokerlite.machines.consumer_groups.epoch_group import C
from ottla.brokerlite.machines.consumer_groups.member import Partitions, grouped
from ottla.brokerlite.machines.topics.keyed_log import Loaded, Pair
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, version_of
from ottla.codec.stored.consumer_groups import TopicPartitions
from ottla.codec.wire import Declared, api
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite.groups")

T = TypeVar("T")
Piece = Callable[[str], T]
"""Returns the change that restores a group, by the group's id."""


def restored(
    loaded: Loaded,
    kind: str,
    begin: Callable[[str], C],
    readers: Mapping[int, Callable[[bytes, bytes, Piece[C]], str]],
    makers: Container[int],
) -> dict[str, C]:
    """Return the change that restores each stored group, by the group's id.

    Args:
        kind: the kind of the groups, for the log.
        begin: returns an empty change of a new group.
        readers: the type of a record -> what puts it into the change of its group; returns the group's id.
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


def record(key: Declared, value: Declared | None) -> Pair:
    """Return a record with the types of its key and its value; ``None``: a tombstone."""
    number = api(type(key)).key.to_bytes(SIZE, "big")
    return number + messages.build(key, 0), None if value is None else build_prefixed(value, 0)


def partitions_in(topics: Iterable[TopicPartitions]) -> Partitions:
    """Return the partitions in a record."""
    return grouped((each.topic_id, each.partitions) for each in topics)


def built_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """Return partitions for a record."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(indexes)))
        for topic_id, indexes in partitions.items()
    )
