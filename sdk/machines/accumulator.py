"""Records on their way: batches of one partition, in order, with their sequences.

    append ──► open ── full, linger, flush ──► due ── sent ──► in flight ── answer ──► settled
                                                ▲                 │
                                                └─── retriable ───┘

Rules:
- A partition's batches go out oldest first. With idempotence up to five are in flight, because the broker remembers
  five; once one had to be retried, only the oldest is sent until it is settled.
- The first batch under a producer id goes alone: a broker that has no state for the id takes any sequence, so were the
  first refused and the second stored, the first could never be.
- A batch gets its sequence when it is first sent and keeps it in every retry, so the broker can tell a repeat.
- A batch that certainly was not stored gives its numbers back to those behind it.
- A partition takes up a new producer id or epoch only when nothing that was sent under the old one is undecided.

Source: RecordAccumulator.java, TxnPartitionEntry.java, ProducerStateEntry.java (NUM_BATCHES_TO_RETAIN = 5).
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ottla.codec.compression import Compression
from ottla.codec.records import BatchBuilder
from ottla.errors import OttlaError
from ottla.sdk.machines.cluster import TopicPartition
from ottla.sdk.machines.outcome import Outcome
from ottla.sdk.machines.timers import Timer

MAX_IN_FLIGHT = 5
_SEQUENCES = 2**31
_LAST_EPOCH = 2**15 - 2


class Identity(NamedTuple):
    """A producer id and epoch, as InitProducerId gave them, or of a later epoch."""

    producer_id: int
    epoch: int

    @property
    def successor(self) -> "Identity | None":
        """The next epoch, under which sequences begin at 0 and which fences this one; ``None`` after the last.

        Source: TransactionManager.java, bumpIdempotentProducerEpoch.
        """
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < _LAST_EPOCH else None


class Receipt(NamedTuple):
    """Where a record was stored.

    Attributes:
        offset: -1 where the broker did not say (acks=0, or a repeat of a batch long stored).
        timestamp: milliseconds since 1970, the broker's own if the topic stamps records itself.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that are sent together."""

    number: int
    """Counts up over all batches of a producer."""
    place: TopicPartition
    deadline: float
    """When delivery is given up."""
    builder: BatchBuilder = field(default_factory=BatchBuilder)
    awaited: list[tuple[int, int, Outcome[Receipt]]] = field(default_factory=list)
    """(index, timestamp, outcome) of the records that somebody waits for."""
    charged: int = 0
    """Bytes of the producer's memory."""
    due: bool = False
    """May be sent."""
    closed: bool = False
    """Takes no more records: full, or sent already."""
    expiry: Timer | None = None
    in_flight: bool = False
    attempts: int = 0
    retry_at: float = 0.0
    sequence: int | None = None
    sent_as: int | None = None
    """The sequence it was last sent with; another one than `sequence` once a batch before it was refused."""
    abandoned: bool = False
    """Its deadline passed while it was in flight: failed already, and dropped once its answer comes."""

    def settle(self, base_offset: int, append_time: int) -> None:
        topic, partition = self.place
        for index, timestamp, outcome in self.awaited:
            offset = base_offset + index if base_offset >= 0 else -1
            outcome.succeed(Receipt(topic, partition, offset, append_time if append_time >= 0 else timestamp))

    def fail(self, error: OttlaError) -> int:
        """Fail the awaited records; return how many nobody waits for."""
        for _, _, outcome in self.awaited:
            outcome.fail(error)
        return self.builder.count - len(self.awaited)


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, oldest first; the last one may be open."""

    place: TopicPartition
    idempotent: bool
    batches: deque[Batch] = field(default_factory=deque)
    identity: Identity | None = None
    next_sequence: int = 0
    acknowledged: bool = False
    """The broker has stored something under `identity`."""
    gap: bool = False
    """A batch of unknown outcome was given up, so the broker may miss its sequence."""
    renumber: bool = False
    """The broker certainly misses a sequence: start over under a new producer id once nothing is in flight."""

    @property
    def undecided(self) -> bool:
        """Something was sent and may or may not be stored."""
        return any(each.attempts for each in self.batches)

    def sendable(self, now: float) -> Batch | None:
        """The batch that may be sent now, if any."""
        in_flight = 0
        for batch in self.batches:
            if batch.in_flight:
                in_flight += 1
                continue
            if not batch.due or batch.retry_at > now:
                return None
            most = MAX_IN_FLIGHT if self.acknowledged and not self._retrying() else 1
            return None if in_flight >= most or (self.renumber and in_flight) else batch
        return None

    def _retrying(self) -> bool:
        return any(each.attempts > 1 or (each.attempts and not each.in_flight) for each in self.batches)

    def take_up(self, identity: Identity) -> bool:
        """Number batches under ``identity`` from now on if that is safe; whether it is in use now."""
        if self.identity != identity and (self.renumber or not self.undecided):
            self.identity, self.next_sequence = identity, 0
            self.acknowledged = self.gap = self.renumber = False
            for batch in self.batches:
                batch.sequence, batch.attempts = None, 0
        return self.identity is not None and not self.renumber

    def encode(self, batch: Batch, compression: Compression, level: int | None) -> bytes:
        """The bytes of ``batch``; gives it its sequence the first time."""
        if not self.idempotent or self.identity is None:
            return batch.builder.build(compression=compression, level=level)
        if batch.sequence is None:
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.builder.count) % _SEQUENCES
        batch.sent_as = batch.sequence
        return batch.builder.build(
            compression=compression,
            level=level,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=batch.sequence,
        )

    def oldest_sent(self) -> Batch | None:
        return next((each for each in self.batches if each.attempts), None)

    def drop(self, batch: Batch, *, stored: bool | None) -> None:
        """Take a settled batch out; ``stored`` is ``None`` where nobody knows."""
        index = self.batches.index(batch)
        del self.batches[index]
        if batch.sequence is None:
            return
        if stored:
            self.acknowledged, self.gap = True, False
            return
        if stored is None:
            self.gap = True
            return
        count = batch.builder.count
        self.next_sequence = (self.next_sequence - count) % _SEQUENCES
        for each in islice(self.batches, index, None):
            if each.sequence is not None:
                each.sequence = (each.sequence - count) % _SEQUENCES
