"""The proxy in the simulator: under all faults its answers are true, and records are stored once and in key order."""

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.sim.proxy import transfer_mutations, transfers
from tests.sim.proxy.mutations import MUTATIONS, SEEDS
from tests.sim.proxy.world import play
from tests.sim.run import Result, catches, play_many

QUICK = 5
SLOW = 2000
OFTEN = 50
"""How often each of `FEATURES` has to come in these worlds; the rarest, topics in trouble, come 73 times."""
SOME_TRANSFERS, TRANSFERS = 3, 250
SELDOM = 3
FEATURES = {
    "a batch cannot be opened",
    "a batch comes again",
    "a batch is built in a thread",
    "a batch is opened in a thread",
    "a batch is refused because of one record",
    "a batch is refused because of its keys",
    "a batch is refused with others behind it",
    "a request is answered before its records are settled",
    "a rule changes while a client pipelines records",
    "a topic in trouble: deleted",
    "a topic in trouble: replicas",
    "a topic in trouble: some replicas",
    "a host has too many producers at work",
    "a leader appends and says that it leads no more",
    "a producer's state expires",
    "a topic gets copies",
    "clients log in through the proxy",
    "a topic in mode fan-out gets copies",
    "clients see one partition of a topic",
    "fault: crash",
    "fault: another limit",
    "fault: cut",
    "fault: cut clients",
    "fault: cut off",
    "fault: expire",
    "fault: freeze",
    "fault: freeze a client",
    "fault: move",
    "fault: recreate",
    "fault: refuse",
    "fault: refuse records",
    "fault: restart",
    "fault: silence",
    "fault: sleep",
    "fault: slow",
    "fault: step down",
    "fault: swallow",
    "nobody can know what became of a batch",
    "records are withdrawn",
    "records that upstream refuses for now go back to their client",
    "records that are stored already come again",
    "the records of a request are judged",
    "the rule of a topic that is copied changes",
    "what follows a refused batch is renumbered",
}

OF_TRANSFERS = {
    "a batch is built in a thread",
    "a batch is opened in a thread",
    "a commit is refused, and becomes an abort",
    "a hasty transaction is aborted",
    "a hasty transaction is committed",
    "a topic gets copies",
    "a rule changes",
    "a transaction begins with records of the one before in flight",
    "a transaction can only be aborted",
    "a transaction is aborted",
    "a transaction is committed",
    "a transaction is overtaken with records under way",
    "a transaction is to be aborted with records in flight",
    "a transaction is to be committed with records in flight",
    "a transaction is unknown",
    "a transaction loses the count of a partition",
    "an EndTxn waits for records whose topic is not described",
    "an EndTxn waits for records",
    "an epoch goes on behind records that have failed",
    "clients see one partition of a topic",
    "fault: behind",
    "fault: crash",
    "fault: freeze the proxy",
    "fault: kill a teller",
    "fault: move coordinators",
    "fault: refuse records",
    "fault: refuse",
    "fault: restart",
    "fault: upgrade",
    "records of a transaction are withdrawn",
}


def broken(results: Iterable[Result], world: str = "proxy") -> list[str]:
    return [f"python -m tests.sim --{world} {each.seed}   # {each.cause}" for each in results if each.violation]


def test_answers_to_clients_of_the_proxy_are_true() -> None:
    assert not broken(play(seed) for seed in range(QUICK))


@pytest.mark.deep
def test_answers_to_clients_of_the_proxy_are_true_in_two_thousand_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    assert not broken(results)
    often = sum((each.features for each in results), Counter[str]())
    assert min(often[each] for each in FEATURES) >= OFTEN, often


def test_transactions_through_the_proxy_are_whole_or_absent() -> None:
    assert not broken((transfers.play(seed) for seed in range(SOME_TRANSFERS)), "proxied-transactions")


@pytest.mark.deep
def test_transactions_through_the_proxy_are_whole_or_absent_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(TRANSFERS), play=transfers.play))
    assert not broken(results, "proxied-transactions")
    often = sum((each.features for each in results), Counter[str]())
    assert min(often[each] for each in OF_TRANSFERS) >= SELDOM, often


def test_a_seed_of_the_proxy_replays_exactly() -> None:
    assert play(7, told=True).history == play(7, told=True).history


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_proxy_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None


@pytest.mark.deep
@pytest.mark.parametrize("mutation", transfer_mutations.MUTATIONS)
def test_every_mutation_of_the_proxys_transactions_is_caught(mutation: str) -> None:
    seeds = transfer_mutations.SEEDS[mutation]
    assert next(catches(mutation, seeds, play=transfers.play), None) is not None
