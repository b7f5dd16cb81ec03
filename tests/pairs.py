"""Connections to a `Listener` without the network, for tests with a mocked clock.

A connection is a socket pair of this process (``AF_UNIX``). Its bytes are in the other end's buffer when the call that
sends them returns. So no byte is in flight when all tasks wait, and `MockClock` may jump at once. TCP moves bytes in
its own time, even on the loopback interface: acknowledgements are delayed, a full window is probed after a pause, and
a busy system hands packets to a kernel thread. A mocked clock beside it would jump in the meantime.
"""

import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from ottla.client_info import ClientInfo
from ottla.serve import Listener, ListenerLimits
from ottla.serve.connection import Service
from ottla.tls import ServerTLS
from tests.serving import LIMITS, LOCAL

BUFFER = 100 * 2**10
"""Buffer size of a connection in bytes; the system doubles it."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection, non-blocking."""
    ends = socket.socketpair(socket.AF_UNIX)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return ends


def stream_of(end: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(end))


class Place:
    """The address of a service, in the place of a host and a port."""

    def __init__(self, listener: Listener, service: Service, tls: ServerTLS | None = None) -> None:
        self._listener, self._service, self._tls = listener, service, tls
        self._ports = itertools.count(40_000)
        self._served: dict[trio.SocketStream, socket.socket] = {}

    def connect(self, host: str = LOCAL) -> trio.SocketStream:
        """Connect from a host."""
        ours, theirs = pair()
        session = ClientInfo(
            local_host=LOCAL,
            local_port=9092,
            peer_host=host,
            peer_port=next(self._ports),
            listener="PLAINTEXT" if self._tls is None else "SSL",
        )
        self._listener.serve(theirs, session, self._service, self._tls)
        self._served[stream := stream_of(ours)] = theirs
        return stream

    @property
    def open(self) -> int:
        """How many connections the listener has."""
        return sum(end.fileno() >= 0 for end in self._served.values())

    def reset(self, stream: trio.SocketStream) -> None:
        """Reset the connection when ``stream`` closes, as the system does if bytes are unread."""
        self._served[stream].send(b"unread")


@asynccontextmanager
async def listening(
    service: Service, limits: ListenerLimits = LIMITS, tls: ServerTLS | None = None
) -> AsyncIterator[tuple[Listener, Place]]:
    listener = Listener(limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        await trio.testing.wait_all_tasks_blocked()
        yield listener, Place(listener, service, tls)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def peer(place: Place, host: str = LOCAL) -> AsyncIterator[trio.SocketStream]:
    async with place.connect(host) as stream:
        await trio.testing.wait_all_tasks_blocked()  # the service sees this connection before any later one
        yield stream
