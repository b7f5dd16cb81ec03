"""Another client added partitions to a topic: a partition that metadata lacks is refused only after a refresh."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.codec.apis.list_offsets import LATEST
from ottla.codec.apis.metadata import MetadataRequest
from ottla.errors import DeliveryFailed, OttlaError, UnknownTopicOrPartition
from ottla.sdk import calls
from ottla.sdk.calls.offset_lookups import reachable_offsets
from ottla.sdk.calls.reads import How, fetch_many
from ottla.sdk.consume.assignment.subscription import know_topics
from ottla.sdk.consume.reading.range_reader import OffsetRange, RangeReader, Taken
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.steps import Steps
from tests.sdk.calling import Call
from tests.sim.world import ModelBroker, World

NEW, MISSING = ("t", 1), ("t", 2)


def grown() -> World:
    """A client that holds a topic and knows one of its two partitions."""
    world = World(ModelBroker({"t": 1}))
    world.core.metadata.hold("t")
    world.call(lambda now: world.core.metadata.topic("t", now))
    world.broker.cluster.grow("t", 1)
    world.broker.logs[NEW].append(b"new", timestamp=1000)
    world.broker.requests.clear()
    return world


def asked(world: World) -> int:
    """How many metadata requests were sent since the start."""
    return sum(isinstance(message, MetadataRequest) for _, message in world.broker.requests)


def finish(world: World, steps: Steps[Any]) -> Call[Any]:
    call = Call(world.core, steps, lambda: world.now, lambda: None)
    world.run(lambda: call.go_on().over)
    return call


LOOKUPS: dict[str, Callable[[World, tuple[str, int]], Outcome[Any]]] = {
    "offsets": lambda world, place: calls.offsets(world.core, {place: LATEST}, world.now),
    "offsets_before": lambda world, place: calls.offsets_before(world.core, {place: LATEST}, world.now),
    "reachable_offsets": lambda world, place: reachable_offsets(world.core, {place: LATEST}, world.now),
    "fetch": lambda world, place: fetch_many(world.core, {place: 0}, world.now, How(1 << 20, 0.5, 0)),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_call_finds_a_partition_that_is_new(name: str) -> None:
    world = grown()
    outcome = LOOKUPS[name](world, NEW)
    world.run(outcome)
    assert not isinstance(outcome.result()[NEW], OttlaError)


@pytest.mark.parametrize("name", ["offsets", "fetch"])
def test_a_call_asks_once_before_it_refuses_a_partition(name: str) -> None:
    world = grown()
    outcome = LOOKUPS[name](world, MISSING)
    world.run(outcome)
    error = outcome.error or outcome.result()[MISSING]
    assert isinstance(error, UnknownTopicOrPartition) and "partitions 0 to 1, not 2" in str(error)
    assert asked(world) == 1


@pytest.mark.parametrize("together", [1, 3])
def test_callers_who_name_a_wrong_partition_in_a_loop_cause_no_storm_of_metadata_requests(together: int) -> None:
    world = grown()
    begun, pause = world.now, world.core.options.retry_backoff
    for _ in range(50):
        outcomes = [LOOKUPS["offsets"](world, MISSING) for _ in range(together)]
        for outcome in outcomes:
            world.run(outcome)
            assert isinstance(outcome.error, UnknownTopicOrPartition)
    assert asked(world) <= (world.now - begun) / pause + 1


def test_a_call_about_partitions_that_are_known_asks_for_no_metadata() -> None:
    world = grown()
    world.call(lambda now: calls.offsets(world.core, {("t", 0): LATEST}, now))
    assert asked(world) == 0


def test_a_new_consumer_reads_the_partitions_that_are_new() -> None:
    world = grown()
    assert finish(world, know_topics(world.core, ["t"], ())).error is None
    assert len(world.core.cluster.topics["t"].partitions) == 2 and asked(world) == 1


def test_a_consumer_of_partitions_by_hand_asks_once_before_it_refuses_one() -> None:
    world = grown()
    assert finish(world, know_topics(world.core, (), [("t", 0), NEW])).error is None
    refused = finish(world, know_topics(world.core, (), [MISSING]))
    assert isinstance(refused.error, UnknownTopicOrPartition) and "not 2" in str(refused.error)
    assert asked(world) == 2


def test_a_range_of_a_partition_that_is_new_is_read_and_not_lost() -> None:
    world = grown()
    reading = RangeReader(world.core, [OffsetRange(*NEW, 0, 1, world.broker.cluster.ids["t"])])
    taken = reading.take()
    while taken is None:
        world.run(reading.wait())
        taken = reading.take()
    assert isinstance(taken, Taken)
    reading.close()


def test_a_producer_sends_to_a_partition_that_is_new_and_refuses_one_that_is_missing_alone() -> None:
    world = grown()
    producer = ProducerCore(world.core, ProducerOptions(linger=0.0), random.Random(1))

    def send(partition: int) -> None:
        producer.append(PendingRecord("t", b"v", None, partition, (), 1000), world.now)

    for partition in (0, NEW[1], MISSING[1], 0):
        send(partition)
    error = finish(world, producer.flush()).error
    assert isinstance(error, DeliveryFailed) and error.partitions == {("t", 2): 1}, error
    assert isinstance(error.cause, UnknownTopicOrPartition) and "partitions 0 to 1, not 2" in str(error.cause)
    assert [world.broker.logs["t", each].end for each in (0, 1)] == [2, 2]
    assert asked(world) == 1
