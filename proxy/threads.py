"""What would hold the event loop for long goes to a thread, and the machine goes on when its result comes back.

Rules:
- One step of the machine (the turn of one of its parts in a poll, or all events up to the next poll) opens some `STEP`
  bytes of records, or builds batches of as many, and no more than `BATCHES`. What is more waits for a later step; one
  batch that alone is more is opened, and built, in a thread.
- What is not compressed counts for little: to hand it to a thread, and to another core's caches, costs more than to
  do it here.
- What runs in a thread changes nothing that the machine has, and raises nothing.
"""

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.codec.compression import Compression
from ottla.proxy.events import Work

if TYPE_CHECKING:
    from ottla.proxy.events import Action

T = TypeVar("T")

STEP = 2 * 2**20
"""Bytes of records, as they are counted in memory: with gzip, the slowest, some 20 ms."""
BATCHES = 256
"""Batches that a step opens or builds at the most: some 10 ms, for what there is to do for each, however small."""
PLAIN = 16
"""So many bytes that are not compressed count as one: 2 ms for each MB of records at the most."""


class Threads:
    """What a step may still do by itself, and what is under way in threads."""

    def __init__(self, actions: "list[Action]") -> None:
        self._actions = actions
        self._left = STEP
        self._numbers = count(1)
        self._then: dict[int, Callable[[Any, float], None]] = {}

    @property
    def idle(self) -> bool:
        return not self._then

    def begin_step(self) -> None:
        self._left = STEP

    def is_long(self, size: int, compression: int) -> bool:
        """A whole step does not build so many bytes."""
        return _work(size, compression) > STEP

    def fits(self, size: int, compression: int) -> bool:
        """The step may still open so many bytes."""
        return _work(size, compression) <= self._left

    @property
    def step_is_full(self) -> bool:
        """The step has opened or built what it may."""
        return self._left <= 0

    def spend(self, size: int, compression: int) -> None:
        """The step has opened or built so many bytes."""
        self._left -= _work(size, compression)

    def spend_a_look(self) -> None:
        """The step has judged a record set, and opened nothing; that counts as the smallest batch."""
        self.spend(0, Compression.NONE)

    def run(self, call: Callable[[], T], then: Callable[[T, float], None]) -> None:
        """Have ``call()`` done in a thread, then call ``then`` with its result."""
        number = next(self._numbers)
        self._then[number] = then
        self._actions.append(Work(number, call))

    def worked(self, number: int, result: Any, now: float) -> None:
        """A thread is done."""
        self._then.pop(number)(result, now)


def _work(size: int, compression: int) -> int:
    """What so many bytes of one batch count for."""
    return max(size // PLAIN if compression == Compression.NONE else size, STEP // BATCHES)
