"""What a topic is: a small file in the folder of its partition 0, ``topic-<number>.json``.

Rules:
- A topic is there as soon as this file is, which is made last, and gone as soon as that folder is renamed.
- Each change is a file with the next number; the newest one that is whole counts. The one before it is removed when the
  disk holds the new one: so there is no moment at which a power cut leaves none.
"""

import json
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.checkpoints import parse_partition_metadata
from ottla.errors import ConfigurationError, DecodeError

log = logging.getLogger("ottla.brokerlite")

METADATA = "partition.metadata"
_VERSION = 1
_PREFIX, _SUFFIX = "topic-", ".json"


class TopicFile(NamedTuple):
    """A topic as its file has it."""

    number: int
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]


def topic_path(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number}{_SUFFIX}"


def write_topic(disk: Disk, folder: Path, topic: TopicFile) -> Path:
    """Write a file; where it is. The disk need not hold it yet."""
    path = topic_path(folder, topic.number)
    state = {
        "version": _VERSION,
        "id": str(topic.topic_id),
        "partitions": topic.partitions,
        "configs": dict(topic.configs),
    }
    checkpoints.replace(disk, path, json.dumps(state, indent=1).encode(), sync=False)
    return path


def read_topic(disk: Disk, folder: Path) -> TopicFile | None:
    """The newest that is whole; ``None`` if there is none, which is told in the log where there should be one.

    Raises:
        ConfigurationError: a later program has written it.
    """
    for number in reversed(_numbers(disk, folder)):
        path = topic_path(folder, number)
        try:
            state = json.loads(disk.read_file(path))
            if state["version"] != _VERSION:
                raise ConfigurationError(f"{path} has version {state['version']}; this program knows {_VERSION}")
            configs = {str(key): str(value) for key, value in state["configs"].items()}
            return TopicFile(number, uuid.UUID(state["id"]), int(state["partitions"]), configs)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("the file of a topic is damaged: %s", error, extra={"file": str(path)})
    return None


def drop_older(disk: Disk, folder: Path, number: int) -> None:
    """Remove the files before ``number``."""
    for older in _numbers(disk, folder):
        if older < number:
            disk.unlink(topic_path(folder, older))


def has_topic_file(disk: Disk, folder: Path) -> bool:
    """Whether there is one, whole or not."""
    return bool(_numbers(disk, folder))


def read_topic_id(disk: Disk, folder: Path) -> uuid.UUID | None:
    """The topic's id as a partition's folder has it; ``None`` if that is gone or damaged."""
    try:
        return parse_partition_metadata(disk.read_file(folder / METADATA))
    except (FileNotFoundError, DecodeError):
        return None


def _numbers(disk: Disk, folder: Path) -> list[int]:
    """Of all files, in order."""
    found = (name[len(_PREFIX) : -len(_SUFFIX)] for name in disk.names(folder) if name.startswith(_PREFIX))
    return sorted(int(each) for each in found if each.isdigit())
