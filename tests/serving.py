"""A service for tests of `Listener`, and waits for its peers that work with any clock.

`tests.pairs` connects peers without the network, for tests with a mocked clock; `tests.tcp` over the network, for
tests with the real one.
"""

from collections.abc import Callable
from contextlib import suppress

import trio

from ottla.codec.frames import framed
from ottla.codec.wire import Buffer
from ottla.serve import AcceptedConnection, ListenerLimits, PendingAnswer, Service
from tests.patience import HUNG

LOCAL = "127.0.0.1"
LIMITS = ListenerLimits(max_frame=1000, max_connections=3, pipeline=4, idle=60.0, write=20.0, drain=5.0)


class Desk(Service):
    """A service that keeps its requests; ``answering``, if given, is called with each of them."""

    def __init__(self, answering: Callable[[bytes, PendingAnswer], None] | None = None) -> None:
        self.asked: list[bytes] = []
        self.places: dict[bytes, PendingAnswer] = {}
        self.connections: list[AcceptedConnection] = []
        self.left: list[AcceptedConnection] = []
        self.lost_ones: list[AcceptedConnection] = []
        """Connections that were still held when their peers were lost."""
        self.together: list[int] = []
        """The number of requests so far, each time that all requests of one read were handed out."""
        self.answering = answering

    def connected(self, connection: AcceptedConnection) -> None:
        self.connections.append(connection)

    def request(self, connection: AcceptedConnection, frame: Buffer, answer: PendingAnswer) -> None:
        frame = bytes(frame)
        self.asked.append(frame)
        self.places[frame] = answer
        if self.answering is not None:
            self.answering(frame, answer)

    def handed_out(self, connection: AcceptedConnection) -> None:
        self.together.append(len(self.asked))

    def lost(self, connection: AcceptedConnection) -> None:
        self.lost_ones.append(connection)

    def disconnected(self, connection: AcceptedConnection) -> None:
        self.left.append(connection)


def echo(frame: bytes, answer: PendingAnswer) -> None:
    answer.send(framed(frame))


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks run until ``condition`` holds."""
    with trio.fail_after(HUNG):
        while not condition():
            await trio.sleep(0.01)


async def received(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    got = bytearray()
    with trio.fail_after(HUNG):
        while len(got) < size:
            data = await stream.receive_some(min(size - len(got), 2**18))
            assert data, f"closed after {len(got)} bytes: {got[:100]!r}"
            got += data
    return bytes(got)


async def closed(stream: trio.abc.ReceiveStream) -> float:
    """Wait until the other side closes; return how long that took, in seconds."""
    start = trio.current_time()
    with trio.fail_after(HUNG), suppress(trio.BrokenResourceError):
        assert await stream.receive_some(1) == b""
    return trio.current_time() - start
