"""Cuts bytes into pieces that arrive one after the other, as on a network; what is cut off never arrives."""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from random import Random

from tests.sim.clock import Clock

MOST = 3
"""The most cuts in one frame."""
PAUSES = (0.0, 0.001, 0.05)
"""Most seconds between two pieces."""


class Pieces:
    """Delivers calls in the order of each sender, with pauses between them.

    Args:
        chance: draws the cuts and the pauses.
    """

    def __init__(self, clock: Clock, chance: Random) -> None:
        self._clock, self._chance = clock, chance
        self._waiting: dict[Hashable, deque[Callable[[], object]]] = {}

    def cut(self, data: bytes) -> list[bytes]:
        """``data`` in up to four pieces, none of them empty; the first has at least 8 bytes, if there are as many."""
        count = self._chance.randint(0, MOST) if len(data) > 9 else 0
        ends = [*sorted({self._chance.randint(8, len(data) - 1) for _ in range(count)}), len(data)]
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def waits(self, sender: Hashable) -> bool:
        """Whether pieces of a sender have not arrived yet."""
        return sender in self._waiting

    def deliver(self, sender: Hashable, calls: list[Callable[[], object]]) -> None:
        """Make the calls after those of the same sender that still wait, the first at once if none does."""
        if sender in self._waiting:
            self._waiting[sender].extend(calls)
            return
        self._waiting[sender] = deque(calls)
        self._next(sender, self._waiting[sender])

    def drop(self, sender: Hashable) -> None:
        """Drop what has not arrived."""
        self._waiting.pop(sender, None)

    def drop_all(self) -> None:
        """Drop what has not arrived of all senders."""
        self._waiting.clear()

    def _next(self, sender: Hashable, waiting: deque[Callable[[], object]]) -> None:
        if self._waiting.get(sender) is not waiting:
            return  # they were dropped
        if not waiting:
            del self._waiting[sender]
            return
        call = waiting.popleft()
        if waiting:
            self._clock.later(
                self._chance.uniform(0.0, self._chance.choice(PAUSES)), partial(self._next, sender, waiting)
            )
        else:
            del self._waiting[sender]
        call()
