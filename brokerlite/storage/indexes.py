"""Keeps the two indexes of a segment: from offsets to positions in the log file, and from timestamps to offsets.

    00000000000000000000.index .timeindex   Kafka's, which have no checksum
    00000000000000000000.indexcheck         ours: the number of entries in each, and their CRC

Rules:
- Indexes that do not match their checksums, or cannot be whole, are rebuilt from the log file. With a wrong entry,
  ListOffsets could answer too late an offset, or a segment could expire at the wrong time. Indexes without checksums
  are trusted: Apache Kafka or an earlier version of the broker wrote them.
- The checksums are written last, and cover the first entries of each file: after a kill there may be more entries. If a
  power cut kept the checksums but lost entries, the indexes are rebuilt, too.
- New entries stay in memory until `Indexes.write` writes many at once: if they are lost, a start reads the log instead.
- A start reads the files once, to check them. The entries are loaded into memory at the first lookup.

Source: OffsetIndex.java, TimeIndex.java.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import ge
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.checksums import crc32c
from ottla.codec.records import NO_TIMESTAMP

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_CHECKS = struct.Struct(">iIiI")
"""The number of entries and their CRC, for each index."""


class Counts(NamedTuple):
    """Counts the entries of both indexes."""

    offsets: int
    times: int


class Indexes:
    """Reads and writes the indexes of one segment.

    Attributes:
        paths: of the two files, and of their checksums.
        last_time: timestamp and offset of the last time entry; -1 for none.
        counts: the number of entries.
        size: bytes of the larger index.
    """

    def __init__(self, disk: Disk, stem: Path, base_offset: int, suffix: str = "") -> None:
        self.paths = _paths(stem, suffix)
        self.last_time = NO_TIMESTAMP, -1
        self._disk = disk
        self._base = base_offset
        self._set_counts(0, 0)
        self._stored, self._crcs = self.counts, (0, 0)
        """The number of entries in the files, and their CRCs."""
        self._offsets: array[int] | None = array("i")
        """Relative to the base offset; ``None``: not read yet. `_positions` has their positions."""
        self._positions = array("i")
        self._times: array[int] | None = array("q")
        self._time_offsets = array("i")

    def _set_counts(self, offsets: int, times: int) -> None:
        self.counts = Counts(offsets, times)
        self.size = max(offsets * _OFFSET_ENTRY.size, times * _TIME_ENTRY.size)

    # -- life

    def rename(self, stem: Path, suffix: str) -> None:
        """Rename the files that exist to another suffix."""
        paths = _paths(stem, suffix)
        for path, new in zip(self.paths, paths, strict=True):
            if self._disk.exists(path):
                self._disk.rename(path, new)
        self.paths = paths

    def clear(self) -> None:
        """Remove all entries."""
        *files, checks = self.paths
        self._disk.unlink(checks)
        for path in files:
            if self._disk.exists(path):
                self._disk.truncate(path, 0)
        self.last_time = NO_TIMESTAMP, -1
        self._set_counts(0, 0)
        self._stored, self._crcs = self.counts, (0, 0)
        self._offsets, self._positions = array("i"), array("i")
        self._times, self._time_offsets = array("q"), array("i")

    def load(self) -> tuple[int, int | None]:
        """Load the files, and return position and last offset of the batch in the last entry.

        Without entries these are 0 and ``None``.

        Raises:
            ValueError: the indexes cannot be whole.
            OSError: a file cannot be read.
        """
        *files, checks = self.paths
        offsets, times = (self._disk.read_file(path) if self._disk.exists(path) else b"" for path in files)
        if len(offsets) % _OFFSET_ENTRY.size or len(times) % _TIME_ENTRY.size:
            raise ValueError
        if self._disk.exists(checks):
            self._check(self._disk.read_file(checks), offsets, times)
        self._set_counts(len(offsets) // _OFFSET_ENTRY.size, len(times) // _TIME_ENTRY.size)
        self._stored, self._crcs = self.counts, (crc32c(offsets), crc32c(times))
        self._offsets = None if offsets else array("i")
        self._times = None if times else array("q")
        if times:
            timestamp, offset = _TIME_ENTRY.unpack_from(times, len(times) - _TIME_ENTRY.size)
            self.last_time = timestamp, self._base + offset
        if not offsets:
            return 0, None
        offset, position = _OFFSET_ENTRY.unpack_from(offsets, len(offsets) - _OFFSET_ENTRY.size)
        return position, self._base + offset

    def _check(self, checks: bytes, offsets: bytes, times: bytes) -> None:
        if len(checks) != _CHECKS.size:  # a kill or a full disk: the file was created and not written
            return
        count, crc, time_count, time_crc = _CHECKS.unpack(checks)
        for data, size, wanted in (
            (offsets, count * _OFFSET_ENTRY.size, crc),
            (times, time_count * _TIME_ENTRY.size, time_crc),
        ):
            if not 0 <= size <= len(data) or crc32c(data[:size]) != wanted:
                raise ValueError

    def keep_before(self, offset: int) -> tuple[int, int | None]:
        """Load files that are on disk up to ``offset``, and may contain anything after it; drop the rest.

        Returns position and last offset of the last batch before ``offset`` that has an entry, like `load`.

        Raises:
            ValueError: the indexes cannot be whole, not even up to there.
            OSError: a file cannot be read.
        """
        self.load()
        offsets, times = self._by_offset(), self._by_time()
        count = bisect_left(offsets, offset - self._base)
        last = offsets[count - 1] if count else -1
        kept = Counts(count, bisect_right(self._time_offsets, last))
        if count and not kept.times:
            raise ValueError
        for column in (offsets[:count], self._positions[:count], times[: kept.times]):
            if any(map(ge, column, column[1:])) or (column and column[0] < 0):
                raise ValueError
        self._cut(kept)
        return self._entry(count - 1)

    # -- writing

    def prepare(self) -> None:
        """Load the entries if they are not loaded yet, so that adding entries cannot fail.

        Raises:
            OSError: a file cannot be read.
        """
        self._by_offset()
        self._by_time()

    def add(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch at ``position``."""
        offsets = self._by_offset()
        offsets.append(last_offset - self._base)
        self._positions.append(position)
        self._set_counts(len(offsets), self.counts.times)

    def add_time(self, timestamp: int, offset: int) -> None:
        """Add a time entry: up to ``offset`` no record is later than ``timestamp``. Does nothing unless that is new."""
        if timestamp <= self.last_time[0]:
            return
        times = self._by_time()
        times.append(timestamp)
        self._time_offsets.append(offset - self._base)
        self.last_time = timestamp, offset
        self._set_counts(self.counts.offsets, len(times))

    def write(self) -> None:
        """Write all entries to the files. An `OSError` may leave some there; the next call writes them again."""
        if self._stored == self.counts:
            return
        offsets, times = self._packed(self._stored)
        # Kafka's tools cannot read one file without the other, so both are created, even without entries.
        self._disk.write(self.paths[0], self._stored.offsets * _OFFSET_ENTRY.size, offsets)
        self._disk.write(self.paths[1], self._stored.times * _TIME_ENTRY.size, times)
        crcs = crc32c(offsets, self._crcs[0]), crc32c(times, self._crcs[1])
        self._write_checks(crcs)
        self._stored, self._crcs = self.counts, crcs

    def _packed(self, start: Counts) -> tuple[bytes, bytes]:
        """Return all entries from ``start`` on in the format of the files."""
        offsets = zip(self._by_offset()[start.offsets :], self._positions[start.offsets :], strict=True)
        times = zip(self._by_time()[start.times :], self._time_offsets[start.times :], strict=True)
        return (
            b"".join(_OFFSET_ENTRY.pack(*entry) for entry in offsets),
            b"".join(_TIME_ENTRY.pack(*entry) for entry in times),
        )

    def _write_checks(self, crcs: tuple[int, int]) -> None:
        self._disk.write(self.paths[2], 0, _CHECKS.pack(self.counts.offsets, crcs[0], self.counts.times, crcs[1]))

    def _cut(self, counts: Counts) -> None:
        """Truncate the indexes to ``counts`` entries."""
        offsets, times = self._by_offset(), self._by_time()
        del offsets[counts.offsets :], self._positions[counts.offsets :]
        del times[counts.times :], self._time_offsets[counts.times :]
        self.last_time = (times[-1], self._base + self._time_offsets[-1]) if times else (NO_TIMESTAMP, -1)
        self._set_counts(*counts)
        packed = self._packed(Counts(0, 0))
        self._stored, self._crcs = counts, (crc32c(packed[0]), crc32c(packed[1]))
        self._disk.unlink(self.paths[2])  # rewritten last, below: a kill in between leaves indexes without checksums
        for path, size in zip(
            self.paths[:2], (counts.offsets * _OFFSET_ENTRY.size, counts.times * _TIME_ENTRY.size), strict=True
        ):
            if self._disk.exists(path):
                self._disk.truncate(path, size)
        self._write_checks(self._crcs)

    # -- looking up

    def before(self, offset: int) -> tuple[int, int | None]:
        """Return position and last offset of an indexed batch at or before ``offset``; 0 and ``None`` if none is."""
        offsets = self._by_offset()
        return self._entry(bisect_right(offsets, offset - self._base) - 1)

    def behind(self, offset: int, size: int) -> int | None:
        """Return the last offset of a batch at least ``size`` bytes after the one with ``offset``; ``None`` if no
        entry says."""
        offsets = self._by_offset()
        entry = bisect_left(offsets, offset - self._base)
        if entry < len(offsets):
            entry = bisect_left(self._positions, self._positions[entry] + size)
        return self._base + offsets[entry] if entry < len(offsets) else None

    def before_position(self, position: int) -> tuple[int, int | None]:
        """Return as `before`, for a batch at ``position`` or before it."""
        self._by_offset()
        return self._entry(bisect_right(self._positions, position) - 1)

    def before_time(self, timestamp: int) -> int:
        """Return a position before which no record has ``timestamp`` or a later one."""
        times = self._by_time()
        entry = bisect_right(times, timestamp) - 1
        return self.before(self._base + self._time_offsets[entry])[0] if entry >= 0 else 0

    def _entry(self, index: int) -> tuple[int, int | None]:
        return (self._positions[index], self._base + self._by_offset()[index]) if index >= 0 else (0, None)

    def _by_offset(self) -> "array[int]":
        if self._offsets is None:
            entries = array("i")
            entries.frombytes(self._disk.read(self.paths[0], self.counts.offsets * _OFFSET_ENTRY.size, 0))
            if sys.byteorder == "little":
                entries.byteswap()
            self._offsets, self._positions = entries[::2], entries[1::2]
        return self._offsets

    def _by_time(self) -> "array[int]":
        if self._times is None:
            data = self._disk.read(self.paths[1], self.counts.times * _TIME_ENTRY.size, 0)
            entries = list(_TIME_ENTRY.iter_unpack(data))
            self._times = array("q", (timestamp for timestamp, _ in entries))
            self._time_offsets = array("i", (offset for _, offset in entries))
        return self._times


def _paths(stem: Path, suffix: str) -> tuple[Path, Path, Path]:
    index, times, checks = (stem.with_suffix(kind + suffix) for kind in (".index", ".timeindex", ".indexcheck"))
    return index, times, checks
