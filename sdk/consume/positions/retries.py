"""Retries failed requests about partitions after a pause, and reports partitions that keep failing.

A consumer may wait forever, but not silently: a partition that fails for `STALL` seconds is reported in the log. A
broker that is down stalls all partitions that it leads, so one line stands for all partitions with the same kind of
error, and the next line follows `STALL` seconds later.

Source: OffsetFetcher.java, AbstractFetch.java.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from ottla.errors import BrokerError, OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.position import Position, PositionState
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import STALL, about, logger

log = logger("ottla.sdk.consumer")


class Retries:
    """Schedules the retries of one fetcher.

    Args:
        assigned: all partitions.
        leave: takes a partition out of the requests.
        again: called with each partition to retry, after its pause.
        give_up: called with a partition for which a retry would not help, the error, and whether the topic is gone;
            returns whether the partition is given up. If not, it is called again after the same time.
    """

    def __init__(
        self,
        core: ClientCore,
        assigned: Mapping[TopicPartition, Position],
        leave: Callable[[Position], None],
        again: Callable[[Position], None],
        give_up: Callable[[Position, OttlaError, bool], bool],
    ) -> None:
        self._core, self._assigned, self._leave, self._again, self._give_up = core, assigned, leave, again, give_up
        self._reported: dict[type[OttlaError], float] = {}
        """When each kind of error was last reported."""

    def retry(self, positions: Sequence[Position], error: OttlaError, now: float) -> None:
        """Retry requests about these partitions, which failed with ``error``, or give the partitions up."""
        again: list[Position] = []
        for position in positions:
            self._leave(position)
            position.refused(error, now)
            gone = self._core.metadata.heard_for(position.unknown_since, now) > self._core.options.api_timeout / 2
            passing = error.retriable and not gone and not self._core.closed
            if not passing and self._give_up(position, error, gone):
                continue
            if gone:
                position.wait_for_topic(now)
            again.append(position)
        if again:
            self._pause(again, error, now)
            self._report(again, error, now)

    def _pause(self, positions: Sequence[Position], error: OttlaError, now: float) -> None:
        failures = max(each.failures for each in positions)
        pause = self._core.backoff(failures)
        stale = isinstance(error, BrokerError) and error.stale_metadata and failures == 0
        self._core.metadata.refresh(now, 0.0 if stale else pause)
        for position in positions:
            position.retry(error, now + pause)

        def over(now: float) -> None:
            for position in positions:
                self._again(position)

        self._core.later(now + pause, over)

    def _report(self, positions: Sequence[Position], error: OttlaError, now: float) -> None:
        kind = type(error)
        stalled = any(now - each.failing_since >= STALL for each in positions)
        if not stalled or now - self._reported.get(kind, -math.inf) < STALL:
            return
        self._reported[kind] = now
        alike = [e for e in self._assigned.values() if type(e.trouble) is kind and e.state is not PositionState.FAILED]
        longest = min(alike, key=lambda each: each.failing_since)
        extra = about(longest.place) | {"partition_count": len(alike), "why": str(longest.trouble)}
        log.error("partition cannot be read, retrying", extra=extra | {"seconds": round(now - longest.failing_since)})
