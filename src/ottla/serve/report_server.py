"""Answers ``GET /report`` at an address of its own, because a report is not for everybody who may probe a server.

Rules:
- The address has no login. At most two responses are made or sent at a time.
- Other tasks run between the pieces of a report.
"""

import logging
from collections.abc import Callable, Iterator

import trio

from ottla.serve.http_exchange import Response, Stream, send_response, serve_http
from ottla.serve.listener import listen
from ottla.serve.outbox import hang_up

log = logging.getLogger("ottla.serve")

Report = Callable[[], Iterator[str]]
"""Returns the pieces of a report, as JSON."""

_TIMEOUT = 10.0
"""Seconds for a response."""
_CONNECTIONS = 4
"""Half of them may get a response."""


class ReportServer:
    """Answers the requests at one address."""

    def __init__(self, report: Report) -> None:
        self._report = report

    async def answer(self, stream: Stream, method: bytes, path: bytes) -> None:
        """Answer one request.

        Raises:
            TooSlowError: the client does not read the response within some seconds.
        """
        with trio.fail_after(_TIMEOUT):
            await send_response(stream, await self._response(method, path))

    async def _response(self, method: bytes, path: bytes) -> Response:
        if path != b"/report":
            return Response("404 Not Found", b"ask /report\n")
        if method != b"GET":
            return Response("405 Method Not Allowed", b"use GET /report\n")
        pieces: list[bytes] = []
        try:
            for piece in self._report():
                pieces.append(piece.encode())
                await trio.lowlevel.checkpoint()
        except Exception:
            log.exception("a bug, please report it: the report cannot be made")
            return Response("500 Internal Server Error", b"see the log\n")
        return Response("200 OK", b"".join(pieces), "application/json")


async def serve_report(host: str, port: int, report: Report, *, opened: Callable[[int], None]) -> None:
    """Answer ``GET /report``.

    Args:
        opened: called with the port once it listens.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    listeners = await listen(host, port, " for reports")
    server = ReportServer(report)
    opened(listeners[0].socket.getsockname()[1])
    try:
        await serve_http(listeners, server.answer, _CONNECTIONS)
    finally:
        for each in listeners:
            hang_up(each.socket)
