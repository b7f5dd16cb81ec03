"""Worlds of the client: it keeps every promise, seeds replay exactly, and all mutations are caught."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.faults import FAULTS
from tests.sim.mutations import MUTATIONS, SEEDS, changed
from tests.sim.run import Result, catches, play, play_many

QUICK = 4
SLOW = 400
"""The number of worlds in the deep test; `make sim` plays ten thousand."""
FEATURES = {
    "a batch comes cut",
    "a broker is available again",
    "a broker is not available",
    "a batch is handed out in parts",
    "a block is left while a goodbye is under way",
    "a block is left while another task waits for a batch",
    "a call of a producer is cancelled",
    "a callback commits for a member",
    "a callback pauses and resumes a reader",
    "a callback raises",
    "a callback sends",
    "a Produce is throttled",
    "a follower is read from",
    "a full Fetch is throttled",
    "a call from within is refused",
    "a client is left before its consumer",
    "a session is renewed",
    "no token can be fetched",
    "a group reads a pattern",
    "a listener sends",
    "a log handler sends",
    "an assignor calls the client",
    "create_topic is cancelled",
    "delete_topic is cancelled",
    "an interceptor sends",
    "a member asks for no batch after a call that was cancelled",
    "a leader appends and says that it leads no more",
    "a leader sends a reader to a replica",
    "a partition is out of range, and the others are read on",
    "a producer is left by an error",
    "a producer learns of a new topic before it sends there",
    "a producer's state expires",
    "a reader starts at the end, and a record of its time comes meanwhile",
    "a reader starts where a record is of its time",
    "a record times out, and is certainly not stored",
    "a request is written in pieces",
    "a send is cancelled after it was accepted",
    "a send is cancelled before it is accepted",
    "a record is sent to a topic that comes into being",
    "a task waits for a commit, and its user goes on",
    "a topic comes into being",
    "a topic is listed that is gone",
    "a topic is recreated while an acknowledgement is under way",
    "a topic is recreated, with topic ids",
    "a topic of a group's pattern is deleted",
    "a topic is recreated, without topic ids",
    "a value is changed once it is accepted",
    "acks=0",
    "acks=1",
    "an awaited record is appended directly",
    "an idle topic is forgotten",
    "an answer is UNKNOWN_PRODUCER_ID",
    "awaited records are collected",
    "committed is cancelled",
    "consumers fetch little ahead",
    "assigned of a listener calls the client",
    "lost of a listener calls the client",
    "on_commit calls the client",
    "revoked of a listener calls the client",
    "revoked raises where a block is left",
    "topics are found by a pattern",
    "what a callback raised is raised by the next call",
    *(f"fault: {kind}" for kind in FAULTS),
}
"""Events that occur at least twenty times in the ``SLOW`` worlds."""
RARE = {"a session ends under a request"}
"""Events that occur at least ten times: a client holds its requests in time, so only requests in flight meet this."""


def broken(results: list[Result]) -> list[str]:
    return [f"python -m tests.sim {each.seed}   # {each.cause}" for each in results if each.violation]


def test_every_promise_is_kept() -> None:
    results = [play(seed) for seed in range(QUICK)]
    assert not broken(results)
    assert min(each.records for each in results) >= 200


@pytest.mark.deep
def test_every_promise_is_kept_in_hundreds_of_worlds() -> None:
    results = list(play_many(range(SLOW)))
    assert not broken(results)
    often = sum((each.features for each in results), Counter())
    assert often.keys() >= FEATURES and min(often[each] for each in FEATURES) >= 20, often
    assert min(often[each] for each in RARE) >= 10, often


def test_a_seed_replays_exactly_wherever_it_is_played() -> None:
    here = play(2, told=True)
    assert here.history == play(2, told=True).history
    there = subprocess.run(
        [sys.executable, "-m", "tests.sim", "2"],
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    assert there.stdout.splitlines()[: len(here.history)] == here.history
    assert there.returncode == 0 and there.stdout.endswith("seed 2: every promise is kept\n")


def test_a_failing_seed_names_the_broken_promise_and_has_its_history() -> None:
    mutation = "a leader that steps down passes for one that never appended"
    found = next(catches(mutation, SEEDS[mutation]))
    told = play(found.seed, told=True, broken=mutation)
    assert found.cause == told.cause and told.cause.startswith("a record is in the log twice: p")
    place = told.cause.split()[9]
    story = "\n".join(told.history)
    for each in (f"seed {found.seed}", "nodes of Kafka", " ! ", "Produce", place):
        assert each in story


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_the_client_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation]), None) is not None


def test_a_mutation_of_a_removed_attribute_raises() -> None:
    with pytest.raises(LookupError, match="Result has no 'colour' any more"), changed((Result, "colour", lambda _: _)):
        pass
