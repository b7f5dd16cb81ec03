"""A watchdog over an event loop: reports when the user's code keeps it from turning, and where that code stands.

Heartbeats, requests and deadlines all wait while a handler computes, and the group throws the member out before the
loop can say a word; so a thread watches, asks the loop for a sign of life, and looks at its stack where none comes.
"""

import sys
import threading
import traceback
from collections.abc import Callable

_FRAMES = 12
"""Lines of the stack that are reported, the innermost."""


class Watchdog:
    """Watches the calling thread, which runs the loop, until `stop`.

    Args:
        soon: has the loop call a function, from any thread; raises RuntimeError once the loop has ended.
        limit: seconds after which silence is reported, once for each time.
        report: called in the watching thread with the seconds so far and the stack of the loop's thread.
    """

    def __init__(
        self, soon: Callable[[Callable[[], object]], object], limit: float, report: Callable[[float, str], None]
    ) -> None:
        self._soon, self._limit, self._report = soon, limit, report
        self._watched = threading.get_ident()
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="ottla watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._limit / 4):
            alive = threading.Event()
            try:
                self._soon(alive.set)
            except RuntimeError:
                return  # the loop has ended
            if not alive.wait(self._limit) and not self._stopped.is_set():
                self._report(self._limit, self._stack())
                while not alive.wait(self._limit) and not self._stopped.is_set():
                    pass  # reported once is enough

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame)[-_FRAMES:]) if frame else ""
