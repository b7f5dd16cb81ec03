"""A watchdog for an event loop: reports when the user's code blocks the loop, and where that code is.

While a handler computes, heartbeats, requests and deadlines all wait, and the group removes the member before the loop
could log a warning; so a thread pings the loop, and if there is no reply reads the stack of the loop's thread.
"""

import sys
import threading
import traceback
from collections.abc import Callable

_FRAMES = 12
"""Innermost stack entries in the report."""


class Watchdog:
    """Watches the calling thread, which runs the loop, until `stop`.

    Args:
        soon: has the loop call a function, from any thread; raises RuntimeError once the loop has ended.
        limit: seconds without a reply before a report; each blockage is reported once.
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
                    pass  # reported already

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame)[-_FRAMES:]) if frame else ""
