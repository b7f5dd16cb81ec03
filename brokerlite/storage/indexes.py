"""The two indexes of a segment: from offsets to positions in the log file, and from timestamps to offsets.

    00000000000000000000.index .timeindex   Kafka's, which have no checksum
    00000000000000000000.indexcheck         ours: how many entries each has, and their CRC

Rules:
- Indexes that do not match their checksums are made again from the log file, as are those that cannot be whole. A wrong
  entry would have ListOffsets answer too late an offset, or a segment expire at the wrong time. Indexes without
  checksums count as they are: Apache Kafka or an earlier version of the broker wrote them.
- The checksums are written last, and cover the first entries of each file: entries behind these may be there after a
  kill. If a power cut kept the checksums and lost entries, the indexes are made again, too.
- New entries are kept in memory until `Indexes.write`, many at once: without them a start reads the log instead.
- A start reads the files once, to check them. Their entries are kept in memory when they are first looked up.

Source: OffsetIndex.java, TimeIndex.java.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import ge
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.records import NO_TIMESTAMP

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_CHECKS = struct.Struct(">iIiI")
"""Of either index the number of entries and their CRC."""


class Counts(NamedTuple):
    """How many entries there are."""

    offsets: int
    times: int


class Indexes:
    """The indexes of one segment.

    Attributes:
        paths: of the two files, and of their checksums.
        last_time: the largest timestamp that has an entry, and the offset beside it; -1 for none.
        counts: how many entries there are.
        size: bytes of the larger index.
    """

    def __init__(self, disk: Disk, stem: Path, base_offset: int, suffix: str = "") -> None:
        self.paths = _paths(stem, suffix)
        self.last_time = NO_TIMESTAMP, -1
        self._disk = disk
        self._base = base_offset
        self._set_counts(0, 0)
        self._stored, self._crcs = self.counts, (0, 0)
        """How many of them the files have, and their CRCs."""
        self._offsets: array[int] | None = array("i")
        """Relative to the base, with their positions; ``None``: not read yet."""
        self._positions = array("i")
        self._times: array[int] | None = array("q")
        self._time_offsets = array("i")

    def _set_counts(self, offsets: int, times: int) -> None:
        self.counts = Counts(offsets, times)
        self.size = max(offsets * _OFFSET_ENTRY.size, times * _TIME_ENTRY.size)

    # -- life

    def rename(self, stem: Path, suffix: str) -> None:
        """Give the files, as far as there are any, names with another suffix."""
        paths = _paths(stem, suffix)
        for path, new in zip(self.paths, paths, strict=True):
            if self._disk.exists(path):
                self._disk.rename(path, new)
        self.paths = paths

    def clear(self) -> None:
        """Have no entries."""
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
        """Take the files as they are: position and last offset of the batch that the last entry is about.

        Without entries that is 0 and ``None``.

        Raises:
            ValueError: they cannot be whole.
            OSError: one is missing.
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
        if len(checks) != _CHECKS.size:
            raise ValueError
        count, crc, time_count, time_crc = _CHECKS.unpack(checks)
        for data, size, wanted in (
            (offsets, count * _OFFSET_ENTRY.size, crc),
            (times, time_count * _TIME_ENTRY.size, time_crc),
        ):
            if not 0 <= size <= len(data) or crc32c(data[:size]) != wanted:
                raise ValueError

    def keep_before(self, offset: int) -> tuple[int, int | None]:
        """As `load`, for files that the disk has up to ``offset``, and of which it may have any part behind that.

        What is behind is dropped; the batch is the last one that has an entry and lies before ``offset``.

        Raises:
            ValueError: they cannot be whole, not even up to there.
            OSError: one is missing.
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
        """Read what is not read yet, so that adding entries cannot fail.

        Raises:
            OSError: it cannot be read.
        """
        self._by_offset()
        self._by_time()

    def add(self, last_offset: int, position: int) -> None:
        """The batch at ``position`` has ``last_offset``."""
        offsets = self._by_offset()
        offsets.append(last_offset - self._base)
        self._positions.append(position)
        self._set_counts(len(offsets), self.counts.times)

    def add_time(self, timestamp: int, offset: int) -> None:
        """Up to ``offset`` no record has a larger timestamp; left out if that is known."""
        if timestamp <= self.last_time[0]:
            return
        times = self._by_time()
        times.append(timestamp)
        self._time_offsets.append(offset - self._base)
        self.last_time = timestamp, offset
        self._set_counts(self.counts.offsets, len(times))

    def write(self) -> None:
        """Have the files hold all entries; after an `OSError` they may hold any part of them, until the next time."""
        if self._stored == self.counts:
            return
        offsets, times = self._packed(self._stored)
        # Kafka's tool cannot read the one file without the other, so it is made without entries, too.
        self._disk.write(self.paths[0], self._stored.offsets * _OFFSET_ENTRY.size, offsets)
        self._disk.write(self.paths[1], self._stored.times * _TIME_ENTRY.size, times)
        crcs = crc32c(offsets, self._crcs[0]), crc32c(times, self._crcs[1])
        self._write_checks(crcs)
        self._stored, self._crcs = self.counts, crcs

    def _packed(self, start: Counts) -> tuple[bytes, bytes]:
        """All entries from ``start`` on, as the files have them."""
        offsets = zip(self._by_offset()[start.offsets :], self._positions[start.offsets :], strict=True)
        times = zip(self._by_time()[start.times :], self._time_offsets[start.times :], strict=True)
        return (
            b"".join(_OFFSET_ENTRY.pack(*entry) for entry in offsets),
            b"".join(_TIME_ENTRY.pack(*entry) for entry in times),
        )

    def _write_checks(self, crcs: tuple[int, int]) -> None:
        self._disk.write(self.paths[2], 0, _CHECKS.pack(self.counts.offsets, crcs[0], self.counts.times, crcs[1]))

    def _cut(self, counts: Counts) -> None:
        """Have no more entries than these."""
        offsets, times = self._by_offset(), self._by_time()
        del offsets[counts.offsets :], self._positions[counts.offsets :]
        del times[counts.times :], self._time_offsets[counts.times :]
        self.last_time = (times[-1], self._base + self._time_offsets[-1]) if times else (NO_TIMESTAMP, -1)
        self._set_counts(*counts)
        packed = self._packed(Counts(0, 0))
        self._stored, self._crcs = counts, (crc32c(packed[0]), crc32c(packed[1]))
        self._disk.unlink(self.paths[2])  # last written, below: a kill in between leaves indexes without checksums
        for path, size in zip(
            self.paths[:2], (counts.offsets * _OFFSET_ENTRY.size, counts.times * _TIME_ENTRY.size), strict=True
        ):
            if self._disk.exists(path):
                self._disk.truncate(path, size)
        self._write_checks(self._crcs)

    # -- looking up

    def before(self, offset: int) -> tuple[int, int | None]:
        """The position of a batch that is not behind the one with ``offset``, and its last offset, if it has an entry;
        otherwise 0 and ``None``."""
        offsets = self._by_offset()
        return self._entry(bisect_right(offsets, offset - self._base) - 1)

    def behind(self, offset: int, size: int) -> int | None:
        """The last offset of a batch that lies behind ``size`` bytes from the one with ``offset``; ``None``: it is not
        known of any."""
        offsets = self._by_offset()
        entry = bisect_left(offsets, offset - self._base)
        if entry < len(offsets):
            entry = bisect_left(self._positions, self._positions[entry] + size)
        return self._base + offsets[entry] if entry < len(offsets) else None

    def before_position(self, position: int) -> tuple[int, int | None]:
        """As `before`, of a batch at ``position`` or before it."""
        self._by_offset()
        return self._entry(bisect_right(self._positions, position) - 1)

    def before_time(self, timestamp: int) -> int:
        """A position: batches before it have no record with ``timestamp`` or a later one."""
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
