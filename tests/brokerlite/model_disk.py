"""A disk in memory that knows which data are synced. It can kill the process, lose power, run full, and fail.

    disk = ModelDisk(random.Random(1))
    disk.kill_at = disk.operations + 7      # the seventh operation from now on raises `Killed`
    …
    disk.crash()                            # after a kill: everything written is there
    disk.power_cut()                        # unsynced data are there or not, in any mixture

It is as harsh as POSIX allows. Names in a folder are sure to survive a power cut only if the folder was synced; of the
others, any mixture survives. Of writes to a file since its last sync, any mixture of sectors survives. With
``ordered``, operations on names survive up to some point in their order, and a sync of a file is a point in that order,
as in ext4.
"""

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk, Locked
from ottla.codec.wire import Buffer, Part

SECTOR = 512


class Killed(BaseException):
    """The process was killed. No `except Exception` must stop it."""


@dataclass(eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    """The content in the page cache."""
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Since the last sync: (position, written bytes), or (size, None) for a truncation."""


@dataclass(eq=False)
class _Folder:
    entries: "dict[str, _Node]" = field(default_factory=dict)
    durable: "dict[str, _Node]" = field(default_factory=dict)
    pending: "list[tuple[int, dict[str, _Node | None]]]" = field(default_factory=list)
    """Since the last sync: the moment of each change, and the names that it changed atomically."""


_Node = _File | _Folder


class ModelDisk(Disk):
    """A disk in memory.

    Attributes:
        operations: the number of operations so far that changed something, or synced.
        kill_at: the number of the operation that kills the process.
        room: the free space in bytes; ``None``: unlimited.
        fails: decides which operation on which path fails (EIO).
        refused: the number of operations that failed for lack of space, or by `fails`.
        read_bytes: the number of bytes read.
        reads: the number of read calls.
    """

    def __init__(self, rng: random.Random | None = None, *, ordered: bool = False) -> None:
        self.operations = 0
        self.kill_at: int | None = None
        self.room: int | None = None
        self.fails: Callable[[str, Path], bool] = lambda operation, path: False
        self.read_bytes = self.reads = self.refused = 0
        self._rng = rng or random.Random(0)
        self._ordered = ordered
        self._root = _Folder()
        self._dead = False
        self._locked: dict[Path, str] = {}

    # -- faults

    def crash(self) -> None:
        """End the process; everything written stays."""
        self._dead, self.kill_at = False, None
        self._locked.clear()

    def power_cut(self) -> None:
        """Cut the power; unsynced data stay or are lost."""
        self.crash()
        until = self._rng.randint(0, self.operations)
        for node in self._all():
            if isinstance(node, _File):
                self._lose_content(node)
            else:
                self._lose_names(node, until)

    def _lose_content(self, file: _File) -> None:
        data = bytearray(file.durable)
        for position, written in file.pending:
            if written is None:
                if self._rng.random() < 0.5:
                    _resize(data, position)
                continue
            fate = self._rng.choice(["kept", "lost", "torn"])
            for start in range(0, len(written), SECTOR):
                piece = written[start : start + SECTOR]
                if fate == "kept" or (fate == "torn" and self._rng.random() < 0.5):
                    _put(data, position + start, piece)
            if fate != "lost" and self._rng.random() < 0.3:  # the disk has the new size, but not the content
                _resize(data, max(len(data), position + len(written)))
        file.data, file.durable, file.pending = data, bytes(data), []

    def _lose_names(self, folder: _Folder, until: int) -> None:
        entries = dict(folder.durable)
        for when, changes in folder.pending:
            if when <= until if self._ordered else self._rng.random() < 0.5:
                _apply(entries, changes)
        folder.entries, folder.durable, folder.pending = entries, dict(entries), []

    def _all(self) -> list[_Node]:
        """Every node that any view can reach."""
        found: dict[int, _Node] = {}
        waiting: list[_Node] = [self._root]
        while waiting:
            node = waiting.pop()
            if id(node) in found:
                continue
            found[id(node)] = node
            if isinstance(node, _Folder):
                waiting += [*node.entries.values(), *node.durable.values()]
                waiting += [each for _, changes in node.pending for each in changes.values() if each is not None]
        return list(found.values())

    # -- folders and names

    def names(self, folder: Path) -> list[str]:
        self._check_alive()
        return list(self._folder(folder).entries)

    def exists(self, path: Path) -> bool:
        self._check_alive()
        return self._find(path) is not None

    def is_folder(self, path: Path) -> bool:
        self._check_alive()
        return isinstance(self._find(path), _Folder)

    def make_folder(self, path: Path, *, private: bool = False) -> None:
        for each in [*reversed(path.parents), path]:
            if not self.exists(each):
                self._change(each, {each.name: _Folder()}, "make_folder")
            elif not self.is_folder(each):
                raise _error(errno.EEXIST if each == path else errno.ENOTDIR, each)

    def remove_tree(self, folder: Path) -> None:
        try:
            for name in self.names(folder):
                path = folder / name
                if self.is_folder(path):
                    self.remove_tree(path)
                else:
                    self.unlink(path)
            self._change(folder, {folder.name: None}, "remove_tree")
        except OSError:
            pass

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "storage never moves files between folders"
        node = self._find(source)
        if node is None:
            raise _error(errno.ENOENT, source)
        replaced = self._find(target)
        self._change(source, {source.name: None, target.name: node}, "rename")
        if isinstance(replaced, _File):
            self._take_room(-len(replaced.data))

    def unlink(self, path: Path) -> None:
        self._check_alive()
        if isinstance(node := self._find(path), _File):
            self._change(path, {path.name: None}, "unlink")
            self._take_room(-len(node.data))

    def sync_folder(self, folder: Path) -> None:
        with self._step("sync_folder", folder) as done:
            node = self._find(folder)
            if done and isinstance(node, _Folder):
                _commit(node)

    def lock(self, path: Path, owner: str) -> Callable[[], None]:
        self._check_alive()
        if path in self._locked:
            raise Locked(self._locked[path].strip())
        self._locked[path] = owner
        with suppress(OSError):
            self.write_file(path, owner.encode())
        return lambda: self._unlock(path)

    def _unlock(self, path: Path) -> None:
        self._locked.pop(path, None)

    # -- whole files

    def read_file(self, path: Path) -> bytes:
        return self.read(path, self.size(path), 0)

    def write_file(self, path: Path, data: bytes) -> None:
        if self._find(path) is None:
            self._create(path)
        else:
            self.truncate(path, 0)
        if data:
            self.write(path, 0, data)

    # -- parts of files

    def modified(self, path: Path) -> int:
        self._check_alive()
        return 0

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def read(self, path: Path, size: int, position: int) -> bytes:
        if self.fails("read", path):
            raise self._refused(errno.EIO, path)
        data = bytes(self._file(path).data[position : position + size])
        self.read_bytes += len(data)
        self.reads += 1
        return data

    def range(self, path: Path, size: int, position: int) -> Part:
        return self.read(path, size, position)

    def write(self, path: Path, position: int, *parts: Buffer) -> None:
        if self._find(path) is None:
            self._create(path)
        written = b"".join(parts)
        with self._step("write", path) as done:
            file = self._file(path, alive=False)
            if not done:
                written = written[: self._rng.randint(0, len(written))]
            fits = self._fitting(file, written, position)
            _put(file.data, position, fits)
            file.pending.append((position, fits))
        if len(fits) < len(written):
            raise self._refused(errno.ENOSPC, path)

    def _refused(self, number: int, path: Path) -> OSError:
        self.refused += 1
        return _error(number, path)

    def _fitting(self, file: _File, data: bytes, position: int) -> bytes:
        """The prefix of the data that fits into the free space, which it takes up."""
        grows = max(0, position + len(data) - len(file.data))
        if self.room is not None and grows > self.room:
            data = data[: len(data) - (grows - self.room)]
            grows = self.room
        self._take_room(grows)
        return data

    def truncate(self, path: Path, size: int) -> None:
        file = self._file(path)
        with self._step("truncate", path) as done:
            if done or self._rng.random() < 0.5:
                self._take_room(size - len(file.data))
                _resize(file.data, size)
                file.pending.append((size, None))

    def sync(self, path: Path) -> None:
        with self._step("sync", path) as done:
            node = self._find(path)
            if isinstance(node, _File) and (done or self._rng.random() < 0.5):
                node.durable, node.pending = bytes(node.data), []
                if self._ordered:
                    for each in self._all():
                        if isinstance(each, _Folder):
                            _commit(each)

    def close(self) -> None:
        pass

    # -- for the tests

    def files(self, folder: Path, suffix: str = "") -> dict[str, bytes]:
        """Name -> content."""
        entries = self._folder(folder).entries.items()
        return {
            name: bytes(node.data)
            for name, node in sorted(entries)
            if isinstance(node, _File) and name.endswith(suffix)
        }

    # -- inside

    def _check_alive(self) -> None:
        if self._dead:
            raise Killed

    def _step(self, operation: str, path: Path) -> "_Step":
        self._check_alive()
        if self.fails(operation, path):
            raise self._refused(errno.EIO, path)
        self.operations += 1
        self._dead = self.operations == self.kill_at
        return _Step(not self._dead)

    def _create(self, path: Path) -> None:
        if self.room is not None and self.room <= 0:
            self._check_alive()
            raise self._refused(errno.ENOSPC, path)
        self._change(path, {path.name: _File()}, "create")

    def _change(self, path: Path, changes: "dict[str, _Node | None]", operation: str) -> None:
        folder = self._folder(path.parent)
        with self._step(operation, path) as done:
            if done or self._rng.random() < 0.5:
                _apply(folder.entries, changes)
                folder.pending.append((self.operations, changes))

    def _take_room(self, size: int) -> None:
        if self.room is not None:
            self.room -= size

    def _find(self, path: Path) -> _Node | None:
        node: _Node = self._root
        for name in _names(path):
            if not isinstance(node, _Folder) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def _folder(self, path: Path) -> _Folder:
        self._check_alive()
        node = self._find(path)
        if not isinstance(node, _Folder):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _file(self, path: Path, *, alive: bool = True) -> _File:
        if alive:
            self._check_alive()
        node = self._find(path)
        if not isinstance(node, _File):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node


class _Step:
    """An operation. The ``with`` statement says whether it is carried out; at its end the process may be killed."""

    def __init__(self, done: bool) -> None:
        self._done = done

    def __enter__(self) -> bool:
        return self._done

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._done:
            raise Killed


def _names(path: Path) -> Iterator[str]:
    return (name for name in path.parts if name != path.anchor)


def _apply(entries: dict[str, _Node], changes: dict[str, _Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _commit(folder: _Folder) -> None:
    folder.durable, folder.pending = dict(folder.entries), []


def _put(data: bytearray, position: int, piece: bytes) -> None:
    _resize(data, max(len(data), position))
    data[position : position + len(piece)] = piece


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
