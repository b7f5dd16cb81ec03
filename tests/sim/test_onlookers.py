"""Readers in the simulator get the records of each committed transaction once and in order, and no other records."""

from collections import Counter

import pytest

from tests.sim.onlookers import MUTATIONS, NAMED, SEEDS, play
from tests.sim.run import catches, play_many

QUICK = 4
SLOW = 150


def test_readers_get_committed_records_and_name_the_producer_they_wait_for() -> None:
    broken = [each for each in map(play, range(QUICK)) if each.violation]
    assert not broken, [f"python -m tests.sim --onlookers {each.seed}   # {each.cause}" for each in broken]


@pytest.mark.deep
def test_readers_get_committed_records_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    broken = [each for each in results if each.violation]
    assert not broken, [f"python -m tests.sim --onlookers {each.seed}   # {each.cause}" for each in broken]
    assert sum((each.features for each in results), Counter())[NAMED] > 24


def test_a_seed_of_the_onlookers_replays_exactly() -> None:
    assert play(3, told=True).history == play(3, told=True).history


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_readers_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None
