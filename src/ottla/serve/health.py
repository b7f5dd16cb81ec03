"""Answers the health probes of orchestrators, Prometheus, and `ottla proxy reload`.

Rules:
- The address has no login, so it is not for clients. Every path but ``/metrics`` is answered at once.
- At most `_SCRAPES` responses to ``/metrics`` are made or sent at a time: one may have megabytes. Further requests get
  an error at once: they would take the place of probes.
- A bug in a metric fails only the request: the server continues.
- ``POST /reload`` is answered to clients on this machine only.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict

import trio

from ottla.config_file import Reloaded
from ottla.errors import ConfigurationError
from ottla.serve.http_exchange import Response, Stream, is_near, send_response, serve_http
from ottla.serve.listener import listen
from ottla.serve.outbox import hang_up
from ottla.server_metrics import Collect

log = logging.getLogger("ottla.serve")

Reload = Callable[[], Reloaded]
"""Reads the configuration file again; raises `ConfigurationError` if it cannot be used."""

_REQUEST_TIMEOUT = 5.0
"""Seconds for a response of a few bytes."""
_SCRAPE_TIMEOUT = 10.0
"""Seconds for ``/metrics``: Prometheus' own default."""
_SCRAPES = 4
_CONNECTIONS = 16

Notes = Callable[[], Iterable[str]]


class HealthServer:
    """Answers the requests at one address.

    Args:
        ready: whether the server accepts requests of clients.
        collect: returns the samples of its metrics.
        notes: returns further lines for ``/health`` and ``/ready``, about what its operator should know.
        reload: reads the configuration file again; ``None``: the server has no file.
    """

    def __init__(
        self, ready: Callable[[], bool], collect: Collect, notes: Notes = tuple, *, reload: Reload | None = None
    ) -> None:
        self._ready, self._collect, self._notes, self._reload = ready, collect, notes, reload
        self._scrapes = trio.CapacityLimiter(_SCRAPES)
        self._metrics = _metrics_page()

    async def answer(self, stream: Stream, method: bytes, path: bytes) -> None:
        """Answer one request.

        Raises:
            TooSlowError: the response is not made, and read by the client, within some seconds.
        """
        with trio.fail_after(_REQUEST_TIMEOUT) as scope:
            if path == b"/reload":
                await send_response(stream, self._reloaded(method, near=is_near(stream)))
            elif path == b"/metrics":
                scope.deadline = trio.current_time() + _SCRAPE_TIMEOUT
                await self._scrape(stream)
            else:
                await send_response(stream, self._probed(path))

    async def _scrape(self, stream: Stream) -> None:
        try:
            self._scrapes.acquire_nowait()
        except trio.WouldBlock:
            await send_response(stream, Response("503 Service Unavailable", b"too many clients read the metrics\n"))
            return
        try:
            await send_response(stream, await self._scraped())
        finally:
            self._scrapes.release()

    async def _scraped(self) -> Response:
        try:
            return await self._metrics(self._collect)
        except Exception:
            log.exception("a bug, please report it: the metrics cannot be collected")
            return Response("500 Internal Server Error", b"see the log\n")

    def _reloaded(self, method: bytes, *, near: bool) -> Response:
        if method != b"POST":
            return Response("405 Method Not Allowed", b"use POST /reload\n")
        if not near:
            return Response("403 Forbidden", b"call /reload from the machine that the server runs on\n")
        if self._reload is None:
            return Response("409 Conflict", b"the server was started without --config\n")
        try:
            reloaded = self._reload()
        except ConfigurationError as error:
            return Response("422 Unprocessable Content", f"{error}\n".encode())
        except Exception:
            log.exception("a bug, please report it: the configuration cannot be reloaded")
            return Response("500 Internal Server Error", b"see the log\n")
        return Response("200 OK", json.dumps(asdict(reloaded)).encode() + b"\n", "application/json")

    def _probed(self, path: bytes) -> Response:
        notes = "".join(f"{each}\n" for each in self._notes()).encode()
        if path == b"/health":
            return Response("200 OK", b"ok\n" + notes)
        if path == b"/ready":
            if self._ready():
                return Response("200 OK", b"ok\n" + notes)
            return Response("503 Service Unavailable", b"not ready\n" + notes)
        return Response("404 Not Found", b"ask /health, /ready or /metrics\n")


async def serve_health(
    host: str,
    port: int,
    ready: Callable[[], bool],
    collect: Collect,
    notes: Notes = tuple,
    *,
    reload: Reload | None = None,
    opened: Callable[[int], None],
) -> None:
    """Answer ``GET /health`` (200 while the process lives), ``/ready`` (200 or 503) and ``/metrics``.

    Args:
        collect: returns the samples of the server's metrics.
        notes: returns further lines for ``/health`` and ``/ready``.
        reload: reads the configuration file again, at ``POST /reload``; ``None``: the server has no file.
        opened: called with the port once it listens.

    Raises:
        ConfigurationError: the address cannot be used.
    """

    listeners = await listen(host, port, " for health checks")
    server = HealthServer(ready, collect, notes, reload=reload)
    opened(listeners[0].socket.getsockname()[1])
    try:
        await serve_http(listeners, server.answer, _CONNECTIONS)
    finally:
        for each in listeners:
            hang_up(each.socket)


def _metrics_page() -> Callable[[Collect], Awaitable[Response]]:
    """Return the function that answers ``/metrics``."""
    try:
        from ottla.serve.metrics_page import CONTENT_TYPE, render
    except ImportError as error:
        if error.name == "prometheus_client":
            return _no_metrics
        log.exception("prometheus-client is installed, but cannot be imported")
        return _broken_metrics

    async def page(collect: Collect) -> Response:
        return Response("200 OK", await render(collect), CONTENT_TYPE)

    return page


async def _no_metrics(collect: Collect) -> Response:
    advice = b"prometheus-client is not installed: pip install 'ottla[prometheus]', and restart the server\n"
    return Response("501 Not Implemented", advice)


async def _broken_metrics(collect: Collect) -> Response:
    return Response("500 Internal Server Error", b"prometheus-client cannot be imported: see the log\n")
