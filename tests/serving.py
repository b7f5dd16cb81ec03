"""A listener on real sockets with a service that keeps what it was asked, and peers that are nothing but streams.

The clock is trio's `MockClock`: it jumps when nothing has happened for a moment, so that no test waits.
"""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import trio
from trio.testing import MockClock

from ottla.codec.frames import framed
from ottla.codec.wire import Buffer
from ottla.serve import Answer, Connection, Limits, Listener

LOCAL = "127.0.0.1"
LIMITS = Limits(max_frame=1000, max_connections=3, pipeline=4, idle=60.0, write=20.0, drain=5.0)


class Desk:
    """A service that keeps what it was asked; ``answering`` is done to each request, if given."""

    def __init__(self, answering: Callable[[bytes, Answer], None] | None = None) -> None:
        self.asked: list[bytes] = []
        self.places: dict[bytes, Answer] = {}
        self.connections: list[Connection] = []
        self.left: list[Connection] = []
        self.together: list[int] = []
        """How many frames there were each time that all which had come together were handed out."""
        self.answering = answering

    def connected(self, connection: Connection) -> None:
        self.connections.append(connection)

    def request(self, connection: Connection, frame: Buffer, answer: Answer) -> None:
        frame = bytes(frame)
        self.asked.append(frame)
        self.places[frame] = answer
        if self.answering is not None:
            self.answering(frame, answer)

    def handed_out(self, connection: Connection) -> None:
        self.together.append(len(self.asked))

    def disconnected(self, connection: Connection) -> None:
        self.left.append(connection)


def echo(frame: bytes, answer: Answer) -> None:
    answer.send(framed(frame))


@asynccontextmanager
async def listening(desk: Desk, limits: Limits = LIMITS) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(limits)
    port = await listener.open(LOCAL, 0, desk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        yield listener, port
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[trio.SocketStream]:
    async with await trio.open_tcp_stream(LOCAL, port) as stream:
        yield stream


def reset(stream: trio.SocketStream) -> None:
    """When it is closed, it says so with a reset, as a process does that ends with bytes unread."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))


async def until(condition: Callable[[], object]) -> None:
    """Let the others run until ``condition``; ten (mocked) seconds at most."""
    with trio.fail_after(10):
        while not condition():
            await trio.sleep(0.01)


@contextmanager
def unhurried(seconds: float = 1.0) -> Iterator[None]:
    """Bytes are on their way through the system, which takes its own time: a mocked clock waits so long for it."""
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock):
        yield
        return
    hurried, clock.autojump_threshold = clock.autojump_threshold, seconds
    try:
        yield
    finally:
        clock.autojump_threshold = hurried


async def received(stream: trio.SocketStream, size: int) -> bytes:
    got = b""
    with trio.fail_after(10), unhurried():
        while len(got) < size:
            data = await stream.receive_some(size - len(got))
            assert data, f"closed after {len(got)} bytes: {got[:100]!r}"
            got += data
    return got


async def closed(stream: trio.SocketStream, within: float = 10.0) -> float:
    """Wait until the other side closes; return how long that took, in seconds."""
    start = trio.current_time()
    with trio.fail_after(within), unhurried(0.1), suppress(trio.BrokenResourceError):
        assert await stream.receive_some(1) == b""
    return trio.current_time() - start
