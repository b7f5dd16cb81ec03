"""Answers the health probes of orchestrators, Prometheus, and `ottla proxy reload`.

Rules:
- The address has no login, so it is not for clients. Every path but ``/metrics`` is answered at once.
- At most `_SCRAPES` responses to ``/metrics`` are made or sent at a time: one may have megabytes.
- A bug in a metric fails only the request: the server continues.
- ``POST /reload`` is answered to clients on this machine only.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from ipaddress import ip_address
from typing import NamedTuple

import trio

from ottla.config_file import Reloaded
from ottla.errors import ConfigurationError
from ottla.serve.listener import listen
from ottla.serve.outbox import hang_up
from ottla.server_metrics import Collect

log = logging.getLogger("ottla.serve")

Reload = Callable[[], Reloaded]
"""Reads the configuration file again; raises `ConfigurationError` if it cannot be used."""

_REQUEST_TIMEOUT = 5.0
"""Seconds for a request, and its response of a few bytes."""
_SCRAPE_TIMEOUT = 10.0
"""Seconds for ``/metrics``: Prometheus' own default."""
_CLOSE_TIMEOUT = 1.0
"""Seconds for a client to close a connection whose response is sent."""
_SCRAPES = 4
_LONGEST_REQUEST = 8192
_LONGEST_REST = 2**20
"""Bytes of a request that are read, and ignored, after its response."""

Notes = Callable[[], Iterable[str]]


_HEAD_END = re.compile(rb"\n\r?\n")
"""A line may end without a carriage return: RFC 9112, section 2.2."""


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
        notes: returns further lines for ``/health`` and ``/ready``, about what its operator should know.
        reload: reads the configuration file again; ``None``: the server has no file.
    """

    def __init__(
        self, ready: Callable[[], bool], collect: Collect, notes: Notes = tuple, *, reload: Reload | None = None
    ) -> None:
        self._ready, self._collect, self._notes, self._reload = ready, collect, notes, reload
        self._scrapes = trio.CapacityLimiter(_SCRAPES)
        self._metrics = _metrics_page()

    async def answer(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Answer the request of one connection, within a few seconds, and close the connection."""
        try:
            with trio.move_on_after(_REQUEST_TIMEOUT) as scope:
                method, path = await _request(stream)
                if path == b"/reload":
                    await _send(stream, self._reloaded(method, near=_is_near(stream)))
                elif path == b"/metrics":
                    scope.deadline = trio.current_time() + _SCRAPE_TIMEOUT
                    async with self._scrapes:
                        await _send(stream, await self._scraped())
                else:
                    await _send(stream, self._probed(path))
            if not scope.cancelled_caught:
                await _end(stream)
        except (trio.BrokenResourceError, OSError):  # the client has gone
            pass
        await trio.aclose_forcefully(stream)

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
        await trio.serve_listeners(server.answer, listeners)
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


async def _request(stream: trio.abc.Stream) -> tuple[bytes, bytes]:
    """Read a request, and return its method, and its path without parameters."""
    request = b""
    while not _HEAD_END.search(request) and len(request) < _LONGEST_REQUEST:
        if not (data := await stream.receive_some(4096)):
            break
        request += data
    method, _, rest = request.partition(b" ")
    return method, rest.partition(b" ")[0].partition(b"?")[0]


def _is_near(stream: trio.abc.Stream) -> bool:
    """Whether the peer is on the same machine."""
    if not isinstance(stream, trio.SocketStream):
        return False
    try:
        peer = stream.socket.getpeername()[0]
    except OSError:  # it has reset the connection
        return False
    address = ip_address(peer.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


async def _send(stream: trio.abc.Stream, response: Response) -> None:
    head = (
        f"HTTP/1.1 {response.status}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
    )
    await stream.send_all(head.encode() + response.body)


async def _end(stream: trio.abc.HalfCloseableStream) -> None:
    """Tell the client that the response is complete, and wait until it closes the connection.

    Closing a connection with unread bytes, such as a body, resets it, and the client loses the end of the response.
    """
    await stream.send_eof()
    rest = 0
    with trio.move_on_after(_CLOSE_TIMEOUT):
        while rest < _LONGEST_REST and (data := await stream.receive_some(2**16)):
            rest += len(data)
