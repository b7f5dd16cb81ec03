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
from typing import Any, TypeVar

from ottla.codec.apis.end_txn import EndTxnResponse
from ottla.errors import (
    BrokerError,
    Closed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    LocalProtocolError,
    OttlaError,
    ProducerFenced,
    TimeoutExpired,
    TransactionAbortable,
    TransactionAborted,
    TransactionOutcomeUnknown,
    UnknownProducerId,
    UnsupportedVersion,
)
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.versions import PRODUCE_TRANSACTIONAL, PRODUCE_TRANSACTIONAL_2, Range
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, sleep
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, own
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction.explicit_joining import ExplicitJoining
from ottla.sdk.transaction.fencing import FENCING, Fenced, explained, find_out, is_replaced
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
from ottla.sdk.transaction.transaction_requests import TransactionRequests

T = TypeVar("T")

log = logger("ottla.sdk.producer")

_MOVED_LIMIT = 3.0
"""Seconds for which the coordinator is looked up again if it says that there is nothing to commit."""
_PAUSE = 0.2
"""Seconds between two such attempts."""


class ProducerTransactions:
    """Runs the transactions of one producer, one after the other.

    Args:
        timeout: seconds after which the broker aborts a transaction.
        changed: called with ``now`` when batches may be sent that were held back before.
        fail: called with the error that ends the producer.
        shown: called when the transaction begins or stops to accept records.
        wake: called with a partition that has joined.
        leaves_gaps: returns whether batches of this epoch are in flight, or have an unknown outcome.

    Attributes:
        number: the number of the open or last transaction.
        version: the protocol version of that transaction.
        offsets: the offsets of consumer groups that it commits.
        doomed: settled once the transaction cannot be committed any more, or the producer has failed.
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
        shown: Callable[[], None],
        wake: Callable[[PartitionQueue], None],
        leaves_gaps: Callable[[], bool],
    ) -> None:
        self._leaves_gaps = leaves_gaps
        self._core, self.transactional_id, self._timeout = core, transactional_id, timeout
        self._changed, self._fail, self._shown = changed, fail, shown
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
        self._requests = TransactionRequests(core, transactional_id)
        self._joining = ExplicitJoining(core, self._requests, self._markers, wake=wake, refused=refused)
        self._implicit = ImplicitJoining(core, transactional_id, self._markers, wake)
        self.offsets = TransactionOffsets(core, transactional_id, self._joining, self._implicit, refused)
        self._begun = False
        """A batch was sent in this transaction."""
        self._begun_at = 0.0
        self._unsure = False
        """A request of the transaction may still arrive at a broker after its end."""
        self._explicit = False
        """There was a transaction of version 1 in this epoch."""
        self._flow: LoneFlow | None = None
        """Sends InitProducerId or EndTxn."""
        self._task: Task[Any] | None = None
        """The request that the flow waits for."""
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
        if self._flow is not None:
            self._flow.cancel()
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
        self._shown()

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
        self._shown()

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
            self._shown()

    def commit(self, now: float) -> Outcome[None]:
        """Commit the transaction; from now on the client does not abort it by itself.

        Fails with the broker's error, or with `TransactionOutcomeUnknown` after `api_timeout`; retries continue then.
        """
        self._change(TransactionalProducerInput.COMMIT)
        self._shown()
        return self._end(now)

    def stop(self) -> None:
        """Send nothing more, because the transaction will be aborted."""
        self._change(TransactionalProducerInput.ABORT)
        self._joining.stop()
        self._implicit.stop()
        self.offsets.stop()
        self._shown()

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

    def _initialize(self, now: float) -> None:
        """Send InitProducerId, if the state asks for it."""
        if self.state is TransactionalProducerState.NONE and not self._core.closed:
            self._change(TransactionalProducerInput.NEEDED)
            self._flow = LoneFlow(self._core, self._init_producer_id())

    def _init_producer_id(self) -> Steps[None]:
        """Get an identity, however long it takes; end the producer with an error that no retry mends."""
        while True:
            try:
                answer = yield from self._wait(self._requests.init_producer_id(self.current, self._timeout))
                break
            except TimeoutExpired as error:
                self.trouble = str(error)
            except OttlaError as error:
                if isinstance(error, UnsupportedVersion) and self.current is not None:
                    why = "the epoch has to be bumped after a failure, which brokers before Kafka 2.5 do not support"
                    error = UnsupportedVersion(f"{why}: make another producer; {error}")
                self.give_up(error)
                return
        self.current = Identity(answer.producer_id, answer.producer_epoch)
        self.trouble, self._explicit = "", False
        self._change(TransactionalProducerInput.GIVEN)
        self._ended.succeed(None)
        self._settle()

    def _wait(self, task: Task[T]) -> Steps[T]:
        """Wait for a request; meanwhile `explain` shows what is wrong with it."""
        self._task = task
        try:
            return (yield from settled(task.outcome))
        finally:
            self._task = None

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
        """Commit or abort, as the state says; the coordinator only has to know if a request was sent."""
        self._ended, self._look_until, self._end_repeated = Outcome(), None, False
        self._unsure |= self._joining.unsure or self.offsets.unsure
        if isinstance(self._cause, InvalidProducerIdMapping):  # the coordinator knows no transaction to end
            self._unsure = True
            self._over(None)
        elif self._begun or self._joining.asked or self.offsets.sent:
            assert self.current is not None, "a transaction begins with an identity"
            send = self._send_commit if self.state is TransactionalProducerState.COMMITTING else self._send_abort
            self._flow = LoneFlow(self._core, send(self.current))
        else:
            self._over(None)
        return self._ended

    def _send_commit(self, ours: Identity) -> Steps[None]:
        """Send EndTxn until the transaction is committed, or the coordinator can only abort it."""
        while True:
            match answer := (yield from self._send_end(ours)):
                case EndTxnResponse():
                    return self._over(answer)
                case TimeoutExpired():
                    why = f"it is not known whether the transaction is committed: {answer}"
                    self._ended.fail(TransactionOutcomeUnknown(why))
                case InvalidTxnState() if self._may_have_moved():
                    self._forget_coordinator()
                    self.trouble = str(answer)
                    yield from sleep(self._core, _PAUSE)
                case InvalidTxnState() | TransactionAbortable() | UnknownProducerId():  # the last as in Java's client
                    self._unsure |= isinstance(answer, UnknownProducerId)  # the next transaction needs a new epoch
                    if not self._end_repeated:
                        return self._cannot_commit(answer)
                    why = "an EndTxn without an answer may have committed the transaction"
                    why = f"{why}, and the coordinator refuses another one: {answer}"
                    self._ended.fail(TransactionOutcomeUnknown(why))
                    known = yield from self._requests.describe()
                    if known is not None and is_replaced(ours, known):
                        return self.give_up(answer)
                    return self._renew()
                case ProducerFenced():
                    self._forget_coordinator()
                    known = yield from self._requests.describe()
                    # Another producer has the id: InitProducerId would abort a transaction of that one, because Kafka
                    # does not check the epoch of the requesting producer while a transaction is open.
                    if known is None or is_replaced(ours, known):
                        return self.give_up(answer)
                    if known.producer_epoch != ours.epoch and self.version >= IMPLICIT:
                        return self._cannot_commit(answer)  # it has aborted the transaction after its timeout
                    if known.producer_epoch != ours.epoch or not self._may_have_moved():
                        return self.give_up(answer)
                    self.trouble = str(answer)  # the answer came from a former coordinator, which knows less
                    yield from sleep(self._core, _PAUSE)
                case _:
                    return self.give_up(answer)

    def _send_abort(self, ours: Identity) -> Steps[None]:
        """Send EndTxn until the transaction is aborted."""
        while True:
            match answer := (yield from self._send_end(ours)):
                case EndTxnResponse():
                    return self._over(answer)
                case TimeoutExpired():
                    self._ended.fail(answer)
                case InvalidTxnState() if not self._joining.joined:
                    self._unsure = True  # the coordinator knows of nothing that has joined
                    return self._over(None)
                case ProducerFenced() if self.version >= IMPLICIT:
                    # The coordinator has aborted the transaction after its timeout; or it still writes the markers of
                    # the previous one, and no request of this one has reached it: InitProducerId waits for them.
                    self._forget_coordinator()
                    known = yield from self._requests.describe()
                    if known is not None and is_replaced(ours, known):
                        return self.give_up(answer)
                    return self._renew()
                case _:
                    return self.give_up(answer)

    def _send_end(self, ours: Identity) -> Steps[EndTxnResponse | OttlaError]:
        """Send EndTxn until its outcome is definite, at most for `api_timeout`."""
        commits = self.state is TransactionalProducerState.COMMITTING
        self._markers.ending(self._core.now)
        task = self._requests.end(ours, committed=commits, version=self.version)
        try:
            answer = yield from self._wait(task)
        except OttlaError as error:
            if isinstance(error, TimeoutExpired):
                self._unsure, self.trouble = True, str(error)
            return error
        else:
            self._markers.ended(self._core.now)
            return answer
        finally:
            self._unsure |= task.repeated
            self._end_repeated |= task.repeated

    def _may_have_moved(self) -> bool:
        """Whether an impossible response may have come from a former coordinator, which does not know its successor."""
        if self._look_until is None:
            self._look_until = self._core.now + _MOVED_LIMIT
        return self._core.now < self._look_until

    def _forget_coordinator(self) -> None:
        self._core.transaction_coordinators.forget(self.transactional_id)

    def _cannot_commit(self, error: OttlaError) -> None:
        """Doom the transaction: the coordinator can only abort it."""
        self._change(TransactionalProducerInput.REFUSED)
        self.doom(None, 0, error)
        if self.has_timed_out:
            self.find_out()
        abandoned = self._ended.done
        self._ended.fail(error)
        if abandoned:  # the caller no longer waits, so it would not abort
            self.stop()
            self._end(self._core.now)

    def _renew(self) -> None:
        """End the transaction by InitProducerId, which bumps the epoch."""
        self._change(TransactionalProducerInput.RENEW)
        self._initialize(self._core.now)

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
        LoneFlow(self._core, self._give_up_explained(error))

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

    def _give_up_explained(self, error: BrokerError) -> Steps[None]:
        told = yield from settled(own(self.find_out()))
        self._give_up(explained(error, told))

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
