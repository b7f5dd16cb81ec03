"""An HTTP address answers a few connections at a time: others wait without a descriptor."""

from typing import TypeAlias

import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair, wait_all_tasks_blocked

from ottla.serve.http_exchange import serve_http
from tests.patience import HUNG

Stream: TypeAlias = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


class Arrivals(trio.abc.Listener[Stream]):
    """Gives a new connection whenever it is asked for one.

    Attributes:
        accepted: the peers of the connections.
    """

    def __init__(self) -> None:
        self.accepted: list[Stream] = []

    async def accept(self) -> Stream:
        await trio.lowlevel.checkpoint()
        here, there = memory_stream_pair()
        self.accepted.append(there)
        return here

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def answer(stream: trio.abc.Stream) -> None:
    await stream.receive_some(1)


async def test_so_many_connections_are_answered_at_a_time() -> None:
    arrivals = Arrivals()
    with trio.fail_after(HUNG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_http, [arrivals], answer, 3)
            await wait_all_tasks_blocked()
            assert len(arrivals.accepted) == 3
            await arrivals.accepted[1].send_all(b"x")
            await wait_all_tasks_blocked()
            assert len(arrivals.accepted) == 4
            nursery.cancel_scope.cancel()
