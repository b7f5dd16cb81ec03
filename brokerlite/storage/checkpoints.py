"""Reads and writes the small files of the data folder, each as a whole.

Rules:
- A file that decides which records are deleted has a checksum: one flipped bit must not delete any. A file without a
  checksum is trusted: an earlier version of the broker or a person wrote it.
- Files of Kafka's keep its format (`ottla.codec.stored.checkpoints`). The checksum of an offset checkpoint is a line
  about a topic that cannot exist, `#crc32c`; Kafka ignores it.
"""

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.checksums import crc32c
from ottla.codec.stored.checkpoints import PartitionOffset, build_offsets, parse_offsets
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

TEMPORARY = ".tmp"
CHECKPOINT = "-offset-checkpoint"
"""The end of the names of offset checkpoints."""
CHECKSUM = "crc32c"
_CHECK = "#" + CHECKSUM


def replace(disk: Disk, path: Path, data: bytes, *, sync: bool, old: Path | None = None) -> None:
    """Replace a file's content so that after a kill it has either the old or the new content.

    Args:
        sync: also after a power cut: flush the content to disk before the rename, and the name after it. This blocks.
        old: the path to which the file with the old content is renamed.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    disk.write_file(temporary, data)
    if sync:
        disk.sync(temporary)
    if old is not None and disk.exists(path):
        disk.rename(path, old)
    disk.rename(temporary, path)
    if sync:
        disk.sync_folder(path.parent)


def build_state(state: Mapping[str, Any]) -> bytes:
    """Build the content of a file of our own: JSON with a checksum of all other entries."""
    return json.dumps({**state, CHECKSUM: _checksum(state)}, indent=1).encode()


def parse_state(data: bytes) -> dict[str, Any]:
    """Parse what `build_state` built.

    Raises:
        ValueError: the data is damaged.
    """
    state = json.loads(data)
    if not isinstance(state, dict):
        raise ValueError("it is not a JSON object")
    if CHECKSUM in state and state.pop(CHECKSUM) != _checksum(state):
        raise ValueError(f"its checksum does not match (after editing by hand, remove {CHECKSUM!r})")
    return state


def _checksum(state: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(state).encode())


class OffsetCheckpoint:
    """Reads and writes a file with one offset per partition; the loop and threads may use it."""

    def __init__(self, disk: Disk, path: Path, *, sync: bool) -> None:
        self._disk = disk
        self._path = path
        self._sync = sync
        self._guard = threading.Lock()
        self._known: dict[TopicPartition, int] | None = None
        self._kept: dict[TopicPartition, int] = {}

    def read(self, *, expected: bool = False, keep: Collection[str] = ()) -> dict[TopicPartition, int] | None:
        """Return the offsets; ``None`` if the file is missing or damaged.

        Args:
            expected: log a warning if it is missing.
            keep: topics whose offsets every `write` keeps.
        """
        try:
            self._known = _checked_offsets(self._disk.read_file(self._path))
        except FileNotFoundError:
            if expected:
                log.warning("%s is missing, rewriting it", self._path.name, extra={"file": str(self._path)})
            return None
        except DecodeError as error:
            log.warning("%s is damaged, rewriting it: %s", self._path.name, error, extra={"file": str(self._path)})
            return None
        self._kept = {place: each for place, each in self._known.items() if place[0] in keep}
        return dict(self._known)

    def write(self, current: Callable[[], dict[TopicPartition, int]]) -> None:
        """Write the offsets that ``current`` returns, unless the file has them already; this waits for the disk."""
        with self._guard:
            offsets = self._kept | current()  # under the lock: older offsets must not replace those of another thread
            if offsets != self._known:
                self._known = None
                lines = [PartitionOffset(*place, offset) for place, offset in offsets.items()]
                check = PartitionOffset(_CHECK, 0, crc32c(build_offsets(lines)))
                replace(self._disk, self._path, build_offsets([*lines, check]), sync=self._sync)
                self._known = offsets


def _checked_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Parse the offsets in a checkpoint file.

    Raises:
        DecodeError: the file is damaged.
    """
    if not data:
        raise DecodeError("it is empty")
    *lines, last = [*parse_offsets(data)] or [PartitionOffset("", 0, 0)]
    if last.topic == _CHECK and last.offset != crc32c(build_offsets(lines)):
        raise DecodeError("its checksum does not match")
    if last.topic not in ("", _CHECK):
        lines.append(last)
    return {(topic, partition): offset for topic, partition, offset in lines}
