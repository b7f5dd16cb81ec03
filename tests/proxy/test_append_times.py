"""Topics with ``message.timestamp.type=LogAppendTime``: producers get the time that the broker gave their records."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.codec.apis.produce import ProduceResponse
from ottla.errors import NotEnoughReplicas, RequestTimedOut
from tests.proxy.simulated import ANSWERED, CUT_BEFORE, World, batch
from tests.proxy.test_rewriting import key_at, world_of

TIME = 1_800_000_000_000


def stamping(times: dict[int, int]) -> Callable[[Any, Any], Any]:
    """A `bend` with which upstream gives records the time of their partition."""

    def bend(request: Any, answer: Any) -> Any:
        for topic in answer.responses if isinstance(answer, ProduceResponse) else ():
            for each in topic.partition_responses:
                each.log_append_time_ms = times.get(each.index, -1)
        return answer

    return bend


@pytest.fixture
def world() -> World:
    world = world_of(journal=True)
    world.producer_id(1)
    world.upstream.bend = stamping({1: TIME, 2: TIME + 7})
    return world


def told(world: World, data: bytes) -> int:
    reply = world.produce(1, {("flights", 1): data})
    world.settle(1)
    (response,) = reply.produced.values()
    assert response.error_code == 0
    time: int = response.log_append_time_ms
    return time


def test_a_batch_that_stays_whole_has_the_time_of_its_partition(world: World) -> None:
    assert told(world, batch([(key_at(1), b"x")])) == TIME


def test_a_batch_that_is_spread_has_the_latest_time_of_its_parts(world: World) -> None:
    assert told(world, batch([(key_at(2), b"x"), (key_at(1), b"y"), (key_at(3), b"z")])) == TIME + 7


def test_records_that_keep_their_own_time_have_none_from_the_broker(world: World) -> None:
    assert told(world, batch([(key_at(3), b"x")])) == -1


def test_a_retry_gets_the_same_time_also_after_a_restart(world: World) -> None:
    own = world.producer_id(1)
    data = batch([(key_at(2), b"x")], own, 0, 0)
    assert told(world, data) == TIME + 7
    world.upstream.bend = stamping({})
    assert told(world, data) == TIME + 7
    world.restart()
    assert told(world, data) == TIME + 7


def test_a_batch_that_a_restart_completes_has_the_latest_time_of_the_rest(world: World) -> None:
    own = world.producer_id(1)
    data = batch([(key_at(2), b"x"), (key_at(1), b"y")], own, 0, 0)
    fates = iter([ANSWERED])
    world.upstream.fate = lambda request: next(fates, CUT_BEFORE)
    world.upstream.errors["flights", 1] += [NotEnoughReplicas.code]
    world.produce(1, {("flights", 1): data})
    world.upstream.fate = lambda request: ANSWERED
    world.restart()
    world.settle(2)
    assert told(world, data) == TIME


def test_a_batch_that_is_under_way_at_a_restart_has_the_latest_time_of_its_parts(world: World) -> None:
    own = world.producer_id(1)
    data = batch([(key_at(2), b"x"), (key_at(1), b"y")], own, 0, 0)
    world.upstream.errors["flights", 1] += [RequestTimedOut.code]
    assert world.produce(1, {("flights", 1): data}).frame is None, "the part for partition 1 may be stored"
    world.restart()
    world.settle(2)
    assert told(world, data) == TIME + 7
