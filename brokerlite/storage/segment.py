"""One segment of a partition: its log file and the two indexes beside it.

Rules:
- A batch is written to the log file first and becomes visible when `size` grows; a write that fails leaves no trace.
- Every `index_interval_bytes` of log one entry goes into each index: (last offset of a batch, where it begins), and
  (largest timestamp so far, last offset of the first batch that has it), which must grow. When a segment is sealed,
  its largest timestamp is the last time entry.
- Offsets have no gaps (nothing is compacted yet), which shows damage to a base offset: the CRC does not cover it.
- What is no whole batch is `Damage`. It ends where a batch is whole again: its CRC matches, and its offset may follow.
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
from typing import NamedTuple

from ottla.codec.records import HEADER_SIZE, LENGTH_END, MAGIC, NO_TIMESTAMP, RecordBatch, parse_batch

_CHUNK = 2**20
_LOOK_AHEAD = 16 * 2**10
"""Bytes that a read takes beyond what was asked for, to find the batch among those behind the index entry."""
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_PLACE = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta at the start of a batch."""
_MAGIC_AT = 16
_LAST_DELTA = slice(23, 27)
_LEAST_LENGTH = HEADER_SIZE - LENGTH_END
_FARTHEST = 2**31
"""Offsets that one damage may have swallowed; a batch that claims to be farther away is none."""


class Damage(NamedTuple):
    """Bytes that are no whole batch."""

    position: int
    size: int
    offset: int
    """The first that is lost, as far as the whole batches before tell."""
    next_offset: int | None
    """Of the whole batch behind it, if there is one."""
    torn: bool
    """It is merely the end of a batch that is missing, or room that was never written to; nothing lies behind it."""


class Damaged(Exception):
    """A read meets damage.

    Attributes:
        position: where in the log file.
        data: what was asked for all the same, if only a CRC does not match: readers compare it, too.
    """

    def __init__(self, position: int, data: bytes = b"") -> None:
        super().__init__(position)
        self.position = position
        self.data = data


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
        ends_damaged: `recover` found damage behind the last record, so nothing may be appended.
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
        self.ends_damaged = False
        self._since_entry = 0
        self._max_timestamp_offset = -1
        self._sealed = False
        self._found: dict[int, tuple[int, Damage]] = {}
        """Position -> the size at that time, and the damage there: looking for its end may take long."""
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
        for position, batch in self.batches(start, self._expected_at(start)):
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

    def recover(self) -> Iterator[RecordBatch | Damage]:
        """Read everything, check it, and make the indexes anew.

        Iterate to the end: what comes out are the whole batches and what lies between them; there the log may be `cut`.
        """
        self.size = self.log_path.stat().st_size
        self.end_offset = self.base_offset
        self.max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, -1
        self._clear_indexes()
        self._index.truncate(0)
        self._timeindex.truncate(0)
        self._since_entry = 0
        for position, found in self.around():
            if isinstance(found, RecordBatch):
                self.ends_damaged = False
                self._note(found.last_offset, found.max_timestamp)
                self._add_entries(position, found.last_offset, len(found.data))
            else:
                self.ends_damaged = True
                self._since_entry = self._interval + 1  # who wants what lies behind need not read over it
            yield found
        self._add_time_entry()

    def cut(self, position: int) -> None:
        """Have the log end there, before any damage behind it."""
        self._log.truncate(position)
        self.size = position
        self.ends_damaged = False

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
        """As `ottla.brokerlite.machines.log.Segments.read`.

        Raises:
            Damaged: the batch with ``offset`` is not there, or not whole.
        """
        try:
            return self._read(offset, max_bytes, at_least_one)
        except Damaged as damaged:
            return self._read_around(offset, max_bytes, at_least_one, damaged)
        finally:
            if self._sealed:
                self._log.close()

    def _read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        start, last = self._entry_before(offset)
        expected = None if start else self.base_offset
        data = self._log.read(min(self.size - start, max_bytes + _LOOK_AHEAD), start)
        skip = 0
        while True:
            if len(data) - skip < HEADER_SIZE:
                start, skip = start + skip, 0
                data = self._log.read(min(self.size - start, max_bytes + _LOOK_AHEAD), start)
            if len(data) < HEADER_SIZE:
                raise Damaged(start)
            base_offset, length, last_offset_delta = _PLACE.unpack_from(data, skip)
            last_offset = base_offset + last_offset_delta
            if (
                data[skip + _MAGIC_AT] != MAGIC
                or not _LEAST_LENGTH <= length <= self.size - start - skip - LENGTH_END
                or expected not in (None, base_offset)
                or last not in (None, last_offset)
            ):
                raise Damaged(start + skip)
            if last_offset >= offset:
                break
            expected, last = last_offset + 1, None
            skip += LENGTH_END + length
            if skip > len(data):
                start, skip, data = start + skip, 0, b""
        position = start + skip
        want = max(max_bytes, LENGTH_END + length) if at_least_one else max_bytes
        if skip + want > len(data) and start + len(data) < self.size:
            data, skip = self._log.read(min(want, self.size - position), position), 0
        if skip or len(data) > want:
            data = data[skip : skip + want]
        if len(data) >= LENGTH_END + length and not parse_batch(data).crc_matches:
            raise Damaged(position, data)
        return data

    def _read_around(self, offset: int, max_bytes: int, at_least_one: bool, damaged: Damaged) -> bytes:
        """As `read`, where there was damage on the way, perhaps to another batch; it is as slow as the CRCs."""
        for position, found in self.around(self._entry_before(offset)[0]):
            if isinstance(found, RecordBatch) and found.last_offset >= offset:
                if found.base_offset > offset:
                    break
                want = max(max_bytes, len(found.data)) if at_least_one else max_bytes
                return self._log.read(min(want, self.size - position), position)
        raise damaged

    def batch_at_time(self, timestamp: int) -> RecordBatch | None:
        """The first batch whose largest timestamp is ``timestamp`` or later."""
        entry = bisect_right(self._times, timestamp) - 1
        start = self._entry_before(self._time_offsets[entry])[0] if entry >= 0 else 0
        return next((batch for batch in self.whole(start) if batch.max_timestamp >= timestamp), None)

    def whole(self, start: int = 0) -> Iterator[RecordBatch]:
        """Every whole batch from ``start`` on."""
        return (found for _, found in self.around(start) if isinstance(found, RecordBatch))

    def around(self, start: int = 0) -> Iterator[tuple[int, RecordBatch | Damage]]:
        """(position, whole batch) from ``start`` on, and (position, damage) where they do not follow each other.

        Args:
            start: 0, or the position of an index entry.
        """
        position, expected = start, self._expected_at(start)
        while position < self.size:
            for at, batch in self.batches(position, expected):
                yield at, batch
                position, expected = at + len(batch.data), batch.next_offset
            if position < self.size:
                damage = self._damage(position, expected)
                yield position, damage
                position, expected = position + damage.size, damage.next_offset or expected

    def batches(self, start: int, expected: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """(position, batch) from ``start`` on, up to the first that is not whole.

        Args:
            expected: the offset of the first batch, if it is known.
        """
        try:
            yield from self._batches(start, expected)
        finally:
            if self._sealed:
                self._log.close()

    def _batches(self, start: int, expected: int | None) -> Iterator[tuple[int, RecordBatch]]:
        position, need = start, HEADER_SIZE
        while position + need <= self.size:
            data = self._log.read(min(max(_CHUNK, need), self.size - position), position)
            at, need = 0, HEADER_SIZE
            while at + need <= len(data):
                length = int.from_bytes(data[at + 8 : at + LENGTH_END], "big", signed=True)
                if data[at + _MAGIC_AT] != MAGIC or length < _LEAST_LENGTH:
                    return
                need = LENGTH_END + length
                if at + need > len(data):
                    break
                batch = parse_batch(data, at)
                if expected not in (None, batch.base_offset) or not batch.crc_matches:
                    return
                yield position + at, batch
                expected = batch.next_offset
                at, need = at + need, HEADER_SIZE
            position += at

    def _damage(self, position: int, offset: int) -> Damage:
        """What is wrong at ``position``, where a batch with ``offset`` or a later one should stand."""
        if (known := self._found.get(position)) is not None and known[0] == self.size:
            return known[1]
        head = self._log.read(HEADER_SIZE, position)
        length = int.from_bytes(head[8:LENGTH_END], "big", signed=True)
        framed = len(head) == HEADER_SIZE and head[_MAGIC_AT] == MAGIC and length >= _LEAST_LENGTH
        behind = position + LENGTH_END + length
        if framed and behind < self.size and (next_offset := self._whole_at(behind, offset)) is not None:
            end = behind  # only what is in the batch is damaged; what looks like a batch there is a value
        else:
            end, next_offset = self._look_behind(position, offset)
        cut_short = len(head) < HEADER_SIZE or (framed and behind > self.size)
        torn = next_offset is None and (cut_short or self._is_blank(position))
        damage = Damage(position, end - position, offset, next_offset, torn)
        self._found[position] = self.size, damage
        return damage

    def _look_behind(self, position: int, offset: int) -> tuple[int, int | None]:
        """Where a whole batch begins behind ``position``, and its offset; the end of the file if there is none."""
        at = position + 1
        while at + HEADER_SIZE <= self.size:
            data = self._log.read(min(_CHUNK, self.size - at), at)
            magic = data.find(MAGIC, _MAGIC_AT)
            while magic >= 0:
                start = magic - _MAGIC_AT
                claimed = int.from_bytes(data[start : start + 8], "big", signed=True)
                if offset <= claimed <= offset + _FARTHEST and self._whole_at(at + start, offset) is not None:
                    return at + start, claimed
                magic = data.find(MAGIC, magic + 1)
            at += max(1, len(data) - _MAGIC_AT)
        return self.size, None

    def _whole_at(self, position: int, least: int) -> int | None:
        """The offset of the batch at ``position``, if it is whole and its offset not before ``least``."""
        _, batch = next(self.batches(position), (0, None))
        return batch.base_offset if batch and least <= batch.base_offset <= least + _FARTHEST else None

    def _is_blank(self, position: int) -> bool:
        while position < self.size:
            data = self._log.read(min(_CHUNK, self.size - position), position)
            if data.strip(b"\0"):
                return False
            position += len(data)
        return True

    def _entry_before(self, offset: int) -> tuple[int, int | None]:
        """Where a batch begins that is not behind the one with ``offset``, and its last offset, if the index has it."""
        entry = bisect_right(self._offsets, offset) - 1
        return (self._positions[entry], self._offsets[entry]) if entry >= 0 else (0, None)

    def _expected_at(self, position: int) -> int:
        """The offset that the batch at ``position`` should have, which no CRC covers."""
        entry = bisect_right(self._positions, position) - 1
        if entry < 0 or self._positions[entry] != position:
            return self.base_offset
        head = self._log.read(HEADER_SIZE, position)
        return self._offsets[entry] - int.from_bytes(head[_LAST_DELTA], "big", signed=True)

    def tail(self, offset: int, size: int) -> int:
        """A position at a batch that is not behind ``offset``, nor behind the last ``size`` bytes."""
        entry = bisect_right(self._positions, self.size - size) - 1
        return min(self._positions[entry] if entry >= 0 else 0, self._entry_before(offset)[0])
