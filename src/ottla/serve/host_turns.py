"""Lets a few tasks work at a time, and the hosts for which they work take turns.

    async with turns.turn("192.0.2.1"):
        ...

Rules:
- Tasks of one host go in the order in which they came. Between hosts the turn goes round, so that a host with a
  thousand waiting tasks delays another one by one task only.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class HostTurns:
    """Gives turns, at most ``at_once`` at a time."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: dict[str, deque[trio.Event]] = {}
        """Host -> its tasks; the first host has the next turn."""

    @property
    def waiting(self) -> int:
        """The number of tasks that wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn, and give it back in the end."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(host)
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self, host: str) -> None:
        called = trio.Event()
        self._waiting.setdefault(host, deque()).append(called)
        try:
            await called.wait()
        except trio.Cancelled:
            if called.is_set():
                self._give_back()
            else:
                self._waiting[host].remove(called)
                if not self._waiting[host]:
                    del self._waiting[host]
            raise

    def _give_back(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        host = next(iter(self._waiting))
        tasks = self._waiting.pop(host)
        tasks.popleft().set()
        if tasks:
            self._waiting[host] = tasks
