"""What idempotent clients have sent to rewritten topics: the memory that makes a retry harmless.

A client numbers the records of each (producer id, partition it chose); a broker remembers the last five batches of each
and answers a retry from memory. Here the records go elsewhere, so this memory is the proxy's: a `Window` for each
(producer id, topic, partition that the client chose).

Rules:
- Only producer ids that were allocated through this proxy are known. Any other might have stored records through an
  earlier life of the proxy that left no journal, so it is fenced, even at sequence 0: a restart never duplicates.
- A batch goes to upstream, or is refused, once it is opened (which a thread may do) and those before it have gone.
- Batches are told of in their order. What follows a refused batch in its epoch is refused too, as a gap, just as on a
  broker: OUT_OF_ORDER_SEQUENCE_NUMBER. What comes in its place waits until all of that is settled.
- Of what was refused some records may be stored all the same. A client sends them again under other numbers, in other
  batches, in another epoch: so they are known by what is in them, until a batch comes that has none of the refused.
- A batch whose outcome nobody can know fences its producer: a retry might duplicate it. In the next epoch that holds
  for its records only.
- In a transaction nothing of that is needed: a batch that fails, or of which nobody knows, has it aborted.
- The epoch is the window's, not the producer's: Java raises it by itself, partition by partition. A batch of another
  epoch waits until those of the one before are settled.

Source: ProducerStateManager.java, ProducerAppendInfo.java (NUM_BATCHES_TO_RETAIN = 5), TransactionManager.java
(bumpIdempotentProducerEpoch).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ottla.errors import (
    BY_CODE,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAbortable,
    UnknownProducerId,
    UnknownServerError,
)
from ottla.proxy.upstream.batches import Result

REMEMBERED_BATCHES = 5
_SEQUENCES = 2**31

B = TypeVar("B", bound="Numbered")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client is told of a batch."""

    error_code: int
    base_offset: int = -1
    error_message: str | None = None


@dataclass(slots=True)
class Told:
    """A batch that its client was told of.

    Attributes:
        sequence: of its first record.
        count: of its records.
        noted: what the journal has written of it, which is written again whenever its window changes.
    """

    sequence: int
    count: int
    outcome: Outcome
    noted: Any = None


GAP = Outcome(OutOfOrderSequenceNumber.code, error_message="a batch before it failed")
_OF_OTHERS = {OutOfOrderSequenceNumber.code, UnknownProducerId.code}
"""Errors that say nothing of the records themselves."""


def abortable(result: Result) -> Outcome:
    """What a client is told of records of a transaction that failed: it must abort it, and no more than that.

    Where upstream has a reason of its own it is that, also where it fences the producer.
    """
    code = result.error_code
    if code in _OF_OTHERS or BY_CODE.get(code, UnknownServerError).retriable:
        code = TransactionAbortable.code
    return Outcome(code, error_message=result.message)


@dataclass(slots=True, eq=False)
class Numbered:
    """A batch that a client has numbered, while it is under way.

    Attributes:
        opening: its records are not known yet.
        begun: it is on its way to upstream.
        open_parts: so many of its parts are not settled.
        offset: of its first record, where it stayed whole.
        failure: why it is not stored, or not all of it.
        refused: it, or one before it, has failed.
        transactional: it belongs to a transaction, which is aborted if it fails.
        noted: what the journal has written of it, which is written again whenever its window changes.
    """

    epoch: int
    base_sequence: int
    count: int
    transactional: bool = False
    opening: bool = False
    begun: bool = False
    open_parts: int = 0
    offset: int = -1
    failure: Result | None = None
    refused: bool = False
    noted: Any = None

    @property
    def is_settled(self) -> bool:
        """What became of it is known."""
        return self.open_parts == 0 and not self.opening and (self.begun or self.refused)

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.count) % _SEQUENCES

    def outcome(self) -> Outcome:
        """What its client is told, once its parts are settled."""
        if not self.refused and self.failure is None:
            return Outcome(0, self.offset)
        if self.failure is None:
            return GAP
        if self.transactional:
            return abortable(self.failure)
        fenced = self.failure.unknown and self.epoch >= 0
        return Outcome(ProducerFenced.code if fenced else self.failure.error_code, error_message=self.failure.message)

    def fingerprints(self) -> Iterable[tuple[int, bool | None]]:
        """Of each record the hash of what is in it, and whether it is stored; ``None`` where nobody can know."""
        return ()


class _Refused:
    """Records of refused batches, by the hash of what is in them."""

    def __init__(self) -> None:
        self._by: dict[bool | None, Counter[int]] = {True: Counter(), False: Counter(), None: Counter()}
        """Those that are stored, that are not, and of which nobody knows."""

    def add(self, fingerprint: int, stored: bool | None) -> None:
        self._by[stored][fingerprint] += 1

    def all(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return tuple(self._by[True].elements()), tuple(self._by[False].elements()), tuple(self._by[None].elements())

    @property
    def matters(self) -> bool:
        return bool(self._by[True] or self._by[None])

    def take(self, fingerprints: Iterable[int]) -> tuple[set[int], bool]:
        """The indexes of those that are stored, which are forgotten, and whether any of the others is known.

        Raises:
            ProducerFenced: of one nobody can know.
        """
        found: set[int] = set()
        known = False
        for index, each in enumerate(fingerprints):
            if each in self._by[None]:
                raise ProducerFenced(_DOUBT)
            if _took(self._by[True], each):
                found.add(index)
            else:
                known = _took(self._by[False], each) or known
        return found, known


_DOUBT = "the outcome of an earlier batch of this producer is unknown"


def _took(counted: Counter[int], one: int) -> bool:
    if one not in counted:
        return False
    counted[one] -= 1
    if not counted[one]:
        del counted[one]
    return True


class Window(Generic[B]):
    """The batches of one producer id to one partition.

    Attributes:
        under_way: in the order in which they came; none is told of before those ahead of it.
        epoch: of the newest batch, and ``next_sequence`` what comes behind it.
        done: the last that were told of.
        fenced: a retry might duplicate records.
    """

    __slots__ = ("_refused", "done", "epoch", "fenced", "next_sequence", "under_way")

    def __init__(self) -> None:
        self.under_way: list[B] = []  # no deque, which takes 600 bytes when it is empty
        self.epoch = -1
        self.next_sequence = 0
        self.done: list[Told] = []
        self._refused: _Refused | None = None
        self.fenced = False

    @classmethod
    def restored(
        cls,
        epoch: int,
        next_sequence: int,
        fenced: bool,
        done: Iterable[Told],
        refused: tuple[Sequence[int], Sequence[int], Sequence[int]],
    ) -> "Window[B]":
        """As another process has left it; ``refused`` is what its `refused_records` were."""
        window = cls()
        window.epoch, window.next_sequence, window.fenced = epoch, next_sequence, fenced
        window.done = [*done][-REMEMBERED_BATCHES:]
        for kind, fingerprints in zip((True, False, None), refused, strict=True):
            window._remember((each, kind) for each in fingerprints)
        return window

    def refused_records(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Fingerprints of records of refused batches: that are stored, that are not, and of which nobody knows."""
        return self._refused.all() if self._refused is not None else ((), (), ())

    def look_up(self, epoch: int, base_sequence: int, count: int) -> B | Outcome | None:
        """What is known of a batch: it is under way, it is done, or (``None``) it is new and next.

        Raises:
            InvalidProducerEpoch: the epoch is over.
            OutOfOrderSequenceNumber: it is neither a retry nor next.
            ProducerFenced: a retry might duplicate records.
        """
        if epoch < self.epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} has been followed by {self.epoch}")
        if epoch > self.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequenceNumber(f"epoch {epoch} begins with sequence {base_sequence} instead of 0")
            return None
        for batch in self.under_way:
            if (batch.epoch, batch.base_sequence, batch.count) == (epoch, base_sequence, count):
                return batch
        if self.fenced:
            raise ProducerFenced(_DOUBT)
        for told in self.done:
            if (told.sequence, told.count) == (base_sequence, count):
                return told.outcome
        if base_sequence != self.next_sequence:
            raise OutOfOrderSequenceNumber(f"sequence {base_sequence} comes where {self.next_sequence} is next")
        if any(batch.failure for batch in self.under_way if batch.epoch == epoch):  # it is not told of yet
            raise OutOfOrderSequenceNumber("a batch before it failed")
        return None

    def begin(self, batch: B) -> None:
        """Take on a batch that `look_up` found to be next; `due` says when it goes."""
        if batch.epoch > self.epoch:
            self.epoch, self.fenced = batch.epoch, False
            self.done.clear()
        self.next_sequence = batch.next_sequence
        self.under_way.append(batch)

    def due(self) -> B | None:
        """The next batch that may go to upstream."""
        for batch in self.under_way:
            if batch.refused or batch.opening or batch.epoch != self.under_way[0].epoch:
                return None
            if not batch.begun:
                return batch
        return None

    def failed(self, batch: B, result: Result) -> list[B]:
        """A batch that is under way has failed, or some of it; those that are refused for that.

        What is behind it in its epoch is refused with it.
        """
        if result.unknown or not batch.refused:
            batch.failure = result
        if result.unknown and batch.epoch == self.epoch and not batch.transactional:
            self.fenced = True
        behind = False
        refused: list[B] = []
        for each in self.under_way:
            behind = behind or each is batch
            if behind and each.epoch == batch.epoch and not each.refused:
                each.refused = True
                refused.append(each)
        return refused

    def pop_settled(self) -> B | None:
        """Take out the next batch of which the end is known, and that of all before it; `judged` has to follow."""
        if self.under_way and self.under_way[0].is_settled:
            return self.under_way.pop(0)
        if not self.remembers and not any(batch.refused for batch in self.under_way):
            self._refused = None
        return None

    def judged(self, batch: B) -> Outcome:
        """What the client is told of a batch that is over."""
        outcome = batch.outcome()
        if not batch.refused:
            if batch.epoch == self.epoch:
                self.done = [*self.done, Told(batch.base_sequence, batch.count, outcome)][-REMEMBERED_BATCHES:]
            return outcome
        if not batch.transactional:  # what is stored of it is aborted otherwise, and has to come again
            self._remember(batch.fingerprints())
        behind = (self.next_sequence - batch.base_sequence) % _SEQUENCES > _SEQUENCES // 2
        if batch.failure is not None and batch.epoch == self.epoch and not behind:  # one before it has failed already
            self.next_sequence = batch.base_sequence
        return outcome

    def _remember(self, fingerprints: Iterable[tuple[int, bool | None]]) -> None:
        for each, stored in fingerprints:
            if self._refused is None:
                self._refused = _Refused()
            self._refused.add(each, stored)

    def abandon(self) -> list[B]:
        """Nobody knows any more what is stored: fence the producer. Returns the batches that were under way."""
        under_way, self.under_way = self.under_way, []
        self.fenced = True
        return under_way

    @property
    def remembers(self) -> bool:
        """Records of refused batches are stored, or may be: what comes next may be among them."""
        return self._refused is not None and self._refused.matters

    def stored_already(self, fingerprints: Iterable[int]) -> set[int]:
        """The indexes of those records of a new batch that are stored, since a batch with them was refused.

        Raises:
            ProducerFenced: of one nobody can know.
        """
        if self._refused is None:
            return set()
        found, known = self._refused.take(fingerprints)
        if not found and not known:
            self._refused = None  # the client has gone on to other records
        return found
