"""Large frames that the proxy passes on in pieces: responses of upstream, and Produce requests for one partition."""

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.compression import Compression
from ottla.codec.frames import build_request, framed
from ottla.codec.inbox import LARGE
from ottla.proxy.clients.buffered import LEAST_WINDOW, MOST_GONE, WINDOW, Buffered
from ottla.proxy.events import UpstreamPaused
from ottla.proxy.upstream.link import STALLED
from tests.proxy.simulated import PRODUCE_VERSION, Reply, Upstream, World, batch

BODY = bytes(range(256)) * 1024
"""Of a large response."""
DATA = batch([(b"k", bytes(1000))] * 200)
"""A large batch."""

MIB = 2**20


class Fetching:
    """A client whose Fetch upstream has got, and answers in pieces."""

    def __init__(self) -> None:
        self.world = World(Upstream({"plain": 2}))
        self.world.request(1, ApiVersionsRequest(), 3)
        self.sent = b""
        self.world.upstream.answer = self._keep  # type: ignore[method-assign]  # upstream that answers later
        self.reply = self.world.request(1, FetchRequest(max_wait_ms=1, min_bytes=1, topics=()), 12)
        [self.link] = [link for link, each in self.world.core.links._live.items() if each.in_flight]
        self.answer = framed(self.sent[4:8] + BODY)

    def _keep(self, node: int, frame: bytes) -> tuple[None, str]:
        self.sent = frame
        return None, "answered"


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def test_a_large_response_is_passed_on_as_its_bytes_arrive(fetching: Fetching) -> None:
    world, reply, answer = fetching.world, fetching.reply, fetching.answer
    own, at = (4712).to_bytes(4, "big"), 0
    for size in (LARGE, 1000, 1, len(answer) - LARGE - 1001):
        world.receive(fetching.link, answer[at : at + size])
        at += size
        assert reply.begun == (answer[:4] + own + answer[8:])[:at]
        assert world.core.links.find(fetching.link).needs == 0, "no buffer holds it"  # type: ignore[union-attr]
    assert reply.frame == own + BODY


def test_the_response_behind_one_that_was_passed_on_is_the_next_ones(fetching: Fetching) -> None:
    world = fetching.world
    after = world.request(1, FetchRequest(max_wait_ms=1, min_bytes=1, topics=()), 12)
    both = fetching.answer + framed(fetching.sent[4:8] + b"short")
    world.receive(fetching.link, both[:LARGE])
    assert not after.begun
    world.receive(fetching.link, both[LARGE:])
    assert fetching.reply.frame is not None and after.frame is not None
    assert after.frame[4:] == b"short"


def test_a_response_that_is_cut_off_closes_its_client(fetching: Fetching) -> None:
    fetching.world.receive(fetching.link, fetching.answer[:LARGE])
    fetching.world.lose(fetching.link)
    fetching.world.settle()
    assert fetching.reply.begun and fetching.reply.frame is None
    assert "cut" in fetching.world.closed[1]


def test_a_response_that_stops_closes_its_client_and_one_that_goes_on_does_not(fetching: Fetching) -> None:
    world, answer = fetching.world, fetching.answer
    world.receive(fetching.link, answer[:LARGE])
    for n in range(60):
        world.settle(STALLED / 2)
        world.receive(fetching.link, answer[LARGE + n : LARGE + n + 1])
    assert not world.closed, "slow, but steady"
    world.settle(STALLED + 2)
    assert "no answer to a client's request in time" in world.closed[1]


def test_a_client_that_reads_slowly_does_not_count_against_upstream(fetching: Fetching) -> None:
    world, answer = fetching.world, fetching.answer
    world.receive(fetching.link, answer[:LARGE])
    world.core.handle(UpstreamPaused(fetching.link, True), world.now)
    world.settle(100 * STALLED)
    world.core.handle(UpstreamPaused(fetching.link, False), world.now)
    world.settle(STALLED / 2)
    assert not world.closed
    world.receive(fetching.link, answer[LARGE:])
    assert fetching.reply.frame is not None


def test_a_client_that_leaves_within_a_response_gets_no_more_of_it(fetching: Fetching) -> None:
    world, before = fetching.world, fetching.reply
    world.receive(fetching.link, fetching.answer[:LARGE])
    world.leave(1)
    got = before.begun
    world.receive(fetching.link, fetching.answer[LARGE:])
    assert before.begun == got
    assert fetching.link in world.finished


# -- requests


def produce(acks: int = -1, topics: tuple[str, ...] = ("plain",), data: bytes = DATA, partitions: int = 1) -> bytes:
    message = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=tuple(
            TopicProduceData(
                name=name,
                partition_data=tuple(PartitionProduceData(index=index, records=data) for index in range(partitions)),
            )
            for name in topics
        ),
    )
    return build_request(message, PRODUCE_VERSION, 77, "client")[4:]


@pytest.fixture
def world() -> World:
    world = World(Upstream({"plain": 2, "flights": 6, "seen": 2}), "flights=rewrite", "seen=observe")
    world.request(1, ApiVersionsRequest(), 3)
    return world


def begun(world: World, frame: bytes, first: int = 1000) -> Reply:
    reply = world.begin(1, frame, first, PRODUCE_VERSION)
    assert reply is not None
    return reply


@pytest.mark.parametrize("version", range(3, 13))
def test_records_for_one_partition_are_passed_on_as_they_arrive(world: World, version: int) -> None:
    unread = PartitionProduceData(index=1, records=DATA)
    topic = TopicProduceData(name="plain", partition_data=(unread,))
    message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=(topic,))
    frame = build_request(message, version, 77, None)[4:]
    reply = world.begin(1, frame, 200, version)
    assert reply is not None
    for at in range(200, len(frame), 50_000):
        assert not world.core.tallies.passed_bytes, "the client may leave before it has sent all of it"
        world.go_on(1, frame[at : at + 50_000])
    assert reply.frame is not None and int.from_bytes(reply.frame[:4], "big") == 77 and reply.code == 0
    assert world.upstream.produced[-1][1].topic_data[0].partition_data[0].records == DATA
    assert (world.core.tallies.passed_records, world.core.tallies.passed_bytes) == (200, len(DATA))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(produce(topics=("flights",)), id="the proxy rewrites them"),
        pytest.param(produce(topics=("seen",)), id="the proxy reads their keys"),
        pytest.param(produce(partitions=2), id="two partitions, which might be the same"),
        pytest.param(produce(topics=("plain", "flights")), id="two topics"),
        pytest.param(produce(topics=()), id="no topic"),
        pytest.param(
            produce(data=batch([(b"k", bytes(9))] * 9000, compression=Compression.GZIP)),
            id="more records than fit without compression",
        ),
        pytest.param(build_request(MetadataRequest(topics=()), 9, 5, "client")[4:], id="another request"),
    ],
)
def test_other_requests_are_collected(world: World, frame: bytes) -> None:
    assert not world.core.begins_passage(1, len(frame), frame[:1000], world.now)


def test_a_beginning_that_is_too_short_or_invalid_is_collected(world: World) -> None:
    frame = produce()
    assert world.core.begins_passage(1, len(frame), frame[:200], world.now)
    for size in range(8, 100):
        assert not world.core.begins_passage(1, len(frame), frame[:size], world.now)
        broken = frame[: size - 1] + b"\xff" + frame[size:200]
        world.core.begins_passage(1, len(frame), broken, world.now)
    assert not world.core.begins_passage(1, 150, frame[:150], world.now), "more records than the frame has bytes"


def test_other_requests_wait_until_a_request_has_gone_to_its_end(world: World) -> None:
    frame, sent = produce(), len(world.upstream.requests)
    reply = begun(world, frame)
    later = world.request(1, MetadataRequest(topics=()), 9)  # as one of the proxy's that has waited
    assert len(world.upstream.requests) == sent and later.frame is None
    world.go_on(1, frame[1000:])
    assert [type(message) for _, _, message in world.upstream.requests[sent:]] == [ProduceRequest, MetadataRequest]
    assert reply.code == 0 and later.frame is not None


def test_a_client_that_leaves_within_a_request_loses_this_request_only(world: World) -> None:
    first = world.produce(1, {("plain", 0): batch([(b"k", b"1")])}, acks=0)
    begun(world, produce())
    [link] = [number for number, each in world.core.links._live.items() if each._sending]
    world.leave(1)
    assert link in world.finished and first.begun == b""
    assert world.upstream.values("plain") == [b"1"]
    assert world.core.links.finished and not world.core.buffered.total


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_request_whose_broker_is_lost_closes_its_client(world: World, acks: int) -> None:
    reply = begun(world, produce(acks))
    world.kill(0)
    world.settle()
    assert 1 in world.closed and reply.frame is None


def test_records_without_a_response_are_passed_on_too(world: World) -> None:
    frame = produce(acks=0)
    reply = begun(world, frame)
    assert reply.frame is None
    world.go_on(1, frame[1000:])
    assert reply.frame == b"" and world.upstream.produced[-1][1].acks == 0


# -- the budget


def test_within_the_budget_each_client_takes_what_it_needs_and_above_it_only_its_share() -> None:
    budget = Buffered(8 * 2**20)
    assert budget.allows(1, 8 * 2**20) and budget.window(1) == WINDOW
    budget.count(1, 8 * 2**20)
    assert not budget.allows(1, 1) and budget.allows(2, 2**20) and not budget.allows(2, 8 * 2**20)
    for client in range(2, 34):
        budget.count(client, 1000)
    assert budget.window(1) == budget.share(1) == 8 * 2**20 // 33 > LEAST_WINDOW
    for client in range(34, 1000):
        budget.count(client, 1000)
    assert budget.window(1) == LEAST_WINDOW


def test_many_connections_of_a_user_or_a_host_have_one_share_together() -> None:
    budget = Buffered(8 * MIB)
    for client in range(100):
        budget.assign(client, "one host")
        budget.count(client, MIB // 8)
    budget.assign(100, "another host")
    assert not budget.allows(0, 1) and budget.allows(100, 4 * MIB) and not budget.allows(100, 4 * MIB + 1)
    budget.count(100, 2 * MIB)
    budget.assign(101, "another host")
    assert budget.share(100) == 4 * MIB and budget.share(101) == 2 * MIB
    budget.assign(0, "User:alice")
    assert budget.share(0) == 8 * MIB // 3
    assert budget.shares() == {"one host": 8 * MIB // 3 // 99, "another host": 8 * MIB // 3, "User:alice": 8 * MIB // 3}


def test_connections_that_fill_up_one_after_the_other_hold_twice_their_share_at_most() -> None:
    budget = Buffered(64 * MIB)
    budget.count(-1, 1)
    for client in range(1000):
        budget.assign(client, "one host")
        while budget.allows(client, MIB // 4):
            budget.count(client, MIB // 4)
    assert budget.total <= 64 * MIB + 1
    assert budget.allows(-1, 32 * MIB - 1), "another one has its share"


def test_what_is_held_for_clients_that_have_left_counts_for_their_user_until_it_is_gone() -> None:
    budget = Buffered(64 * MIB)
    for client in range(300):
        budget.assign(client, "User:alice")
        budget.count(client, MIB // 4)
        budget.left(client)
    budget.assign(300, "User:bob")
    assert budget.share(300) == 32 * MIB
    for client in range(300):
        budget.count(client, -MIB // 4)
    budget.count(0, MIB)
    assert budget.owner(0) == "User:alice", "its connection to upstream takes memory later"
    budget.count(0, -MIB)
    assert not (budget.total or budget.of or budget._clients or budget._held)
    for client in range(MOST_GONE):
        budget.left(1000 + client)
    assert not budget._owners.keys() - {300} and len(budget._gone) == MOST_GONE


def test_a_client_for_which_something_is_held_for_long_does_not_keep_the_memory_of_others() -> None:
    budget = Buffered(64 * MIB)
    budget.assign(0, "User:alice")
    budget.count(0, 1)
    for client in range(3 * MOST_GONE):
        budget.left(client)
    assert len(budget._gone) <= MOST_GONE + 1 and budget.owner(0) == "User:alice"


def test_no_order_of_owners_takes_more_than_three_times_the_budget() -> None:
    budget = Buffered(64 * MIB)
    for client in range(2000):
        budget.assign(client, f"User:{client % 500}")
        while budget.allows(client, MIB // 16):
            budget.count(client, MIB // 16)
    assert budget.total <= 3 * 64 * MIB
