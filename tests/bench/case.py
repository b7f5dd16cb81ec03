from collections.abc import Callable
from dataclasses import dataclass


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
