"""An upstream connection of the proxy, on a real socket: it bears a slow node, and gives up one that takes nothing."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from ottla.proxy.config import ProxyConfig
from ottla.proxy.events import Connected, Event, Lost, Received
from ottla.proxy.serve import _WRITE_TIMEOUT, _Driver, _Pipe
from tests.serving import LOCAL, received, until

MIB = 2**20


class Driver:
    """Keeps what has happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def happened(self, event: Event) -> None:
        self.events.append(event)

    @property
    def lost(self) -> str | None:
        return next((event.why for event in self.events if isinstance(event, Lost)), None)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.02)


@asynccontextmanager
async def a_pipe() -> AsyncIterator[tuple[_Pipe, Driver, trio.SocketStream]]:
    """A pipe, and the node's side of it."""
    [listener] = await trio.open_tcp_listeners(0, host=LOCAL)
    # Less than what a slow node takes at a time: whatever it takes makes room that the system tells of.
    listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB // 8)
    driver = Driver()
    address = listener.socket.getsockname()
    pipe = _Pipe(cast(_Driver, driver), 1, (address[0], address[1]), None)
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(pipe.run)
        async with await listener.accept() as node:
            await until(lambda: driver.events == [Connected(1)])
            yield pipe, driver, node
        pipe.close()


async def test_bytes_go_both_ways_in_their_order(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, node):
        for number in range(200):
            pipe.send(bytes([number]) * 1000)
        assert await received(node, 200_000) == b"".join(bytes([number]) * 1000 for number in range(200))
        await node.send_all(b"answer")
        await until(lambda: driver.events[1:] == [Received(1, b"answer")])
    assert driver.lost is not None


async def test_a_node_that_takes_what_it_is_sent_slowly_but_steadily_is_not_given_up(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, node):
        for _ in range(16):
            pipe.send(bytes(MIB))
        began = trio.current_time()
        for _ in range(32):
            await trio.sleep(_WRITE_TIMEOUT / 2)
            await received(node, MIB // 2)
        assert driver.lost is None and trio.current_time() - began > 10 * _WRITE_TIMEOUT


async def test_a_node_that_takes_nothing_is_given_up(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, _):
        pipe.send(bytes(50_000_000))
        began = trio.current_time()
        with trio.fail_after(10 * _WRITE_TIMEOUT):
            while driver.lost is None:
                await trio.sleep(1)
        assert _WRITE_TIMEOUT <= trio.current_time() - began < 1.5 * _WRITE_TIMEOUT
        assert driver.lost == "broke: upstream has taken nothing for 30 s"


async def test_a_node_that_ends_the_connection_is_told_of(clock: MockClock) -> None:
    async with a_pipe() as (_, driver, node):
        await node.aclose()
        await until(lambda: driver.lost == "closed by upstream")
    async with a_pipe() as (_, driver, node):
        node.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))
        await node.aclose()
        await until(lambda: driver.lost)
        assert driver.lost is not None and driver.lost.startswith("broke: ")


async def test_an_address_without_a_node_is_told_of(clock: MockClock) -> None:
    driver = Driver()
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        await _Pipe(cast(_Driver, driver), 1, taken.getsockname(), None).run()
        await _Pipe(cast(_Driver, driver), 2, ("no..host", 1), None).run()
    [refused, nameless] = cast(list[Any], driver.events)
    assert refused.why.startswith("cannot connect: ") and nameless.why == "cannot connect: 'no..host' is no host name"


async def test_a_pipe_that_finishes_is_read_until_the_node_has_taken_everything(clock: MockClock) -> None:
    async with a_pipe() as (pipe, driver, node):
        pipe.send(bytes(4 * MIB))
        pipe.finish()
        await received(node, 4 * MIB - 1)
        assert driver.lost is None
        assert await received(node, 1) == b"\0"
        assert await node.receive_some(1) == b"", "nothing more will come"
        await node.send_all(b"answer")
        await until(lambda: driver.events[1:] == [Received(1, b"answer")])
        await node.aclose()
        await until(lambda: driver.lost == "closed by upstream")


def test_what_waits_for_upstream_of_clients_that_have_left_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    class Held:
        def __init__(self, queued: int) -> None:
            self.queued, self.finishes, self.closed = queued, False, False

        def finish(self) -> None:
            self.finishes = True

        def close(self) -> None:
            self.closed = True

    driver = _Driver(ProxyConfig(upstream="a:1", max_buffered=1000), (("a", 1),), None)
    pipes = [Held(400) for _ in range(4)]
    for pipe in pipes:
        driver._finish(cast(_Pipe, pipe))
    assert all(pipe.finishes for pipe in pipes)
    assert [pipe.closed for pipe in pipes] == [True, True, False, False], "the oldest gives up"
    assert "requests of a client that has left are dropped" in caplog.text
