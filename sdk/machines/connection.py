"""One connection to one broker, as a table of states.

    DOWN ── someone has a request ──► CONNECTING ── Connected ──► NEGOTIATING ── ApiVersions ──► READY
      ▲                                   │                           │                            │
      └───────────── lost: backoff, every request in hand fails ──────┴────────────────────────────┘

Rules:
- The first request is ApiVersions; each later one goes out in the highest version that both sides know.
- A broker answers in the order of the requests: an answer that is not to the oldest one breaks the protocol.
- The oldest unanswered request has a deadline; past it the connection is dead, whatever TCP thinks.
- Nothing is retried here: an `Exchange` ends exactly once, and whoever made it knows whether to try again.

Source: NetworkClient.java, KIP-511 (a version that the broker does not know is answered in v0 with error 35).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.list_offsets import ListOffsetsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import (
    ConnectionLost,
    EncodeError,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
    UnsupportedVersion,
)
from ottla.sdk.machines.actions import Action, Close, Connect, Node, Send

SPOKEN: dict[type, tuple[int, int]] = {
    DeleteTopicsRequest: (0, 5),  # 6 can name topics by id, in another field
    ProduceRequest: (3, 12),  # 3: record batches v2; 13 names topics by id
    FetchRequest: (4, 12),  # 4: record batches v2; 13 names topics by id
    ListOffsetsRequest: (1, 11),  # 0 answers with segments
    MetadataRequest: (1, 13),  # 0 cannot ask for no topic
}
"""The versions that the client's logic understands, where they are fewer than the codec knows."""

_NEGOTIATION = 3
_UNSUPPORTED_VERSION = 35
SOFTWARE_NAME = "ottla"
SOFTWARE_VERSION = "0.1.0"


class State(Enum):
    DOWN = auto()
    CONNECTING = auto()
    NEGOTIATING = auto()
    READY = auto()


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and what becomes of it.

    Attributes:
        ended: called once with the response message or the error, and ``now``.
        deadline: when to give up, in the time of ``now``.
        one_way: the broker sends no answer (Produce with acks=0); ended with ``None`` once it is sent.
    """

    message: Any
    ended: Callable[[Any, float], None]
    deadline: float
    one_way: bool = False
    version: int = -1
    correlation_id: int = -1

    @property
    def name(self) -> str:
        return type(self.message).__name__.removesuffix("Request")


@dataclass(slots=True)
class Timing:
    """Seconds."""

    connect_timeout: float = 10.0
    backoff: float = 0.05
    backoff_max: float = 1.0


@dataclass(slots=True, eq=False)
class Connection:
    """The client's side of a connection; ``key`` names it in actions and events."""

    key: tuple[int, str]
    node: Node
    client_id: str
    timing: Timing
    state: State = State.DOWN
    waiting: deque[Exchange] = field(default_factory=deque)
    in_flight: deque[Exchange] = field(default_factory=deque)
    failures: int = 0
    trouble: str = ""
    """Why the last attempt or connection ended; empty while all is well."""
    retry_at: float = 0.0
    _connect_deadline: float = 0.0
    _correlation_id: int = 0
    _versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    _reader: frames.FrameReader = field(default_factory=frames.FrameReader)

    @property
    def where(self) -> str:
        """For messages: the address, and the node id where it is known."""
        return f"{self.node.host}:{self.node.port}" + (f" (node {self.node.id})" if self.node.id >= 0 else "")

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def submit(self, exchange: Exchange) -> None:
        self.waiting.append(exchange)

    def poll(self, now: float) -> list[Action]:
        """What is to be done now."""
        actions: list[Action] = []
        if self.in_flight and self.in_flight[0].deadline <= now:
            actions += self._die(now, TimeoutExpired(f"{self.where} did not answer {self.in_flight[0].name} in time"))
        elif self.state is State.CONNECTING and self._connect_deadline <= now:
            waited = self.timing.connect_timeout
            actions += self._die(now, ConnectionLost(f"{self.where}: no connection within {waited:g} s"))
        for late in [each for each in self.waiting if each.deadline <= now]:
            self.waiting.remove(late)
            why = f"; last trouble: {self.trouble}" if self.trouble else ""
            late.ended(TimeoutExpired(f"{late.name} could not be sent to {self.where} in time{why}"), now)
        if self.state is State.DOWN and self.waiting and self.retry_at <= now:
            self.state = State.CONNECTING
            self._connect_deadline = now + self.timing.connect_timeout
            actions.append(Connect(self.key, self.node.host, self.node.port))
        elif self.state is State.READY and self.waiting:
            actions.append(Send(self.key, self._drain(now)))
        return actions

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do if nothing happens; ``None`` for never."""
        times = [each.deadline for each in self.waiting]
        if self.in_flight:
            times.append(self.in_flight[0].deadline)
        if self.state is State.CONNECTING:
            times.append(self._connect_deadline)
        elif self.state is State.DOWN and self.waiting:
            times.append(self.retry_at)
        return min(times, default=None)

    def connected(self, now: float) -> list[Action]:
        """The driver's `Connect` succeeded."""
        if self.state is not State.CONNECTING:
            return []
        self.state = State.NEGOTIATING
        self._reader = frames.FrameReader()
        return [Send(self.key, self._ask_versions(_NEGOTIATION, now))]

    def received(self, data: bytes, now: float) -> list[Action]:
        """Bytes arrived."""
        actions: list[Action] = []
        try:
            for frame in self._reader.feed(data):
                if self.state not in (State.NEGOTIATING, State.READY):
                    break
                actions += self._answer(frame, now)
        except RemoteProtocolError as error:
            return actions + self._die(now, RemoteProtocolError(f"{self.where}: {error}"))
        return actions + self.poll(now)

    def lost(self, why: str, now: float) -> None:
        """The driver could not connect, or the connection ended."""
        if self.state is not State.DOWN:
            self._fail(now, ConnectionLost(f"{self.where}: {why}"))

    def _die(self, now: float, error: OttlaError) -> list[Action]:
        self._fail(now, error)
        return [Close(self.key)]

    def _fail(self, now: float, error: OttlaError) -> None:
        self.trouble = str(error)
        self.retry_at = now + min(self.timing.backoff * 2**self.failures, self.timing.backoff_max)
        self.failures = min(self.failures + 1, 16)
        self.state = State.DOWN
        broken, self.in_flight, self.waiting = [*self.in_flight, *self.waiting], deque(), deque()
        for exchange in broken:
            exchange.ended(error, now)

    def _ask_versions(self, version: int, now: float) -> bytes:
        ask = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        exchange = Exchange(ask, lambda answer, now: None, now + self.timing.connect_timeout, version=version)
        return self._encode(exchange)

    def _encode(self, exchange: Exchange) -> bytes:
        exchange.correlation_id = self._correlation_id
        data = frames.build_request(exchange.message, exchange.version, exchange.correlation_id, self.client_id)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        if not exchange.one_way:
            self.in_flight.append(exchange)
        return data

    def _drain(self, now: float) -> bytes:
        out, sent = [], []
        while self.waiting:
            exchange = self.waiting.popleft()
            try:
                exchange.version = self._version(type(exchange.message))
                out.append(self._encode(exchange))
            except (EncodeError, UnsupportedVersion) as error:
                exchange.ended(error, now)
            else:
                sent.append(exchange)
        for exchange in sent:
            if exchange.one_way:
                exchange.ended(None, now)
        return b"".join(out)

    def _version(self, request: type) -> int:
        declared = wire.api(request)
        low, high = SPOKEN.get(request, (declared.versions.low, declared.versions.high))
        theirs = self._versions.get(declared.key)
        if theirs is None or min(high, theirs[1]) < max(low, theirs[0]):
            name = request.__name__.removesuffix("Request")
            has = f"has versions {theirs[0]} to {theirs[1]}" if theirs else "does not offer it"
            raise UnsupportedVersion(f"{name}: ottla speaks versions {low} to {high}, {self.where} {has}")
        return min(high, theirs[1])

    def _answer(self, frame: bytes, now: float) -> list[Action]:
        if not self.in_flight:
            raise RemoteProtocolError("an answer to no request")
        exchange = self.in_flight[0]
        if self.state is State.NEGOTIATING:
            self.in_flight.popleft()
            return self._negotiate(frame, exchange.version, now)
        correlation_id, response = frames.parse_response(
            APIS[wire.api(type(exchange.message)).key].response, exchange.version, frame
        )
        if correlation_id != exchange.correlation_id:
            raise RemoteProtocolError(f"answer {correlation_id} where {exchange.correlation_id} was due")
        self.in_flight.popleft()
        exchange.ended(response, now)
        return []

    def _negotiate(self, frame: bytes, version: int, now: float) -> list[Action]:
        if int.from_bytes(frame[4:6], "big") == _UNSUPPORTED_VERSION:
            if version == 0:
                raise RemoteProtocolError("ApiVersions v0 is refused: the broker is too old or too new")
            return [Send(self.key, self._ask_versions(0, now))]
        _, response = frames.parse_response(ApiVersionsResponse, version, frame)
        if response.error_code:
            raise RemoteProtocolError(f"ApiVersions failed with error {response.error_code}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.state = State.READY
        self.failures, self.trouble = 0, ""
        return []
