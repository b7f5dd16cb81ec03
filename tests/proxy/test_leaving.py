"""Clients that leave without waiting: the proxy carries out their requests, and upstream stores all records."""

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import build_request
from ottla.proxy.events import ConnectUpstream, FinishUpstream, Left, Requested, UpstreamLost
from ottla.proxy.upstream import link
from ottla.proxy.upstream.streams import UNSETTLED
from tests.brokerlite.peer import Peer
from tests.brokerlite.running import BrokerProcess
from tests.patience import HUNG
from tests.proxy.running import ProxyThread
from tests.proxy.simulated import Upstream, World, batch
from tests.proxy.test_rewriting import world_of
from tests.proxy.test_transactions import add, code, end, ends, opened, produce

MB = 2**20
PRODUCE, VERSIONS, LIST_OFFSETS = 9, 3, 7


def unanswered(topic: str, *values: bytes) -> ProduceRequest:
    """A request with ``acks=0``."""
    data = PartitionProduceData(index=0, records=batch([(b"k", value) for value in values]))
    return ProduceRequest(acks=0, timeout_ms=1000, topic_data=(TopicProduceData(name=topic, partition_data=(data,)),))


# -- the machine


def test_requests_that_wait_for_their_connection_are_passed_on_when_their_client_has_left() -> None:
    world = World(Upstream({"plain": 1}))
    for ticket in range(3):
        frame = build_request(unanswered("plain", b"%d" % ticket), PRODUCE, ticket, "client")[4:]
        world.arrive(1, frame, PRODUCE)
    world.core.handle(Left(1), world.now)
    world.settle(1)
    assert world.upstream.values("plain") == [b"0", b"1", b"2"]
    assert len(world.finished) == 1 and not world.core.buffered.total


def test_the_connection_of_a_client_that_has_left_is_finished_and_not_cut() -> None:
    world = World(Upstream({"plain": 1}))
    world.request(1, unanswered("plain", b"0"), PRODUCE)
    world.core.handle(Left(1), world.now)
    actions = world.core.poll(world.now)
    assert [type(each) for each in actions] == [FinishUpstream]


def test_an_answer_that_is_due_keeps_the_connection_of_a_client_that_has_left() -> None:
    world = World(Upstream({"plain": 1}))
    world.slow = True
    world.produce(1, {("plain", 0): batch([(b"k", b"1")])})
    world.leave(1)
    assert not world.finished
    world.release()
    assert len(world.finished) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended_though_its_client_has_left(commit: bool) -> None:
    world = world_of()
    producer = opened(world)
    world.slow = True
    produce(world, producer, 0, 3, 4)
    end(world, producer, commit=commit)
    world.leave(1)
    assert not ends(world), "it waits for the transaction's records"
    world.release()
    assert [each.committed for each in ends(world)] == [commit]
    following = opened(world)
    add(world, following, {"flights": (0,)})
    assert code(end(world, following, commit=False)) == 0


def test_requests_before_a_client_was_refused_are_passed_on() -> None:
    world = World(Upstream({"plain": 1}))
    frame = build_request(unanswered("plain", b"0"), PRODUCE, 0, "client")[4:]
    world.arrive(1, frame, PRODUCE)
    world.arrive(1, struct.pack(">hhih", 12345, 0, 5, -1), 0)
    world.settle(1)
    assert list(world.closed) == [1] and world.upstream.values("plain") == [b"0"]


def test_a_connection_whose_answer_never_comes_ends_some_time_after_its_client_has_left() -> None:
    world = World(Upstream({"plain": 1}))
    world.slow = True
    world.produce(1, {("plain", 0): batch([(b"k", b"1")])})
    before = set(world._links)
    world.leave(1)
    world.settle(link.LINGER - 1)
    assert before <= set(world._links)
    world.settle(3)
    assert not before <= set(world._links)


def test_connections_of_clients_that_have_left_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MOST_ENDING", 3)
    world = World(Upstream({"plain": 1}))
    world.slow = True
    others = len(world._links)
    for client in range(10):
        world.produce(client, {("plain", 0): batch([(b"k", b"1")])})
        world.leave(client)
    assert len(world._links) == others + 3
    assert world.core.idle, "requests only wait for responses"


def test_all_clients_may_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MOST_ENDING", 3)
    world = World(Upstream({"plain": 1}))
    for client in range(1, 21):
        frame = build_request(unanswered("plain", b"%d" % client), PRODUCE, client, "client")[4:]
        world.arrive(client, frame, PRODUCE)
    for client in range(1, 21):
        world.core.handle(Left(client), world.now)
    world.settle(1)
    assert {*world.upstream.values("plain")} == {b"%d" % client for client in range(1, 21)}


def test_requests_that_wait_for_an_upstream_that_cannot_be_reached_are_not_dropped_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(Upstream({"plain": 1}))
    frame = build_request(unanswered("plain", b"0"), PRODUCE, 0, "client")[4:]
    world.core.handle(Requested(1, 0, 0, frame, "peer"), world.now)
    [connect] = [each for each in world.core.poll(world.now) if isinstance(each, ConnectUpstream)]
    world.core.handle(Left(1), world.now)
    world.core.handle(UpstreamLost(connect.link, "cannot connect: refused"), world.now)
    [line] = [each.getMessage() for each in caplog.records if "dropped" in each.getMessage()]
    assert line.endswith("cannot connect: refused")


def full_of(world: World, acks: int) -> list[bytes]:
    """Have a client send records and leave while upstream is slow, and another fill the buffer; the client's values."""
    world.slow = True
    early = [b"early-%d" % number for number in range(20)]
    for value in early:
        world.produce(1, {("flights", 0): batch([(b"k", value + bytes(500))])}, acks=acks)
    world.leave(1)
    while not world.held:
        world.produce(2, {("flights", 0): batch([(b"k", bytes(20_000))])}, acks=1)
    world.slow = False
    world.release()
    world.settle(5)
    return [value[: len(sent)] for sent, value in zip(early, early_values(world), strict=False)]


def early_values(world: World) -> list[bytes]:
    return [value for value in world.upstream.values("flights") if value and value.startswith(b"early")]


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "dropped" in each.getMessage()]


def test_a_full_buffer_drops_no_records_that_a_client_sent_without_awaiting_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such a client never sends them again, so others that fill the buffer give way: they are not read."""
    world = world_of(max_buffered=300_000)
    assert full_of(world, acks=0) == [b"early-%d" % number for number in range(20)]
    assert not dropped(caplog) and not world.core.buffered.total


def test_a_full_buffer_drops_awaited_requests_of_clients_that_have_left_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(max_buffered=300_000)
    assert full_of(world, acks=1) == [b"early-0"], "only the batch in flight"
    assert dropped(caplog) == [
        "requests of a disconnected client dropped: the proxy's buffer is full, because upstream is too slow"
    ]
    tally = world.core.tallies["flights"]
    assert tally.dropped == 19 and not tally.refused + tally.outcome_unknown
    world.settle(61)
    assert [each.endswith("18 more in 60 s") or each for each in dropped(caplog)[1:]] == [True]


def test_a_producer_lent_again_belongs_to_its_new_client_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(max_buffered=300_000)
    world.produce(3, {("flights", 0): batch([(b"k", b"v")])}, acks=0)
    world.leave(3)
    assert len(full_of(world, acks=1)) == UNSETTLED and dropped(caplog)


def test_records_that_are_refused_after_their_client_has_left_are_not_dropped_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of(max_buffered=1000)
    world.slow = True
    for client in range(1, 9):
        world.produce(client, {("flights", 0): batch([(b"k", bytes(1000))])}, acks=0)
        world.leave(client)
    [line] = [each for each in caplog.records if each.getMessage() == "records with acks=0 were refused"]
    assert "buffer is full" in line.__dict__["why"]


def test_a_proxy_is_not_idle_while_requests_of_a_client_that_has_left_are_on_their_way() -> None:
    world = World(Upstream({"plain": 1}))
    frame = build_request(unanswered("plain", b"0"), PRODUCE, 0, "client")[4:]
    world.arrive(1, frame, PRODUCE)
    world.core.handle(Left(1), world.now)
    assert not world.core.idle
    world.settle(1)
    assert world.core.idle


def test_a_proxy_that_ends_has_upstream_take_what_stands_behind_a_request_without_an_answer() -> None:
    world = World(Upstream({"plain": 1}))
    world.slow = True
    world.produce(1, {("plain", 0): batch([(b"k", b"1")])})
    world.request(1, unanswered("plain", b"2"), PRODUCE)
    world.leave(1)
    assert world.core.idle and not world.core.finished
    world.core.finish(world.now)
    world.settle(1)
    assert len(world.finished) == 1 and not world.core.finished
    world.release()
    assert world.core.finished and world.upstream.values("plain") == [b"1", b"2"]


# -- between processes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    try:
        yield broker
    finally:
        broker.kill()


def frozen(broker: BrokerProcess, work: Callable[[], None]) -> None:
    """Run ``work`` while the broker's process is stopped."""
    os.kill(broker._process.pid, signal.SIGSTOP)
    try:
        work()
    finally:
        os.kill(broker._process.pid, signal.SIGCONT)


def at(bootstrap: str) -> Peer:
    return Peer(int(bootstrap.rpartition(":")[2]), timeout=HUNG)


def stored(broker: BrokerProcess, topic: str, enough: int) -> int:
    """The number of records in a topic, once there are enough, or no more come for a while."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    asks = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),))
    with at(broker.bootstrap) as peer:
        until = time.monotonic() + HUNG
        while time.monotonic() < until:
            [answer] = peer.ask(asks, LIST_OFFSETS).topics[0].partitions
            if answer.offset >= enough:
                break
            time.sleep(0.05)
        return int(answer.offset)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["the client leaves", "the client leaves, then the proxy stops", "the proxy stops"])
def test_records_without_answers_reach_upstream_however_it_ends(broker: BrokerProcess, end: str) -> None:
    from tests.interop.peers import create_topic

    count = 5
    proxy = ProxyThread(broker.bootstrap, "see=observe", "rw=rewrite")
    proxy.start()
    peer = at(proxy.bootstrap)
    try:
        for topic in ("plain", "see", "rw"):
            create_topic(broker.bootstrap, topic, 1)
        peer.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), VERSIONS)
        for topic in ("plain", "see", "rw"):
            peer.send(unanswered(topic, b"0"), PRODUCE)
            assert stored(broker, topic, 1) == 1

        def send() -> None:
            for _ in range(count):
                for topic in ("plain", "see", "rw"):
                    peer.send(unanswered(topic, os.urandom(MB // 4)), PRODUCE)
            if end != "the proxy stops":
                peer.close()
            time.sleep(1)  # the proxy has read up to its bounds, and upstream has accepted no bytes

        frozen(broker, send)
        if end != "the client leaves":
            proxy.stop()
        peer.close()
        assert [stored(broker, topic, 1 + count) for topic in ("plain", "see", "rw")] == [1 + count] * 3
    finally:
        peer.close()
        proxy.stop()
