"""An upstream connection of the proxy, on the network, by the real clock."""

import socket
from typing import Any, cast

import trio

from ottla.proxy.events import UpstreamConnected, UpstreamReceived
from ottla.proxy.pipe import Pipe
from ottla.proxy.serve import _Driver
from tests.proxy.test_pipe import Driver
from tests.serving import LOCAL, received, until


async def test_bytes_go_both_ways_and_the_end_is_told_of() -> None:
    driver = Driver()
    [listener] = await trio.open_tcp_listeners(0, host=LOCAL)
    host, port = listener.socket.getsockname()[:2]
    pipe = Pipe(driver, 1, (host, port), None)
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(pipe.run)
        async with await listener.accept() as node:
            await until(lambda: driver.events == [UpstreamConnected(1)])
            pipe.send(b"request")
            assert await received(node, 7) == b"request"
            await node.send_all(b"answer")
            await until(lambda: driver.events[1:] == [UpstreamReceived(1, b"answer")])
        await until(lambda: driver.lost == "closed by upstream")


async def test_an_address_without_a_node_is_told_of() -> None:
    driver = Driver()
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        await Pipe(driver, 1, taken.getsockname(), None).run()
        await Pipe(cast(_Driver, driver), 2, ("no..host", 1), None).run()
    [refused, nameless] = cast(list[Any], driver.events)
    assert refused.why.startswith("cannot connect: ") and nameless.why == "cannot connect: 'no..host' is no host name"
