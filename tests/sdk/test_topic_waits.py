"""Parts of a consumer that wait for topics to appear: after they are stopped, they send no more requests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.apis.metadata import MetadataRequest
from ottla.errors import LeaderNotAvailable
from ottla.sdk.consume.assignment.subscription import Subscription
from ottla.sdk.consume.options import ConsumerPlan, TopicFilter
from ottla.sdk.consume.partitions.position import Time
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import Flow
from ottla.sdk.group.assignors import Member, RangeAssignor
from ottla.sdk.group.leader import Leader
from tests.sim.world import ModelBroker, World

Stop = Callable[[], object]


class Leaderless(ModelBroker):
    """A broker that lists its topics, which have no leader yet."""

    def _answer(self, node: int, message: Any) -> Any:
        answer = super()._answer(node, message)
        if not isinstance(message, MetadataRequest) or message.topics is None:
            return answer
        topics = [replace(each, error_code=LeaderNotAvailable.code, partitions=()) for each in answer.topics]
        return replace(answer, topics=tuple(topics))


def subscribed(core: ClientCore, now: float) -> Stop:
    plan = ConsumerPlan(start=Time(EARLIEST), matches=TopicFilter(".*"))
    subscription = Subscription(core, plan, lambda now: None)
    subscription.begin(now)
    return subscription.stop


def leading(core: ClientCore, now: float) -> Stop:
    leader = Leader(core, "g", lambda why, now: None)
    members = [Member("m", topics=frozenset({"t", "u"}))]
    return Flow(core, leader.assign(RangeAssignor(), members, skip=False)).cancel


@pytest.mark.parametrize("begin", [subscribed, leading])
def test_nothing_more_is_asked_about_topics_of_a_part_that_was_stopped(
    begin: Callable[[ClientCore, float], Stop],
) -> None:
    broker = Leaderless({"t": 1, "u": 1})
    world = World(broker)
    world.call(world.core.connect)

    def asked_until(when: float) -> int:
        world.run(when - world.now)
        return sum(isinstance(message, MetadataRequest) for _, message in broker.requests)

    stop = begin(world.core, world.now)
    asked = asked_until(2.0)
    with world.core.gate:
        stop()
    assert asked > 10 and asked_until(20.0) <= asked + 1, "at most the request that was already scheduled"
