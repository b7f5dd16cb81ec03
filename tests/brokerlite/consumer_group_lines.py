"""Two brokers that take the requests of group members: Apache Kafka behind sockets, and brokerlite in this process.

A member of the classic protocol may wait for others, so a request can also be sent first and answered later.
"""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ottla.brokerlite.machines.core import Answer
from ottla.codec.apis import APIS
from ottla.codec.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.codec.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import NO_UUID, api
from tests.brokerlite.machine import Machine
from tests.brokerlite.peer import Peer
from tests.patience import HUNG

_TRANSIENT = {14, 15, 16}
"""Error codes of a coordinator that is loading, or not known yet."""


class Line(Protocol):
    """A broker that takes the requests of members."""

    def ask(self, message: Any, version: int) -> Any:
        """Send a request, and return its answer."""

    def send(self, message: Any, version: int) -> Callable[[], Any]:
        """Send a request; the result returns its answer, which may not be there yet: then ``None``."""

    def pass_time(self, seconds: float) -> None:
        """Return after this time, in which timers go off."""


class MachineLine:
    """brokerlite's machine; each answer is built and parsed in its version."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.machine = Machine(data, **settings)
        self._answers: dict[int, Any] = {}
        self._sent: dict[int, tuple[int, int]] = {}

    def ask(self, message: Any, version: int) -> Any:
        answer = self.send(message, version)()
        assert answer is not None, message
        return answer

    def send(self, message: Any, version: int) -> Callable[[], Any]:
        ticket = self.machine.send(message, version)
        self._sent[ticket] = api(type(message)).key, version
        self._poll()

        def answer() -> Any:
            self._poll()
            return self._answers.get(ticket)

        return answer

    def _poll(self) -> None:
        for action in self.machine.poll():
            assert isinstance(action, Answer)
            key, version = self._sent[action.ticket]
            frame = build_response(action.message, version, 0)
            self._answers[action.ticket] = parse_response(APIS[key].response, version, frame[4:])[1]

    def pass_time(self, seconds: float) -> None:
        end = self.machine.now + seconds
        while (deadline := self.machine.core.deadline) is not None and deadline <= end:
            self.machine.now = max(self.machine.now, deadline)
            self._poll()
        self.machine.now = end


class RemoteLine:
    """A broker behind a socket."""

    def __init__(self, bootstrap: str) -> None:
        self._host, port = bootstrap.split(":")
        self._port = int(port)
        self._peer = Peer(self._port, self._host, timeout=HUNG)
        self._others: list[Peer] = []
        for key_type in (GROUP, TRANSACTION):  # creates the internal topics
            self.ask(FindCoordinatorRequest(key="any", key_type=key_type), 3)

    def ask(self, message: Any, version: int) -> Any:
        deadline = time.monotonic() + HUNG
        while True:
            answer = self._peer.ask(message, version)
            if getattr(answer, "error_code", 0) not in _TRANSIENT or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def send(self, message: Any, version: int) -> Callable[[], Any]:
        peer = Peer(self._port, self._host, timeout=HUNG)
        self._others.append(peer)
        peer.send(message, version)
        response = APIS[api(type(message)).key].response
        known: list[Any] = []

        def answer() -> Any:
            if not known:
                known.append(parse_response(response, version, peer.frame())[1])
            return known[0]

        return answer

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds + 0.3)

    def close(self) -> None:
        for peer in (self._peer, *self._others):
            peer.close()


# -- topics


def create(line: Line, name: str, partitions: int) -> uuid.UUID:
    """Create a topic, or find it; return its id."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
    (made,) = line.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 7).topics
    assert made.error_code == 0, made
    found: uuid.UUID = made.topic_id
    return found


def grow(line: Line, name: str, partitions: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    (grown,) = line.ask(CreatePartitionsRequest(topics=(topic,), timeout_ms=10_000, validate_only=False), 3).results
    assert grown.error_code == 0, grown


def delete(line: Line, name: str) -> None:
    (gone,) = line.ask(
        DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=NO_UUID),), timeout_ms=10_000), 6
    ).responses
    assert gone.error_code == 0, gone
