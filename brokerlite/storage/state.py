"""`broker.json`: what the broker itself must not forget.

Rules:
- It is written in a thread, or at a start, and the disk has it before its name: so it is whole after whatever happens
  to the machine. `broker.json.old` is the one before, for what happens to the disk.
- Producer ids are reserved in large blocks: those below `next_producer_id` may have been given out. So an id costs no
  writing, and the block that was begun is left unused after a kill.

Version 1 had the topics, too; now each topic's folder says what it is (`topic_files.py`).
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
"""Reserved in the file at once."""
_VERSION = 2


class State(NamedTuple):
    """The content of the file."""

    node_id: int
    cluster_id: str
    next_producer_id: int
    """Nobody has had this id, nor any after it."""
    leader_epoch: int


class Found(NamedTuple):
    """What a start finds; ``None`` where nothing tells."""

    node_id: int | None
    cluster_id: str | None
    next_producer_id: int | None
    leader_epoch: int | None
    topics: Mapping[str, TopicFile] | None
    """If the file is of version 1."""
    checked: bool
    """The file has a checksum; then the broker that wrote it has made all the other files, too."""


class StateFile:
    """The file in a data folder; for the loop and threads."""

    def __init__(self, disk: Disk, folder: Path, *, sync: bool) -> None:
        self._disk = disk
        self._path = folder / STATE
        self._old = folder / OLD_STATE
        self._sync = sync
        self._guard = threading.Lock()

    def write(self, state: State) -> None:
        """Replace the file; this waits for the disk."""
        data = checkpoints.build_state({"version": _VERSION, **state._asdict()})
        with self._guard:
            if not self._disk.exists(self._path):
                checkpoints.replace(self._disk, self._old, data, sync=self._sync)
            checkpoints.replace(self._disk, self._path, data, sync=self._sync, old=self._old)

    def read(self) -> Found:
        """What the file says, or the one before it.

        Raises:
            ConfigurationError: a later program has written it.
        """
        if (found := self._read(self._path)) is not None:
            return found
        if (old := self._read(self._old)) is not None:
            log.warning("broker state is read from the previous file", extra={"file": str(self._old)})
            assert old.next_producer_id is not None
            return old._replace(next_producer_id=old.next_producer_id + PRODUCER_IDS)
        return Found(None, None, None, None, None, False)

    def _read(self, path: Path) -> Found | None:
        try:
            data = self._disk.read_file(path)
            state = checkpoints.parse_state(data)
            version = state["version"]
            if version not in (1, _VERSION):
                raise ConfigurationError(f"{path} has version {version}; this program supports {_VERSION}")
            return Found(
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
