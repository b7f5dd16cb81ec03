"""Answers the health probes of orchestrators, and Prometheus.

Rules:
- The address has no login, so it is not for clients. Every path but ``/metrics`` is answered at once.
- At most `_SCRAPES` responses to ``/metrics`` are made or sent at a time: one may have megabytes.
- A bug in a metric fails only the request: the server continues.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import trio

from ottla.serve.listener import listen
from ottla.serve.outbox import hang_up
from ottla.server_metrics import Collect

log = logging.getLogger("ottla.serve")

_REQUEST_TIMEOUT = 5.0
"""Seconds for a request, and its response of a few bytes."""
_SCRAPE_TIMEOUT = 10.0
"""Seconds for ``/metrics``: Prometheus' own default."""
_SCRAPES = 4
_LONGEST_REQUEST = 8192

Notes = Callable[[], Iterable[str]]


class Response(NamedTuple):
    """A response to one HTTP request."""

    status: str
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HealthServer:
    """Answers the requests at one address.

    Args:
        ready: whether the server accepts requests of clients.
        collect: returns the samples of its metrics.
        notes: returns further lines for ``/ready``, about what its operator should know.
    """

    def __init__(self, ready: Callable[[], bool], collect: Collect, notes: Notes = tuple) -> None:
        self._ready, self._collect, self._notes = ready, collect, notes
        self._scrapes = trio.CapacityLimiter(_SCRAPES)
        self._metrics = _metrics_page()

    async def answer(self, stream: trio.abc.Stream) -> None:
        """Answer the request of one connection, within a few seconds, and close the connection."""
        try:
            with trio.move_on_after(_REQUEST_TIMEOUT) as scope:
                path = await _path(stream)
                if path == b"/metrics":
                    scope.deadline = trio.current_time() + _SCRAPE_TIMEOUT
                    async with self._scrapes:
                        await _send(stream, await self._scraped())
                else:
                    await _send(stream, self._probed(path))
        except trio.BrokenResourceError:
            pass
        await trio.aclose_forcefully(stream)

    async def _scraped(self) -> Response:
        try:
            return await self._metrics(self._collect)
        except Exception:
            log.exception("a bug, please report it: the metrics cannot be collected")
            return Response("500 Internal Server Error", b"see the log\n")

    def _probed(self, path: bytes) -> Response:
        if path == b"/health":
            return Response("200 OK", b"ok\n")
        if path == b"/ready":
            notes = "".join(f"{each}\n" for each in self._notes()).encode()
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
    opened: Callable[[int], None],
) -> None:
    """Answer ``GET /health`` (200 while the process lives), ``/ready`` (200 or 503) and ``/metrics``.

    Args:
        collect: returns the samples of the server's metrics.
        notes: returns further lines for ``/ready``.
        opened: called with the port once it listens.

    Raises:
        ConfigurationError: the address cannot be used.
    """

    listeners = await listen(host, port, " for health checks")
    server = HealthServer(ready, collect, notes)
    opened(listeners[0].socket.getsockname()[1])
    try:
        await trio.serve_listeners(server.answer, listeners)
    finally:
        for each in listeners:
            hang_up(each.socket)


def _metrics_page() -> Callable[[Collect], Awaitable[Response]]:
    """Return the function that answers ``/metrics``."""
    try:
        from ottla.serve.metrics_page import CONTENT_TYPE, render
    except ModuleNotFoundError:
        return _no_metrics

    async def page(collect: Collect) -> Response:
        return Response("200 OK", await render(collect), CONTENT_TYPE)

    return page


async def _no_metrics(collect: Collect) -> Response:
    return Response("501 Not Implemented", b"prometheus-client is not installed: pip install 'ottla[prometheus]'\n")


async def _path(stream: trio.abc.Stream) -> bytes:
    """Read a request, and return its path without parameters."""
    request = b""
    while b"\r\n\r\n" not in request and len(request) < _LONGEST_REQUEST:
        if not (data := await stream.receive_some(4096)):
            break
        request += data
    target = request.split(b" ", 2)[1:2]
    return target[0].partition(b"?")[0] if target else b""


async def _send(stream: trio.abc.Stream, response: Response) -> None:
    head = (
        f"HTTP/1.1 {response.status}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
    )
    await stream.send_all(head.encode() + response.body)
