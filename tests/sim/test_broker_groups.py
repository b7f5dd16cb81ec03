"""Worlds of brokerlite whose clients use both group protocols: groups keep every promise, all mutations are caught."""

from collections import Counter

import pytest

from tests.sim.broker.group_mutations import MUTATIONS, OF_BROKER_GROUPS
from tests.sim.broker.world import play_protocols
from tests.sim.run import Result, catches, play_many

SLOW = 20
FEATURES = {
    "a member is auto",
    "a member is classic",
    "a member is consumer",
    "a heartbeat names the epoch before",
}
"""Events that occur at least five times in the ``SLOW`` worlds."""


def broken(results: list[Result]) -> list[str]:
    return [f"python -m tests.sim --broker-groups {each.seed}   # {each.cause}" for each in results if each.violation]


def test_groups_of_both_protocols_keep_every_promise() -> None:
    assert not broken([play_protocols(0)])


@pytest.mark.deep
def test_groups_of_both_protocols_keep_every_promise_in_many_worlds() -> None:
    results = list(play_many(range(SLOW), play=play_protocols))
    assert not broken(results)
    often = sum((each.features for each in results), Counter())
    assert min(often[each] for each in FEATURES) >= 5, {each: often[each] for each in FEATURES}


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_coordinator_is_caught(mutation: str) -> None:
    assert next(catches(mutation, OF_BROKER_GROUPS.seeds[mutation], play=play_protocols), None) is not None
