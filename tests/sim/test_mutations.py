"""The mutations of all worlds, without playing them."""

import pytest

from tests.sim.__main__ import WORLDS
from tests.sim.mutations import OF_CLIENT

ALL = {"client": OF_CLIENT} | {kind: world.mutations for kind, world in WORLDS.items()}


@pytest.mark.parametrize("kind", ALL)
def test_every_mutation_changes_code_that_exists(kind: str) -> None:
    assert ALL[kind].known
    for mutation in ALL[kind].known.values():
        with mutation():
            pass
