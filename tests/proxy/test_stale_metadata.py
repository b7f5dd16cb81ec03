"""Nodes with stale metadata: their responses about topics that were recreated or have grown do no harm."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.partitioners import murmur2_partition
from tests.proxy.simulated import ANSWERED, CUT_AFTER, Upstream, World, batch, naming
from tests.proxy.test_rewriting import key_at

OLD, NEW = UUID(int=7), UUID(int=1001)
"""The ids that upstream gives the topic."""
FLIGHTS = ("flights", 3)
Change = Callable[[MetadataResponse], None]


def ask(world: World) -> None:
    """A client requests the topic's metadata."""
    world.request(9, MetadataRequest(topics=(MetadataRequestTopic(name="flights"),)), 12)
    world.settle(1)


def lagging(world: World, change: Change, *, times: int) -> None:
    """Make the next Metadata responses those of a node with stale metadata."""
    left = [times]

    def bend(request: object, answer: Any) -> Any:
        if isinstance(answer, MetadataResponse) and left[0]:
            left[0] -= 1
            change(answer)
        return answer

    world.upstream.bend = bend


def as_it_was(told: MetadataResponse) -> None:
    for topic in told.topics:
        topic.topic_id = OLD


def lose_the_next_answer(world: World) -> None:
    fates = [CUT_AFTER]

    def fate(_: object) -> str:
        return fates.pop() if fates else ANSWERED

    world.upstream.fate = fate


@pytest.fixture
def world() -> World:
    return World(Upstream({"flights": 6}), "flights=rewrite")


@pytest.mark.parametrize("known", [True, False], ids=["the old id was known", "the old id was never seen"])
def test_records_are_not_stored_twice_because_a_node_tells_of_the_topic_before(world: World, known: bool) -> None:
    if known:
        ask(world)
    world.upstream.cluster.recreate("flights")
    ask(world)
    own = world.producer_id(1)
    assert world.produce(1, {FLIGHTS: batch([(key_at(3), b"first")], own, 0, 0)}).code == 0
    lagging(world, as_it_was, times=1)
    lose_the_next_answer(world)
    reply = world.produce(1, {FLIGHTS: batch([(key_at(3), b"once")], own, 0, 1)})
    world.settle(40)
    assert world.upstream.values("flights") == [b"first", b"once"]
    if known:
        assert reply.code == 0
    assert reply.frame is not None


def test_a_key_stays_where_it_is_although_a_node_tells_of_the_topic_before(world: World) -> None:
    key = next(
        key for key in (b"N%d" % n for n in range(40)) if murmur2_partition(key, 6) != murmur2_partition(key, 12)
    )
    world.upstream.cluster.recreate("flights")
    ask(world)
    world.produce(1, {FLIGHTS: batch([(key, b"before")])})
    world.upstream.cluster.grow("flights", 6)

    def six_of_old(told: MetadataResponse) -> None:
        as_it_was(told)
        for topic in told.topics:
            topic.partitions = topic.partitions[:6]

    lagging(world, six_of_old, times=1)
    ask(world)
    world.produce(1, {FLIGHTS: batch([(key, b"meanwhile")])})
    world.settle(20)
    ask(world)
    assert world.produce(1, {FLIGHTS: batch([(key, b"after")])}).code == 0
    world.settle(5)
    there = [place for place, log in world.upstream.logs.items() if any(record.key == key for record in log)]
    assert there == [("flights", murmur2_partition(key, 6))]


def test_records_are_not_given_back_because_a_node_does_not_know_of_new_partitions() -> None:
    world = World(Upstream({"flights": 12}), "flights=rewrite::12")
    ask(world)
    key = next(key for key in (b"N%d" % n for n in range(99)) if murmur2_partition(key, 12) == 8)
    own = world.producer_id(1)

    def six(told: MetadataResponse) -> None:
        for topic in told.topics:
            topic.partitions = tuple(each for each in topic.partitions if each.partition_index < 6)

    lagging(world, six, times=3)
    lose_the_next_answer(world)
    reply = world.produce(1, {("flights", 8): batch([(key, b"once")], own, 0, 0)})
    world.settle(10)
    assert reply.code == 0
    assert world.upstream.values("flights") == [b"once"]


def test_an_id_that_was_replaced_is_believed_again_where_nobody_names_the_other_any_more(world: World) -> None:
    ask(world)
    for topic_id in (NEW, OLD):
        world.upstream.bend = naming("flights", topic_id)
        ask(world)
    assert world.core.cluster.topics["flights"].topic_id == NEW
    world.settle(20)
    ask(world)
    assert world.core.cluster.topics["flights"].topic_id == OLD
