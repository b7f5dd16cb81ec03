"""The small files of the data folder, written whole.

Rules:
- A file that decides which records are deleted has a checksum: one flipped bit must not delete any. A file without a
  checksum counts as it is: an earlier version of the broker wrote it, or a person did.
- Files of Kafka's keep its format (`ottla.codec.stored.checkpoints`). The checksum of an offset checkpoint is a line
  about a topic that cannot exist, `#crc32c`; Kafka ignores it.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crc32c import crc32c

from ottla.brokerlite.machines.topics import Place
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.checkpoints import PartitionOffset, build_offsets, parse_offsets
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

TEMPORARY = ".tmp"
CHECKPOINT = "-offset-checkpoint"
"""The end of the names of offset checkpoints."""
CHECKSUM = "crc32c"
_CHECK = "#" + CHECKSUM


def replace(disk: Disk, path: Path, data: bytes, *, sync: bool, old: Path | None = None) -> None:
    """Give a file other content such that it has either the old or the new, whatever happens.

    Args:
        sync: also if the power goes: the disk has the content before the name, and the name at the end. This waits.
        old: the name that the file with the old content is given.
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


def replace_checked(disk: Disk, path: Path, data: bytes, check: Path) -> None:
    """As `replace`, where the format has no room for a checksum: ``check`` has it.

    A kill in between leaves a file without a checksum.
    """
    disk.unlink(check)
    replace(disk, path, data, sync=False)
    disk.write_file(check, b"%08x" % crc32c(data))


def read_checked(disk: Disk, path: Path, check: Path) -> bytes:
    """The opposite.

    Raises:
        FileNotFoundError: it is gone.
        DecodeError: it is damaged.
    """
    data = disk.read_file(path)
    if disk.exists(check) and disk.read_file(check) != b"%08x" % crc32c(data):
        raise DecodeError("its checksum does not match")
    return data


def build_state(state: Mapping[str, Any]) -> bytes:
    """A small file of ours: JSON with a checksum of the rest."""
    return json.dumps({**state, CHECKSUM: _checksum(state)}, indent=1).encode()


def parse_state(data: bytes) -> dict[str, Any]:
    """The opposite.

    Raises:
        ValueError: it is damaged.
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
    """A file with an offset for each of some partitions; for the loop and threads."""

    def __init__(self, disk: Disk, path: Path, *, sync: bool) -> None:
        self._disk = disk
        self._path = path
        self._sync = sync
        self._guard = threading.Lock()
        self._known: dict[Place, int] | None = None

    def read(self, *, expected: bool = False) -> dict[Place, int] | None:
        """The offsets; ``None`` if the file is gone or damaged.

        Args:
            expected: tell if it is gone.
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
        return dict(self._known)

    def write(self, current: Callable[[], dict[Place, int]]) -> None:
        """Have the file say what ``current`` does; this waits for the disk, unless it says so already."""
        with self._guard:
            offsets = current()  # asked here, or what another thread has written since would be taken back
            if offsets != self._known:
                self._known = None
                lines = [PartitionOffset(*place, offset) for place, offset in offsets.items()]
                check = PartitionOffset(_CHECK, 0, crc32c(build_offsets(lines)))
                replace(self._disk, self._path, build_offsets([*lines, check]), sync=self._sync)
                self._known = offsets


def _checked_offsets(data: bytes) -> dict[Place, int]:
    """The offsets in a checkpoint.

    Raises:
        DecodeError: it is damaged.
    """
    if not data:
        raise DecodeError("it is empty")
    *lines, last = [*parse_offsets(data)] or [PartitionOffset("", 0, 0)]
    if last.topic == _CHECK and last.offset != crc32c(build_offsets(lines)):
        raise DecodeError("its checksum does not match")
    if last.topic not in ("", _CHECK):
        lines.append(last)
    return {(topic, partition): offset for topic, partition, offset in lines}
