"""The disk as one topic uses it: once the topic is deleted, nothing is changed through it any more.

Work for a topic may be queued, or under way in a thread, when the topic is deleted (a flush, the removal of segments, a
round of compaction). Another topic of the name has files of the same names, which that work must not touch.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.wire import Buffer, Part


class TopicDeleted(FileNotFoundError):
    """The topic was deleted meanwhile, which is no fault of the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ENOENT, "its topic was deleted", str(path))


class TopicDisk:
    """A `Disk` that ends with its topic: then nothing is there to be removed, and anything else is `TopicDeleted`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._guard = threading.Lock()
        self._over = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Have the files get other names; nobody changes them meanwhile, nor, unless an error comes out, afterwards."""
        with self._guard:
            yield
            self._over = True

    def _check(self, path: Path) -> None:
        if self._over:
            raise TopicDeleted(path)

    # -- what changes something

    def make_folder(self, path: Path) -> None:
        with self._guard:
            self._check(path)
            self._disk.make_folder(path)

    def remove_tree(self, folder: Path) -> None:
        with self._guard:
            if not self._over:
                self._disk.remove_tree(folder)

    def rename(self, source: Path, target: Path) -> None:
        with self._guard:
            self._check(source)
            self._disk.rename(source, target)

    def unlink(self, path: Path) -> None:
        with self._guard:
            if not self._over:
                self._disk.unlink(path)

    def write_file(self, path: Path, data: bytes) -> None:
        with self._guard:
            self._check(path)
            self._disk.write_file(path, data)

    def write(self, path: Path, position: int, *parts: Buffer) -> None:
        with self._guard:
            self._check(path)
            self._disk.write(path, position, *parts)

    def truncate(self, path: Path, size: int) -> None:
        with self._guard:
            self._check(path)
            self._disk.truncate(path, size)

    # -- what does not

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Tell a file that went with its topic from others. Reads need no guard."""
        try:
            yield
        except FileNotFoundError:
            with self._guard:
                self._check(path)
            raise

    def names(self, folder: Path) -> list[str]:
        with self._reading(folder):
            return self._disk.names(folder)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def is_folder(self, path: Path) -> bool:
        return self._disk.is_folder(path)

    def sync_folder(self, folder: Path) -> None:
        self._disk.sync_folder(folder)

    def lock(self, path: Path, owner: str) -> Callable[[], None]:
        return self._disk.lock(path, owner)

    def read_file(self, path: Path) -> bytes:
        with self._reading(path):
            return self._disk.read_file(path)

    def size(self, path: Path) -> int:
        with self._reading(path):
            return self._disk.size(path)

    def modified(self, path: Path) -> int:
        with self._reading(path):
            return self._disk.modified(path)

    def read(self, path: Path, size: int, position: int) -> bytes:
        try:  # not `_reading`: a read takes several of these
            return self._disk.read(path, size, position)
        except FileNotFoundError:
            with self._reading(path):
                raise

    def range(self, path: Path, size: int, position: int) -> Part:
        with self._reading(path):
            return self._disk.range(path, size, position)

    def sync(self, path: Path) -> None:
        self._disk.sync(path)

    def close(self) -> None:
        self._disk.close()
