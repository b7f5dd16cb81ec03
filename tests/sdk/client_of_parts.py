"""A client for tests of single parts: it has a clock and nodes, but no connections."""

import random
from collections.abc import Callable, Container
from typing import Any

from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import Cluster
from ottla.sdk.cluster.metadata import Metadata
from ottla.sdk.cluster.nodes import Nodes
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Node
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer, Timers


class Client:
    """The interface that the machines of sdk/cluster/ need; it keeps requests until the test answers them."""

    def __init__(self, seeds: int = 2) -> None:
        self.options = Options()
        self.missing = ""
        self.silent: dict[int, str] = {}
        self.closed: OttlaError | None = None
        self.timers = Timers()
        self.now = 0.0
        self.asked: list[tuple[Node, Exchange]] = []
        self.done: list[str] = []
        self.connected: Node | None = None
        """The node to prefer to all others."""
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
        connected = self.connected
        return connected if connected and connected.id not in but else self.nodes.next(but)

    def nodes_changed(self, now: float) -> None:
        self.done.append("changed")

    def give_up(self, node: Node, why: str, now: float) -> None:
        self.done.append(why)

    def usual_cause(self, node: Node) -> str:
        return self.silent.get(node.id, "")

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

    def answer(self, answer: Any) -> None:
        """Answer the oldest request."""
        _, exchange = self.asked.pop(0)
        exchange.settle(answer, self.now)
        self.passes(0.0)
