"""Calls that are due at a time: a heap ordered by time, then by creation."""

import heapq
import itertools
from collections.abc import Callable

_SMALL = 64
"""Up to this many cancelled entries stay in the heap."""


class Timer:
    """A call that is due at `when`, unless cancelled."""

    __slots__ = ("_timers", "call", "when")

    def __init__(self, timers: "Timers", when: float, call: Callable[[float], None]) -> None:
        self._timers = timers
        self.when = when
        self.call: Callable[[float], None] | None = call

    def take(self) -> Callable[[float], None] | None:
        """Take the call, to make it; ``None`` if the timer was cancelled."""
        call, self.call = self.call, None
        return call

    def cancel(self) -> None:
        if self.call is not None:
            self.call = None
            self._timers.cancelled()


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._dead = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, call: Callable[[float], None]) -> Timer:
        timer = Timer(self, when, call)
        heapq.heappush(self._heap, (when, next(self._numbers), timer))
        return timer

    def due(self, now: float) -> Callable[[float], None] | None:
        """Take out the next call that is due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            if (call := heapq.heappop(heap)[2].take()) is not None:
                return call
            self._dead -= 1
        return None

    @property
    def next(self) -> float | None:
        """When the next call is due; ``None`` if there is none."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heapq.heappop(heap)
            self._dead -= 1
        return heap[0][0] if heap else None

    def cancelled(self) -> None:
        """Count a cancelled entry; once most are cancelled, rebuild the heap without them."""
        self._dead += 1
        if self._dead > _SMALL and self._dead > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def clear(self) -> None:
        self._heap.clear()
        self._dead = 0
