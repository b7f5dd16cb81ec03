"""Offers batches that the user's thread may take while the core is idle, to save two thread switches per batch.

    the core is idle    ── offer ──► batch, batch, batch ── take ──► the user's thread
    the core runs again ◄── settle ──┘ batches taken count as asked for and handed out, the rest as never offered

Rules:
- The offer is only for the thread that has the last batch in hand, and contains only what `poll` would return to it.
- The offer is settled before anything else happens inside the core's gate, so no other part needs to know of it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from ottla.sdk.consume.assignment.committing import BatchAssignment
from ottla.sdk.consume.partitions.fetched import Fetched

T = TypeVar("T")


class Ahead(Generic[T]):
    """Holds the batches that the reading thread of one consumer may take.

    Args:
        make: converts a fetched batch into the user's batch.
        entered: the gate's flags; if the second byte is set, the next call must go to the driver.

    Attributes:
        at: when a batch was last taken, in seconds of the driver's clock.
    """

    def __init__(self, make: Callable[[Fetched, BatchAssignment | None], T], entered: bytearray) -> None:
        self._make, self._entered = make, entered
        self._task: Any = None
        self._offered: list[Fetched] = []
        self._left: deque[T] = deque()
        self.at = 0.0

    def take(self, task: Any, now: float) -> T | None:
        """The next batch, if one is offered to this task; callable from any thread."""
        left = self._left
        if task is not self._task or not left or self._entered[1]:
            return None
        self.at = now
        # CPython checks for signals and switches threads at calls and backward jumps only, so none of that happens
        # between these two statements.
        try:
            taken = left[0]
            del left[0]
        except IndexError:
            return None
        return taken

    def offer(self, task: Any, batches: Iterable[tuple[Fetched, BatchAssignment | None]]) -> None:
        """Let the task take these batches."""
        self._task = task
        for fetched, claim in batches:
            self._offered.append(fetched)
            self._left.append(self._make(fetched, claim))

    def settle(self) -> list[Fetched]:
        """Withdraw the rest of the offer; return the batches that were taken, in order."""
        offered, self._offered = self._offered, []
        try:
            while self._left:
                self._left.pop()
                offered.pop()
        except IndexError:  # the thread has just taken the last one
            pass
        return offered
