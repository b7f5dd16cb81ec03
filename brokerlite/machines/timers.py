"""Named timers that can be postponed cheaply.

Postponing a timer only updates a dictionary; the heap is updated when the old deadline has passed. This matters because
members postpone the end of their session with every heartbeat and every commit.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import NamedTuple

_SPARE = 100
"""Stale entries that the heap may have beside two for each timer before it is cleaned up."""

Action = Callable[[float], None]
"""Called with the time when a timer expires."""


class _Timer(NamedTuple):
    deadline: float
    action: Action
    queued: float
    """The deadline of its entry in the heap."""


class Timers:
    """Keeps the timers of one machine; times are seconds."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._count = itertools.count()

    def set(self, name: Hashable, deadline: float, action: Action) -> None:
        """Call ``action`` at ``deadline``; this replaces the timer with the same ``name``."""
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
        """Drop stale entries, which would otherwise stay in the heap until their deadline."""
        timers = self._timers
        self._heap = [entry for entry in self._heap if entry[2] in timers and timers[entry[2]].queued == entry[0]]
        heapq.heapify(self._heap)

    def expire(self, now: float) -> None:
        """Call the actions that are due, in the order of their deadlines, including timers that these actions set.

        Each name is called once, however far the clock has advanced: a timer that is set again and due at once is left
        for the next call, so that this loop ends.
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
