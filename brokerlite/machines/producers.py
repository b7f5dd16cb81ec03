"""What a partition remembers of each idempotent producer: its epoch and its last five batches.

Rules:
- A duplicate is a batch of the same epoch with exactly the first and last sequence of a remembered one; it is looked
  for first, so that a retry is answered with the original offset whatever came after it.
- A lower epoch is fenced. A new epoch begins at sequence 0, the same epoch at the last sequence + 1, which wraps from
  2**31 - 1 to 0. Of a producer that is not remembered any sequence is taken.
- A transaction's marker has no sequences of its own: those of its epoch go on behind it, a higher epoch begins anew.
- A producer is forgotten a day after its last batch.

Source: ProducerStateEntry.java, ProducerAppendInfo.java, ProducerStateManager.java.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.codec.records import RecordBatch
from ottla.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber

REMEMBERED_BATCHES = 5
"""As many as an idempotent producer may have in flight."""
EXPIRATION_MS = 24 * 3600 * 1000
"""Kafka's `producer.id.expiration.ms`."""
LAST_SEQUENCE = 2**31 - 1
_SWEEP_AT = 1000
"""Producers that may be remembered before the expired ones are looked for."""


class BatchMetadata(NamedTuple):
    """A batch that was stored."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Of the last record to the first."""
    timestamp: int
    """The largest, in milliseconds."""

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & LAST_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """What is remembered of one producer id."""

    epoch: int
    last_timestamp: int
    coordinator_epoch: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class Producers:
    """The producers of one partition.

    Attributes:
        entries: producer id -> `Producer`.
    """

    def __init__(self, entries: dict[int, Producer] | None = None) -> None:
        self.entries: dict[int, Producer] = entries or {}
        self._sweep_at = _SWEEP_AT

    def duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The stored batch that ``batch`` repeats."""
        producer = self.entries.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for stored in producer.batches:
            if stored.last_sequence == last and stored.first_sequence == first:
                return stored
        return None

    def check(self, batch: RecordBatch) -> None:
        """Whether ``batch`` may follow what is stored.

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has been seen.
            OutOfOrderSequenceNumber: a batch before it is missing.
        """
        producer = self.entries.get(batch.producer_id)
        if producer is None:
            return
        if batch.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}, epoch {producer.epoch} has been seen"
            )
        if batch.producer_epoch != producer.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} at sequence "
                    f"{batch.base_sequence} instead of 0"
                )
            return
        last = producer.batches[-1].last_sequence if producer.batches else -1
        expected = (last + 1) & LAST_SEQUENCE
        if batch.base_sequence != expected:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} sends sequence {batch.base_sequence}; {expected} comes next"
            )

    def record(self, batch: RecordBatch) -> None:
        """Remember ``batch``, which is stored at its `base_offset`."""
        producer = self.entries.get(batch.producer_id)
        if producer is None:
            if len(self.entries) >= self._sweep_at:
                self.expire(batch.max_timestamp)
            producer = self.entries[batch.producer_id] = Producer(batch.producer_epoch, batch.max_timestamp)
        if producer.epoch != batch.producer_epoch:
            producer.batches.clear()
            producer.epoch = batch.producer_epoch
        producer.last_timestamp = batch.max_timestamp
        if batch.control:
            return
        producer.batches.append(
            BatchMetadata(batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)
        )

    def replay(self, batches: Iterable[RecordBatch]) -> None:
        """Remember ``batches`` of a log, as they were accepted before."""
        for batch in batches:
            if batch.producer_id >= 0:
                self.record(batch)

    def recall(self, known: dict[int, Producer]) -> None:
        """Remember what was ``known`` before, too: of a batch that was replayed, or lies before all that were."""
        for producer_id, older in known.items():
            producer = self.entries.setdefault(producer_id, older)
            if producer.epoch == older.epoch:
                batches = {batch.last_offset: batch for batch in (*older.batches, *producer.batches)}
                in_order = [batches[last_offset] for last_offset in sorted(batches)]
                producer.batches = deque(in_order, maxlen=REMEMBERED_BATCHES)

    def expire(self, timestamp: int) -> None:
        """Forget who was last seen a day before ``timestamp`` (milliseconds)."""
        for producer_id, producer in list(self.entries.items()):
            if timestamp - producer.last_timestamp >= EXPIRATION_MS:
                del self.entries[producer_id]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self.entries))
