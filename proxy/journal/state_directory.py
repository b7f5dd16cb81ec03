"""Reads and writes the journal's files: a directory with numbered segments, for one process at a time.

    ottla-proxy.lock      held while a proxy runs
    00000017.journal      a line with the machine's boot id and the format, then entries
    00000016.damaged      a segment of the last unusable journal, kept for inspection

Rules:
- Entries survive any end of the process, because they are in the page cache of the operating system. They are synced to
  the disk only at an orderly end. So after a reboot a journal is unusable, unless its last segment ends with the mark
  of an orderly end.
- An incomplete entry at the end of the last segment had no effects. Damage anywhere else makes the whole journal
  unusable.
- An unusable journal is set aside, and after a failed write the journal is removed: the next start then fences
  producers, instead of guessing their state. A mark in the lock file says so, until the journal is whole again.
- While the proxy runs, the journal needs no file descriptor that it does not have: clients may use up all others. So
  the directory and one segment stay open, and the next segment gets the descriptor of the last one.
"""

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ottla.codec.checksums import crc32c
from ottla.codec.wire import Buffer
from ottla.errors import ConfigurationError, DecodeError
from ottla.proxy.events import Store
from ottla.proxy.journal.restored import Noted

log = logging.getLogger("ottla.proxy")

FORMAT = "ottla proxy journal 5"
_PARTS = min(1024, os.sysconf("SC_IOV_MAX"))
"""The most parts that the operating system writes in one call."""
_LOCK, _DAMAGED = "ottla-proxy.lock", ".damaged"
_HEAD = 8
_ENDED = 0x0E0D0E0D
_END = bytes(4) + _ENDED.to_bytes(4, "big")
"""The mark of an orderly end: an empty entry with this checksum, which a file filled with zeros does not have."""


def boot_id() -> str:
    """The id of the machine's current boot; ``-`` if there is none, so that reboots go unnoticed."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def segments(directory: Path) -> list[Path]:
    """The segments in a directory, in order."""
    return sorted(path for path in directory.glob("*.journal") if path.stem.isdecimal())


def read(directory: Path) -> Noted:
    """Read the journal in a directory; a running proxy may be writing to it.

    Raises:
        DecodeError: it is damaged, or the machine was rebooted without an orderly end of the proxy.
    """
    found, now, boot, ended = Noted(), boot_id(), "", True
    paths = segments(directory)
    for path in paths:
        data = path.read_bytes()
        line, begun, entries = data.partition(b"\n")
        if not begun and path == paths[-1]:
            break
        told, _, life = line.decode("ascii", "replace").rpartition(" ")
        if told != FORMAT:
            raise DecodeError(f"{path.name} is no segment of this format")
        if life != boot:
            _check_end(boot, now, ended)
            boot = life
        ended = False  # the mark in an earlier segment is from an earlier process
        for entry in _entries(path.name, entries, last=path == paths[-1]):
            ended = not entry
            if entry:
                found.take(entry)
    _check_end(boot, now, ended)
    return found


def _check_end(boot: str, now: str, ended: bool) -> None:
    if boot not in ("", now) and not ended:
        raise DecodeError("the machine was restarted, and the previous proxy had not stopped cleanly")


def _cut(path: Path) -> None:
    """Remove an incomplete entry from the end of the last segment, before another segment follows it."""
    data = path.read_bytes()
    head = data.find(b"\n") + 1
    whole = head + sum(_HEAD + len(entry) for entry in _entries(path.name, data[head:], last=True))
    if not head:
        path.unlink()
    elif whole < len(data):
        os.truncate(path, whole)


def _entries(name: str, data: bytes, *, last: bool) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, crc = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + _HEAD], "big")
        entry = data[at + _HEAD : at + _HEAD + size]
        if len(data) - at < _HEAD or len(entry) < size:
            if last:
                return
            raise DecodeError(f"{name} is cut off at byte {at}")
        if crc != (crc32c(entry) if size else _ENDED):
            raise DecodeError(f"{name} is damaged at byte {at}")
        yield entry
        at += _HEAD + size


class StateInUse(ConfigurationError):
    """Another process uses the state directory."""


class StateDirectory:
    """Locks a state directory for this process, and reads and writes its journal.

    Args:
        path: the directory, which is created if it does not exist.

    Raises:
        StateInUse: another process uses it.
        ConfigurationError: it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._segment: tuple[int, int] | None = None
        """The number and the file descriptor of the segment that is being written, or was before the last failure."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            self._directory = os.open(path, os.O_RDONLY)
        except (FileExistsError, NotADirectoryError):
            raise ConfigurationError(
                f"the state cannot be kept in {path}: that path, or a part of it, is a file"
            ) from None
        except OSError as error:
            raise ConfigurationError(f"the state cannot be kept in {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            os.close(self._directory)
            raise StateInUse(f"another proxy keeps its state in {path}: give each its own directory") from None
        self._segments = [int(each.stem) for each in segments(path)]
        """The numbers of all segments; to list the directory takes a file descriptor."""
        self._begun = False
        """A segment of this process is on the disk, so that the end of an earlier process is not taken for its own."""
        self._boot = boot_id()  # read now: later there may be no file descriptor for it
        self._marked = False
        """The lock file says that the journal is not to be trusted."""

    def recover(self) -> tuple[Noted, int]:
        """Read the state of the previous proxy; returns it and the number of the first segment to write.

        An unusable journal is set aside and logged.
        """
        paths = segments(self.path)
        first = 1 + max((int(path.stem) for path in paths), default=0)
        if os.pread(self._lock, 1, 0):
            log.error(
                "journal abandoned: open idempotent producers will be fenced, and pinned partition counts are lost",
                extra={"state": str(self.path)},
            )
            self._remove()
            return Noted(), first
        try:
            found = read(self.path)
            if paths:
                _cut(paths[-1])
            return found, first
        except (DecodeError, OSError) as error:
            self.set_aside(error)
            return Noted(), first

    def set_aside(self, why: object) -> None:
        """Set aside a journal that is damaged or contradicts itself, instead of any that was set aside before."""
        log.error(
            "journal unusable: open idempotent producers will be fenced, and pinned partition counts are lost: %s",
            why,
            extra={"state": str(self.path)},
        )
        for path in self.path.glob(f"*{_DAMAGED}"):
            with suppress(OSError):
                path.unlink()
        self._remove(aside=True)

    def store(self, action: Store) -> None:
        """Append an entry.

        Raises:
            OSError: that failed, and the journal is abandoned.
        """
        try:
            if self._segment is None or self._segment[0] != action.segment:
                self._begin(action.segment)
            assert self._segment is not None
            _write(self._segment[1], action.parts)
            if action.obsolete:
                for number in [each for each in self._segments if each < action.obsolete]:
                    with suppress(FileNotFoundError):
                        os.unlink(_name(number), dir_fd=self._directory)
                    self._segments.remove(number)
                if self._marked:
                    os.ftruncate(self._lock, 0)
                    self._marked = False
        except OSError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Remove the journal; the next process logs the loss, unless `store` makes the journal whole before that."""
        self._begun = False
        self._remove(keep_mark=True)

    def _begin(self, number: int) -> None:
        if self._segment is not None:
            os.close(self._segment[1])
            self._segment = None
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._segment = number, os.open(_name(number), how, 0o600, dir_fd=self._directory)
        self._segments.append(number)
        _write(self._segment[1], (f"{FORMAT} {self._boot}\n".encode(),))
        if not self._begun:  # sync at once: the earlier mark of an orderly end must not outlive a crash of the machine
            self._begun = True
            os.fsync(self._segment[1])
            os.fsync(self._directory)

    def _remove(self, *, aside: bool = False, keep_mark: bool = False) -> None:
        """Remove the journal, or at least mark it, so that the next process does not trust any rest of it.

        Args:
            keep_mark: keep the mark, so that the next process logs the loss.
        """
        self._mark()  # first, because the removal may end halfway
        for number in list(self._segments):
            path = self.path / _name(number)
            if aside:
                with suppress(OSError):
                    path.replace(path.with_suffix(_DAMAGED))
                    self._segments.remove(number)
                    continue
            with suppress(OSError):
                os.truncate(path, 0)  # works even if the directory is read-only
            try:
                path.unlink(missing_ok=True)
                self._segments.remove(number)
            except OSError as error:
                log.error("journal segment not removed: %s", error, extra={"state": str(path)})
        if keep_mark:
            self._mark()  # again, because the first attempt may have found no space
        elif not self._segments:
            with suppress(OSError):  # if this fails, the next journal is not trusted either
                os.ftruncate(self._lock, 0)
                self._marked = False

    def _mark(self) -> None:
        self._marked = True
        with suppress(OSError):
            os.pwrite(self._lock, b"given up\n", 0)

    def close(self) -> None:
        """Sync the journal to the disk, so that it survives a reboot, and release the directory."""
        if self._segment is not None:
            try:
                if not self._marked:
                    _write(self._segment[1], (_END,))
                    for number in self._segments:
                        _sync(self.path / _name(number))
                    os.fsync(self._directory)
            except OSError as error:
                log.error(
                    "journal sync failed, its last entries may not survive a crash of the machine: %s",
                    error.strerror,
                    extra={"state": str(self.path)},
                )
            os.close(self._segment[1])
            self._segment = None
        os.close(self._directory)
        os.close(self._lock)


def _name(segment: int) -> str:
    return f"{segment:08}.journal"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, parts: Sequence[Buffer]) -> None:
    left = [memoryview(each) for each in parts if len(each)]
    while left:
        count = os.writev(descriptor, left[:_PARTS])
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if left:
            left[0] = left[0][count:]
