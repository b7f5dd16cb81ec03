"""The log of one partition: accepts batches, assigns offsets, and returns records to readers.

Rules:
- `validation` has validated a produced record set before; only its producer is checked here.
- A duplicate of a remembered batch is answered with its original offset and not written.
- With one replica everything stored is committed: the high watermark is the end offset. The last stable offset, up to
  which read_committed reads, is where the oldest open transaction begins, or else the high watermark.
- Batches of the broker itself (transaction markers, records of internal topics) are not validated.
- `PartitionLog` decides and a `Segments` stores. It is handed in, so nothing here depends on files.

Source: UnifiedLog.java (append).
"""

import operator
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.partitions.compaction import LastBatch, Round
from ottla.brokerlite.machines.partitions.leader_epochs import LeaderEpochs
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.machines.partitions.retention import ActiveSegment, SegmentState, is_full
from ottla.codec.records import (
    BatchBuilder,
    Record,
    RecordBatch,
    parse_batch,
)
from ottla.codec.rewrite import stamped
from ottla.codec.stored.control import ABORT, COMMIT, ControlRecord, EndTxnMarker, build_control
from ottla.codec.stored.indexes import AbortedTxn
from ottla.codec.wire import Buffer, Part
from ottla.errors import (
    BrokerError,
    OffsetOutOfRange,
    PolicyViolation,
)

IMPLICIT_SINCE = 12
"""The first version of Produce that adds the partition to the transaction (KIP-890)."""
HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for the high watermark."""

_NOTHING = memoryview(b"")


class CompactionRound(Protocol):
    """A round of compaction on the disk."""

    def stop(self) -> None:
        """End the round soon, at any time; the remaining segments stay unchanged."""

    def job(self) -> Job:
        """Return the job of the round. An `OSError` ends it; segments replaced until then stay replaced."""


class Segments(Protocol):
    """Stores a partition's batches, in order and in segments; the last segment is the active one."""

    @property
    def epochs(self) -> LeaderEpochs: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """One past the last record."""

    @property
    def size(self) -> int:
        """Bytes of all batches."""

    @property
    def damaged_offset(self) -> int:
        """The last offset at which records are known to be damaged or missing, -1 for none; `batches` looks at all."""

    def append(self, batch: RecordBatch) -> None:
        """Store the `parts` of a batch at the end.

        Raises:
            KafkaStorageError: the disk refused; nothing is stored.
        """

    def roll(self, producers: Producers) -> None:
        """Begin a new active segment at the end offset, with a snapshot of ``producers``.

        Raises:
            KafkaStorageError: the disk refused; the old segment stays active.
        """

    @property
    def synced_offset(self) -> int:
        """Records before this offset are on disk, not only in the page cache."""

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Index an aborted transaction; its marker, at ``entry.last_offset``, is the next batch to be stored.

        Raises:
            KafkaStorageError: the disk refused; the index is unchanged.
        """

    def drop_aborted(self, entry: AbortedTxn) -> None:
        """Remove the last entry that was added, because its marker could not be stored."""

    def aborted(self, first_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """Return the aborted transactions that a reader of ``first_offset`` up to before ``upper_bound`` needs.

        Source: LogSegment.java and LocalLog.java (collectAbortedTransactions).

        Raises:
            KafkaStorageError: the disk refused.
        """

    def bound(self, offset: int, size: int) -> int:
        """Return an offset after all records in the ``size`` bytes read at ``offset``: an upper bound, from the index.

        Source: LogSegment.java (fetchUpperBoundOffset).

        Raises:
            KafkaStorageError: the disk refused.
        """

    cleaned_up_to: int
    """The offset at which the last round of compaction ended; -1: there was none."""

    def states(self, *, first_timestamps: bool = False) -> list[SegmentState]:
        """Return the states of all segments; the last is the active one.

        Args:
            first_timestamps: include the first timestamps, which may have to be read from disk.

        Raises:
            KafkaStorageError: the disk refused.
        """

    @property
    def active(self) -> ActiveSegment:
        """The active segment."""

    def begin_flush(self) -> Work:
        """Return work that syncs everything stored before this call; it may run while more is stored."""

    def compact(
        self, due: Round, settings: LogSettings, producers: Mapping[int, LastBatch], now: int
    ) -> CompactionRound:
        """Return a round of compaction, not started yet.

        Args:
            producers: the active producers, by id.
            now: milliseconds since 1970.
        """

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> Part:
        """Return the bytes of one segment, from the batch with ``offset`` on, or from the next batch if there is none.

        CRCs are not checked: readers do that. A large range of bytes is not read into memory.

        Args:
            max_bytes: the most bytes to return; the last batch may be cut, but not the first.
            at_least_one: return the first batch even if it is larger than that.
            up_to: an offset; batches that begin at it or after it are not returned.

        Raises:
            CorruptMessage: the batch with ``offset`` is lost, or so damaged that its bytes cannot be returned.
            KafkaStorageError: the disk refused.
        """

    def batches(self) -> Iterator[RecordBatch]:
        """Yield every whole batch; damage between batches is logged.

        Raises:
            KafkaStorageError: the disk refused.
        """

    def batches_since(self, timestamp: int) -> Iterator[RecordBatch]:
        """Yield the batches whose largest timestamp is ``timestamp`` (milliseconds) or later, in order.

        Raises:
            KafkaStorageError: the disk refused.
        """

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the log, in milliseconds; -1 for none."""


class Appended(NamedTuple):
    """The result of an append."""

    base_offset: int
    append_time: int
    """The append time in milliseconds if the topic uses LogAppendTime, else -1."""
    size: int
    """Bytes that were added; 0 for a duplicate."""


class LogTraffic(NamedTuple):
    """What was appended and fetched since the start.

    Attributes:
        records_in: records and markers.
        bytes_in: their bytes.
        bytes_out: bytes that Fetch responses have had.
    """

    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def plus(self, other: "LogTraffic") -> "LogTraffic":
        return LogTraffic(*map(operator.add, self, other))


class PartitionLog:
    """Appends to and reads from one partition's log.

    Attributes:
        name: ``topic-partition``, for messages.
        settings: of the topic; `configure` may replace them at any time.
        segments: stores the batches.
    """

    def __init__(
        self, name: str, segments: Segments, producers: Producers | None = None, settings: LogSettings | None = None
    ) -> None:
        self.name = name
        self.settings = settings or LogSettings()
        self.producers = producers or Producers()
        self.segments = segments
        self._records_in = self._bytes_out = 0
        self._written = 0
        """Bytes appended since the start."""
        self._begun = dict.fromkeys(self.producers.ongoing, 0)
        """Producer id -> the bytes appended since the start when its open transaction began."""

    def configure(self, settings: LogSettings) -> None:
        """Use other settings from now on."""
        self.settings = settings

    def count_read(self, size: int) -> None:
        """Take note that a Fetch response has so many bytes of this log."""
        self._bytes_out += size

    @property
    def traffic(self) -> LogTraffic:
        return LogTraffic(self._records_in, self._written, self._bytes_out)

    @property
    def epochs(self) -> LeaderEpochs:
        return self.segments.epochs

    @property
    def start_offset(self) -> int:
        return self.segments.start_offset

    @property
    def end_offset(self) -> int:
        return self.segments.end_offset

    @property
    def unflushed(self) -> int:
        """The number of offsets that may not be on disk yet."""
        return self.end_offset - self.segments.synced_offset

    @property
    def high_watermark(self) -> int:
        return self.segments.end_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(self.start_offset, min(unstable, self.high_watermark))

    def bytes_below(self, *, stable: bool) -> int:
        """Return the bytes appended since the start up to the high watermark, or up to the last stable offset."""
        return next(iter(self._begun.values()), self._written) if stable else self._written

    def append(self, batch: RecordBatch, timestamp: int, now: float = 0.0) -> Appended:
        """Append a produced batch, which must be valid for the `settings`.

        Args:
            timestamp: the time, in milliseconds since 1970; with LogAppendTime the records get it.
            now: seconds of the broker's clock.

        Raises:
            InvalidProducerEpoch, OutOfOrderSequenceNumber, InvalidTxnState: see `Producers`.
            KafkaStorageError: the disk refused.
        """
        stamps = self.settings.log_append_time
        if batch.producer_id >= 0:
            if (stored := self.producers.duplicate(batch)) is not None:
                return Appended(stored.first_offset, stored.timestamp, 0)
            self.producers.check(batch)
        if stamps:
            return self._store(parse_batch(stamped(batch, timestamp)), now, timestamp)
        return self._store(batch, now)

    def attempt(self, batch: RecordBatch, version: int) -> bool:
        """Return whether a produced batch would begin a transaction here; if so, the coordinator must be asked first.

        Raises:
            InvalidProducerEpoch: see `Producers`.
        """
        if batch.producer_id < 0 or not batch.transactional:
            return False
        if not self.producers.begins(batch.producer_id, batch.producer_epoch):
            return False
        self.producers.attempt(batch, rises=version >= IMPLICIT_SINCE)
        return True

    def append_own(self, batch: Buffer, now: float = 0.0) -> Appended:
        """Append a batch that the broker has made itself.

        Raises:
            KafkaStorageError: the disk refused.
        """
        return self._store(parse_batch(batch), now)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        timestamp: int,
        now: float = 0.0,
        newer: bool = False,
    ) -> Appended:
        """Write the marker of a transaction.

        Args:
            timestamp: the time, in milliseconds since 1970.
            newer: see `Producers.check_marker`.

        Raises:
            InvalidProducerEpoch, TransactionCoordinatorFenced: see `Producers.check_marker`.
            KafkaStorageError: the disk refused.
        """
        self.producers.check_marker(producer_id, epoch, coordinator_epoch, newer=newer)
        marker = ControlRecord(COMMIT if commit else ABORT, 0, EndTxnMarker(coordinator_epoch=coordinator_epoch))
        builder = BatchBuilder()
        builder.append(timestamp, *build_control(marker))
        batch = parse_batch(
            builder.build(producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)
        )
        ending = None if commit else self.producers.ending(producer_id, self.end_offset, aborted=True)
        if ending is None:
            return self._store(batch, now)
        entry = ending.index_entry()
        self.segments.add_aborted(
            entry
        )  # before the marker: readers take a transaction that is not indexed as committed
        try:
            return self._store(batch, now)
        except BrokerError:
            self.segments.drop_aborted(entry)
            raise

    def _store(self, batch: RecordBatch, now: float, append_time: int = -1) -> Appended:
        """Append a batch; only its offset and leader epoch are changed."""
        segments = self.segments
        active = segments.active
        batch.base_offset, batch.partition_leader_epoch = active.end_offset, segments.epochs.current
        if is_full(active, self.settings, self.name, batch):
            segments.roll(self.producers)
        segments.append(batch)
        if batch.producer_id >= 0:
            self._remember(batch, now)
        size = len(batch.data)
        self._written += size
        self._records_in += batch.count
        return Appended(batch.base_offset, append_time, size)

    def _remember(self, batch: RecordBatch, now: float) -> None:
        completed = self.producers.record(batch, now)
        if batch.transactional and not batch.control:
            self._begun.setdefault(batch.producer_id, self._written)
        if completed is None:
            return
        self._begun.pop(completed.producer_id, None)

    def aborted(self, offset: int, size: int) -> Sequence[AbortedTxn]:
        """Return the aborted transactions of the ``size`` bytes read at ``offset``, and perhaps some later ones."""
        return self.segments.aborted(offset, min(self.last_stable_offset, self.segments.bound(offset, size)))

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = False, up_to: int | None = None) -> Part:
        """Return batches from the one with ``offset`` on; the last may be cut.

        Args:
            max_bytes, at_least_one: as in `Segments.read`; with 0 and ``False`` the result is empty.
            up_to: an offset; batches that begin at it or after it are not returned.

        Raises:
            OffsetOutOfRange: ``offset`` is before the start or after the end.
            CorruptMessage, KafkaStorageError: as `Segments.read`.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within {self.start_offset} to {self.end_offset} of {self.name}"
            )
        if offset >= (self.end_offset if up_to is None else up_to):
            return _NOTHING
        if max_bytes <= 0 and not at_least_one:
            return _NOTHING
        return self.segments.read(offset, max_bytes, at_least_one, up_to)

    def batches(self) -> Iterator[RecordBatch]:
        """Yield every whole batch, as `Segments.batches`."""
        return self.segments.batches()

    def divergence(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Detect whether a reader has read records that are no longer in this log (KIP-595).

        Args:
            epoch: the leader epoch of the last record that the reader has; -1: unknown.
            offset: the offset that it wants to read next.

        Returns:
            The last common epoch and its end offset, or ``None`` if the reader's log does not diverge.

        Raises:
            OffsetOutOfRange: the log has neither ``epoch`` nor a later one.
        """
        if epoch < 0:
            return None
        known, end = self.epochs.end_of(epoch, self.end_offset)
        if end < 0:
            raise OffsetOutOfRange(f"{self.name} has no leader epoch {epoch} or later")
        return (known, end) if known < epoch or end < offset else None

    def roll(self) -> None:
        """Begin a new segment if the active one is not empty.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if self.segments.active.size:
            self.segments.roll(self.producers)

    def start_without(self, offset: int) -> int:
        """Return the start offset of the log once the records before ``offset`` (-1: the high watermark) are deleted.

        Raises:
            PolicyViolation: the topic's cleanup policy does not allow deleting.
            OffsetOutOfRange: the offset is negative or after the high watermark.
        """
        if not self.settings.delete:
            raise PolicyViolation(f'{self.name} is only compacted: its cleanup.policy has no "delete"')
        start = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= start <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{offset} is not an offset of {self.name}, whose high watermark is {self.high_watermark}"
            )
        return max(start, self.start_offset)

    def in_active_segment(self, offset: int) -> bool:
        """Return whether ``offset`` is in the active segment, where more records may be appended after a read."""
        return offset >= self.segments.active.base_offset

    def first_at(self, timestamp: int) -> Generator[Work, None, Record | None]:
        """Find the first record whose timestamp is ``timestamp`` (milliseconds) or later.

        Yields the searches of batches, which run in a thread.

        Raises:
            DecodeError: a batch cannot be read.
        """
        behind = -1
        found: list[Record] = []
        while not found:
            # Looked up again each time: the segments may change while a thread works.
            behind = max(behind, self.start_offset - 1)
            batches = self.segments.batches_since(timestamp)
            if (batch := next((each for each in batches if each.last_offset > behind), None)) is None:
                return None
            yield partial(_look, batch, timestamp, self.start_offset, found)
            behind = batch.last_offset
        return found[0]

    def of_max_timestamp(self) -> Generator[Work, None, Record | None]:
        """Find the first record with the largest timestamp, as `first_at` does."""
        largest = self.segments.max_timestamp
        return (yield from self.first_at(largest)) if largest >= 0 else None


def _look(batch: RecordBatch, timestamp: int, start_offset: int, found: list[Record]) -> None:
    """Add to ``found`` the first record at or after both ``timestamp`` and ``start_offset``."""
    found += islice(
        (each for each in batch.records() if each.timestamp >= timestamp and each.offset >= start_offset), 1
    )
