"""Bytes that the large frames under way may take up together.

Rules:
- Bytes are taken as they come, not as they are announced.
- A frame may grow as long as there is as much again left for others: however many large ones do not go on, there is
  room for small ones.
- One frame at a time, the first of those that had to wait, does not count, and may grow to its end: there is always one
  that goes on. All of them together take up ``limit`` and one frame at most.
"""

from collections.abc import Callable, Hashable


class Memory:
    """What each holder has, and what it waits for.

    Attributes:
        used: bytes that all have, but for the one that does not count.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, tuple[int, Callable[[], object]]] = {}
        """By holder: bytes that it is to have in all, and what to call then."""
        self._exempt: Hashable | None = None
        self.used = 0

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for some."""
        return bool(self._waiting)

    def has(self, holder: Hashable) -> int:
        return self._sizes.get(holder, 0)

    def take(self, holder: Hashable, size: int, come: Callable[[], object]) -> None:
        """``holder`` is to have ``size`` bytes in all: now, or later, when ``come`` is called."""
        if self._may_have(holder, size):
            self._set(holder, size)
        else:
            self._waiting[holder] = size, come
            self._give_out()

    def give(self, holder: Hashable) -> None:
        """``holder`` has nothing any more, and waits for nothing."""
        waited = self._waiting.pop(holder, None)
        if (size := self._sizes.pop(holder, None)) is None and waited is None:
            return
        if holder == self._exempt:
            self._exempt = None
        else:
            self.used -= size or 0
        self._give_out()

    def _may_have(self, holder: Hashable, size: int) -> bool:
        return holder == self._exempt or self.used - self.has(holder) + 2 * size <= self._limit

    def _set(self, holder: Hashable, size: int) -> None:
        if holder != self._exempt:
            self.used += size - self.has(holder)
        self._sizes[holder] = size

    def _give_out(self) -> None:
        for holder, (size, come) in list(self._waiting.items()):
            if self._exempt is None and not self._may_have(holder, size):
                self.used -= self.has(holder)
                self._exempt = holder
            if self._may_have(holder, size):
                del self._waiting[holder]
                self._set(holder, size)
                come()
