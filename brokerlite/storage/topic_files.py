"""Reads and writes the file that defines a topic, ``topic-<number>.json`` in the folder of its partition 0.

Rules:
- A topic exists as soon as this file exists, which is written last, and until that folder is renamed.
- Each change writes a file with the next number; the newest intact file counts. The previous file is removed once the
  new one is on disk, so a power cut leaves at least one of them.
- A topic with a damaged or unknown file is not served (`Unusable`): the default of a configuration could delete its
  records.
- The only file of a topic may be incomplete because the power failed while the topic was being created.
"""

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.machines.topics.configs import check_configs
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.checkpoints import parse_partition_metadata
from ottla.errors import DecodeError, InvalidConfig

log = logging.getLogger("ottla.brokerlite")

METADATA = "partition.metadata"
_VERSION = 1
_PREFIX, _SUFFIX = "topic-", ".json"


_KEYS = {"version", "id", "partitions", "configs"}
_GAPS = "gaps"
_BITS = 6


class TopicFile(NamedTuple):
    """Holds the content of a topic file."""

    number: int
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    gaps: bool = False
    """Apache Kafka wrote the segments, and its compaction leaves gaps between them. Only people write this entry."""


class Unusable(Exception):
    """The topic cannot be served: its file is missing, damaged, or of a later version.

    Attributes:
        path: of the file.
        later: a later version of the program wrote the file.
        incomplete: it is the topic's only file, and parts of it never reached the disk.
    """

    def __init__(self, path: Path, why: str, *, later: bool = False, incomplete: bool = False) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.later, self.incomplete = path, later, incomplete


def topic_path(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number}{_SUFFIX}"


def write_topic(disk: Disk, folder: Path, topic: TopicFile) -> Path:
    """Write a topic file, without flushing it to disk, and return its path."""
    path = topic_path(folder, topic.number)
    state = {
        "version": _VERSION,
        "id": str(topic.topic_id),
        "partitions": topic.partitions,
        "configs": dict(topic.configs),
    }
    if topic.gaps:
        state[_GAPS] = True
    checkpoints.replace(disk, path, checkpoints.build_state(state), sync=False)
    return path


def read_topic(disk: Disk, folder: Path) -> TopicFile | None:
    """Read the newest intact topic file; ``None`` if there is no file at all.

    Raises:
        Unusable: no file is intact, or a later version of the program wrote it.
    """
    damaged: Unusable | None = None
    numbers = topic_numbers(disk, folder)
    for number in reversed(numbers):
        path = topic_path(folder, number)
        data = disk.read_file(path)
        try:
            topic = _parse(path, number, data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = str(error) if isinstance(error, ValueError) else f"it is not a topic file ({error!r})"
            incomplete = len(numbers) == 1 and _is_incomplete(data)
            damaged = damaged or Unusable(path, f"the file is damaged: {what}", incomplete=incomplete)
            continue
        if damaged is not None:
            log.warning("topic file is damaged, using the previous one", extra={"file": str(damaged.path)})
        return topic
    if damaged is not None:
        raise damaged
    return None


def _parse(path: Path, number: int, data: bytes) -> TopicFile:
    state = checkpoints.parse_state(data)
    if int(state["version"]) > _VERSION:
        raise Unusable(path, f"it has version {state['version']}; this program supports {_VERSION}", later=True)
    if (unknown := set(state) ^ _KEYS) - {_GAPS}:
        raise ValueError(f"unexpected or missing: {', '.join(sorted(unknown))}")
    configs = {str(key): str(value) for key, value in state["configs"].items()}
    partitions = int(state["partitions"])
    if partitions < 1:
        raise ValueError(f"it has {partitions} partitions")
    try:
        check_configs(configs)
    except InvalidConfig as error:
        why = f"{error.detail}; correct it, or run the program that wrote it"
        raise Unusable(path, why, later=True) from error
    return TopicFile(number, uuid.UUID(state["id"]), partitions, configs, bool(state.get(_GAPS, False)))


def _is_incomplete(data: bytes) -> bool:
    """Whether the disk lacks parts of a file: its end, or sectors, which read as zeros."""
    return not data.endswith(b"}") or b"\0" in data


def drop_older(disk: Disk, folder: Path, number: int) -> None:
    """Remove topic files with numbers below ``number``."""
    for older in topic_numbers(disk, folder):
        if older < number:
            disk.unlink(topic_path(folder, older))


def has_topic_file(disk: Disk, folder: Path) -> bool:
    """Whether the folder has a topic file, intact or not."""
    return bool(topic_numbers(disk, folder))


def read_topic_id(disk: Disk, folder: Path) -> uuid.UUID | None:
    """Return the topic id stored in a partition's folder; ``None`` if it is missing or damaged."""
    try:
        return parse_partition_metadata(disk.read_file(folder / METADATA))
    except (FileNotFoundError, DecodeError):
        return None


def is_same(topic_id: uuid.UUID, other: uuid.UUID) -> bool:
    """Whether two ids mean the same topic: they may differ by one damaged letter of `METADATA`, which is six bits."""
    return (topic_id.int ^ other.int).bit_count() <= _BITS


def topic_numbers(disk: Disk, folder: Path) -> list[int]:
    """Return the numbers of all topic files, in order."""
    found = (name[len(_PREFIX) : -len(_SUFFIX)] for name in disk.names(folder) if name.startswith(_PREFIX))
    return sorted(int(each) for each in found if each.isdigit())
