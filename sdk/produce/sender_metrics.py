"""Metrics of the sender."""

from ottla.sdk.metrics import Meter, Metrics


class SenderMetrics:
    """Source: SenderMetricsRegistry.java; metrics that Kafka has per topic are only kept per topic, and add up."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._meters: dict[str, dict[str, Meter]] = {}
        """The meters of each topic."""
        self.batch_size = metrics.spread("batch-size")
        self.compression_rate = metrics.spread("compression-rate")
        self.queue_time = metrics.timing("record-queue-time")
        self.records_per_request = metrics.spread("records-per-request", type="producer-metrics")
        self.throttle_time = metrics.timing("produce-throttle-time")
        self.splits = metrics.meter("batch-split")

    def count(self, what: str, topic: str, amount: float, now: float) -> None:
        """``what``: record-send, record-error, record-retry, byte."""
        meters = self._meters.setdefault(topic, {})
        meter = meters.get(what)
        if meter is None:
            meter = meters[what] = self._metrics.meter(what, topic=topic)
        meter.add(amount, now)

    def forget(self, topic: str) -> None:
        """Remove the metrics of a topic that is no longer used."""
        self._metrics.remove(*self._meters.pop(topic, {}).values())

    def close(self) -> None:
        """Remove the metrics of all topics."""
        for topic in list(self._meters):
            self.forget(topic)
