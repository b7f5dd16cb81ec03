"""Connections between clients and nodes: they delay, break, go silent, and deliver late requests that seemed lost.

Rules:
- A connection keeps the order of its bytes; there is no order between connections.
- A node answers a connection's requests one by one, in their order: a request that waits delays those behind it.
- A client's socket takes a request at once or, while it is clogged, in pieces. The client gets `Written` with the last
  piece, and sends nothing before that.
- When a connection breaks, requests that its client sent before may still arrive: some of them, never a later one
  without an earlier one. The node's answers are lost.
- A swallowed connection stays open on both sides, and transports nothing.
- A silent (partitioned) route loses nothing by itself: TCP repeats the bytes, and they arrive when it is mended.
- A commit that a later commit of the same client has overtaken is dropped, unless it was held back (`hold`): Kafka
  cannot see that it is old, and the group's offset goes back until the client commits again.
- A static member's JoinGroup on an ended connection is dropped, too, once a later one of its instance id has arrived:
  Kafka would take the late one for another member of that name, and fence the member that has joined
  (GroupMetadata.replaceStaticMember).
"""

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from ottla.codec import frames
from ottla.codec.apis.join_group import JoinGroupRequest
from ottla.codec.apis.offset_commit import OffsetCommitRequest
from ottla.sdk.events import Close, Connect, Connected, Event, Finish, Key, Lost, Received, Send, Written
from tests.sim.clock import Clock
from tests.sim.history import History

Reply = Callable[[Any], None]
"""Called once with the response, at once or later: with the message, with a pair of message and version if the version
is not the request's, or with ``None`` if the request gets no answer."""

Admit = Callable[["Link", int, Any, Reply, Callable[[str], None]], bool]

PORT = 9000
"""Node ``n`` listens at ``PORT + n``."""


class Client(Protocol):
    """A process with a `ClientCore`."""

    name: str
    alive: bool

    def hear(self, event: Event) -> None: ...


class Cluster(Protocol):
    """The nodes that answer."""

    def up(self, node: int) -> bool: ...

    def awake(self, node: int) -> bool: ...

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None: ...


@dataclass(slots=True)
class Incoming:
    """A request in flight."""

    number: int
    request: frames.Request


@dataclass(slots=True, eq=False)
class Link:
    """One connection, from the attempt to its end."""

    client: Client
    key: Key
    node: int
    label: str
    open: bool = True
    """The client believes that the connection is open."""
    late: float = 0.0
    """After the client's end of the connection, nothing in flight arrives before this time; infinite: not before
    `Network.bring`, also on an open connection."""
    held_back: bool = False
    """Its requests arrive late: `Network.hold`."""
    reset: bool = False
    """The node knows that the connection has ended."""
    broken: bool = False
    """The client has not closed it: bytes on the way may be lost."""
    swallowed: bool = False
    """A firewall has forgotten the connection: bytes no longer pass, and neither side learns that."""
    client_id: str | None = None
    """The client id of the last request."""
    sent_clear: float = 0.0
    """When the last bytes for the node arrive."""
    answer_clear: float = 0.0
    on_its_way: deque[Incoming] = field(default_factory=deque)
    queue: deque[Incoming] = field(default_factory=deque)
    serving: bool = False
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    clogged: float = 0.0
    """Until when the client's socket takes requests in pieces."""
    writing: bool = False
    """The client has not got `Written` for its last request yet."""
    produces: bool = False
    """The client uses it for Produce."""
    finished: bool = False
    """The client has announced that it sends nothing more."""
    logged_in: bool = False
    """The client has authenticated."""
    proving: bool = False
    """An authentication is in progress."""
    proved_at: float = -math.inf
    """When the last authentication began."""
    session: float = math.inf
    session_began: float = -math.inf
    session_ends: float = math.inf
    """The authenticated session: its seconds, its begin, and when the client has to have reauthenticated."""


class Network:
    """Args: chance: draws ordinary delays, and which requests of a broken connection still arrive."""

    def __init__(self, clock: Clock, chance: Random, history: History) -> None:
        self._clock, self._chance, self._history = clock, chance, history
        self.cluster: Cluster
        self.links: dict[tuple[str, Key], Link] = {}
        self.slow: dict[int, tuple[float, float]] = {}
        """Per node, the factors by which the routes to it and from it are slower."""
        self._silent: dict[tuple[str, int], float] = {}
        """Per (client, node), until when the route is silent."""
        self._labels: dict[tuple[str, Key], str] = {}
        self._left: deque[Link] = deque(maxlen=100)
        """Connections that their clients have ended, and that may still deliver requests."""
        self._stranded: list[Link] = []
        """Connections whose requests in flight wait for `bring`."""
        self._held: dict[int, list[Callable[[], None]]] = {}
        """Per sleeping node, the answers that it will send when it wakes."""
        self._all: list[Link] = []
        self.features: Counter[str] = Counter()
        self.requests = 0
        self.cut_short: Counter[str] = Counter()
        """Per client, Produce connections that it closed before the node had read all of its requests."""
        self._committed: dict[str, int] = {}
        """Per client, the number of the latest commit that arrived."""
        self.serves_late = False
        """A later commit of the same client arrived before the request that a node serves now."""
        self._joined: dict[str, int] = {}
        """Per instance id, the number of the latest JoinGroup that arrived."""
        self.sent: Callable[[Link, Any], None] = lambda link, message: None
        """Called with every request when its client sends it."""
        self.admit: Admit = lambda link, version, message, reply, close: False
        """Called with every request before the cluster; returns whether it has handled the request."""
        self.delivered: Callable[[Link, Any, Any], None] = lambda link, request, answer: None
        """Called with every answer when its client gets it."""
        self.lag: Callable[[], float] = lambda: 0.0
        """Seconds for which requests in flight are held back after the client's end of the connection."""

    # -- faults ------------------------------------------------------------------------------------------------------

    def silence(self, client: str, node: int, seconds: float) -> None:
        until = self._clock.now + seconds
        self._silent[client, node] = max(until, self._silent.get((client, node), 0.0))

    def cut(self, link: Link, why: str) -> None:
        """Break a connection; its client gets `Lost` at once."""
        if not link.open:
            return
        link.open, link.broken = False, True
        kept = self._chance.randint(0, len(link.on_its_way))
        while len(link.on_its_way) > kept:
            link.on_its_way.pop()
        if not link.held_back:
            link.late = self._clock.now + self.lag()
        if self.links.get((link.client.name, link.key)) is link:
            del self.links[link.client.name, link.key]
        self._history.add("×", link.label, f"{why}; {kept} requests still arrive" if kept else why)
        link.client.hear(Lost(link.key, why))

    def strand(self, link: Link, why: str) -> None:
        """Break a connection, and keep all of its requests in flight until `bring`."""
        if not link.open:
            return
        on_its_way = deque(link.on_its_way)
        self.cut(link, why)
        link.on_its_way, link.late = on_its_way, math.inf
        self._stranded.append(link)

    def hold(self, link: Link) -> None:
        """Keep the requests of a connection in flight until `bring`; the client does not learn that."""
        self._history.add("×", link.label, "its requests are held back")
        link.held_back, link.late = True, math.inf
        self._stranded.append(link)

    def forget_held(self, client: Client) -> None:
        """Lose the requests of a client's held back connections that a node would not serve at once."""
        for link in self._stranded:
            if link.client is client and link.held_back and (link.serving or not self.cluster.awake(link.node)):
                link.on_its_way.clear()

    def bring(self, client: Client) -> None:
        """Deliver the requests of a client's stranded connections."""
        for link in [each for each in self._stranded if each.client is client]:
            self._stranded.remove(link)
            link.late = 0.0
            for incoming in list(link.on_its_way):
                self._arrive(link, incoming)

    def swallow(self, link: Link) -> None:
        """A firewall forgets a connection."""
        self._history.add("×", link.label, "is swallowed")
        link.swallowed = True

    def clog(self, link: Link, seconds: float) -> None:
        """For a while the client's socket takes requests in pieces."""
        self._history.add("×", link.label, f"is clogged for {seconds:.2f} s")
        link.clogged = self._clock.now + seconds

    def crash(self, node: int) -> None:
        """Break all connections of a node, and lose its unanswered requests."""
        self._held.pop(node, None)
        for link in [each for each in [*self.links.values(), *self._left] if each.node == node]:
            link.queue.clear()
            link.on_its_way.clear()
            link.reset = True
            self.cut(link, "reset by the node")

    def abandon(self, client: Client) -> None:
        """A client's process has ended."""
        for link in [each for each in self.links.values() if each.client is client]:
            self._close(link)

    def wake(self, node: int) -> None:
        """A paused node runs again: serve the requests that have arrived."""
        held, self._held[node] = self._held.get(node, []), []
        for say in held:
            say()
        for link in [*self.links.values(), *self._left]:
            if link.node == node:
                self._serve(link)

    def left_behind(self) -> bool:
        """Whether a request may still arrive from a connection that has ended."""
        self._all = [each for each in self._all if each.open or each.on_its_way or each.queue]
        return any(not each.open for each in self._all)

    # -- the clients' actions ----------------------------------------------------------------------------------------

    def connect(self, client: Client, action: Connect) -> None:
        node = action.port - PORT
        label = self._labels.setdefault(
            (client.name, action.key), f"{client.name}#{sum(name == client.name for name, _ in self._labels)}"
        )
        link = Link(client, action.key, node, f"{label}→{node}")
        self.links[client.name, action.key] = link
        self._all.append(link)

        def arrive() -> None:
            if not link.open:
                return
            if self.cluster.up(node):
                self._clock.later(self._delay(link), answered)
            else:
                self.cut(link, "connection refused")

        def answered() -> None:
            if link.open:
                client.hear(Connected(link.key))

        self._clock.later(self._delay(link), arrive)

    def send(self, client: Client, action: Send) -> bool:
        """Take a client's request; ``False`` if the client gets `Written` later, when all of it is taken."""
        link = self.links.get((client.name, action.key))
        if link is None:
            return False
        assert not link.writing, f"{link.label}: the client sends before its last request is written"
        data = b"".join(action.parts)
        if self._clock.now >= link.clogged:
            self._take(link, data)
            return True
        link.writing = True
        self.features["a request is written in pieces"] += 1
        # The last piece is never empty: a node that has read all bytes may answer before `Written`.
        cuts = sorted(min(self._chance.randint(0, len(data)), len(data) - 1) for _ in range(self._chance.randint(0, 3)))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        left = link.clogged - self._clock.now
        pauses = sorted(self._chance.uniform(0.0, left) for _ in pieces)
        for piece, pause in zip(pieces, pauses, strict=True):
            self._clock.later(pause, partial(self._take_piece, link, piece))
        self._clock.later(pauses[-1], partial(self._written, link))
        return False

    def _take_piece(self, link: Link, piece: bytes) -> None:
        if link.open:  # bytes that the socket has not taken are lost with the connection
            self._take(link, piece)

    def _written(self, link: Link) -> None:
        link.writing = False
        if link.open:
            link.client.hear(Written(link.key))

    def _take(self, link: Link, data: bytes) -> None:
        for frame in link.reader.feed(data):
            self.requests += 1
            incoming = Incoming(self.requests, frames.parse_request(frame))
            self._history.request(link.label, incoming.number, incoming.request.message)
            link.client_id = incoming.request.header.client_id
            self.sent(link, incoming.request.message)
            link.on_its_way.append(incoming)
            link.sent_clear = max(link.sent_clear, self._clock.now + self._delay(link))
            self._clock.at(link.sent_clear, partial(self._arrive, link, incoming))

    def finish(self, client: Client, action: Finish) -> None:
        """The client sends nothing more: the node closes the connection once it has read everything."""
        if link := self.links.get((client.name, action.key)):
            link.finished = True
            self._clock.later(self._delay(link) + 0.01, partial(self._end_finished, link))

    def _end_finished(self, link: Link) -> None:
        if link.open and link.on_its_way:
            self._clock.later(0.01, partial(self._end_finished, link))
        elif link.open:
            self._close(link)
            link.client.hear(Lost(link.key, "closed by the broker"))

    def close(self, client: Client, action: Close) -> None:
        if link := self.links.get((client.name, action.key)):
            self.cut_short[client.name] += link.produces and not link.finished and bool(link.on_its_way)
            self._close(link)

    def _close(self, link: Link) -> None:
        """The client closes: its requests arrive, and then the node sees the end."""
        link.open = False
        if not link.held_back:
            link.late = self._clock.now + self.lag()
        del self.links[link.client.name, link.key]
        self._history.add("×", link.label, "closed by the client")

    # -- on the way --------------------------------------------------------------------------------------------------

    def _delay(self, link: Link, *, back: bool = False) -> float:
        delay = self._chance.uniform(0.0002, 0.004) * self.slow.get(link.node, (1.0, 1.0))[back]
        silent = self._silent.get((link.client.name, link.node), 0.0) - self._clock.now
        return delay if silent <= 0 else silent + delay * 10

    def _arrive(self, link: Link, incoming: Incoming) -> None:
        if not link.on_its_way or link.on_its_way[0] is not incoming:
            return  # it was lost with its connection
        if self._clock.now < link.late:
            if link.late < math.inf:
                self._clock.at(link.late, partial(self._arrive, link, incoming))
            return
        link.on_its_way.popleft()
        if link.reset or link.swallowed or not self.cluster.up(link.node):
            return
        link.queue.append(incoming)
        if not link.open and link not in self._left:
            self._left.append(link)
        self._serve(link)

    def _serve(self, link: Link) -> None:
        while link.queue and not link.serving and self.cluster.awake(link.node):
            incoming = link.queue.popleft()
            message = incoming.request.message
            if self._overtaken(link, incoming):
                continue
            link.serving = True
            header = incoming.request.header
            reply = self._replier(link, incoming)
            if not self.admit(link, header.api_version, message, reply, partial(self._close_by_node, link)):
                self.cluster.handle(link.node, link.client.name, header.api_version, message, reply)

    def _overtaken(self, link: Link, incoming: Incoming) -> bool:
        """Whether a later request has arrived, and Kafka could not see that this one is old."""
        self.serves_late = False
        match incoming.request.message:
            case OffsetCommitRequest():
                heard, of, old = self._committed, link.client.name, not link.held_back
            case JoinGroupRequest(group_instance_id=str(instance)):
                heard, of, old = self._joined, instance, not link.open
            case _:
                return False
        if incoming.number >= heard.get(of, 0):
            heard[of] = incoming.number
            return False
        self.serves_late = not old
        return old

    def _close_by_node(self, link: Link, why: str) -> None:
        link.queue.clear()
        link.on_its_way.clear()
        link.reset = True
        self.cut(link, why)

    def _replier(self, link: Link, incoming: Incoming) -> Reply:
        def reply(answer: Any) -> None:
            if not self.cluster.awake(link.node):
                self._held.setdefault(link.node, []).append(partial(reply, answer))
                return
            link.serving = False
            if answer is not None and link.open:
                header = incoming.request.header
                said, version = answer if isinstance(answer, tuple) else (answer, header.api_version)
                data = frames.build_response(said, version, header.correlation_id)
                link.answer_clear = max(link.answer_clear, self._clock.now + self._delay(link, back=True))
                self._clock.at(link.answer_clear, partial(self._deliver, link, incoming, said, data))
            if link.queue:
                self._clock.later(0.0, lambda: self._serve(link))

        return reply

    def _deliver(self, link: Link, incoming: Incoming, answer: Any, data: bytes) -> None:
        if not link.open or link.swallowed:
            return
        self._history.answer(link.label, incoming.number, answer)
        self.delivered(link, incoming.request.message, answer)
        link.client.hear(Received(link.key, data))
