"""The operations on files that storage needs, and nothing else of storage touches a file.

    disk = FileSystem()                     # or the model of the tests, which can be killed and lose power
    disk.write(path, position, *parts)      # opens the file if need be; the page cache has it when this returns
    disk.sync(path)                         # now the disk has it

Rules:
- Files are named by their paths. Their descriptors are kept open for the next use, within a bound: the one that was
  not used for longest is closed.
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
"""Descriptors that are kept open at most; more would save nothing."""
_LEAST = 16
_SPARE = 32
"""Descriptors for what is opened for a moment only, and what the process has of its own."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk that has no room."""
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Locked(Exception):
    """A file is locked by another process.

    Attributes:
        holder: what that process wrote into it.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class Disk(Protocol):
    """Files and folders, by their paths."""

    # -- folders and names

    def names(self, folder: Path) -> list[str]:
        """What is in a folder, in no particular order."""

    def exists(self, path: Path) -> bool: ...

    def is_folder(self, path: Path) -> bool: ...

    def make_folder(self, path: Path) -> None:
        """Make a folder, and those above it; one that is there already is no error."""

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder and everything in it, as far as that is possible; raises nothing."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name, replacing a file of that name. Nobody sees half of it."""

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is gone is no error."""

    def sync_folder(self, folder: Path) -> None:
        """Have the disk hold the names in a folder; one that is gone is no error."""

    def lock(self, path: Path, owner: str) -> Callable[[], None]:
        """Take a file for this process alone and write ``owner`` into it; the result gives it back.

        Raises:
            Locked: another process has it.
        """

    # -- whole files

    def read_file(self, path: Path) -> bytes:
        """Raises `FileNotFoundError` where there is none."""

    def write_file(self, path: Path, data: bytes) -> None:
        """Make a file, or give it other content. A kill in between leaves part of it."""

    # -- parts of files

    def size(self, path: Path) -> int: ...

    def modified(self, path: Path) -> int:
        """When a file was last written to, in milliseconds since 1970."""

    def read(self, path: Path, size: int, position: int) -> bytes:
        """As many bytes as there are, up to ``size``."""

    def range(self, path: Path, size: int, position: int) -> Part:
        """As `read`, of bytes that there are and that will not change; they are read when they are needed."""

    def write(self, path: Path, position: int, *parts: Buffer) -> None:
        """Write all of ``parts``, making the file if there is none. After an error some of it may have been written."""

    def truncate(self, path: Path, size: int) -> None:
        """Have the file end at ``size``."""

    def sync(self, path: Path) -> None:
        """Have the disk hold the content of a file, but not its name; one that is gone is no error."""

    def close(self) -> None:
        """Close every descriptor. The disk may be used on."""


class _Open:
    """An open file. It is closed when nobody holds this any more: neither the cache nor a call that uses it."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


class FileSystem:
    """The operating system's files (a `Disk`).

    Args:
        descriptors: that are kept open at most. By default half of those that the process may have, because clients'
            connections need theirs.
    """

    def __init__(self, descriptors: int | None = None) -> None:
        self._limit = _descriptors() if descriptors is None else descriptors
        self._files: OrderedDict[Path, _Open] = OrderedDict()
        """Those used last at the end."""
        self._by_folder: dict[Path, set[Path]] = {}
        self._guard = threading.RLock()
        self._ranges: WeakSet[FileRange] = WeakSet()
        """Those that somebody holds."""

    # -- folders and names

    def names(self, folder: Path) -> list[str]:
        return self._with_room(lambda: os.listdir(folder))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, folder: Path) -> None:
        self._drop_folder(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)
        for path in (source, target):  # now, as a thread may have opened one of them until then
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
            with suppress(OSError):  # a full disk: it is locked all the same
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
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked may have the file open
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
        if len(self._ranges) >= self._limit // 4:  # each may keep a file open, for as long as its reader takes
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
        """An open file, to be held in a variable for as long as it is used."""
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
        """Do what needs a descriptor, also if the connections have taken more than their share."""
        try:
            return work()
        except OSError as error:
            with self._guard:
                if error.errno not in _OUT_OF_DESCRIPTORS or not self._files:
                    raise
                self._make_room(len(self._files) // 2)
            return work()

    def _make_room(self, count: int) -> None:
        """Have ``count`` files open at most."""
        while len(self._files) > count:
            self._forget(next(iter(self._files)))

    def _forget(self, path: Path) -> None:
        """Close a file, at once or when nobody uses it any more."""
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
    while written < size:  # the disk is full, as the next write says, or there is more than the system takes at once
        left = memoryview(b"".join(parts))[written:]
        written += os.pwrite(descriptor, left, position + written)


def _allowed() -> int:
    """How many the process may have."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if allowed == resource.RLIM_INFINITY else allowed


def _descriptors() -> int:
    """How many may be kept open."""
    return max(_LEAST, min(_MOST, _allowed() // 2))


def descriptors_for_connections() -> int:
    """How many the process may have beside those of a `FileSystem`, which would lose its own to them otherwise."""
    return max(_LEAST, _allowed() - _descriptors() - _SPARE)
