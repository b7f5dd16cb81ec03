"""Transactions in the simulator: the model's coordinators answer as recordings of Apache Kafka 4.3.1, and the client's
transactions are whole or absent under all faults."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ottla.codec.apis import APIS
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import api
from tests.brokerlite.brokers import Broker, is_held
from tests.brokerlite.machine import TODAY
from tests.brokerlite.test_transactions_recorded import recorded
from tests.brokerlite.transacting import Conversation
from tests.sim.clock import Clock
from tests.sim.cluster import RELEASES, ModelCluster
from tests.sim.history import History
from tests.sim.run import Result, catches, play_many
from tests.sim.transaction_mutations import MUTATIONS, SEEDS
from tests.sim.transactions import DECIDED, LAST_EPOCH, ONGOING
from tests.sim.transfers import play

QUICK = 5
SLOW = 600
FEATURES = {
    "a change survives its coordinator",
    "a marker is late",
    "a producer is fenced",
    "a teller changes its mind",
    "a transaction is aborted",
    "a transaction is committed",
    "a transaction takes too long",
    "an end is cancelled",
    "an outcome is unknown",
    "fault: a rival comes",
    "fault: kill a teller",
    "fault: move coordinators",
}
SETTLED = 0.02
"""Seconds within which every change is replicated."""


class Model:
    """One node of the model, as a `Broker`."""

    assignments: tuple[int, ...] = ()

    def __init__(self, release: str = "4.3") -> None:
        self._versions = RELEASES[release]
        self.clock, chance, history = Clock(), Random(7), History(Clock(), False)
        network: Any = None
        self.cluster = ModelCluster(self.clock, chance, network, history, {}, 1, release, transactions=True)
        self.cluster.announce_at_once()
        self.cluster.transactions._delay = lambda: 0.001  # type: ignore[method-assign] # no timeouts
        self.cluster._unsaid = lambda name, code: code  # type: ignore[method-assign] # no REQUEST_TIMED_OUT

    def ask(self, message: Any, version: int | None = None) -> Any:
        key = api(type(message)).key
        version = self._versions[key][1] if version is None else version
        answers: list[Any] = []
        self.cluster.handle(1, "client", version, message, answers.append)
        self._pass(0.0 if isinstance(message, FetchRequest) else SETTLED)
        self.cluster.announce_at_once()
        while not answers:
            assert self.clock.step(), f"{message} is never answered"
        answer = build_response(answers[0], version, 0)
        return parse_response(APIS[key].response, version, answer[4:])[1]

    def _pass(self, seconds: float) -> None:
        end = self.clock.now + seconds
        self.clock.at(end, lambda: None)
        while self.clock.now < end:
            self.clock.step()

    def settle(self, transactional_ids: Iterable[str]) -> None:
        transactions, known = self.cluster.transactions, self.cluster.transactions.known

        def is_ending(name: str) -> bool:
            left = list(transactions.unmarked(name))
            return known[name].state in DECIDED and not (left and all(map(transactions.held, left)))

        while any(is_ending(name) for name in transactional_ids if name in known):
            assert self.clock.step()

    def hold(self) -> None:
        self.cluster.transactions.held = is_held

    def let_go(self) -> None:
        self.cluster.transactions.held = lambda place: False

    def pass_timeout(self, transactional_ids: Iterable[str], timeout_ms: int) -> None:
        known = self.cluster.transactions.known
        while any(known[name].state in (ONGOING, *DECIDED) for name in transactional_ids if name in known):
            assert self.clock.step()

    def use_up_epochs(self, transactional_id: str, left: int) -> None:
        known = self.cluster.transactions.known
        known[transactional_id] = replace(known[transactional_id], epoch=LAST_EPOCH - left)

    @property
    def timestamp(self) -> int:
        return TODAY


@pytest.mark.parametrize("name", [each["name"] for each in recorded()])
def test_the_answers_are_apache_kafkas(name: str) -> None:
    ((release, exchanges),) = [(each["release"], each["exchanges"]) for each in recorded() if each["name"] == name]
    broker: Broker = Model(release)
    ours = Conversation(broker, name.replace(" ", "-"))
    for i, (step, theirs) in enumerate(exchanges):
        assert ours.perform(step) == theirs, f"step {i} of {name} is {step}, after {exchanges[max(0, i - 5) : i]}"


def broken(results: Iterable[Result]) -> list[str]:
    return [f"python -m tests.sim --transactions {each.seed}   # {each.cause}" for each in results if each.violation]


def test_every_transaction_is_whole_or_absent() -> None:
    assert not broken(play(seed) for seed in range(QUICK))


@pytest.mark.deep
def test_every_transaction_is_whole_or_absent_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    assert not broken(results)
    often = sum((each.features for each in results), Counter())
    assert min(often[each] for each in FEATURES) >= 3, often


def test_a_seed_of_the_tellers_replays_exactly() -> None:
    assert play(7, told=True).history == play(7, told=True).history


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_transactions_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None
