"""How many examples Hypothesis tries for a test: a quarter in `make check`, and all of them elsewhere."""

from hypothesis import settings

FULL = 100
"""Hypothesis' own number, for tests that name none."""
QUICK = 25
"""The same in the profile ``quick``, with which `make check` runs; `make deep` runs each test with all examples."""


def examples(count: int) -> settings:
    """The settings of a test that needs more examples than others: ``count``, or as small a part as the profile has."""
    return settings(max_examples=count * settings().max_examples // FULL)
