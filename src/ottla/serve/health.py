"""Answers the health probes of orchestrators."""

from collections.abc import Callable
from functools import partial

import trio

from ottla.serve.listener import listen
from ottla.serve.outbox import hang_up


async def serve_health(host: str, port: int, ready: Callable[[], bool], *, opened: Callable[[int], None]) -> None:
    """Answer ``GET /health`` (200 while the process lives) and ``GET /ready`` (200 or 503), for probes.

    Args:
        opened: called with the port once it listens.

    Raises:
        ConfigurationError: the address cannot be used.
    """

    listeners = await listen(host, port, " for health checks")
    opened(listeners[0].socket.getsockname()[1])
    try:
        await trio.serve_listeners(partial(answer_probe, ready), listeners)
    finally:
        for each in listeners:
            hang_up(each.socket)


async def answer_probe(ready: Callable[[], bool], stream: trio.abc.Stream) -> None:
    """Answer the request of one connection, within five seconds, and close the connection."""
    with trio.move_on_after(5):
        try:
            request = b""
            while b"\r\n\r\n" not in request and len(request) < 8192:
                if not (data := await stream.receive_some(4096)):
                    break
                request += data
            path = request.split(b" ", 2)[1:2]
            if path == [b"/health"] or (path == [b"/ready"] and ready()):
                status, text = "200 OK", "ok"
            elif path == [b"/ready"]:
                status, text = "503 Service Unavailable", "not ready"
            else:
                status, text = "404 Not Found", "ask /health or /ready"
            body = f"{text}\n".encode()
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            await stream.send_all(head.encode() + body)
        except trio.BrokenResourceError:
            pass
    await trio.aclose_forcefully(stream)
