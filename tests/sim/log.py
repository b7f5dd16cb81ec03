"""A partition's log as Kafka keeps it, cut down to what a client can notice.

Rules:
- A batch is appended whole, stamped with its offset and the leader's epoch. What lies below the high watermark is on
  every replica and survives any leader; what lies above may be cut off with a new leader.
- Per producer id the last five batches are remembered. A repeat of one of them is answered with its first offset; a new
  epoch begins at sequence 0; an id without state may begin anywhere, or at 0
  only (``strict``). Truncation takes back what it cuts.
- A fetch gets whole batches, the first of them the one that holds the offset; only the last may be torn, and never
  the first.

Source: UnifiedLog.java, ProducerAppendInfo.java, ProducerStateEntry.java, LeaderEpochFileCache.java.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.codec.records import RecordBatch, parse_batch, rebased
from ottla.codec.wire import Buffer
from ottla.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)

REMEMBERED = 5
_SEQUENCES = 2**31


class Stored(NamedTuple):
    """A batch in the log."""

    data: bytes
    base: int
    end: int
    """One past its last offset."""
    leader_epoch: int
    producer: tuple[int, int]
    """Id and epoch."""
    span: tuple[int, int]
    """First and last sequence."""


@dataclass(slots=True)
class ProducerState:
    epoch: int
    recent: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last five batches: (first, last) sequence -> offset."""

    def add(self, batch: Stored) -> None:
        if batch.producer[1] != self.epoch:
            self.epoch, self.recent = batch.producer[1], {}
        self.recent[batch.span] = batch.base
        while len(self.recent) > REMEMBERED:
            del self.recent[next(iter(self.recent))]


@dataclass(slots=True)
class PartitionLog:
    batches: list[Stored] = field(default_factory=list)
    high_watermark: int = 0
    producers: dict[int, ProducerState] = field(default_factory=dict)
    strict: bool = False
    """Kafka up to 2.4: an id without state has to begin at sequence 0."""
    _bases: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def append(self, data: Buffer, leader_epoch: int) -> tuple[int, int, int]:
        """(error code, base offset, end offset) of a batch; the offsets of its first copy if it is a repeat."""
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
        )
        self._add(stored)
        return 0, base, stored.end

    def _judge(self, batch: RecordBatch, span: tuple[int, int]) -> tuple[int, int]:
        """(error code, offset of the first copy or -1) of a batch with a sequence."""
        state = self.producers.get(batch.producer_id)
        if state is None:
            return (UnknownProducerId.code if self.strict and span[0] else 0), -1
        if batch.producer_epoch < state.epoch:
            return InvalidProducerEpoch.code, -1
        if batch.producer_epoch > state.epoch:
            return (OutOfOrderSequenceNumber.code if span[0] else 0), -1
        if span in state.recent:
            return 0, state.recent[span]
        last = next(reversed(state.recent))[1]
        return (0 if span[0] == (last + 1) % _SEQUENCES else OutOfOrderSequenceNumber.code), -1

    def _add(self, batch: Stored) -> None:
        self.batches.append(batch)
        self._bases.append(batch.base)
        if batch.producer[0] >= 0:
            self.producers.setdefault(batch.producer[0], ProducerState(batch.producer[1])).add(batch)

    def truncate(self, end: int) -> None:
        """Cut off the batches from offset ``end`` on, which lies between two of them."""
        kept = [each for each in self.batches if each.end <= end]
        self.batches, self.producers, self._bases = [], {}, []
        for each in kept:
            self._add(each)

    def read(self, offset: int, limit: int, most: int, *, first: bool, cut: bool = False) -> tuple[bytes, int]:
        """The bytes of batches from the one that holds ``offset`` up to ``limit``, and how many.

        Args:
            most: bytes; a later batch that does not fit is torn, the first is left out, or torn too if it is to be
                ``cut``, as other brokers do it.
            first: of the whole answer, and so given whole however large it is.
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
        """(the largest epoch not above ``epoch`` that has batches, one past its last offset); (-1, -1) for none."""
        held = [each for each in self.batches if each.leader_epoch <= epoch]
        return (held[-1].leader_epoch, held[-1].end) if held else (-1, -1)
