"""Bounds the work of each step on the event loop, and moves long work to threads.

Rules:
- One step of the machine (the turn of one of its parts in a poll, or all events up to the next poll) reads or builds
  batches of about `STEP` bytes of records, and at most `BATCHES` batches. The rest waits for a later step. A batch that
  is larger than that is read and built in a thread.
- Uncompressed bytes count for little: handing them to a thread, and to another core's caches, costs more than handling
  them here.
- A function that runs in a thread does not change the machine's state, and does not raise.
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
"""Bytes of records before compression: about 20 ms with gzip, the slowest."""
BATCHES = 256
"""The most batches that a step reads or builds: about 10 ms for the fixed cost of each."""
PLAIN = 16
"""How many uncompressed bytes count as one: at most 2 ms for each MB of records."""


class Threads:
    """Tracks the remaining budget of the current step, and runs calls in threads."""

    def __init__(self, actions: "list[Action]") -> None:
        self._actions = actions
        self._left = STEP
        self._numbers = count(1)
        self._then: dict[int, Callable[[Any, float], None]] = {}

    @property
    def idle(self) -> bool:
        return not self._then

    def renew_budget(self) -> None:
        self._left = STEP

    def is_long(self, size: int, compression: int) -> bool:
        """Whether a batch of this size is more than a whole step, so that a thread must build it."""
        return _work(size, compression) > STEP

    def fits(self, size: int, compression: int) -> bool:
        """Whether the step may still read a batch of this size."""
        return _work(size, compression) <= self._left

    @property
    def budget_is_spent(self) -> bool:
        """The step has used up its budget."""
        return self._left <= 0

    def spend(self, size: int, compression: int) -> None:
        """Take a batch that the step has read or built from its budget."""
        self._left -= _work(size, compression)

    def spend_a_look(self) -> None:
        """Take the smallest batch from the budget: the step has checked a record set without reading its records."""
        self.spend(0, Compression.NONE)

    def run(self, call: Callable[[], T], then: Callable[[T, float], None]) -> None:
        """Run ``call()`` in a thread, then call ``then`` with its result."""
        number = next(self._numbers)
        self._then[number] = then
        self._actions.append(Work(number, call))

    def worked(self, number: int, result: Any, now: float) -> None:
        """Pass on the result of a call in a thread."""
        self._then.pop(number)(result, now)


def _work(size: int, compression: int) -> int:
    """The cost of a batch of this size in a step's budget."""
    return max(size // PLAIN if compression == Compression.NONE else size, STEP // BATCHES)
