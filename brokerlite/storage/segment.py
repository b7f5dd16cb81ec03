"""One segment of a partition: its log file and the indexes beside it.

Rules:
- A batch is written to the log file first and becomes visible when `size` grows; a write that fails leaves no trace.
- Every `index_interval_bytes` of log one entry goes into each index: (last offset of a batch, where it begins), and
  (largest timestamp so far, last offset of the first batch that has it), which must grow. The files get them when the
  segment is sealed, and at checkpoints. When a segment is sealed, its largest timestamp is the last time entry.
- A read steps from the index entry to its first batch by the heads alone, and then reads what it answers with and
  nothing else; much of it goes from the file to the socket, unread. It compares no CRC, nor does Kafka:
  clients do.

Source: LogSegment.java.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.brokerlite.machines.retention import SegmentState
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.indexes import Indexes
from ottla.brokerlite.storage.log_file import Damage, Damaged, Head, LogFile
from ottla.brokerlite.storage.txn_index import TxnIndex
from ottla.codec.frames import LARGE_FIELD
from ottla.codec.records import NO_TIMESTAMP, RecordBatch
from ottla.codec.wire import Part

_NO_HEAD = Head(-1, 0, -2, -2)
"""It is before no offset."""
LOG = ".log"
TXN_INDEX = ".txnindex"
_MAX_TIMESTAMP, _MAX_TIMESTAMP_AT = struct.Struct(">q"), 35
"""In a batch."""


class Segment:
    """One segment.

    Attributes:
        base_offset: of its first record, or before it; and its name.
        end_offset: one past its last record.
        first_timestamp: the largest of its first batch, in milliseconds, once it was looked for; -1 for none.
        max_timestamp: the largest in it, in milliseconds; -1 for none.
        ends_damaged: `recover` found damage behind the last record, so nothing may be appended.
        synced: bytes of the log file that the disk holds; -1 if it does not hold its name.
        suffix: of the files' names, while the segment is made by compaction.
        txn_index: of the transactions whose abort markers are in it.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        base_offset: int,
        index_interval_bytes: int,
        suffix: str = "",
    ) -> None:
        stem = folder / f"{base_offset:020}"
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.first_timestamp = self.max_timestamp = NO_TIMESTAMP
        self.ends_damaged = False
        self.synced = -1
        self.suffix = suffix
        self.log_path = stem.with_suffix(LOG + suffix)
        self.txn_index = TxnIndex(disk, stem.with_suffix(TXN_INDEX + suffix))
        self._disk = disk
        self._log = LogFile(disk, self.log_path, base_offset)
        self._indexes = Indexes(disk, stem, base_offset, suffix)
        self._interval = index_interval_bytes
        self._since_entry = 0
        self._max_timestamp_offset = -1
        self._read_last = _NO_HEAD
        """Its follower is likely to be read next, and would otherwise be looked for from the last index entry on."""
        self._torn = False
        """A write has failed and could not be undone."""

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self._log.size

    @property
    def index_size(self) -> int:
        """Bytes of the larger index."""
        return self._indexes.size

    @property
    def files(self) -> list[Path]:
        return [self.log_path, *self._indexes.paths, *self.txn_index.paths]

    def find_first_timestamp(self) -> None:
        """Read `first_timestamp`, unless it is known."""
        if self.first_timestamp < 0 < self.size:
            data = self._disk.read(self.log_path, _MAX_TIMESTAMP.size, _MAX_TIMESTAMP_AT)
            if len(data) == _MAX_TIMESTAMP.size:
                (self.first_timestamp,) = _MAX_TIMESTAMP.unpack(data)

    def state(self, *, first_timestamp: bool = False) -> SegmentState:
        """What retention and compaction go by; the first timestamp only if it is asked for."""
        if first_timestamp:
            self.find_first_timestamp()
        return SegmentState(
            self.base_offset,
            self.end_offset,
            self.size,
            self.index_size,
            self.first_timestamp if first_timestamp else NO_TIMESTAMP,
            self.max_timestamp,
            self._disk.modified(self.log_path) if self.size and self.max_timestamp < 0 else 0,
        )

    # -- life

    def create(self) -> None:
        """Make the empty log file; indexes come when they are needed."""
        self._disk.write_file(self.log_path, b"")

    def rename(self, suffix: str) -> None:
        """Give the files names with another suffix; the log file's changes last."""
        stem = self.log_path.parent / f"{self.base_offset:020}"
        self._indexes.rename(stem, suffix)
        self.txn_index.rename(stem.with_suffix(TXN_INDEX + suffix))
        path = stem.with_suffix(LOG + suffix)
        self._disk.rename(self.log_path, path)
        self.log_path = self._log.path = path
        self.suffix = suffix

    def ends_before(self, offset: int) -> None:
        """What claims to be at ``offset`` or behind it is damaged."""
        self._log.limit = min(self._log.limit, offset)

    def has_no_gap_behind(self, offset: int) -> None:
        """What claims to be at ``offset`` or behind it, and does not follow what is before it, is damaged."""
        self._log.gap_limit = offset

    def load(self) -> bool:
        """Take the files as they are, as after a clean shutdown; whether they look whole.

        Only what lies behind the last index entry is read, to find the end.
        """
        try:
            self._log.size = self._disk.size(self.log_path)
            start, last = self._indexes.load()
        except (OSError, ValueError):
            return False
        if not 0 <= start <= self.size or (self.size and not self._indexes.counts.times):
            return False
        self.max_timestamp, self._max_timestamp_offset = self._indexes.last_time
        end = start
        for position, batch in self._log.batches(start, self.base_offset, last):
            if position - start > self._interval:
                return False  # this batch should have an entry
            self._note(batch.last_offset, batch.max_timestamp)
            end = position + len(batch.data)
        self._since_entry = end - start
        return end == self.size

    def recover(self, on_disk: int = 0) -> Iterator[RecordBatch | Damage]:
        """Read what may not be on the disk as it was written, check it, and make the indexes of it again.

        Iterate to the end: what comes out are the whole batches and what lies between them; there the log may be `cut`.

        Args:
            on_disk: what lies before this offset was on the disk with its indexes, so it need not be read.
        """
        self._log.size = self._disk.size(self.log_path)
        start, last = self._resume(on_disk)
        self.end_offset = self.base_offset
        self.max_timestamp, self._max_timestamp_offset = self._indexes.last_time
        self._since_entry = 0
        for position, found in self._log.around(start, last):
            if isinstance(found, RecordBatch):
                self.ends_damaged = False
                self._note(found.last_offset, found.max_timestamp)
                if position == start and last is not None:
                    self._since_entry = len(found.data)
                else:
                    self._add_entries(position, found.last_offset, len(found.data))
            else:
                self.ends_damaged = True
                self._since_entry = self._interval + 1  # a read of what lies behind need not step over it
            yield found
        self.seal()

    def _resume(self, on_disk: int) -> tuple[int, int | None]:
        """Where to begin: at the last index entry before ``on_disk``, if the indexes are whole up to there."""
        try:
            start, last = self._indexes.keep_before(on_disk)
            head = None if last is None else self._log.head(start)
            if head is not None and head.last_offset == last:
                return start, last
        except (OSError, ValueError):
            pass
        self._indexes.clear()
        return 0, None

    def cut(self, position: int) -> None:
        """Have the log end there, before any damage behind it."""
        self._disk.truncate(self.log_path, position)
        self._log.size = position
        self._read_last = _NO_HEAD
        self.ends_damaged = False

    def seal(self) -> None:
        """Nothing will be appended any more; an `OSError` leaves the log file as it is."""
        self._add_time_entry()
        self.write_indexes()

    def write_indexes(self) -> None:
        """Have the indexes' files hold what is known so far."""
        self._indexes.write()

    # -- writing

    def append(self, batch: RecordBatch) -> None:
        """Store a batch, as its `parts` are; an `OSError` leaves everything as it was."""
        if self._torn:
            self._mend()
        if self._since_entry > self._interval:
            self._indexes.prepare()
        position, size, last_offset = self._log.size, len(batch.data), batch.last_offset
        try:
            self._disk.write(self.log_path, position, *batch.parts)
        except OSError:
            self._torn = True
            self._mend()
            raise
        if not position:
            self.first_timestamp = batch.max_timestamp
        self._note(last_offset, batch.max_timestamp)
        self._add_entries(position, last_offset, size)
        self._log.size = position + size

    def _mend(self) -> None:
        """Remove what a write that failed has left; tried again before the next one."""
        if self._disk.exists(self.log_path):
            self._disk.truncate(self.log_path, self.size)
        self._torn = False

    def _note(self, last_offset: int, max_timestamp: int) -> None:
        self.end_offset = last_offset + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self._max_timestamp_offset = max_timestamp, last_offset

    def _add_entries(self, position: int, last_offset: int, size: int) -> None:
        """Index the batch at ``position`` if it is time."""
        if self._since_entry > self._interval:
            self._indexes.add(last_offset, position)
            self._add_time_entry()
            self._since_entry = 0
        self._since_entry += size

    def _add_time_entry(self) -> None:
        self._indexes.add_time(self.max_timestamp, self._max_timestamp_offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> Part | None:
        """As `ottla.brokerlite.machines.log.Segments.read`; ``None`` if no record here has ``offset`` or a later one.

        Raises:
            Damaged: the batch with ``offset`` is not there, or not whole.
        """
        first = self._locate(offset)
        if first is None:
            return None
        if up_to is not None and first.base_offset >= up_to:
            return b""
        if first.size > max_bytes and not at_least_one:
            return b""  # to Java's consumer a piece of the first batch alone is an error
        end = self.size if up_to is None or up_to >= self.end_offset else self._where_begins(up_to)
        want = min(max(max_bytes, first.size) if at_least_one else max_bytes, end - first.position)
        read = self._disk.read if want < LARGE_FIELD else self._disk.range
        return read(self.log_path, want, first.position)

    def bound(self, offset: int, size: int) -> int:
        """As `ottla.brokerlite.machines.log.Segments.bound`."""
        behind = self._indexes.behind(offset, size)
        return self.end_offset if behind is None else behind

    def _locate(self, offset: int) -> Head | None:
        """The first batch that reaches ``offset``.

        Raises:
            Damaged: it is not there, or not whole.
        """
        start, last = self._indexes.before(offset)
        reads_on = offset == self._read_last.last_offset + 1
        try:
            for head in self._log.behind(self._read_last) if reads_on else self._log.heads(start, last):
                if head.last_offset >= offset:
                    follower = self._log.head(head.end) if head.end < self.size else None
                    if head.end < self.size and (follower is None or follower.base_offset <= head.last_offset):
                        raise Damaged(head.position)  # one of the two: the CRCs tell
                    self._read_last = head
                    return head
        except Damaged as damaged:
            return self._locate_around(offset, start, last, damaged)
        return None

    def _locate_around(self, offset: int, start: int, last: int | None, damaged: Damaged) -> Head:
        """As `_locate`, where there was damage on the way, perhaps to another batch; it is as slow as the CRCs."""
        lost = False
        for position, found in self._log.around(start, last):
            if isinstance(found, Damage):
                lost = True
            elif found.last_offset < offset:
                lost = False
            elif found.base_offset > offset and lost:
                break
            else:
                return Head(position, len(found.data), found.base_offset, found.last_offset)
        raise damaged

    def _where_begins(self, offset: int) -> int:
        """The position of the first batch that begins at ``offset`` or behind it, or of damage before it."""
        start, last = self._indexes.before(offset)
        try:
            return next(
                (head.position for head in self._log.heads(start, last) if head.base_offset >= offset), self.size
            )
        except Damaged as damaged:
            return damaged.position

    def since(self, timestamp: int) -> Iterator[tuple[int, RecordBatch | Damage]]:
        """As `around`: the batches whose largest timestamp is ``timestamp`` or later, and damage on the way there."""
        if self.max_timestamp >= timestamp:
            for position, found in self.around(self._indexes.before_time(timestamp)):
                if isinstance(found, Damage) or found.max_timestamp >= timestamp:
                    yield position, found

    def whole(self, start: int = 0) -> Iterator[RecordBatch]:
        """Every whole batch from ``start`` on, which is 0 or the position of an index entry."""
        return (found for _, found in self.around(start) if isinstance(found, RecordBatch))

    def around(self, start: int = 0) -> Iterator[tuple[int, RecordBatch | Damage]]:
        """As `LogFile.around`."""
        entry, last = self._indexes.before_position(start)
        return self._log.around(start, last if entry == start else None)

    def tail(self, offset: int, size: int) -> int:
        """A position at a batch that is not behind ``offset``, nor behind the last ``size`` bytes."""
        return min(self._indexes.before_position(self.size - size)[0], self._indexes.before(offset)[0])


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """Of the last of ``segments`` that begins at ``offset`` or before it; 0 if none does."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
