"""Recognises retries of idempotent clients to rewritten topics, as a broker does.

A client numbers its records for each (producer id, partition that it chose). A broker remembers the last five batches
of each and answers retries from memory. The proxy sends the records to other partitions, so it must remember the
batches itself: in a `Window` for each (producer id, topic, partition that the client chose).

Rules:
- Only producer ids that were allocated through this proxy are known. Another one might have stored records through the
  proxy before a restart without a journal. So it is fenced, even at sequence 0: a restart never duplicates records.
- A batch is sent to upstream, or refused, once its records are read (maybe in a thread) and earlier batches are sent.
- Batches are answered in order. Batches after a refused one in its epoch are refused, too, with
  OUT_OF_ORDER_SEQUENCE_NUMBER, as on a broker. A replacement for it waits until all of them are settled.
- If upstream does not accept a batch for now, all batches after it get the same error, until it comes again: a broker
  judges the partition before the sequence. Clients then send all of them again, in order, with the same sequences.
  After OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka would bump its epoch each time, and wait for all its partitions.
- A retry has the same sequences, as for a broker. Its checksum may differ: sarama and kafkajs give it new timestamps.
- Some records of a refused batch may be stored. The client sends them again with other sequences, in other batches or
  in another epoch. So the proxy recognises them by their content, until a batch has none of the refused records.
  Content is key, value, headers, and the time, without which new records that say the same would be left out. In place
  of the time, the epoch and the sequence may be the same: sarama and kafkajs send records with new times, but never
  under another sequence (`retryMessages` of sarama's async_producer.go, kafkajs's sendMessages.js).
- The same holds for a batch that is stored after its request was answered with REQUEST_TIMED_OUT, until a retry has
  learned of that: if a later batch fails, Java's client sends the first one again in its next epoch.
- A batch with an unknown outcome fences its producer, because a retry might duplicate it. In the next epoch only its
  records are refused.
- Transactions do not need this: a batch that fails, or whose outcome is unknown, has its transaction aborted.
- Each window has its own epoch, because Java's client bumps the epoch partition by partition. A batch of a new epoch
  waits until all batches of the previous epoch are settled.

Source: ProducerStateManager.java, ProducerAppendInfo.java (NUM_BATCHES_TO_RETAIN = 5), TransactionManager.java
(bumpIdempotentProducerEpoch).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.errors import (
    BY_CODE,
    InvalidProducerEpoch,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAbortable,
    UnknownProducerId,
    UnknownServerError,
    broker_error,
)
from ottla.proxy.clients.refused_records import OUTCOME_UNKNOWN, Fingerprint, RefusedRecords, RememberedRecords
from ottla.proxy.journal.journaled import Journaled
from ottla.proxy.upstream.batches import PartResult

REMEMBERED_BATCHES = 5
SEQUENCES = 2**31
_UNTOLD = 48
"""Approximate bytes of memory for a record in `AnsweredBatch.untold`."""

B = TypeVar("B", bound="Numbered")


@dataclass(frozen=True, slots=True)
class ClientResult:
    """The result of a batch in the response to its client."""

    error_code: int
    base_offset: int = -1
    error_message: str | None = None
    append_time: int = -1
    """See `PartResult.append_time`; the latest of its parts."""
    record_errors: tuple[tuple[int, str], ...] = ()
    """See `PartResult.record_errors`."""


@dataclass(slots=True, eq=False)
class AnsweredBatch(Journaled):
    """A batch that was answered.

    Attributes:
        sequence: the sequence of its first record.
        count: how many records it has.
        untold: `Fingerprint.timed` of its records, if they are stored, and the client does not know that yet. They
            come again in another epoch, where no `Fingerprint.numbered` is the same.
    """

    sequence: int
    count: int
    outcome: ClientResult
    untold: tuple[int, ...] = ()

    def told(self) -> bool:
        """Take note that a retry gets the outcome; returns whether that is new, so that the journal must have it."""
        new = bool(self.untold)
        self.untold = ()
        self.changed()
        return new


GAP = ClientResult(OutOfOrderSequenceNumber.code, error_message="a batch before it failed")
_OF_OTHERS = {OutOfOrderSequenceNumber.code, UnknownProducerId.code}
"""Errors that are about earlier batches, and not about these records."""


def abortable(result: PartResult) -> ClientResult:
    """The outcome of failed records in a transaction: the client must abort it.

    If upstream's error is about the records or the producer (also if it fences the producer), the client gets that.
    """
    code = result.error_code
    if code in _OF_OTHERS or BY_CODE.get(code, UnknownServerError).retriable:
        code = TransactionAbortable.code
    return ClientResult(code, error_message=result.message, record_errors=result.record_errors)


@dataclass(slots=True, eq=False)
class Numbered(Journaled):
    """A batch of an idempotent client under way.

    Attributes:
        opening: its records are not read yet.
        begun: it was handed to the delivery.
        open_parts: how many of its parts are unsettled.
        offset: the offset of its first record, if it stayed whole.
        append_time: the latest time that brokers gave its parts; -1: its records have their own times.
        failure: why it is not stored, or only in part.
        ahead: the failure of the batch before it with which it was refused.
        refused: it or an earlier batch has failed.
        transactional: it belongs to a transaction, which is aborted if the batch fails.
    """

    epoch: int
    base_sequence: int
    count: int
    transactional: bool = False
    opening: bool = False
    begun: bool = False
    open_parts: int = 0
    offset: int = -1
    append_time: int = -1
    failure: PartResult | None = None
    ahead: PartResult | None = None
    refused: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether its outcome is known."""
        return self.open_parts == 0 and not self.opening and (self.begun or self.refused)

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.count) % SEQUENCES

    @property
    def stored_in_part(self) -> bool:
        """Whether some of its records are stored, if it is settled."""
        return False

    @property
    def is_told(self) -> bool:
        """Whether a request waits for its outcome."""
        return True

    def refuse(self, ahead: PartResult | None = None) -> None:
        """Have it not stored, because it or a batch before it, ``ahead``, has failed: unsent parts are never sent."""
        self.refused, self.ahead = True, ahead
        self.changed()

    def fail(self, result: PartResult) -> None:
        """Keep why it is not stored, or only in part: the first reason, but an unknown outcome replaces it."""
        if result.unknown or not self.refused:
            self.failure = result
            self.changed()

    def outcome(self) -> ClientResult:
        """The outcome for its client, once its parts are settled."""
        if not self.refused and self.failure is None:
            return ClientResult(0, self.offset, append_time=self.append_time)
        why = self.failure or self.ahead
        if why is not None and why.passed_on and not (self.transactional and self.stored_in_part):
            code = NotEnoughReplicasAfterAppend.code if self.stored_in_part else why.error_code
            return ClientResult(code, error_message=why.message)
        if self.failure is None:
            return GAP
        if self.transactional:
            return abortable(self.failure)
        fenced = self.failure.unknown and self.epoch >= 0
        return ClientResult(
            ProducerFenced.code if fenced else self.failure.error_code,
            error_message=self.failure.message,
            record_errors=self.failure.record_errors,
        )

    def fingerprints(self) -> Iterable[tuple[Fingerprint, bool | None]]:
        """For each record its fingerprint, and whether it is stored (``None``: unknown)."""
        return ()


class Window(Generic[B]):
    """Tracks a client's batches from one producer id to one partition.

    Attributes:
        under_way: unsettled batches in the order of their arrival, in which they are answered.
        epoch: the epoch of the newest batch.
        next_sequence: the sequence after the newest batch.
        done: the last answered batches.
        refusal: the failure of the batch with ``next_sequence``, if upstream does not accept it for now.
        fenced: a retry might duplicate records, because the outcome of a batch is unknown.
    """

    __slots__ = ("_refused", "done", "epoch", "fenced", "next_sequence", "refusal", "under_way")

    def __init__(
        self,
        epoch: int = -1,
        next_sequence: int = 0,
        fenced: bool = False,
        done: Iterable[AnsweredBatch] = (),
        refused: RefusedRecords = RefusedRecords(),  # noqa: B008 # immutable
    ) -> None:
        """Create an empty window, or restore one from the journal."""
        self.under_way: list[B] = []  # no deque, which takes 600 bytes when it is empty
        self.epoch, self.next_sequence, self.fenced = epoch, next_sequence, fenced
        self.done = [*done][-REMEMBERED_BATCHES:]
        self.refusal: PartResult | None = None
        self._refused: RememberedRecords | None = None
        for stored, remembered in ((True, refused.stored), (False, refused.others), (None, refused.unknown)):
            self._remember((each, stored) for each in remembered)
        if self._refused is not None:
            for numbered, timed in refused.numbered.items():
                self._refused.number(numbered, timed)

    def refused_records(self) -> RefusedRecords:
        """The part of the refused batches that the journal keeps."""
        return self._refused.all() if self._refused is not None else RefusedRecords()

    def look_up(self, epoch: int, base_sequence: int, count: int) -> B | AnsweredBatch | None:
        """Look up a batch: returns it if it is under way or answered, or ``None`` if it is the next new one.

        Raises:
            InvalidProducerEpoch: the window has a newer epoch.
            OutOfOrderSequenceNumber: it is neither a retry nor the next batch.
            ProducerFenced: a retry might duplicate records.
        """
        if epoch < self.epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} is fenced by epoch {self.epoch}")
        if epoch > self.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequenceNumber(f"epoch {epoch} starts at sequence {base_sequence} instead of 0")
            return None
        for batch in self.under_way:
            if (batch.epoch, batch.base_sequence, batch.count) == (epoch, base_sequence, count):
                return batch
        if self.fenced:
            raise ProducerFenced(OUTCOME_UNKNOWN)
        for answered in self.done:
            if (answered.sequence, answered.count) == (base_sequence, count):
                return answered
        ahead = (base_sequence - self.next_sequence) % SEQUENCES < SEQUENCES // 2
        if base_sequence != self.next_sequence and ahead and self.refusal is not None:
            raise broker_error(self.refusal.error_code, self.refusal.message)
        if base_sequence != self.next_sequence:
            raise OutOfOrderSequenceNumber(f"got sequence {base_sequence}, expected {self.next_sequence}")
        failed = next((batch.failure for batch in self.under_way if batch.epoch == epoch and batch.failure), None)
        if failed is not None and failed.passed_on:
            raise broker_error(failed.error_code, failed.message)
        if failed is not None:  # not answered yet
            raise OutOfOrderSequenceNumber("a batch before it failed")
        return None

    def behind(self, batch: B) -> list[B]:
        """A batch under way, and the later ones of its epoch."""
        first = next((index for index, each in enumerate(self.under_way) if each is batch), len(self.under_way))
        return [each for each in self.under_way[first:] if each.epoch == batch.epoch]

    def begin(self, batch: B) -> None:
        """Add a batch for which `look_up` returned ``None``; `due` returns it when it can be sent."""
        if batch.epoch > self.epoch:
            self.epoch, self.fenced = batch.epoch, False
            self._remember((each, True) for answered in self.done for each in answered.untold)
            self.done.clear()
        self.next_sequence, self.refusal = batch.next_sequence, None
        self.under_way.append(batch)

    def due(self) -> B | None:
        """The next batch that can be sent to upstream."""
        for batch in self.under_way:
            if batch.refused or batch.opening or batch.epoch != self.under_way[0].epoch:
                return None
            if not batch.begun:
                return batch
        return None

    def failed(self, batch: B, result: PartResult) -> list[B]:
        """Mark a batch that failed, at least in part, and the later ones of its epoch as refused; returns the newly
        refused ones.
        """
        batch.fail(result)
        if result.unknown and batch.epoch == self.epoch and not batch.transactional:
            self.fenced = True
        refused = [each for each in self.behind(batch) if not each.refused]
        for each in refused:
            each.refuse(None if each is batch else result)
        return refused

    def pop_settled(self) -> B | None:
        """Remove the first batch if it is settled; the caller must call `judged` with it."""
        if self.under_way and self.under_way[0].is_settled:
            return self.under_way.pop(0)
        if not self.remembers and not any(batch.refused for batch in self.under_way):
            self._refused = None
        return None

    def judged(self, batch: B) -> ClientResult:
        """The outcome for the client of a settled batch, which is remembered for retries."""
        outcome = batch.outcome()
        if not batch.refused:
            known = batch.is_told or batch.transactional
            untold = () if known else tuple(each.timed for each, _ in batch.fingerprints())
            if batch.epoch == self.epoch:
                answered = AnsweredBatch(batch.base_sequence, batch.count, outcome, untold)
                self.done = [*self.done, answered][-REMEMBERED_BATCHES:]
            else:
                self._remember((each, True) for each in untold)
            return outcome
        if not batch.transactional:  # the abort of a transaction removes its stored records, so all are sent again
            self._remember_refused(batch)
        behind = (self.next_sequence - batch.base_sequence) % SEQUENCES > SEQUENCES // 2
        if batch.failure is not None and batch.epoch == self.epoch and not behind:  # no earlier batch has failed
            self.next_sequence = batch.base_sequence
            self.refusal = batch.failure if batch.failure.passed_on else None
        return outcome

    def _remember_refused(self, batch: B) -> None:
        fingerprints = list(batch.fingerprints())
        self._remember((each.timed, stored) for each, stored in fingerprints)
        if self._refused is not None:
            for each, _ in fingerprints:
                self._refused.number(each.numbered, each.timed)

    def _remember(self, records: Iterable[tuple[int, bool | None]]) -> None:
        """Remember records by `Fingerprint.timed`, with whether they are stored."""
        for timed, stored in records:
            if self._refused is None:
                self._refused = RememberedRecords()
            self._refused.add(timed, stored)

    def abandon(self) -> list[B]:
        """Fence the producer, because a bug makes all outcomes unknown; returns the batches that were under way."""
        under_way, self.under_way = self.under_way, []
        self.fenced = True
        return under_way

    @property
    def memory(self) -> int:
        """Approximate bytes for the remembered records."""
        untold = _UNTOLD * sum(len(answered.untold) for answered in self.done)
        return untold if self._refused is None else untold + self._refused.memory

    @property
    def remembers(self) -> bool:
        """Some records of refused batches are or may be stored, and the next batch may have them again."""
        return self._refused is not None and self._refused.matters

    def stored_already(self, fingerprints: Iterable[Fingerprint]) -> set[int]:
        """The indexes of a new batch's records that are stored although an earlier batch with them was refused.

        Raises:
            ProducerFenced: the outcome of one of them is unknown.
        """
        if self._refused is None:
            return set()
        found, known = self._refused.take(fingerprints)
        if not found and not known:
            self._refused = None  # the client sends other records now
        return found
