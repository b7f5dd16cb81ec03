"""A topic gets another mode while records of its clients are under way: the later records do not overtake them."""

import pytest

from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import build_request
from ottla.errors import NotLeaderOrFollower
from ottla.proxy import threads
from ottla.proxy.clients.unsettled import LONGEST_WAIT
from ottla.proxy.events import RulesChanged
from ottla.proxy.topic_rule import parse_rule
from tests.proxy.simulated import Upstream, World, batch

TOPIC, OTHER = "flights", "boats"
LARGE = b"A" * 5000


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)


def world_of(*rules: str) -> World:
    world = World(Upstream({TOPIC: 1, OTHER: 1}), *rules)
    world.request(0, MetadataRequest(topics=None), 9)
    for client in (1, 2):
        for topic in (TOPIC, OTHER):
            world.produce(client, {(topic, 0): batch([(b"k", b"first")])})
    world.settle(1)
    return world


def change(world: World, *rules: str) -> None:
    world.core.handle(RulesChanged(tuple(map(parse_rule, rules))), world.now)
    world.settle(0.1)


def finish(world: World) -> None:
    while world.work:
        world.finish(world.work[0])


def stored(world: World, topic: str = TOPIC) -> list[bytes]:
    return [bytes(value or b"")[:1] for value in world.upstream.values(topic)][2:]


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("rules", [[f"{TOPIC}=observe"], [f"{TOPIC}=reject"], []])
def test_records_that_pass_wait_for_earlier_ones_that_are_rewritten(rules: list[str], acks: int) -> None:
    world = world_of(f"{TOPIC}=rewrite")
    world.busy = True
    one = world.produce(1, {(TOPIC, 0): batch([(b"k", LARGE)])}, acks=acks)
    change(world, *rules)
    two = world.produce(1, {(TOPIC, 0): batch([(b"k", b"B")])})
    three = world.request(1, MetadataRequest(topics=None), 9)
    other = world.produce(2, {(TOPIC, 0): batch([(b"k", b"C")])})
    assert other.code == 0 and two.frame is None and three.frame is None, "only this client waits"
    finish(world)
    world.settle(1)
    assert stored(world) == [b"C", b"A", b"B"]
    assert two.code == 0 and three.frame is not None and (not acks or one.code == 0)
    assert not world.core.buffered.total and not world.closed


def test_rewritten_records_wait_for_earlier_ones_that_pass() -> None:
    world = world_of()
    change(world, f"{TOPIC}=rewrite")
    world.produce(2, {(TOPIC, 0): batch([(b"k", b"C")])})  # the proxy describes the topic
    world.settle(1)
    change(world)
    world.slow = True
    one = world.produce(1, {(TOPIC, 0): batch([(b"k", b"A")])})
    change(world, f"{TOPIC}=rewrite")
    two = world.produce(1, {(TOPIC, 0): batch([(b"k", b"B")])})
    assert len(world.upstream.produced) == 6 and one.frame is None
    world.slow = False
    world.release()
    world.settle(1)
    assert (one.code, two.code) == (0, 0) and stored(world) == [b"C", b"A", b"B"]
    assert not world.core.buffered.total


def test_a_large_request_does_not_pass_piece_by_piece_before_earlier_records() -> None:
    world = world_of(f"{TOPIC}=rewrite")
    world.busy = True
    world.produce(1, {(TOPIC, 0): batch([(b"k", LARGE)])})
    data = PartitionProduceData(index=0, records=batch([(b"k", b"B" * 500)]))
    topics = (TopicProduceData(name=TOPIC, partition_data=(data,)),)
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=9000, topic_data=topics)
    frame = build_request(request, 8, 1, "client")[4:]
    change(world)
    assert world.begin(1, frame, 200, 8) is None
    assert world.begin(2, frame, 200, 8) is not None
    finish(world)
    assert world.begin(1, frame, 200, 8) is not None


def test_large_requests_pass_piece_by_piece_after_a_change_unless_their_producer_is_fenced() -> None:
    world = world_of(f"{TOPIC}=rewrite")
    fenced = world.producer_id(1)
    change(world)
    new = world.producer_id(1)
    for producer, topic, passes in [
        (fenced, TOPIC, False),
        (fenced, OTHER, True),
        (new, TOPIC, True),
        (-1, TOPIC, True),
    ]:
        data = PartitionProduceData(index=0, records=batch([(b"k", b"B" * 500)], producer, 0, 0))
        topics = (TopicProduceData(name=topic, partition_data=(data,)),)
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=9000, topic_data=topics)
        frame = build_request(request, 8, 1, "client")[4:]
        assert world.core.begins_passage(1, len(frame), frame[:200], world.now) == passes


def test_records_that_wait_for_too_long_go_back_to_their_client() -> None:
    world = world_of(f"{TOPIC}=rewrite")
    world.busy = True
    world.produce(1, {(TOPIC, 0): batch([(b"k", LARGE)])})
    change(world)
    two = world.produce(1, {(TOPIC, 0): batch([(b"k", b"B")])})
    world.settle(LONGEST_WAIT + 1)
    assert two.code == NotLeaderOrFollower.code
    finish(world)
    assert stored(world) == [b"A"] and not world.core.buffered.total


def test_no_records_wait_for_ever_for_those_that_their_broker_has_lost() -> None:
    world = world_of()
    world.slow = True
    world.produce(1, {(TOPIC, 0): batch([(b"k", b"A")])})
    change(world, f"{TOPIC}=rewrite")
    world.produce(1, {(TOPIC, 0): batch([(b"k", b"B")])})
    world.kill(0)
    world.settle(1)
    assert 1 in world.closed and not world.core.buffered.of


def test_requests_of_a_client_that_has_left_are_carried_out_in_order() -> None:
    world = world_of(f"{TOPIC}=rewrite")
    world.busy = True
    world.produce(1, {(TOPIC, 0): batch([(b"k", LARGE)])})
    change(world)
    world.produce(1, {(TOPIC, 0): batch([(b"k", b"B")])})
    world.leave(1)
    finish(world)
    world.settle(1)
    assert stored(world) == [b"A", b"B"] and not world.core.buffered.of
