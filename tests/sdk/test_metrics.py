"""Metrics: every counted value is reported under Kafka's name, for as long as it is valid."""

import gc
import math
import operator
import random
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from functools import partial
from types import CodeType, FrameType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ottla.sdk.consume.partitions.position import Offset
from ottla.sdk.core import ClientCore
from ottla.sdk.metrics import Metric, Metrics
from ottla.sdk.options import Options
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.prometheus import Collector
from tests.sdk.leaders import Leaders
from tests.sdk.reading import reader

NAN = math.nan


def told(metrics: Metrics, now: float) -> dict[str, float]:
    return {each.name: each.value for each in metrics.snapshot(now)}


def test_a_handle_feeds_the_metrics_that_kafka_derives_from_it() -> None:
    metrics = Metrics("me")
    metrics.counter("rebalance-total", group="g").add()
    metrics.gauge("records-lag").set(17)
    metrics.gauge("last-heartbeat-seconds-ago", lambda now: now - 3.0)
    metrics.meter("record-send").add(100, 0.0)
    metrics.spread("batch-size").record(10, 0.0)
    metrics.timing("commit-latency").record(0.25, 0.0)
    assert told(metrics, 10.0) == {
        "rebalance-total": 1,
        "records-lag": 17,
        "last-heartbeat-seconds-ago": 7.0,
        "record-send-rate": 10.0,
        "record-send-total": 100,
        "batch-size-avg": 10,
        "batch-size-max": 10,
        "commit-latency-avg": 250.0,
        "commit-latency-max": 250.0,
    }
    assert metrics.snapshot(0.0)[0] == Metric("rebalance-total", {"client-id": "me", "group": "g"}, 1, True)


def test_what_is_shared_is_the_sum_over_those_who_share_it_and_gone_with_the_last() -> None:
    metrics = Metrics()
    leave = [metrics.share("free", partial(operator.mul, n)) for n in (1, 10)]
    assert told(metrics, 2.0) == {"free": 22}
    leave[0]()
    leave[0]()
    assert told(metrics, 2.0) == {"free": 20}
    leave[1]()
    assert told(metrics, 2.0) == {}


@pytest.mark.parametrize(
    "now, rate, highest",
    [(1, 60, 60), (29.9, 60 / 29.9, 60), (30, 2, 60), (59.9, 60 / 59.9, 60), (60, 0, NAN), (1e6, 0, NAN)],
)
def test_what_is_older_than_two_windows_does_not_count(now: float, rate: float, highest: float) -> None:
    metrics = Metrics()
    metrics.meter("bytes").add(60, 0.0)
    metrics.spread("size").record(60, 0.0)
    assert told(metrics, now) == pytest.approx(
        {"bytes-rate": rate, "bytes-total": 60, "size-avg": highest, "size-max": highest}, nan_ok=True
    )


def test_a_steady_stream_has_its_rate_average_and_maximum_at_any_time() -> None:
    metrics = Metrics()
    meter, spread = metrics.meter("n"), metrics.spread("x")
    for tick in range(1, 3000):
        now = 1000 + tick * 0.1
        meter.add(5, now)
        spread.record(tick % 7, now)
        if tick > 20:
            values = told(metrics, now)
            assert values["n-rate"] == pytest.approx(50, rel=0.1), now
            assert values["x-avg"] == pytest.approx(3, rel=0.2) and values["x-max"] == 6


def test_after_a_long_silence_windows_start_again() -> None:
    metrics = Metrics()
    meter = metrics.meter("n")
    meter.add(1_000_000, 0.0)
    meter.add(10, 500.0)
    assert told(metrics, 510.0) == {"n-rate": 1.0, "n-total": 1_000_010}


def test_the_same_name_and_tags_are_the_same_handle_and_removed_ones_are_told_no_more() -> None:
    metrics = Metrics()
    one, two = (
        metrics.gauge("records-lag", topic="t", partition=0),
        metrics.gauge("records-lag", topic="t", partition=1),
    )
    assert metrics.gauge("records-lag", partition="0", topic="t") is one and one is not two
    one.set(1)
    two.set(2)
    assert metrics.value("records-lag", 0.0, topic="t") == 3
    metrics.remove(one, two)
    assert metrics.value("records-lag", 0.0) == 1, "registered twice, removed once"
    metrics.remove(one)
    assert math.isnan(metrics.value("records-lag", 0.0))
    assert math.isnan(metrics.value("records-lag", 0.0, topic="other"))


def test_a_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("x-total")
    with pytest.raises(TypeError, match="'x-total' is a Counter, not a Gauge"):
        metrics.gauge("x-total")


def test_prometheus_gets_all_of_it() -> None:
    class Measured:
        def metrics(self) -> list[Metric]:
            return metrics.snapshot(10.0)

    metrics = Metrics("me")
    metrics.meter("record-send").add(100, 0.0)
    metrics.meter("record-send", topic="t").add(60, 0.0)
    metrics.timing("request-latency", node_id=3)
    registry = CollectorRegistry()
    registry.register(Collector(Measured()))
    lines = generate_latest(registry).decode().splitlines()
    assert 'ottla_record_send_total{client_id="me",topic=""} 100.0' in lines
    assert 'ottla_record_send_total{client_id="me",topic="t"} 60.0' in lines
    assert 'ottla_record_send_rate{client_id="me",topic="t"} 6.0' in lines
    assert 'ottla_request_latency_avg{client_id="me",node_id="3"} NaN' in lines
    assert lines.count("# TYPE ottla_record_send_total counter") == 1


def test_a_snapshot_of_another_thread_may_be_overtaken_by_the_machines_at_any_line() -> None:
    leaders = Leaders({"t": 1}, options=Options(rack="r1"))
    core, asked = leaders.core, 0
    lines = Counter[tuple[CodeType, int]]()
    fetcher = reader(leaders, {("t", 0): Offset(0)})
    producers = [ProducerCore(core, ProducerOptions(), random.Random(0))]
    expected = {each.name for each in core.metrics.snapshot(0.0)}
    assert expected >= {"records-lag", "records-lag-max", "preferred-read-replica", "metadata-age", "waiting-threads"}

    def overtaken(frame: FrameType, event: str, argument: Any) -> Any:
        """Runs before each line of the snapshot, in place of a loop in another thread."""
        nonlocal asked
        lines[frame.f_code, frame.f_lineno] += 1
        if lines[frame.f_code, frame.f_lineno] > 30:  # otherwise the snapshot would never reach its end
            return overtaken
        asked += 1
        if asked % 7 == 0:
            fetcher.unassign(fetcher.assignment[1:4])
        fetcher.assign({("t", asked): Offset(0)}, 0.0)
        if asked % 9 == 0:
            producers.append(ProducerCore(core, ProducerOptions(), random.Random(0)))
        return overtaken

    def in_the_middle_of_a_call(phase: str, info: Any) -> None:
        """Run as the collector does: also in the middle of the call that makes a list."""

    before, threshold = sys.gettrace(), gc.get_threshold()
    gc.callbacks.append(in_the_middle_of_a_call)
    sys.settrace(overtaken)
    gc.freeze()  # a collection of everything that pytest has would take most of a minute
    gc.set_threshold(1)
    try:
        there = core.metrics.snapshot(0.0)
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
        sys.settrace(before)
        gc.callbacks.remove(in_the_middle_of_a_call)
    assert {each.name for each in there} >= expected and asked > 100


def test_the_core_asks_every_part_what_it_waits_for_in_the_order_of_their_coming() -> None:
    class Part:
        def __init__(self, line: str) -> None:
            self.line = line

        def explain(self, now: float) -> Iterator[str]:
            yield f"{self.line} since {now:g} s"

        def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
            return {"records": 2}

    core = ClientCore([("b", 9092)], Options(), random.Random(0))
    assert list(core.explain(0.0)) == []
    for part in (Part("b"), Part("a")):
        core.parts[part] = None
    assert list(core.explain(3.0)) == ["b since 3 s", "a since 3 s"]
    assert core.waiting(None) == {"records": 4}
