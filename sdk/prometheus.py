"""Metrics for Prometheus: ``record-send-total`` becomes ``ottla_record_send_total``, tags become labels.

    from prometheus_client import REGISTRY, start_http_server
    REGISTRY.register(ottla.sdk.prometheus.Collector(client))
    start_http_server(8000)

Needs the extra ``ottla[prometheus]``. Prometheus may scrape from another thread.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector as PrometheusCollector
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":  # it is installed, but broken
        raise
    raise ImportError("prometheus-client is not installed: pip install 'ottla[prometheus]'") from error

from ottla.sdk.metrics import Metric


class Measured(Protocol):
    """A client, or any other object with metrics."""

    def metrics(self) -> list[Metric]: ...


class Collector(PrometheusCollector):
    """Collects the metrics of clients when Prometheus asks."""

    def __init__(self, *clients: Measured) -> None:
        self._clients = clients

    def describe(self) -> Iterable[CounterMetricFamily]:
        return ()  # otherwise the registry would collect to learn the names, which change over time

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        by_name: dict[str, list[Metric]] = {}
        for each in (metric for client in self._clients for metric in client.metrics()):
            by_name.setdefault(each.name, []).append(each)
        for name, metrics in by_name.items():
            # A metric may exist per client and per topic; to Prometheus an empty label is the same as none.
            labels = sorted({tag for each in metrics for tag in each.tags})
            kind = CounterMetricFamily if metrics[0].cumulative else GaugeMetricFamily
            words = f"Kafka's {name}, as this client measures it"
            family = kind("ottla_" + name.replace("-", "_"), words, labels=[each.replace("-", "_") for each in labels])
            for each in metrics:
                family.add_metric([each.tags.get(label, "") for label in labels], each.value)
            yield family
