"""What a partition remembers of each idempotent producer: its epoch, its last five batches, and its open transaction.

Rules:
- A duplicate is a batch of the same epoch with exactly the first and last sequence of a remembered one; it is looked
  for first, so that a retry is answered with the original offset whatever came after it.
- A lower epoch is fenced. A new epoch begins at sequence 0, the same epoch at the last sequence + 1, which wraps from
  2**31 - 1 to 0. Of a producer that is not remembered any sequence is taken, except in a transaction of version 2
  (KIP-890), where a batch before it must have been lost.
- A transaction begins with its first batch here and ends with its marker. In between nothing but the transaction is
  taken of its producer. If that first batch is refused, none with a higher sequence can be the first in its place.
- A marker has no sequences of its own: those of its epoch go on behind it, a higher epoch begins at 0.
- A producer without an open transaction is forgotten a day after its last batch came, by the broker's clock: records
  may be of any age.

Source: ProducerStateEntry.java, ProducerAppendInfo.java, ProducerStateManager.java.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.codec.records import RecordBatch
from ottla.codec.stored.control import ABORT, COMMIT, ControlRecord, parse_control
from ottla.codec.stored.indexes import AbortedTxn
from ottla.errors import (
    DecodeError,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)

REMEMBERED_BATCHES = 5
"""As many as an idempotent producer may have in flight."""
EXPIRATION = 24 * 3600.0
"""Seconds; Kafka's `producer.id.expiration.ms`."""
LAST_SEQUENCE = 2**31 - 1
_SWEEP_AT = 1000
"""Producers that may be remembered before the expired ones are looked for."""
_MAX_ATTEMPTS = 1000
"""The oldest are dropped: anybody can make them."""


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


class CompletedTransaction(NamedTuple):
    """A transaction that has ended in a partition."""

    producer_id: int
    first_offset: int
    """Of its first record."""
    last_offset: int
    """Of its marker."""
    aborted: bool
    last_stable_offset: int
    """Behind the marker, as far as other transactions are open."""

    def index_entry(self) -> AbortedTxn:
        """What the index of aborted transactions says of it."""
        return AbortedTxn(
            producer_id=self.producer_id,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            last_stable_offset=self.last_stable_offset,
        )


@dataclass(slots=True)
class Producer:
    """What is remembered of one producer id.

    Attributes:
        last_timestamp: the largest of its last batch or marker, in milliseconds; snapshots keep it.
        last_seen: when its last batch or marker came, in seconds of the broker's clock.
    """

    epoch: int
    last_timestamp: int
    coordinator_epoch: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    last_seen: float = 0.0

    @property
    def last_sequence(self) -> int:
        """-1 where none of its batches is remembered."""
        return self.batches[-1].last_sequence if self.batches else -1


@dataclass(slots=True)
class Attempt:
    """Batches that would have begun a transaction here, and were refused so far.

    Attributes:
        lowest: of their sequences.
        rises: of version 2, where a producer that is not remembered begins at sequence 0.
    """

    epoch: int
    lowest: int
    rises: bool


class Producers:
    """The producers of one partition.

    Attributes:
        entries: producer id -> `Producer`.
        ongoing: producer id -> the first offset of its open transaction; the lowest first.
    """

    def __init__(self, entries: dict[int, Producer] | None = None, ongoing: dict[int, int] | None = None) -> None:
        self.entries: dict[int, Producer] = entries or {}
        self.ongoing: dict[int, int] = ongoing or {}
        self._attempts: dict[int, Attempt] = {}
        self._sweep_at = _SWEEP_AT

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self.ongoing.values()), None)

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

    def begins(self, producer_id: int, epoch: int) -> bool:
        """Whether a transactional batch of this producer is the first of its transaction here.

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has been seen.
        """
        if producer_id not in self.entries:
            return True
        self._check_epoch(producer_id, epoch)
        return self.entries[producer_id].epoch != epoch or producer_id not in self.ongoing

    def attempt(self, batch: RecordBatch, *, rises: bool) -> None:
        """Note that ``batch`` would begin a transaction, before anybody decides whether it may.

        Args:
            rises: the transaction is of version 2.
        """
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        known = self._attempts.get(producer_id)
        if known is None:
            if len(self._attempts) >= _MAX_ATTEMPTS:
                del self._attempts[next(iter(self._attempts))]
            self._attempts[producer_id] = Attempt(epoch, sequence, rises)
        elif epoch > known.epoch:
            known.epoch, known.lowest = epoch, sequence
        elif epoch == known.epoch:
            known.lowest = min(known.lowest, sequence)

    def check(self, batch: RecordBatch) -> None:
        """Whether ``batch`` may follow what is stored.

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has been seen.
            OutOfOrderSequenceNumber: a batch before it is missing.
            InvalidTxnState: its producer has an open transaction, and the batch is not part of one.
        """
        producer = self.entries.get(batch.producer_id)
        if producer is not None:
            self._check_epoch(batch.producer_id, batch.producer_epoch)
        is_new = producer is None or producer.epoch != batch.producer_epoch
        expected = 0 if producer is None or is_new else (producer.last_sequence + 1) & LAST_SEQUENCE
        attempt = self._attempts.get(batch.producer_id)
        if producer is None:
            highest = LAST_SEQUENCE if attempt is None else 0 if attempt.rises else attempt.lowest
            fits = batch.base_sequence <= highest
        else:
            fits = batch.base_sequence == expected and (attempt is None or expected <= attempt.lowest)
        if not fits:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} sends sequence {batch.base_sequence} of epoch {batch.producer_epoch}; "
                f"{expected} comes next"
            )
        if not batch.transactional and batch.producer_id in self.ongoing:
            raise InvalidTxnState(
                f"producer {batch.producer_id} has an open transaction, and this batch is not part of it"
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, newer: bool = False) -> None:
        """Whether a marker may end the producer's transaction.

        Args:
            newer: the epoch must be higher than that of an open transaction's records (version 2, KIP-1228).

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has been seen.
            TransactionCoordinatorFenced: a newer coordinator has.
        """
        if (producer := self.entries.get(producer_id)) is None:
            return
        self._check_epoch(producer_id, epoch - (newer and producer_id in self.ongoing))
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of coordinator epoch {coordinator_epoch} for producer {producer_id}, which has one of "
                f"{producer.coordinator_epoch}"
            )

    def _check_epoch(self, producer_id: int, epoch: int) -> None:
        if epoch < (seen := self.entries[producer_id].epoch):
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {epoch}, and epoch {seen} has been seen")

    def record(self, batch: RecordBatch, now: float = 0.0) -> CompletedTransaction | None:
        """Remember ``batch``, which is stored at its `base_offset`; return the transaction that it ends.

        Args:
            now: seconds of the broker's clock.
        """
        producer = self.entries.get(batch.producer_id)
        if producer is None:
            if len(self.entries) >= self._sweep_at:
                self.expire(now)
            producer = self.entries[batch.producer_id] = Producer(batch.producer_epoch, batch.max_timestamp)
        if producer.epoch != batch.producer_epoch:
            producer.batches.clear()
            producer.epoch = batch.producer_epoch
        producer.last_timestamp, producer.last_seen = batch.max_timestamp, now
        if batch.transactional:
            self._drop_attempt(batch)
        if batch.control:
            return self._end(producer, batch)
        if batch.transactional:
            self.ongoing.setdefault(batch.producer_id, batch.base_offset)
        producer.batches.append(_metadata(batch))
        return None

    def _drop_attempt(self, batch: RecordBatch) -> None:
        """The transaction has begun or ended; but the next one may have been attempted before this one's marker."""
        attempt = self._attempts.get(batch.producer_id)
        if attempt is not None and not (batch.control and attempt.rises and attempt.epoch == batch.producer_epoch):
            del self._attempts[batch.producer_id]

    def _end(self, producer: Producer, batch: RecordBatch) -> CompletedTransaction | None:
        """A control batch ends the producer's transaction, if one is open."""
        if (marker := end_marker(batch)) is None:
            return None
        producer.coordinator_epoch = marker.value.coordinator_epoch
        completed = self.ending(batch.producer_id, batch.base_offset, aborted=marker.type == ABORT)
        self.ongoing.pop(batch.producer_id, None)
        return completed

    def ending(self, producer_id: int, marker: int, *, aborted: bool) -> CompletedTransaction | None:
        """The producer's open transaction, as it is when its marker stands at that offset."""
        if (first := self.ongoing.get(producer_id)) is None:
            return None
        others = (offset for other, offset in self.ongoing.items() if other != producer_id)
        return CompletedTransaction(producer_id, first, marker, aborted, next(others, marker + 1))

    def replay(self, batches: Iterable[RecordBatch], since: int = 0) -> list[CompletedTransaction]:
        """Remember ``batches`` of a log, as they were accepted before; return the transactions that they end.

        Args:
            since: what is remembered so far is of this offset: batches before it tell only what a snapshot leaves out,
                which is all but the last batch of a producer.
        """
        older: Producers | None = Producers()
        completed = []
        for batch in batches:
            if batch.producer_id < 0:
                continue
            if older is not None and batch.base_offset < since:
                older.record(batch)
                continue
            if older is not None:
                self._complete_from(older)
                older = None
            if (transaction := self.record(batch)) is not None:
                completed.append(transaction)
        if older is not None:
            self._complete_from(older)
        return completed

    def _complete_from(self, older: "Producers") -> None:
        """Take the batches of the same epochs that are not remembered."""
        for producer_id, before in older.entries.items():
            producer = self.entries.setdefault(producer_id, before)
            if producer.epoch == before.epoch:
                batches = {batch.last_offset: batch for batch in (*before.batches, *producer.batches)}
                in_order = [batches[last_offset] for last_offset in sorted(batches)]
                producer.batches = deque(in_order, maxlen=REMEMBERED_BATCHES)

    def seen_at(self, now: float) -> None:
        """Count the time until producers are forgotten from ``now`` on: after a start nobody knows for how long they
        were silent."""
        for producer in self.entries.values():
            producer.last_seen = now

    def expire(self, now: float) -> None:
        """Forget those that were last seen a day before ``now`` and have no open transaction."""
        for producer_id, producer in list(self.entries.items()):
            if now - producer.last_seen >= EXPIRATION and producer_id not in self.ongoing:
                del self.entries[producer_id]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self.entries))


def end_marker(batch: RecordBatch) -> ControlRecord | None:
    """The marker in a control batch; ``None`` where that is of another kind, or not to be understood."""
    try:
        for record in batch.records():
            marker = parse_control(record.key, record.value)
            return marker if marker is not None and marker.type in (ABORT, COMMIT) else None
    except DecodeError:
        pass
    return None


def _metadata(batch: RecordBatch) -> BatchMetadata:
    return BatchMetadata(batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)
