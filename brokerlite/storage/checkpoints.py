"""The small files of the data folder, written whole; their formats are those of `ottla.codec.stored.checkpoints`."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ottla.brokerlite.machines.topics import Place
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.checkpoints import PartitionOffset, build_offsets, parse_offsets
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

TEMPORARY = ".tmp"


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


class OffsetCheckpoint:
    """A file with an offset for each of some partitions; for the loop and threads."""

    def __init__(self, disk: Disk, path: Path, *, sync: bool) -> None:
        self._disk = disk
        self._path = path
        self._sync = sync
        self._guard = threading.Lock()
        self._known: dict[Place, int] | None = None

    def read(self) -> dict[Place, int]:
        """A file that is gone or damaged is an empty one: then nothing is taken for true unseen."""
        try:
            lines = parse_offsets(self._disk.read_file(self._path))
            self._known = {(topic, partition): offset for topic, partition, offset in lines}
        except FileNotFoundError:
            self._known = {}
        except DecodeError as error:
            log.warning("%s is damaged, and written again: %s", self._path.name, error, extra={"file": str(self._path)})
            return {}
        return dict(self._known)

    def write(self, current: Callable[[], dict[Place, int]]) -> None:
        """Have the file say what ``current`` does; this waits for the disk, unless it says so already."""
        with self._guard:
            offsets = current()  # asked here, or what another thread has written since would be taken back
            if offsets != self._known:
                self._known = None
                lines = (PartitionOffset(*place, offset) for place, offset in offsets.items())
                replace(self._disk, self._path, build_offsets(lines), sync=self._sync)
                self._known = offsets
