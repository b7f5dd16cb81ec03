"""The client's transactions, broken on purpose; see `tests.sim.mutations`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.errors import ConnectionLost, OttlaError, TimeoutExpired
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.identity import Identity
from ottla.sdk.produce.requests import ProduceRequests
from ottla.sdk.produce.sender import Sender
from ottla.sdk.steps import settled
from ottla.sdk.transaction import transactions
from ottla.sdk.transaction.core import TransactionCore
from ottla.sdk.transaction.states import Input, State
from ottla.sdk.transaction.transactions import Transactions
from tests.sim.mutations import Change, changed

MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
"""By their names, which say what the client does wrong."""
WITHIN = 400
"""Seeds, within which each is caught."""
SEEDS: dict[str, list[int]] = {}
"""By the same names, those to be tried."""


def _mutation(name: str, *changes: tuple[Any, str, Change], seed: int | None = None) -> None:
    """Args: seed: one that catches it, and is tried first."""
    MUTATIONS[name] = lambda: changed(*changes)
    SEEDS[name] = [*([seed] if seed is not None else []), *range(WITHIN)]


def _nothing_dooms(doom: Any) -> Any:
    return lambda self, place, count, cause: None


def _joined_at_once(admits: Any) -> Any:
    def broken(self: Transactions, queue: PartitionQueue) -> bool:
        self._joining._joined.add(queue.place)
        return bool(admits(self, queue))

    return broken


def _only_the_first_joins(admits: Any) -> Any:
    def broken(self: Transactions, queue: PartitionQueue) -> bool:
        if self._joining._joined:
            self._joining._joined.add(queue.place)
        return bool(admits(self, queue))

    return broken


def _never_unsure(over: Any) -> Any:
    def broken(self: Transactions, answer: Any) -> None:
        self._unsure = False
        over(self, answer)

    return broken


def _same_epoch(over: Any) -> Any:
    def broken(self: Transactions, answer: Any) -> None:
        before = self.current
        over(self, answer)
        self.current = before

    return broken


def _once(send_end: Any) -> Any:
    def broken(self: Transactions, task: Any, now: float) -> None:
        if isinstance(task.outcome.error, TimeoutExpired):
            self._over(None)
        else:
            send_end(self, task, now)

    return broken


def _lost_is_done(coordinator: Any) -> Any:
    def broken(self: Transactions, task: Any, request: Any, versions: Any) -> Any:
        if not isinstance(request, EndTxnRequest):
            return (yield from coordinator(self, task, request, versions))
        node = yield from settled(self._core.transaction_coordinators.find(self.transactional_id, task.now))
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
    def broken(self: Transactions, error: OttlaError) -> None:
        if self.current is None or self.state not in (State.COMMITTING, State.ABORTING):
            give_up(self, error)
            return
        self.current = None
        self._change(Input.RENEW)
        self._ended.fail(error)
        self._core.soon(self._initialize)

    return broken


def _next_epoch_by_itself(over: Any) -> Any:
    def broken(self: Transactions, answer: Any) -> None:
        over(self, answer)
        if self.state is State.NONE and self.current is not None:
            self.current = Identity(self.current.producer_id, self.current.epoch + 1)
            self._change(Input.NEEDED)
            self._change(Input.GIVEN)

    return broken


def _nothing_to_end(end: Any) -> Any:
    def broken(self: Transactions, now: float) -> Any:
        if self.state is State.ABORTING and not self._joining.joined:
            self._begun, self._joining._partitions = False, {}
        return end(self, now)

    return broken


_mutation("a record that failed keeps nothing from being committed", (Transactions, "doom", _nothing_dooms))
_mutation("partitions never join", (Transactions, "admits", _joined_at_once))
_mutation("only the first partitions join", (Transactions, "admits", _only_the_first_joins))
_mutation("an EndTxn that may yet arrive is not fenced", (Transactions, "_over", _never_unsure), seed=2127)
_mutation("a transaction goes on in the epoch of the one before", (Transactions, "_over", _same_epoch))
_mutation("an EndTxn that was not answered in time counts as answered", (Transactions, "_end_answered", _once))
_mutation("an EndTxn whose connection broke counts as answered", (Transactions, "_coordinator", _lost_is_done))
_mutation("what is to be aborted is committed", (transactions, "EndTxnRequest", _always_commits))
_mutation("an abort does not wait for what is under way", (Sender, "withdraw", _without_waiting))
_mutation("a commit does not wait for its records", (TransactionCore, "_commit", _not_flushed))
_mutation("batches do not say that they are part of a transaction", (ProduceRequests, "build", _plain))
_mutation("a producer that is fenced begins anew", (Transactions, "_give_up", _fenced_goes_on))
_mutation("the next epoch is taken, and not asked for", (Transactions, "_over", _next_epoch_by_itself))
_mutation("an abort is not told where nothing has joined", (Transactions, "_end", _nothing_to_end))
