"""Whether somebody still asks for batches: a group gives the partitions of those who do not to others.

`max_poll_interval` is counted from the entering of the block, and from the end of every wait for a batch, however it
ended: by a batch, by an error, or by a cancellation. It is not counted while somebody waits.

Source: KafkaConsumer.java, max.poll.interval.ms.
"""

from collections.abc import Callable

from ottla.sdk.core import ClientCore
from ottla.sdk.timers import Timer

SLOW = 2 / 3
"""Part of `max_poll_interval` after which a batch that is still in hand is reported."""


class PollWatch:
    """Watches one consumer.

    Args:
        limit: `max_poll_interval`, in seconds; ``None``: nobody minds.
        slow: called, machine to machine, with the seconds that were counted, when most of the time is over.
        absent: called when it is over.
    """

    def __init__(
        self,
        core: ClientCore,
        limit: float | None,
        slow: Callable[[float], None],
        absent: Callable[[float], None],
    ) -> None:
        self._core, self._limit, self._slow, self._absent = core, limit, slow, absent
        self._since = 0.0
        self._timers: tuple[Timer, ...] = ()

    def away(self, now: float) -> None:
        """Nobody waits for a batch from now on."""
        self.stop()
        if self._limit is not None:
            self._since = now
            self._timers = (
                self._core.later(now + self._limit * SLOW, lambda now: self._slow(now - self._since)),
                self._core.later(now + self._limit, self._absent),
            )

    def stop(self) -> None:
        """Somebody waits, or nobody ever will again."""
        for timer in self._timers:
            timer.cancel()
        self._timers = ()

    def counted(self, now: float) -> float | None:
        """Seconds since somebody waited last; ``None`` while somebody does, or nobody minds."""
        return now - self._since if self._timers else None
