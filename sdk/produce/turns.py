"""Calls that send without waiting for the brokers, and still have to let other tasks run now and then.

Rules:
- A call gives way *before* its record is accepted: cancelled there, nothing was accepted.
- Calls that come while one gives way queue behind it: those that can wait are accepted in the order in which they were
  made. `send_nowait` cannot wait, and so overtakes them: the buffer has room, and to refuse it for that would have
  programs with two tasks see `BufferFull` at random.
"""

import math
from collections import deque
from collections.abc import Callable

from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import CHECK, TURN, Steps

_INTERVAL = 0.002
"""Seconds after which a caller that sends without waiting lets others run."""


class Turns:
    """Those of one producer.

    Args:
        changed: called when calls begin to queue, or no more do.
    """

    def __init__(self, core: ClientCore, changed: Callable[[], None]) -> None:
        self._core, self._changed = core, changed
        self._queue: deque[Outcome[None]] = deque()
        """Of each call that has to wait, in order; settled when it goes on, or is cancelled."""
        self._last = -math.inf
        """When other tasks last ran."""

    def __bool__(self) -> bool:
        """Whether calls wait."""
        return bool(self._queue)

    def take(self, *, due: bool | None = None) -> Steps[None]:
        """Let other tasks run, if they have not for a while, and wait for the calls that came before.

        Args:
            due: whether it is time; by default the clock decides.
        """
        if due is None:
            due = not 0 <= self._core.now - self._last < _INTERVAL
        if not due and not self._queue:
            yield CHECK
            return
        ahead, mine = self._queue[-1] if self._queue else None, Outcome[None]()
        self._queue.append(mine)
        self._changed()
        try:
            if ahead is None:
                yield TURN
            while ahead is not None:
                yield ahead
                ahead = None if self._queue[0] is mine else self._queue[self._queue.index(mine) - 1]
            self._last = self._core.now
        finally:
            self._queue.remove(mine)
            mine.succeed(None)
            self._changed()
