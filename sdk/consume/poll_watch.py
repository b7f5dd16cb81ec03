"""Watches that the user asks for batches: otherwise the member leaves, so that others get its partitions.

Rules:
- `max_poll_interval` counts from the start of the block, and from the end of each wait for a batch, whether it ended
  with a batch, an error or a cancellation. It does not count during a wait.
- After two thirds of it, the log says where the handler is in the user's code. After all of it, the member leaves its
  group; the next call joins again.
- If the whole event loop is blocked, no heartbeats are sent: a thread of the driver reports that.

Source: KafkaConsumer.java, max.poll.interval.ms.
"""

from collections.abc import Callable

from ottla.sdk.core import ClientCore
from ottla.sdk.group.membership import Membership
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

SLOW = 2 / 3
"""Fraction of `max_poll_interval` after which a batch that is still in hand is reported."""
BLOCKED = 1 / 3
"""Fraction of the session timeout after which a blocked event loop is reported."""


class PollWatch:
    """Watches one consumer of ``group``; does nothing without ``options``, because then no group assigns partitions.

    Args:
        where: returns a text for people that says where the handler of the last batch is in the code.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str | None,
        options: MemberOptions | None,
        membership: Membership | None,
        where: Callable[[], str],
    ) -> None:
        self._core, self._group, self._options, self._membership = core, group, options, membership
        self._where = where
        self._since = 0.0
        self._timers: tuple[Timer, ...] = ()
        self.absent = False
        """The member has left after `max_poll_interval`; only the next call may join again."""

    def away(self, now: float) -> None:
        """Start to count: the user does not wait for a batch."""
        self.stop()
        if self._options is not None:
            limit = self._options.max_poll_interval
            self._since = now
            self._timers = self._core.later(now + limit * SLOW, self._slow), self._core.later(now + limit, self._absent)

    def stop(self) -> None:
        """Stop counting: the user waits for a batch, or the consumer ends."""
        self.absent = False
        for timer in self._timers:
            timer.cancel()
        self._timers = ()

    def counted(self, now: float) -> float | None:
        """Seconds since the last wait for a batch ended; ``None`` during a wait, or without a member."""
        return now - self._since if self._timers else None

    def _slow(self, now: float) -> None:
        log.warning(
            "batch takes too long: the member is about to leave its group",
            extra={
                "group": self._group,
                "seconds": round(now - self._since, 1),
                "max_poll_interval": self._options.max_poll_interval if self._options else None,
                "handler": self._where(),
            },
        )

    def _absent(self, now: float) -> None:
        if self._membership is None or self._options is None:
            return
        self.absent = True
        limit = self._options.max_poll_interval
        log.error(
            "member left its group: no call for a batch within max_poll_interval",
            extra={"group": self._group, "seconds": limit},
        )
        self._membership.leave(f"the loop did not ask for a batch within max_poll_interval, {limit:g} s", now)

    @property
    def blocked_after(self) -> float | None:
        """Seconds after which a blocked event loop is reported; ``None``: no group waits for heartbeats."""
        return self._options.session_timeout * BLOCKED if self._options is not None else None

    def report_blocked(self, seconds: float, stack: str) -> None:
        """Report a blocked event loop, which sends no heartbeats; called from a thread."""
        log.error(
            "blocking code keeps the event loop from sending heartbeats: run it in a thread",
            extra={"group": self._group, "seconds": round(seconds, 1), "handler": stack},
        )
