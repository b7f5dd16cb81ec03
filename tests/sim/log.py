"""A partition's log as Kafka keeps it, reduced to behaviour that a client can notice.

Rules:
- A batch is appended whole, with its offset and the leader's epoch. Batches below the high watermark are on every
  replica and survive every leader change; batches above it may be truncated by a new leader.
- The log remembers the last five batches per producer id. A duplicate of one is answered with its first offset. A new
  epoch begins at sequence 0. A producer id without state may begin at any sequence or, if ``strict``, only at 0.
  Truncation removes the state of the truncated batches, too.
- A transaction begins with its first batch and ends with its marker; until the marker is replicated, the last stable
  offset stays at the first batch. A leader verifies the transaction before it appends the first batch, and notes the
  attempt (`attempt`), so that no batch with a higher sequence becomes the first, and no marker in between is missed.
- A marker of an older epoch, or of a replaced coordinator, is refused.
- A fetch gets whole batches, beginning with the batch that contains the offset; only the last may be cut, and never the
  first.

Source: UnifiedLog.java, ProducerAppendInfo.java, ProducerStateEntry.java, VerificationStateEntry.java,
LeaderEpochFileCache.java.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.codec.records import BatchBuilder, Record, RecordBatch, parse_batch, rebased
from ottla.codec.stored.control import ABORT, COMMIT, ControlRecord, EndTxnMarker, build_control
from ottla.codec.wire import Buffer
from ottla.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
    UnknownProducerId,
)

REMEMBERED = 5
_SEQUENCES = 2**31


class Stored(NamedTuple):
    """A batch in the log."""

    data: bytes
    base: int
    end: int
    """The offset after its last record."""
    leader_epoch: int
    producer: tuple[int, int]
    """Producer id and epoch."""
    span: tuple[int, int]
    """First and last sequence."""
    transactional: bool = False
    commits: bool | None = None
    """For a marker: whether it commits."""
    coordinator_epoch: int = -1
    """For a marker: the coordinator's epoch."""

    def read(self) -> list[Record]:
        return list(parse_batch(self.data).records())


class Ended(NamedTuple):
    """A transaction whose marker is written."""

    producer_id: int
    first: int
    marker: int
    committed: bool


@dataclass(slots=True)
class ProducerState:
    epoch: int
    recent: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last five batches: (first, last) sequence -> offset."""
    ongoing: int | None = None
    """The first offset of its open transaction."""
    coordinator_epoch: int = -1
    """The coordinator epoch of its last marker."""

    def add(self, batch: Stored) -> Ended | None:
        """Add a batch to the state; return the transaction that it ends, if it is a marker."""
        if batch.producer[1] != self.epoch:
            self.epoch, self.recent = batch.producer[1], {}
        if batch.commits is not None:
            self.coordinator_epoch = batch.coordinator_epoch
            first, self.ongoing = self.ongoing, None
            return None if first is None else Ended(batch.producer[0], first, batch.base, batch.commits)
        if batch.transactional and self.ongoing is None:
            self.ongoing = batch.base
        if batch.span[0] >= 0:
            self.recent[batch.span] = batch.base
        while len(self.recent) > REMEMBERED:
            del self.recent[next(iter(self.recent))]
        return None

    @property
    def next_sequence(self) -> int:
        return (next(reversed(self.recent))[1] + 1) % _SEQUENCES if self.recent else 0


@dataclass(slots=True)
class Attempt:
    """Batches that are to begin a transaction, and are not appended yet."""

    epoch: int
    lowest: int
    """The lowest of their sequences."""
    rises: bool
    """They are of version 2: a producer without state has to begin at sequence 0."""


@dataclass(slots=True)
class PartitionLog:
    batches: list[Stored] = field(default_factory=list)
    high_watermark: int = 0
    producers: dict[int, ProducerState] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """By producer id; only this leader knows them."""
    strict: bool = False
    """Kafka up to 2.4: a producer id without state has to begin at sequence 0."""
    start: int = 0
    """The first offset that retention has left."""
    _bases: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    @property
    def stable(self) -> int:
        """The last stable offset: read_committed readers see records before it."""
        hidden = [each.first for each in self.ended if each.marker >= self.high_watermark]
        open_ = [each.ongoing for each in self.producers.values() if each.ongoing is not None]
        return min([self.high_watermark, *hidden, *open_])

    def aborted(self, offset: int, up_to: int) -> list[Ended]:
        """Aborted transactions with records between ``offset`` and ``up_to``."""
        return [each for each in self.ended if not each.committed and each.marker >= offset and each.first < up_to]

    def begins(self, batch: RecordBatch, *, minds_epochs: bool) -> bool:
        """Whether the batch would begin a transaction."""
        state = self.producers.get(batch.producer_id)
        return (
            batch.transactional
            and batch.producer_id >= 0
            and (state is None or state.ongoing is None or (minds_epochs and state.epoch != batch.producer_epoch))
        )

    def attempt(self, batch: RecordBatch, *, rises: bool, minds_epochs: bool) -> int:
        """Note, before the coordinator is asked, that the batch would begin a transaction; return an error code."""
        state = self.producers.get(batch.producer_id)
        if minds_epochs and state is not None and batch.producer_epoch < state.epoch:
            return InvalidProducerEpoch.code
        known = self.attempts.get(batch.producer_id)
        if known is None or batch.producer_epoch > known.epoch:
            rises = rises if known is None else known.rises
            self.attempts[batch.producer_id] = Attempt(batch.producer_epoch, batch.base_sequence, rises)
        elif batch.producer_epoch == known.epoch:
            known.lowest = min(known.lowest, batch.base_sequence)
        return 0

    def append(self, data: Buffer, leader_epoch: int) -> tuple[int, int, int]:
        """(error code, base offset, end offset) of a batch; a duplicate gets the offsets of its first copy."""
        batch = parse_batch(data)
        if not batch.crc_matches:
            return CorruptMessage.code, -1, -1
        if batch.count < 1 or batch.base_offset or batch.control or len(batch.data) != len(data):
            return InvalidRecord.code, -1, -1
        span = (batch.base_sequence, batch.last_sequence)
        if batch.producer_id >= 0:
            code, base = self._judge(batch, span)
            if code or base >= 0:
                return code, base, base + batch.count if base >= 0 else -1
        base = self.end
        stored = Stored(
            rebased(data, base, leader_epoch),
            base,
            base + batch.count,
            leader_epoch,
            (batch.producer_id, batch.producer_epoch),
            span,
            batch.transactional,
        )
        self._add(stored)
        return 0, base, stored.end

    def store(self, data: bytes, count: int, leader_epoch: int) -> None:
        """Append these bytes unread, as ``count`` records without a producer: damaged batches, and old message sets."""
        self._add(Stored(data, self.end, self.end + count, leader_epoch, (-1, -1), (-1, -1)))

    def note(self, producer: tuple[int, int], leader_epoch: int) -> None:
        """Append a batch of the broker itself to a transaction, as for a commit of offsets; its value is arbitrary."""
        builder = BatchBuilder()
        builder.append(0, None, None)
        data = builder.build(producer_id=producer[0], producer_epoch=producer[1], transactional=True)
        base = self.end
        self._add(Stored(rebased(data, base, leader_epoch), base, base + 1, leader_epoch, producer, (-1, -1), True))

    def mark(
        self, producer: tuple[int, int], *, commits: bool, coordinator_epoch: int, leader_epoch: int, rises: bool
    ) -> int:
        """Append a marker; return an error code.

        Args:
            rises: version 2, in which the marker's epoch is higher than the epoch of the records.
        """
        producer_id, epoch = producer
        state = self.producers.get(producer_id)
        if state is not None:
            if epoch < state.epoch or (rises and state.ongoing is not None and epoch == state.epoch):
                return InvalidProducerEpoch.code
            if coordinator_epoch < state.coordinator_epoch:
                return TransactionCoordinatorFenced.code
        marker = ControlRecord(COMMIT if commits else ABORT, 0, EndTxnMarker(coordinator_epoch=coordinator_epoch))
        builder = BatchBuilder()
        builder.append(0, *build_control(marker))
        data = builder.build(producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)
        base = self.end
        span = (-1, -1)
        data = rebased(data, base, leader_epoch)
        self._add(Stored(data, base, base + 1, leader_epoch, producer, span, True, commits, coordinator_epoch))
        return 0

    def _judge(self, batch: RecordBatch, span: tuple[int, int]) -> tuple[int, int]:
        """(error code, offset of the first copy or -1) of a batch with a sequence."""
        state, attempt = self.producers.get(batch.producer_id), self.attempts.get(batch.producer_id)
        if state is None:
            if attempt is not None and span[0] > (0 if attempt.rises else attempt.lowest):
                return OutOfOrderSequenceNumber.code, -1
            return (UnknownProducerId.code if self.strict and span[0] else 0), -1
        if batch.producer_epoch < state.epoch:
            return InvalidProducerEpoch.code, -1
        same = batch.producer_epoch == state.epoch
        if same and span in state.recent:
            return 0, state.recent[span]
        expected = state.next_sequence if same else 0
        if span[0] != expected or (attempt is not None and expected > attempt.lowest):
            return OutOfOrderSequenceNumber.code, -1
        if not batch.transactional and state.ongoing is not None:
            return InvalidTxnState.code, -1
        return 0, -1

    def _add(self, batch: Stored) -> None:
        self.batches.append(batch)
        self._bases.append(batch.base)
        producer_id, epoch = batch.producer
        if producer_id < 0:
            return
        attempt = self.attempts.get(producer_id)
        marks = batch.commits is not None
        if batch.transactional and attempt and not (marks and attempt.rises and attempt.epoch == epoch):
            del self.attempts[producer_id]
        if ended := self.producers.setdefault(producer_id, ProducerState(epoch)).add(batch):
            self.ended.append(ended)

    def truncate(self, end: int) -> None:
        """Remove the batches from offset ``end`` on, which is a boundary of batches."""
        kept = [each for each in self.batches if each.end <= end]
        self.batches, self.producers, self._bases, self.ended, self.attempts = [], {}, [], [], {}
        for each in kept:
            self._add(each)

    def read(self, offset: int, limit: int, most: int, *, first: bool, cut: bool = False) -> tuple[bytes, int]:
        """The bytes of the batches from ``offset``, which may lie inside the first, up to ``limit``, and their size.

        Args:
            most: bytes. A later batch that does not fit is cut. The first is left out, or cut if ``cut`` is set, as
                some brokers do.
            first: this partition is the first of the answer, which gets its first batch whole however large it is.
        """
        out: list[bytes] = []
        size = 0
        for batch in self.batches[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if batch.end <= offset:
                continue
            if batch.end > limit or (size >= most and not (first and not out)):
                break
            out.append(batch.data)
            size += len(batch.data)
        if not out or (len(out[0]) > most and not first):
            return (out[0][:most], most) if out and cut else (b"", 0)
        return b"".join(out)[: max(most, len(out[0]))], size

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch up to ``epoch`` that has batches, the offset after its last record); (-1, -1) if none has."""
        held = [each for each in self.batches if each.leader_epoch <= epoch]
        return (held[-1].leader_epoch, held[-1].end) if held else (-1, -1)
