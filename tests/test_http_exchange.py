"""An HTTP address answers a few requests at a time, and slow clients do not delay the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, MockClock, memory_stream_pair, wait_all_tasks_blocked

from ottla.serve.http_exchange import serve_http
from tests.patience import HUNG

Stream: TypeAlias = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


class Arrivals(trio.abc.Listener[Stream]):
    """Has a backlog of connections.

    Attributes:
        accepted: the clients' sides of the accepted ones.
    """

    def __init__(self) -> None:
        self.accepted: list[Stream] = []
        self._arrive, self._arrived = trio.open_memory_channel[tuple[Stream, Stream]](100)

    async def connect(self) -> Stream:
        """Return the client's side of a new connection."""
        client, server = memory_stream_pair()
        self._arrive.send_nowait((client, server))
        await wait_all_tasks_blocked()
        return client

    async def accept(self) -> Stream:
        client, server = await self._arrived.receive()
        self.accepted.append(client)
        return server

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def answer(stream: trio.abc.SendStream, method: bytes, path: bytes) -> None:
    if path == b"/slow":
        await trio.sleep_forever()
    await stream.send_all(path)


async def ask(stream: Stream, path: bytes) -> None:
    await stream.send_all(b"GET " + path + b" HTTP/1.1\r\n\r\n")
    await wait_all_tasks_blocked()


@asynccontextmanager
async def serving(most: int) -> AsyncIterator[Arrivals]:
    arrivals = Arrivals()
    with trio.fail_after(HUNG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_http, [arrivals], answer, most)
            yield arrivals
            nursery.cancel_scope.cancel()


async def test_so_many_requests_are_answered_at_a_time() -> None:
    async with serving(4) as arrivals:
        for number in range(2):
            await arrivals.connect()
            await ask(arrivals.accepted[number], b"/slow")
        for _ in range(5):
            await arrivals.connect()
        assert len(arrivals.accepted) == 3, "one was accepted before both places were taken"


async def test_silent_clients_give_way() -> None:
    async with serving(4) as arrivals:
        silent = [await arrivals.connect() for _ in range(10)]
        probe = await arrivals.connect()
        await ask(probe, b"/ready")
        assert await probe.receive_some() == b"/ready"
        assert [await each.receive_some() for each in silent[:-1]] == [b""] * 9


async def test_clients_that_do_not_close_their_connections_give_way(autojump_clock: MockClock) -> None:
    async with serving(4) as arrivals:
        for _ in range(10):
            probe = await arrivals.connect()
            await ask(probe, b"/ready")
            assert await probe.receive_some() == b"/ready"
        assert trio.current_time() < 0.5
