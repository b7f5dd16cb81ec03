"""Metrics under Kafka's names: counters, gauges, rates, averages and maxima, which the machines update as they work.

    sent = core.metrics.meter("record-send", topic="orders")       # record-send-rate, record-send-total
    latency = core.metrics.timing("request-latency", node_id=3)    # request-latency-avg, request-latency-max
    lag = core.metrics.gauge("records-lag", topic="orders", partition=0)
    ...
    sent.add(100, now)            # a handle is looked up once and kept: an update costs a fraction of a microsecond
    latency.record(0.004, now)
    lag.set(17)
    core.metrics.remove(lag)      # its partition was revoked
    leave = core.metrics.share("buffer-available-bytes", lambda now: free)  # several owners: the sum is shown

Rules:
- Update per batch or request, never per record.
- Kafka's names without their suffix (``-rate``, ``-total``, ``-avg``, ``-max``) if a handle feeds several metrics; full
  names for `counter` and `gauge`. Tags are keywords (``node_id`` is Kafka's ``node-id``); all have ``client-id``.
- The same name and tags give the same handle to every caller; it is shown until all of them have removed it. If several
  owners with the same tags each know a part of the value, and may end one before the other, they use `Metrics.share`.
- Times are given in seconds and shown in milliseconds, as Kafka shows them. A value that was never measured is NaN.
- Rates, averages and maxima cover the last 30 to 60 seconds: two windows, by the ``now`` that machines are given.
- Nothing here reads a clock, and reading changes nothing, so any thread may take a `snapshot`.

Source: the metric names of SenderMetricsRegistry.java, FetchMetricsRegistry.java, ConsumerCoordinatorMetrics.java and
Selector.java (SelectorMetrics); MetricConfig.java for two windows of 30 seconds.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

WINDOW = 30.0
"""Seconds of one window; two are kept."""


class Metric(NamedTuple):
    """One value at one time, as `Client.metrics` returns it.

    Attributes:
        name: Kafka's, such as ``record-send-rate`` (a second) or ``request-latency-avg``.
        tags: by Kafka's names: ``client-id``, ``node-id``, ``topic``, ``partition``, ``group``. Nodes are named as in
            Java: ``node-3``, and ``node--1`` and so on for the bootstrap addresses.
        value: NaN without a measurement; times are in milliseconds, sizes in bytes.
        cumulative: whether it only grows (a total); everything else is a gauge.
    """

    name: str
    tags: dict[str, str]
    value: float
    cumulative: bool


class Counter:
    """Counts up."""

    __slots__ = ("_name", "value")

    def __init__(self, name: str) -> None:
        self._name = name
        self.value = 0.0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def read(self, now: float) -> Iterator[tuple[str, float, bool]]:
        yield self._name, self.value, True


class Gauge:
    """Goes up and down; its value is the last one set, or the result of ``ask(now)``."""

    __slots__ = ("_ask", "_name", "value")

    def __init__(self, name: str, ask: Callable[[float], float] | None = None) -> None:
        self._name, self._ask = name, ask
        self.value = math.nan

    def add(self, amount: float = 1) -> None:
        """Go up or down; only after a `set`."""
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value

    def read(self, now: float) -> Iterator[tuple[str, float, bool]]:
        yield self._name, self._ask(now) if self._ask else self.value, False


class SumGauge:
    """Goes up and down; its value is the sum over all owners."""

    __slots__ = ("_name", "asks")

    def __init__(self, name: str) -> None:
        self._name = name
        self.asks: dict[Callable[[float], float], None] = {}

    def read(self, now: float) -> Iterator[tuple[str, float, bool]]:
        yield self._name, math.fsum(ask(now) for ask in list(self.asks)), False


class Windows:
    """Keeps two windows of time: the current one and the one before."""

    __slots__ = ("_before", "_ends_at", "_name", "_since", "count", "highest", "sum")

    def __init__(self, name: str) -> None:
        self._name = name
        self.count, self.sum, self.highest = 0, 0.0, -math.inf
        self._before = (0, 0.0, -math.inf)
        self._since = math.nan
        """When the earlier window began."""
        self._ends_at = -math.inf
        """When the current window ends."""

    def _rotate(self, now: float) -> None:
        recent = now < self._ends_at + WINDOW
        self._before = (self.count, self.sum, self.highest) if recent else (0, 0.0, -math.inf)
        self._since = self._ends_at - WINDOW if recent else now
        self._ends_at = now - (now - self._ends_at) % WINDOW + WINDOW if recent else now + WINDOW
        self.count, self.sum, self.highest = 0, 0.0, -math.inf

    def both(self, now: float) -> tuple[int, float, float, float]:
        """Count, sum, maximum and seconds of all values that are not too old at ``now``."""
        if now >= self._ends_at + WINDOW:
            return 0, 0.0, -math.inf, WINDOW
        if now >= self._ends_at:  # no value since the current window ended
            return self.count, self.sum, self.highest, now - self._ends_at + WINDOW
        count, total, highest = self._before
        return self.count + count, self.sum + total, max(self.highest, highest), now - self._since


class Meter(Windows):
    """Shows a total, and a rate per second."""

    __slots__ = ("total",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.total = 0.0

    def add(self, amount: float, now: float) -> None:
        if now >= self._ends_at:
            self._rotate(now)
        self.sum += amount
        self.total += amount

    def read(self, now: float) -> Iterator[tuple[str, float, bool]]:
        _, amount, _, seconds = self.both(now)
        yield f"{self._name}-rate", amount / max(seconds, 1.0), False
        yield f"{self._name}-total", self.total, True


class Spread(Windows):
    """Shows the average and the maximum of recorded values; ``unit`` is their factor when shown."""

    __slots__ = ("_unit",)

    def __init__(self, name: str, unit: float = 1.0) -> None:
        super().__init__(name)
        self._unit = unit

    def record(self, value: float, now: float) -> None:
        if now >= self._ends_at:
            self._rotate(now)
        self.count += 1
        self.sum += value
        if value > self.highest:
            self.highest = value

    def read(self, now: float) -> Iterator[tuple[str, float, bool]]:
        count, amount, highest, _ = self.both(now)
        yield f"{self._name}-avg", amount / count * self._unit if count else math.nan, False
        yield f"{self._name}-max", highest * self._unit if count else math.nan, False


Handle = Counter | Gauge | SumGauge | Meter | Spread
H = TypeVar("H", Counter, Gauge, SumGauge, Meter, Spread)
Tags = tuple[tuple[str, str], ...]


class Metrics:
    """All metrics of one client. ``client_id`` becomes a tag of each."""

    def __init__(self, client_id: str = "") -> None:
        self._client_id = client_id
        self._handles: dict[tuple[str, Tags], Handle] = {}
        self._owners: dict[Handle, tuple[tuple[str, Tags], int]] = {}
        """The key of each handle, and how many callers hold it."""

    def counter(self, name: str, **tags: object) -> Counter:
        """A total, such as ``rebalance-total``."""
        return self._handle(name, tags, Counter(name))

    def gauge(self, name: str, ask: Callable[[float], float] | None = None, **tags: object) -> Gauge:
        """A current value, such as ``records-lag``: the last one set, or with ``ask`` its result when read."""
        return self._handle(name, tags, Gauge(name, ask))

    def share(self, name: str, ask: Callable[[float], float], **tags: object) -> Callable[[], None]:
        """Add a part to a sum, such as ``buffer-available-bytes``; returns a function that removes the part again."""
        handle = self._handle(name, tags, SumGauge(name))
        handle.asks[ask] = None

        def leave() -> None:
            if ask in handle.asks:
                del handle.asks[ask]
                self.remove(handle)

        return leave

    def meter(self, name: str, **tags: object) -> Meter:
        """``record-send`` becomes ``record-send-rate`` (per second) and ``record-send-total``."""
        return self._handle(name, tags, Meter(name))

    def spread(self, name: str, **tags: object) -> Spread:
        """``batch-size`` becomes ``batch-size-avg`` and ``batch-size-max``."""
        return self._handle(name, tags, Spread(name))

    def timing(self, name: str, **tags: object) -> Spread:
        """``commit-latency`` becomes ``commit-latency-avg`` and ``-max``: recorded in seconds, shown in ms."""
        return self._handle(name, tags, Spread(name, 1000.0))

    def remove(self, *handles: Handle) -> None:
        """Release handles that the caller no longer needs: the partition was revoked, the node is gone."""
        for handle in handles:
            key, owners = self._owners.pop(handle)
            if owners > 1:
                self._owners[handle] = (key, owners - 1)
            else:
                del self._handles[key]

    def snapshot(self, now: float) -> list[Metric]:
        """Every metric at ``now``."""
        common = {"client-id": self._client_id}
        # Another thread may register metrics meanwhile. A copy is a single step. A list of the items is not: the
        # garbage collector may run before each tuple, and with it other code.
        return [
            Metric(name, common | dict(tags), value, cumulative)
            for (_, tags), handle in self._handles.copy().items()
            for name, value, cumulative in handle.read(now)
        ]

    def value(self, name: str, now: float, **tags: object) -> float:
        """The value of ``name`` with ``tags`` among its tags, summed if several have them; NaN if none has."""
        asked = dict(_named(tags)).items()
        found = [each.value for each in self.snapshot(now) if each.name == name and asked <= each.tags.items()]
        return math.fsum(found) if found else math.nan

    def _handle(self, name: str, tags: dict[str, object], new: H) -> H:
        key = (name, _named(tags))
        handle = self._handles.setdefault(key, new)
        if type(handle) is not type(new):
            raise TypeError(f"the metric {name!r} is a {type(handle).__name__}, not a {type(new).__name__}")
        self._owners[handle] = (key, self._owners.get(handle, (key, 0))[1] + 1)
        return handle


def _named(tags: dict[str, object]) -> Tags:
    return tuple(sorted((key.replace("_", "-"), str(value)) for key, value in tags.items()))
