"""One connection to one broker, as a table of states.

    DOWN ── someone has a request ──► CONNECTING ── Connected ──► NEGOTIATING ── ApiVersions ──► READY
      ▲                                   │                           │                            │
      └──────────── lost: a pause, and every request in hand fails; or idle for long ──────────────┘

Rules:
- The first request is ApiVersions; each later one goes out in the highest version that both sides know.
- A broker answers in the order of the requests: an answer that is not to the oldest one breaks the protocol.
- Each request has a deadline. Past that of one that was sent the connection is dead, whatever TCP thinks; one that was
  not sent yet ends alone.
- A request that is cancelled before it is sent never is; after that its answer is thrown away when it comes.
- An answer that does not parse ends its request alone: the next one begins where its length says.
- Nothing is retried here: an `Exchange` ends exactly once, and whoever made it knows whether to try again.
- `poll` costs what is due, however many requests wait.

Source: NetworkClient.java, KIP-511 (a version that the broker does not know is answered in v0 with error 35), KIP-219
(a client that is over its quota is told so and waits).
"""

import functools
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.wire import Buffer
from ottla.errors import (
    ConnectionLost,
    DecodeError,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
    UnsupportedVersion,
)
from ottla.sdk.connection.inbox import LARGE, Inbox
from ottla.sdk.connection.peer import Peer
from ottla.sdk.events import Action, Close, Connect, Key, Node, Send, logged
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer, Timers

log = logger("ottla.sdk.connection")

SPOKEN: dict[type, tuple[int, int]] = {
    DeleteTopicsRequest: (0, 5),  # 6 can name topics by id, in another field
    ProduceRequest: (2, 12),  # 2: message sets of magic 1; 13 names topics by id
    MetadataRequest: (1, 13),  # 0 cannot ask for no topic
}
"""The versions that the client's logic understands, where they are fewer than the codec knows."""
FITTED: dict[type, Callable[[Any, int], Any]] = {
    # Below version 4 the broker's own settings decide whether a topic is made.
    MetadataRequest: lambda message, version: (
        message if version >= 4 else replace(message, allow_auto_topic_creation=True)
    ),
}
"""How a message is said in a version that has no word for all of it."""

_NEGOTIATION = 3
_UNSUPPORTED_VERSION = 35
SOFTWARE_NAME = "ottla"
SOFTWARE_VERSION = "0.1.0"
_USUAL = 1.0
"""Seconds that an answer may take without being worth a word in `explain`."""
SLOW = 0.5
"""An answer that took this part of the time it was given, and more than a second, is logged."""
_SLOW_PAUSE = 10.0
"""Seconds between two lines about slow answers of one connection."""
_PARKED = frozenset({"JoinGroup", "SyncGroup"})
"""Their answers wait at the broker for as long as members take."""
_BY_DESIGN = _PARKED | {"Fetch"}
"""Their answers may wait at the broker."""


class State(Enum):
    DOWN = auto()
    CONNECTING = auto()
    NEGOTIATING = auto()
    READY = auto()


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and what becomes of it.

    Attributes:
        message: the request; or its class, where `build` makes it of the version once that is known.
        versions: the lowest and the highest that will do, where they are fewer than `SPOKEN`.
        ended: called once with the response message or the error, and ``now``.
        deadline: when to give up, in the time of ``now``.
        one_way: the broker sends no answer (Produce with acks=0); ended with ``None`` once it is sent.
        since: when it was submitted.
        sent_at: when it was sent.
    """

    message: Any
    ended: Callable[[Any, float], None]
    deadline: float
    one_way: bool = False
    build: Callable[[int], Any] | None = None
    versions: tuple[int, int] | None = None
    version: int = -1
    correlation_id: int = -1
    since: float = math.nan
    sent_at: float = math.nan
    _timer: Timer | None = None
    _withdraw: Callable[["Exchange"], None] | None = None

    @property
    def kind(self) -> type:
        """The class of the request."""
        return self.message if isinstance(self.message, type) else type(self.message)

    @property
    def name(self) -> str:
        return self.kind.__name__.removesuffix("Request")

    def cancel(self) -> None:
        """Nobody wants the answer any more: `ended` is not called, and what was not sent yet never is."""
        self.ended = _nobody
        if self._withdraw:
            self._withdraw(self)

    def settle(self, result: Any, now: float) -> None:
        """It ended.

        Whom it tells often holds the exchange. Were that kept, each request left a circle for the garbage collector.
        """
        if self._timer:
            self._timer.cancel()
        ended, self.ended, self.build, self._withdraw = self.ended, _nobody, None, None
        ended(result, now)


def _nobody(answer: Any, now: float) -> None:
    """Where answers go that nobody wants any more."""


class Connection:
    """The client's side of a connection; ``key`` names it in actions and events."""

    def __init__(self, key: Key, peer: Peer, client_id: str) -> None:
        self.key, self.peer, self._client_id = key, peer, client_id
        self.node: Node = peer.node
        """As it was when the connection was made, or last tried."""
        self.state = State.DOWN
        self.waiting: dict[Exchange, None] = {}
        """Not sent yet, in order."""
        self.in_flight: deque[Exchange] = deque()
        self._timers = Timers()
        self._actions: list[Action] = []
        self._setup: Timer | None = None
        self._since = math.nan
        """When the state began."""
        self._active_at = -math.inf
        self._muted_until = -math.inf
        self._answered = False
        """The broker has answered something besides ApiVersions."""
        self._told_slow = -math.inf
        self._correlation_id = 0
        self._inbox = Inbox()

    @property
    def where(self) -> str:
        """For messages: the address, and the node id where it is known."""
        return f"{self.node.host}:{self.node.port}" + (f" (node {self.node.id})" if self.node.id >= 0 else "")

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def silence(self, now: float) -> float:
        """For how many seconds the oldest request is unanswered, apart from what may take the broker long by design."""
        if not self.in_flight or self.in_flight[0].name in _PARKED:
            return 0.0
        return now - self.in_flight[0].sent_at

    def submit(self, exchange: Exchange, now: float) -> None:
        exchange.since = now
        exchange._withdraw = self._withdrawn
        exchange._timer = self._timers.add(exchange.deadline, functools.partial(self._late, exchange))
        self.waiting[exchange] = None

    def open(self, now: float) -> None:
        """Connect though there is no request yet, unless that failed just now."""
        if self.state is State.DOWN and self.peer.retry_at <= now:
            self._connect(now)

    def poll(self, now: float) -> list[Action]:
        """What is to be done now."""
        while call := self._timers.due(now):
            call(now)
        if self.state is State.DOWN and self.waiting and self.peer.retry_at <= now:
            self._connect(now)
        elif self.state is State.READY:
            if self.waiting and self._muted_until <= now:
                self._drain(now)
            elif not self.load and now >= self._active_at + self.peer.options.connections_max_idle:
                log.debug("connection closed, idle", extra=self._extra())
                self._ends(now)
                self._actions.append(Close(self.key))
        actions, self._actions = self._actions, []
        return actions

    @property
    def deadline(self) -> float | None:
        """When `poll` has something to do if nothing happens; ``None`` for never."""
        due = self._timers.next
        if self.state is State.DOWN and self.waiting:
            own = self.peer.retry_at
        elif self.state is State.READY and self.waiting:
            own = self._muted_until
        elif self.state is State.READY and not self.load:
            own = self._active_at + self.peer.options.connections_max_idle
        else:
            return due
        return own if due is None else min(due, own)

    def connected(self, now: float) -> list[Action]:
        """The driver's `Connect` succeeded."""
        if self.state is State.CONNECTING:
            self.state, self._since, self._active_at = State.NEGOTIATING, now, now
            self._answered = False
            self._ask_versions(_NEGOTIATION, now)
        return self.poll(now)

    def received(self, data: bytes, now: float) -> list[Action]:
        """Bytes arrived."""
        return self._arrived(len(data), self._inbox.feed(data), now)

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a large answer belongs, if one is under way."""
        return self._inbox.room

    def filled(self, count: int, now: float) -> list[Action]:
        """Bytes arrived, and are in `room`."""
        return self._arrived(count, self._inbox.filled(count), now)

    def _arrived(self, count: int, whole: Iterator[Buffer], now: float) -> list[Action]:
        self._active_at = now
        traffic = self.peer.traffic
        traffic.received.add(count, now)
        traffic.operations.add(1, now)
        try:
            for frame in whole:
                if self.state not in (State.NEGOTIATING, State.READY):
                    break
                self._answer(frame, now)
        except RemoteProtocolError as error:
            self._die(now, RemoteProtocolError(f"{self.where}: {error}"))
        return self.poll(now)

    def lost(self, why: str, now: float) -> None:
        """The driver could not connect, or the connection ended."""
        if self.state is not State.DOWN:
            self._fail(now, ConnectionLost(f"{self.where}: {why}{self._hint()}"))

    def retire(self, now: float) -> None:
        """Nobody uses it any more: whatever it has in hand ends, and the node is not to blame."""
        self._end_all(ConnectionLost(f"{self.where}: closed here"), now)

    def moved(self, now: float) -> list[Action]:
        """The node has another address now: an attempt to reach the old one is given up, what waits goes to the new."""
        if self.state in (State.CONNECTING, State.NEGOTIATING):
            self._ends(now)
            self._actions.append(Close(self.key))
        return self.poll(now)

    def explain(self, now: float) -> Iterator[str]:
        """What it waits for, in a line for people; nothing while nobody waits for longer than is usual."""
        if self.in_flight and self.state is State.READY and now - self.in_flight[0].sent_at > _USUAL:
            oldest = self.in_flight[0]
            yield (
                f"{self.where}: {len(self.in_flight)} request(s) unanswered, the oldest {oldest.name} for "
                f"{now - oldest.sent_at:.1f} s, {oldest.deadline - now:.1f} s left"
            )
        if self.waiting:
            yield f"{self.where}: {len(self.waiting)} request(s) not sent: {self._obstacle(now)}"

    # -- the connection's life ---------------------------------------------------------------------------------------

    def _connect(self, now: float) -> None:
        self.node = self.peer.node
        self.state, self._since = State.CONNECTING, now
        self._setup = self._timers.add(now + self.peer.setup_timeout, self._not_connected)
        log.debug("connecting", extra=self._extra())
        self._actions.append(Connect(self.key, self.node.host, self.node.port, self.peer.failures))

    def _not_connected(self, now: float) -> None:
        waited = now - self._since
        what = "no connection" if self.state is State.CONNECTING else "no answer to ApiVersions"
        self._die(now, ConnectionLost(f"{self.where}: {what} within {waited:.3g} s"), late=True)

    def _late(self, exchange: Exchange, now: float) -> None:
        if exchange in self.waiting:
            del self.waiting[exchange]
            passed = f"within {now - exchange.since:.3g} s"
            why = self._obstacle(now)
            exchange.settle(TimeoutExpired(f"{exchange.name} could not be sent to {self.where} {passed}: {why}"), now)
        else:
            passed = f"within {now - exchange.sent_at:.3g} s"
            what = f"{self.where} did not answer {exchange.name} v{exchange.version} {passed}"
            self._die(now, TimeoutExpired(f"{what}; the connection is closed"))

    def _obstacle(self, now: float) -> str:
        """Why what waits is not sent."""
        match self.state:
            case State.READY if self._muted_until > now:
                return f"the broker asks this client to wait {self._muted_until - now:.1f} s more, it is over its quota"
            case State.READY:
                return "it is the next to be sent"
            case State.CONNECTING:
                doing = f"connecting for {now - self._since:.1f} s"
            case State.NEGOTIATING:
                doing = f"connected, but ApiVersions is not answered for {now - self._since:.1f} s"
            case State.DOWN:
                doing = f"not connected, next attempt in {max(self.peer.retry_at - now, 0.0):.1f} s"
        tried = self.peer.told(now)
        return f"{doing}; {tried}" if tried else doing

    def _hint(self) -> str:
        """What an end at this point often means."""
        if self.state is State.NEGOTIATING:
            return " when asked for its versions; so do Kafka 0.9 and older, and listeners that want TLS"
        if self.state is State.READY and self.in_flight and not self._answered:
            return " at the first request; so do listeners that want authentication (SASL)"
        return ""

    def _die(self, now: float, error: OttlaError, *, late: bool = False) -> None:
        self._actions.append(Close(self.key))
        self._fail(now, error, late=late)

    def _fail(self, now: float, error: OttlaError, *, late: bool = False) -> None:
        self.peer.failed(str(error), now, late=late)
        log.info("connection failed", extra=self._extra(why=str(error), failures=self.peer.failures))
        self._end_all(error, now)

    def _end_all(self, error: OttlaError, now: float) -> None:
        broken, self.waiting = [*self.in_flight, *self.waiting], {}
        self._ends(now)
        for exchange in broken:
            exchange.settle(error, now)

    def _ends(self, now: float) -> None:
        if self._setup:
            self._setup.cancel()
        traffic = self.peer.traffic
        if self.state is State.READY:
            traffic.connections.add(-1)
            traffic.closed.add(1, now)
        traffic.in_flight.add(-len(self.in_flight))
        self.in_flight.clear()
        self._inbox = Inbox()  # and with it what memory the last large answers lay in
        self.state, self._since, self._muted_until = State.DOWN, now, -math.inf

    def _extra(self, **more: object) -> dict[str, object]:
        address = f"{self.node.host}:{self.node.port}"
        return {"node": logged(self.node), "address": address, "channel": self.key[1]} | more

    # -- requests ----------------------------------------------------------------------------------------------------

    def _withdrawn(self, exchange: Exchange) -> None:
        if exchange in self.waiting:
            del self.waiting[exchange]
            exchange.settle(None, math.nan)

    def _ask_versions(self, version: int, now: float) -> None:
        ask = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        exchange = Exchange(ask, _nobody, math.inf, version=version)  # bounded by the time for setting up
        self._send(self._encode(exchange, now), now)

    def _send(self, parts: Sequence[bytes], now: float) -> None:
        """Send parts, the small ones joined, the large ones as they are: a megabyte is not copied to be sent."""
        small: list[bytes] = []
        for part in parts:
            if len(part) < LARGE:
                small.append(part)
            else:
                self._actions += [Send(self.key, b"".join(small)), Send(self.key, part)]
                small.clear()
        if small:
            self._actions.append(Send(self.key, b"".join(small)))
        self.peer.traffic.sent.add(sum(map(len, parts)), now)
        self.peer.traffic.operations.add(1, now)

    def _encode(self, exchange: Exchange, now: float) -> Sequence[bytes]:
        correlation_id = exchange.correlation_id = self._correlation_id
        parts = frames.build_request_parts(exchange.message, exchange.version, correlation_id, self._client_id)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        exchange.sent_at = now
        self.peer.traffic.requests.add(1, now)
        self.peer.traffic.sizes.record(sum(map(len, parts)), now)
        if not exchange.one_way:
            self.in_flight.append(exchange)
            self.peer.traffic.in_flight.add(1)
        return parts

    def _drain(self, now: float) -> None:
        """Send what waits."""
        waiting, self.waiting = self.waiting, {}
        out: list[bytes] = []
        ended: list[tuple[Exchange, OttlaError | None]] = []
        for exchange in waiting:
            try:
                exchange.version = self._version(exchange)
                if exchange.build:
                    exchange.message = exchange.build(exchange.version)
                elif fit := FITTED.get(exchange.kind):
                    exchange.message = fit(exchange.message, exchange.version)
                out += self._encode(exchange, now)
            except OttlaError as error:  # it cannot be said in this version, or not at all
                ended.append((exchange, error))
            else:
                exchange._withdraw = None
                if exchange.one_way:
                    ended.append((exchange, None))
        self._active_at = now
        if out:
            self._send(out, now)
        for exchange, result in ended:
            exchange.settle(result, now)

    def _version(self, exchange: Exchange) -> int:
        what = exchange.kind, exchange.versions
        version = self.peer.chosen.get(what)
        if version is None:
            version = self.peer.chosen[what] = agreed(*what, self.peer.versions or {}, self.where)
        return version

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, frame: Buffer, now: float) -> None:
        if not self.in_flight:
            raise RemoteProtocolError("an answer to no request")
        exchange = self.in_flight.popleft()
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or correlation_id != exchange.correlation_id:
            self.in_flight.appendleft(exchange)
            raise RemoteProtocolError(f"answer {correlation_id} where {exchange.correlation_id} was due")
        traffic = self.peer.traffic
        traffic.responses.add(1, now)
        traffic.in_flight.add(-1)
        if self.state is State.NEGOTIATING:
            self._negotiate(frame, exchange.version, now)
            return
        self._answered = True
        self._measure(exchange, now)
        try:
            _, response = frames.parse_response(_response(exchange.kind), exchange.version, frame)
        except DecodeError as error:
            what = f"{self.where}: the answer to {exchange.name} v{exchange.version} does not parse: {error}"
            log.error("an answer does not parse", extra=self._extra(request=exchange.name, why=str(error)))
            exchange.settle(RemoteProtocolError(what), now)
            return
        throttle = getattr(response, "throttle_time_ms", 0) / 1000
        if throttle > 0:
            traffic.throttled.record(throttle, now)
            if self.peer.throttles_clients:
                self._muted_until = max(self._muted_until, now + throttle)
        exchange.settle(response, now)

    def _measure(self, exchange: Exchange, now: float) -> None:
        took = now - exchange.sent_at
        self.peer.traffic.latency.record(took, now)
        slow = took > 1.0 and took > (exchange.deadline - exchange.sent_at) * SLOW
        if slow and exchange.name not in _BY_DESIGN and now >= self._told_slow + _SLOW_PAUSE:
            self._told_slow = now
            log.warning("a slow answer", extra=self._extra(request=exchange.name, seconds=round(took, 3)))

    def _negotiate(self, frame: Buffer, version: int, now: float) -> None:
        if int.from_bytes(frame[4:6], "big") == _UNSUPPORTED_VERSION:
            if version == 0:
                raise RemoteProtocolError("ApiVersions v0 is refused: the broker is too old or too new")
            self._ask_versions(0, now)
            return
        _, response = frames.parse_response(ApiVersionsResponse, version, frame)
        if response.error_code:
            raise RemoteProtocolError(f"ApiVersions failed with error {response.error_code}")
        self.state, self._since = State.READY, now
        if self._setup:
            self._setup.cancel()
        self.peer.works({each.api_key: (each.min_version, each.max_version) for each in response.api_keys})
        self.peer.traffic.connections.add(1)
        self.peer.traffic.created.add(1, now)
        log.debug("connected", extra=self._extra())


@functools.cache
def _response(request: type) -> type[Any]:
    return APIS[wire.api(request).key].response


# -- versions --------------------------------------------------------------------------------------------------------


def speakable(request: type, wanted: tuple[int, int] | None = None) -> tuple[int, int]:
    """The lowest and the highest version of a request that the client can speak (and that are ``wanted``)."""
    declared = wire.api(request).versions
    low, high = SPOKEN.get(request, (declared.low, declared.high))
    return (max(low, wanted[0]), min(high, wanted[1])) if wanted else (low, high)


def common(request: type, wanted: tuple[int, int] | None, theirs: dict[int, tuple[int, int]]) -> range:
    """The versions of a request that both sides can speak; empty where there are none."""
    low, high = speakable(request, wanted)
    offered = theirs.get(wire.api(request).key, (0, -1))
    return range(max(low, offered[0]), min(high, offered[1]) + 1)


def agreed(request: type, wanted: tuple[int, int] | None, theirs: dict[int, tuple[int, int]], where: str) -> int:
    """The highest version that both sides can speak.

    Raises:
        UnsupportedVersion: there is none; says which API, what is needed, what the broker has, and since which Kafka.
    """
    if both := common(request, wanted, theirs):
        return both[-1]
    low, high = speakable(request, wanted)
    name = request.__name__.removesuffix("Request")
    offered = theirs.get(wire.api(request).key)
    has = f"has versions {offered[0]} to {offered[1]}" if offered else "does not offer it"
    what = f"{name}: ottla speaks versions {low} to {high}, {where} {has}"
    if offered and offered[0] > high:
        raise UnsupportedVersion(f"{what}; use a newer ottla")
    release = since(request, low)
    raise UnsupportedVersion(f"{what}; it takes Kafka {release} or newer" if release else what)


def since(request: type, version: int) -> str:
    """The release of Kafka that first had a version of a request; empty where that is not known.

    It stands in the docstring of the API's module, and nowhere else.
    """
    text = sys.modules[request.__module__].__doc__ or ""
    found = re.search(rf"^    {version}(?:-\d+)? \(([\d.]+)\)", text, re.MULTILINE)
    return found[1] if found else ""
