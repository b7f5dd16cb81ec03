"""Consume, transform, produce: what is made of a batch is there once, and its group goes on behind it, or neither.

    next ──► begin ──► the user's block ──► leave ──► next
      │                                       ├ committed
      │                                       └ aborted, or not known: its batches are handed out again
      └ waits until a transaction can begin, then puts together what it is to be about

Rules:
- Offsets travel with the transaction as the member's that has the partitions. What it loses meanwhile aborts the
  transaction; what it is to give up waits until the transaction has ended, for that happens between two batches only.
- Batches that were not committed come again: their partitions are read from where they began. If nobody knows whether
  the transaction is committed, they are read from where the group stands once that is decided.
- An error that may pass makes an end of the transaction, and of nothing else: the block is left without it, and the
  batches come again, up to `attempts` times in a row. A lost partition counts, too: a handler that is slower than its
  group allows loses it each time. All else is raised.
- A transaction for which batches were put together ends with a commit before others are handed out, or they come again:
  so nothing is passed over by mistake.

Source: KIP-447; KafkaProducer.java, sendOffsetsToTransaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.errors import (
    ConfigurationError,
    InvalidProducerEpoch,
    InvalidTxnState,
    LocalProtocolError,
    OttlaError,
    OutOfOrderSequenceNumber,
    TimeoutExpired,
    TransactionAborted,
    UnknownProducerId,
)
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.arguments import integer
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.fetcher import Offset, Start
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction.core import TransactionCore, alone

log = logger("ottla.sdk.transform")

_NEXT_EPOCH_MENDS = (InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber, UnknownProducerId)
"""Errors that are over with their transaction, unless it could not be aborted: the producer is of no more use then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOptions:
    """See `ottla.sdk.client.Client.transform`.

    Attributes:
        max_records: of one transaction; ``None``: no limit.
        max_bytes: the same, as they came.
        max_wait: seconds to wait for more.
        attempts: of one batch, in a row.
    """

    max_records: int | None = None
    max_bytes: int = 8 * 2**20
    max_wait: float = 0.0
    attempts: int = 5

    def __post_init__(self) -> None:
        if integer("attempts", self.attempts) < 1:
            raise ConfigurationError(f"attempts must be 1 or more, not {self.attempts}")


class TransformCore:
    """Transactions of ``producer`` about batches of ``consumer``, which is a member of a group."""

    def __init__(
        self, core: ClientCore, consumer: ConsumerCore, producer: ProducerCore, options: TransformOptions
    ) -> None:
        if producer.transactions is None or consumer.commits is None:
            raise LocalProtocolError("a transform needs a group and a transactional id")
        self.core, self.consumer, self.producer, self._options = core, consumer, producer, options
        self.transactions = producer.transactions
        consumer.reader, consumer.committer.transactional = self, True
        self._in_hand: Sequence[Taken] = ()
        """What the transaction that comes next, or is open, is about."""
        self._open: TransformTransactionCore | None = None
        self._unknown: Sequence[Taken] = ()
        """What the last transaction was about, if nobody has said whether it is committed."""
        self._failures = 0

    # -- batches -----------------------------------------------------------------------------------------------------

    def next(self, task: object, timeout: float | None = None) -> Steps[Sequence[Taken]]:
        """What the next transaction is about: batches of several partitions, or of one.

        Args:
            timeout: seconds to wait for the first, once a transaction can begin; then there may be none.

        Raises:
            LocalProtocolError: the batches before were not part of a transaction, or it is still open.
            OttlaError: as `ConsumerCore.poll`; or the producer can never send again.
        """
        self._refuse_unhandled()
        if self._failures:
            yield from settled(self._pause())
        yield from self._until_ready()
        yield from self._find_out()
        taken: list[Taken] = []
        try:
            while not taken:
                first = yield from self.consumer.poll(task, timeout, self)
                if first is None:
                    break
                taken.append(first)
                yield from self._gather(taken, task)
        except GeneratorExit:  # nobody awaits it any more
            raise
        except BaseException:  # a cancellation, or what keeps another partition from being read
            self._rewind(taken)
            raise
        self._in_hand = taken
        return taken

    def _gather(self, taken: list[Taken], task: object) -> Steps[None]:
        """Add to ``taken`` what there is to go with it, now or soon; what is lost meanwhile is taken out."""
        until = self.core.now + self._options.max_wait
        most = self._options.max_records
        count, size = sum(each.count for each, _ in taken), sum(each.size for each, _ in taken)
        while (most is None or count < most) and size < self._options.max_bytes:
            if self.core.now >= until and not self.consumer.has_batch:
                break
            more = yield from self.consumer.poll(task, max(until - self.core.now, 0.0), self)
            if more is None:
                break
            count, size = count + more[0].count, size + more[0].size
            if most is not None and count > most:
                self.consumer.put_back(more[0])
                break
            taken.append(more)
        taken[:] = [each for each in taken if _is_owned(each)]

    def give_back(self) -> None:
        """What `next` returned has not reached its caller."""
        taken, self._in_hand = self._in_hand, ()
        self._rewind(taken)

    def transaction(self, taken: Sequence[Taken]) -> "TransformTransactionCore":
        """A transaction about what `next` has returned.

        Raises:
            LocalProtocolError: that is not in hand any more.
        """
        transaction = TransformTransactionCore(self, taken)
        self.refuse_other(transaction, taken)
        return transaction

    def refuse_other(self, transaction: "TransformTransactionCore", taken: Sequence[Taken]) -> None:
        """Raise `LocalProtocolError` unless ``transaction`` may begin, about what is in hand."""
        if taken is not self._in_hand or self._open is not None:
            raise LocalProtocolError(
                "a transaction is about the batches that the loop returned last, once, and ends with the block of "
                "transform.transaction(batches); what was aborted is returned again"
            )

    # -- transactions ------------------------------------------------------------------------------------------------

    def begun(self, transaction: "TransformTransactionCore") -> None:
        self._open = transaction

    def is_open(self, transaction: "TransformTransactionCore") -> bool:
        """Whether it has begun, and not ended."""
        return self._open is transaction

    def ended(self, transaction: "TransformTransactionCore", error: BaseException | None) -> bool:
        """A transaction has ended, with ``error`` if it failed; whether its batches come again in place of that."""
        taken, self._in_hand, self._open = self._in_hand, (), None
        if transaction.committed:
            self._failures = 0
            return False
        if transaction.committed is None:
            self._unknown = taken
            return False
        lost = sorted({claim.assignment.over for _, claim in taken if claim is not None and claim.assignment.over})
        moved = any(not _is_owned(each) for each in taken)
        self._rewind(taken)
        cause = self.transactions.cause
        passes = cause is not None and (moved or _passes(cause))
        if self.producer.fatal is not None or not isinstance(error, OttlaError) or not passes:
            self._failures = 0
            return False
        self._failures += 1
        if self._failures >= self._options.attempts:
            causes = f"; partitions were lost the last time: {'; '.join(lost)}" if lost else ""
            error.add_note(f"batches were tried {self._failures} times, all that `attempts` allows{causes}")
            self._failures = 0
            return False
        places = [f"{fetched.topic}-{fetched.partition}" for fetched, _ in taken]
        extra = {"id": self.transactions.transactional_id, "partitions": places, "why": str(cause)}
        log.warning("a transaction is aborted, and its records are handled again", extra=extra)
        return True

    def _refuse_unhandled(self) -> None:
        if self._open is not None:
            raise LocalProtocolError("a transaction is open: end its block before you ask for the next batches")
        if self._in_hand and any(_is_owned(each) for each in self._in_hand):
            raise LocalProtocolError(
                "the batches before were not part of a transaction, and would be lost: handle them in the block of "
                "transform.transaction(batches); to pass over them, leave that block empty"
            )

    def _pause(self) -> Outcome[None]:
        rested: Outcome[None] = Outcome()
        pause = self.core.backoff(self._failures - 1)
        rested.when_done(self.core.later(self.core.now + pause, lambda now: rested.succeed(None)).cancel)
        return rested

    def _until_ready(self) -> Steps[None]:
        """Wait until a transaction can begin, however long its coordinator takes."""
        while True:
            try:
                yield from settled(self.transactions.ready(self.core.now))
                return
            except TimeoutExpired as error:
                log.warning("no transaction can begin yet", extra={"why": str(error)})

    def _find_out(self) -> Steps[None]:
        """Read the batches of which nobody knew whether they are committed from where the group stands now."""
        group = self.consumer.commits.group if self.consumer.commits is not None else ""
        while taken := [each for each in self._unknown if _is_owned(each)]:
            places = [(fetched.topic, fetched.partition) for fetched, _ in taken]
            try:
                found = yield from settled(calls.committed(self.core, {group: places}, self.core.now, stable=True))
            except TimeoutExpired as error:
                log.warning("a transform cannot go on yet", extra={"group": group, "why": str(error)})
            else:
                self._rewind(taken, found[group])
                break
        self._unknown = ()

    def _rewind(
        self, taken: Sequence[Taken], committed: Mapping[TopicPartition, CommittedOffset] | None = None
    ) -> None:
        """Read the partitions from where these batches begin, or from what is ``committed`` behind that."""
        committed = committed or {}
        if self.consumer.closed:
            return
        starts: dict[TopicPartition, Start] = {}
        for fetched, claim in reversed(taken):  # the first of each partition counts
            place = (fetched.topic, fetched.partition)
            if _is_owned((fetched, claim)):
                at = committed.get(place)
                starts[place] = Offset(max(fetched.first_offset, at.offset if at is not None else 0))
        for place in starts:
            self.consumer.committing.move(place)
        self.consumer.fetcher.assign(starts, self.core.now)


class TransformTransactionCore(TransactionCore):
    """One transaction about batches that a transform has put together."""

    def __init__(self, transform: TransformCore, taken: Sequence[Taken]) -> None:
        super().__init__(transform.core, transform.producer)
        self._transform, self._taken = transform, taken

    def begin(self) -> Steps[None]:
        self._transform.refuse_other(self, self._taken)
        try:
            yield from super().begin()
        except GeneratorExit:  # nobody awaits it any more
            raise
        except BaseException:  # a cancellation included
            self._transform.give_back()
            raise
        self._transform.begun(self)
        try:
            for fetched, claim in self._taken:
                at = CommittedOffset(fetched.next_offset, fetched.leader_epoch)
                place = (fetched.topic, fetched.partition)
                self.commit_offsets(self._transform.consumer.committer, place, at, claim)
        except TransactionAborted:
            pass  # what is sent within the block says so, or its end

    def end(self, error: BaseException | None) -> Steps[bool]:
        """As `leave`; whether the ``error`` is dealt with, because the batches come again."""
        try:
            yield from self.leave(error)
        except GeneratorExit:  # nobody awaits it any more
            raise
        except BaseException as failed:
            if not self._transform.ended(self, alone(failed)):
                raise
            return True
        return self._transform.ended(self, alone(error))

    def undo(self) -> None:
        super().undo()
        if self._transform.is_open(self):
            self._transform.ended(self, None)


def _is_owned(taken: Taken) -> bool:
    """The batch was handed out under an ownership that goes on, and nobody has sought since."""
    _, claim = taken
    return claim is not None and not claim.assignment.over and claim.assignment.seeks == claim.seeks


def _passes(cause: OttlaError) -> bool:
    """What made an end of a transaction may be over with it."""
    return cause.retriable or getattr(cause, "abortable", False) or isinstance(cause, _NEXT_EPOCH_MENDS)
