"""Metrics of both servers: bounds, histograms, the page for Prometheus, and the counts of a listener."""

import sys

import pytest
import trio
from trio.testing import memory_stream_pair

from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.frames import build_request, framed
from ottla.serve import ListenerLimits
from ottla.serve.health import HealthServer
from ottla.serve.http_exchange import Exchanges
from ottla.serve.metrics_page import render
from ottla.serve.traffic import REQUESTS, TRAFFIC_METRICS, ListenerTraffic
from ottla.server_metrics import (
    BOUNDS,
    LONGEST_LABEL,
    MOST_SERIES,
    OTHER,
    Collect,
    Histogram,
    MetricKind,
    Sample,
    Samples,
    Series,
    ServerMetric,
)
from tests.scraping import Scraped
from tests.serving import Desk, closed, received, until
from tests.tcp import listening, peer

SIZE = ServerMetric("size", MetricKind.GAUGE, "bytes", ("topic",))
COUNT = ServerMetric("records_total", MetricKind.COUNTER, "records", ("topic",))
TIME = ServerMetric("time", MetricKind.HISTOGRAM, "milliseconds", ("request",))


async def page(*samples: Sample) -> Scraped:
    return Scraped((await render(lambda: iter(samples))).decode())


# -- bounds


def test_labels_beyond_the_bound_are_summed_as_one() -> None:
    series = Series(SIZE, COUNT)
    for n in range(MOST_SERIES + 50):
        series.add((f"topic-{n}",), 10, 1)
    series.add(("topic-7",), 5, 0)
    samples = list(series.samples())
    assert len(samples) == 2 * (MOST_SERIES + 1)
    assert Sample(SIZE, 15, ("topic-7",)) in samples
    assert [each for each in samples if each.labels == (OTHER,)] == [
        Sample(SIZE, 500, (OTHER,)),
        Sample(COUNT, 50, (OTHER,)),
    ]


def test_long_labels_are_cut_and_never_make_two_series_with_the_same_labels() -> None:
    series = Series(SIZE)
    for end in ("a", "b"):
        series.add(("x" * LONGEST_LABEL + end,), 1)
    assert list(series.samples()) == [Sample(SIZE, 2, ("x" * LONGEST_LABEL,))]


def test_a_client_that_names_itself_like_the_rest_is_counted_with_it() -> None:
    series = Series(SIZE)
    series.add((OTHER,), 1)
    for n in range(MOST_SERIES + 1):
        series.add((f"{n}",), 1)
    assert {each.labels: each.value for each in series.samples()}[OTHER,] == 3


# -- the page


async def test_a_histogram_counts_durations_up_to_each_bound() -> None:
    histogram = Histogram()
    for milliseconds in (BOUNDS[0], BOUNDS[1], BOUNDS[1] + 0.01, 2 * BOUNDS[-1]):
        histogram.observe(milliseconds / 1000)
    scraped = await page(Sample(TIME, histogram + histogram, ("Fetch",)))
    buckets = [
        scraped.value("time_bucket", request="Fetch", le=f"{bound:.15g}" if bound % 1 else f"{bound}")
        for bound in BOUNDS
    ]
    assert buckets == [2, 4, *[6] * (len(BOUNDS) - 2)]
    assert scraped.value("time_count", request="Fetch") == 8
    assert scraped.value("time_sum", request="Fetch") == pytest.approx(2 * (0.25 + 0.5 + 0.51 + 60_000))


async def test_labels_with_any_characters_arrive_whole() -> None:
    label = 'a "quote", a \\, a\nline, and 漢'
    assert (await page(Sample(SIZE, 1, (label,)))).value("size", topic=label) == 1


async def test_other_tasks_run_while_a_large_page_is_made() -> None:
    turns = 0

    def collect() -> Samples:
        series = Series(SIZE, COUNT)
        for n in range(50_000):
            series.add((f"topic-{n}",), 1, 2)
            yield None
        yield from series.samples()

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        scraped = Scraped((await render(collect)).decode())
        nursery.cancel_scope.cancel()
    assert len(scraped.values("size")) == MOST_SERIES + 1
    assert scraped.value("records_total", topic=OTHER) == 2 * (50_000 - MOST_SERIES)
    assert turns >= 5, "each turn takes a millisecond"


async def answered(request: bytes, collect: Collect) -> tuple[bytes, bytes]:
    stream, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Exchanges(HealthServer(lambda: True, collect).answer, 2).serve, theirs)
        await stream.send_all(request)
        answer = b"".join([data async for data in stream])
        await stream.aclose()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


async def test_prometheus_gets_the_page_with_its_content_type() -> None:
    head, body = await answered(
        b"GET /metrics?name[]=size HTTP/1.1\r\n\r\n", lambda: iter((Sample(SIZE, 3, ("a",)), None))
    )
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
    assert Scraped(body.decode()).value("size", topic="a") == 3


async def test_without_prometheus_client_the_page_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "ottla.serve.metrics_page")
    head, body = await answered(b"GET /metrics HTTP/1.1\r\n\r\n", lambda: iter(()))
    assert head.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    assert b"pip install 'ottla[prometheus]'" in body
    assert (await answered(b"GET /ready HTTP/1.1\r\n\r\n", lambda: iter(())))[1] == b"ok\n"


async def test_a_broken_installation_of_prometheus_client_is_not_taken_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.registry", None)
    monkeypatch.delitem(sys.modules, "ottla.serve.metrics_page")
    head, body = await answered(b"GET /metrics HTTP/1.1\r\n\r\n", lambda: iter(()))
    assert head.startswith(b"HTTP/1.1 500 ") and b"cannot be imported: see the log" in body
    assert caplog.messages == ["prometheus-client is installed, but cannot be imported"]
    assert "prometheus_client.registry" in caplog.text


async def test_a_metric_with_a_bug_fails_its_page_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def collect() -> Samples:
        yield Sample(SIZE, 1, ("a",))
        raise KeyError("b")

    head, body = await answered(b"GET /metrics HTTP/1.1\r\n\r\n", collect)
    assert head.startswith(b"HTTP/1.1 500 ") and body == b"see the log\n"
    assert caplog.messages == ["a bug, please report it: the metrics cannot be collected"]


# -- a listener


async def test_a_listener_counts_requests_bytes_and_connections() -> None:
    metadata = build_request(MetadataRequest(topics=()), 9, 1, "client")
    fetch = build_request(FetchRequest(max_wait_ms=0, min_bytes=0, topics=()), 12, 2, "client")
    nonsense = framed(b"\x7f\xff\0\0 no such API")
    desk = Desk(lambda frame, answer: answer.send(b"answer", errors=(3, 3, 0x7FF0) if frame[1] == 3 else ()))
    async with listening(desk, ListenerLimits(max_connections=2)) as (listener, port), peer(port) as one:
        for data in (metadata, metadata, fetch, nonsense):
            await one.send_all(data)
            await received(one, 6)
        async with peer(port) as another:
            await another.send_all(b"GET / HTTP/1.1\r\n\r\n")
            await closed(another)
        await until(lambda: desk.left)
        async with peer(port), peer(port) as refused:
            await closed(refused)
            scraped = await page(*listener.samples())
    assert scraped.names >= {each.name for each in TRAFFIC_METRICS}
    requests = scraped.values("kafka_network_requestmetrics_requests_total")
    assert requests == {("Metadata",): 2, ("Fetch",): 1, ("unknown",): 1}
    assert scraped.values("kafka_network_requestmetrics_totaltimems_count") == requests
    assert scraped.values("kafka_network_requestmetrics_errors_total") == {
        ("UNKNOWN_TOPIC_OR_PARTITION", "Metadata"): 4,
        ("UNKNOWN_SERVER_ERROR", "Metadata"): 2,
    }
    sent = sum(map(len, (metadata, metadata, fetch, nonsense, b"GET / HTTP/1.1\r\n\r\n")))
    assert scraped.value("kafka_server_socket_server_metrics_incoming_byte_total") == sent
    assert scraped.value("kafka_server_socket_server_metrics_outgoing_byte_total") == 4 * len(b"answer")
    assert scraped.value("kafka_server_socket_server_metrics_connection_creation_total") == 4
    assert scraped.value("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") == 2
    assert scraped.values("ottla_server_connections_refused_total") == {
        ("limit",): 1,
        ("tls",): 0,
        ("sasl",): 0,
        ("request",): 1,
    }


def test_clients_cannot_add_series_for_apis_or_errors() -> None:
    traffic = ListenerTraffic()
    for key in range(2**16):
        traffic.requested(key.to_bytes(2, "big") + bytes(6)).failed((key - 2**15,))
    traffic.requested(bytes(8)).failed(range(-(2**15), 2**15))
    samples = list(traffic.samples({}))
    assert len(samples) < 1000
    names = {each.labels for each in samples if each.metric.name == "kafka_network_requestmetrics_requests_total"}
    assert len(names) < 100 and ("unknown",) in names


def test_frames_that_are_too_short_for_an_api_key_are_requests_of_no_api() -> None:
    traffic = ListenerTraffic()
    for frame in (b"", b"\0", b"\3"):
        traffic.requested(frame)
    counted = [each.labels for each in traffic.samples({}) if each.metric is REQUESTS]
    assert counted == [("unknown",)]
