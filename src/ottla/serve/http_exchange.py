"""Reads an HTTP request, and sends its response: as much of HTTP as probes and `curl` need.

Rules:
- A connection has one request. Its response ends with the connection.
- An address has a bound of connections, within the descriptors that the server keeps for itself. Others wait in the
  system's backlog, where they take none.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

import trio

CLOSE_TIMEOUT = 1.0
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


async def serve_http(
    listeners: Sequence[trio.abc.Listener[Any]], answer: Callable[[Any], Awaitable[None]], most: int
) -> None:
    """Call ``answer`` with each connection, with at most ``most`` at a time, until cancelled."""
    room = trio.Semaphore(most)

    async def answered(stream: trio.abc.Stream) -> None:
        try:
            await answer(stream)
        finally:
            room.release()

    await trio.serve_listeners(answered, [_Bounded(each, room) for each in listeners])


class _Bounded(trio.abc.Listener[Any]):
    """Accepts a connection once there is room for it."""

    def __init__(self, listener: trio.abc.Listener[Any], room: trio.Semaphore) -> None:
        self._listener, self._room = listener, room

    async def accept(self) -> Any:
        await self._room.acquire()
        try:
            return await self._listener.accept()
        except BaseException:
            self._room.release()
            raise

    async def aclose(self) -> None:
        await self._listener.aclose()


async def read_request(stream: trio.abc.Stream) -> tuple[bytes, bytes]:
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


async def end_response(stream: trio.abc.HalfCloseableStream) -> None:
    """Tell the client that the response is complete, and wait until it closes the connection.

    Closing a connection with unread bytes, such as a body, resets it, and the client loses the end of the response.
    """
    await stream.send_eof()
    rest = 0
    with trio.move_on_after(CLOSE_TIMEOUT):
        while rest < _LONGEST_REST and (data := await stream.receive_some(2**16)):
            rest += len(data)
