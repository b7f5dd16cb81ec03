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
- `Participants` has the partitions and groups join, `TransactionEnd` sends EndTxn.
- The first failed record dooms the transaction: it cannot be committed any more.
- Until the outcome of EndTxn is known, no other request is sent instead, and the next transaction waits. In version 1 a
  request without an answer, or a batch whose outcome is unknown, may still arrive later: then the epoch is bumped
  before the next transaction (KIP-360).

Source: TransactionManager.java, Sender.java (maybeSendTransactionalRequest); KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Callable, Iterable, Iterator

from ottla.codec.apis.end_txn import EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.errors import (
    BrokerError,
    Closed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    LocalProtocolError,
    OttlaError,
    TimeoutExpired,
    TransactionAborted,
    UnsupportedVersion,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.versions import INITIALIZE_AGAIN, PRODUCE_TRANSACTIONAL, PRODUCE_TRANSACTIONAL_2, Range
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, own
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.produce.producer_queues import ProducerQueues
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction.fencing import FENCING, Fenced, explained, find_out
from ottla.sdk.transaction.markers import Markers
from ottla.sdk.transaction.offsets import TransactionOffsets
from ottla.sdk.transaction.participants import Participants
from ottla.sdk.transaction.states import (
    FEATURE,
    IMPLICIT,
    TRANSITIONS,
    TransactionalProducerInput,
    TransactionalProducerState,
)
from ottla.sdk.transaction.transaction_end import CommitRefused, Ended, EpochBumpNeeded, ProducerEnded, TransactionEnd
from ottla.sdk.transaction.transaction_requests import RequestWatch, TransactionRequests

log = logger("ottla.sdk.producer")


class ProducerTransactions:
    """Runs the transactions of one producer, one after the other.

    Args:
        timeout: seconds after which the broker aborts a transaction.
        queues: the batches; partitions in it may be sent once they have joined.
        fail: called with the error that ends the producer.
        shown: called when the transaction begins or stops to accept records.

    Attributes:
        number: the number of the open or last transaction.
        version: the protocol version of that transaction.
        doomed: settled once the transaction cannot be committed any more, or the producer has failed.
    """

    idempotent = True

    def __init__(
        self,
        core: ClientCore,
        transactional_id: str,
        timeout: float,
        queues: ProducerQueues,
        *,
        fail: Callable[[OttlaError], None],
        shown: Callable[[], None],
    ) -> None:
        self._core, self.transactional_id, self._timeout, self._queues = core, transactional_id, timeout, queues
        self._fail, self._shown = fail, shown
        self.state = TransactionalProducerState.NONE
        self.current: Identity | None = None
        self.number = 0
        self.version = 1
        self.doomed: Outcome[None] = Outcome()
        self._failures: dict[TopicPartition, int] = {}
        self._cause: OttlaError | None = None
        self._fatal: OttlaError | None = None
        self._found: Outcome[str] | None = None
        """An explanation why the producer was fenced."""
        self._markers = Markers()
        self._requests = TransactionRequests(core, transactional_id)
        self._participants = Participants(core, self._requests, self._markers, queues.wake, self._refused)
        self._begun_at = 0.0
        self._unsure = False
        """A request of the transaction may still arrive at a broker after its end."""
        self._explicit = False
        """There was a transaction of version 1 in this epoch."""
        self._flow: LoneFlow | None = None
        """Sends InitProducerId or EndTxn."""
        self._watch = RequestWatch()
        """Waits for its requests."""
        self._ended: Outcome[None] = Outcome()
        self._waiting: list[Outcome[None]] = []
        """Callers of `ready`: settled when a transaction may begin."""
        core.soon(self._initialize)

    # -- for the sender ------------------------------------------------------------------------------------------

    @property
    def versions(self) -> Range:
        """The versions of Produce that this protocol version needs."""
        return PRODUCE_TRANSACTIONAL_2 if self.version >= IMPLICIT else PRODUCE_TRANSACTIONAL

    def obtain(self, now: float) -> bool:
        """Whether batches can be sent now; a transaction has its producer id from its beginning."""
        return self.state in (TransactionalProducerState.OPEN, TransactionalProducerState.ENDING)

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether batches of a partition can be sent now; starts to join the partition if necessary."""
        return self._participants.admits(queue)

    def answered(self, places: Iterable[TopicPartition], now: float) -> None:
        """Take note that a Produce request for these partitions has been answered, or has failed."""
        self._participants.answered(places, now)

    @property
    def may_forget(self) -> bool:
        """Whether sequences may be forgotten.

        Within a transaction they cannot start at 0 again. Afterwards they can, but only in the next epoch, which a
        coordinator before Kafka 2.5 does not give.
        """
        between = self.state in (TransactionalProducerState.NONE, TransactionalProducerState.READY)
        return between and self._can_bump

    @property
    def _can_bump(self) -> bool:
        """Whether the coordinator is known to bump the epoch by InitProducerId (KIP-360)."""
        coordinator = self._core.transaction_coordinators.known(self.transactional_id)
        spoken = None if coordinator is None else self._core.supports(coordinator, InitProducerIdRequest)
        return spoken is not None and INITIALIZE_AGAIN[0] in spoken

    def bump(self, now: float) -> None:
        """Bump the epoch, because a partition's sequences start at 0 again."""
        if self.state is TransactionalProducerState.READY:
            self._change(TransactionalProducerInput.RENEW)

    def failed(self) -> None:
        """Stop everything, because the producer has failed."""
        if self._flow is not None:
            self._flow.cancel()
        if self.state is TransactionalProducerState.COMMITTING:
            self.offsets.leave_undecided()
        self._participants.stop()
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
        self._begun_at, self._unsure = now, False
        self._participants.begin(self.current, self.version, now)
        self._queues.wake_all()
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
    def renews(self) -> bool:
        """Whether the producer asks for its next epoch, or will do so in the next poll."""
        asks = self.state in (TransactionalProducerState.NONE, TransactionalProducerState.ASKING)
        return asks and self.current is not None

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
        """Send nothing more, because the block has ended, and the transaction will be aborted."""
        self._change(TransactionalProducerInput.ABORT)
        self._participants.stop()
        self.offsets.release()
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

    @property
    def offsets(self) -> TransactionOffsets:
        """The offsets of consumer groups that the transaction commits."""
        return self._participants.offsets

    @property
    def trouble(self) -> str:
        """A text for people: what is wrong with InitProducerId or EndTxn."""
        return self._watch.trouble

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
        joining = self._participants.joining if self.is_open else ""
        if doing is None and not joining:
            return
        where = self._core.transaction_coordinators.where(self.transactional_id)
        trouble = self.trouble
        if doing is None:
            doing, trouble = f"waits until {joining} have joined its transaction", self._participants.trouble
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
        self._watch = RequestWatch()
        while True:
            try:
                answer = yield from self._watch.wait(self._requests.init_producer_id(self.current, self._timeout))
                break
            except TimeoutExpired:
                continue
            except OttlaError as error:
                if isinstance(error, UnsupportedVersion) and self.current is not None:
                    why = "the epoch has to be bumped after a failure, which brokers before Kafka 2.5 do not support"
                    error = UnsupportedVersion(f"{why}: make another producer; {error}")
                self.give_up(error)
                return
        self.current = Identity(answer.producer_id, answer.producer_epoch)
        self._explicit = False
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
        """Commit or abort, as the state says; the coordinator only has to know if a request was sent."""
        self._ended = Outcome()
        self._unsure |= self._participants.unsure
        if isinstance(self._cause, InvalidProducerIdMapping):  # the coordinator knows no transaction to end
            self._unsure = True
            self._over(None)
        elif self._participants.asked:
            assert self.current is not None, "a transaction begins with an identity"
            self._flow = LoneFlow(self._core, self._send_end(self.current))
        else:
            self._over(None)
        return self._ended

    def _send_end(self, ours: Identity) -> Steps[None]:
        """Send EndTxn until its outcome is known, and do what that requires."""
        end = TransactionEnd(self._core, self._requests, self._markers, ours, self.version, self._ended)
        self._watch = end.watch
        commits = self.state is TransactionalProducerState.COMMITTING
        ending = yield from end.commit() if commits else end.abort(joined=self._participants.joined)
        self._unsure |= end.unsure
        match ending:
            case Ended(answer=answer):
                self._over(answer)
            case CommitRefused(error=error):
                self._cannot_commit(error)
            case EpochBumpNeeded():
                if commits:
                    self.offsets.leave_undecided()
                self._change(TransactionalProducerInput.RENEW)
                self._initialize(self._core.now)
            case ProducerEnded(error=error):
                self.give_up(error)

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

    def _over(self, answer: EndTxnResponse | None) -> None:
        """End the transaction after the response to EndTxn, or without one if no request was needed."""
        if self.state is TransactionalProducerState.COMMITTING:
            self.offsets.committed()
        if answer is not None and min(answer.producer_id, answer.producer_epoch) >= 0:
            self.current = Identity(answer.producer_id, answer.producer_epoch)
            self._change(TransactionalProducerInput.ENDED)
        else:
            nameless = self.version >= IMPLICIT and answer is not None
            outdated = self._explicit and self._can_be_implicit
            renews = nameless or self._unsure or self._queues.leaves_gaps(self.current) or outdated
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
