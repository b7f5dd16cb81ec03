"""The topics whose metadata the proxy requests next: one of each asker in turn.

Rule: a client may name any number of topics, also topics that do not exist. So the names of an asker are bounded, and
the names of others do not wait behind all of them. A name beyond the bound is dropped: its asker requests it again.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable

OWN = None
"""The asker of names without a bound, of which the proxy has few."""


class WantedTopics:
    """Names of topics, by asker.

    Args:
        most: the most names of an asker other than `OWN`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: OrderedDict[Hashable, OrderedDict[str, None]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, names: Iterable[str], asker: Hashable = OWN) -> None:
        """Add names."""
        for name in names:
            known = self._of.setdefault(asker, OrderedDict())
            if asker is OWN or len(known) < self._most:
                known[name] = None

    def take(self, most: int) -> list[str]:
        """Remove and return up to ``most`` names, the oldest of each asker first."""
        taken: dict[str, None] = {}
        while self._of and len(taken) < most:
            asker, names = next(iter(self._of.items()))
            taken[names.popitem(last=False)[0]] = None
            if names:
                self._of.move_to_end(asker)
            else:
                del self._of[asker]
        return list(taken)
