"""A client that fetches from a topic through the proxy, and compares what it gets with what the brokers have sent.

Rule: a response to Fetch is what the broker has sent. If a response has begun, it ends, or its connection does.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from ottla.codec import frames
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.errors import TopicAuthorizationFailed
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
"""Seconds after which it gives up a Fetch, and within which a response that has begun has ended: the proxy waits half
as long for a piece."""
CHANGED = "a response to Fetch has records that no broker has sent"
READ = "a topic in mode fan-out can be read"
LATE = "a response to Fetch has begun, and does not end"


class Reader(SimulatedProcess):
    """Fetches from the partitions of a topic until it has read enough, at one node after the other.

    Args:
        brought: the record sets in the responses of brokers.
        half_answered: returns whether the proxy has begun a response to the client of this name.
        refused: the topic is in mode `fan-out`: no request gets any of its records.

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
        half_answered: Callable[[str], bool],
        *,
        refused: bool,
    ) -> None:
        super().__init__(name, clock, network, history)
        self.done = False
        self._cluster, self._chance, self._topic, self._brought = cluster, chance, topic, brought
        self._half_answered, self._refused = half_answered, refused
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
        self.clock.later(PATIENCE, partial(self._give_up, number))

    def _give_up(self, number: int, *, half: bool = False) -> None:
        """Give up a Fetch without a response; if it has half of one, wait once more for the other half."""
        if number != self._numbers or self._asked_at is None or not self.alive:
            return
        if half:
            raise Violation(LATE, f"{self.name}, asked at {self._asked_at:.3f}")
        if self._half_answered(self.name):
            self.clock.later(PATIENCE, partial(self._give_up, number, half=True))
        elif self._key is not None:
            self.network.close(self, Close(self._key))
            self._key = None
            self._ends()

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
                if self._refused and each.error_code != TopicAuthorizationFailed.code:
                    raise Violation(READ, f"{topic.topic}-{each.partition_index}: error {each.error_code}")
                if each.records and bytes(each.records) not in self._brought:
                    raise Violation(CHANGED, f"{topic.topic}-{each.partition_index}: {len(each.records)} bytes")
