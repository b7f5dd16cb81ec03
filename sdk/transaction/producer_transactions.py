"""Manages a transactional producer's id, epoch and transactions; the sender uses it instead of `ProducerIdentity`.

    begin ──► partitions join ──► commit or abort ──► EndTxn, until it is answered ──► the next one may begin

There are two versions of the protocol, and the client chooses one at the beginning of each transaction:

    version 1   partitions join by AddPartitionsToTxn before anything is sent to them; the epoch stays the same
    version 2   partitions join by the first Produce; EndTxn returns the next transaction's epoch (KIP-890)

Rules:
- The states are a table (`ottla.sdk.transaction.states`).
- An epoch that had a transaction of version 1 gets none of version 2. Until the markers of the first are written,
  brokers would take a batch of the next transaction for part of it, because in version 2 the partition need not join
  first. If the cluster supports version 2 by now, the epoch is bumped.
- InitProducerId is sent at once, not with the first transaction: it fences the previous producer, and aborts its open
  transaction.
- In version 1 partitions and groups join before anything is sent to them (`ExplicitJoining`), in version 2 they take
  turns (`ImplicitJoining`). `TransactionOffsets` sends the offsets of groups.
- The first failed record dooms the transaction: it cannot be committed any more.
- EndTxn is retried until its outcome is known; no other request is sent instead, and the next transaction waits. In
  version 1 a request without an answer, or a batch whose outcome is unknown, may still arrive later: then the epoch is
  bumped before the next transaction (KIP-360).
- INVALID_TXN_STATE as the response to a commit may come from a node that was paused, and does not know yet that it is
  no longer the coordinator: the coordinator is looked up again. If the error stays, the transaction was aborted by its
  timeout: the client then sends EndTxn to abort, which in version 2 also returns the next epoch.
- A transaction without any request so far needs no EndTxn.

Source: TransactionManager.java, Sender.java (maybeSendTransactionalRequest); KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import (
    Closed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    LocalProtocolError,
    OperationNotAttempted,
    OttlaError,
    ProducerFenced,
    RemoteProtocolError,
    TimeoutExpired,
    TransactionAbortable,
    TransactionAborted,
    TransactionOutcomeUnknown,
    UnknownProducerId,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.admin import TransactionDescription
from ottla.sdk.calls.task import Task
from ottla.sdk.calls.transactions import describe_transactions
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.versions import (
    END_TRANSACTION,
    END_TRANSACTION_2,
    INITIALIZE,
    INITIALIZE_AGAIN,
    PRODUCE_TRANSACTIONAL,
    PRODUCE_TRANSACTIONAL_2,
    Range,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.asking import ask_coordinator
from ottla.sdk.transaction.explicit_joining import ExplicitJoining
from ottla.sdk.transaction.fencing import FENCING, LIMIT, Fenced, explained, find_out, is_replaced
from ottla.sdk.transaction.implicit_joining import ImplicitJoining
from ottla.sdk.transaction.markers import Markers
from ottla.sdk.transaction.offsets import TransactionOffsets
from ottla.sdk.transaction.states import (
    FEATURE,
    IMPLICIT,
    TRANSITIONS,
    TransactionalProducerInput,
    TransactionalProducerState,
)

log = logger("ottla.sdk.producer")

_MOVED_LIMIT = 3.0
"""Seconds for which the coordinator is looked up again if it says that there is nothing to commit."""
_PAUSE = 0.2
"""Seconds between two such attempts."""
_NOT_COMMITTED = (InvalidTxnState, TransactionAbortable, UnknownProducerId)
"""Errors of a commit after which the transaction is aborted. The last one as in Java's client; ottla's proxy uses it
too."""


class ProducerTransactions:
    """Runs the transactions of one producer, one after the other.

    Args:
        timeout: seconds after which the broker aborts a transaction.
        changed: called with ``now`` when batches may be sent that were held back before.
        fail: called with the error that ends the producer.
        wake: called with a partition that has joined.
        leaves_gaps: returns whether batches of this epoch are in flight, or have an unknown outcome.

    Attributes:
        number: the number of the open or last transaction.
        version: the protocol version of that transaction.
        offsets: the offsets of consumer groups that it commits.
        doomed: settled once the transaction cannot be committed any more, or the producer has failed.
        shown: called when the transaction begins or stops to accept records.
    """

    idempotent = True

    def __init__(
        self,
        core: ClientCore,
        transactional_id: str,
        timeout: float,
        *,
        changed: Callable[[float], None],
        fail: Callable[[OttlaError], None],
        wake: Callable[[PartitionQueue], None],
        leaves_gaps: Callable[[], bool],
    ) -> None:
        self._leaves_gaps = leaves_gaps
        self._core, self.transactional_id, self._timeout = core, transactional_id, timeout
        self._changed, self._fail = changed, fail
        self.on_change: Callable[[], None] = lambda: None
        self.state = TransactionalProducerState.NONE
        self.current: Identity | None = None
        self.number = 0
        self.version = 1
        self.doomed: Outcome[None] = Outcome()
        self.trouble = ""
        """A text for people: why the last request failed."""
        self._failures: dict[TopicPartition, int] = {}
        self._cause: OttlaError | None = None
        self._fatal: OttlaError | None = None
        self._found: Outcome[str] | None = None
        """An explanation why the producer was fenced."""
        refused = self._refused
        self._markers = Markers()
        self._joining = ExplicitJoining(
            core, transactional_id, self._markers, self._coordinator, wake=wake, refused=refused
        )
        self._implicit = ImplicitJoining(core, transactional_id, self._markers, wake)
        self.offsets = TransactionOffsets(core, transactional_id, self._joining, self._implicit, refused)
        self._begun = False
        """A batch was sent in this transaction."""
        self._begun_at = 0.0
        self._unsure = False
        """A request of the transaction may still arrive at a broker after its end."""
        self._explicit = False
        """There was a transaction of version 1 in this epoch."""
        self._task: Task[Any] | None = None
        self._ended: Outcome[None] = Outcome()
        self._end_repeated = False
        """An earlier EndTxn for this end may have been carried out, or may still be."""
        self._look_until: float | None = None
        """Until when the coordinator is looked up again if it says that there is nothing to commit."""
        self._waiting: list[Outcome[None]] = []
        """Callers of `ready`: settled when a transaction may begin."""
        core.soon(self._initialize)

    # -- for the sender ------------------------------------------------------------------------------------------

    @property
    def versions(self) -> Range:
        """The versions of Produce that this protocol version needs."""
        return PRODUCE_TRANSACTIONAL_2 if self.version >= IMPLICIT else PRODUCE_TRANSACTIONAL

    def needed(self, now: float) -> bool:
        """Whether batches can be sent now."""
        return self.state in (TransactionalProducerState.OPEN, TransactionalProducerState.ENDING)

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether batches of a partition can be sent now; starts to join the partition if necessary."""
        if not (self._implicit if self.version >= IMPLICIT else self._joining).partition(queue):
            return False
        self._begun = True
        return True

    def answered(self, places: Iterable[TopicPartition], now: float) -> None:
        """Take note that a Produce request for these partitions has been answered, or has failed."""
        self._implicit.answered(places, now)

    @property
    def may_forget(self) -> bool:
        """Whether sequences may be forgotten: within a transaction they cannot start at 0 again."""
        return self.state in (TransactionalProducerState.NONE, TransactionalProducerState.READY)

    def bump(self, now: float) -> None:
        """Bump the epoch, because a partition's sequences start at 0 again."""
        if self.state is TransactionalProducerState.READY:
            self._change(TransactionalProducerInput.RENEW)

    def failed(self) -> None:
        """Stop everything, because the producer has failed."""
        self._cancel()
        self._joining.stop()
        self.offsets.stop()
        self._change(TransactionalProducerInput.FATAL)
        self.doomed.succeed(None)
        self._settle()
        self._ended.fail(self._why_failed())

    # -- transactions --------------------------------------------------------------------------------------------

    def ready(self, now: float) -> Outcome[None]:
        """Settled once a transaction may begin; fails after `api_timeout`, or with the error of a failed producer."""
        outcome: Outcome[None] = Outcome()
        self._waiting.append(outcome)
        outcome.when_done(lambda: self._waiting.remove(outcome) if outcome in self._waiting else None)
        timeout = self._core.options.api_timeout

        def expire(now: float) -> None:
            outcome.fail(
                TimeoutExpired(f"no transaction can begin within {timeout:g} s: {'; '.join(self.explain(now))}")
            )

        outcome.when_done(self._core.later(now + timeout, expire).cancel)
        self._core.fail_on_close(outcome)
        self._initialize(now)
        self._settle()
        return outcome

    def begin(self, now: float) -> None:
        """Begin a transaction; only once `ready` has succeeded."""
        self._change(TransactionalProducerInput.BEGUN)
        self.number += 1
        self.version = IMPLICIT if self._can_be_implicit and not self._explicit else 1
        self._explicit = self.version < IMPLICIT
        self.doomed, self._failures, self._cause, self._found = Outcome(), {}, None, None
        self._begun = self._unsure = False
        self._begun_at = now
        self._joining.begin(self.current)
        if self.version >= IMPLICIT:
            self._implicit.begin(now)
        self.offsets.begin(self.current, implicit=self.version >= IMPLICIT)
        self._changed(now)
        self.on_change()

    @property
    def _can_be_implicit(self) -> bool:
        return self._core.connections.feature(FEATURE) >= IMPLICIT

    @property
    def is_open(self) -> bool:
        return self.state in (
            TransactionalProducerState.OPEN,
            TransactionalProducerState.ENDING,
            TransactionalProducerState.DOOMED,
        )

    @property
    def cause(self) -> OttlaError | None:
        """Why the open or last transaction cannot be committed; ``None`` if it can."""
        return self._cause

    def doom(self, place: TopicPartition | None, count: int, cause: OttlaError) -> None:
        """Mark the transaction as impossible to commit, because records or another part of it have failed."""
        # TransactionAborted is not a cause, but the consequence of an earlier one.
        if not self.is_open or isinstance(cause, TransactionAborted):
            return
        if place is not None and count:
            self._failures[place] = self._failures.get(place, 0) + count
        self._cause = self._cause or cause
        if isinstance(cause, FENCING):
            self.find_out()  # at once, before the coordinator's state changes
        self._change(TransactionalProducerInput.DOOMED)
        self.doomed.succeed(None)
        self.on_change()

    def check(self, number: int | None = None) -> None:
        """Raise if the transaction with this number does not accept records."""
        self.check_committable(number)
        if self.state is TransactionalProducerState.ENDING:
            raise LocalProtocolError("this transaction is being committed: no more records, not even from callbacks")

    def check_committable(self, number: int | None = None) -> None:
        """Raise if the transaction with this number is not open, or cannot be committed."""
        if self.state is TransactionalProducerState.FAILED:
            raise self._why_failed()
        if number not in (None, self.number) or not self.is_open:
            over = "this transaction is over" if number else "no transaction is open"
            over = "this transaction has not begun" if number is not None and number < 0 else over
            raise LocalProtocolError(f"{over}: send within the block of producer.transaction()")
        self.raise_doom()

    def raise_doom(self) -> None:
        """Raise `TransactionAborted` if the transaction cannot be committed."""
        if self._cause is not None:
            raise TransactionAborted(self._failures, self._cause)

    def end(self) -> None:
        """Accept no more records, but send the accepted ones."""
        if self.state is TransactionalProducerState.OPEN:
            self._change(TransactionalProducerInput.END)
            self.on_change()

    def commit(self, now: float) -> Outcome[None]:
        """Commit the transaction; from now on the client does not abort it by itself.

        Fails with the broker's error, or with `TransactionOutcomeUnknown` after `api_timeout`; retries continue then.
        """
        self._change(TransactionalProducerInput.COMMIT)
        self.on_change()
        return self._end(now)

    def stop(self) -> None:
        """Send nothing more, because the transaction will be aborted."""
        self._change(TransactionalProducerInput.ABORT)
        self._joining.stop()
        self._implicit.stop()
        self.offsets.stop()
        self.on_change()

    def abort(self, now: float) -> Outcome[None]:
        """Abort the transaction, after `stop`.

        Fails after `api_timeout`, but retries continue then; or with the error that ended the producer.
        """
        if self.state is TransactionalProducerState.FAILED:
            ended: Outcome[None] = Outcome()
            ended.fail(self._why_failed())
            return ended
        return self._end(now)

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about the producer's waits."""
        doing = {
            TransactionalProducerState.NONE: "waits to be initialized",
            TransactionalProducerState.ASKING: "is being initialized",
            TransactionalProducerState.COMMITTING: "commits",
            TransactionalProducerState.ABORTING: "aborts",
        }.get(self.state)
        who = f"transactional id {self.transactional_id!r}"
        if self.is_open and (offsets := self.offsets.explain()):
            yield f"{who} {offsets}"
        joining = self._joining.waiting if self.is_open else ""
        if doing is None and not joining:
            return
        where = self._core.transaction_coordinators.where(self.transactional_id)
        trouble = self._task.trouble if self._task is not None and self._task.trouble else self.trouble
        if doing is None:
            doing, trouble = f"waits until {joining} have joined its transaction", self._joining.trouble
        said = f"; last error: {trouble}" if trouble else ""
        yield f"{who} {doing}; {where}{said}"

    # -- requests ------------------------------------------------------------------------------------------------

    def _change(self, what: TransactionalProducerInput) -> None:
        self.state = TRANSITIONS[self.state, what]

    def _run(self, what: str, now: float, work: Callable[[Task[Any]], Steps[Any]], ended: Callable[..., None]) -> None:
        """Run ``work`` as a task, and call ``ended(task, now)`` when it has ended."""
        task = self._task = Task(self._core, what, now, work)

        def over(now: float) -> None:
            if self._task is task:
                self._task = None
                ended(task, now)

        task.outcome.when_done(lambda: self._core.soon(over))

    def _cancel(self) -> Task[Any] | None:
        """Cancel the task in progress, and return it."""
        task, self._task = self._task, None
        if task is not None:
            task.outcome.cancel()
        return task

    def _initialize(self, now: float) -> None:
        if self.state is not TransactionalProducerState.NONE or self._core.closed:
            return
        self._change(TransactionalProducerInput.NEEDED)
        self._ask(now)

    def _ask(self, now: float) -> None:
        former = self.current
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=round(self._timeout * 1000),
            producer_id=former.producer_id if former else -1,
            producer_epoch=former.epoch if former else -1,
        )
        versions = INITIALIZE_AGAIN if former else INITIALIZE
        what = f"InitProducerId of {self.transactional_id!r}"
        self._run(what, now, lambda task: self._coordinator(task, request, versions), self._initialized)

    def _initialized(self, task: Task[InitProducerIdResponse], now: float) -> None:
        error = task.outcome.error
        if isinstance(error, TimeoutExpired):
            self.trouble = str(error)
            self._ask(now)
        elif error is not None:
            if isinstance(error, UnsupportedVersion) and self.current is not None:
                why = "the epoch has to be bumped after a failure, which brokers before Kafka 2.5 do not support"
                error = UnsupportedVersion(f"{why}: make another producer; {error}")
            self.give_up(error)
        else:
            answer = task.outcome.result()
            self.current = Identity(answer.producer_id, answer.producer_epoch)
            self.trouble, self._explicit = "", False
            self._change(TransactionalProducerInput.GIVEN)
            self._ended.succeed(None)
            self._settle()

    def _refused(self, error: OttlaError) -> None:
        """Handle an error of joining, or of committing offsets."""
        # In version 2 the coordinator bumps the epoch when it aborts a transaction, for example after its timeout, and
        # the producer can continue.
        passes = self.version >= IMPLICIT and isinstance(error, InvalidProducerEpoch)
        if getattr(error, "fatal", False) and not passes:
            self.give_up(error)
        else:
            self.doom(None, 0, error)

    def _end(self, now: float) -> Outcome[None]:
        self._ended, self._look_until, self._end_repeated = Outcome(), None, False
        self._unsure |= self._joining.unsure or self.offsets.unsure
        if isinstance(self._cause, InvalidProducerIdMapping):  # the coordinator knows no transaction to end
            self._unsure = True
            self._over(None)
        elif self._begun or self._joining.asked or self.offsets.sent:
            self._send_end(now)
        else:
            self._over(None)
        return self._ended

    def _send_end(self, now: float) -> None:
        assert self.current is not None
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.current.producer_id,
            producer_epoch=self.current.epoch,
            committed=self.state is TransactionalProducerState.COMMITTING,
        )
        self._markers.ending(now)
        versions = END_TRANSACTION_2 if self.version >= IMPLICIT else END_TRANSACTION
        what = f"EndTxn of {self.transactional_id!r}"
        self._run(what, now, lambda task: self._coordinator(task, request, versions), self._end_answered)

    def _end_answered(self, task: Task[EndTxnResponse], now: float) -> None:
        error = task.outcome.error
        self._unsure |= task.repeated
        self._end_repeated |= task.repeated
        if error is None:
            self._markers.ended(now)
            self._over(task.outcome.result())
        elif isinstance(error, TimeoutExpired):
            self._unsure, self.trouble = True, str(error)
            if self.state is TransactionalProducerState.COMMITTING:
                error = TransactionOutcomeUnknown(f"it is not known whether the transaction is committed: {error}")
            self._ended.fail(error)
            self._send_end(now)
        elif (
            isinstance(error, InvalidTxnState)
            and self.state is TransactionalProducerState.COMMITTING
            and self._may_have_moved(now)
        ):
            self._core.transaction_coordinators.forget(self.transactional_id)
            self.trouble = str(error)
            self._core.later(now + _PAUSE, self._send_end_again)
        elif isinstance(error, _NOT_COMMITTED) and self.state is TransactionalProducerState.COMMITTING:
            self._unsure |= isinstance(error, UnknownProducerId)  # the next transaction needs a new epoch
            (self._lose_track if self._end_repeated else self._cannot_commit)(error, now)
        elif (
            isinstance(error, InvalidTxnState)
            and self.state is TransactionalProducerState.ABORTING
            and not self._joining.joined
        ):
            self._unsure = True  # as far as the coordinator knows, nothing had joined: there is nothing to abort
            self._over(None)
        elif isinstance(error, ProducerFenced):
            self._core.transaction_coordinators.forget(self.transactional_id)
            described = describe_transactions(self._core, [self.transactional_id], now, LIMIT)
            described.when_done(lambda: self._core.soon(lambda now: self._described(described, error, now)))
        else:
            self.give_up(error)

    def _lose_track(self, error: OttlaError, now: float) -> None:
        """Handle a refused EndTxn after one without an answer, which may have committed the transaction."""
        why = "an EndTxn without an answer may have committed the transaction, and the coordinator refuses another one"
        self._ended.fail(TransactionOutcomeUnknown(f"{why}: {error}"))
        described = describe_transactions(self._core, [self.transactional_id], now, LIMIT)

        def seen(now: float) -> None:
            if self.state is not TransactionalProducerState.COMMITTING or self.current is None:
                return
            if not described.error and is_replaced(self.current, described.result()[self.transactional_id]):
                self.give_up(error)
            else:
                self._change(TransactionalProducerInput.RENEW)
                self._initialize(now)

        described.when_done(lambda: self._core.soon(seen))

    def _described(
        self, described: Outcome[dict[str, TransactionDescription]], error: ProducerFenced, now: float
    ) -> None:
        """Handle PRODUCER_FENCED as the response to EndTxn, depending on the coordinator's current state of the id.

        - Another producer: this producer has to end. InitProducerId would abort a transaction of the other one, because
          Kafka does not check the epoch of the requesting producer while a transaction is open.
        - This producer, which is committing: the response came from a former coordinator with outdated state. Retry.
        - This producer, which is aborting, in version 2: the markers of the previous transaction are being written, and
          no request of this one has reached the coordinator. InitProducerId waits for the markers.
        - The epoch in which the coordinator aborted this producer's transaction after its timeout: in version 2 the
          producer can continue, with InitProducerId.
        """
        if (
            self.state not in (TransactionalProducerState.COMMITTING, TransactionalProducerState.ABORTING)
            or self._task is not None
            or self.current is None
        ):
            return
        known = None if described.error else described.result()[self.transactional_id]
        implicit, commits = self.version >= IMPLICIT, self.state is TransactionalProducerState.COMMITTING
        if known is not None and is_replaced(self.current, known):
            self.give_up(error)
        elif commits and known is not None and known.producer_epoch == self.current.epoch and self._may_have_moved(now):
            self.trouble = str(error)
            self._core.later(now + _PAUSE, self._send_end_again)
        elif commits and known is not None and known.producer_epoch != self.current.epoch and implicit:
            self._cannot_commit(error, now)
        elif not commits and implicit:
            self._change(TransactionalProducerInput.RENEW)
            self._initialize(now)
        else:
            self.give_up(error)

    def _cannot_commit(self, error: OttlaError, now: float) -> None:
        """Doom the transaction: the coordinator can only abort it."""
        self._change(TransactionalProducerInput.REFUSED)
        self.doom(None, 0, error)
        if self.has_timed_out:
            self.find_out()
        abandoned = self._ended.done
        self._ended.fail(error)
        if abandoned:  # the caller no longer waits, so it would not abort
            self.stop()
            self._end(now)

    def _may_have_moved(self, now: float) -> bool:
        """Whether an impossible response may have come from a former coordinator, which does not know its successor."""
        if self._look_until is None:
            self._look_until = now + _MOVED_LIMIT
        return now < self._look_until

    def _send_end_again(self, now: float) -> None:
        if self._task is None and self.state is TransactionalProducerState.COMMITTING:
            self._send_end(now)

    def _over(self, answer: EndTxnResponse | None) -> None:
        """End the transaction after the response to EndTxn, or without one if no request was needed."""
        self.trouble = ""
        if self.state is TransactionalProducerState.COMMITTING:
            self.offsets.committed()
        if answer is not None and min(answer.producer_id, answer.producer_epoch) >= 0:
            self.current = Identity(answer.producer_id, answer.producer_epoch)
            self._change(TransactionalProducerInput.ENDED)
        else:
            nameless = self.version >= IMPLICIT and answer is not None
            renews = nameless or self._unsure or self._leaves_gaps() or (self._explicit and self._can_be_implicit)
            self._change(TransactionalProducerInput.RENEW if renews else TransactionalProducerInput.ENDED)
        self._ended.succeed(None)
        self._core.soon(self._initialize)  # does nothing unless the epoch has to be bumped
        self._settle()

    def _coordinator(self, task: Task[Any], request: Any, versions: Range) -> Steps[Any]:
        coordinators = self._core.transaction_coordinators
        judge = partial(self._judge, request)
        named = request.v3_and_below_topics if isinstance(request, AddPartitionsToTxnRequest) else ()
        topics = [each.name for each in named]
        return ask_coordinator(task, coordinators, self.transactional_id, request, judge, versions, topics)

    def _judge(self, request: Any, answer: Any) -> OttlaError | None:
        what = f"transactional id {self.transactional_id!r}"
        if not isinstance(answer, AddPartitionsToTxnResponse):
            if answer.error_code:
                return broker_error(answer.error_code, what)
            if isinstance(answer, InitProducerIdResponse) and min(answer.producer_id, answer.producer_epoch) < 0:
                return RemoteProtocolError(f"InitProducerId was answered without a producer id: {what}")
            return None
        answered = {
            (topic.name, each.partition_index)
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        for topic in request.v3_and_below_topics:
            if any((topic.name, each) not in answered for each in topic.partitions):
                return RemoteProtocolError(f"AddPartitionsToTxn was answered without all of {topic.name!r}: {what}")
        codes = {
            each.partition_error_code: f"{what}, {topic.name}-{each.partition_index}"
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
            if each.partition_error_code not in (0, OperationNotAttempted.code)
        }
        return next((broker_error(code, where) for code, where in codes.items()), None)

    def give_up(self, error: OttlaError) -> None:
        """End the producer with an error; if it was fenced, find out the reason first.

        An expired producer id only dooms the transaction: InitProducerId returns a new one, or says that the producer
        was fenced.
        """
        if isinstance(error, InvalidProducerIdMapping) and self.is_open:
            self.doom(None, 0, error)
            return
        if not isinstance(error, FENCING) or self.current is None or self.state is TransactionalProducerState.FAILED:
            self._give_up(error)
            return
        self.doom(None, 0, error)
        found = self.find_out()
        found.when_done(lambda: self._core.soon(lambda now: self._give_up(explained(error, found.result()))))

    @property
    def has_timed_out(self) -> bool:
        """Whether the open or last transaction has been open for longer than its timeout."""
        return self._core.now - self._begun_at > self._timeout

    def find_out(self) -> Outcome[str]:
        """An explanation why the producer was fenced, from its coordinator."""
        assert self.current is not None
        if self._found is None:
            running = self.is_open or self.state in (
                TransactionalProducerState.COMMITTING,
                TransactionalProducerState.ABORTING,
            )
            open_for = self._core.now - self._begun_at if running else None
            fenced = Fenced(self.transactional_id, self.current, self._timeout, open_for, self.version)
            self._found = find_out(self._core, fenced, self._core.now)
        return self._found

    def _give_up(self, error: OttlaError) -> None:
        self._fatal = self._fatal or error
        self._ended.fail(error)
        self._fail(error)

    def _why_failed(self) -> OttlaError:
        return self._fatal or self._core.closed or Closed("the producer is closed")

    def _settle(self) -> None:
        """Settle the callers of `ready`: a transaction may begin, or the producer has failed."""
        for outcome in list(self._waiting):
            if self.state is TransactionalProducerState.READY:
                outcome.succeed(None)
            elif self.state is TransactionalProducerState.FAILED:
                outcome.fail(self._why_failed())
