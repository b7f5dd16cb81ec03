"""Whether somebody still asks for batches: a group gives the partitions of those who do not to others.

Rules:
- `max_poll_interval` is counted from the entering of the block, and from the end of every wait for a batch, however it
  ended: by a batch, by an error, or by a cancellation. It is not counted while somebody waits.
- When most of it is over the log says where the handler stands; when all is, the member leaves its group, and comes
  back with the next call.
- A loop that stands still sends no heartbeats either: that is reported by a thread of the driver's.

Source: KafkaConsumer.java, max.poll.interval.ms.
"""

from collections.abc import Callable

from ottla.sdk.core import ClientCore
from ottla.sdk.group.membership import MemberOptions, Membership
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

SLOW = 2 / 3
"""Part of `max_poll_interval` after which a batch that is still in hand is reported."""
BLOCKED = 1 / 3
"""Part of the session timeout for which the whole loop may stand still before that is reported."""


class PollWatch:
    """Watches one consumer of ``group``; without ``options`` of a member nobody minds.

    Args:
        where: where the handler of the last batch stands, for people.
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
        """The member has left, because nobody waits: only the next wait may bring it back."""

    def away(self, now: float) -> None:
        """Nobody waits for a batch from now on."""
        self.stop()
        if self._options is not None:
            limit = self._options.max_poll_interval
            self._since = now
            self._timers = self._core.later(now + limit * SLOW, self._slow), self._core.later(now + limit, self._absent)

    def stop(self) -> None:
        """Somebody waits, or nobody ever will again."""
        self.absent = False
        for timer in self._timers:
            timer.cancel()
        self._timers = ()

    def counted(self, now: float) -> float | None:
        """Seconds since somebody waited last; ``None`` while somebody does, or nobody minds."""
        return now - self._since if self._timers else None

    def _slow(self, now: float) -> None:
        log.warning(
            "a batch is handled for so long that the group is about to give its partitions to others",
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
            "the member leaves its group, because its loop did not ask for a batch in time",
            extra={"group": self._group, "seconds": limit},
        )
        self._membership.leave(f"no batch was asked for within max_poll_interval, {limit:g} s", now)

    @property
    def blocked_after(self) -> float | None:
        """Seconds after which a loop that stands still is reported; ``None``: no group waits for heartbeats."""
        return self._options.session_timeout * BLOCKED if self._options is not None else None

    def report_blocked(self, seconds: float, stack: str) -> None:
        """Called from a thread: nothing of the loop runs, so no heartbeat goes out."""
        log.error(
            "code that does not await keeps the event loop from sending heartbeats: run it in a thread",
            extra={"group": self._group, "seconds": round(seconds, 1), "handler": stack},
        )
