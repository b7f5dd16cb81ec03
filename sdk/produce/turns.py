"""Lets calls that send without waiting for the brokers give other tasks a turn now and then.

Rules:
- A call lets other tasks run *before* its record is accepted: if it is cancelled there, the record was not accepted.
- Calls that come in the meantime queue behind it: calls that can wait are accepted in the order in which they were
  made. `send_nowait` cannot wait, and so overtakes them: the buffer has space, and refusing it would make programs with
  two tasks raise `BufferFull` at random.
"""

import math
from collections import deque
from collections.abc import Callable

from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import CHECK, TURN, Steps

_INTERVAL = 0.002
"""Seconds after which a caller that sends without waiting lets other tasks run."""


class Turns:
    """The turns of one producer.

    Args:
        changed: called when calls begin to queue, or the queue becomes empty.
    """

    def __init__(self, core: ClientCore, changed: Callable[[], None]) -> None:
        self._core, self._changed = core, changed
        self._queue: deque[Outcome[None]] = deque()
        """An outcome for each waiting call, in order; settled when the call continues, or is cancelled."""
        self._others_ran_at = -math.inf
        """When other tasks last ran."""

    def __bool__(self) -> bool:
        """Whether calls are waiting."""
        return bool(self._queue)

    def take(self, *, timed: bool = True) -> Steps[None]:
        """Let other tasks run, if they have not for a while, and wait for earlier calls.

        Args:
            timed: ``False``: only wait for earlier calls. The caller waits afterwards in any case.
        """
        long_ago = timed and not 0 <= self._core.now - self._others_ran_at < _INTERVAL
        if not long_ago and not self._queue:
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
            self._others_ran_at = self._core.now
        finally:
            self._queue.remove(mine)
            mine.succeed(None)
            self._changed()
