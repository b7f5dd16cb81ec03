"""A listener on the loopback interface and its peers, for tests with the real clock."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ottla.serve import Listener, ListenerLimits
from ottla.serve.connection import Service
from tests.serving import LIMITS, LOCAL


@asynccontextmanager
async def listening(service: Service, limits: ListenerLimits = LIMITS) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(limits)
    port = await listener.open(LOCAL, 0, service)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        yield listener, port
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[trio.SocketStream]:
    async with await trio.open_tcp_stream(LOCAL, port) as stream:
        yield stream


def reset(stream: trio.SocketStream) -> None:
    """Let the close of ``stream`` reset the connection, like the end of a process with unread bytes."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))
