"""Records on their way: batches of one partition, in order, with their sequences.

    append ──► open ── full, linger, flush ──► due ── sent ──► in flight ── answer ──► settled
                                                ▲                 │
                                                └─── retriable ───┘

Rules:
- A partition's batches go out oldest first. With idempotence up to five are in flight, because the broker remembers
  five; once one had to be retried, only the oldest is sent until it is settled. Without idempotence one is in flight,
  so that a retry cannot change the order.
- The first batch under a producer id goes alone: a broker that has no state for the id takes any sequence, so were the
  first refused and the second stored, the first could never be.
- A batch gets its sequence when it is first sent and keeps it in every retry, so the broker can tell a repeat.
  Sequences wrap from 2**31 - 1 to 0.
- A batch that certainly was not stored gives its numbers back if nothing was sent behind it. Otherwise what is behind
  it starts over in a new epoch once all before it is settled and nothing is in flight: old requests that still creep
  through the network then find a gap before them, and are refused (KIP-360).
- Apart from that, a partition takes up a new producer id or epoch only when nothing that was sent under the old one is
  undecided.
- A batch that was too large is split in halves that keep its sequences, its place and its deadline.

Source: RecordAccumulator.java, ProducerBatch.java (split), TransactionManager.java (canRetry, handleFailedBatch),
TxnPartitionEntry.java, ProducerStateEntry.java (NUM_BATCHES_TO_RETAIN = 5).
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ottla.codec.compression import Compression
from ottla.codec.intake import OpenBatch, Slot
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import BatchBuilder, Records, parse_batch
from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.versions import PRODUCE_RECORD_BATCHES
from ottla.sdk.timers import Timer

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


DeliveryCallback = Callable[[Receipt | OttlaError], object]
"""Is called once with what became of a record."""


class Batch(OpenBatch):
    """Records of one partition that are sent together."""

    __slots__ = (
        "abandoned",
        "again",
        "attempts",
        "charged",
        "deadline",
        "doubtful",
        "due",
        "expiry",
        "in_flight",
        "node",
        "number",
        "opened",
        "place",
        "retry_at",
        "sequence",
        "trouble",
    )

    builder: BatchBuilder

    def __init__(self, number: int, place: TopicPartition, opened: float, deadline: float, room: int) -> None:
        super().__init__(BatchBuilder(), room)
        self.number = number
        """Counts up over all batches of a producer; the halves of a batch keep its number."""
        self.place = place
        self.opened = opened
        self.deadline = deadline
        """When delivery is given up."""
        self.charged = 0
        """Bytes of the producer's memory; known once it is closed."""
        self.due = False
        """May be sent."""
        self.expiry: Timer | None = None
        self.in_flight = False
        self.again = False
        """In flight, or waiting, for another time with the sequence that it has."""
        self.doubtful = False
        """An attempt under this sequence ended so that nobody knows whether it is stored."""
        self.node = -1
        """Where it was sent last."""
        self.attempts = 0
        self.retry_at = 0.0
        self.trouble = ""
        """What came of the last attempt, for people."""
        self.sequence: int | None = None
        self.abandoned = False
        """Its deadline passed while it was in flight: failed already, and dropped once its answer comes."""

    @property
    def count(self) -> int:
        return self.builder.count

    @property
    def size(self) -> int:
        """Bytes of the batch before compression."""
        return self.builder.size

    def halves(self) -> tuple["Batch", "Batch"]:
        """Two batches in its place; the sequences stay those of the records."""
        records: Records = parse_batch(self.builder.build()).records()
        middle = self.count // 2
        first, second = self._part(records[:middle], 0), self._part(records[middle:], middle)
        if self.sequence is not None:
            second.sequence = (self.sequence + middle) % _SEQUENCES
        first.charged = self.charged * middle // self.count
        second.charged = self.charged - first.charged
        return first, second

    def _part(self, records: Records, start: int) -> "Batch":
        part = Batch(self.number, self.place, self.opened, self.deadline, -1)
        part.builder.extend(records)
        stop = start + len(records)
        part.told, part.stamps = self.told[start:stop], self.stamps[start:stop]
        part.due = part.again = True
        part.attempts, part.trouble, part.sequence = self.attempts, self.trouble, self.sequence
        return part


SHUT = Batch(0, ("", -1), 0.0, 0.0, -1)
"""Stands where no batch is open: there is never room in it."""


class PartitionQueue(Slot):
    """The batches of one partition, oldest first; the last one may be open."""

    __slots__ = (
        "_taken",
        "acknowledged",
        "batches",
        "gap",
        "idempotent",
        "identity",
        "next_sequence",
        "place",
        "restart",
        "sticky_until",
    )

    open: Batch

    def __init__(self, place: TopicPartition, idempotent: bool) -> None:
        super().__init__(SHUT)
        self.place = place
        self.idempotent = idempotent
        self.batches: deque[Batch] = deque()
        self._taken = 0
        self.sticky_until = 0
        """Keyless records move on when it was given so many bytes."""
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.acknowledged = False
        """The broker has stored something under `identity`."""
        self.gap = False
        """A batch of unknown outcome was given up, so the broker may miss its sequence."""
        self.restart: int | None = None
        """Batches from this number on must be sent in a new epoch: the broker misses a sequence before them."""

    @property
    def taken(self) -> int:
        """Bytes that it was ever given."""
        return self._taken + self.open.room - self.open.left

    @property
    def undecided(self) -> bool:
        """Something was sent and may or may not be stored."""
        return any(each.in_flight or each.doubtful for each in self._sent())

    def sendable(self, now: float) -> Batch | None:
        """The batch that may be sent now, if any."""
        in_flight = 0
        for batch in self.batches:
            if batch.in_flight:
                in_flight += 1
                continue
            if not batch.due or batch.retry_at > now:
                return None
            if self.restart is not None and batch.number >= self.restart and not self._alone(batch):
                return None
            most = MAX_IN_FLIGHT if self.acknowledged and not self._retrying() else 1
            return batch if in_flight < most else None
        return None

    def adopt(self, identity: Identity) -> bool:
        """Number batches under ``identity`` from now on if that is safe; whether it can go on under the one in use.

        Asked when a batch is `sendable`, so that in a restart everything before it is settled.
        """
        starting_over = self.restart is not None and self.batches[0].number >= self.restart
        if self.identity != identity and (starting_over or (self.restart is None and not self.undecided)):
            self.identity, self.next_sequence = identity, 0
            self.acknowledged = self.gap = False
            self.restart = None
            for batch in self._sent():
                batch.sequence = None
                batch.again = batch.doubtful = False
            return True
        return self.identity is not None and not starting_over

    def start_over(self, batch: Batch) -> None:
        """The broker misses what came before ``batch``, the oldest."""
        self.restart = batch.number

    def close(self) -> Batch | None:
        """The open batch takes no more records; it, if there was one."""
        if (batch := self.open) is SHUT:
            return None
        self.open = SHUT
        batch.charged = batch.room - batch.left
        self._taken += batch.charged
        batch.left = -1
        return batch

    def send(self, batch: Batch, node: int) -> None:
        """``batch`` is given to the connection to ``node``; the first time it gets its sequence."""
        if batch is self.open:
            self.close()
        batch.in_flight, batch.node = True, node
        batch.attempts += 1
        if not self.idempotent:
            return
        if batch.sequence is not None:
            batch.again = True
            return
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES

    def encode(self, batch: Batch, version: int, compression: Compression, level: int | None) -> bytes:
        """The bytes of ``batch`` for a ``version`` of Produce.

        Raises:
            EncodeError: the format of that version cannot hold it.
        """
        if version < PRODUCE_RECORD_BATCHES:
            records = parse_batch(batch.builder.build()).records()
            return build_message_set(records, magic=1, compression=compression, level=level)
        if self.identity is None or batch.sequence is None:
            return batch.builder.build(compression=compression, level=level)
        return batch.builder.build(
            compression=compression,
            level=level,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=batch.sequence,
        )

    def split(self, batch: Batch) -> tuple[Batch, Batch]:
        """Put the halves of ``batch``, which certainly was not stored, in its place."""
        index = self.batches.index(batch)
        halves = batch.halves()
        del self.batches[index]
        self.batches.insert(index, halves[1])
        self.batches.insert(index, halves[0])
        return halves

    def drop(self, batch: Batch, *, stored: bool | None) -> None:
        """Take a settled batch out; ``stored`` is ``None`` where nobody knows."""
        index = self.batches.index(batch)
        del self.batches[index]
        if batch is self.open:
            self.close()
        if batch.sequence is None:
            return
        if stored:
            self.acknowledged, self.gap = True, False
        elif stored is None:
            self.gap = True
        elif any(each.sequence is not None for each in islice(self.batches, index, None)):
            self.restart = batch.number if self.restart is None else min(self.restart, batch.number)
        else:
            self.next_sequence = batch.sequence

    def _alone(self, batch: Batch) -> bool:
        """Everything before ``batch`` is settled, and nothing is in flight."""
        return batch is self.batches[0] and not any(each.in_flight for each in self._sent())

    def _retrying(self) -> bool:
        return any(each.again or not each.in_flight for each in self._sent())

    def _sent(self) -> list[Batch]:
        """The batches that have a sequence: they are the first."""
        sent = []
        for batch in self.batches:
            if batch.sequence is None:
                break
            sent.append(batch)
        return sent
