"""Batches that a thread takes by itself while the core is at rest, so that not each costs two switches of threads.

    the core rests ── offer ──► batch, batch, batch ── take ──► the user's thread
    the core goes on ◄── settle ──┘ what was taken counts as asked for and handed out, the rest as never offered

Rules:
- Only the thread that has the batch in hand is offered any, and only what it would be given if it asked.
- They are settled before anything else is done within the core's gate, so that nothing in it knows of them.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from ottla.sdk.consume.committing import Claim
from ottla.sdk.consume.positions import Fetched

T = TypeVar("T")


class Ahead(Generic[T]):
    """The batches that the thread which reads one consumer may take.

    Args:
        make: makes what its user gets of what is fetched.
        entered: the gate's, whose second byte says that the next call is to come to the driver.

    Attributes:
        at: when something was taken last, in seconds of the driver's clock.
    """

    def __init__(self, make: Callable[[Fetched, Claim | None], T], entered: bytearray) -> None:
        self._make, self._entered = make, entered
        self._task: Any = None
        self._offered: list[Fetched] = []
        self._left: deque[T] = deque()
        self.at = 0.0

    def take(self, task: Any, now: float) -> T | None:
        """The next batch, if one is offered to the task; from any thread."""
        left = self._left
        if task is not self._task or not left or self._entered[1]:
            return None
        self.at = now
        try:  # CPython lets neither a signal nor another thread in between these two: no call, no jump back
            taken = left[0]
            del left[0]
        except IndexError:
            return None
        return taken

    def offer(self, task: Any, batches: Iterable[tuple[Fetched, Claim | None]]) -> None:
        """The task may take these."""
        self._task = task
        for fetched, claim in batches:
            self._offered.append(fetched)
            self._left.append(self._make(fetched, claim))

    def settle(self) -> list[Fetched]:
        """Take back what is left; what was taken, in order."""
        offered, self._offered = self._offered, []
        try:
            while self._left:
                self._left.pop()
                offered.pop()
        except IndexError:  # it was taken just now
            pass
        return offered
