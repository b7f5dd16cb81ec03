"""`Metadata` by itself: whom it asks, when, and what it makes of the answers. No connection, no clock."""

import random
from collections.abc import Callable, Container
from typing import Any

from ottla.codec.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.errors import BrokerUnreachable, ConnectionLost, OttlaError
from ottla.sdk.cluster.cluster import Cluster
from ottla.sdk.cluster.metadata import HEDGE_DELAY, Metadata
from ottla.sdk.cluster.nodes import Nodes
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Found, Node
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer, Timers


class Client:
    """What `Metadata` needs of a client, and nothing else: requests are kept until the test answers them."""

    def __init__(self, seeds: int = 2) -> None:
        self.options = Options()
        self.closed: OttlaError | None = None
        self.timers = Timers()
        self.now = 0.0
        self.asked: list[tuple[Node, Exchange]] = []
        self.done: list[str] = []
        cluster = Cluster()
        self.nodes = Nodes([("seed", 1 + index) for index in range(seeds)], cluster, random.Random(1))
        self.metadata = Metadata(self, cluster, self.nodes, findable=True)

    def later(self, when: float, call: Callable[[float], None]) -> Timer:
        return self.timers.add(when, call)

    def soon(self, call: Callable[[float], None]) -> Timer:
        return self.timers.add(self.now, call)

    def fail_on_close(self, outcome: Outcome[Any]) -> None: ...

    def backoff(self, failures: int) -> float:
        return 0.5

    def submit(self, node: Node, exchange: Exchange, now: float) -> None:
        self.asked.append((node, exchange))

    def other_node(self, but: Container[int]) -> Node | None:
        return self.nodes.next(but)

    def nodes_changed(self, now: float) -> None:
        self.done.append("changed")

    def give_up(self, node: Node, why: str, now: float) -> None:
        self.done.append(why)

    def give_up_all(self, why: str, now: float) -> None:
        self.done.append("all")

    def find(self) -> None:
        self.done.append("find")

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while (due := self.timers.next) is not None and due <= end:
            self.now = max(self.now, due)
            if call := self.timers.due(self.now):
                call(self.now)
        self.now = end

    def answer(self, answer: MetadataResponse | OttlaError) -> None:
        """Answer the oldest request."""
        _, exchange = self.asked.pop(0)
        exchange.settle(answer, self.now)
        self.passes(0.0)


def cluster(*topics: str, name: str = "c1") -> MetadataResponse:
    partition = MetadataResponsePartition(error_code=0, partition_index=0, leader_id=1, replica_nodes=(), isr_nodes=())
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="n", port=1),),
        cluster_id=name,
        topics=tuple(MetadataResponseTopic(error_code=0, name=each, partitions=(partition,)) for each in topics),
    )


def test_the_first_answer_settles_connect() -> None:
    client = Client()
    connected = client.metadata.connect(0.0)
    client.passes(0.0)
    assert len(client.asked) == 1 and not connected.done
    client.answer(cluster())
    assert connected.done and connected.error is None and client.done == ["changed"]


def test_another_node_is_asked_when_the_first_does_not_answer_and_none_twice() -> None:
    client = Client(seeds=2)
    client.metadata.connect(0.0)
    client.passes(HEDGE_DELAY - 0.1)
    assert len(client.asked) == 1
    client.passes(5.0)
    assert len({node.id for node, _ in client.asked}) == len(client.asked) == 2


def test_after_a_round_of_failures_brokers_are_looked_for_and_a_pause_is_made() -> None:
    client = Client(seeds=2)
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(ConnectionLost("refused"))
    assert len(client.asked) == 1, "the next address at once"
    client.answer(ConnectionLost("refused"))
    assert client.done == ["find"] and not client.asked
    client.metadata.found(Found((("other", 9),)), client.now)
    client.passes(0.0)
    assert [node.host for node, _ in client.asked] == ["other"]


def test_refreshes_come_once_in_a_backoff_and_a_topic_that_is_waited_for_at_once() -> None:
    client = Client()
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(cluster())
    client.metadata.refresh(client.now)
    client.passes(0.05)
    assert not client.asked
    known = client.metadata.topic("t", client.now)
    client.passes(0.0)
    client.answer(cluster("t"))
    assert known.done and known.error is None
    client.metadata.refresh(client.now)
    client.passes(0.09)
    assert not client.asked
    client.passes(0.01)
    assert len(client.asked) == 1


def test_a_foreign_cluster_is_given_up_and_named_in_the_error() -> None:
    client = Client(seeds=1)
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(cluster())
    wanted = client.metadata.topic("t", client.now)
    client.passes(0.0)
    client.answer(cluster("t", name="c2"))
    assert client.done[-1] == "it belongs to cluster 'c2', and this client to 'c1'"
    assert not wanted.done and client.metadata.cluster.topics == {}
    assert any("it belongs to cluster 'c2'" in line for line in client.metadata.explain(client.now))
    client.passes(client.options.api_timeout)
    assert isinstance(wanted.error, BrokerUnreachable)
