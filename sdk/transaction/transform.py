"""Consume, transform, produce: commits a batch's results together with its offset, or neither.

    next ──► begin ──► the user's block ──► leave ──► next
      │                                       ├ committed
      │                                       └ aborted, or outcome unknown: its batches are handed out again
      └ waits until a transaction can begin, then collects batches for it

Rules:
- Offsets are committed in the transaction, with the identity of the member that owns the partitions. If the member
  loses one of them meanwhile, the transaction is aborted. A revocation waits until the transaction has ended, because
  partitions are revoked between two batches only.
- Batches that were not committed are handed out again: their partitions are read from the start of the batches. If the
  transaction's outcome is unknown, they are read from the group's committed offsets once it is decided.
- A temporary error only ends the transaction: it is not raised, and the batches are handed out again, up to `attempts`
  times in a row. A lost partition counts as temporary too, so a handler that is slower than `max_poll_interval`, and
  loses its partitions each time, ends after `attempts`. All other errors are raised.
- A transaction whose beginning raises has not begun: it is aborted, and its batches are handed out again.
- Batches handed out for a transaction must be committed before the next ones are handed out, or they are handed out
  again. So no batch is skipped by mistake.

Source: KIP-447; KafkaProducer.java, sendOffsetsToTransaction.
"""

from collections.abc import Iterator, Mapping, Sequence

from ottla.errors import (
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
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.reading.fetcher import Offset, Start
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger, named
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction.core import BatchOffset, TransactionCore, alone
from ottla.sdk.transaction.options import TransformOptions

log = logger("ottla.sdk.transform")

_NEXT_EPOCH_MENDS = (InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber, UnknownProducerId)
"""Errors that affect only their transaction; if that cannot be aborted either, the producer ends."""


class TransformCore:
    """Runs transactions of ``producer`` for batches of ``consumer``, which is a member of a group."""

    def __init__(
        self, core: ClientCore, consumer: ConsumerCore, producer: ProducerCore, options: TransformOptions
    ) -> None:
        if producer.transactions is None or consumer.commits is None:
            raise LocalProtocolError("a transform needs a group and a transactional id")
        self.core, self.consumer, self.producer, self._options = core, consumer, producer, options
        self.transactions = producer.transactions
        consumer.read_by(self)
        self._in_hand: Sequence[Taken] = ()
        """The batches of the next or open transaction."""
        self._open: TransformTransactionCore | None = None
        self._unknown: Sequence[Taken] = ()
        """The batches of the last transaction, if its outcome is unknown."""
        self._failures = 0

    # -- batches -----------------------------------------------------------------------------------------------------

    def next(self, task: object, timeout: float | None = None) -> Steps[Sequence[Taken]]:
        """The batches for the next transaction, of one or several partitions.

        Args:
            timeout: seconds to wait for the first batch, once a transaction can begin; after that the result is empty.

        Raises:
            LocalProtocolError: the previous batches were not part of a transaction, or it is still open.
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
        except GeneratorExit:  # no driver resumes these steps any more
            raise
        except BaseException:  # a cancellation, or an error of another partition
            self._rewind(taken)
            raise
        self._in_hand = taken
        return taken

    def _gather(self, taken: list[Taken], task: object) -> Steps[None]:
        """Add more batches to ``taken`` within `max_wait`; remove batches whose partitions are lost meanwhile."""
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
        """Take back the batches that `next` returned, because they have not reached the caller."""
        taken, self._in_hand = self._in_hand, ()
        self._rewind(taken)

    def transaction(self, taken: Sequence[Taken]) -> "TransformTransactionCore":
        """A transaction for the batches that `next` has returned.

        Raises:
            LocalProtocolError: these are not the batches in hand.
        """
        transaction = TransformTransactionCore(self, taken)
        self.refuse_other(transaction, taken)
        return transaction

    def refuse_other(self, transaction: "TransformTransactionCore", taken: Sequence[Taken]) -> None:
        """Raise `LocalProtocolError` unless ``taken`` are the batches in hand, and no transaction is open."""
        if taken is not self._in_hand or self._open is not None:
            raise LocalProtocolError(
                "a transaction takes the batches that the loop returned last, and takes them once: it ends with the "
                "block of transform.transaction(batches), and the loop returns aborted batches again"
            )

    # -- transactions ------------------------------------------------------------------------------------------------

    def begun(self, transaction: "TransformTransactionCore") -> None:
        self._open = transaction

    def is_open(self, transaction: "TransformTransactionCore") -> bool:
        """Whether the transaction has begun and not ended."""
        return self._open is transaction

    def ended(self, transaction: "TransformTransactionCore", error: BaseException | None) -> bool:
        """End a transaction; return whether its batches are handed out again instead of raising ``error``."""
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
            error.add_note(f"batches failed {self._failures} times in a row, the limit set by `attempts`{causes}")
            self._failures = 0
            return False
        places = named((fetched.topic, fetched.partition) for fetched, _ in taken)
        extra = {
            "transactional_id": self.transactions.transactional_id,
            "partitions": places,
            "why": str(cause),
        }
        log.warning("transaction aborted, the loop gets its batches again", extra=extra)
        return True

    def _refuse_unhandled(self) -> None:
        if self._open is not None:
            raise LocalProtocolError("a transaction is open: end its block before you ask for the next batches")
        if self._in_hand and any(_is_owned(each) for each in self._in_hand):
            raise LocalProtocolError(
                "the previous batches were not part of a transaction, and would be lost: handle them in the block of "
                "transform.transaction(batches); to skip them, leave that block empty"
            )

    def _pause(self) -> Outcome[None]:
        return self.core.at(self.core.now + self.core.backoff(self._failures - 1))

    def _until_ready(self) -> Steps[None]:
        """Wait until a transaction can begin, however long its coordinator takes."""
        while True:
            try:
                yield from settled(self.transactions.ready(self.core.now))
                return
            except TimeoutExpired as error:
                extra = {"transactional_id": self.transactions.transactional_id, "why": str(error)}
                log.warning("transaction cannot begin yet, retrying", extra=extra)

    def _find_out(self) -> Steps[None]:
        """Read the batches of a transaction with an unknown outcome again, from the group's committed offsets."""
        group = self.consumer.commits.group if self.consumer.commits is not None else ""
        while taken := [each for each in self._unknown if _is_owned(each)]:
            places = [(fetched.topic, fetched.partition) for fetched, _ in taken]
            try:
                found = yield from settled(calls.committed(self.core, {group: places}, self.core.now, stable=True))
            except TimeoutExpired as error:
                transactional_id = self.transactions.transactional_id
                extra = {"transactional_id": transactional_id, "group": group, "why": str(error)}
                log.warning("transaction outcome unknown, waiting for the coordinator of the group", extra=extra)
            else:
                self._rewind(taken, found[group])
                break
        self._unknown = ()

    def _rewind(
        self, taken: Sequence[Taken], committed: Mapping[TopicPartition, CommittedOffset] | None = None
    ) -> None:
        """Read the partitions again from the start of these batches, or from a later ``committed`` offset."""
        committed = committed or {}
        if self.consumer.closed:
            return
        starts: dict[TopicPartition, Start] = {}
        for fetched, claim in reversed(taken):  # reversed, so that the first batch of each partition wins
            place = (fetched.topic, fetched.partition)
            if _is_owned((fetched, claim)):
                at = committed.get(place)
                starts[place] = Offset(max(fetched.first_offset, at.offset if at is not None else 0))
        for place in starts:
            self.consumer.committing.move(place)
        self.consumer.fetcher.assign(starts, self.core.now)


class TransformTransactionCore(TransactionCore):
    """Runs one transaction for batches that a transform has handed out."""

    def __init__(self, transform: TransformCore, taken: Sequence[Taken]) -> None:
        super().__init__(transform.core, transform.producer)
        self._transform, self._taken = transform, taken

    def begin(self) -> Steps[None]:
        self._transform.refuse_other(self, self._taken)
        try:
            yield from super().begin()
        except GeneratorExit:  # no driver resumes these steps any more
            raise
        except BaseException:  # a cancellation included
            self._transform.give_back()
            raise
        self._transform.begun(self)
        try:
            self.commit_offsets(self._offsets())
        except TransactionAborted:
            pass  # the next send in the block raises it, or the end of the block
        except BaseException:  # the caller gets no block, so no end of a block would end the transaction
            self.undo()
            raise

    def _offsets(self) -> Iterator[BatchOffset]:
        for fetched, claim in self._taken:
            place, at = (fetched.topic, fetched.partition), CommittedOffset(fetched.next_offset, fetched.leader_epoch)
            yield BatchOffset(self._transform.consumer.committer, place, at, claim)

    def end(self, error: BaseException | None) -> Steps[bool]:
        """Like `leave`; return whether ``error`` is suppressed, because the batches are handed out again."""
        try:
            yield from self.leave(error)
        except GeneratorExit:  # no driver resumes these steps any more
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
    """Whether the batch's assignment still lasts, and the user has not sought since."""
    _, claim = taken
    return claim is not None and not claim.assignment.over and claim.assignment.seeks == claim.seeks


def _passes(cause: OttlaError) -> bool:
    """Whether the error that ended a transaction may be temporary."""
    return cause.retriable or getattr(cause, "abortable", False) or isinstance(cause, _NEXT_EPOCH_MENDS)
