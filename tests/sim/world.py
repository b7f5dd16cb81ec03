"""A world for `ClientCore` without sockets or a clock: time jumps, and connections break, as drawn from a seed.

`ModelBroker` is the model cluster without its chance. It answers each request at once, as if its own time ran ahead of
the world's: a request that would wait is answered when it would be.
"""

import random
from collections.abc import Callable
from typing import Any

from ottla.codec import frames
from ottla.codec.records import RecordBatch
from ottla.sdk.events import Key
from ottla.sdk.options import Options
from tests.sim.calm import CalmCluster, Log
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.wire import Link, Wire

SERVED = {0: (3, 9), 1: (4, 12), 2: (1, 7), 3: (1, 9), 18: (0, 3), 22: (0, 4)}


class ModelBroker:
    """One cluster. A subclass may answer requests itself.

    Attributes:
        bend: may change or drop an answer.
    """

    def __init__(self, topics: dict[str, int], nodes: int = 1) -> None:
        self.cluster = CalmCluster(Clock(), topics, nodes, SERVED)
        self.cluster.data.full = lambda: True
        self.cluster.cluster_id = None
        self.bend: Callable[[int, Any, Any], Any] = lambda node, request, answer: answer
        self.requests: list[tuple[int, Any]] = []

    @property
    def logs(self) -> dict[Place, Log]:
        return {place: Log(self.cluster, place) for place in self.cluster.places}

    @property
    def refuse(self) -> Callable[[Place, RecordBatch], int]:
        return self.cluster.refuse

    @refuse.setter
    def refuse(self, refuse: Callable[[Place, RecordBatch], int]) -> None:
        self.cluster.refuse = refuse

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        return self.cluster.release

    def handle(self, node: int, frame: bytes) -> bytes | None:
        request = frames.parse_request(frame)
        self.requests.append((node, request.message))
        self._version = request.header.api_version
        answer = self.bend(node, request.message, self._answer(node, request.message))
        if answer is None:
            return None
        said, version = answer if isinstance(answer, tuple) else (answer, self._version)
        return frames.build_response(said, version, request.header.correlation_id)

    def _answer(self, node: int, message: Any) -> Any:
        return self.cluster.ask(node, self._version, message)


class World(Wire):
    """A core and its `ModelBroker`, with delays by chance.

    Args:
        breaks: chance that a request breaks its connection: half of the times before the broker sees it, half after.
    """

    def __init__(
        self, broker: ModelBroker, *, seed: int = 0, breaks: float = 0.0, options: Options | None = None
    ) -> None:
        super().__init__(options, seed + 1)
        self.broker, self.breaks = broker, breaks
        self.rng = random.Random(seed)
        self.breaks_seen = 0

    def delay(self) -> float:
        return self.rng.uniform(0.0001, 0.002)

    def serve(self, key: Key, link: Link, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        fate = self.rng.random()
        answer = self.broker.handle(link.node, frame) if fate >= self.breaks / 2 else None
        if fate < self.breaks:
            self.breaks_seen += 1
            self.cut(key)
        else:
            reply(answer)
