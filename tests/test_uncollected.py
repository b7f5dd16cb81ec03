"""Garbage collection is off during an import, and on afterwards as before."""

import gc
from collections.abc import Iterator

import pytest

from ottla.uncollected import uncollected


@pytest.fixture(autouse=True)
def as_in_any_program() -> Iterator[None]:
    """The workers of these tests freeze objects."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.enable()
    if frozen:
        gc.freeze()


def test_nothing_is_collected_in_the_block_and_what_it_made_is_old_afterwards() -> None:
    with uncollected():
        assert not gc.isenabled()
        made = [[each] for each in range(10)]
    assert gc.isenabled() and gc.get_freeze_count() == 0
    old = gc.get_objects(generation=2)
    assert any(each is made for each in old)


def test_collection_that_the_program_has_disabled_stays_so() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


def test_an_import_that_fails_enables_it_too() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


def test_objects_that_the_program_has_frozen_stay_frozen() -> None:
    gc.freeze()
    with uncollected():
        pass
    assert gc.get_freeze_count() > 0
