"""Share consumers in the simulator: each record is accepted once, and no acknowledgement is lost in silence."""

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.sim.run import Result, catches, play_many
from tests.sim.share_mutations import MUTATIONS, SEEDS
from tests.sim.shares import FAULTS, play

QUICK = 5
SLOW = 400
FEATURES = {
    "a lock expires",
    "a member leaves because its user is not active",
    "a lock is gone with its leader",
    "a lock is renewed",
    "a record is forgotten",
    "a renewal comes too late",
    "a share session ends with its connection",
    "accepted: failed",
    "accepted: unknown",
    "an acknowledgement is refused",
    "an acknowledgement is refused for now",
    "rejected: failed",
    "released: failed",
    *(f"fault: {kind}" for kind in FAULTS),
}
"""Events that occur at least five times in the ``SLOW`` worlds."""


def broken(results: Iterable[Result]) -> list[str]:
    return [f"python -m tests.sim --shares {each.seed}   # {each.cause}" for each in results if each.violation]


def test_every_record_is_accepted_and_no_acknowledgement_is_lost() -> None:
    assert not broken(play(seed) for seed in range(QUICK))


@pytest.mark.deep
def test_every_record_is_accepted_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    assert not broken(results)
    often = sum((each.features for each in results), Counter[str]())
    assert min(often[each] for each in FEATURES) >= 5, {each: often[each] for each in FEATURES}


def test_a_seed_of_share_consumers_replays_exactly() -> None:
    assert play(7, told=True).history == play(7, told=True).history


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_share_consumer_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None
