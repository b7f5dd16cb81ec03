"""The state of idempotent producers in a partition: the epoch, the last five batches and the open transaction of each.

Rules:
- A duplicate is a batch of the same epoch with exactly the first and last sequence of a remembered batch. Duplicates
  are detected before all other checks, so a retry is answered with the original offset whatever came after it.
- A lower epoch is fenced. A new epoch begins at sequence 0; the same epoch continues at the last sequence + 1, which
  wraps from 2**31 - 1 to 0. An unknown producer may begin at any sequence, except in a transaction of version 2
  (KIP-890), where a sequence above 0 means that an earlier batch was lost.
- A transaction begins with its first batch in this partition and ends with its marker. In between, the producer may
  send only transactional batches. If the first batch is refused, no batch with a higher sequence may take its place.
- A marker has no sequence: sequences of its epoch continue after it, and a higher epoch begins at 0.
- A producer without an open transaction is forgotten a day after its last batch arrived, by the broker's clock, not by
  timestamps: records may be of any age.

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
"""With this many producers or more, expired ones are removed before another is added."""
_MAX_ATTEMPTS = 1000
"""The oldest is dropped for a new one: any client can cause attempts."""


class BatchMetadata(NamedTuple):
    """A batch that was stored."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """The last record's offset minus the first record's."""
    timestamp: int
    """The largest timestamp, in milliseconds."""

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
    """Offset of its first record."""
    last_offset: int
    """Offset of its marker."""
    aborted: bool
    last_stable_offset: int
    """The last stable offset once the marker is written: after the marker, or where another open transaction begins."""

    def index_entry(self) -> AbortedTxn:
        """Return the transaction's entry for the index of aborted transactions."""
        return AbortedTxn(
            producer_id=self.producer_id,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            last_stable_offset=self.last_stable_offset,
        )


@dataclass(slots=True)
class ProducerStateEntry:
    """The state of one producer id.

    Attributes:
        last_timestamp: the largest timestamp of its last batch or marker, in milliseconds; snapshots keep it.
        last_seen: when its last batch or marker arrived, in seconds of the broker's clock.
    """

    epoch: int
    last_timestamp: int
    coordinator_epoch: int = -1
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    last_seen: float = 0.0

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 if no batch is remembered."""
        return self.batches[-1].last_sequence if self.batches else -1

    def seen(self, batch: RecordBatch, now: float) -> None:
        """Notice a stored batch or marker; a new epoch forgets the batches of the last one."""
        if self.epoch != batch.producer_epoch:
            self.batches.clear()
            self.epoch = batch.producer_epoch
        self.last_timestamp, self.last_seen = batch.max_timestamp, now

    def seen_at(self, now: float) -> None:
        """Restart the expiration at ``now``."""
        self.last_seen = now

    def marked(self, coordinator_epoch: int) -> None:
        """Notice a stored marker of a coordinator with this epoch."""
        self.coordinator_epoch = coordinator_epoch

    def complete_from(self, before: "ProducerStateEntry") -> None:
        """Add the batches of an earlier state that are missing here, if the epochs are the same."""
        if self.epoch == before.epoch:
            batches = {batch.last_offset: batch for batch in (*before.batches, *self.batches)}
            in_order = [batches[last_offset] for last_offset in sorted(batches)]
            self.batches = deque(in_order, maxlen=REMEMBERED_BATCHES)


@dataclass(slots=True)
class Attempt:
    """Batches of one producer that would have begun a transaction here but have not been stored.

    Attributes:
        lowest: the lowest of their sequences.
        rises: the transaction is of version 2, where an unknown producer begins at sequence 0.
    """

    epoch: int
    lowest: int
    rises: bool

    def add(self, epoch: int, sequence: int) -> None:
        """Count another batch: one of a later epoch replaces all before it, one of an earlier epoch changes nothing."""
        if epoch > self.epoch:
            self.epoch, self.lowest = epoch, sequence
        elif epoch == self.epoch:
            self.lowest = min(self.lowest, sequence)


class Producers:
    """Checks and remembers the producers of one partition.

    Attributes:
        entries: producer id -> `ProducerStateEntry`.
        ongoing: producer id -> the first offset of its open transaction, in ascending order of offsets.
    """

    def __init__(
        self, entries: dict[int, ProducerStateEntry] | None = None, ongoing: dict[int, int] | None = None
    ) -> None:
        self.entries: dict[int, ProducerStateEntry] = entries or {}
        self.ongoing: dict[int, int] = ongoing or {}
        self._attempts: dict[int, Attempt] = {}
        self._sweep_at = _SWEEP_AT

    @property
    def first_unstable_offset(self) -> int | None:
        """The offset at which the oldest open transaction begins; ``None`` if no transaction is open."""
        return next(iter(self.ongoing.values()), None)

    def duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """Return the stored batch that ``batch`` repeats, if any."""
        producer = self.entries.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for stored in producer.batches:
            if stored.last_sequence == last and stored.first_sequence == first:
                return stored
        return None

    def begins(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transactional batch of this producer is the first of its transaction in this partition.

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has fenced this one.
        """
        if producer_id not in self.entries:
            return True
        self._check_epoch(producer_id, epoch)
        return self.entries[producer_id].epoch != epoch or producer_id not in self.ongoing

    def attempt(self, batch: RecordBatch, *, rises: bool) -> None:
        """Note that ``batch`` would begin a transaction, before the coordinator decides whether it may.

        Args:
            rises: the transaction is of version 2.
        """
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        known = self._attempts.get(producer_id)
        if known is None:
            if len(self._attempts) >= _MAX_ATTEMPTS:
                del self._attempts[next(iter(self._attempts))]
            self._attempts[producer_id] = Attempt(epoch, sequence, rises)
        else:
            known.add(epoch, sequence)

    def check(self, batch: RecordBatch) -> None:
        """Check that ``batch`` may be appended.

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has fenced this one.
            OutOfOrderSequenceNumber: a batch before it is missing.
            InvalidTxnState: its producer has an open transaction, but the batch is not transactional.
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
                f"producer {batch.producer_id} sent sequence {batch.base_sequence} of epoch {batch.producer_epoch}; "
                f"expected {expected}"
            )
        if not batch.transactional and batch.producer_id in self.ongoing:
            raise InvalidTxnState(
                f"producer {batch.producer_id} has an open transaction, but this batch is not transactional"
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, newer: bool = False) -> None:
        """Check that a marker may end the producer's transaction.

        Args:
            newer: the epoch must be higher than the epoch of the open transaction's records (version 2, KIP-1228).

        Raises:
            InvalidProducerEpoch: a newer instance of the producer has fenced this one.
            TransactionCoordinatorFenced: a newer coordinator has written a marker already.
        """
        if (producer := self.entries.get(producer_id)) is None:
            return
        self._check_epoch(producer_id, epoch - (newer and producer_id in self.ongoing))
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {producer_id} has coordinator epoch {coordinator_epoch}; "
                f"the last marker had {producer.coordinator_epoch}"
            )

    def _check_epoch(self, producer_id: int, epoch: int) -> None:
        if epoch < (seen := self.entries[producer_id].epoch):
            raise InvalidProducerEpoch(f"producer {producer_id} sent epoch {epoch}; its latest epoch is {seen}")

    def record(self, batch: RecordBatch, now: float = 0.0) -> CompletedTransaction | None:
        """Update the state with ``batch``, stored at its `base_offset`; return the transaction that it ends, if any.

        Args:
            now: seconds of the broker's clock.
        """
        producer = self.entries.get(batch.producer_id)
        if producer is None:
            if len(self.entries) >= self._sweep_at:
                self.expire(now)
            producer = self.entries[batch.producer_id] = ProducerStateEntry(batch.producer_epoch, batch.max_timestamp)
        producer.seen(batch, now)
        if batch.transactional:
            self._drop_attempt(batch)
        if batch.control:
            return self._end(producer, batch)
        if batch.transactional:
            self.ongoing.setdefault(batch.producer_id, batch.base_offset)
        producer.batches.append(_metadata(batch))
        return None

    def _drop_attempt(self, batch: RecordBatch) -> None:
        """Drop the producer's attempt, unless it belongs to the next transaction.

        The next transaction may have been attempted before this one's marker is written.
        """
        attempt = self._attempts.get(batch.producer_id)
        if attempt is not None and not (batch.control and attempt.rises and attempt.epoch == batch.producer_epoch):
            del self._attempts[batch.producer_id]

    def _end(self, producer: ProducerStateEntry, batch: RecordBatch) -> CompletedTransaction | None:
        """End the producer's open transaction, if ``batch`` is a marker."""
        if (marker := end_marker(batch)) is None:
            return None
        producer.marked(marker.value.coordinator_epoch)
        completed = self.ending(batch.producer_id, batch.base_offset, aborted=marker.type == ABORT)
        self.ongoing.pop(batch.producer_id, None)
        return completed

    def ending(self, producer_id: int, marker: int, *, aborted: bool) -> CompletedTransaction | None:
        """Return the producer's open transaction as completed by a marker at offset ``marker``."""
        if (first := self.ongoing.get(producer_id)) is None:
            return None
        others = (offset for other, offset in self.ongoing.items() if other != producer_id)
        return CompletedTransaction(producer_id, first, marker, aborted, next(others, marker + 1))

    def replay(self, batches: Iterable[RecordBatch], since: int = 0) -> list[CompletedTransaction]:
        """Update the state with ``batches`` of a log, without checks; return the transactions that they end.

        Args:
            since: the offset of the snapshot that the state came from. A snapshot has only the last batch of each
                producer; batches before this offset fill in the others.
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
        """Add the producers and batches of ``older`` that are missing here."""
        for producer_id, before in older.entries.items():
            self.entries.setdefault(producer_id, before).complete_from(before)

    def seen_at(self, now: float) -> None:
        """Restart the expiration of all producers at ``now``: after a start it is unknown how long they were idle."""
        for producer in self.entries.values():
            producer.seen_at(now)

    def expire(self, now: float) -> None:
        """Forget producers that were idle for `EXPIRATION` seconds and have no open transaction."""
        for producer_id, producer in list(self.entries.items()):
            if now - producer.last_seen >= EXPIRATION and producer_id not in self.ongoing:
                del self.entries[producer_id]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self.entries))


def end_marker(batch: RecordBatch) -> ControlRecord | None:
    """Return the marker in a control batch; ``None`` if the batch is of another kind or cannot be parsed."""
    try:
        for record in batch.records():
            marker = parse_control(record.key, record.value)
            return marker if marker is not None and marker.type in (ABORT, COMMIT) else None
    except DecodeError:
        pass
    return None


def _metadata(batch: RecordBatch) -> BatchMetadata:
    return BatchMetadata(batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)
