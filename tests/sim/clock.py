"""Virtual time in seconds: calls run in the order of their times, and calls for the same time in the order of `at`."""

import heapq
import itertools
from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Call at ``when``, or at the current time if ``when`` is past."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._numbers), call))

    def later(self, delay: float, call: Callable[[], object]) -> None:
        self.at(self.now + delay, call)

    @property
    def due(self) -> float | None:
        """When the next call runs; ``None``: no call is left."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Advance the time to the next call and run it; ``False`` if no call is left."""
        if not self._heap:
            return False
        self.now, _, call = heapq.heappop(self._heap)
        call()
        return True
