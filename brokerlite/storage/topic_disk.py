"""Gives one topic access to the disk, until the topic is deleted.

Work for a topic may be queued, or running in a thread, when the topic is deleted (a flush, the removal of segments, a
round of compaction). A recreated topic has files of the same names, which that work must not touch.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.wire import Buffer, Part


class TopicDeleted(FileNotFoundError):
    """The topic was deleted meanwhile; this is not a disk error."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ENOENT, "its topic was deleted", str(path))


class TopicDisk:
    """Passes calls to a `Disk` until the topic is gone; then removals do nothing and changes raise `TopicDeleted`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._guard = threading.Lock()
        self._over = False

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Block changes while the caller renames the topic's folders, and for good unless the block raises."""
        with self._guard:
            yield
            self._over = True

    def _check(self, path: Path) -> None:
        if self._over:
            raise TopicDeleted(path)

    # -- calls that change files

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        with self._guard:
            self._check(path)
            self._disk.make_folder(path, private=private)

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

    # -- calls that do not

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Raise `TopicDeleted` if a file is missing because its topic was deleted. Reads need no lock."""
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
        try:  # without `_reading`, to be fast: a read of the log takes several of these
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
