"""The two indexes of a segment: from offsets to positions in the log file, and from timestamps to offsets.

Rules:
- Indexes have no checksum: what does not fit is rebuilt from the log file.
- New entries are kept in memory until `Indexes.write`, many at once: without them a start reads the log instead.
- What they hold is read when it is first looked up, but for the last entries: a start costs two reads for a segment.

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
from ottla.codec.records import NO_TIMESTAMP

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class Counts(NamedTuple):
    """How many entries there are."""

    offsets: int
    times: int


class Indexes:
    """The indexes of one segment.

    Attributes:
        paths: of the two files.
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
        self._stored = self.counts
        """How many of them the files have."""
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
        for path in self.paths:
            if self._disk.exists(path):
                self._disk.truncate(path, 0)
        self.last_time = NO_TIMESTAMP, -1
        self._set_counts(0, 0)
        self._stored = self.counts
        self._offsets, self._positions = array("i"), array("i")
        self._times, self._time_offsets = array("q"), array("i")

    def load(self) -> tuple[int, int | None]:
        """Take the files as they are: position and last offset of the batch that the last entry is about.

        Without entries that is 0 and ``None``.

        Raises:
            ValueError: they cannot be whole.
            OSError: one is missing.
        """
        sizes = [self._disk.size(path) if self._disk.exists(path) else 0 for path in self.paths]
        if sizes[0] % _OFFSET_ENTRY.size or sizes[1] % _TIME_ENTRY.size:
            raise ValueError
        self._set_counts(sizes[0] // _OFFSET_ENTRY.size, sizes[1] // _TIME_ENTRY.size)
        self._stored = self.counts
        self._offsets = None if self.counts.offsets else array("i")
        self._times = None if self.counts.times else array("q")
        if self.counts.times:
            last = self._disk.read(self.paths[1], _TIME_ENTRY.size, sizes[1] - _TIME_ENTRY.size)
            timestamp, offset = _TIME_ENTRY.unpack(last)
            self.last_time = timestamp, self._base + offset
        if not self.counts.offsets:
            return 0, None
        last = self._disk.read(self.paths[0], _OFFSET_ENTRY.size, sizes[0] - _OFFSET_ENTRY.size)
        offset, position = _OFFSET_ENTRY.unpack(last)
        return position, self._base + offset

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
        offsets, times = self._stored
        new = zip(self._by_offset()[offsets:], self._positions[offsets:], strict=True)
        # Kafka's tool cannot read the one file without the other, so it is made without entries, too.
        self._disk.write(
            self.paths[0], offsets * _OFFSET_ENTRY.size, b"".join(_OFFSET_ENTRY.pack(*entry) for entry in new)
        )
        new = zip(self._by_time()[times:], self._time_offsets[times:], strict=True)
        self._disk.write(self.paths[1], times * _TIME_ENTRY.size, b"".join(_TIME_ENTRY.pack(*entry) for entry in new))
        self._stored = self.counts

    def _cut(self, counts: Counts) -> None:
        """Have no more entries than these."""
        offsets, times = self._by_offset(), self._by_time()
        del offsets[counts.offsets :], self._positions[counts.offsets :]
        del times[counts.times :], self._time_offsets[counts.times :]
        self.last_time = (times[-1], self._base + self._time_offsets[-1]) if times else (NO_TIMESTAMP, -1)
        self._set_counts(*counts)
        self._stored = counts
        for path, size in zip(
            self.paths, (counts.offsets * _OFFSET_ENTRY.size, counts.times * _TIME_ENTRY.size), strict=True
        ):
            if self._disk.exists(path):
                self._disk.truncate(path, size)

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


def _paths(stem: Path, suffix: str) -> tuple[Path, Path]:
    return stem.with_suffix(".index" + suffix), stem.with_suffix(".timeindex" + suffix)
