"""How far a streaming query is: lag and rate of each partition, in the log and for Prometheus.

Rules:
- All values are updated when Spark asks for the next micro-batch, which it does once a batch is done: everything before
  the start of the next batch is processed. So the rate counts whole batches, and the lag is never reported too low.
- The query does not depend on this. If metrics cannot be served, a warning says why, and a later batch tries again.
"""

import logging
import time
from typing import Any

from ottla.addresses import format_address
from ottla.errors import ConfigurationError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.metrics import Gauge, Meter, Metric, Metrics
from ottla.spark.streaming.stream_offsets import Positions

log = logging.getLogger("ottla.spark")

REPORT_SECONDS = 60.0
"""Seconds between two progress lines in the log."""
RETRY_SECONDS = 10.0
"""Seconds between two attempts to serve metrics: the query that this one replaces may still hold the port."""
_MOST_NAMED = 10
"""How many partitions a log line names: those with the largest lag."""


class Progress:
    """Tracks lag and rate of one query. Runs in the driver.

    Args:
        client_id: a label of all metrics, to distinguish queries.
        what: the topics that the query reads, as the log shows them.
    """

    def __init__(self, client_id: str, what: str) -> None:
        self._what = what
        self._metrics = Metrics(client_id)
        self._partitions: dict[TopicPartition, tuple[Gauge, Meter]] = {}
        self._before: Positions = {}
        self._ends: Positions = {}
        self._report_at: float | None = None

    def reached(self, positions: Positions, ends: Positions, now: float) -> None:
        """Record that everything before ``positions`` is processed, and that the logs end at ``ends``."""
        if (positions, ends) != (self._before, self._ends):
            self._take(positions, ends, now)
        self.report(now)

    def begun(self, positions: Positions) -> None:
        """Record where a batch begins. Only matters before the first `reached`: after a restart Spark plans the last
        batch again, and then the rate must count that batch."""
        if not self._before:
            self._before = positions

    def report(self, now: float) -> None:
        """Write a log line if one is due."""
        if self._report_at is None:
            self._report_at = now + REPORT_SECONDS
        elif now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            log.info(self.summary(now))

    def _take(self, positions: Positions, ends: Positions, now: float) -> None:
        for place in self._partitions.keys() - ends.keys():
            self._metrics.remove(*self._partitions.pop(place))
        for place, end in ends.items():
            topic, partition = place
            if place not in self._partitions:
                self._partitions[place] = (
                    self._metrics.gauge("records-lag", topic=topic, partition=partition),
                    self._metrics.meter("records-consumed", topic=topic, partition=partition),
                )
            lag, consumed = self._partitions[place]
            position = positions.get(place, 0)
            lag.set(max(end - position, 0))
            consumed.add(max(position - self._before.get(place, position), 0), now)
        self._before, self._ends = positions, ends

    def metrics(self) -> list[Metric]:
        """Return ``records-lag``, ``records-consumed-rate`` and ``-total`` of each partition, to a `Collector`."""
        return self._metrics.snapshot(time.monotonic())

    def summary(self, now: float) -> str:
        """Return the log line."""
        lags = {place: lag.value for place, (lag, _) in self._partitions.items()}
        rates = {place: self._rate(place, now) for place in self._partitions}
        behind = sorted((place for place in lags if lags[place]), key=lambda place: -lags[place])
        named = ", ".join(f"{topic}-{n} {lags[topic, n]:.0f}" for topic, n in behind[:_MOST_NAMED])
        more = f" and {len(behind) - _MOST_NAMED} more" if len(behind) > _MOST_NAMED else ""
        total, rate = sum(lags.values()), sum(rates.values())
        return f"{self._what}: {total:.0f} records behind, {rate:,.1f} records/s" + (
            f"; behind: {named}{more}" if behind else ""
        )

    def _rate(self, place: TopicPartition, now: float) -> float:
        return next(value for name, value, _ in self._partitions[place][1].read(now) if name.endswith("-rate"))


class MetricsEndpoint:
    """Serves the metrics at ``http://host:port/metrics`` for as long as the query's process lives."""

    def __init__(self, address: tuple[str, int], progress: Progress) -> None:
        self._address, self._progress = address, progress
        self._server: Any = None
        self._retry_at = 0.0

    def start(self, now: float) -> None:
        """Start to serve, unless already serving.

        Raises:
            ConfigurationError: prometheus-client is not installed.
        """
        if self._server is not None or now < self._retry_at:
            return
        try:
            from prometheus_client import CollectorRegistry, start_http_server

            from ottla.sdk.prometheus import Collector
        except ImportError as error:
            raise ConfigurationError(f"option prometheus: {error}: pip install 'ottla[prometheus]'") from None
        registry = CollectorRegistry()
        registry.register(Collector(self._progress))
        host, port = self._address
        try:
            self._server, _ = start_http_server(port, host, registry)
        except OSError as error:
            self._retry_at = now + RETRY_SECONDS
            why = error.strerror or error
            where = format_address(host, port)
            log.warning(f"option prometheus: cannot listen on {where} ({why}); each query needs its own port")

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
