"""A client that fetches from a topic through the proxy, and compares what it gets with what the brokers have sent.

Rule: a response to Fetch is what the broker has sent, and every Fetch ends: with a response, or with its connection.
"""

from random import Random
from typing import Any

from ottla.codec import frames
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.sdk.events import Close, Connect, Connected, Event, Lost, Received, Send
from tests.sim.clock import Clock
from tests.sim.cluster import ModelCluster
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.users import Violation

FETCH = 11
"""A version that all releases serve, with names of topics."""
TIMES = 40
"""How many Fetch requests it sends at least."""
WAITS = 0.05
"""Most seconds between two of them."""
PATIENCE = 60.0
"""Seconds after which every Fetch has ended: the proxy gives up a response of which it gets no more pieces."""
CHANGED = "a response to Fetch has records that no broker has sent"
LATE = "a Fetch has not ended"


class Reader(SimulatedProcess):
    """Fetches from the partitions of a topic until it has read enough, at one node after the other.

    Args:
        brought: the record sets in the responses of brokers.

    Attributes:
        done: it has.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        network: Network,
        history: History,
        cluster: ModelCluster,
        chance: Random,
        topic: str,
        brought: set[bytes],
    ) -> None:
        super().__init__(name, clock, network, history)
        self.done = False
        self._cluster, self._chance, self._topic, self._brought = cluster, chance, topic, brought
        self._numbers = 0
        self._asked_at: float | None = None
        self._key: tuple[int, str] | None = None
        self._turn()

    def _turn(self) -> None:
        """Connect to a node, or send the next request."""
        if self.held(self._turn) or self._asked_at is not None:
            return
        self._numbers += 1
        if self._key is None:
            self._key = self._numbers, self.name
            node = self._chance.choice(sorted(self._cluster.nodes))
            self.network.connect(self, Connect(self._key, f"n{node}", PORT + node))
        else:
            self._ask(self._key)
        number, self._asked_at = self._numbers, self.clock.now
        self.clock.later(PATIENCE, lambda: self._check_time(number))

    def _check_time(self, number: int) -> None:
        if number == self._numbers and self._asked_at is not None and self.alive:
            raise Violation(LATE, f"{self.name}, asked at {self._asked_at:.3f}")

    def _ask(self, key: tuple[int, str]) -> None:
        places = [index for topic, index in self._cluster.leaders if topic == self._topic]
        asked = tuple(
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=self._chance.choice((1, 2000, 2**20)))
            for index in places
        )
        request = FetchRequest(
            max_wait_ms=10, min_bytes=0, max_bytes=2**20, topics=(FetchTopic(topic=self._topic, partitions=asked),)
        )
        data = frames.build_request(request, FETCH, self._numbers, self.name)
        self.network.send(self, Send(key, (data,)))

    def hear(self, event: Event) -> None:
        if self.held(lambda: self.hear(event)) or getattr(event, "key", None) != self._key:
            return
        match event:
            case Connected():
                self._ends()
            case Lost():
                self._key = None
                self._ends()
            case Received(_, data):
                self._compare(frames.parse_response(FetchResponse, FETCH, data[4:])[1])
                if self._chance.random() < 0.1 and self._key is not None:
                    self.network.close(self, Close(self._key))
                    self._key = None
                self._ends()

    def _ends(self) -> None:
        self._asked_at = None
        self.done = self.done or self._numbers >= TIMES
        if self.done:
            self._gone()
        else:
            self.clock.later(self._chance.uniform(0.0, WAITS), self._turn)

    def _compare(self, answer: Any) -> None:
        for topic in answer.responses:
            for each in topic.partitions:
                if each.records and bytes(each.records) not in self._brought:
                    raise Violation(CHANGED, f"{topic.topic}-{each.partition_index}: {len(each.records)} bytes")
