import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 0.05
"""The minimum duration of one way in one round."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Several ways to do the same work.

    Attributes:
        name: the work, and its object.
        unit: the unit of the functions' results: "records" or "messages".
        ours: ottla's ways; each gets a column, with its ratio to every way.
        theirs: the ways of other libraries.
    """

    name: str
    unit: str
    ours: dict[str, Callable[[], int]]
    theirs: dict[str, Callable[[], int]]


def per_second(work: Callable[[], int]) -> float:
    """The work that one way does in a second of processor time."""
    handled, start = 0, time.process_time()
    while (taken := time.process_time() - start) < SECONDS:
        handled += work()
    return handled / taken
