"""Worlds of brokerlite on a model disk: it keeps every promise, seeds replay exactly, and all mutations are caught."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.broker.faults import FAULTS
from tests.sim.broker.mutations import MUTATIONS, SEEDS
from tests.sim.broker.world import play
from tests.sim.run import Result, catches, play_many

QUICK = 2
SLOW = 150
FEATURES = {
    "a chore that the disk refuses",
    "a clean stop",
    "a job in the background is done",
    "a kill within an operation of the disk",
    "a producer gives up a request",
    "a producer is fenced",
    "a producer lets its transaction time out",
    "a reader is out of range",
    "a request to delete records is answered",
    "a request that holds its connection",
    "a start is cut short",
    "a start that the disk refuses",
    "a topic grows",
    "a topic is deleted",
    "a topic is made",
    "a transaction is aborted",
    "a transaction is committed",
    "a transaction is unknown",
    "a transactional producer dies",
    "a transactional producer is usurped",
    "records that compaction has removed",
    "records that were deleted by request",
    "records that were deleted by size",
    "records that were deleted by time",
    "records that were deleted from a compacted topic",
    "the power is cut",
    *(f"fault: {kind}" for kind in FAULTS),
}
"""Events that occur at least six times in the ``SLOW`` worlds."""
RARE = {"a sync that the disk refuses"}
"""Events that occur at least once in the ``SLOW`` worlds."""


def broken(results: list[Result]) -> list[str]:
    return [f"python -m tests.sim --broker {each.seed}   # {each.cause}" for each in results if each.violation]


def test_the_broker_keeps_every_promise() -> None:
    results = [play(seed) for seed in range(QUICK)]
    assert not broken(results)
    assert min(each.records for each in results) >= 60


@pytest.mark.deep
def test_the_broker_keeps_every_promise_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    assert not broken(results)
    often = sum((each.features for each in results), Counter())
    assert often.keys() >= FEATURES and min(often[each] for each in FEATURES) >= 6, often
    assert min(often[each] for each in RARE) >= 1, often


def test_a_seed_of_the_broker_replays_exactly_wherever_it_is_played() -> None:
    here = play(7, told=True)
    assert here.history == play(7, told=True).history
    there = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--broker", "7"],
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    assert there.stdout.splitlines()[: len(here.history)] == here.history
    assert there.returncode == 0 and there.stdout.endswith("seed 7: every promise is kept\n")


def test_a_replay_of_a_broken_broker_shows_the_same_violation() -> None:
    mutation = "aborted transactions are not named"
    found = next(catches(mutation, SEEDS[mutation], play=play))
    told = play(found.seed, told=True, broken=mutation)
    assert found.cause == told.cause and told.cause
    assert "EndTxn" in "\n".join(told.history)


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_broker_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None
