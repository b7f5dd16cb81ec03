"""The metrics of share consumers, named as in Kafka's `consumer-share-fetch-manager-metrics`.

Rules:
- ``records-consumed`` counts acquired records, buffered ones included. ``bytes-consumed`` counts whole batches, with
  records that other members have; in Java it counts the bytes of acquired records alone.

Source: ShareFetchMetricsRegistry.java, ShareFetchMetricsManager.java.
"""

from ottla.sdk.metrics import Handle, Metrics

_TYPE = "consumer-share-fetch-manager-metrics"
"""Consumers have metrics of the same names; Kafka tells the two apart by their groups, which JMX calls ``type``."""


class ShareMetrics:
    """Measures the requests to one leader; all share consumers of a client have the same metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._fetches = metrics.meter("fetch", type=_TYPE)
        self._latency = metrics.timing("fetch-latency", type=_TYPE)
        self._sent = metrics.meter("acknowledgements-send", type=_TYPE)
        self._errors = metrics.meter("acknowledgements-error", type=_TYPE)
        self._throttle = metrics.timing("fetch-throttle-time", type=_TYPE)
        self._size = metrics.spread("fetch-size", type=_TYPE)
        self._bytes = metrics.meter("bytes-consumed", type=_TYPE)
        self._per_request = metrics.spread("records-per-request", type=_TYPE)
        self._records = metrics.meter("records-consumed", type=_TYPE)
        self._handles: tuple[Handle, ...] = (
            *(self._fetches, self._latency, self._throttle, self._sent, self._errors),
            *(self._size, self._bytes, self._per_request, self._records),
        )

    def fetched(self, seconds: float, throttled: float, now: float) -> None:
        """Record a ShareFetch response; both durations are in seconds."""
        self._fetches.add(1, now)
        self._latency.record(seconds, now)
        self._throttle.record(throttled, now)

    def received(self, size: int, records: int, now: float) -> None:
        """Record the content of a ShareFetch response; ``size`` is in bytes."""
        self._size.record(size, now)
        self._bytes.add(size, now)
        self._per_request.record(records, now)
        self._records.add(records, now)

    def sent(self, acknowledgements: int, now: float) -> None:
        """Record acknowledgements in a ShareAcknowledge."""
        self._sent.add(acknowledgements, now)

    def failed(self, acknowledgements: int, now: float) -> None:
        """Record acknowledgements that do not count."""
        self._errors.add(acknowledgements, now)

    def close(self) -> None:
        """Remove the metrics, unless others use them."""
        handles, self._handles = self._handles, ()
        self._metrics.remove(*handles)
