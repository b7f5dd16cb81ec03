"""Watches that the user's code is active: otherwise the member leaves, so that others get its partitions.

Rules:
- A share group may assign a partition to one member only, and reads it no further if the code behind that member hangs.
- Asking for a record counts as activity, and so does each acknowledgement and renewal: a record may take long. The time
  of a wait for a record does not count.
- After `max_poll_interval` without activity the member leaves; the next request for a record joins again. Locks and
  share sessions belong to the leaders, so records in the user's hands can still be acknowledged.
- If the whole event loop is blocked, no heartbeats are sent: a thread of the driver reports that.

Source: AbstractHeartbeatRequestManager.java, pollTimer.
"""

from collections.abc import Callable

from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")


BLOCKED_AFTER = 15.0
"""Seconds after which a blocked event loop is reported: a third of the broker's default for sessions of members."""


class ActivityWatch:
    """Watches one member of ``group``.

    Args:
        leave: makes the member leave its group.

    Attributes:
        absent: the member has left; the next request for a record joins again.
    """

    def __init__(self, core: ClientCore, group: str, limit: float, leave: Callable[[float], None]) -> None:
        self._core, self._group, self._limit, self._leave = core, group, limit, leave
        self._active_at = 0.0
        self._waits = 0
        self._timer: Timer | None = None
        self.absent = False

    def begin(self, now: float) -> None:
        """Start to watch: the member joins."""
        self._active_at, self.absent = now, False
        self._look_at(now + self._limit)

    def active(self, now: float) -> None:
        """Take note of a sign of life."""
        self._active_at = now

    def begin_wait(self) -> None:
        """Take note that a call waits for a record."""
        self._waits += 1

    def end_wait(self, now: float) -> None:
        """Take note that a call does not wait any more."""
        self._waits -= 1
        self._active_at = now

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def report_blocked(self, seconds: float, stack: str) -> None:
        """Report a blocked event loop, which sends no heartbeats; called from a thread."""
        log.error(
            "blocking code keeps the event loop from sending heartbeats: run it in a thread",
            extra={"group": self._group, "seconds": round(seconds, 1), "handler": stack},
        )

    def _look_at(self, when: float) -> None:
        self.stop()
        self._timer = self._core.later(when, self._look)

    def _look(self, now: float) -> None:
        due = now + self._limit if self._waits else self._active_at + self._limit
        if due > now:
            self._look_at(due)
            return
        self.absent = True
        log.error(
            "the member leaves its share group, because nothing asked for a record within max_poll_interval",
            extra={"group": self._group, "seconds": self._limit},
        )
        self._leave(now)
