"""One transaction of a producer, from the beginning of its block to the end: all that its calls decide.

Rules:
- The block's end commits, unless the block is left by an error or a cancellation: then it aborts, shielded, within
  `ABORT_TIMEOUT`. What could not be said to the coordinator by then goes on being said; the next transaction waits.
- A transaction in which something has failed cannot be committed: nothing more is sent, which those hear that wait for
  a record; it is aborted, and the end of the block says why.
- Once EndTxn is asked to commit, nothing aborts any more. A cancellation then waits `CLOSE_TIMEOUT` for the answer.

Source: KafkaProducer.java (beginTransaction, commitTransaction, abortTransaction).
"""

from ottla.errors import CommitFailed, InvalidTxnState, LocalProtocolError, OttlaError, TransactionAborted
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.committer import Committer
from ottla.sdk.consume.committing import Claim
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import all_of, any_of
from ottla.sdk.produce.core import CLOSE_TIMEOUT, ProducerCore
from ottla.sdk.steps import Shielded, Steps, settled
from ottla.sdk.transaction.fencing import FENCING, explained
from ottla.sdk.transaction.states import State

log = logger("ottla.sdk.producer")

ABORT_TIMEOUT = 5.0
"""Seconds for what is under way to be answered, and for the coordinator to take note."""
DRAIN_TIMEOUT = 3.0
"""Of these, what a leader may take that does not answer."""


class TransactionCore:
    """One transaction of ``producer``, which has a transactional id.

    Attributes:
        committed: whether it is; ``None``: that is not known, or not yet.
    """

    def __init__(self, core: ClientCore, producer: ProducerCore) -> None:
        if producer.transactions is None:
            raise LocalProtocolError("transactions need a name: make the producer with transactional_id=")
        self._core, self._producer, self._transactions = core, producer, producer.transactions
        self._number = -1
        self.committed: bool | None = False

    def begin(self) -> Steps[None]:
        """Wait until the transaction before has ended, and the producer is initialized."""
        if self._number >= 0:
            raise LocalProtocolError("a transaction is begun once: make another one with producer.transaction()")
        self._check_alone()
        while self._transactions.state is not State.READY:  # or not any more, when the task that waited for it runs
            yield from settled(self._transactions.ready(self._core.now))
            self._check_alone()  # others may have waited, too
        self._transactions.begin(self._core.now)
        self._number = self._transactions.number
        self._transactions.doomed.when_done(lambda: self._core.soon(self._send_nothing_more))

    def _send_nothing_more(self, now: float) -> None:
        if self._is_open and (cause := self._transactions.cause) is not None:
            self._producer.withdraw(TransactionAborted({}, cause))

    def undo(self) -> None:
        """That it has begun has not reached the caller: end it."""
        if self._is_open:
            self._transactions.stop()
            self._producer.withdraw(LocalProtocolError("the transaction was interrupted as it began"))
            self._transactions.abort(self._core.now)

    def check(self) -> None:
        """Raise why no record can be taken, if so."""
        self._transactions.check(self._number)

    def commit_offsets(
        self, committer: Committer, place: TopicPartition, at: CommittedOffset, claim: Claim | None
    ) -> None:
        """Commit with the transaction that a group goes on behind a batch of ``committer``'s consumer.

        Raises:
            TransactionAborted: it cannot be committed any more, and nor can the transaction.
            LocalProtocolError: of another client, without a group, or of a consumer that commits by itself.
        """
        self.check()
        try:
            commits, assignment = committer.in_transaction(self._core, place, at, claim)
        except CommitFailed as lost:  # without its offsets, what was made of the batch would be made once more
            self._transactions.doom(None, 0, lost)
        else:
            self._transactions.offsets.add(commits, assignment, at)
        self.check()

    def leave(self, error: BaseException | None) -> Steps[None]:
        """The end of the user's block, and the ``error`` that it is left by."""
        if error is not None:
            if self._is_open:
                yield from self._abort(error)
                yield from self._raise_cause(alone(error))
            return
        try:
            yield from self._commit()
        except GeneratorExit:  # nobody awaits it any more
            raise
        except BaseException as failed:  # a cancellation included
            if self._is_open:
                yield from self._abort(failed)
                yield from self._raise_cause(failed)
            raise

    def _raise_cause(self, first: BaseException | None) -> Steps[None]:
        """Raise what has ended the producer, or what is known of its fencing, in place of what came of it ``first``."""
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
            self._producer.turn_away(
                LocalProtocolError("the transaction has ended before there was room for this record")
            )
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
        except GeneratorExit:  # nobody awaits it any more
            raise
        except BaseException as error:  # a cancellation
            yield from self._producer.wait(ended, self._core.now + CLOSE_TIMEOUT)
            if not ended.done:
                error.add_note("whether the transaction is committed is not known yet: the producer goes on asking")
            self.committed = True if ended.done and ended.error is None else None
            ended.cancel()
            raise
        if self._is_open:  # the coordinator has said that it cannot
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
        yield from self._producer.wait(drained, self._core.now + DRAIN_TIMEOUT)
        ended = self._transactions.abort(self._core.now)
        yield from self._producer.wait(ended, until)
        if not ended.done:
            log.warning(
                "a transaction is not aborted yet: it is tried on", extra={"id": self._transactions.transactional_id}
            )
        elif ended.error is not None:
            error.add_note(f"the transaction was not aborted by its producer: {ended.error}")


def alone(error: BaseException | None) -> BaseException | None:
    """The first of a group in which all are errors of ottla's, as a nursery or a TaskGroup raises them; else itself."""
    if not isinstance(error, BaseExceptionGroup) or error.split(OttlaError)[1] is not None:
        return error
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
