"""Implements one transaction of a producer, from the beginning of its block to the end.

Rules:
- The end of the block commits. If an error or a cancellation ends the block, the transaction is aborted instead,
  shielded, within `ABORT_TIMEOUT`. After that, the producer continues to send EndTxn, and the next transaction waits.
- After a failure, the transaction cannot be committed: nothing more is sent, callers waiting for a record get the
  error, the transaction is aborted, and the end of the block raises the reason.
- Once EndTxn is sent to commit, the client no longer aborts. A cancellation then waits `CLOSE_TIMEOUT` for the answer.

Source: KafkaProducer.java (beginTransaction, commitTransaction, abortTransaction).
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.errors import CommitFailed, InvalidTxnState, LocalProtocolError, OttlaError, TransactionAborted
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.assignment.committing import BatchAssignment
from ottla.sdk.consume.commit_calls import CommitCalls
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.group.commits import Commits
from ottla.sdk.logs import logger
from ottla.sdk.outcome import all_of, any_of
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.producer_leaving import CLOSE_TIMEOUT, wait_shielded
from ottla.sdk.steps import Shielded, Steps, settled
from ottla.sdk.transaction.fencing import FENCING, explained
from ottla.sdk.transaction.states import TransactionalProducerState

log = logger("ottla.sdk.producer")

ABORT_TIMEOUT = 5.0
"""Seconds for requests in flight to be answered, and for the coordinator to answer EndTxn."""
DRAIN_TIMEOUT = 3.0
"""The part of `ABORT_TIMEOUT` that is spent on leaders that do not answer."""


class BatchOffset(NamedTuple):
    """The offset after a batch of ``committer``'s consumer, and the claim with which the batch was handed out."""

    committer: CommitCalls
    place: TopicPartition
    at: CommittedOffset
    claim: BatchAssignment | None


class TransactionCore:
    """Runs one transaction of ``producer``, which has a transactional id.

    Attributes:
        committed: whether the transaction is committed; ``None``: unknown, perhaps only for now.
    """

    def __init__(self, core: ClientCore, producer: ProducerCore) -> None:
        if producer.transactions is None:
            raise LocalProtocolError("transactions need a transactional id: open the producer with transactional_id=…")
        self._core, self._producer, self._transactions = core, producer, producer.transactions
        self._number = -1
        self.committed: bool | None = False

    def begin(self) -> Steps[None]:
        """Wait until the previous transaction has ended and the producer is initialized, then begin."""
        if self._number >= 0:
            raise LocalProtocolError(
                "a transaction can be begun only once: create another one with producer.transaction()"
            )
        self._check_alone()
        while (
            self._transactions.state is not TransactionalProducerState.READY
        ):  # it may have changed again before this task runs
            yield from settled(self._transactions.ready(self._core.now))
            self._check_alone()  # another waiting task may have begun a transaction
        self._transactions.begin(self._core.now)
        self._number = self._transactions.number
        self._transactions.doomed.when_done(lambda: self._core.soon(self._send_nothing_more))

    def _send_nothing_more(self, now: float) -> None:
        if self._is_open and (cause := self._transactions.cause) is not None:
            self._producer.withdraw(TransactionAborted({}, cause))

    def undo(self) -> None:
        """End the transaction, because the caller never learned that it began."""
        if self._is_open:
            self._transactions.stop()
            self._producer.withdraw(LocalProtocolError("the beginning of the transaction was interrupted"))
            self._transactions.abort(self._core.now)
        self._release()

    def check(self) -> None:
        """Raise if the transaction does not accept records."""
        self._transactions.check(self._number)

    def commit_offsets(self, batches: Iterable[BatchOffset]) -> None:
        """Add the offsets after these batches to the transaction: all of them, or none if one is refused.

        Raises:
            TransactionAborted: an offset cannot be committed any more, so the transaction cannot either.
            LocalProtocolError: a consumer belongs to another client, has no group, or uses auto commit; or a later
                offset of a partition is committed, or another transaction commits one.
        """
        self.check()
        offsets, added = self._transactions.offsets, list[tuple[Commits, Assignment, CommittedOffset]]()
        try:
            for committer, place, at, claim in batches:
                commits, assignment = committer.in_transaction(self._core, offsets.holder, place, at, claim)
                added.append((commits, assignment, at))
        except CommitFailed as lost:  # if the records were committed without the offset, the batch would count twice
            self._transactions.doom(None, 0, lost)
        else:
            for commits, assignment, at in added:
                offsets.add(commits, assignment, at)
        self.check()

    def leave(self, error: BaseException | None) -> Steps[None]:
        """End the user's block, normally or by ``error``."""
        try:
            yield from self._leave(error)
        finally:
            self._release()

    def _release(self) -> None:
        """Let others commit offsets of the partitions, also if the producer has failed, and there is no abort."""
        if self.committed is False and self._number == self._transactions.number:
            self._transactions.offsets.release()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        if error is not None:
            if self._is_open:
                yield from self._abort(error)
                yield from self._raise_cause(alone(error))
            return
        try:
            yield from self._commit()
        except GeneratorExit:  # no driver resumes these steps any more
            raise
        except BaseException as failed:  # a cancellation included
            if self._is_open:
                yield from self._abort(failed)
                yield from self._raise_cause(failed)
            raise

    def _raise_cause(self, first: BaseException | None) -> Steps[None]:
        """Raise the error that ended the producer, or an explained fencing error, instead of its consequence ``first``.

        If ``first`` is not such a consequence, do nothing: the caller raises it.
        """
        if not isinstance(first, OttlaError):
            return
        if self._producer.fatal is not None:
            raise self._producer.fatal from first
        cause = first.cause if isinstance(first, TransactionAborted) else first
        late = isinstance(cause, InvalidTxnState) and self._transactions.has_timed_out
        if isinstance(cause, (*FENCING, InvalidTxnState) if late else FENCING) and cause is self._transactions.cause:
            found = self._transactions.find_out()
            if not found.done:
                yield Shielded(found)
            told = explained(cause, found.result())
            raise (
                TransactionAborted(first.partitions, told) if isinstance(first, TransactionAborted) else told
            ) from first

    @property
    def _is_open(self) -> bool:
        return self._number == self._transactions.number and self._transactions.is_open

    def _check_alone(self) -> None:
        if self._transactions.is_open:
            raise LocalProtocolError("a transaction of this producer is open: end it before the next one begins")

    def _commit(self) -> Steps[None]:
        if not self._transactions.doomed.done:
            self._transactions.end()
            self._producer.turn_away(LocalProtocolError("the transaction ended before there was room for this record"))
            flushed = self._producer.start_flush(self._core.now)
            stored = all_of([flushed, self._transactions.offsets.send(self._core.now)])
            yield from settled(any_of([stored, self._transactions.doomed]))
            stored.cancel()
        self._producer.raise_failures()
        self._transactions.check_committable(self._number)
        ended = self._transactions.commit(self._core.now)
        self.committed = None
        try:
            if not ended.done:
                yield ended
        except GeneratorExit:  # no driver resumes these steps any more
            raise
        except BaseException as error:  # a cancellation
            yield from wait_shielded(self._core, ended, self._core.now + CLOSE_TIMEOUT)
            if not ended.done:
                error.add_note("it is not known yet whether the transaction is committed: the producer keeps asking")
            self.committed = True if ended.done and ended.error is None else None
            ended.cancel()
            raise
        if self._is_open:  # the coordinator has refused to commit
            self.committed = False
            self._transactions.check_committable(self._number)
        ended.result()
        self.committed = True

    def _abort(self, error: BaseException) -> Steps[None]:
        cause = error if isinstance(error, OttlaError) else LocalProtocolError(f"the block was left by {error!r}")
        if isinstance(cause, TransactionAborted):
            cause = cause.cause
        self.committed = False
        until = self._core.now + ABORT_TIMEOUT
        self._transactions.stop()
        drained = self._producer.withdraw(TransactionAborted({}, cause))
        yield from wait_shielded(self._core, drained, self._core.now + DRAIN_TIMEOUT)
        ended = self._transactions.abort(self._core.now)
        yield from wait_shielded(self._core, ended, until)
        if not ended.done:
            extra = {"transactional_id": self._transactions.transactional_id}
            log.warning("transaction abort not confirmed yet, retrying", extra=extra)
        elif ended.error is not None:
            error.add_note(f"the producer could not abort the transaction: {ended.error}")


def alone(error: BaseException | None) -> BaseException | None:
    """The first error of a group, as a nursery or a TaskGroup raises it, if all are ottla's; otherwise ``error``."""
    if not isinstance(error, BaseExceptionGroup) or error.split(OttlaError)[1] is not None:
        return error
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
