"""Many connections at once, on real sockets: all requests are answered, and the memory is given back."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.codec.apis import APIS
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.frames import build_request, parse_response
from ottla.codec.wire import api
from tests.brokerlite.machine import NEWEST, a_batch, fetching, producing, values_of
from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import create_topic
from tests.patience import PROGRAM

pytestmark = [pytest.mark.deep, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

IDLE, BUSY, ROUNDS = 1000, 200, 5
PARTITIONS = 10
HELLO = ApiVersionsRequest(client_software_name="crowd", client_software_version="1")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * (IDLE + BUSY):
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * (IDLE + BUSY)), hard))
    broker = BrokerProcess(tmp_path / "data")
    create_topic(broker.bootstrap, "t", PARTITIONS)
    yield broker
    broker.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Client:
    """A connection that sends one request after another."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream, self._asked = stream, 0

    async def ask(self, message: Any) -> Any:
        self._asked += 1
        key = api(type(message)).key
        await self._stream.send_all(build_request(message, NEWEST[key], self._asked, "crowd"))
        frame = await self._exactly(int.from_bytes(await self._exactly(4), "big"))
        correlation_id, answer = parse_response(APIS[key].response, NEWEST[key], frame)
        assert correlation_id == self._asked
        return answer

    async def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await self._stream.receive_some(size - len(data))
            assert more, "closed"
            data += more
        return data


class Crowd(AsyncExitStack):
    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._host, _, port = bootstrap.rpartition(":")
        self._port = int(port)

    async def clients(self, count: int) -> list[Client]:
        streams = [await trio.open_tcp_stream(self._host, self._port) for _ in range(count)]
        clients = [Client(await self.enter_async_context(stream)) for stream in streams]
        for client in clients:
            assert (await client.ask(HELLO)).error_code == 0
        return clients


def memory(broker: BrokerProcess) -> int:
    """The process's private memory in KiB."""
    status = Path(f"/proc/{broker._process.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+)", status)
    assert found
    return int(found[1])


async def left(broker: BrokerProcess) -> int:
    """The process's memory once the broker has closed the connections of all clients that left."""
    while len(os.listdir(f"/proc/{broker._process.pid}/fd")) > 100:
        await trio.sleep(0.1)  # a process gives the test no other event to wait on
    return memory(broker)


async def work(client: Client, number: int) -> None:
    """Store a record and read it back, round after round, among other clients that do the same."""
    partition = number % PARTITIONS
    for turn in range(ROUNDS):
        value = b"%d of %d" % (turn, number)
        [topic] = (await client.ask(producing(a_batch(value), partition=partition))).responses
        [stored] = topic.partition_responses
        assert stored.error_code == 0
        answer = await client.ask(fetching(stored.base_offset, partitions=(partition,), partition_max_bytes=1))
        assert values_of(answer.responses[0].partitions[0].records)[0] == value


async def test_a_thousand_idle_and_two_hundred_busy_connections_are_all_served(broker: BrokerProcess) -> None:
    async def crowded() -> float:
        """The KiB that an idle connection takes."""
        async with Crowd(broker.bootstrap) as crowd:
            busy = await crowd.clients(BUSY)
            before = memory(broker)
            idle = await crowd.clients(IDLE)
            each = (memory(broker) - before) / IDLE
            async with trio.open_nursery() as nursery:
                for number, client in enumerate(busy):
                    nursery.start_soon(work, client, number)
            for client in idle:
                assert (await client.ask(HELLO)).error_code == 0
            return each

    with trio.fail_after(PROGRAM):
        assert await crowded() < 24, "17 were measured"
        after = await left(broker)
        for _ in range(2):
            await crowded()
        assert await left(broker) < after + 24 * IDLE / 4, "later connections use the freed memory"
