"""Metrics of a server: their declarations, histograms, and samples whose number is bounded.

Rules:
- An event adds to a number of the object that decides over it. Collectors read the numbers when Prometheus asks.
- Clients choose the names of topics, groups and themselves. So a metric has at most `MOST_SERIES` sets of labels; all
  others are summed as one, whose labels are `OTHER`.
- A metric that Apache Kafka has, too, has the name that Prometheus' JMX exporter gives it: ``kafka_``, the MBean's
  domain, type and name in lower case, and ``_total`` for counters. The names of all others begin with ``ottla_``.
"""

import enum
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

MOST_SERIES = 1000
"""The most sets of labels of one metric, without `OTHER`."""
OTHER = "(other)"
"""The labels of all values beyond `MOST_SERIES`. No topic can have this name."""
LONGEST_LABEL = 249
"""Characters of a label; the rest is cut off. The name of a topic is not longer."""
BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0)
"""The upper bounds of a histogram's buckets, in milliseconds; a last bucket has no bound."""


class MetricKind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class ServerMetric(NamedTuple):
    """The declaration of a metric.

    Attributes:
        meaning: the text of the docs, with the unit.
        labels: the names of its labels.
    """

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """The first part of the meaning, for ``# HELP``: one short sentence."""
        return self.meaning.partition(";")[0].partition(", which may")[0]


class Histogram:
    """Counts durations by size.

    Attributes:
        counts: the number of durations in each bucket.
        sum: of all durations, in milliseconds.
    """

    __slots__ = ("counts", "sum")

    def __init__(self, counts: Iterable[int] = (0,) * (len(BOUNDS) + 1), sum: float = 0.0) -> None:
        self.counts, self.sum = list(counts), sum

    def observe(self, seconds: float) -> None:
        milliseconds = seconds * 1000
        self.counts[bisect_left(BOUNDS, milliseconds)] += 1
        self.sum += milliseconds

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(map(operator.add, self.counts, other.counts), self.sum + other.sum)


class Sample(NamedTuple):
    """A measured value; a histogram's is a `Histogram`."""

    metric: ServerMetric
    value: Any
    labels: tuple[str, ...] = ()


Samples = Iterator[Sample | None]
"""The samples of a server. ``None`` is none: it only gives the reader a chance to let other tasks run."""
Collect = Callable[[], Samples]


def bounded(labels: tuple[str, ...], known: Mapping[tuple[str, ...], object]) -> tuple[str, ...]:
    """Return the labels under which to count: cut to `LONGEST_LABEL`, and `OTHER` if ``known`` is full."""
    if labels in known:
        return labels
    labels = tuple(label[:LONGEST_LABEL] for label in labels)
    return labels if labels in known or len(known) < MOST_SERIES else (OTHER,) * len(labels)


class Series:
    """Sums values by their labels, for metrics with the same labels."""

    def __init__(self, *metrics: ServerMetric) -> None:
        self._metrics = metrics
        self._sums: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def add(self, labels: tuple[str, ...], *values: Any) -> None:
        """Add one value for each metric."""
        key = bounded(labels, self._sums)
        known = self._sums.get(key)
        self._sums[key] = values if known is None else tuple(map(operator.add, known, values))

    def samples(self) -> Iterator[Sample]:
        for labels, values in self._sums.items():
            for metric, value in zip(self._metrics, values, strict=True):
                yield Sample(metric, value, labels)
