"""Clients that are hostile or very slow, within the protocol: the proxy still serves other clients, and gets its memory
back.

In the tests whose proxy runs in this process, `tests.steps` checks that no step of the proxy takes long.
"""

import contextlib
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.compression import Compression
from ottla.codec.frames import build_request, parse_response
from ottla.codec.records import BatchBuilder
from ottla.errors import NotEnoughReplicas
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied
from tests.proxy.simulated import batch
from tests.proxy.storms import ProxyProcess

MB = 2**20
PARTITIONS = 12
PRODUCE, METADATA, VERSIONS = 9, 9, 3
HELLO = ApiVersionsRequest(client_software_name="crowd", client_software_version="1")
CROWD = 1900
"""The number of client connections, out of the 2,000 that upstream accepts by default."""
_RESET = struct.pack("ii", 1, 0)


def producing(data: bytes, partition: int = 0, topic: str = "t") -> ProduceRequest:
    each = PartitionProduceData(index=partition, records=data)
    topics = (TopicProduceData(name=topic, partition_data=(each,)),)
    return ProduceRequest(acks=-1, timeout_ms=int(HUNG * 1000), topic_data=topics)


def code(answer: object) -> int:
    [topic] = answer.responses  # type: ignore[attr-defined]
    return int(topic.partition_responses[0].error_code)


def stores(peer: Peer, key: bytes = b"decent") -> bool:
    assert code(peer.ask(producing(batch([(key, b"v")])), PRODUCE)) == 0
    return True


def at(bootstrap: str, timeout: float = HUNG, source: str = "") -> Peer:
    return Peer(int(bootstrap.rpartition(":")[2]), timeout=timeout, source=source)


@pytest.fixture
def proxy(ottla_broker: Broker) -> Iterator[ProxyThread]:
    ottla_broker.create_topic("t", partitions=PARTITIONS)
    with proxied(ottla_broker.bootstrap, "t=rewrite") as running:
        yield running


def test_a_request_that_comes_byte_by_byte_is_carried_out_and_delays_nobody(proxy: ProxyThread) -> None:
    request = build_request(producing(batch([(b"slow", b"v" * 200)])), PRODUCE, 1, "slow")
    with contextlib.closing(at(proxy.bootstrap)) as slow, contextlib.closing(at(proxy.bootstrap)) as decent:
        slow._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, byte in enumerate(request):
            slow.write(bytes([byte]))
            if number % 50 == 0:
                assert stores(decent)
        assert int.from_bytes(slow.frame()[:4], "big") == 1


def test_a_client_that_reads_byte_by_byte_gets_all_answers_in_order_and_delays_nobody(proxy: ProxyThread) -> None:
    asks = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    with contextlib.closing(at(proxy.bootstrap)) as slow, contextlib.closing(at(proxy.bootstrap)) as decent:
        sent = [slow.send(asks, METADATA) for _ in range(300)]
        first = b""
        for number in range(2000):
            first += slow._socket.recv(1)
            if number % 100 == 0:
                assert stores(decent)
        got: list[int] = []
        rest = first
        while len(got) < len(sent):
            while len(rest) < 4 or len(rest) < 4 + int.from_bytes(rest[:4], "big"):
                rest += (more := slow._socket.recv(65536))
                assert more
            got.append(int.from_bytes(rest[4:8], "big"))
            rest = rest[4 + int.from_bytes(rest[:4], "big") :]
        assert got == sent


@pytest.mark.parametrize("how", ["close", "reset"])
def test_clients_that_send_a_part_of_a_request_and_leave_harm_nobody(proxy: ProxyThread, how: str) -> None:
    request = build_request(producing(batch([(b"half", b"v" * 2000)])), PRODUCE, 1, "half")
    with contextlib.closing(at(proxy.bootstrap)) as decent:
        for number in range(150):
            peer = at(proxy.bootstrap)
            peer.write(request[: 1 + number * len(request) // 151])
            if how == "reset":
                peer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            peer.close()
            if number % 10 == 0:
                assert stores(decent)
        assert proxy.running._core is not None
        assert proxy.running._core.tallies["t"].records == 15, "a part of a request is not stored"


def test_clients_that_end_only_their_writing_harm_nobody(proxy: ProxyThread) -> None:
    with contextlib.closing(at(proxy.bootstrap)) as decent:
        for number in range(50):
            peer = at(proxy.bootstrap)
            peer.send(producing(batch([(b"%d" % number, b"v")])), PRODUCE)
            peer._socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(EOFError, ConnectionResetError):
                peer.frame()
            peer.close()
        assert stores(decent)


@pytest.mark.parametrize("shape", ["headers", "timestamps", "many"])
def test_batches_of_an_odd_shape_hold_nobody_up(proxy: ProxyThread, shape: str) -> None:
    builder = BatchBuilder()
    if shape == "headers":
        for number in range(10):
            builder.append(1, b"%d" % number, b"v", [("h", b"")] * 4000)
    elif shape == "timestamps":
        for number in range(1000):
            builder.append((number % 2) * 2**40, b"%d" % number, b"v")
    else:
        for number in range(30_000):
            builder.append(1, b"%d" % (number % 997), b"")
    with contextlib.closing(at(proxy.bootstrap)) as hostile, contextlib.closing(at(proxy.bootstrap)) as decent:
        assert stores(decent)
        hostile.send(producing(bytes(builder.build())), PRODUCE)
        assert stores(decent)
        hostile.frame()


def bomb() -> BatchBuilder:
    """Records that are small on the wire, and take 60 MiB in memory."""
    builder = BatchBuilder()
    for number in range(60):
        builder.append(1, b"k%d" % number, bytes(MB))
    return builder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topic", "compression"), [*(("t", each) for each in Compression if each), ("seen", Compression.GZIP)]
)
def test_a_batch_that_is_large_when_it_is_decompressed_holds_nobody_up(
    ottla_broker: Broker, topic: str, compression: Compression
) -> None:
    for name in ("t", "seen"):
        create_topic(ottla_broker.bootstrap, name, PARTITIONS, max_message_bytes=str(100 * MB))
    data = bytes(bomb().build(compression=compression))
    with (
        proxied(ottla_broker.bootstrap, "t=rewrite", "seen=observe") as proxy,
        contextlib.closing(at(proxy.bootstrap)) as hostile,
        contextlib.closing(at(proxy.bootstrap)) as decent,
    ):
        assert stores(decent)
        hostile.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic),)), METADATA)
        hostile.send(producing(data, topic=topic), PRODUCE)
        assert stores(decent)
        assert code(parse_response(ProduceResponse, PRODUCE, hostile.frame())[1]) == 0


# -- a process, whose memory is measured


class Processes:
    """A broker, a proxy in front of it, and the topic ``t``."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.broker = BrokerProcess(folder / "data")
        create_topic(self.broker.bootstrap, "t", PARTITIONS, max_message_bytes=str(100 * MB))
        rule = ("--topic", "t=rewrite", "--state", str(folder / "state"))
        self.proxy = ProxyProcess(folder, self.broker.bootstrap, *rule, *options)

    @property
    def memory(self) -> int:
        """The proxy's private memory in MiB."""
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self.proxy.pid}/status").read_text())
        assert found
        return int(found[1]) // 1024

    @property
    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.proxy.pid}/fd"))

    def end(self) -> None:
        self.proxy.end()
        self.broker.kill()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    # On a busy machine thousands of connections hold the broker up for longer than the defaults.
    timeouts = [each for name in ("connect", "request") for each in (f"--{name}-timeout", f"{HUNG:g}")]
    running = Processes(tmp_path, *timeouts)
    yield running
    running.end()
    assert "please report it" not in running.proxy.log.read_text()


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.deep
@on_linux
def test_bombs_are_stored_beside_others_and_their_memory_comes_back(processes: Processes) -> None:
    bootstrap = processes.proxy.bootstrap
    with contextlib.closing(at(bootstrap)) as hostile, contextlib.closing(at(bootstrap)) as decent:
        assert stores(decent)
        before = processes.memory
        bombs = [bytes(bomb().build(compression=each)) for each in Compression if each]
        for data in bombs * 3:
            hostile.send(producing(data), PRODUCE)
            assert stores(decent)
            hostile.frame()
        assert stores(hostile)
        assert processes.memory < before + 64, "33 were measured, and 136 where glibc keeps freed memory"
    found = LIBRDKAFKA.consume(processes.broker.bootstrap, "t", timeout=HUNG)
    assert sum(len(each.value or b"") == MB for each in found) == len(bombs) * 3 * 60


@pytest.mark.deep
@on_linux
def test_thousands_of_producer_ids_of_one_client_leave_room_for_others(processes: Processes) -> None:
    opening = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    bootstrap = processes.proxy.bootstrap
    with contextlib.closing(at(bootstrap, 60)) as hostile, contextlib.closing(at(bootstrap)) as decent:
        for _ in range(3000):
            identity = hostile.ask(opening, 4).producer_id
            assert code(hostile.ask(producing(batch([(b"k", b"v")], identity, 0, 0)), PRODUCE)) == 0
        assert processes.files < 700
        assert stores(decent)


@pytest.mark.deep
@on_linux
def test_thousands_of_producers_at_once_of_one_client_leave_room_for_others(processes: Processes) -> None:
    opening = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    bootstrap = processes.proxy.bootstrap
    other = at(bootstrap, source="127.0.0.2")
    with contextlib.closing(at(bootstrap, 60)) as hostile, contextlib.closing(other) as decent:
        assert stores(decent)
        identities = [hostile.ask(opening, 4).producer_id for _ in range(1500)]
        before = processes.files
        for identity in identities:
            hostile.send(replace(producing(batch([(b"k", b"v")], identity, 0, 0)), acks=1), PRODUCE)
        codes = {code(parse_response(ProduceResponse, PRODUCE, hostile.frame())[1]) for _ in identities}
        assert processes.files < before + 520, "MOST_CONNECTIONS idle ones, and those at work"
        assert codes <= {0, NotEnoughReplicas.code}
        processes.broker.freeze()
        with contextlib.suppress(ConnectionError, EOFError):  # an error for records with acks=0 closes the connection
            for identity in identities:
                hostile.send(replace(producing(batch([(b"k", b"v")], identity, 0, 1)), acks=0), PRODUCE)
            hostile.ask(HELLO, 3)
        files = processes.files
        processes.broker.thaw()
        assert files < before + 520
        assert stores(decent)


@pytest.mark.deep
@on_linux
def test_two_thousand_connections_at_once_are_served_and_what_they_took_comes_back(processes: Processes) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * CROWD:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * CROWD), hard))
    bootstrap = processes.proxy.bootstrap
    memory: list[int] = []
    with contextlib.closing(at(bootstrap)) as decent:
        for _ in range(3):
            with contextlib.ExitStack() as crowd:
                peers = [crowd.enter_context(contextlib.closing(at(bootstrap))) for _ in range(CROWD)]
                for peer in peers:
                    peer.send(HELLO, VERSIONS)
                assert stores(decent)
                for peer in peers:
                    peer.frame()
                assert stores(decent)
            while processes.files > 100:  # a process gives the test no other event to wait on
                assert stores(decent)
            memory.append(processes.memory)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert memory[-1] < memory[0] + 20, "later connections use the freed memory"
