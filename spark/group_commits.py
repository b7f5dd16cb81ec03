"""How far a streaming query is, committed to a consumer group, so that Kafka's own tools show its lag.

The query goes by its checkpoint, and needs none of this: a commit that fails is a warning.
"""

import logging
import math
from dataclasses import replace

from ottla.errors import NonEmptyGroup, OttlaError
from ottla.spark.kafka_options import ClientConfig
from ottla.spark.reader import clients
from ottla.spark.stream_offsets import Positions, StreamOffset

log = logging.getLogger("ottla.spark")

SECONDS = 5.0
"""That a batch waits at the most until its offsets are committed, and for a connection to do so."""
PAUSE = 30.0
"""After a commit that failed."""
AGAIN = 3600.0
"""After which a query that is idle commits once more: brokers forget what is old (``offsets.retention.minutes``)."""


class GroupCommits:
    """Of one query, in the driver.

    Args:
        group: ``None``: nothing is committed.
    """

    def __init__(self, config: ClientConfig, group: str | None) -> None:
        self._config, self._group = config, group
        self._done: Positions | None = None
        """What was committed last."""
        self._not_before = self._again_at = -math.inf
        """No commit is tried before the one, and of the same offsets none before the other."""
        self._fails = False
        """The log says so."""

    def commit(self, done: StreamOffset, newest: StreamOffset, last: StreamOffset | None, now: float) -> None:
        """Commit what is ``done``, unless it is too early for that.

        Args:
            newest: what there is now. Left out are partitions that are gone, or are of another topic.
            last: where the query ends; no commit comes later, so there it does not wait.
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
                why = f"its members are not this query: choose another groupIdPrefix ({error})" if used else str(error)
                log.warning(f"offsets of group {self._group!r} were not committed, and the query goes on: {why}")
        else:
            self._fails = False
            self._done, self._again_at = done.positions, now + AGAIN
