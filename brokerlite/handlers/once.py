"""Answers each name of a request once.

Apache Kafka answers some names as often as a request has them. Then a small request that repeats one name gets an
answer without bound, which this broker would build while all other clients wait.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
P = TypeVar("P", bound=Hashable)


def by_name(named: Iterable[tuple[N, Iterable[P]]]) -> dict[N, dict[P, None]]:
    """Name -> its parts (partitions of a topic, topics of a group), each once and in the order of the request."""
    merged: dict[N, dict[P, None]] = {}
    for name, parts in named:
        merged.setdefault(name, {}).update(dict.fromkeys(parts))
    return merged
