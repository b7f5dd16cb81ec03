"""Stores one segment of a partition: its log file and the indexes beside it.

Rules:
- A batch is written to the log file first, and then indexed; a failed write leaves no trace.
- Every `index_interval_bytes` of log, each index gets one entry: (last offset of a batch, its position), and
  (largest timestamp so far, last offset of the first batch with it), which must grow. The entries are written to the
  files when the segment is sealed, and at checkpoints. The last time entry of a sealed segment has its largest
  timestamp.
- A read reads only the bytes of its answer; large answers go from the file to the socket without being read. Like
  Kafka, it does not check CRCs: clients do.

Source: LogSegment.java.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.brokerlite.machines.partitions.retention import SegmentState
from ottla.brokerlite.storage.batch_locator import BatchLocator
from ottla.brokerlite.storage.disk import Disk
from ottla.brokerlite.storage.indexes import Indexes
from ottla.brokerlite.storage.log_file import Damage, LogFile
from ottla.brokerlite.storage.txn_index import TxnIndex
from ottla.codec.frames import LARGE_FIELD
from ottla.codec.records import NO_TIMESTAMP, RecordBatch
from ottla.codec.wire import Part

LOG = ".log"
TXN_INDEX = ".txnindex"
_MAX_TIMESTAMP, _MAX_TIMESTAMP_AT = struct.Struct(">q"), 35
"""Its position in a batch."""


class Segment:
    """Reads and writes one segment.

    Attributes:
        base_offset: at most the offset of its first record; names the files.
        end_offset: one past its last record.
        first_timestamp: the largest timestamp of its first batch, in milliseconds; -1: none, or not looked up yet.
        max_timestamp: the largest timestamp in the segment, in milliseconds; -1 for none.
        ends_damaged: `recover` found damage after the last record, so nothing may be appended.
        synced: bytes of the log file that are on disk; -1 if not even its name is.
        suffix: of the files' names, while compaction builds the segment.
        txn_index: the aborted transactions whose markers are in this segment.
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
        self.txn_index = TxnIndex(disk, stem.with_suffix(TXN_INDEX + suffix))
        self._disk = disk
        self._log = LogFile(disk, stem.with_suffix(LOG + suffix), base_offset)
        self._indexes = Indexes(disk, stem, base_offset, suffix)
        self._locator = BatchLocator(self._log, self._indexes)
        self._interval = index_interval_bytes
        self._since_entry = 0
        self._max_timestamp_offset = -1

    @property
    def log_path(self) -> Path:
        return self._log.path

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
        """Return what retention and compaction need to know; the first timestamp only on request."""
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
        """Create the empty log file; index files are created when they are needed."""
        self._log.create()

    def rename(self, suffix: str) -> None:
        """Rename the files to another suffix, the log file last."""
        stem = self.log_path.parent / f"{self.base_offset:020}"
        self._indexes.rename(stem, suffix)
        self.txn_index.rename(stem.with_suffix(TXN_INDEX + suffix))
        self._log.rename(stem.with_suffix(LOG + suffix))
        self.suffix = suffix

    def ends_before(self, offset: int) -> None:
        """Treat batches that claim ``offset`` or a later one as damaged."""
        self._log.ends_before(offset)

    def has_no_gap_behind(self, offset: int) -> None:
        """Treat batches that claim ``offset`` or a later one, and come after a gap, as damaged."""
        self._log.has_no_gap_behind(offset)

    def load(self) -> bool:
        """Trust the files as they are, as after a clean shutdown; return whether they look whole.

        Reads only the log after the last index entry, to find its end.
        """
        try:
            self._log.open()
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
        """Read and check everything that may not have reached the disk, and rebuild its indexes.

        The caller must iterate to the end. It gets intact batches and the damage between them, and may `cut` the log
        there.

        Args:
            on_disk: the records before this offset were flushed with their indexes, so they need not be read.
        """
        self._log.open()
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
                # The next batch gets an index entry, so that reads need not step over the damage.
                self._since_entry = self._interval + 1
            yield found
        self.seal()

    def _resume(self, on_disk: int) -> tuple[int, int | None]:
        """Return where to begin: at the last index entry before ``on_disk``, if the indexes are whole up to there."""
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
        """Truncate the log at ``position``."""
        self._log.cut(position)
        self._locator.forget()
        self.ends_damaged = False

    def seal(self) -> None:
        """Complete the indexes: nothing will be appended any more. An `OSError` leaves the log file as it is."""
        self._add_time_entry()
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write the new index entries to the files."""
        self._indexes.write()

    def note_synced(self, size: int) -> None:
        """Notice that the first ``size`` bytes of the log file are on disk."""
        self.synced = max(self.synced, size)

    # -- writing

    def append(self, batch: RecordBatch) -> None:
        """Store the `parts` of a batch; an `OSError` leaves everything as it was."""
        if self._since_entry > self._interval:
            self._indexes.prepare()
        position, last_offset = self._log.append(batch), batch.last_offset
        if not position:
            self.first_timestamp = batch.max_timestamp
        self._note(last_offset, batch.max_timestamp)
        self._add_entries(position, last_offset, len(batch.data))

    def _note(self, last_offset: int, max_timestamp: int) -> None:
        self.end_offset = last_offset + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self._max_timestamp_offset = max_timestamp, last_offset

    def _add_entries(self, position: int, last_offset: int, size: int) -> None:
        """Index the batch at ``position`` if enough log lies behind the last entry."""
        if self._since_entry > self._interval:
            self._indexes.add(last_offset, position)
            self._add_time_entry()
            self._since_entry = 0
        self._since_entry += size

    def _add_time_entry(self) -> None:
        self._indexes.add_time(self.max_timestamp, self._max_timestamp_offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> Part | None:
        """Read as `ottla.brokerlite.machines.partitions.partition_log.Segments` does.

        ``None``: all is before ``offset``.

        Raises:
            Damaged: the batch with ``offset`` is missing or damaged.
        """
        first = self._locator.locate(offset)
        if first is None:
            return None
        if up_to is not None and first.base_offset >= up_to:
            return b""
        if first.size > max_bytes and not at_least_one:
            return b""  # Java's consumer treats a response with only a part of the first batch as an error
        end = self.size if up_to is None or up_to >= self.end_offset else self._locator.where_begins(up_to)
        want = min(max(max_bytes, first.size) if at_least_one else max_bytes, end - first.position)
        read = self._disk.read if want < LARGE_FIELD else self._disk.range
        return read(self.log_path, want, first.position)

    def bound(self, offset: int, size: int) -> int:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.bound`."""
        behind = self._indexes.behind(offset, size)
        return self.end_offset if behind is None else behind

    def since(self, timestamp: int) -> Iterator[tuple[int, RecordBatch | Damage]]:
        """Iterate as `around`, over batches whose largest timestamp is ``timestamp`` or later, and damage."""
        if self.max_timestamp >= timestamp:
            for position, found in self.around(self._indexes.before_time(timestamp)):
                if isinstance(found, Damage) or found.max_timestamp >= timestamp:
                    yield position, found

    def whole(self, start: int = 0) -> Iterator[RecordBatch]:
        """Iterate over the intact batches from ``start`` on, which is 0 or the position of an index entry."""
        return (found for _, found in self.around(start) if isinstance(found, RecordBatch))

    def around(self, start: int = 0) -> Iterator[tuple[int, RecordBatch | Damage]]:
        """See `LogFile.around`."""
        entry, last = self._indexes.before_position(start)
        return self._log.around(start, last if entry == start else None)

    def tail(self, offset: int, size: int) -> int:
        """Return a batch's position that is before both ``offset`` and the last ``size`` bytes, or at their start."""
        return min(self._indexes.before_position(self.size - size)[0], self._indexes.before(offset)[0])


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the last segment that begins at ``offset`` or before it; 0 if none does."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
