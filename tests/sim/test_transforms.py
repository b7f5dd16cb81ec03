"""Consume, transform, produce in the simulator: under all faults, every output of a record exists exactly once."""

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.sim.run import Result, catches, play_many
from tests.sim.transform_mutations import MUTATIONS, SEEDS
from tests.sim.transforms import play

QUICK = 3
SLOW = 300
FEATURES = {
    "a block is cancelled",
    "a call for batches is cancelled",
    "a commit is in flight as a transaction begins",
    "a commit is refused beside a transaction",
    "a handler raises",
    "a handler takes too long",
    "a marker is late",
    "a member does without a transform",
    "a member is fenced",
    "a producer is fenced",
    "a seek comes within a transaction",
    "a transaction beside another is committed",
    "a transaction fails",
    "a transaction is about several partitions",
    "a transaction of a workman is aborted",
    "a transaction is aborted, as partitions are lost",
    "a transaction is refused a partition that another one holds",
    "a transaction of a workman is committed",
    "a transaction of a workman is unknown",
    "a transaction takes too long",
    "a workman seeks back within a transaction",
    "an end goes unanswered",
    "an end is cancelled",
    "an end is refused",
    "an outcome is unknown",
    "another transaction holds the batches of a transform",
    "batches come again by themselves",
    "batches do not reach their caller",
    "fault: a member joins",
    "fault: a member leaves",
    "fault: a rival comes",
    "fault: crash",
    "fault: cut",
    "fault: cut off",
    "fault: freeze",
    "fault: kill a member",
    "fault: move",
    "fault: move coordinators",
    "fault: outage",
    "fault: refuse",
    "fault: refuse offsets",
    "fault: silence",
    "fault: sleep",
    "fault: slow",
    "fault: swallow",
    "fault: upgrade",
    "fault: usurp",
}


def broken(results: Iterable[Result]) -> list[str]:
    return [f"python -m tests.sim --transforms {each.seed}   # {each.cause}" for each in results if each.violation]


def test_every_output_exists_once() -> None:
    assert not broken(play(seed) for seed in range(QUICK))


@pytest.mark.deep
def test_every_output_exists_once_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW), play=play))
    assert not broken(results)
    often = sum((each.features for each in results), Counter[str]())
    assert min(often[each] for each in FEATURES) >= 5, often


def test_a_seed_of_the_workmen_replays_exactly() -> None:
    assert play(7, told=True).history == play(7, told=True).history


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_transform_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None
