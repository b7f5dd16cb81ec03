"""Answers each name of a request once.

Apache Kafka answers some names as often as a request repeats them. Then a small request that repeats one name gets an
unbounded response, and other clients would wait while this broker builds it.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
P = TypeVar("P", bound=Hashable)


def by_name(named: Iterable[tuple[N, Iterable[P]]]) -> dict[N, dict[P, None]]:
    """Map each name to its parts (partitions of a topic, topics of a group), each once, in the order of the request."""
    merged: dict[N, dict[P, None]] = {}
    for name, parts in named:
        merged.setdefault(name, {}).update(dict.fromkeys(parts))
    return merged
