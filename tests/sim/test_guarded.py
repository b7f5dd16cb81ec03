"""Clients of a proxy with ACLs in the simulator have their rights, and no more."""

from collections import Counter

import pytest

from tests.sim.proxy.guarded import MUTATIONS, SEEDS, STOLEN, play
from tests.sim.run import catches, play_many

QUICK = 2
DEEP = 30
OFTEN = 3
FEATURES = {
    STOLEN,
    "a client gets GroupAuthorizationFailed",
    "a client gets TopicAuthorizationFailed",
    "a client gets TransactionalIdAuthorizationFailed",
    "a session is renewed",
    "a transaction is committed",
    "no token can be fetched",
}


def test_clients_get_what_the_acls_allow_and_no_more() -> None:
    broken = [each for each in map(play, range(QUICK)) if each.violation]
    assert not broken, [f"python -m tests.sim --guarded {each.seed}   # {each.cause}" for each in broken]


@pytest.mark.deep
def test_clients_get_what_the_acls_allow_in_dozens_of_worlds() -> None:
    results = list(play_many(range(DEEP), play=play))
    broken = [each for each in results if each.violation]
    assert not broken, [f"python -m tests.sim --guarded {each.seed}   # {each.cause}" for each in broken]
    often = sum((each.features for each in results), Counter[str]())
    assert min(often[each] for each in FEATURES) >= OFTEN, often


def test_a_seed_of_the_guarded_replays_exactly() -> None:
    assert play(2, told=True).history == play(2, told=True).history


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_security_is_caught(mutation: str) -> None:
    assert next(catches(mutation, SEEDS[mutation], play=play), None) is not None
