from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """Several ways to do the same work.

    Attributes:
        name: what is done, to what.
        unit: what the functions return the number of: "records" or "messages".
        ours: ways of ottla's; each gets a column, with its ratio to every way.
        theirs: ways of others.
    """

    name: str
    unit: str
    ours: dict[str, Callable[[], int]]
    theirs: dict[str, Callable[[], int]]
