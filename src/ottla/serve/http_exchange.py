"""Reads an HTTP request, and sends its response: as much of HTTP as probes and `curl` need.

Rules:
- A connection has one request. Its response ends with the connection.
- An address has a bound of connections, within the descriptors that the server keeps for itself. While all responses
  are under way, others wait in the system's backlog, where they take none.
- A client has a second for its request, and a second to close the connection. When too many connections wait for their
  clients, the server closes the oldest, so that silent clients do not delay probes.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias

import trio

Stream: TypeAlias = trio.abc.HalfCloseableStream
Answer = Callable[[Stream, bytes, bytes], Awaitable[None]]
"""Answers a request, which has this method and this path without parameters; raises ``TooSlowError``."""

_READ_TIMEOUT = 1.0
"""Seconds for a request."""
_CLOSE_TIMEOUT = 1.0
"""Seconds for a client to close a connection whose response is sent."""
_LONGEST_REQUEST = 8192
_LONGEST_REST = 2**20
"""Bytes of a request that are read, and ignored, after its response."""
_HEAD_END = re.compile(rb"\n\r?\n")
"""A line may end without a carriage return: RFC 9112, section 2.2."""


class Response(NamedTuple):
    """A response to one HTTP request."""

    status: str
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


async def serve_http(listeners: Sequence[trio.abc.Listener[Any]], answer: Answer, most: int) -> None:
    """Call ``answer`` with each request, until cancelled.

    Args:
        most: how many connections may be open. Half of them may wait for their clients, and half may get a response;
            one more may have a request.
    """
    exchanges = Exchanges(answer, most)
    await trio.serve_listeners(exchanges.serve, [_Bounded(each, exchanges) for each in listeners])


class Exchanges:
    """Serves connections, so many at a time; see `serve_http`."""

    def __init__(self, answer: Answer, most: int) -> None:
        self._answer, self._most_waiting = answer, max(most // 2, 1)
        self._waiting: dict[trio.CancelScope, None] = {}
        """The connections that wait for their clients; the oldest is first."""
        self._answering = trio.CapacityLimiter(max(most - most // 2, 1))

    async def serve(self, stream: Stream) -> None:
        """Read the request of one connection, have it answered, and close the connection."""
        try:
            with self._waiting_for_client(_READ_TIMEOUT):
                method, path = await _read_request(stream)
            async with self._answering:
                await self._answer(stream, method, path)
            with self._waiting_for_client(_CLOSE_TIMEOUT):
                await _end_response(stream)
        except (trio.BrokenResourceError, trio.TooSlowError, OSError):  # the client has gone, or is too slow
            pass
        await trio.aclose_forcefully(stream)

    @contextmanager
    def _waiting_for_client(self, seconds: float) -> Iterator[None]:
        """Wait for a client for so long, or until too many newer ones are waited for.

        Raises:
            TooSlowError: the client was too slow, or too many others came.
        """
        with trio.fail_after(seconds) as scope:
            self._waiting[scope] = None
            if len(self._waiting) > self._most_waiting:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                oldest.cancel()
            try:
                yield
            finally:
                self._waiting.pop(scope, None)

    async def free(self) -> None:
        """Wait until a request can be answered."""
        async with self._answering:
            pass


class _Bounded(trio.abc.Listener[Any]):
    """Accepts a connection once its request could be answered."""

    def __init__(self, listener: trio.abc.Listener[Any], exchanges: Exchanges) -> None:
        self._listener, self._exchanges = listener, exchanges

    async def accept(self) -> Any:
        await self._exchanges.free()
        return await self._listener.accept()

    async def aclose(self) -> None:
        await self._listener.aclose()


async def _read_request(stream: trio.abc.ReceiveStream) -> tuple[bytes, bytes]:
    """Read a request, and return its method, and its path without parameters."""
    request = b""
    while not _HEAD_END.search(request) and len(request) < _LONGEST_REQUEST:
        if not (data := await stream.receive_some(4096)):
            break
        request += data
    method, _, rest = request.partition(b" ")
    return method, rest.partition(b" ")[0].partition(b"?")[0]


def is_near(stream: trio.abc.Stream) -> bool:
    """Whether the peer is on the same machine."""
    if not isinstance(stream, trio.SocketStream):
        return False
    try:
        peer = stream.socket.getpeername()[0]
    except OSError:  # it has reset the connection
        return False
    address = ip_address(peer.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


async def send_response(stream: trio.abc.Stream, response: Response) -> None:
    head = (
        f"HTTP/1.1 {response.status}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
    )
    await stream.send_all(head.encode() + response.body)


async def _end_response(stream: Stream) -> None:
    """Tell the client that the response is complete, and wait until it closes the connection.

    Closing a connection with unread bytes, such as a body, resets it, and the client loses the end of the response.
    """
    await stream.send_eof()
    rest = 0
    while rest < _LONGEST_REST and (data := await stream.receive_some(2**16)):
        rest += len(data)
