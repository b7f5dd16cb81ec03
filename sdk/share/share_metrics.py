"""The metrics of a share consumer, named as in Kafka's `consumer-share-fetch-manager-metrics`.

Source: ShareFetchMetricsRegistry.java, ShareFetchMetricsManager.java.
"""

from ottla.sdk.metrics import Handle, Metrics

_TYPE = "consumer-share-fetch-manager-metrics"
"""Consumers have metrics of the same names; Kafka tells the two apart by their groups, which JMX calls ``type``."""


class ShareMetrics:
    """Measures a share consumer; its owners share the metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._fetches = metrics.meter("fetch", type=_TYPE)
        self._latency = metrics.timing("fetch-latency", type=_TYPE)
        self._sent = metrics.meter("acknowledgements-send", type=_TYPE)
        self._errors = metrics.meter("acknowledgements-error", type=_TYPE)
        self._records = metrics.meter("records-consumed", type=_TYPE)
        self._handles: tuple[Handle, ...] = (self._fetches, self._latency, self._sent, self._errors, self._records)

    def fetched(self, seconds: float, now: float) -> None:
        """Record a ShareFetch response."""
        self._fetches.add(1, now)
        self._latency.record(seconds, now)

    def acquired(self, records: int, now: float) -> None:
        """Record the records of a ShareFetch response."""
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
