"""An upstream connection of the proxy: slow nodes keep it, and nodes that stop reading lose it."""

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from random import Random
from typing import ClassVar, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import Event, UpstreamConnected, UpstreamLost, UpstreamReceived
from ottla.proxy.pipe import WRITE_TIMEOUT, Pipe
from ottla.proxy.serve import _Driver
from ottla.proxy.standby import Probes
from ottla.serve import AcceptedConnection, Memory
from tests.pairs import pair, stream_of
from tests.serving import LOCAL, received, until

MIB = 2**20


class Driver:
    """Records all events; its core knows no connection."""

    clients: ClassVar[dict[int, AcceptedConnection]] = {}

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.core = ProxyCore(ProxyConfig(upstream="a:1"), (("a", 1),), Random(0))
        self.frames = Memory(0)
        self.counted = 0

    def happened(self, event: Event) -> None:
        self.events.append(event)

    def count(self, holder: Hashable, change: int) -> None:
        self.counted += change

    def pause(self, client: int, paused: bool) -> None:
        raise AssertionError("the pipe serves no client")

    @property
    def lost(self) -> str | None:
        return next((event.why for event in self.events if isinstance(event, UpstreamLost)), None)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@asynccontextmanager
async def a_pipe() -> AsyncIterator[tuple[Pipe, Driver, trio.SocketStream]]:
    """A pipe, and the node's side of it."""
    ours, theirs = pair()
    driver = Driver()
    pipe = Pipe(driver, 1, (LOCAL, 9092), None)

    async def dialed(*_: object) -> trio.SocketStream:
        return stream_of(ours)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio, "open_tcp_stream", dialed)
        async with trio.open_nursery() as nursery, stream_of(theirs) as node:
            nursery.start_soon(pipe.run)
            await until(lambda: driver.events == [UpstreamConnected(1)])
            yield pipe, driver, node
            pipe.close()
        assert driver.counted == 0


async def test_bytes_go_both_ways_in_their_order(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, node):
        for number in range(200):
            pipe.send(bytes([number]) * 1000)
        assert await received(node, 200_000) == b"".join(bytes([number]) * 1000 for number in range(200))
        await node.send_all(b"answer")
        await until(lambda: driver.events[1:] == [UpstreamReceived(1, b"answer")])
    assert driver.lost is not None


async def test_a_node_that_takes_what_it_is_sent_slowly_but_steadily_is_not_given_up(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, node):
        for _ in range(16):
            pipe.send(bytes(MIB))
        began = trio.current_time()
        for _ in range(32):
            await trio.sleep(WRITE_TIMEOUT / 2)
            await received(node, MIB // 2)
        assert driver.lost is None and trio.current_time() - began > 10 * WRITE_TIMEOUT


async def test_a_node_that_takes_nothing_is_given_up(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, _):
        pipe.send(bytes(50_000_000))
        began = trio.current_time()
        await until(lambda: driver.lost)
        assert WRITE_TIMEOUT <= trio.current_time() - began <= 1.2 * WRITE_TIMEOUT
        assert driver.lost == "connection lost: upstream has taken nothing for 30 s"


async def test_a_node_that_ends_the_connection_is_told_of(clock: MockClock) -> None:
    async with a_pipe() as (_, driver, node):
        await node.aclose()
        await until(lambda: driver.lost == "closed by upstream")
    async with a_pipe() as (pipe, driver, node):
        pipe.send(b"unread")
        await trio.testing.wait_all_tasks_blocked()
        await node.aclose()  # closed with unread bytes, which resets the connection
        await until(lambda: driver.lost)
        assert driver.lost is not None and driver.lost.startswith("connection lost: ")


async def test_a_pipe_that_finishes_is_read_until_the_node_has_taken_everything(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, node):
        pipe.send(bytes(4 * MIB))
        pipe.finish()
        await received(node, 4 * MIB - 1)
        assert driver.lost is None
        assert await received(node, 1) == b"\0"
        assert await node.receive_some(1) == b"", "no more bytes will come"
        await node.send_all(b"answer")
        await until(lambda: driver.events[1:] == [UpstreamReceived(1, b"answer")])
        await node.aclose()
        await until(lambda: driver.lost == "closed by upstream")


async def test_what_upstream_has_not_taken_of_a_client_that_has_left_is_not_dropped_in_silence(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Client:
        id = 1

    pipe = Pipe(Driver(), 1, (LOCAL, 9092), cast(AcceptedConnection, Client()))
    pipe.queued = 1000
    pipe.close("upstream is slow")
    await pipe.run()
    assert "requests of a disconnected client dropped: upstream is slow" in caplog.text


async def test_what_waits_for_upstream_of_clients_that_have_left_is_bounded() -> None:
    class Held:
        def __init__(self, queued: int) -> None:
            self.queued, self.finishes, self.closed = queued, False, ""

        def finish(self) -> None:
            self.finishes = True

        def close(self, why: str) -> None:
            self.closed = why

    driver = _Driver(
        ProxyConfig(upstream="a:1", max_buffered=1000), (("a", 1),), None, Probes(None, reloads=False), 0.0
    )
    pipes = [Held(queued) for queued in (400, 0, 400, 400, 400)]
    for pipe in pipes:
        driver._finish(cast(Pipe, pipe))
    assert all(pipe.finishes for pipe in pipes)
    given_up = [bool(pipe.closed) for pipe in pipes]
    assert given_up == [True, False, True, False, False], "the oldest ones with waiting bytes are closed"
