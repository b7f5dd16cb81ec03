"""A client may name any number of topics: that takes little memory, and the topics of other clients do not wait."""

import pytest

from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest, TopicProduceData
from ottla.proxy.clients.routed_topics import MOST_WAITED_FOR
from ottla.proxy.upstream.attempts import AGAIN
from ottla.proxy.upstream.control import TOPICS_AT_ONCE
from ottla.proxy.upstream.wanted_topics import OWN, WantedTopics
from tests.proxy.simulated import Upstream, World, batch


def named(world: World) -> int:
    """How many unknown topics upstream was asked about."""
    asked = (each for request in world.upstream.asked(MetadataRequest) for each in request.topics or ())
    return sum((each.name or "").startswith("made-up") for each in asked)


def test_names_that_are_only_observed_are_bounded_and_come_last() -> None:
    world = World(Upstream({"flights": 3}), "flights=rewrite", "*=observe")
    world.settle(1)
    for request in range(3):
        names = (f"made-up-{request}-{number}" for number in range(5000))
        topics = tuple(TopicProduceData(name=name, partition_data=()) for name in names)
        world.request(1, ProduceRequest(transactional_id=None, acks=1, timeout_ms=9, topic_data=topics), 8)
    reply = world.produce(2, {("flights", 0): batch([(b"k", b"v")])})
    world.settle(4 * AGAIN)
    assert reply.code == 0
    world.settle(10)
    assert named(world) < TOPICS_AT_ONCE


@pytest.mark.parametrize("mode", ["rewrite", "reject"])
def test_a_client_that_names_many_topics_leaves_room_for_others(mode: str) -> None:
    world = World(Upstream({"flights": 1, "boats": 1}), f"*={mode}")
    world.settle(1)
    many = {(f"made-up-{number}", 0): batch([(b"k", b"v")]) for number in range(MOST_WAITED_FOR + 100)}
    for client in (1, 3, 4):
        world.produce(client, many)
    replies = [
        world.produce(client, {(topic, 0): batch([(b"k", b"v")])}) for client, topic in ((2, "flights"), (5, "boats"))
    ]
    world.settle(4 * AGAIN)
    assert [reply.code for reply in replies] == [0, 0]
    world.settle(60)
    assert world.core.idle and not world.core.topics._waiting and not world.core.buffered.total


def test_names_are_taken_in_turn_and_bounded_for_each_asker() -> None:
    wanted = WantedTopics(3)
    wanted.add("abcdef", 1)
    wanted.add("axy", 2)
    wanted.add("uvwxyz", OWN)
    assert len(wanted) == 12
    assert wanted.take(4) == ["a", "u", "b", "x"]
    assert wanted.take(100) == ["v", "c", "y", "w", "x", "z"]
    assert not wanted and wanted.take(1) == []
