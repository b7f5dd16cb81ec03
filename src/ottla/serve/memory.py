"""Limits the memory that large incomplete frames may use together.

Rules:
- Memory is counted as bytes arrive, not when a length announces them.
- A frame may grow as long as the same amount remains free for others: even if many large frames make no progress, there
  is memory for small ones.
- One frame at a time, the first that had to wait, is exempt, and may grow to its end: one frame can always
  make progress. So all frames together use at most ``limit`` plus one frame.
- While others wait, a frame keeps its memory only as long as it goes on: a part of it has to arrive now and then, not
  just a byte (`FrameProgress`). So no frame keeps its memory for longer than `PARTS` times that.
- With a budget, frames are counted together with other memory, and the budget says which may grow.
"""

from collections.abc import Callable, Hashable
from typing import Protocol


class Budget(Protocol):
    """Bounds the memory of a listener's connections together with other memory of the process.

    A holder is an `AcceptedConnection`, or another object that has shared the listener's memory of frames.
    """

    def count(self, holder: Hashable, change: int) -> None:
        """Count bytes of memory: positive when they are taken, negative when they are free again."""

    def allows(self, holder: Hashable, size: int) -> bool:
        """Whether a large frame may take ``size`` more bytes."""


PARTS = 10
"""In how many parts a frame may arrive, each within `ListenerLimits.write`."""


class FrameProgress:
    """Tells for how long a large frame has not gone on."""

    def __init__(self) -> None:
        self._least, self._since = 0, 0.0
        """The bytes with which the frame has gone on, and the time of the last bytes that were enough."""

    def begin(self) -> None:
        """Begin again: another frame comes, or this one may not be read."""
        self._least = 0

    def stalled(self, have: int, size: int, now: float) -> float:
        """The seconds since the last part of a frame of ``size`` bytes arrived; ``have``: bytes that have arrived."""
        if have >= self._least:
            self._least, self._since = have + max(size // PARTS, 1), now
        return now - self._since


class Memory:
    """Tracks the memory of each holder, and the requests that wait.

    Attributes:
        used: bytes of all holders except the exempt one.
    """

    def __init__(self, limit: int, budget: Budget | None = None) -> None:
        self._limit, self._budget = limit, budget
        self._sizes: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, tuple[int, Callable[[], object]]] = {}
        """By holder: the total bytes that it wants, and the function to call when it gets them."""
        self._exempt: Hashable | None = None
        self.used = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a holder waits for memory."""
        return bool(self._waiting)

    def has(self, holder: Hashable) -> int:
        return self._sizes.get(holder, 0)

    def take(self, holder: Hashable, size: int, come: Callable[[], object]) -> None:
        """Give ``holder`` a total of ``size`` bytes: now, or later, and then call ``come``."""
        if self._may_have(holder, size):
            self._set(holder, size)
        else:
            self._waiting[holder] = size, come
            self.give_out()

    def give(self, holder: Hashable) -> None:
        """Take all memory from ``holder``, and end its wait."""
        waited = self._waiting.pop(holder, None)
        if (size := self._sizes.pop(holder, None)) is None and waited is None:
            return
        if holder == self._exempt:
            self._exempt = None
        else:
            self.used -= size or 0
        if self._budget is not None and size:
            self._budget.count(holder, -size)
        self.give_out()

    def _may_have(self, holder: Hashable, size: int) -> bool:
        if holder == self._exempt:
            return True
        if self._budget is not None:
            return self._budget.allows(holder, size - self.has(holder))
        return self.used - self.has(holder) + 2 * size <= self._limit

    def _set(self, holder: Hashable, size: int) -> None:
        if self._budget is not None:
            self._budget.count(holder, size - self.has(holder))
        if holder != self._exempt:
            self.used += size - self.has(holder)
        self._sizes[holder] = size

    def give_out(self) -> None:
        """Give memory to the holders that wait, as far as there is some; to be called when the budget has more."""
        for holder, (size, come) in list(self._waiting.items()):
            if self._exempt is None and not self._may_have(holder, size):
                self.used -= self.has(holder)
                self._exempt = holder
            if self._may_have(holder, size):
                del self._waiting[holder]
                self._set(holder, size)
                come()
