"""Finds the topics in a data folder.

Rules:
- The topic file in the folder of partition 0 defines a topic (`topic_files.py`). Without an intact file its
  configuration is unknown, and the defaults could delete its records. So the topic is not served, its name stays taken,
  and its folders are left untouched until the user repairs the file. The broker knows the configuration of its internal
  topics, and serves them anyway.
- Topics whose creation or deletion a kill or a power cut interrupted are removed. They have no records, and either no
  intact topic file in partition 0, or a folder that was already renamed for deletion.
- Folders with records that belong to no topic get the suffix ``-stray``, as in Kafka.

Source: LogManager.java (stray folders).
"""

import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.machines.topics.topics import HIDDEN, INTERNAL, UnservedTopic
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.segment import LOG
from ottla.brokerlite.storage.topic_files import (
    METADATA,
    TopicFile,
    Unusable,
    has_topic_file,
    is_same,
    read_topic,
    read_topic_id,
    topic_path,
)
from ottla.codec.wire import NO_UUID

log = logging.getLogger("ottla.brokerlite")

DELETED = "-delete"
STRAY = "-stray"
_LONGEST_NAME = 200
"""The most characters of the topic in the name of a renamed folder, which must stay below 255 in total."""
_NUMBER = re.compile("0|[1-9][0-9]{0,8}")

Ids = dict[int, uuid.UUID | None]
"""Partition -> the topic's id in its folder."""


def deleted_name(topic: str, partition: int, topic_id: uuid.UUID) -> str:
    """Return the name that a partition's folder gets before it is removed."""
    return f"{topic[:_LONGEST_NAME]}-{partition}.{topic_id.hex}{DELETED}"


def set_aside(disk: Disk, folder: Path) -> None:
    """Rename a folder that belongs to no known topic to a ``-stray`` name, which the broker ignores."""
    stray = folder.with_name(f"{folder.name[:_LONGEST_NAME]}.{uuid.uuid4().hex}{STRAY}")
    disk.rename(folder, stray)
    log.warning("folder belongs to no known topic, renamed", extra={"folder": str(stray)})


class FoundTopics(NamedTuple):
    """The topics of a folder."""

    known: dict[str, TopicFile]
    unserved: dict[str, UnservedTopic]
    """Topics that exist but cannot be served."""


def find_topics(disk: Disk, data: Path, listed: Mapping[str, TopicFile] | None, *, clean: bool) -> FoundTopics:
    """Return the topics by name; set stray folders aside, and remove half-created and half-deleted topics.

    Args:
        listed: the topics in a `broker.json` of version 1; then there are no others.
        clean: the broker was shut down cleanly, so no creation was interrupted.
    """
    names = disk.names(data)
    _finish_deleting(disk, data, names)
    found = FoundTopics(dict(listed or {}), {})
    for name, ids in _partitions(disk, data).items():
        try:
            topic = read_topic(disk, data / f"{name}-0") if 0 in ids else None
            if topic is None:
                topic = found.known.get(name) or (_rebuilt(disk, data, name, ids, clean) if listed is None else None)
        except Unusable as unusable:
            if unusable.incomplete and not clean and not _any_records(disk, data, name, ids):
                log.warning("topic %s was being created when the power failed: removing it, it is empty", name)
                topic = None
            elif unusable.later or name not in INTERNAL | HIDDEN:
                log.error("topic %s is not served, its name and its folders are kept: %s", name, unusable)
                known = next((each for each in ids.values() if each is not None), NO_UUID)
                found.unserved[name] = UnservedTopic(known, 1 + max(ids), str(unusable))
                continue
            else:
                log.warning("topic %s has lost its file, recreating it: %s", name, unusable)
                topic = TopicFile(-1, ids.get(0) or uuid.uuid4(), 1, {})
        for partition, topic_id in ids.items():
            if topic is None or (topic_id is not None and not is_same(topic_id, topic.topic_id)):
                _put_away(disk, data / f"{name}-{partition}")
            elif topic_id is not None:
                topic = topic._replace(partitions=max(topic.partitions, partition + 1))
        if topic is not None:
            found.known[name] = topic
    return found


def _finish_deleting(disk: Disk, data: Path, names: Iterable[str]) -> None:
    deleted = {name.removesuffix(DELETED).rpartition(".")[2] for name in names if name.endswith(DELETED)}
    if not deleted:
        return
    for name, ids in _partitions(disk, data).items():
        for partition, topic_id in ids.items():
            if topic_id is not None and topic_id.hex in deleted:
                disk.rename(data / f"{name}-{partition}", data / deleted_name(name, partition, topic_id))
    disk.sync_folder(data)  # else one of them could come back as a topic after a power cut
    for name in disk.names(data):
        if name.endswith(DELETED):
            disk.remove_tree(data / name)


def _partitions(disk: Disk, data: Path) -> dict[str, Ids]:
    """Return the partitions' folders: topic -> partition -> topic id in the folder."""
    found: dict[str, Ids] = {}
    for name in disk.names(data):
        topic, _, partition = name.rpartition("-")
        folder = data / name
        if not topic or not _NUMBER.fullmatch(partition) or not disk.is_folder(folder):
            continue
        inside = disk.names(folder)
        if not inside:
            disk.remove_tree(folder)
        elif METADATA in inside or any(each.endswith(LOG) for each in inside) or has_topic_file(disk, folder):
            found.setdefault(topic, {})[int(partition)] = read_topic_id(disk, folder)
    return found


def _rebuilt(disk: Disk, data: Path, name: str, ids: Ids, clean: bool) -> TopicFile | None:
    """Return ``None`` for a topic without a topic file that has nothing worth keeping.

    Raises:
        Unusable: the topic has records, or its creation had been completed.
    """
    for partition, topic_id in sorted(ids.items()):
        begun = 0 in ids and not clean and not _has_records(disk, data / f"{name}-{partition}")
        if topic_id is not None and not begun:
            raise Unusable(topic_path(data / f"{name}-0", 0), "the file is gone")
    if any(topic_id is not None for topic_id in ids.values()):
        log.warning("topic %s was being created when the broker was killed: removing it, it is empty", name)
    return None


def _any_records(disk: Disk, data: Path, name: str, partitions: Iterable[int]) -> bool:
    return any(_has_records(disk, data / f"{name}-{each}") for each in partitions)


def _put_away(disk: Disk, folder: Path) -> None:
    if _has_records(disk, folder):
        set_aside(disk, folder)
    else:
        disk.remove_tree(folder)


def _has_records(disk: Disk, folder: Path) -> bool:
    return any(name.endswith(LOG) and disk.size(folder / name) for name in disk.names(folder))
