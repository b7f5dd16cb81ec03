"""Commits the progress of a streaming query to a consumer group, so that Kafka's own tools show its lag.

The query itself relies on its checkpoint and never reads these offsets, so a failed commit is only a warning.
"""

import logging
import math
from dataclasses import replace

from ottla.errors import NonEmptyGroup, OttlaError
from ottla.spark.kafka_options import ClientConfig
from ottla.spark.reading.batch_reader import clients
from ottla.spark.streaming.stream_offsets import Positions, StreamOffset

log = logging.getLogger("ottla.spark")

SECONDS = 5.0
"""How long a micro-batch waits at most for its commit, and for the connection that the commit needs."""
PAUSE = 30.0
"""Seconds until the next attempt after a failed commit."""
AGAIN = 3600.0
"""Seconds after which an idle query repeats its commit: brokers delete old offsets (``offsets.retention.minutes``)."""


class GroupCommits:
    """Commits the offsets of one query. Runs in the driver.

    Args:
        group: ``None``: do not commit.
    """

    def __init__(self, config: ClientConfig, group: str | None) -> None:
        self._config, self._group = config, group
        self._done: Positions | None = None
        """The positions of the last successful commit."""
        self._not_before = self._again_at = -math.inf
        """No commit before the first of the two; no repeated commit of the same offsets before the second."""
        self._fails = False
        """The last commit failed, and the log says so."""

    def commit(self, done: StreamOffset, newest: StreamOffset, last: StreamOffset | None, now: float) -> None:
        """Commit the positions of ``done``, unless it is too early for that.

        Args:
            newest: the current ends of the logs. Partitions that are gone, or whose topic was recreated, are left out.
            last: where the query ends. No commit comes after this end, so its commit is not delayed.
        """
        if self._group is None or (done.positions == self._done and now < self._again_at):
            return
        if now < self._not_before and not (last is not None and last.is_reached_by(done)):
            return
        there = done.restricted_to(newest)
        patient = {**dict(self._config.options), "api_timeout": SECONDS, "connect_timeout": SECONDS}
        try:
            with clients.use(replace(self._config, options=tuple(patient.items()))) as client:
                client.commit(self._group, there)
        except OttlaError as error:
            self._not_before = now + PAUSE
            used = isinstance(error, NonEmptyGroup)
            if not self._fails:
                self._fails = True
                why = f"another application is using it, choose another groupIdPrefix ({error})" if used else str(error)
                log.warning(f"offset commit for group {self._group!r} failed, the query continues: {why}")
        else:
            self._fails = False
            self._done, self._again_at = done.positions, now + AGAIN
