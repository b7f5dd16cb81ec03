"""Defines the file operations of storage; no other module of storage touches files, except `file_range.py`.

    disk = FileSystem()                     # or the tests' model of a disk, with kills and power cuts
    disk.write(path, position, *parts)      # opens the file if need be; the data is in the page cache afterwards
    disk.sync(path)                         # now the data is on disk

Rules:
- Callers name files by their paths. Descriptors stay open for the next use, up to a limit; the least recently used one
  is closed.
- The loop and threads may use a disk at the same time. A descriptor is never closed under a call that uses it.
- Every method may raise `OSError`.
"""

import errno
import fcntl
import os
import resource
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import WeakSet

from ottla.brokerlite.storage.file_range import FileRange
from ottla.codec.wire import Buffer, Part

T = TypeVar("T")

_MOST = 4096
"""The most descriptors kept open; more would save nothing."""
_LEAST = 16
_SPARE = 32
"""Descriptors reserved for files opened briefly, and for the process itself."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk."""
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Locked(Exception):
    """A file is locked by another process.

    Attributes:
        holder: the text that the other process wrote into it.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class Disk(Protocol):
    """Reads and writes files and folders by their paths."""

    # -- folders and names

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, in no particular order."""

    def exists(self, path: Path) -> bool: ...

    def is_folder(self, path: Path) -> bool: ...

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        """Create a folder and its parents; an existing folder is no error.

        Args:
            private: only the broker's user may read the folder.
        """

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder and everything in it, as far as possible; never raises."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or folder atomically, replacing a file of that name."""

    def unlink(self, path: Path) -> None:
        """Remove a file; a missing file is no error."""

    def sync_folder(self, folder: Path) -> None:
        """Flush the names in a folder to disk; a missing folder is no error."""

    def lock(self, path: Path, owner: str) -> Callable[[], None]:
        """Lock a file for this process and write ``owner`` into it; the returned function unlocks it.

        Raises:
            Locked: another process holds the lock.
        """

    # -- whole files

    def read_file(self, path: Path) -> bytes:
        """Read a whole file; raises `FileNotFoundError` if it is missing."""

    def write_file(self, path: Path, data: bytes) -> None:
        """Create a file or replace its content. Not atomic: a kill may leave a part of it."""

    # -- parts of files

    def size(self, path: Path) -> int: ...

    def modified(self, path: Path) -> int:
        """Return when a file was last modified, in milliseconds since 1970."""

    def read(self, path: Path, size: int, position: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of the file."""

    def range(self, path: Path, size: int, position: int) -> Part:
        """Return bytes that exist and will not change; they are read when they are needed."""

    def write(self, path: Path, position: int, *parts: Buffer) -> None:
        """Write all of ``parts``, creating the file if it is missing. After an error a part may have been written."""

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file to ``size``."""

    def sync(self, path: Path) -> None:
        """Flush the content of a file to disk, but not its name; a missing file is no error."""

    def close(self) -> None:
        """Close every descriptor. Later calls open files again."""


class _Open:
    """Owns the descriptor of an open file, and closes it when neither the cache nor a call refers to this object."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


class FileSystem:
    """Uses the operating system's files (implements `Disk`).

    Args:
        descriptors: the most to keep open. By default half of the process's limit, because client connections need
            descriptors, too.
    """

    def __init__(self, descriptors: int | None = None) -> None:
        self._limit = _descriptors() if descriptors is None else descriptors
        self._files: OrderedDict[Path, _Open] = OrderedDict()
        """The most recently used ones are at the end."""
        self._by_folder: dict[Path, set[Path]] = {}
        self._guard = threading.RLock()
        self._ranges: WeakSet[FileRange] = WeakSet()
        """The ranges in use."""

    # -- folders and names

    def names(self, folder: Path) -> list[str]:
        return self._with_room(lambda: os.listdir(folder))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)

    def remove_tree(self, folder: Path) -> None:
        self._drop_folder(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)
        for path in (source, target):  # after the rename, because a thread may have opened a file until then
            self._drop(path)
        self._drop_folder(source)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._drop(path)

    def sync_folder(self, folder: Path) -> None:
        try:
            descriptor = self._descriptor(folder, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path, owner: str) -> Callable[[], None]:
        descriptor = self._descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(OSError):  # the disk is full, but the lock holds
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner.encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise Locked(holder) from None
        except BaseException:
            os.close(descriptor)
            raise

        def release() -> None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked process may have the file open
            os.close(descriptor)

        return release

    # -- whole files

    def read_file(self, path: Path) -> bytes:
        return self._with_room(path.read_bytes)

    def write_file(self, path: Path, data: bytes) -> None:
        self._drop(path)
        descriptor = self._descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_all(descriptor, 0, (data,))
        finally:
            os.close(descriptor)

    # -- parts of files

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def modified(self, path: Path) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: Path, size: int, position: int) -> bytes:
        opened = self._use(path)
        return os.pread(opened.descriptor, size, position)

    def range(self, path: Path, size: int, position: int) -> Part:
        if len(self._ranges) >= self._limit // 4:  # each may keep a file open as long as a slow client reads
            return self.read(path, size, position)
        made = FileRange(self._use(path), position, size)
        self._ranges.add(made)
        return made

    def write(self, path: Path, position: int, *parts: Buffer) -> None:
        opened = self._use(path, os.O_CREAT)
        _write_all(opened.descriptor, position, parts)

    def truncate(self, path: Path, size: int) -> None:
        opened = self._use(path)
        os.ftruncate(opened.descriptor, size)

    def sync(self, path: Path) -> None:
        try:
            opened = self._use(path)
        except FileNotFoundError:
            return
        os.fsync(opened.descriptor)

    def close(self) -> None:
        with self._guard:
            for path in list(self._files):
                self._forget(path)

    # -- descriptors

    def _use(self, path: Path, flags: int = 0) -> _Open:
        """Return an open file, which the caller must keep in a variable while it uses the descriptor."""
        with self._guard:
            opened = self._files.get(path)
            if opened is None:
                opened = self._open(path, flags)
            else:
                self._files.move_to_end(path)
            return opened

    def _open(self, path: Path, flags: int) -> _Open:
        self._make_room(self._limit - 1 - len(self._ranges))
        descriptor = self._descriptor(path, os.O_RDWR | flags)
        opened = self._files[path] = _Open(descriptor)
        self._by_folder.setdefault(path.parent, set()).add(path)
        return opened

    def _descriptor(self, path: Path, flags: int) -> int:
        return self._with_room(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def _with_room(self, work: Callable[[], T]) -> T:
        """Run ``work``, which needs a descriptor; if the process has none left, close cached ones and run it again."""
        try:
            return work()
        except OSError as error:
            with self._guard:
                if error.errno not in _OUT_OF_DESCRIPTORS or not self._files:
                    raise
                self._make_room(len(self._files) // 2)
            return work()

    def _make_room(self, count: int) -> None:
        """Close files until at most ``count`` are open."""
        while len(self._files) > count:
            self._forget(next(iter(self._files)))

    def _forget(self, path: Path) -> None:
        """Drop a file from the cache; it is closed once no call uses it."""
        del self._files[path]
        folder = self._by_folder[path.parent]
        folder.discard(path)
        if not folder:
            del self._by_folder[path.parent]

    def _drop(self, path: Path) -> None:
        with self._guard:
            if path in self._files:
                self._forget(path)

    def _drop_folder(self, folder: Path) -> None:
        with self._guard:
            for path in list(self._by_folder.get(folder, ())):
                self._forget(path)


def _write_all(descriptor: int, position: int, parts: Sequence[Buffer]) -> None:
    size = sum(map(len, parts))
    written = os.pwritev(descriptor, parts, position)
    while written < size:  # the disk is full (the next write raises that), or the system wrote only a part
        left = memoryview(b"".join(parts))[written:]
        written += os.pwrite(descriptor, left, position + written)


def _allowed() -> int:
    """Return how many descriptors the process may have."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if allowed == resource.RLIM_INFINITY else allowed


def _descriptors() -> int:
    """Return how many descriptors to keep open by default."""
    return max(_LEAST, min(_MOST, _allowed() // 2))


def descriptors_for_connections() -> int:
    """Return how many descriptors connections may use, so that a `FileSystem` keeps its share."""
    return max(_LEAST, _allowed() - _descriptors() - _SPARE)
