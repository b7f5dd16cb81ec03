"""Calls that are due at a time: a heap whose order is that of the times, then of their making."""

import heapq
import itertools
from collections.abc import Callable


class Timer:
    """A call that is due at `when`, unless cancelled."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[float], None]) -> None:
        self.when = when
        self.call: Callable[[float], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def add(self, when: float, call: Callable[[float], None]) -> Timer:
        timer = Timer(when, call)
        heapq.heappush(self._heap, (when, next(self._numbers), timer))
        return timer

    def due(self, now: float) -> Callable[[float], None] | None:
        """Take out the next call that is due."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.call is not None:
                return timer.call
        return None

    @property
    def next(self) -> float | None:
        """When the next call is due; ``None`` where there is none."""
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()
