"""An error inside of the proxy, for one client or one upstream connection, never ends it: the others are served."""

import contextlib
import dataclasses
import logging
import random
import socket
from collections import Counter
from collections.abc import Callable
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any, Self

import pytest
import trio

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.frames import build_request, framed
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import BatchBuilder
from ottla.errors import DecodeError, InvalidRequest, InvalidTimestamp, MessageTooLarge, UnknownTopicOrPartition
from ottla.proxy.clients.acceptance import Acceptance
from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.client_connection import ClientConnection
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.client_session import ClientSession
from ottla.proxy.clients.pending_produce import PendingProduce
from ottla.proxy.clients.produce_handler import ProduceHandler
from ottla.proxy.clients.producers import ClientProducers
from ottla.proxy.clients.record_set_queue import RecordSetQueue
from ottla.proxy.clients.rewrite_counts import RewriteCounts
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.transaction_handler import TransactionHandler
from ottla.proxy.clients.windows import Window
from ottla.proxy.events import Action, AnswerClient, CloseClient, Requested, SendUpstream, UpstreamReceived
from ottla.proxy.serve import _Driver
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.connections import ProducerConnections
from ottla.proxy.upstream.control import LOOK, Control
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.link import UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.producer_id_requests import ProducerIdRequests
from ottla.proxy.upstream.settlements import Settlements
from ottla.proxy.upstream.steering import Steering
from ottla.proxy.upstream.stream_sender import StreamSender
from ottla.proxy.upstream.streams import Stream
from ottla.proxy.upstream.topic_config_requests import TopicConfigRequests
from ottla.testing import Broker
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, Reply, Upstream, World, batch

PARTITIONS = 2
TO = [next(b"%d" % i for i in range(99) if murmur2_partition(b"%d" % i, PARTITIONS) == p) for p in range(PARTITIONS)]
"""Partition -> a key of that partition."""
OPENING = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
KNOWN = MetadataRequest(topics=(MetadataRequestTopic(name="t"), MetadataRequestTopic(name="plain")))


def world_of(nodes: int = 2, **options: Any) -> World:
    world = World(Upstream({"t": PARTITIONS, "plain": 1}, nodes), "t=rewrite", "plain=observe", **options)
    world.request(0, KNOWN, 9)
    world.settle(1)
    return world


def timed(producer_id: int, sequence: int, *records: tuple[int, bytes]) -> bytes:
    builder = BatchBuilder()
    for timestamp, key in records:
        builder.append(timestamp, key, b"v")
    return builder.build(producer_id=producer_id, producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence)


def twice(*topics: str, acks: int = -1) -> ProduceRequest:
    """A request that names a partition twice, in one entry of its topic or in two."""
    data = [PartitionProduceData(index=0, records=batch([(key, b"v")])) for key in TO]
    parts = [tuple(data)] if len(topics) == 1 else [(each,) for each in data]
    named = tuple(TopicProduceData(name=name, partition_data=each) for name, each in zip(topics, parts, strict=True))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=named)


# -- requests that are refused before the state changes


def test_a_batch_with_timestamps_too_far_apart_is_refused_alone() -> None:
    world = world_of()
    producer_id = world.producer_id(1)
    world.slow = True
    first = world.produce(1, {("t", 0): timed(producer_id, 0, (0, TO[0]))})
    far = timed(producer_id, 1, (0, TO[1]), (2**63 - 1, TO[0]), (-(2**62), TO[0]))
    second = world.produce(1, {("t", 0): far})
    world.slow = False
    world.release()
    assert (first.code, second.code) == (0, InvalidTimestamp.code)
    assert world.produce(1, {("t", 0): timed(producer_id, 1, (0, TO[0]))}).code == 0


def test_batches_whose_timestamps_lie_too_far_from_each_other_are_not_joined() -> None:
    world = world_of()
    world.slow = True
    first = world.produce(1, {("t", 0): timed(-1, -1, (0, TO[0]))})  # in flight, so that the others wait together
    others = [
        world.produce(2 + n, {("t", 0): timed(-1, -1, (at, TO[0]))}) for n, at in enumerate((2**63 - 1, -(2**62)))
    ]
    world.slow = False
    world.release()
    world.settle(1)
    assert [reply.code for reply in (first, *others)] == [0, 0, 0]


@pytest.mark.parametrize("name", ["a" * 250, "no spaces"])
def test_what_cannot_be_a_topic_is_for_upstream_to_refuse(name: str) -> None:
    world = World(Upstream({"t": PARTITIONS}), "*=rewrite")
    assert world.produce(1, {(name, 0): batch([(b"k", b"v")])}).code == UnknownTopicOrPartition.code


@pytest.mark.parametrize("topics", [("t",), ("t", "t"), ("plain",), ("plain", "plain")])
def test_a_request_that_names_a_partition_twice_is_refused_and_nothing_of_it_is_stored(topics: tuple[str, ...]) -> None:
    world = world_of()
    world.upstream.errors["t", 1].append(MessageTooLarge.code)
    answer = world.request(1, twice(*topics), 9).parsed(ProduceResponse)
    codes = [each.error_code for topic in answer.responses for each in topic.partition_responses]
    assert codes == [InvalidRequest.code] * 2
    assert world.upstream.values("t") == world.upstream.values("plain") == []


def test_a_client_that_names_a_partition_twice_and_waits_for_no_answer_is_hung_up_on() -> None:
    world = world_of()
    world.request(1, twice("t", acks=0), 9)
    assert "more than once" in world.closed[1]
    assert world.upstream.values("t") == []


def test_nothing_is_taken_from_a_client_after_the_bytes_that_it_is_closed_for() -> None:
    world = world_of()
    for _ in range(2):  # in one chunk, so that the listener has not closed the connection yet
        world.core.handle(Requested(1, 0, 0, b"\x7f\xff" + bytes(6)), world.now)
    assert [type(action) for action in world.core.poll(world.now)] == [CloseClient]


def test_an_answer_of_upstream_that_lacks_a_partition_ends_the_connection_that_waits_for_it() -> None:
    world = world_of()
    world.upstream.bend = lambda request, answer: (
        ProduceResponse(responses=()) if isinstance(request, ProduceRequest) else answer
    )
    world.produce(1, {("plain", 0): batch([(b"k", b"v")])}, version=10)
    assert "lacks 1 of the partitions" in world.closed[1]


# -- unexpected errors

MACHINES = (
    ClientSession,
    ClientConnection,
    ClientLink,
    TransactionHandler,
    ProduceHandler,
    PendingProduce,
    Acceptance,
    Rewriter,
    RewriteCounts,
    RecordSetQueue,
    ClientBatch,
    Delivery,
    Steering,
    StreamSender,
    ProducerConnections,
    Stream,
    Window,
    ClientProducers,
    Control,
    ProducerIdRequests,
    TopicConfigRequests,
    UpstreamCluster,
    UpstreamLink,
    UpstreamLinks,
)
CONTAINING: set[object] = {
    *(ClientSession.request, ClientSession.left, ClientLink.left, ClientConnection.left),
    *(ClientConnection.close, ClientConnection.failed, ClientConnection.contained),
    *(UpstreamLink.end, UpstreamLink.close, UpstreamLinks.find, UpstreamLinks.hang_up),
    UpstreamLinks.tick,
    *(
        ClientBatch.settled,
        ClientBatch.answer,
        Rewriter.failed,
        Rewriter.finished,
        Rewriter._tell,
        Rewriter._tell_of_settled,
    ),
    *(Steering._steer, Steering._try_later, Settlements.settle, Window.abandon, Window.pop_settled),
}
"""The methods that contain the errors of the others."""
ENTRIES: list[tuple[type, str]] = [
    (machine, name)
    for machine in MACHINES
    for name, method in vars(machine).items()
    if isinstance(method, FunctionType) and method not in CONTAINING and not name.startswith("__")
]
MOST_CALLS = 3
"""Methods, each of which is made to raise in turn."""


class Injected(Exception):
    """Stands for an unexpected error."""


def day(world: World) -> list[tuple[int, Reply]]:
    """A sequence of most operations; returns (client, reply)."""
    cuts = iter([CUT_AFTER])
    world.upstream.fate = lambda request: next(cuts, ANSWERED)
    world.upstream.errors["t", 1] += [7, MessageTooLarge.code]
    replies = []
    for client in (1, 2):
        replies.append((client, world.request(client, KNOWN, 9)))
        opening = world.request(client, OPENING, 4)
        replies.append((client, opening))
        if opening.frame is None:
            continue
        producer_id = opening.parsed(InitProducerIdResponse).producer_id
        for sequence in (0, 2, 4):
            data = batch([(key, b"v") for key in TO], producer_id, 0, sequence)
            replies.append((client, world.produce(client, {("t", 0): data, ("plain", 0): batch([(b"k", b"v")])})))
        world.produce(client, {("t", 1): batch([(TO[0], b"v")])}, acks=0)
    replies.append((3, world.produce(3, {("t", 9): batch([(b"k", b"v")])})))
    replies.append((3, world.produce(3, {("new", 0): batch([(b"k", b"v")])})))
    world.kill(1)
    replies.append((4, world.produce(4, {("t", 0): batch([(key, b"v") for key in TO])})))
    world.settle(1)
    world.leave(1)
    world.upstream.down.clear()
    world.settle(130)
    return replies


def world_of_the_day() -> World:
    return World(Upstream({"t": PARTITIONS, "plain": 1}, 2), "t=rewrite", "plain=observe", "new=rewrite")


def preceded(method: Callable[..., Any], by: Callable[[], None]) -> Callable[..., Any]:
    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        by()
        return method(*args, **kwargs)

    return called


@cache
def calls_of_a_day() -> Counter[tuple[type, str]]:
    """The number of calls of each method, when none raises."""
    calls: Counter[tuple[type, str]] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for machine, name in ENTRIES:
            patch.setattr(machine, name, preceded(vars(machine)[name], partial(calls.update, [(machine, name)])))
        served(world_of_the_day(), "nothing raises")
    return calls


class Raises:
    """Raises once, at a given call."""

    def __init__(self, call: int) -> None:
        self.left = call

    def __call__(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Injected


def served(world: World, when: str) -> None:
    """Run the operations, and check that each client is answered, or loses its connection."""
    for client, reply in day(world):
        assert reply.frame is not None or client in world.closed, f"{when}: client {client} still waits for {reply}"


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "name"), ENTRIES, ids=[f"{machine.__name__}.{name}" for machine, name in ENTRIES])
def test_whatever_is_raised_where_ever_the_others_are_served(
    machine: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    for fails in range(min(calls_of_a_day()[machine, name], MOST_CALLS)):
        with monkeypatch.context() as patch:
            raises = Raises(fails)
            patch.setattr(machine, name, preceded(vars(machine)[name], raises))
            world = world_of_the_day()
            served(world, f"call {fails} of {name} raises")
            assert raises.left < 0, f"{name} is not called {fails + 1} times"
            world.settle(2)
            assert world.request(8, KNOWN, 9).frame
            later = world.produce(8, {("t", p): batch([(key, b"late") for key in TO]) for p in range(PARTITIONS)})
            world.settle(2)
            assert {each.error_code for each in later.produced.values()} == {0}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, removed or inserted."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        start = rng.randrange(len(changed) + 1)
        end, more = (
            start + rng.randrange(3),
            bytes(rng.choice([0, 1, 0x7F, 0x80, 0xFF]) for _ in range(rng.randrange(3))),
        )
        changed[start:end] = more
    return bytes(changed)


@pytest.mark.parametrize("damages", [Requested, UpstreamReceived])
@pytest.mark.parametrize("seed", range(15))
def test_no_bytes_of_clients_or_of_upstream_are_a_bug(
    damages: type[Requested | UpstreamReceived], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    world = World(Upstream({"t": PARTITIONS, "plain": 1}, 2), "t=rewrite", "plain=observe", "new=rewrite")
    handle, answer = world.core.handle, world.upstream.answer

    def damaging(event: Any, now: float) -> None:
        if isinstance(event, damages) and rng.random() < 0.2:
            if isinstance(event, Requested):
                event = dataclasses.replace(event, frame=damaged(bytes(event.frame), rng))
            else:
                event = dataclasses.replace(event, data=framed(damaged(event.data[4:], rng)))
        handle(event, now)

    def answer_or_hang_up(node: int, frame: bytes) -> tuple[bytes | None, str]:
        try:
            return answer(node, frame)
        except (DecodeError, AssertionError):  # the latter for a wrong CRC
            return None, CUT_BEFORE

    world.core.handle, world.upstream.answer = damaging, answer_or_hang_up  # type: ignore[method-assign]
    with contextlib.suppress(DecodeError):  # of a client's request that passes unread
        day(world)
    world.core.handle = handle  # type: ignore[method-assign]
    world.core.links.cluster_id = None  # a damaged answer may have named another cluster
    world.settle(LOOK + 5)  # and another address for a node
    asked = world.request(8, KNOWN, 9)
    world.settle(5)
    assert asked.frame
    assert "a bug in the proxy" not in caplog.text


# -- the driver under it


@pytest.mark.parametrize("failing", [AnswerClient, SendUpstream])
def test_an_action_that_cannot_be_carried_out_ends_its_connection_only(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, failing: type[Action], caplog: pytest.LogCaptureFixture
) -> None:
    ottla_broker.create_topic("t")
    original, armed = _Driver._do, list[bool]()

    def do(self: _Driver, action: Action) -> None:
        if armed and isinstance(action, failing):
            armed.clear()
            raise Injected
        original(self, action)

    monkeypatch.setattr(_Driver, "_do", do)
    with proxied(ottla_broker.bootstrap, "t=rewrite") as proxy, connected(proxy) as other:
        assert other.ask(KNOWN)
        with connected(proxy) as client:
            armed.append(True)
            assert client.ask(KNOWN) == b""  # the proxy closed the connection
        assert other.ask(KNOWN)
    assert "a bug in the proxy" in caplog.text


def test_an_upstream_address_that_is_none_ends_its_connection_only(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = trio.open_tcp_stream

    async def open_tcp_stream(host: str, port: int) -> trio.SocketStream:
        return await opened("a" * 70 if wrong else host, port)

    wrong: list[bool] = []
    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    with proxied(ottla_broker.bootstrap) as proxy, connected(proxy) as other:
        assert other.ask(KNOWN)
        wrong.append(True)
        with connected(proxy) as client:
            assert client.ask(KNOWN) == b""
        wrong.clear()
        assert other.ask(KNOWN)
    assert "is no host name" in caplog.text and "Traceback" not in caplog.text


class connected:
    """A client's plain connection to a proxy."""

    def __init__(self, proxy: ProxyThread) -> None:
        host, _, port = proxy.bootstrap.rpartition(":")
        self._stream = socket.create_connection((host, int(port)), timeout=HUNG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def ask(self, request: Any) -> bytes:
        """The response, or no bytes if the connection was closed instead."""
        self._stream.sendall(build_request(request, 9, 1, "c"))
        with self._stream.makefile("rb") as answers:
            return answers.read(int.from_bytes(answers.read(4), "big"))
