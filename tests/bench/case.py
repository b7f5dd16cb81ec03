from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two ways to do the same work; both return how many records or messages they handled."""

    name: str
    peer: str
    ours: Callable[[], int]
    theirs: Callable[[], int]
