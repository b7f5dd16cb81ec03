"""OpenTelemetry spans: one for each request, in processes that have configured OpenTelemetry.

Rules:
- A process without a tracer provider pays nothing, not even the import.
- Spans are made in a thread, because a processor of spans may block. If too many requests wait for it, some get no
  span, and the log says how many.
- An exception of the provider, its processors or its exporters affects no request.
- Attributes have the names of OpenTelemetry's semantic conventions where there is one; other names begin with
  ``ottla``. A span has no parent: Kafka's requests carry no trace context, only records may.

Source: OpenTelemetry's semantic conventions for messaging, Kafka, client, server and network attributes.
"""

import logging
import math
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.codec.apis import NAMES
from ottla.errors import BY_CODE
from ottla.serve.answered import AnsweredRequest
from ottla.serve.observer_thread import ObserverThread
from ottla.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger("ottla.serve")

_BETWEEN = 60.0
"""Seconds between two lines about dropped spans."""
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
"""The environment variable that names a provider."""
_KIND = {0: "send", 1: "receive", 78: "receive", 8: "settle", 28: "settle", 79: "settle"}
"""API key -> the type of the operation: Produce; Fetch and ShareFetch; the commits and ShareAcknowledge."""


def configured_tracer() -> "Tracer | None":
    """The tracer of the process; ``None`` if it has not configured OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules and _PROVIDER not in os.environ:
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return provider.get_tracer("ottla", __version__)


class Spans(ObserverThread):
    """Makes the spans; an observer of requests."""

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer
        self._untold, self._tell_at = 0, 0.0
        """How many dropped spans the log has not told of, and when it may do so."""
        self._failing = False
        """The last span was not made."""
        super().__init__("spans")

    # -- in the thread

    def _take(self, requests: Sequence[AnsweredRequest], dropped: int) -> None:
        self._untold += dropped
        self._tell_of_dropped(time.monotonic())
        for request in requests:
            try:
                self._trace(request)
                self._failing = False
            except Exception:  # of the provider, a processor or an exporter
                if not self._failing:
                    log.exception("spans not made: the tracer provider or one of its processors raises")
                self._failing = True

    def _close(self) -> None:
        self._tell_of_dropped(math.inf)

    def _tell_of_dropped(self, now: float) -> None:
        if self._untold and now >= self._tell_at:
            log.warning(
                "spans dropped, because span processors are slower than requests", extra={"spans": self._untold}
            )
            self._untold, self._tell_at = 0, now + _BETWEEN

    def _trace(self, request: AnsweredRequest) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode

        span = self._tracer.start_span(
            NAMES.get(request.key, "unknown"),
            context=Context(),
            kind=SpanKind.SERVER,
            attributes=attributes_of(request),
            start_time=request.at - int(request.seconds * 1e9),
        )
        if failure := failure_of(request):
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(end_time=request.at)


def attributes_of(request: AnsweredRequest) -> dict[str, str | int]:
    """The attributes of a request's span."""
    client = request.client
    found: dict[str, str | int | None] = {
        "messaging.system": "kafka",
        "messaging.operation.name": NAMES.get(request.key, "unknown"),
        "messaging.operation.type": _KIND.get(request.key),
        "messaging.client.id": request.client_id,
        "client.address": client.peer_host,
        "client.port": client.peer_port,
        "server.address": client.local_host,
        "server.port": client.local_port,
        "network.transport": "tcp",
        "network.protocol.name": "kafka",
        "error.type": failure_of(request) or None,
        "ottla.api.version": request.version,
        "ottla.request.size": request.size,
        "ottla.response.size": request.response,
    }
    return {name: value for name, value in found.items() if value is not None}


def failure_of(request: AnsweredRequest) -> str:
    """Kafka's name of the first error in the response; empty if the server knows of none."""
    if request.response is None:
        return "connection ended"
    code = next((code for code in request.errors if code), 0)
    return "" if not code else BY_CODE[code].name if code in BY_CODE else str(code)
