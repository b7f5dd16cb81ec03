"""The metrics of a group's member and of its commits, named as in Kafka's `consumer-coordinator-metrics`.

Source: ConsumerCoordinatorMetrics.java, AbstractCoordinator.java (GroupCoordinatorMetrics).
"""

from ottla.sdk.metrics import Handle, Metrics


class _GroupMetrics:
    """Metrics of one group, shown until they are closed."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._handles: tuple[Handle, ...] = ()

    def close(self) -> None:
        """Remove the metrics, unless another consumer of the group uses them."""
        handles, self._handles = self._handles, ()
        self._metrics.remove(*handles)


class MemberMetrics(_GroupMetrics):
    """Measures one member."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        super().__init__(metrics)
        self.rebalances = metrics.meter("rebalance", group=group)
        self.join_time = metrics.timing("join-time", group=group)
        self.heartbeats = metrics.timing("heartbeat-response-time", group=group)
        self._handles = self.rebalances, self.join_time, self.heartbeats


class CommitMetrics(_GroupMetrics):
    """Measures the commits of one consumer."""

    def __init__(self, metrics: Metrics, group: str) -> None:
        super().__init__(metrics)
        self.commits = metrics.meter("commit", group=group)
        self.failed = metrics.counter("commit-failed-total", group=group)
        self.latency = metrics.timing("commit-latency", group=group)
        self._handles = self.commits, self.failed, self.latency
