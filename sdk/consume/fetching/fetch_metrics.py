"""A fetcher's metrics, named as in Kafka's `consumer-fetch-manager-metrics`.

Rules:
- ``records-consumed`` and ``bytes-consumed`` count the records taken by the user, ``fetch-size`` all bytes fetched.
- A topic's metrics are shown while a consumer reads it and the topic exists. Metrics without a topic belong to the
  client, and stay.
- ``records-lag`` is computed from the position when it is read, and costs nothing until then; ``records-lag-max`` is
  the largest at that moment. Both have the consumer's number as a tag, because two consumers of a client may read the
  same partition.
- ``preferred-read-replica`` exists if the client has a rack: the node that is read from instead of the leader, or -1 if
  it is the leader.
- Producers have a ``records-per-request`` too; Kafka tells the two apart by their groups, which JMX calls ``type``.

Source: FetchMetricsRegistry.java, FetchMetricsManager.java.
"""

import math
from collections.abc import Iterable

from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Position
from ottla.sdk.metrics import Gauge, Meter, Metrics


class FetchMetrics:
    """Updates the metrics of the fetcher with this number, perhaps one that reads from ``near`` replicas."""

    def __init__(self, metrics: Metrics, number: int, isolation: int, *, near: bool = False) -> None:
        self._metrics, self._number, self._isolation, self._near = metrics, number, isolation, near
        self._fetches = metrics.meter("fetch")
        self._latency = metrics.timing("fetch-latency")
        self._throttle = metrics.timing("fetch-throttle-time")
        self._size = metrics.spread("fetch-size")
        self._per_request = metrics.spread("records-per-request", type="consumer-fetch-manager-metrics")
        self._all = (metrics.meter("records-consumed"), metrics.meter("bytes-consumed"))
        self._topics: dict[str, tuple[Meter, Meter]] = {}
        self._gauges: dict[Position, list[Gauge]] = {}
        """The metrics of each partition that `watch` added."""
        self._highest = metrics.gauge("records-lag-max", self._largest_lag, consumer=number)

    def _largest_lag(self, now: float) -> float:
        positions = list(self._gauges)  # another thread may ask
        return max((lag for each in positions if (lag := each.lag(self._isolation)) is not None), default=math.nan)

    def answered(self, seconds: float, throttled: float, now: float) -> None:
        """Record a Fetch response; both durations are in seconds."""
        self._fetches.add(1, now)
        self._latency.record(seconds, now)
        self._throttle.record(throttled, now)

    def received(self, size: int, records: int, now: float) -> None:
        """Record the content of a Fetch response; ``size`` is in bytes."""
        self._size.record(size, now)
        self._per_request.record(records, now)

    def consumed(self, fetched: Fetched, now: float) -> None:
        """Record that the user has taken a batch."""
        topic = fetched.topic
        if topic not in self._topics:
            meter = self._metrics.meter
            self._topics[topic] = (meter("records-consumed", topic=topic), meter("bytes-consumed", topic=topic))
        for records, size in (self._all, self._topics[topic]):
            records.add(fetched.count, now)
            size.add(fetched.size, now)

    def watch(self, position: Position) -> None:
        """Add the metrics of a partition."""
        topic, partition = position.place

        def lag(now: float) -> float:
            behind = position.lag(self._isolation)
            return math.nan if behind is None else behind

        tags = {"topic": topic, "partition": partition, "consumer": self._number}
        gauges = self._gauges[position] = [self._metrics.gauge("records-lag", lag, **tags)]
        if self._near:
            gauges.append(self._metrics.gauge("preferred-read-replica", lambda now: position.replica, **tags))

    def forget(self, positions: Iterable[Position]) -> None:
        """Remove the metrics of partitions that are no longer read."""
        if gone := [handle for position in positions for handle in self._gauges.pop(position, ())]:
            self._metrics.remove(*gone)

    def forget_topic(self, topic: str) -> None:
        """Remove the metrics of a deleted topic."""
        self._metrics.remove(*self._topics.pop(topic, ()))

    def close(self) -> None:
        """Remove the metrics of the fetcher."""
        for topic in list(self._topics):
            self.forget_topic(topic)
        self._metrics.remove(self._highest)
