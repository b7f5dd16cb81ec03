"""Spans of OpenTelemetry for the requests of a listener; the listener and its peers are as in test_serve.py."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.frames import build_request, framed
from ottla.errors import NotLeaderOrFollower
from ottla.serve import PendingAnswer, observer_thread, tracing
from ottla.serve.pending_answer import ObservedAnswer
from ottla.serve.tracing import configured_tracer
from tests.pairs import listening, peer
from tests.patience import HUNG
from tests.serving import Desk, echo, received, until

METADATA = build_request(MetadataRequest(topics=()), 12, 1, "orders")


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


def configured(monkeypatch: pytest.MonkeyPatch, exporter: SpanExporter) -> None:
    """Configure OpenTelemetry for one test."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    configured(monkeypatch, exporter := InMemorySpanExporter())
    return exporter


async def test_a_request_makes_a_span(clock: MockClock, spans: InMemorySpanExporter) -> None:
    def refuse(frame: bytes, answer: PendingAnswer) -> None:
        answer.send(framed(b"no"), errors=[0, NotLeaderOrFollower.code])

    async with listening(Desk(refuse)) as (_, place), peer(place) as stream:
        await stream.send_all(METADATA)
        assert await received(stream, 6) == framed(b"no")
    [span] = spans.get_finished_spans()
    assert (span.name, span.kind, span.parent) == ("Metadata", SpanKind.SERVER, None)
    assert span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    assert attributes.pop("client.port", 0) >= 40_000  # type: ignore[operator]
    assert attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "Metadata",
        "messaging.client.id": "orders",
        "client.address": "127.0.0.1",
        "server.address": "127.0.0.1",
        "server.port": 9092,
        "network.transport": "tcp",
        "network.protocol.name": "kafka",
        "error.type": "NOT_LEADER_OR_FOLLOWER",
        "ottla.api.version": 12,
        "ottla.request.size": len(METADATA) - 4,
        "ottla.response.size": 6,
    }
    assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time


@pytest.mark.parametrize(
    ("frame", "name", "client_id"),
    [
        (b"", "unknown", None),
        (b"\0\1\0", "unknown", None),
        (b"\0\0\0\7\0\0\0\1\0\2id", "Produce", "id"),
        (b"\x03\xe7\0\0\0\0\0\1\0\2id", "unknown", None),
        (b"n,,\1auth=Bearer " + b"eyJ" * 100, "unknown", None),
        (b"\0alice\0correct horse", "unknown", None),
        (b"\0A\0 correct horse", "unknown", None),
        (b"\0\x12\0\5\0\0\0\1\0\2id", "ApiVersions", "id"),
        (b"\0\0\0\7\0\0\0\1\xff\xffrest", "Produce", None),
        (b"\0\0\0\7\0\0\0\1\x7f\xffshort", "Produce", "short"),
        (b"\0\0\0\7\0\0\0\1\0\1\xffrest", "Produce", "\ufffd"),
    ],
)
async def test_any_frame_makes_a_span(
    clock: MockClock, spans: InMemorySpanExporter, frame: bytes, name: str, client_id: str | None
) -> None:
    async with listening(Desk(echo)) as (_, place), peer(place) as stream:
        await stream.send_all(framed(frame))
        await received(stream, 4 + len(frame))
    [span] = spans.get_finished_spans()
    assert span.name == name
    assert (span.attributes or {}).get("messaging.client.id") == client_id


async def test_a_request_whose_connection_ends_makes_a_span(clock: MockClock, spans: InMemorySpanExporter) -> None:
    desk = Desk()
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(METADATA)
            await until(lambda: desk.asked)
            desk.connections[0].close("for the test")
        await until(lambda: not place.open)
        desk.places[desk.asked[0]].send(framed(b"late"))
    [span] = spans.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "connection ended"


class Stuck(SpanExporter):
    """An exporter that blocks."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def export(self, spans: object) -> SpanExportResult:
        self.go_on.wait(HUNG)
        return SpanExportResult.SUCCESS


class Broken(SpanExporter):
    """An exporter whose processor raises."""

    def export(self, spans: object) -> SpanExportResult:
        raise ValueError("no such collector")


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    configured(monkeypatch, exporter := Stuck())
    monkeypatch.setattr(observer_thread, "MOST_WAITING", 3)
    monkeypatch.setattr(observer_thread, "END", 0.0)
    yield exporter
    exporter.go_on.set()


async def test_an_exporter_that_blocks_delays_no_request_and_fills_no_memory(
    clock: MockClock, stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Desk(echo)) as (listener, place), peer(place) as stream:
        for _ in range(10):
            await stream.send_all(METADATA)
            await received(stream, len(METADATA))
        [observer] = listener._shared.observers
        assert isinstance(observer, tracing.Spans)
        stuck.go_on.set()
        observer.end()
        observer._thread.join(HUNG)
    lines = [each for each in caplog.records if each.message.startswith("spans dropped")]
    assert sum(each.__dict__["spans"] for each in lines) >= 10 - 6, "three at most are being exported, and three wait"


async def test_an_exporter_that_raises_disturbs_nobody(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(self: object, span: ReadableSpan) -> None:
        raise ValueError("no such collector")

    configured(monkeypatch, Broken())
    monkeypatch.setattr(SimpleSpanProcessor, "on_end", raising)
    caplog.set_level(logging.ERROR)
    async with listening(Desk(echo)) as (_, place), peer(place) as stream:
        for _ in range(3):
            await stream.send_all(METADATA)
            await received(stream, len(METADATA))
    assert [each.message.split(":")[0] for each in caplog.records] == ["spans not made"], "the log says so once"


async def test_a_process_that_has_not_configured_opentelemetry_observes_nothing(clock: MockClock) -> None:
    assert configured_tracer() is None
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(METADATA)
        await until(lambda: desk.asked)
        assert not isinstance(desk.places[desk.asked[0]], ObservedAnswer)


def test_a_server_does_not_import_opentelemetry_by_itself() -> None:
    program = (
        "import sys, ottla.serve.tracing as tracing; assert tracing.configured_tracer() is None; "
        "assert not any(each.startswith('opentelemetry') for each in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HUNG)
