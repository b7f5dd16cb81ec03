"""The broker over real sockets: clients that speak no Kafka, limits, order of responses, and every way to end."""

import gc
import json
import logging
import multiprocessing
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from ottla.addresses import parse_address
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.serve import RunningBroker, _asleep, _BrokerService, _work_off, run_broker
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.codec.apis.fetch import FetchResponse
from ottla.codec.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.share_fetch import ShareFetchResponse
from ottla.codec.frames import build_request, framed, parse_response
from ottla.codec.wire import NO_UUID
from ottla.errors import ConfigurationError, MessageTooLarge, UnknownTopicOrPartition, UnsupportedVersion
from ottla.testing import Broker
from tests.brokerlite import sharing
from tests.brokerlite.machine import NEWEST, Machine, a_batch, fetching, idempotent, producing, values_of
from tests.brokerlite.model_disk import ModelDisk
from tests.brokerlite.peer import Peer
from tests.brokerlite.sharing import acquired, beat, configure
from tests.patience import FAR

SHARE_FETCH = 78
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@asynccontextmanager
async def a_broker(**config: Any) -> AsyncIterator[RunningBroker]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run_broker, BrokerConfig(port=0, sync=Sync.NEVER, **config))
        nursery.cancel_scope.cancel()


@contextmanager
def broker_with(path: Path, **config: Any) -> Iterator[Broker]:
    broker = Broker(BrokerConfig(port=0, data=path / "data", sync=Sync.NEVER, **config))
    try:
        yield broker
    finally:
        broker.stop()


# -- clients that speak no Kafka


@pytest.mark.parametrize(
    ("what", "data", "seems"),
    [
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), "a TLS hello"),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request"),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH client"),
        ("garbage", b"\xff" * 100, "not Kafka's protocol"),
        ("an unknown API", framed(b"\x27\x0f\0\0\0\0\0\1\xff\xff"), "API key 9999 version 0 is not served"),
        ("an API that is not served", framed(b"\0\x22\0\1\0\0\0\1\xff\xff"), "API key 34 version 1"),
        ("a version that is not served", framed(b"\0\0\0\2\0\0\0\1\xff\xff" + b"\0\1\0\0\0\5\0\0\0\0"), "version 2"),
        ("a version that is not known", framed(b"\0\3\0\x0e\0\0\0\1\xff\xff"), "version 14"),
        ("a version that no API has", framed(b"\0\3\0\x63\0\0\0\1\xff\xff"), "3 with a version that no API has"),
        ("a truncated body", framed(b"\0\3\0\1\0\0\0\1\xff\xff\0\0\0\2\0"), "MetadataRequest"),
        ("a truncated header", framed(b"\0\3\0"), "RequestHeader"),
        ("an empty frame", framed(b""), "RequestHeader"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("a") else "",
)
def test_a_stranger_loses_its_connection_with_a_line_in_the_log_and_others_go_on(
    ottla_broker: Broker, caplog: pytest.LogCaptureFixture, what: str, data: bytes, seems: str
) -> None:
    with caplog.at_level(logging.WARNING), Peer(ottla_broker.port) as guest, Peer(ottla_broker.port) as stranger:
        guest.ask(HELLO)
        stranger.write(data)
        assert stranger.closed()
        assert guest.ask(HELLO).error_code == 0
    (line,) = [record for record in caplog.records if record.name == "ottla.serve"]
    assert seems in line.getMessage() and getattr(line, "peer", "").startswith("127.0.0.1:")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_was_forked_keeps_no_connection_no_port_and_no_folder(tmp_path: Path) -> None:
    """Until Python 3.14, `multiprocessing` forks its processes on Linux by default."""
    with broker_with(tmp_path) as broker, Peer(broker.port) as peer:
        peer.ask(HELLO)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        try:
            broker.stop()
            assert peer.closed()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", broker.port), 5)
            broker.start()
            with Peer(broker.port) as again:
                again.ask(HELLO)
        finally:
            child.kill()
            child.join()


def test_connections_take_no_descriptor_that_the_storage_needs(tmp_path: Path) -> None:
    """In a process that may have 256 descriptors: 128 are for files, 32 spare, and 8 for clients that log in."""
    few = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 256))"
    broker = ["broker", "--listen", "127.0.0.1:0", "--data", f"{tmp_path}/data", "--json"]
    command = [sys.executable, "-c", f"{few}; from ottla.cli import main; main()", *broker]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process, ExitStack() as stack:
        assert process.stdout is not None and process.stderr is not None
        stack.callback(process.kill)
        port = int(json.loads(process.stdout.readline())["bootstrap"].rpartition(":")[2])
        peers = [stack.enter_context(Peer(port)) for _ in range(88 + 1)]
        assert peers[-1].closed() and peers[0].ask(HELLO).error_code == 0
        assert any("connection refused: 88 are open" in line for line in process.stderr)


def test_a_request_larger_than_the_limit_closes_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_with(tmp_path, max_request_bytes=5000) as broker, Peer(broker.port) as peer:
        peer.write(framed(bytes(5001))[:100])
        assert peer.closed()
    assert "a frame of 5001 bytes is over the limit of 5000" in caplog.text


def test_bytes_left_over_behind_a_request_are_accepted(ottla_broker: Broker) -> None:
    with Peer(ottla_broker.port) as peer:
        peer.write(framed(b"\0\x12\0\0\0\0\0\7\xff\xff" + b"too much"))
        correlation_id, answer = parse_response(ApiVersionsResponse, 0, peer.frame())
        assert (correlation_id, answer.error_code) == (7, 0)


def test_a_too_new_api_versions_is_answered_and_the_connection_goes_on(ottla_broker: Broker) -> None:
    with Peer(ottla_broker.port) as peer:
        peer.write(framed(b"\0\x12\0\x05\0\0\0\1\xff\xff" + b"whatever comes"))
        _, answer = parse_response(ApiVersionsResponse, 0, peer.frame())
        assert answer.error_code == UnsupportedVersion.code
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
        assert peer.ask(HELLO).error_code == 0


def test_a_request_may_come_byte_by_byte_or_many_at_once(ottla_broker: Broker) -> None:
    request = framed(b"\0\x12\0\0\0\0\0\1\xff\xff")
    with Peer(ottla_broker.port) as peer:
        for byte in request:
            peer.write(bytes((byte,)))
        assert parse_response(ApiVersionsResponse, 0, peer.frame())[0] == 1
        peer.write(request * 50)
        for _ in range(50):
            assert parse_response(ApiVersionsResponse, 0, peer.frame())[0] == 1


# -- answers


def test_answers_leave_in_the_order_of_the_requests_also_behind_one_that_waits(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    with Peer(ottla_broker.port) as peer:
        fetch = peer.send(fetching(wait=0.2))
        hello = peer.send(HELLO)
        produce = peer.send(producing(a_batch(b"a")))
        frames = [peer.frame() for _ in range(3)]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [fetch, hello, produce]
        _, fetched = parse_response(FetchResponse, 12, frames[0])
        assert fetched.responses[0].partitions[0].records == b"", "the batch behind it was stored after this response"


def test_a_request_sees_what_the_one_before_it_on_its_connection_has_done(ottla_broker: Broker) -> None:
    """confluent-kafka asks for the first offset right behind DeleteRecords, which waits for the disk."""
    ottla_broker.create_topic("t")
    with Peer(ottla_broker.port) as peer:
        peer.ask(producing(a_batch(b"a", b"b", b"c")))
        deletion = DeleteRecordsPartition(partition_index=0, offset=2)
        first = ListOffsetsPartition(partition_index=0, timestamp=-2)
        peer.send(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(deletion,)),), timeout_ms=1000))
        peer.send(ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(first,)),)))
        _, deleted = parse_response(DeleteRecordsResponse, NEWEST[21], peer.frame())
        _, listed = parse_response(ListOffsetsResponse, NEWEST[2], peer.frame())
        assert (deleted.topics[0].partitions[0].low_watermark, listed.topics[0].partitions[0].offset) == (2, 2)


def test_a_request_behind_one_that_closes_its_connection_does_not_begin(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    refused = build_request(producing(a_batch(b"a"), topic="no-such", acks=0), NEWEST[0], 1, "test")
    behind = build_request(producing(a_batch(b"b")), NEWEST[0], 2, "test")
    with Peer(ottla_broker.port) as peer:
        peer.write(refused + behind)
        assert peer.closed()
    with Peer(ottla_broker.port) as other:
        assert other.ask(fetching(wait=0)).responses[0].partitions[0].high_watermark == 0


def test_a_fetch_that_nothing_comes_for_is_answered_after_its_time(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    with Peer(ottla_broker.port) as peer:
        began = time.monotonic()
        answer = peer.ask(fetching(wait=0.2))
        assert time.monotonic() - began > 0.19
        assert answer.responses[0].partitions[0].records == b""


def test_a_fetch_is_woken_by_another_connections_record(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    with Peer(ottla_broker.port) as reader, Peer(ottla_broker.port) as writer:
        reader.send(fetching(wait=FAR))
        writer.ask(producing(a_batch(b"a")))
        assert len(reader.frame()) > 60


def test_acks_0_has_no_answer_and_the_next_request_has(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    with Peer(ottla_broker.port) as peer:
        peer.send(producing(a_batch(b"a"), acks=0))
        assert values_of(peer.ask(fetching()).responses[0].partitions[0].records) == [b"a"]
        peer.send(producing(a_batch(b"a"), topic="no-such", acks=0))
        assert peer.closed()


def test_a_record_larger_than_the_broker_takes_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    with broker_with(tmp_path, max_message_bytes=1000) as broker, Peer(broker.port) as peer:
        broker.create_topic("t")
        answer = peer.ask(producing(a_batch(bytes(2000))))
        assert answer.responses[0].partition_responses[0].error_code == MessageTooLarge.code
        assert peer.ask(producing(a_batch())).responses[0].partition_responses[0].error_code == 0


def test_an_unknown_topic_stays_unknown_where_nothing_is_created(tmp_path: Path) -> None:
    with broker_with(tmp_path, auto_create=False) as broker, Peer(broker.port) as peer:
        answer = peer.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)))
        assert answer.topics[0].error_code == UnknownTopicOrPartition.code
        assert not list(broker.data.glob("t-*"))


def test_a_client_that_goes_while_it_waits_leaves_no_trace(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    for _ in range(20):
        with Peer(ottla_broker.port) as peer:
            peer.send(fetching(wait=30))
    with Peer(ottla_broker.port) as peer:
        assert peer.ask(producing(a_batch())).responses[0].partition_responses[0].error_code == 0


# -- addresses


def test_what_is_advertised_is_what_was_said(tmp_path: Path) -> None:
    with broker_with(tmp_path, advertise="kafka.example:1234", node_id=7) as broker, Peer(broker.port) as peer:
        (told,) = peer.ask(MetadataRequest(topics=None)).brokers
        assert (told.node_id, told.host, told.port) == (7, "kafka.example", 1234)


def test_a_host_alone_is_advertised_with_the_port_that_was_found(tmp_path: Path) -> None:
    with broker_with(tmp_path, advertise="kafka.example") as broker, Peer(broker.port) as peer:
        (told,) = peer.ask(MetadataRequest(topics=None)).brokers
        assert (told.host, told.port) == ("kafka.example", broker.port)


def test_who_comes_to_a_broker_on_every_address_is_told_the_one_they_came_by(tmp_path: Path) -> None:
    with broker_with(tmp_path, host="0.0.0.0") as broker:
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        for host in ("127.0.0.1", "127.0.0.2"):
            with Peer(broker.port, host) as peer:
                assert peer.ask(MetadataRequest(topics=None)).brokers[0].host == host


@pytest.mark.parametrize("option", [{"port": 70000}, {"node_id": -1}, {"segment_bytes": 5}, {"advertise": ":"}])
def test_options_out_of_range_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        BrokerConfig(**option)


# -- beginning and end


async def test_a_port_in_use_is_refused_with_advice_and_no_folder_is_left(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            await run_broker(BrokerConfig(port=port, data=tmp_path / "data"))
    assert not (tmp_path / "data").exists(), "a broker that cannot listen leaves no folder"
    async with a_broker(data=tmp_path / "data"):
        pass


async def test_a_health_port_in_use_is_refused_with_advice() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match="for health checks"):
            await run_broker(BrokerConfig(port=0, health=address))


async def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear …")
    with pytest.raises(ConfigurationError, match=r"contains other files \(letter.txt\)"):
        await run_broker(BrokerConfig(port=0, data=tmp_path))


async def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    async with a_broker(data=tmp_path / "data"):
        with pytest.raises(ConfigurationError, match="in use by another broker"):
            await run_broker(BrokerConfig(port=0, data=tmp_path / "data"))


async def test_without_a_folder_it_is_temporary() -> None:
    async with a_broker() as running:
        assert running.data.is_dir()
    assert not running.data.exists()


async def test_the_probes_tell_health_and_readiness() -> None:
    async def probe(path: str) -> bytes:
        assert running.health is not None
        stream = await trio.open_tcp_stream(*parse_address(running.health))
        async with stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            return await stream.receive_some(100)

    async with a_broker(health="127.0.0.1:0") as running:
        assert b" 200 " in (await probe("/health"))
        assert b" 200 " in (await probe("/ready"))
        running.ready = False
        assert b" 503 " in (await probe("/ready"))


async def test_a_drained_broker_answers_who_waits_and_closes_its_folder_in_good_order(tmp_path: Path) -> None:
    def one_who_waits() -> tuple[Peer, int]:
        peer = Peer(running.port)
        peer.ask(producing(a_batch(b"a")))
        peer.send(fetching(1, wait=FAR))
        return peer, running.port

    async with trio.open_nursery() as nursery:
        running: RunningBroker = await nursery.start(run_broker, BrokerConfig(port=0, data=tmp_path / "data"))
        running.create_topic("t", 1, {})
        peer, _ = await trio.to_thread.run_sync(one_who_waits)
        running.drain()
    with peer:
        assert len(peer.frame()) > 20
        assert peer.closed()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_cancelled_broker_drains_too(tmp_path: Path) -> None:
    async with a_broker(data=tmp_path / "data") as running:
        running.create_topic("t", 1, {})
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_start_is_told_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for what in ("data folder created", "data folder opened"):
        caplog.clear()
        async with a_broker(data=tmp_path / "data") as running:
            if what == "data folder created":
                running.create_topic("t", 2, {})
        (line,) = [record for record in caplog.records if record.getMessage() == what]
        assert line.__dict__["partitions"] == (0 if what == "data folder created" else 2)


# -- the fixture


def test_the_fixture_keeps_topics_over_a_restart_and_a_kill(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    bootstrap = ottla_broker.bootstrap
    for end in ("restart", "kill"):
        with Peer(ottla_broker.port) as peer:
            peer.ask(producing(a_batch(b"a"), partition=1))
        getattr(ottla_broker, end)()
        if end == "kill":
            assert not (ottla_broker.data / ".kafka_cleanshutdown").exists()
            ottla_broker.start()
        assert ottla_broker.bootstrap == bootstrap
    with Peer(ottla_broker.port) as peer:
        answer = peer.ask(fetching(partitions=(0, 1)))
        assert [values_of(p.records) for p in answer.responses[0].partitions] == [[], [b"a", b"a"]]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is not reserved by binding it")
def test_the_port_of_the_fixture_is_given_to_nobody_while_the_broker_is_down(ottla_broker: Broker) -> None:
    address = ottla_broker.host, ottla_broker.port
    ottla_broker.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    ottla_broker.start()
    assert (ottla_broker.host, ottla_broker.port) == address
    socket.create_connection(address).close()


def test_a_retry_after_a_kill_is_stored_once(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    for _ in range(3):
        for sequence in range(0, 10, 2):
            with Peer(ottla_broker.port) as peer:
                answer = peer.ask(producing(idempotent(sequence, 2)))
                assert answer.responses[0].partition_responses[0].base_offset == sequence
        ottla_broker.kill()
        ottla_broker.start()
    with Peer(ottla_broker.port) as peer:
        assert values_of(peer.ask(fetching()).responses[0].partitions[0].records) == [b"%d" % i for i in range(10)]


def test_the_fixture_raises_what_the_broker_says(ottla_broker: Broker) -> None:
    from ottla.errors import InvalidTopic

    with pytest.raises(InvalidTopic):
        ottla_broker.create_topic("no/such")
    ottla_broker.stop()
    with pytest.raises(RuntimeError, match="is not running"):
        ottla_broker.create_topic("t")


def test_a_broker_that_cannot_start_says_so_in_the_test(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear …")
    with pytest.raises(ConfigurationError, match=r"letter.txt"):
        Broker(BrokerConfig(port=0, data=tmp_path))


def test_a_fresh_broker_takes_under_50_milliseconds_of_cpu(tmp_path: Path) -> None:
    times = []
    for i in range(5):
        began = time.process_time()
        broker = Broker(BrokerConfig(port=0, data=tmp_path / str(i), sync=Sync.NEVER))
        broker.create_topic("t")
        times.append(time.process_time() - began)
        broker.stop()
    assert min(times) < 0.05


async def test_the_fixture_serves_a_test_under_trio_too(ottla_broker: Broker) -> None:
    stream = await trio.open_tcp_stream(ottla_broker.host, ottla_broker.port)
    async with stream:
        await stream.send_all(framed(b"\0\x12\0\0\0\0\0\1\xff\xff"))
        assert len(await stream.receive_some(1000)) > 20


# -- its clock


@pytest.mark.parametrize(("sleeps", "steps"), [(8, 8), (0, 8), (0, -8)], ids=["sleep", "step", "step back"])
async def test_its_clock_goes_on_while_the_machine_sleeps_and_takes_no_step_of_the_systems_clock(
    monkeypatch: pytest.MonkeyPatch, sleeps: int, steps: int
) -> None:
    days = 24 * 3600
    async with a_broker() as running:
        began = time.time_ns()
        clock_gettime, time_ns = time.clock_gettime, time.time_ns
        monkeypatch.setattr(time, "clock_gettime", lambda clock: clock_gettime(clock) + sleeps * days)
        monkeypatch.setattr(time, "time_ns", lambda: time_ns() + steps * days * 10**9)

        def ask() -> None:
            with Peer(running.port) as peer:
                assert peer.ask(HELLO).error_code == 0

        await trio.to_thread.run_sync(ask)
        passed = running._core.clock.timestamp / 1000 - began / 10**9
        assert abs(passed - sleeps * days) < 60


# -- jobs in the background


async def test_a_job_that_was_refused_leaves_nothing_of_the_refusal_behind() -> None:
    class Refused(OSError):
        pass

    refusals: list[weakref.ref[Refused]] = []

    def work() -> None:
        error = Refused("the disk refused")
        refusals.append(weakref.ref(error))
        raise error

    def job() -> Job:
        with suppress(OSError):
            yield work

    class Front:
        def resume(self, job: Job, raised: Exception | None) -> Work:
            return next(job) if raised is None else job.throw(raised)

        def send(self) -> None:
            pass

    gc.collect()
    gc.disable()
    try:
        await _work_off(cast(_BrokerService, Front()), job())
        await trio.to_thread.run_sync(int)  # the thread lets go of the work before
        (refusal,) = refusals
        assert refusal() is None
    finally:
        gc.enable()


# -- share groups


def test_a_waiting_member_gets_the_records_of_one_that_hangs_up(tmp_path: Path) -> None:
    nothing_else = {
        "group_share_session_timeout": FAR,
        "group_share_record_lock_duration": FAR,
        "log_cleaner_backoff": FAR,
        "log_retention_check": FAR,
    }
    with broker_with(tmp_path, **nothing_else) as broker, Peer(broker.port) as waiting:
        topics = (MetadataRequestTopic(topic_id=NO_UUID, name="t"),)
        with Peer(broker.port) as leaving:
            while (described := leaving.ask(MetadataRequest(topics=topics)).topics[0]).error_code:
                pass  # the topic is being created
            assert leaving.ask(configure(auto_offset_reset="earliest")).responses[0].error_code == 0
            assert leaving.ask(beat()).error_code == 0
            leaving.ask(producing(a_batch(b"0")))
            assert acquired(leaving.ask(sharing.fetch(described.topic_id))) == {0: [(0, 0, 1)]}
            waiting.send(sharing.fetch(described.topic_id, member="n", wait=FAR))
            leaving.ask(HELLO)  # by now the other request waits
        _, answer = parse_response(ShareFetchResponse, NEWEST[SHARE_FETCH], waiting.frame())
    assert acquired(answer) == {0: [(0, 0, 2)]}


# -- the clock


async def test_the_core_is_told_how_far_the_clock_at_the_start_was_ahead() -> None:
    front, day = _BrokerService(), 24 * 3600 * 1000
    front.core = Machine(Path("/data"), disk=ModelDisk()).core
    front.core.clock = Clock.at(trio.current_time(), time.time_ns() // 1_000_000 + day, _asleep())
    front._read_clocks()
    assert abs(front.core.clock.behind - day) < 60_000
