"""Reads and writes `broker.json`, the state of the broker itself that survives a restart.

Rules:
- The file is written in a thread, or at a start, and flushed to disk before its rename, so it is intact even after a
  power cut. `broker.json.old` is the previous file, in case the disk damages the new one.
- Producer ids are reserved in large blocks: ids below `next_producer_id` may have been assigned. So assigning an id
  needs no write, and a kill leaves the rest of the current block unused.

Version 1 also had the topics; now each topic has its own file (`topic_files.py`).
"""

import logging
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.topic_files import TopicFile
from ottla.errors import ConfigurationError

log = logging.getLogger("ottla.brokerlite")

STATE = "broker.json"
OLD_STATE = STATE + ".old"
PRODUCER_IDS = 1_000_000
"""Producer ids reserved with one write."""
_VERSION = 2


class BrokerState(NamedTuple):
    """Holds the content of the file."""

    node_id: int
    cluster_id: str
    next_producer_id: int
    """This id and all higher ones were never assigned."""
    leader_epoch: int


class FoundState(NamedTuple):
    """Holds what a start found; ``None`` means unknown."""

    node_id: int | None
    cluster_id: str | None
    next_producer_id: int | None
    leader_epoch: int | None
    topics: Mapping[str, TopicFile] | None
    """Only from a file of version 1."""
    checked: bool
    """The file has a checksum; then the broker that wrote it also wrote all the other files."""


class StateFile:
    """Reads and writes the file of a data folder; the loop and threads may use it."""

    def __init__(self, disk: Disk, folder: Path, *, sync: bool) -> None:
        self._disk = disk
        self._path = folder / STATE
        self._old = folder / OLD_STATE
        self._sync = sync
        self._guard = threading.Lock()

    def write(self, state: BrokerState) -> None:
        """Replace the file; this waits for the disk if the folder is synced."""
        data = checkpoints.build_state({"version": _VERSION, **state._asdict()})
        with self._guard:
            if not self._disk.exists(self._path):
                checkpoints.replace(self._disk, self._old, data, sync=self._sync)
            checkpoints.replace(self._disk, self._path, data, sync=self._sync, old=self._old)

    def read(self) -> FoundState:
        """Read the file or, if it is missing or damaged, the previous one.

        Raises:
            ConfigurationError: a later version of the program wrote it.
        """
        if (found := self._read(self._path)) is not None:
            return found
        if (old := self._read(self._old)) is not None:
            log.warning("broker state is read from the previous file", extra={"file": str(self._old)})
            assert old.next_producer_id is not None
            return old._replace(next_producer_id=old.next_producer_id + PRODUCER_IDS)
        return FoundState(None, None, None, None, None, False)

    def _read(self, path: Path) -> FoundState | None:
        try:
            data = self._disk.read_file(path)
            state = checkpoints.parse_state(data)
            version = state["version"]
            if version not in (1, _VERSION):
                raise ConfigurationError(f"{path} has version {version}; this program supports {_VERSION}")
            return FoundState(
                None if version == 1 else int(state["node_id"]),
                None if version == 1 else str(state["cluster_id"]),
                int(state["next_producer_id"]),
                int(state.get("leader_epoch", 0)),
                _topics(state["topics"]) if version == 1 else None,
                checkpoints.CHECKSUM.encode() in data,
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s is damaged: %s: %s", path.name, type(error).__name__, error, extra={"file": str(path)})
            return None


def _topics(entries: Mapping[str, Any]) -> dict[str, TopicFile]:
    return {
        name: TopicFile(-1, uuid.UUID(entry["id"]), int(entry["partitions"]), dict(entry["configs"]))
        for name, entry in entries.items()
    }
