"""Worlds of brokerlite whose clients share partitions: each record is accepted once, and all mutations are caught."""

from collections import Counter

import pytest

from tests.sim.broker.share_mutations import MUTATIONS, OF_BROKER_SHARES
from tests.sim.broker.shares import play
from tests.sim.run import Result, catches, play_many

SLOW = 20
FEATURES = {
    "a clean stop",
    "a kill within an operation of the disk",
    "a lock expires",
    "a lock is renewed",
    "a member acknowledges the record of another one",
    "a record is archived after its last delivery",
    "a record is forgotten",
    "a renewal comes too late",
    "a transaction is aborted",
    "accepted: failed",
    "accepted: unknown",
    "fault: kill a member",
    "fault: power",
    "fault: swallow",
    "fault: the disk fails",
    "fault: the disk is full",
    "released: stored",
}
"""Events that occur in the ``SLOW`` worlds."""


def broken(results: list[Result]) -> list[str]:
    return [f"python -m tests.sim --broker-shares {each.seed}   # {each.cause}" for each in results if each.violation]


def test_share_groups_of_the_broker_keep_every_promise() -> None:
    assert not broken([play(0)])


def test_a_seed_of_share_groups_of_the_broker_replays_exactly() -> None:
    assert play(3, told=True).history == play(3, told=True).history


@pytest.mark.deep
def test_share_groups_of_the_broker_keep_every_promise_in_many_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    assert not broken(results)
    often = sum((each.features for each in results), Counter())
    assert not {each for each in FEATURES if not often[each]}


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_share_groups_is_caught(mutation: str) -> None:
    assert next(catches(mutation, OF_BROKER_SHARES.seeds[mutation], play=play), None) is not None
