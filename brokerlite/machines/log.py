"""One partition: which batches it takes, at which offsets, and what a reader may see.

Rules:
- A produced record set comes as what `ottla.brokerlite.machines.validation` makes of it; here its producer is checked.
- A repeat of a remembered batch is answered with its first offset; nothing is written.
- With one replica everything stored is committed: the high watermark is the end offset. The last stable offset is where
  the oldest open transaction begins, and the high watermark if none is open: up to there read_committed reads.
- What the broker itself writes (markers of transactions, records of its internal topics) is not validated.
- This class decides, a `Segments` stores: it is handed in, so nothing here knows of files.

Source: UnifiedLog.java (append).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from ottla.brokerlite.machines.compaction import LastBatch, Round
from ottla.brokerlite.machines.configs import LogSettings
from ottla.brokerlite.machines.epochs import LeaderEpochs
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.producers import Producers
from ottla.brokerlite.machines.retention import ActiveSegment, SegmentState, is_full
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
"""The version of Produce with which a partition joins a transaction by itself (KIP-890)."""
HIGH_WATERMARK = -1
"""What DeleteRecords calls it."""

_NOTHING = memoryview(b"")


class Compaction(Protocol):
    """A round of compaction on the disk.

    Attributes:
        stopped: may be set at any time, and has the round end soon.
    """

    stopped: bool

    def job(self) -> Job:
        """The round. An `OSError` ends it; what was replaced until then stays so."""


class Segments(Protocol):
    """Where a partition's batches are kept, in order and in segments; the last segment is the active one."""

    @property
    def epochs(self) -> LeaderEpochs: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """One past the last record."""

    def append(self, batch: RecordBatch) -> None:
        """Store a batch at the end, as its `parts` are.

        Raises:
            KafkaStorageError: the disk refused; nothing is stored.
        """

    def roll(self, producers: Producers) -> None:
        """Begin a new active segment at the end offset; keep ``producers`` as they are there.

        Raises:
            KafkaStorageError: the disk refused; the segment goes on.
        """

    @property
    def synced_offset(self) -> int:
        """What lies before this offset is on the disk, not merely in the page cache."""

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Note that a transaction is aborted; its marker, at ``entry.last_offset``, is the next batch to be stored.

        Raises:
            KafkaStorageError: the disk refused; nothing is noted.
        """

    def drop_aborted(self, entry: AbortedTxn) -> None:
        """Take back the last entry that was added: its marker could not be stored."""

    def aborted(self, first_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions that a reader from ``first_offset`` to before ``upper_bound`` needs to know.

        Source: LogSegment.java and LocalLog.java (collectAbortedTransactions).

        Raises:
            KafkaStorageError: the disk refused.
        """

    def bound(self, offset: int, size: int) -> int:
        """An offset behind all records among ``size`` bytes that were read at ``offset``; the index tells it, roughly.

        Source: LogSegment.java (fetchUpperBoundOffset).

        Raises:
            KafkaStorageError: the disk refused.
        """

    cleaned_up_to: int
    """Where the last round of compaction ended; -1: there was none."""

    def states(self, *, first_timestamps: bool = False) -> list[SegmentState]:
        """All segments; the last is the active one.

        Args:
            first_timestamps: have these, too; they may have to be read.

        Raises:
            KafkaStorageError: the disk refused.
        """

    @property
    def active(self) -> ActiveSegment:
        """The active segment."""

    def begin_flush(self) -> Work:
        """Work that has the disk hold all that was stored before this call; it may run while more is stored."""

    def compact(self, due: Round, settings: LogSettings, producers: Mapping[int, LastBatch], now: int) -> Compaction:
        """A round of compaction.

        Args:
            producers: the active ones, by id.
            now: milliseconds since 1970.
        """

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> Part:
        """The bytes from the batch that holds ``offset`` on, or from the next if none does; of one segment.

        CRCs are not compared: readers do. Many bytes are not read.

        Args:
            max_bytes: no more than this; the last batch may be cut, but not the first.
            at_least_one: the first batch is given, even if it is larger.
            up_to: an offset; batches that begin there or behind it are not given.

        Raises:
            CorruptMessage: what holds ``offset`` is damaged beyond that.
            KafkaStorageError: the disk refused.
        """

    def batches(self) -> Iterator[RecordBatch]:
        """Every whole batch; what lies between them is told in the log.

        Raises:
            KafkaStorageError: the disk refused.
        """

    def batches_since(self, timestamp: int) -> Iterator[RecordBatch]:
        """The batches whose largest timestamp is ``timestamp`` (milliseconds) or later, in order.

        Raises:
            KafkaStorageError: the disk refused.
        """

    @property
    def max_timestamp(self) -> int:
        """The largest in the log, in milliseconds; -1 for none."""


class Appended(NamedTuple):
    """Where a batch is stored."""

    base_offset: int
    append_time: int
    """When, in milliseconds, if the topic stamps records; otherwise -1."""
    size: int
    """Bytes that were added; 0 for a repeat."""


class PartitionLog:
    """One partition's log.

    Attributes:
        name: ``topic-partition``, for messages.
        settings: may be replaced at any time.
        segments: where the batches are.
    """

    def __init__(
        self, name: str, segments: Segments, producers: Producers | None = None, settings: LogSettings | None = None
    ) -> None:
        self.name = name
        self.settings = settings or LogSettings()
        self.producers = producers or Producers()
        self.segments = segments
        self._written = 0
        """Bytes that were appended since the start."""
        self._begun = dict.fromkeys(self.producers.ongoing, 0)
        """Producer id -> how many bytes had been appended when its open transaction began."""

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
        """Offsets that the disk may not hold."""
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
        """How many bytes were appended since the start below the high watermark, or below the last stable offset."""
        return next(iter(self._begun.values()), self._written) if stable else self._written

    def append(self, batch: RecordBatch, timestamp: int, now: float = 0.0) -> Appended:
        """Store a produced record set that is valid by the `settings`, and return where.

        Args:
            timestamp: the time, in milliseconds since 1970; the records are stamped with it if the topic does so.
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
        """Whether a produced batch would begin a transaction here: then ask the coordinator first.

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
        """Store a batch that the broker has made.

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
        self.segments.add_aborted(entry)  # first: a marker whose transaction is not indexed would make it committed
        try:
            return self._store(batch, now)
        except BrokerError:
            self.segments.drop_aborted(entry)
            raise

    def _store(self, batch: RecordBatch, now: float, append_time: int = -1) -> Appended:
        """Append a batch at the end, as it is but for its place."""
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
        return Appended(batch.base_offset, append_time, size)

    def _remember(self, batch: RecordBatch, now: float) -> None:
        completed = self.producers.record(batch, now)
        if batch.transactional and not batch.control:
            self._begun.setdefault(batch.producer_id, self._written)
        if completed is None:
            return
        self._begun.pop(completed.producer_id, None)

    def aborted(self, offset: int, size: int) -> Sequence[AbortedTxn]:
        """The aborted transactions of the ``size`` bytes that were read at ``offset``, and perhaps some behind them."""
        return self.segments.aborted(offset, min(self.last_stable_offset, self.segments.bound(offset, size)))

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = False, up_to: int | None = None) -> Part:
        """Batches from the one that holds ``offset`` on; the last may be cut short.

        Args:
            max_bytes, at_least_one: with 0 and without it nothing is read.
            up_to: an offset; batches that begin there or behind it are not given.

        Raises:
            OffsetOutOfRange: ``offset`` is before the start or behind the end.
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
        """As `Segments.batches`."""
        return self.segments.batches()

    def divergence(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Whether a reader that came to ``offset``, with a last record of ``epoch`` (-1: unknown), read what is not in
        this log any more: the epoch and the offset up to which both have the same, or ``None``.

        Raises:
            OffsetOutOfRange: there is no telling.
        """
        if epoch < 0:
            return None
        known, end = self.epochs.end_of(epoch, self.end_offset)
        if end < 0:
            raise OffsetOutOfRange(f"{self.name} has no leader epoch {epoch} or later")
        return (known, end) if known < epoch or end < offset else None

    def roll(self) -> None:
        """Begin a segment.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if self.segments.active.size:
            self.segments.roll(self.producers)

    def start_without(self, offset: int) -> int:
        """Where the log is to begin when the records before ``offset`` (-1: the high watermark) are deleted.

        Raises:
            PolicyViolation: nothing is deleted from the topic.
            OffsetOutOfRange: there is no such offset, or it lies behind the high watermark.
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
        """Whether more may yet come behind what a read at ``offset`` gives."""
        return offset >= self.segments.active.base_offset

    def first_at(self, timestamp: int) -> Generator[Work, None, Record | None]:
        """The first record whose timestamp is ``timestamp`` (milliseconds) or later.

        Gives the searches of batches, to be run in a thread.

        Raises:
            DecodeError: a batch cannot be read.
        """
        behind = -1
        found: list[Record] = []
        while not found:
            # Anew each time: what the segments are may change while a thread works.
            behind = max(behind, self.start_offset - 1)
            batches = self.segments.batches_since(timestamp)
            if (batch := next((each for each in batches if each.last_offset > behind), None)) is None:
                return None
            yield partial(_look, batch, timestamp, self.start_offset, found)
            behind = batch.last_offset
        return found[0]

    def of_max_timestamp(self) -> Generator[Work, None, Record | None]:
        """As `first_at`, the first record with the largest timestamp."""
        largest = self.segments.max_timestamp
        return (yield from self.first_at(largest)) if largest >= 0 else None


def _look(batch: RecordBatch, timestamp: int, start_offset: int, found: list[Record]) -> None:
    """Put into ``found`` the first record that is not before either."""
    found += islice(
        (each for each in batch.records() if each.timestamp >= timestamp and each.offset >= start_offset), 1
    )
