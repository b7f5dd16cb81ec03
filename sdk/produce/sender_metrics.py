"""What the sender counts."""

from ottla.sdk.metrics import Meter, Metrics


class SenderMetrics:
    """Source: SenderMetricsRegistry.java; those that Kafka has per topic are only kept so, and add up."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._meters: dict[tuple[str, str], Meter] = {}
        self.batch_size = metrics.spread("batch-size")
        self.compression_rate = metrics.spread("compression-rate")
        self.queue_time = metrics.timing("record-queue-time")
        self.records_per_request = metrics.spread("records-per-request", type="producer-metrics")
        self.throttle_time = metrics.timing("produce-throttle-time")
        self.splits = metrics.meter("batch-split")

    def count(self, what: str, topic: str, amount: float, now: float) -> None:
        """``what``: record-send, record-error, record-retry, byte."""
        meter = self._meters.get((what, topic))
        if meter is None:
            meter = self._meters[what, topic] = self._metrics.meter(what, topic=topic)
        meter.add(amount, now)
