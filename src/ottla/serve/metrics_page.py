"""Renders a server's metrics in the text format of Prometheus; needs the extra ``ottla[prometheus]``.

Rules:
- Rendering takes about five microseconds for each line, on the loop that serves all clients. So it pauses after each
  millisecond of work, and lets other tasks run.
"""

import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import trio
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from ottla.server_metrics import BOUNDS, Collect, Histogram, MetricKind, Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST
_TURN = 0.001
"""Seconds of work after which other tasks get their turn."""
_LINES = 50
"""Lines that are rendered at a time."""
_FAMILIES: dict[MetricKind, Any] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}
_PROCESS = ProcessCollector(registry=None)
"""The process's processor time, memory and open files, on Linux."""


async def render(collect: Collect) -> bytes:
    """Return the page with all samples of ``collect``, sorted by metric."""
    turn = _Turn()
    families: dict[str, Any] = {}
    for sample in collect():
        if sample is not None:
            _add(families, sample)
        await turn.over()
    page: list[bytes] = []
    for family in (*families.values(), *_PROCESS.collect()):
        for text in _rendered(family):
            page.append(text)
            await turn.over()
    return b"".join(page)


class _Turn:
    """Lets other tasks run after each millisecond of work."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def over(self) -> None:
        if time.perf_counter() - self._since > _TURN:
            await trio.lowlevel.checkpoint()
            self._since = time.perf_counter()


def _add(families: dict[str, Any], sample: Sample) -> None:
    metric, value, labels = sample
    family = families.get(metric.name)
    if family is None:
        family = families[metric.name] = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
    if isinstance(value, Histogram):
        counts = accumulate(value.counts)
        buckets = [(bound, count) for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True)]
        family.add_metric(labels, buckets, value.sum)
    else:
        family.add_metric(labels, value)


def _rendered(family: MetricFamily) -> Iterator[bytes]:
    """Yield the text of a metric, a few lines at a time."""
    for first in range(0, len(family.samples), _LINES):
        piece = MetricFamily(family.name, family.documentation, family.type)
        piece.samples.extend(family.samples[first : first + _LINES])
        text = generate_latest(_OneFamily(piece))
        yield text if first == 0 else text.split(b"\n", 2)[2]  # without the lines of # HELP and # TYPE


class _OneFamily(PrometheusCollector):
    """A registry of a single metric."""

    def __init__(self, family: MetricFamily) -> None:
        self._family = family

    def collect(self) -> Iterator[MetricFamily]:
        yield self._family
