"""Quantiles and rates, for the report."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.chaos.run import Series


def quantile(values: Sequence[float], part: float) -> float:
    """A quantile of sorted values; nan if there are none."""
    return values[min(int(len(values) * part), len(values) - 1)] if values else math.nan


def quantiles(seconds: Iterable[float]) -> str:
    """Three quantiles as text, in milliseconds."""
    values = sorted(seconds)
    parts = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))
    return ", ".join(f"{name} {quantile(values, part) * 1000:,.0f} ms" for part, name in parts)


def quantiles_over_time(ended: Iterable[tuple[float, float]]) -> dict[str, Series]:
    """Quantiles over time: each operation ``(end, duration)`` counts in the second of its end; in milliseconds."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for when, taken in ended:
        seconds[int(when)].append(taken * 1000)
    for values in seconds.values():
        values.sort()
    return {
        name: [(second, quantile(seconds[second], part)) for second in sorted(seconds)]
        for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def rate(times: Iterable[float], end: float) -> Series:
    """The number of ``times`` in each second."""
    counts: dict[int, int] = defaultdict(int)
    for each in times:
        counts[int(each)] += 1
    return [(second, counts[second]) for second in range(int(end) + 1)]
