"""The memory that the proxy holds for its clients is bounded, and slow clients delay no others."""

import contextlib
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.frames import build_request, parse_response
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import create_topic
from tests.kafka import free_ports
from tests.patience import HUNG
from tests.proxy.running import proxied
from tests.proxy.simulated import batch
from tests.proxy.storms import ProxyProcess

MIB = 2**20
FETCH, PRODUCE = 11, 8
LARGE = 900 * 2**10
"""Bytes of a record."""
LOADED = 30
"""How many of these the topic has: one response has all."""
BUDGET = 16 * MIB
READERS, WRITERS = 60, 100
REQUEST = 60 * 2**10
"""Bytes of a request that is not read in pieces."""
ROUNDS = 40
"""How often all clients are looked at, and the memory."""


def at(bootstrap: str) -> Peer:
    return Peer(int(bootstrap.rpartition(":")[2]))


def producing(data: bytes) -> ProduceRequest:
    topic = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=data),))
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=(topic,))


def load(bootstrap: str) -> bytes:
    """Fill the topic; return the value of its records."""
    value = bytes(range(256)) * (LARGE // 256)
    with contextlib.closing(at(bootstrap)) as peer:
        for _ in range(LOADED):
            [topic] = peer.ask(producing(batch([(None, value)])), PRODUCE).responses
            assert topic.partition_responses[0].error_code == 0
    return value


ALL = FetchRequest(
    max_wait_ms=100,
    min_bytes=1,
    max_bytes=100 * MIB,
    topics=(
        FetchTopic(topic="t", partitions=(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100 * MIB),)),
    ),
)
"""Fetches all of the topic."""


def fetched(answer: FetchResponse) -> bytes:
    [topic] = answer.responses
    return bytes(topic.partitions[0].records or b"")


def test_a_client_that_reads_nothing_of_its_responses_delays_no_other_and_gets_them_later(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=1)
    value = load(ottla_broker.bootstrap)
    with (
        proxied(ottla_broker.bootstrap, max_buffered=MIB) as proxy,
        contextlib.closing(at(proxy.bootstrap)) as slow,
        contextlib.closing(at(proxy.bootstrap)) as decent,
    ):
        sent = [slow.send(ALL, FETCH) for _ in range(2)]
        for _ in range(3):
            whole = fetched(decent.ask(ALL, FETCH))
            assert whole.count(value) == LOADED
            assert proxy.running._core is not None
            assert proxy.running._core.buffered.total < 4 * MIB
        for number in sent:
            correlation_id, answer = parse_response(FetchResponse, FETCH, slow.frame())
            assert correlation_id == number and fetched(answer) == whole
        [topic] = slow.ask(producing(batch([(None, value)])), PRODUCE).responses
        assert topic.partition_responses[0].error_code == 0


class Processes:
    """A broker with the topic ``t``, and a proxy without rules in front of it."""

    def __init__(self, folder: Path) -> None:
        self.broker = BrokerProcess(folder / "data")
        create_topic(self.broker.bootstrap, "t", 1)
        self._health = f"127.0.0.1:{free_ports(1)[0]}"
        options = ("--max-buffered", str(BUDGET), "--health", self._health)
        self.proxy = ProxyProcess(folder, self.broker.bootstrap, *options)

    @property
    def held(self) -> int:
        """The bytes that the proxy counts."""
        with urllib.request.urlopen(f"http://{self._health}/metrics", timeout=HUNG) as page:
            found = re.search(rb"^ottla_proxy_held_bytes (\S+)", page.read(), re.MULTILINE)
        assert found
        return int(float(found[1]))

    @property
    def memory(self) -> int:
        """The proxy's private memory in bytes."""
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self.proxy.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def end(self) -> None:
        self.proxy.end()
        self.broker.kill()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    running = Processes(tmp_path)
    yield running
    running.end()
    assert "please report it" not in running.proxy.log.read_text()


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.slow
@on_linux
def test_consumers_that_read_nothing_take_a_bounded_memory(processes: Processes) -> None:
    value = load(processes.broker.bootstrap)
    bootstrap, before = processes.proxy.bootstrap, processes.memory
    with contextlib.ExitStack() as crowd, contextlib.closing(at(bootstrap)) as decent:
        for _ in range(READERS):
            crowd.enter_context(contextlib.closing(at(bootstrap))).send(ALL, FETCH)
        most = taken = 0
        for _ in range(3):
            assert fetched(decent.ask(ALL, FETCH)).count(value) == LOADED
            most, taken = max(most, processes.held), max(taken, processes.memory)
        assert BUDGET / 2 < most < 3 * BUDGET, "27 MiB for each of them would be 1.6 GiB"
        assert taken - before < 8 * BUDGET


@pytest.mark.slow
@on_linux
def test_producers_of_a_broker_that_hangs_take_a_bounded_memory(processes: Processes) -> None:
    frame = build_request(producing(batch([(None, bytes(REQUEST))])), PRODUCE, 1, "eager")
    bootstrap, before = processes.proxy.bootstrap, processes.memory
    with contextlib.ExitStack() as crowd:
        peers = [crowd.enter_context(contextlib.closing(at(bootstrap))) for _ in range(WRITERS)]
        for peer in peers:
            peer.write(frame)
            peer.frame()
        processes.broker._process.send_signal(signal.SIGSTOP)
        left = {peer._socket: memoryview(frame * 75) for peer in peers}
        most = taken = 0
        for _ in range(ROUNDS):
            for sock, data in left.items():
                left[sock] = data[_sent(sock, data) :]
            most, taken = max(most, processes.held), max(taken, processes.memory)
        sent = WRITERS * 75 * len(frame) - sum(map(len, left.values()))
        assert min(sent, BUDGET) / 2 < most < 3 * BUDGET, "4.5 MB for each of them would be 430 MiB"
        assert taken - before < 8 * BUDGET
        processes.broker._process.send_signal(signal.SIGCONT)
        peers[0]._socket.setblocking(True)
        assert parse_response(ProduceResponse, PRODUCE, peers[0].frame())


def _sent(sock: socket.socket, data: memoryview) -> int:
    """Send what the proxy takes now."""
    sock.setblocking(False)
    try:
        return sock.send(data) if data else 0
    except BlockingIOError:
        return 0
