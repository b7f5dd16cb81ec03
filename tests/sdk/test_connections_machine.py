"""`Connections` alone: nodes that move, disappear or stop answering."""

import random
from typing import Any

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.errors import ConnectionLost
from ottla.sdk.connection.connections import UNANSWERED_LIMIT, Connections
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import (
    GENERAL,
    PRODUCE,
    Action,
    Close,
    Connect,
    Connected,
    Key,
    Lost,
    Node,
    Received,
    Send,
    Written,
)
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options
from ottla.sdk.timers import Timers

ONE, TWO = Node(1, "one", 1), Node(2, "two", 2)


class Pool:
    """The connections of a client, brokers that only answer handshakes, and the actions of the driver."""

    def __init__(self) -> None:
        self.timers, self.actions, self.ends = Timers(), list[Action](), list[Any]()
        self.suspected: list[float] = []
        self.metrics = Metrics()
        rng = random.Random(1)
        self.all = Connections(Options(), self.metrics, rng, self.timers, self.actions, self.suspect)
        self.seen: list[Action] = []

    def suspect(self, now: float, delay: float) -> None:
        self.suspected.append(now)

    def run(self, now: float) -> list[Action]:
        """Do everything that is due; return the actions except handshakes."""
        self.seen = []
        while True:
            while (call := self.timers.due(now)) or self.all.busy:
                if call:
                    call(now)
                else:
                    self.all.poll(now)
            if not self.actions:
                return self.seen
            for action in self.actions[:]:
                self.actions.remove(action)
                self._do(action, now)

    def _do(self, action: Action, now: float) -> None:
        self.seen.append(action)
        if isinstance(action, Connect):
            self.all.handle(Connected(action.key), now)
        elif isinstance(action, Send):
            self.all.handle(Written(action.key), now)
            request = frames.parse_request(b"".join(action.parts)[4:])
            if request.header.api_key == 18:
                self.seen.remove(action)
                keys = (ApiVersion(api_key=3, min_version=0, max_version=9),)
                answer = ApiVersionsResponse(error_code=0, api_keys=keys)
                self.all.handle(Received(action.key, frames.build_response(answer, 3, 0)), now)

    def ask(self, node: Node, now: float, channel: str = GENERAL, deadline: float = 1e3) -> None:
        ended = Exchange(MetadataRequest(topics=()), lambda answer, now: self.ends.append(answer), deadline)
        self.all.submit(node, ended, now, channel)


def keys(actions: list[Action], kind: type) -> list[Key]:
    return [each.key for each in actions if isinstance(each, kind) and isinstance(each, Connect | Close | Send)]


def test_a_channel_is_connected_with_its_first_request_and_is_no_other_channels() -> None:
    pool = Pool()
    pool.ask(ONE, 0.0)
    pool.ask(ONE, 0.0, PRODUCE)
    actions = pool.run(0.0)
    assert keys(actions, Connect) == keys(actions, Send) == [(1, GENERAL), (1, PRODUCE)]
    assert pool.all.connected(1) and not pool.all.connected(2)
    pool.all.retire(PRODUCE, 1.0)
    assert keys(pool.run(1.0), Close) == [(1, PRODUCE)] and isinstance(pool.ends[0], ConnectionLost)


def test_the_least_loaded_node_is_judged_by_its_ordinary_channel() -> None:
    pool = Pool()
    for node, channel in (
        (ONE, GENERAL),
        (TWO, GENERAL),
        (TWO, GENERAL),
        (ONE, PRODUCE),
        (ONE, PRODUCE),
        (ONE, PRODUCE),
    ):
        pool.ask(node, 0.0, channel)
    pool.run(0.0)
    assert pool.all.least_loaded(()) == ONE and pool.all.least_loaded({1}) == TWO


def test_a_node_that_does_not_answer_is_suspected_and_given_up_once_the_cluster_has() -> None:
    pool = Pool()
    pool.ask(ONE, 0.0)
    pool.run(0.01)
    pool.run(UNANSWERED_LIMIT)
    assert not pool.suspected
    now = UNANSWERED_LIMIT * 1.5
    pool.run(now)
    assert pool.suspected == [now]
    pool.all.update({1: ONE, 2: TWO}, (), now)
    assert pool.run(now) == []
    pool.all.update({2: TWO}, (), now)
    assert keys(pool.run(now), Close) == [(1, GENERAL)]
    assert "the node does not answer, and has left the cluster" in str(pool.ends[0])


def test_a_node_is_in_no_trouble_where_one_connection_ended_and_another_works() -> None:
    pool = Pool()
    pool.ask(ONE, 0.0)
    pool.ask(ONE, 0.0, PRODUCE)
    pool.run(0.0)
    for channel in (GENERAL, PRODUCE):
        answer = frames.build_response(MetadataResponse(brokers=(), topics=()), 9, 1)
        pool.all.handle(Received((1, channel), answer), 0.1)
    pool.all.handle(Lost((1, PRODUCE), "closed by the broker"), 1.0)
    assert pool.all.troubles(20.0) == {}
    pool.ask(ONE, 30.0)
    pool.run(30.0)
    answer = frames.build_response(MetadataResponse(brokers=(), topics=()), 9, 2)
    pool.all.handle(Received((1, GENERAL), answer), 30.0)
    pool.all.handle(Lost((1, GENERAL), "closed by the broker"), 61.0)
    [trouble] = pool.all.troubles(62.0).values()
    assert trouble.node == ONE and trouble.since == 30.0 and trouble.requests == 0


def test_a_node_that_left_is_forgotten_and_begins_again_when_it_is_back() -> None:
    pool = Pool()
    pool.ask(ONE, 0.0, deadline=1.0)
    pool.run(0.0)
    pool.run(1.0)
    pool.all.update({2: TWO}, (), 1.0)
    assert pool.all.peer(1) is None
    assert not [each for each in pool.metrics.snapshot(1.0) if each.tags.get("node-id") == "node-1"]
    pool.ask(ONE, 1.0)
    assert keys(pool.run(1.0), Connect) == [(1, GENERAL)], "without the backoff of its earlier failures"


def test_a_bootstrap_address_is_not_a_node_that_left() -> None:
    pool = Pool()
    seed = Node(-1, "seed", 1)
    pool.ask(seed, 0.0, deadline=1.0)
    pool.run(0.0)
    pool.run(1.0)
    pool.all.update({1: ONE}, (-1,), 1.0)
    assert pool.all.peer(-1) is not None
    pool.all.update({1: ONE}, (), 1.0)
    assert pool.all.peer(-1) is None
