"""Bytes that connections may have in use together, in the order in which they asked."""

from collections import deque
from dataclasses import dataclass, field

import trio


@dataclass(eq=False)
class _Turn:
    size: int
    come: trio.Event = field(default_factory=trio.Event)


class Memory:
    """What is taken is given as long as less than ``limit`` is in use, so that only the last may exceed it.

    Source: SimpleMemoryPool.java (not strict).
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._turns: deque[_Turn] = deque()
        self.used = 0

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for some."""
        return bool(self._turns)

    async def take(self, size: int) -> None:
        """Wait for ``size`` bytes; if this is cancelled, nothing is taken."""
        turn = _Turn(size)
        self._turns.append(turn)
        self._next()
        try:
            await turn.come.wait()
        except trio.Cancelled:
            if turn.come.is_set():
                self.give(size)
            else:
                self._turns.remove(turn)
            raise

    def give(self, size: int) -> None:
        self.used -= size
        self._next()

    def _next(self) -> None:
        while self._turns and self.used < self._limit:
            turn = self._turns.popleft()
            self.used += turn.size
            turn.come.set()
