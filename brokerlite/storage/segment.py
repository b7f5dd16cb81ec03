"""One segment of a partition: its log file and the two indexes beside it.

Rules:
- A batch is written to the log file first and becomes visible when `size` grows; a write that fails leaves no trace.
- Every `index_interval_bytes` of log one entry goes into each index: (last offset of a batch, where it begins), and
  (largest timestamp so far, last offset of the first batch that has it), which must grow. When a segment is sealed,
  its largest timestamp is the last time entry.
- Offsets have no gaps (nothing is compacted yet), which shows damage to a base offset: the CRC does not cover it.
- Indexes have no checksum: they are made anew whenever there is a doubt.
- Files are opened when first needed, and those of a sealed segment closed after each read: a thousand idle partitions
  cost no descriptors.

Source: LogSegment.java, OffsetIndex.java, TimeIndex.java.
"""

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from ottla.codec.records import HEADER_SIZE, LENGTH_END, MAGIC, NO_TIMESTAMP, RecordBatch, parse_batch

_CHUNK = 2**20
_LOOK_AHEAD = 16 * 2**10
"""Bytes that a read takes beyond what was asked for, to find the batch among those behind the index entry."""
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_PLACE = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta at the start of a batch."""


class _File:
    """A file that is opened at its first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def write(self, data: bytes, position: int) -> None:
        descriptor = self._open()
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self._open(), size, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._open(), size)

    def sync(self) -> None:
        os.fsync(self._open())

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._descriptor


class Segment:
    """One segment.

    Attributes:
        base_offset: of its first record, and its name.
        end_offset: one past its last record.
        size: bytes of the log file.
        max_timestamp: the largest in it, in milliseconds; -1 for none.
    """

    def __init__(self, folder: Path, base_offset: int, index_interval_bytes: int) -> None:
        name = f"{base_offset:020}"
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.log_path = folder / f"{name}.log"
        self._log = _File(self.log_path)
        self._index = _File(folder / f"{name}.index")
        self._timeindex = _File(folder / f"{name}.timeindex")
        self._interval = index_interval_bytes
        self._since_entry = 0
        self._max_timestamp_offset = -1
        self._sealed = False
        self._clear_indexes()

    def _clear_indexes(self) -> None:
        self._offsets, self._positions = array("q"), array("q")
        self._times, self._time_offsets = array("q"), array("q")

    @property
    def files(self) -> list[Path]:
        return [self._log.path, self._index.path, self._timeindex.path]

    # -- life

    def create(self) -> None:
        """Make the empty files."""
        for path in self.files:
            path.touch()

    def load(self) -> bool:
        """Take the files as they are, as after a clean shutdown; whether they look whole.

        Only what lies behind the last index entry is read, to find the end.
        """
        try:
            self.size = self.log_path.stat().st_size
            self._load_indexes()
        except (OSError, ValueError):
            return False
        if self.size and not self._times:
            return False
        start = end = self._positions[-1] if self._positions else 0
        for position, batch in self.batches(start, verify=False):
            if position - start > self._interval:
                return False  # this batch should have an entry
            self._note(batch.last_offset, batch.max_timestamp)
            end = position + len(batch.data)
        self._since_entry = end - start
        return end == self.size

    def _load_indexes(self) -> None:
        """Raises `ValueError` if the indexes cannot be those of the log file."""
        index, timeindex = self._index.path.read_bytes(), self._timeindex.path.read_bytes()
        if len(index) % _OFFSET_ENTRY.size or len(timeindex) % _TIME_ENTRY.size:
            raise ValueError
        for offset, position in _OFFSET_ENTRY.iter_unpack(index):
            self._offsets.append(self.base_offset + offset)
            self._positions.append(position)
        for timestamp, offset in _TIME_ENTRY.iter_unpack(timeindex):
            self._times.append(timestamp)
            self._time_offsets.append(self.base_offset + offset)
        if self._positions and not 0 <= self._positions[-1] < self.size:
            raise ValueError
        if self._times:
            self.max_timestamp, self._max_timestamp_offset = self._times[-1], self._time_offsets[-1]

    def recover(self) -> Iterator[RecordBatch]:
        """Read every batch, check it, make the indexes anew, and cut the log at the first that is not valid.

        Iterate to the end: what comes out are the valid batches.
        """
        self.size = self.log_path.stat().st_size
        self.end_offset = self.base_offset
        self.max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, -1
        self._clear_indexes()
        self._index.truncate(0)
        self._timeindex.truncate(0)
        self._since_entry = valid = 0
        for position, batch in self.batches(verify=True):
            self._note(batch.last_offset, batch.max_timestamp)
            self._add_entries(position, batch.last_offset, len(batch.data))
            valid = position + len(batch.data)
            yield batch
        if valid < self.size:
            self._log.truncate(valid)
            self.size = valid
        self._add_time_entry()

    def seal(self) -> None:
        """Nothing will be appended any more."""
        self._add_time_entry()
        self._sealed = True
        self.close()

    def sync(self) -> None:
        for file in (self._log, self._index, self._timeindex):
            file.sync()

    def close(self) -> None:
        for file in (self._log, self._index, self._timeindex):
            file.close()

    # -- writing

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        """Store a batch; an `OSError` leaves everything as it was."""
        position = self.size
        before = self.max_timestamp, self._max_timestamp_offset, self.end_offset
        entries = len(self._positions), len(self._times)
        try:
            self._log.write(batch, position)
            self._note(last_offset, max_timestamp)
            self._add_entries(position, last_offset, len(batch))
        except OSError:
            self.max_timestamp, self._max_timestamp_offset, self.end_offset = before
            del self._offsets[entries[0] :], self._positions[entries[0] :]
            del self._times[entries[1] :], self._time_offsets[entries[1] :]
            self._log.truncate(position)
            self._index.truncate(entries[0] * _OFFSET_ENTRY.size)
            self._timeindex.truncate(entries[1] * _TIME_ENTRY.size)
            raise
        self.size = position + len(batch)

    def _note(self, last_offset: int, max_timestamp: int) -> None:
        self.end_offset = last_offset + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self._max_timestamp_offset = max_timestamp, last_offset

    def _add_entries(self, position: int, last_offset: int, size: int) -> None:
        """Index the batch at ``position`` if it is time."""
        if self._since_entry > self._interval:
            entry = _OFFSET_ENTRY.pack(last_offset - self.base_offset, position)
            self._index.write(entry, len(self._positions) * len(entry))
            self._offsets.append(last_offset)
            self._positions.append(position)
            self._add_time_entry()
            self._since_entry = 0
        self._since_entry += size

    def _add_time_entry(self) -> None:
        if self.max_timestamp > (self._times[-1] if self._times else NO_TIMESTAMP):
            entry = _TIME_ENTRY.pack(self.max_timestamp, self._max_timestamp_offset - self.base_offset)
            self._timeindex.write(entry, len(self._times) * len(entry))
            self._times.append(self.max_timestamp)
            self._time_offsets.append(self._max_timestamp_offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        """As `ottla.brokerlite.machines.log.Segments.read`."""
        start = self._position_before(offset)
        data = self._log.read(min(self.size - start, max_bytes + _LOOK_AHEAD), start)
        skip = 0
        while True:
            if len(data) - skip < HEADER_SIZE:
                start, skip = start + skip, 0
                data = self._log.read(min(self.size - start, max_bytes + _LOOK_AHEAD), start)
                if len(data) < HEADER_SIZE:
                    return b""
            base_offset, length, last_offset_delta = _PLACE.unpack_from(data, skip)
            if base_offset + last_offset_delta >= offset:
                break
            skip += LENGTH_END + length
            if skip > len(data):
                start, skip, data = start + skip, 0, b""
        want = max(max_bytes, LENGTH_END + length) if at_least_one else max_bytes
        if skip + want > len(data) and start + len(data) < self.size:
            data, skip = self._log.read(min(want, self.size - start - skip), start + skip), 0
        if self._sealed:
            self._log.close()
        return data if skip == 0 and len(data) <= want else data[skip : skip + want]

    def batch_at_time(self, timestamp: int) -> RecordBatch | None:
        """The first batch whose largest timestamp is ``timestamp`` or later."""
        entry = bisect_right(self._times, timestamp) - 1
        start = self._position_before(self._time_offsets[entry]) if entry >= 0 else 0
        for _, batch in self.batches(start, verify=False):
            if batch.max_timestamp >= timestamp:
                return batch
        return None

    def batches(self, start: int = 0, *, verify: bool) -> Iterator[tuple[int, RecordBatch]]:
        """(position, batch) from ``start`` on, up to the first that is not valid.

        Args:
            verify: compare each CRC, too.
        """
        try:
            yield from self._batches(start, verify)
        finally:
            if self._sealed:
                self._log.close()

    def _batches(self, start: int, verify: bool) -> Iterator[tuple[int, RecordBatch]]:
        position, need = start, HEADER_SIZE
        expected = self.base_offset if start == 0 else None
        while position + need <= self.size:
            data = self._log.read(min(max(_CHUNK, need), self.size - position), position)
            at, need = 0, HEADER_SIZE
            while at + need <= len(data):
                length = int.from_bytes(data[at + 8 : at + LENGTH_END], "big", signed=True)
                if data[at + 16] != MAGIC or length < HEADER_SIZE - LENGTH_END:
                    return
                need = LENGTH_END + length
                if at + need > len(data):
                    break
                batch = parse_batch(data, at)
                if expected not in (None, batch.base_offset) or (verify and not batch.crc_matches):
                    return
                yield position + at, batch
                expected = batch.next_offset
                at, need = at + need, HEADER_SIZE
            position += at

    def _position_before(self, offset: int) -> int:
        """Where a batch begins that is not behind the one with ``offset``."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def tail(self, offset: int, size: int) -> int:
        """A position at a batch that is not behind ``offset``, nor behind the last ``size`` bytes."""
        entry = bisect_right(self._positions, self.size - size) - 1
        return min(self._positions[entry] if entry >= 0 else 0, self._position_before(offset))
