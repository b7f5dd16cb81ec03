"""Mutations of the client's transactions; see `tests.sim.mutations`."""

from typing import Any

from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.errors import (
    ConcurrentTransactions,
    ConnectionLost,
    InvalidProducerEpoch,
    OttlaError,
    ProducerFenced,
    TimeoutExpired,
)
from ottla.sdk.cluster.coordinators import Coordinators
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.produce.requests import ProduceRequests
from ottla.sdk.produce.results import Results
from ottla.sdk.produce.sender import Sender
from ottla.sdk.steps import settled
from ottla.sdk.transaction import transaction_requests
from ottla.sdk.transaction.core import TransactionCore
from ottla.sdk.transaction.explicit_joining import ExplicitJoining
from ottla.sdk.transaction.fencing import FENCING
from ottla.sdk.transaction.participants import Participants
from ottla.sdk.transaction.producer_transactions import ProducerTransactions
from ottla.sdk.transaction.states import TransactionalProducerInput, TransactionalProducerState
from ottla.sdk.transaction.transaction_end import TransactionEnd
from tests.sim.mutations import Mutations

OF_TRANSACTIONS = Mutations("transactions", within=400)
MUTATIONS, SEEDS, _mutation = OF_TRANSACTIONS.known, OF_TRANSACTIONS.seeds, OF_TRANSACTIONS.add


def _nothing_dooms(doom: Any) -> Any:
    return lambda self, place, count, cause: None


def _joined_at_once(admits: Any) -> Any:
    def broken(self: Participants, queue: PartitionQueue) -> bool:
        self._explicit._joined.add(queue.place)
        return bool(admits(self, queue))

    return broken


def _only_the_first_joins(admits: Any) -> Any:
    def broken(self: Participants, queue: PartitionQueue) -> bool:
        if self._explicit._joined:
            self._explicit._joined.add(queue.place)
        return bool(admits(self, queue))

    return broken


def _never_unsure(over: Any) -> Any:
    def broken(self: ProducerTransactions, answer: Any) -> None:
        self._unsure = False
        over(self, answer)

    return broken


def _same_epoch(over: Any) -> Any:
    def broken(self: ProducerTransactions, answer: Any) -> None:
        before = self.current
        over(self, answer)
        self.current = before

    return broken


def _once(send: Any) -> Any:
    def broken(self: TransactionEnd, *, committed: bool) -> Any:
        answer = yield from send(self, committed=committed)
        if isinstance(answer, TimeoutExpired):
            return EndTxnResponse(error_code=0, producer_id=self._ours.producer_id, producer_epoch=self._ours.epoch)
        return answer

    return broken


def _lost_is_done(ask_coordinator: Any) -> Any:
    def broken(task: Any, coordinators: Any, key: str, request: Any, judge: Any, versions: Any, topics: Any) -> Any:
        if not isinstance(request, EndTxnRequest):
            return (yield from ask_coordinator(task, coordinators, key, request, judge, versions, topics))
        node = yield from settled(coordinators.find(key, task.now))
        try:
            return (yield from settled(task.request(node, request, versions=versions)))[0]
        except ConnectionLost:
            return EndTxnResponse(error_code=0)

    return broken


def _always_commits(request: Any) -> Any:
    return lambda **given: request(**{**given, "committed": True})


def _without_waiting(withdraw: Any) -> Any:
    def broken(self: Sender, error: OttlaError) -> Outcome[None]:
        withdraw(self, error)
        done: Outcome[None] = Outcome()
        done.succeed(None)
        return done

    return broken


def _not_flushed(commit: Any) -> Any:
    def broken(self: TransactionCore) -> Any:
        yield from ()
        self._transactions.end()
        ended = self._transactions.commit(self._core.now)
        if not ended.done:
            yield ended
        ended.result()

    return broken


def _plain(build: Any) -> Any:
    def broken(self: ProduceRequests, batches: Any, *others: Any) -> Any:
        for queue in batches.values():
            queue.transactional = False
        return build(self, batches, *others)

    return broken


def _fenced_goes_on(give_up: Any) -> Any:
    def broken(self: ProducerTransactions, error: OttlaError) -> None:
        if self.current is None or self.state not in (
            TransactionalProducerState.COMMITTING,
            TransactionalProducerState.ABORTING,
        ):
            give_up(self, error)
            return
        self.current = None
        self._change(TransactionalProducerInput.RENEW)
        self._ended.fail(error)
        self._core.soon(self._initialize)

    return broken


def _next_epoch_by_itself(over: Any) -> Any:
    def broken(self: ProducerTransactions, answer: Any) -> None:
        over(self, answer)
        if self.state is TransactionalProducerState.NONE and self.current is not None:
            self.current = Identity(self.current.producer_id, self.current.epoch + 1)
            self._change(TransactionalProducerInput.NEEDED)
            self._change(TransactionalProducerInput.GIVEN)

    return broken


def _nothing_to_end(end: Any) -> Any:
    def broken(self: ProducerTransactions, now: float) -> Any:
        participants = self._participants
        if self.state is TransactionalProducerState.ABORTING and not participants.joined:
            participants._produced, participants._explicit._partitions = False, {}
        return end(self, now)

    return broken


_mutation("a record that failed keeps nothing from being committed", (ProducerTransactions, "doom", _nothing_dooms))
_mutation("partitions never join", (Participants, "admits", _joined_at_once))
_mutation("only the first partitions join", (Participants, "admits", _only_the_first_joins))
_mutation("an EndTxn that may yet arrive is not fenced", (ProducerTransactions, "_over", _never_unsure))
_mutation("a transaction goes on in the epoch of the one before", (ProducerTransactions, "_over", _same_epoch))
_mutation("an EndTxn that was not answered in time counts as answered", (TransactionEnd, "_send", _once))
_mutation(
    "an EndTxn whose connection broke counts as answered", (transaction_requests, "ask_coordinator", _lost_is_done)
)
_mutation("what is to be aborted is committed", (transaction_requests, "EndTxnRequest", _always_commits))
_mutation("an abort does not wait for what is under way", (Sender, "withdraw", _without_waiting))
_mutation("a commit does not wait for its records", (TransactionCore, "_commit", _not_flushed))
_mutation("batches do not say that they are part of a transaction", (ProduceRequests, "build", _plain))
_mutation("a producer that is fenced begins again", (ProducerTransactions, "_give_up", _fenced_goes_on))
_mutation("the next epoch is taken, and not asked for", (ProducerTransactions, "_over", _next_epoch_by_itself))
_mutation("an abort is not told where nothing has joined", (ProducerTransactions, "_end", _nothing_to_end))


# -- mutations by an engineer who had not seen these tests -----------------------------------------------------------


def _remembers_what_it_asked(stop: Any) -> Any:
    def broken(self: ExplicitJoining) -> None:
        asked = set(self._partitions) if self._task is not None else set()
        stop(self)
        self._joined |= asked

    return broken


def _late_answer_counts(begin: Any) -> Any:
    def broken(self: ExplicitJoining, identity: Identity | None) -> None:
        late = self._joined & set(self._partitions)
        begin(self, identity)
        self._joined |= late

    return broken


def _withdrawn_is_retried(refused: Any) -> Any:
    def broken(self: Results, queue: PartitionQueue, batch: Any, *others: Any, **named: Any) -> None:
        batch.abandoned = False
        refused(self, queue, batch, *others, **named)

    return broken


def _lingering_stays(withdraw: Any) -> Any:
    def broken(self: Results, queue: PartitionQueue, batch: Any, error: OttlaError) -> None:
        if batch.due:
            withdraw(self, queue, batch, error)

    return broken


def _sequences_begin_again(begin: Any) -> Any:
    def broken(self: ProducerTransactions, now: float) -> None:
        for queue in self._queues.partitions.values():
            queue.next_sequence = 0
        begin(self, now)

    return broken


def _sequences_go_on(adopt: Any) -> Any:
    def broken(self: PartitionQueue, identity: Identity) -> bool:
        before = self.next_sequence
        adopted = bool(adopt(self, identity))
        self.next_sequence = max(before, self.next_sequence)
        return adopted

    return broken


def _its_caller_knows(failed: Any) -> Any:
    def broken(self: Deliveries, batch: Any, *given: Any, **named: Any) -> None:
        doom = self._doom
        if batch.callbacks and all(each is not None for each in batch.callbacks):
            self._doom = lambda place, count, error: None
        failed(self, batch, *given, **named)
        self._doom = doom

    return broken


def _unplaced_dooms_nothing(refused: Any) -> Any:
    def broken(self: Deliveries, record: Any, error: OttlaError) -> None:
        doom, self._doom = self._doom, lambda place, count, error: None
        refused(self, record, error)
        self._doom = doom

    return broken


def _concurrent_is_done(judge: Any) -> Any:
    def broken(request: Any, what: str, answer: Any) -> Any:
        error = judge(request, what, answer)
        return None if isinstance(answer, EndTxnResponse) and isinstance(error, ConcurrentTransactions) else error

    return broken


def _aborts_at_the_deadline(send: Any) -> Any:
    late: dict[TransactionEnd, None] = {}

    def broken(self: TransactionEnd, *, committed: bool) -> Any:
        answer = yield from send(self, committed=committed and self not in late)
        if isinstance(answer, TimeoutExpired):
            late[self] = None
        return answer

    return broken


def _cancellation_aborts(commit: Any) -> Any:
    def broken(self: TransactionCore) -> Any:
        steps = commit(self)
        sent: Any = None
        while True:
            try:
                wait = steps.send(sent)
            except StopIteration:
                return
            try:
                sent = yield wait
            except BaseException as error:
                steps.close()
                if self._transactions.state is TransactionalProducerState.COMMITTING:
                    self._transactions.state = TransactionalProducerState.OPEN
                raise error

    return broken


def _asks_as_a_new_one(give_up: Any) -> Any:
    def broken(self: ProducerTransactions, error: OttlaError) -> None:
        if isinstance(error, FENCING) and self.current and self.state is TransactionalProducerState.ASKING:
            self.current, self.state = None, TransactionalProducerState.NONE
            self._core.soon(self._initialize)
        else:
            give_up(self, error)

    return broken


def _never_looked_for_again(heard: Any) -> Any:
    return lambda self, key, error: None


_mutation(
    "partitions that were asked for have joined the next transaction",
    (ExplicitJoining, "stop", _remembers_what_it_asked),
    (ExplicitJoining, "begin", _late_answer_counts),
)
_mutation("a batch that was withdrawn is retried", (Results, "refused", _withdrawn_is_retried))
_mutation("a batch that lingers is sent in the next transaction", (Results, "withdraw", _lingering_stays))
_mutation("sequences begin again with each transaction", (ProducerTransactions, "begin", _sequences_begin_again))
_mutation("sequences go on in another epoch", (PartitionQueue, "adopt", _sequences_go_on))
_mutation("a failed record whose caller is called back dooms nothing", (Deliveries, "failed", _its_caller_knows))
_mutation("a record that fails before it has a batch dooms nothing", (Deliveries, "refused", _unplaced_dooms_nothing))
_mutation("a transaction that is being ended counts as ended", (transaction_requests, "_judge", _concurrent_is_done))
_mutation(
    "a commit that is not answered in time is aborted",
    (TransactionEnd, "_send", _aborts_at_the_deadline),
)
_mutation("a cancellation aborts what is being committed", (TransactionCore, "_commit", _cancellation_aborts))
_mutation(
    "a producer that is refused another epoch asks as a new one",
    (ProducerTransactions, "give_up", _asks_as_a_new_one),
)
_mutation("a coordinator that has moved is not looked for", (Coordinators, "heard", _never_looked_for_again))


# -- past bugs that a test against real Kafka nodes found --------------------------------------------------------------


def _at_once(begin: Any) -> Any:
    def broken(self: ProducerTransactions, now: float) -> None:
        self._explicit = False
        begin(self, now)

    return broken


def _fenced_for_good(send: Any) -> Any:
    def broken(self: TransactionEnd, *, committed: bool) -> Any:
        answer = yield from send(self, committed=committed)
        if not committed and isinstance(answer, ProducerFenced):
            return InvalidProducerEpoch(answer.detail)
        return answer

    return broken


_mutation("version 2 begins in an epoch of version 1", (ProducerTransactions, "begin", _at_once))
_mutation("an abort that comes too early ends the producer", (TransactionEnd, "_send", _fenced_for_good))
