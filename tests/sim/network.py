"""Wires between clients and nodes: they delay, break, fall silent, and deliver late what was thought lost.

Rules:
- A connection keeps the order of its bytes; nothing keeps the order between connections.
- A node answers a connection's requests one by one, in their order: what waits at the node holds up what is behind it.
- A client's socket takes a request at once, or, while it is clogged, in pieces; the client is told when the last one is
  taken, and sends nothing before that.
- When a connection breaks, what its client had sent before may still arrive: some of it, never a later part without an
  earlier one. What a node says on it is lost.
- A connection that is swallowed is open on both sides, and nothing passes.
- A silent (partitioned) way loses nothing by itself: bytes are repeated until it is mended, and arrive then.
- A commit that a later one of the same client has overtaken is never heard. Kafka could not tell that it is old, and no
  client can call it back, so that there is nothing to test. Nor is a static member's JoinGroup whose connection has
  ended, once a later one of its instance id was heard: Kafka would take the late one for yet another member of that
  name, and fence the member that has joined (GroupMetadata.replaceStaticMember).
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
"""Called once with the response message, at once or later; with a pair of it and its version where that is not the
request's; with ``None`` where there is no answer."""

Admit = Callable[["Link", int, Any, Reply, Callable[[str], None]], bool]

PORT = 9000
"""Node ``n`` listens at ``PORT + n``."""


class Client(Protocol):
    """A process with a `ClientCore`."""

    name: str
    alive: bool

    def hear(self, event: Event) -> None: ...


class Cluster(Protocol):
    """What answers."""

    def up(self, node: int) -> bool: ...

    def awake(self, node: int) -> bool: ...

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None: ...


@dataclass(slots=True)
class Incoming:
    """A request on its way."""

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
    """As far as the client knows."""
    late: float = 0.0
    """Until when nothing arrives of what is on its way, where the client knows that it has ended; infinite: until that
    is brought."""
    reset: bool = False
    """The node has heard that it ended."""
    swallowed: bool = False
    """Somebody between the two has forgotten it: nothing passes any more, and nobody says so."""
    sent_clear: float = 0.0
    """When the last bytes towards the node arrive."""
    answer_clear: float = 0.0
    on_its_way: deque[Incoming] = field(default_factory=deque)
    queue: deque[Incoming] = field(default_factory=deque)
    serving: bool = False
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    clogged: float = 0.0
    """Until when the client's socket takes little at a time."""
    writing: bool = False
    """The client has not been told yet that what it sent is written."""
    produces: bool = False
    """It is for Produce."""
    finished: bool = False
    """The client has said that it sends nothing more."""
    logged_in: bool = False
    """The client has proved who it is."""
    proving: bool = False
    """It has begun to."""
    proved_at: float = -math.inf
    """When it began that last."""
    session: float = math.inf
    session_began: float = -math.inf
    session_ends: float = math.inf
    """For how many seconds that lasts, since when, and when it has to have done so again."""


class Network:
    """Args: chance: of ordinary delays and of what a broken connection still delivers."""

    def __init__(self, clock: Clock, chance: Random, history: History) -> None:
        self._clock, self._chance, self._history = clock, chance, history
        self.cluster: Cluster
        self.links: dict[tuple[str, Key], Link] = {}
        self.slow: dict[int, tuple[float, float]] = {}
        """Per node, how many times slower the ways to it and from it are."""
        self._silent: dict[tuple[str, int], float] = {}
        """Per (client, node), until when nothing passes."""
        self._labels: dict[tuple[str, Key], str] = {}
        self._left: deque[Link] = deque(maxlen=100)
        """Connections that their clients have ended, and that may still bring something."""
        self._stranded: list[Link] = []
        """Connections that have ended, of which what is on its way waits to be brought."""
        self._held: dict[int, list[Callable[[], None]]] = {}
        """Per node that sleeps, the answers that it could give already."""
        self._all: list[Link] = []
        self.features: Counter[str] = Counter()
        self.requests = 0
        self.cut_short: Counter[str] = Counter()
        """Per client, connections for Produce that it closed before the node had read what it sent."""
        self._committed: dict[str, int] = {}
        """Per client, the number of the latest commit that was heard."""
        self._joined: dict[str, int] = {}
        """Per instance id, the number of the latest JoinGroup that was heard."""
        self.sent: Callable[[Link, Any], None] = lambda link, message: None
        """DeliveryCallback of every request when its client sends it."""
        self.admit: Admit = lambda link, version, message, reply, close: False
        """Sees to a request before the cluster does; whether it needs to be asked no more."""
        self.delivered: Callable[[Link, Any, Any], None] = lambda link, request, answer: None
        """DeliveryCallback of every answer when its client gets it."""
        self.lag: Callable[[], float] = lambda: 0.0
        """For how many seconds what is on its way stays there, where a connection has ended for its client."""

    # -- faults ------------------------------------------------------------------------------------------------------

    def silence(self, client: str, node: int, seconds: float) -> None:
        until = self._clock.now + seconds
        self._silent[client, node] = max(until, self._silent.get((client, node), 0.0))

    def cut(self, link: Link, why: str) -> None:
        """Break a connection; its client hears of it at once."""
        if not link.open:
            return
        link.open = False
        kept = self._chance.randint(0, len(link.on_its_way))
        while len(link.on_its_way) > kept:
            link.on_its_way.pop()
        link.late = self._clock.now + self.lag()
        if self.links.get((link.client.name, link.key)) is link:
            del self.links[link.client.name, link.key]
        self._history.add("×", link.label, f"{why}; {kept} requests still arrive" if kept else why)
        link.client.hear(Lost(link.key, why))

    def strand(self, link: Link, why: str) -> None:
        """Break a connection of which everything that is on its way still arrives, once it is brought."""
        if not link.open:
            return
        on_its_way = deque(link.on_its_way)
        self.cut(link, why)
        link.on_its_way, link.late = on_its_way, math.inf
        self._stranded.append(link)

    def bring(self, client: Client) -> None:
        """What was stranded of a client arrives."""
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
        """The client's socket takes little at a time for a while."""
        self._history.add("×", link.label, f"is clogged for {seconds:.2f} s")
        link.clogged = self._clock.now + seconds

    def crash(self, node: int) -> None:
        """All connections of a node break, and what it had in hand is gone."""
        self._held.pop(node, None)
        for link in [each for each in [*self.links.values(), *self._left] if each.node == node]:
            link.queue.clear()
            link.on_its_way.clear()
            link.reset = True
            self.cut(link, "reset by the node")

    def abandon(self, client: Client) -> None:
        """A client's process is gone."""
        for link in [each for each in self.links.values() if each.client is client]:
            self._close(link)

    def wake(self, node: int) -> None:
        """A paused node runs again: serve what has piled up."""
        held, self._held[node] = self._held.get(node, []), []
        for say in held:
            say()
        for link in [*self.links.values(), *self._left]:
            if link.node == node:
                self._serve(link)

    def left_behind(self) -> bool:
        """Whether something that was sent on a connection which has ended may still arrive."""
        self._all = [each for each in self._all if each.open or each.on_its_way or each.queue]
        return any(not each.open for each in self._all)

    # -- what clients do ---------------------------------------------------------------------------------------------

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
        """Take what a client sends; ``False`` where it is told later (`Written`) that everything is taken."""
        link = self.links.get((client.name, action.key))
        if link is None:
            return False
        assert not link.writing, f"{link.label}: nothing may be sent before what was sent last is written"
        data = b"".join(action.parts)
        if self._clock.now >= link.clogged:
            self._take(link, data)
            return True
        link.writing = True
        self.features["a request is written in pieces"] += 1
        # The last piece has something: a node that has read everything may answer.
        cuts = sorted(min(self._chance.randint(0, len(data)), len(data) - 1) for _ in range(self._chance.randint(0, 3)))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        left = link.clogged - self._clock.now
        pauses = sorted(self._chance.uniform(0.0, left) for _ in pieces)
        for piece, pause in zip(pieces, pauses, strict=True):
            self._clock.later(pause, partial(self._take_piece, link, piece))
        self._clock.later(pauses[-1], partial(self._written, link))
        return False

    def _take_piece(self, link: Link, piece: bytes) -> None:
        if link.open:  # what the socket has not taken is lost with its connection
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
            self.sent(link, incoming.request.message)
            link.on_its_way.append(incoming)
            link.sent_clear = max(link.sent_clear, self._clock.now + self._delay(link))
            self._clock.at(link.sent_clear, partial(self._arrive, link, incoming))

    def finish(self, client: Client, action: Finish) -> None:
        """The client sends nothing more: the node ends the connection once it has read everything."""
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
        """The client closes: what it sent arrives, and then the node sees the end."""
        link.open = False
        link.late = self._clock.now + self.lag()
        del self.links[link.client.name, link.key]
        self._history.add("×", link.label, "closed by the client")

    # -- what passes -------------------------------------------------------------------------------------------------

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
        """Whether a later request was heard that makes this one one of which nobody would know that it is old."""
        match incoming.request.message:
            case OffsetCommitRequest():
                heard, of, old = self._committed, link.client.name, True
            case JoinGroupRequest(group_instance_id=str(instance)):
                heard, of, old = self._joined, instance, not link.open
            case _:
                return False
        if incoming.number >= heard.get(of, 0):
            heard[of] = incoming.number
            return False
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
