"""Worlds of both group protocols: groups keep every promise, members mix and migrate, all mutations are caught."""

from collections import Counter

import pytest

from tests.sim.group_mutations import MUTATIONS, OF_GROUP_TRANSFORMS, OF_GROUPS, TRANSFORM_MUTATIONS
from tests.sim.run import Result, catches, play_many, play_protocols
from tests.sim.transforms import play_modern

QUICK = 2
SLOW = 200
FEATURES = {
    "a classic group is upgraded",
    "a group is downgraded",
    "a broker is upgraded",
    "a late commit sets an offset back",
    "a member is removed while its user handles a batch",
    "a member is auto",
    "a member is classic",
    "a member is consumer",
    "a member is consumer re2",
    "a listener gives up partitions after more than a session",
    "an instance id is not released",
    "fault: turn a group classic",
}
"""Events that occur at least five times in the ``SLOW`` worlds."""


def broken(results: list[Result]) -> list[str]:
    return [f"python -m tests.sim {each.seed} --groups   # {each.cause}" for each in results if each.violation]


def test_every_promise_is_kept() -> None:
    assert not broken([play_protocols(seed) for seed in range(QUICK)])


@pytest.mark.deep
def test_every_promise_is_kept_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW), play=play_protocols))
    assert not broken(results)
    often = sum((each.features for each in results), Counter())
    assert min(often[each] for each in FEATURES) >= 5, {each: often[each] for each in FEATURES}


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_is_caught(mutation: str) -> None:
    assert next(catches(mutation, OF_GROUPS.seeds[mutation], play=play_protocols), None) is not None


def test_every_output_exists_once_in_a_group_of_the_new_protocol() -> None:
    assert [each.cause for each in (play_modern(seed) for seed in range(QUICK)) if each.violation] == []


@pytest.mark.deep
def test_every_output_exists_once_in_hundreds_of_worlds() -> None:
    assert [(each.seed, each.cause) for each in play_many(range(SLOW), play=play_modern) if each.violation] == []


@pytest.mark.deep
@pytest.mark.parametrize("mutation", TRANSFORM_MUTATIONS)
def test_every_mutation_of_transforms_is_caught(mutation: str) -> None:
    seeds = OF_GROUP_TRANSFORMS.seeds[mutation]
    assert next(catches(mutation, seeds, play=play_modern), None) is not None
