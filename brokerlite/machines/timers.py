"""Deadlines by name: what is to happen when, unless it is put off or called off before.

Putting one off costs no more than a look into a dictionary: the heap is told only when the old deadline has passed,
because members put their session's end off with every heartbeat and every commit.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import NamedTuple

_SPARE = 100
"""Cancelled entries that the heap may have beside two for each timer."""

Action = Callable[[float], None]
"""Is told the time."""


class _Timer(NamedTuple):
    deadline: float
    action: Action
    queued: float
    """The deadline under which the heap has it."""


class Timers:
    """All deadlines of one machine; times are seconds."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._count = itertools.count()

    def set(self, name: Hashable, deadline: float, action: Action) -> None:
        """Have ``action`` called at ``deadline``, in place of what was set under ``name``."""
        known = self._timers.get(name)
        if known is not None and known.queued <= deadline:
            self._timers[name] = _Timer(deadline, action, known.queued)
        else:
            self._queue(name, deadline, action)

    def is_set(self, name: Hashable) -> bool:
        return name in self._timers

    def cancel(self, name: Hashable) -> None:
        if self._timers.pop(name, None) is not None and len(self._heap) > _SPARE + 2 * len(self._timers):
            self._sweep()

    def _sweep(self) -> None:
        """Drop what was cancelled and lies far ahead: it would stay until its time."""
        timers = self._timers
        self._heap = [entry for entry in self._heap if entry[2] in timers and timers[entry[2]].queued == entry[0]]
        heapq.heapify(self._heap)

    def expire(self, now: float) -> None:
        """Call what is due, in the order of the deadlines, and what this brings about.

        Under each name once, however far the clock has gone: what is set again, and due at once, is left for the next
        call, so that nothing is called for ever.
        """
        if not self._heap or self._heap[0][0] > now:  # no deadline is earlier than its entry
            return
        called: set[Hashable] = set()
        while (deadline := self.deadline) is not None and deadline <= now and (name := self._heap[0][2]) not in called:
            called.add(name)
            heapq.heappop(self._heap)
            self._timers.pop(name).action(now)

    @property
    def deadline(self) -> float | None:
        """When to call `expire` next."""
        while self._heap:
            queued, _, name = self._heap[0]
            timer = self._timers.get(name)
            if timer is not None and timer.deadline == queued:
                return queued
            heapq.heappop(self._heap)
            if timer is not None and timer.queued == queued:
                self._queue(name, timer.deadline, timer.action)
        return None

    def _queue(self, name: Hashable, deadline: float, action: Action) -> None:
        self._timers[name] = _Timer(deadline, action, deadline)
        heapq.heappush(self._heap, (deadline, next(self._count), name))
