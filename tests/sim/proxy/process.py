"""The proxy's process: the real `ProxyCore` between two simulated networks.

For its clients it takes the place of the cluster (`Network.admit`); for the cluster it is a client.

In some worlds large frames arrive in pieces, and the proxy passes some of them on before their end. If a connection
breaks meanwhile, the rest is lost.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from ottla.client_info import ClientInfo
from ottla.codec import frames
from ottla.codec.apis import APIS
from ottla.codec.apis.find_coordinator import FindCoordinatorResponse
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.apis.produce import ProduceResponse
from ottla.proxy import events as proxy
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.clients import producers_at_work
from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.journal.journal import Journal
from ottla.proxy.journal.restored import noted
from ottla.proxy.topic_rule import TopicRule
from ottla.sdk import events as sdk
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.mutations import Change
from tests.sim.network import PORT, Link, Network, Reply
from tests.sim.process import SimulatedProcess
from tests.sim.proxy import forwarded
from tests.sim.proxy.pieces import Pieces
from tests.sim.proxy.strangers import Stranger
from tests.sim.users import Violation

WORK = (0.01, 0.1, 1.0)
"""Most seconds that work takes in a thread; a world has one of these values."""
SEGMENT = 4000
"""Bytes after which the journal starts a new segment with a copy of its state."""
FEW_PRODUCERS = 0.3
"""The fraction of worlds in which a host may have records of few producers under way."""
BREAKS = {"front": 0.25, "back": 0.04}
"""How often a client's or an upstream connection breaks, or is swallowed, within a frame."""
_SWEEP = 0.02
"""Seconds between two checks for clients that have left."""


BUG = "the proxy logs a bug of its own"
CROWDED = "a host has more producers at work than the proxy allows"
OVERCOUNTED = "the proxy counts connections or producers that are gone"
ESCAPE = "a client learns an address of upstream"
MIXED_UP = "an answer has the correlation id of another request"
HALF = "a connection to a broker stays open behind the half of a request"
PASSED_ON = "a request is passed on in pieces"
ANSWERED = "a response is passed on in pieces"
CUT_OFF = "a request is cut off while it is passed on"


class Bugs(logging.Handler):
    """Collects the errors that the proxy has caught and logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            error = logging.Formatter().formatException(record.exc_info)  # the error itself would keep the whole world
            self._found.append(f"{record.getMessage()}: {error}")

    def check(self) -> None:
        """Raise `Violation` if there is an error."""
        if self._found:
            raise Violation(BUG, self._found[0])


def _check_addresses(answer: Any) -> None:
    """Raise `Violation` if a response has another address than the proxy's: the client would connect past the proxy."""
    match answer:
        case MetadataResponse():
            hosts = {each.host for each in answer.brokers}
        case FindCoordinatorResponse():
            hosts = {answer.host, *(each.host for each in answer.coordinators)}
        case ProduceResponse():
            hosts = {each.host for each in answer.node_endpoints}
        case _:
            return
    if astray := hosts - {"proxy", ""}:
        raise Violation(ESCAPE, f"{type(answer).__name__} names {sorted(astray)}")


class Door(Protocol):
    """Stands before the proxy, as the listener's service for SASL does."""

    def info(self, link: Link) -> ClientInfo:
        """Who the client of a connection is."""

    def take(self, link: Link, frame: bytes, close: Callable[[str], None]) -> bytes | None:
        """The response to a request of a login, which may be empty; ``None``: the proxy gets the request."""


@dataclass(eq=False)
class _Incoming:
    """A client's request in pieces."""

    whole: proxy.Requested
    parts: list[bytes]
    passes: bool = False
    """The proxy passes it on before its end."""


@dataclass(eq=False)
class _Connection:
    """A client's connection, as the listener has it: answers leave in the order of the requests."""

    number: int
    link: Link
    close: Callable[[str], None]
    asked: deque[int] = field(default_factory=deque)
    replies: dict[int, tuple[Reply, int, int]] = field(default_factory=dict)
    """Ticket -> the callback for the answer, the API's key and version."""
    answers: dict[int, bytes] = field(default_factory=dict)
    begun: dict[int, bytes] = field(default_factory=dict)
    """Ticket -> the pieces of an answer so far."""
    waiting: list[tuple[Any, int, Reply]] | None = None
    """Requests that its client sends once it has logged in, with their versions; ``None``: it has, or needs no login.
    """

    def flush(self) -> None:
        while self.asked and self.asked[0] in self.answers:
            ticket = self.asked.popleft()
            data = self.answers.pop(ticket)
            reply, key, version = self.replies.pop(ticket)
            if not data:
                reply(None)
                continue
            for told in (version, 0):  # ApiVersions of an unsupported version is answered in version 0
                try:
                    number, answer = frames.parse_response(APIS[key].response, told, data[4:])
                except Exception:
                    if told == 0:
                        raise
                    continue
                if number != ticket:
                    raise Violation(MIXED_UP, f"{number} for {ticket}")
                _check_addresses(answer)
                reply((answer, told))
                break


def few_producers(seed: int) -> list[tuple[Any, str, Change]]:
    """In some worlds a host may have records of only one or two producers under way, and maybe of one for each
    connection."""
    own = Random(f"{seed} producers at work")
    if own.random() >= FEW_PRODUCERS:
        return []
    at_least, of_a_connection = own.choice((1, 2)), own.choice((0, 0, 1))
    return [
        (producers_at_work, "AT_LEAST", lambda _: at_least),
        (producers_at_work, "OF_A_CONNECTION", lambda _: of_a_connection),
    ]


class _AtWork:
    """Checks that no host gets more producers at work than the proxy allows, as connections and batches tell."""

    def __init__(self) -> None:
        self._leaving: dict[int, str] = {}
        """Clients that have left, of whose requests the proxy may still handle some -> their host."""
        self._before: dict[str, set[object]] = {}

    def left(self, client: int, host: str) -> None:
        self._leaving[client] = host

    def check(self, core: ProxyCore, connections: dict[int, str]) -> None:
        """``connections``: client -> its host."""
        found: dict[str, set[object]] = {}
        for batch in _under_way(core):
            if batch.origin.host:  # otherwise it is from the journal
                found.setdefault(batch.origin.host, set()).add(batch.producer)
        for host, producers in found.items():
            many = list({**self._leaving, **connections}.values()).count(host)
            most = max(producers_at_work.AT_LEAST, producers_at_work.OF_A_CONNECTION * many)
            if len(producers) > most and producers - self._before.get(host, set()):
                raise Violation(CROWDED, f"{host}: {len(producers)}, and may have {most}")
        self._before = found
        self._leaving = {each: host for each, host in self._leaving.items() if each in core.at_work._host_of}

    def check_rest(self, core: ProxyCore, connections: dict[int, str]) -> None:
        """Check that the proxy counts only what exists."""
        counted = core.at_work._host_of
        if not counted.items() <= connections.items() or +core.at_work._clients != Counter(counted.values()):
            raise Violation(OVERCOUNTED, f"{counted} of {connections}")
        if core.at_work._batches:
            raise Violation(OVERCOUNTED, f"producers of {[*core.at_work._batches]}")


def _under_way(core: ProxyCore) -> Iterator[ClientBatch]:
    """The clients' batches that are not settled, as windows and streams have them."""
    for known in core.admission.producers:
        for window in known.windows.values():
            yield from window.under_way
    lent = core.delivery.lent
    for producer in (*lent._of.values(), *lent._free):
        yield from producer.unopened
        for stream in producer.streams.values():
            for part in (*stream.waiting, *(part for batch in stream.sent for part in batch.parts)):
                if isinstance(part.sender, ClientBatch):
                    yield part.sender


class ProxyProcess(SimulatedProcess):
    """
    Args:
        front: the network of its clients.
        back: the network of the cluster.
    """

    def __init__(
        self, clock: Clock, front: Network, back: Network, history: History, config: ProxyConfig, nodes: int, seed: int
    ) -> None:
        super().__init__("proxy", clock, back, history)
        self.front, self.config, self.nodes, self.seed = front, config, nodes, seed
        self._chance = Random(f"{seed} threads")
        # A batch in ten parts, each built in a thread, must not take longer than the proxy keeps it: clients without
        # idempotence would send all of it again for ever.
        self._longest_work = min(self._chance.choice(WORK), config.delivery_timeout / 10)
        self._breaks = Random(f"{seed} breaks")
        self.core: ProxyCore | None = None
        self.stored: list[tuple[int, bytes]] | None = None
        """The journal's entries, with their segments; ``None``: the proxy has no journal."""
        self.disk_is_full = False
        self.abandoned = False
        """The journal is not whole: the next start does not trust it."""
        self.dies_after_stores: int | None = None
        """After how many further entries of the journal the proxy is killed."""
        self.on_one_host = False
        """All clients but strangers are on one host; otherwise each has a host of its own."""
        self.forgot = False
        """A start has not trusted the journal, so the proxy fences producers."""
        self.dies_at: int | None = None
        """After how many further actions the proxy is killed, between two of them."""
        self.restored = 0
        """Batches that were in flight at a restart."""
        self.restart_after = 0.0
        """Seconds from a kill to the next start."""
        self.restarts = 0
        self.abrupt = False
        """When the proxy closes a connection, its requests in flight are lost."""
        self.forwards = False
        """Clients log in to upstream through the proxy."""
        self.pieces: Pieces | None = None
        """Cuts frames into pieces; ``None``: every frame arrives at once."""
        self.breaks_until = 0.0
        """Until then connections break, or are swallowed, behind some pieces."""
        self.door: Door | None = None
        """Knows who clients are, and handles their logins; ``None``: all are anonymous."""
        self._connections: dict[Link, _Connection] = {}
        self._at_work = _AtWork()
        self._numbers = 0
        self._tickets = 0
        self._alarm = -1.0
        front.cluster = self
        front.admit = self._admit
        self._sweep()

    # -- starts and kills

    def start(self) -> None:
        """Start with an empty memory, from the journal if there is one."""
        self.alive, self.thawed = True, 0.0
        self.restarts += 1
        bootstrap = tuple((f"n{number}", PORT + number) for number in range(1, self.nodes + 1))
        chance = Random(f"{self.seed} proxy {self.restarts}")
        if self.stored is None:
            self.core = ProxyCore(self.config, bootstrap, chance)
        else:
            segment = 1 + max((number for number, _ in self.stored), default=0)
            journal = Journal(segment, SEGMENT)
            self.core = ProxyCore(self.config, bootstrap, chance, journal)
            if self.abandoned:
                self.stored, self.forgot = [], True
            found = noted(data[8:] for _, data in self.stored)
            self.restored += found.under_way
            self.core.restore(found, self.clock.now)
        self.step()

    def kill(self) -> None:
        self.history.add("!", self.name, "is killed")
        self.core, self.dies_at = None, None
        if self.pieces is not None:
            self.pieces.drop_all()
        self._gone()
        for number in range(1, self.nodes + 1):
            self.front.crash(number)
        self._connections.clear()
        self._at_work = _AtWork()
        self.clock.later(self.restart_after, self.start)

    def reload(self, rules: Sequence[TopicRule]) -> None:
        """Apply rules while the proxy runs; a proxy that does not, applies them when it starts."""
        self.config = replace(self.config, topics=tuple(rules))
        self._tell(proxy.RulesChanged(self.config.topics))

    def reload_acls(self, acls: AclRules) -> None:
        """Apply other ACLs while the proxy runs."""
        self.config = replace(self.config, acls=acls)
        self._tell(proxy.AccessChanged(acls))

    def thaw(self) -> None:
        """Continue after a freeze."""
        for number in range(1, self.nodes + 1):
            self.front.wake(number)

    # -- as the clients' cluster

    def up(self, node: int) -> bool:
        return self.alive and self.core is not None and node in self.core.cluster.ports

    def awake(self, node: int) -> bool:
        return self.alive and not self.frozen

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None:
        raise AssertionError("`_admit` handles every request")

    def _admit(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        connection = self._connections.get(link)
        if connection is None:
            self._numbers += 1
            connection = self._connections[link] = _Connection(self._numbers, link, close)
            if self.forwards:
                self._log_in(connection)
        link.serving = False  # a connection may have several requests in flight
        if connection.waiting is not None:
            connection.waiting.append((message, version, reply))
            return True
        whole = self._requested(connection, message, version, reply)
        if self.door is not None and (answer := self.door.take(link, bytes(whole.frame), close)) is not None:
            connection.answers[whole.ticket] = answer
            connection.flush()
        elif self.pieces is None:
            self._tell(whole)
        else:
            incoming = _Incoming(whole, self.pieces.cut(bytes(whole.frame)))
            self.pieces.deliver(link, [partial(self._arrive, incoming, n) for n in range(len(incoming.parts))])
        return True

    def _requested(self, connection: _Connection, message: Any, version: int, reply: Reply) -> proxy.Requested:
        """The event of a client's request, which gets the next place among the answers."""
        self._tickets += 1
        link, key = connection.link, next(key for key, api in APIS.items() if api.request is type(message))
        connection.asked.append(self._tickets)
        connection.replies[self._tickets] = reply, key, version
        frame = frames.build_request(message, version, self._tickets, link.client.name)[4:]
        info = None if self.door is None else self.door.info(link)
        return proxy.Requested(connection.number, link.node, self._tickets, frame, f"{self._host(link)}:1", info=info)

    def _host(self, link: Link) -> str:
        return "clients" if self.on_one_host and not isinstance(link.client, Stranger) else link.client.name

    def _hosts(self) -> dict[int, str]:
        """Client -> its host."""
        return {each.number: self._host(link) for link, each in self._connections.items()}

    def check_rest(self) -> None:
        """Check that the proxy has nothing under way, and counts only the connections that exist."""
        if self.core is not None:
            self._at_work.check_rest(self.core, self._hosts())

    def _log_in(self, connection: _Connection) -> None:
        """Log a client in, in its place: no client of these worlds knows SASL."""
        connection.waiting = []
        self._send_login(connection, iter(forwarded.login(connection.link.client.name)))

    def _send_login(self, connection: _Connection, left: Iterator[tuple[Any, int]]) -> None:
        """Send the next request of a login, as clients do: after the answer to the one before."""
        if self.held(partial(self._send_login, connection, left)):
            return
        if self._connections.get(connection.link) is not connection:
            return
        if (following := next(left, None)) is None:
            self._go_on(connection)
            return

        def answered(answer: Any) -> None:
            if answer is not None:
                self.clock.later(0.0, partial(self._send_login, connection, left))

        self._tell(self._requested(connection, *following, answered))

    def _go_on(self, connection: _Connection) -> None:
        """Send the requests that have waited for a login."""
        waiting, connection.waiting = connection.waiting or [], None
        for message, version, reply in waiting:
            self._tell(self._requested(connection, message, version, reply))

    def _arrive(self, incoming: "_Incoming", number: int) -> None:
        """A piece of a request arrives: the proxy passes the request on, or collects it."""
        if self.core is None or self.held(partial(self._arrive, incoming, number)):
            return
        whole, part = incoming.whole, incoming.parts[number]
        client, size, last = whole.client, len(whole.frame), number == len(incoming.parts) - 1
        if number == 0 and not last and self.core.begins_passage(client, size, part, self.clock.now):
            self.front.features[PASSED_ON] += 1
            incoming.passes = True
            self._tell(proxy.RequestBegan(client, whole.ticket, size, part))
            self._break("front", next((link for link, c in self._connections.items() if c.number == client), None))
        elif incoming.passes:
            self._tell(proxy.RequestContinued(client, part))
        elif last:
            self._tell(whole)

    def _sweep(self) -> None:
        """Notice clients that have left, once all their requests have arrived."""
        for link, connection in list(self._connections.items()):
            if not link.open and not link.on_its_way and not link.queue and not self.frozen:
                if self.pieces is not None and self.pieces.waits(link):
                    if not link.broken:
                        continue  # everything arrives that a client has sent before it closes
                    self.front.features[CUT_OFF] += 1
                    self.pieces.drop(link)
                if connection.waiting and not link.broken:
                    continue
                self._connections.pop(link, None)
                self._at_work.left(connection.number, self._host(link))
                self._tell(proxy.Left(connection.number))
        self.clock.later(_SWEEP, self._sweep)

    # -- as a client of the cluster

    def hear(self, event: sdk.Event) -> None:
        if self.pieces is not None and isinstance(event, sdk.Received):
            # A frozen process holds each piece: if it held the event, its pieces would overtake earlier ones that wait.
            link, data = event.key[0], event.data
            self.pieces.deliver(link, [partial(self._receive, link, part) for part in self.pieces.cut(data)])
            return
        if self.held(partial(self.hear, event)):
            return
        match event:
            case sdk.Connected((link, _)):
                self._tell(proxy.UpstreamConnected(link))
            case sdk.Received((link, _), data):
                self._tell(proxy.UpstreamReceived(link, data))
            case sdk.Lost((link, _), why):
                if self.pieces is not None:
                    self.pieces.drop(link)
                self._tell(proxy.UpstreamLost(link, str(why)))

    def _receive(self, link: int, part: bytes) -> None:
        """A piece of a response arrives, unless the connection is swallowed meanwhile."""
        if self.held(partial(self._receive, link, part)):
            return
        its = self.network.links.get((self.name, (link, "proxy")))
        if its is not None and not its.swallowed:
            self._tell(proxy.UpstreamReceived(link, part))
            if self.pieces is not None and self.pieces.waits(link):
                self._break("back", its)

    def _break(self, side: str, link: Link | None) -> None:
        """Within a frame, break a connection now and then, or have it swallowed."""
        if link is None or self.clock.now >= self.breaks_until or self._breaks.random() >= BREAKS[side]:
            return
        network = self.front if side == "front" else self.network
        if self._breaks.random() < 0.5:
            network.cut(link, "the wire broke within a frame")
        else:
            network.swallow(link)
        if self.pieces is not None and side == "front":
            self.front.features[CUT_OFF] += 1
            self.pieces.drop(link)

    def _tell(self, event: proxy.Event) -> None:
        if self.core is not None:
            self.core.handle(event, self.clock.now)
            if (piece := self.core.take_piece()) is None:
                self.step()
            elif not self._dies():
                self._carry_out(piece)

    def _dies(self) -> bool:
        """Kill the proxy before its next action, if that is due."""
        if self.dies_at is None or self.dies_at:
            self.dies_at = self.dies_at and self.dies_at - 1
            return False
        self.kill()
        return True

    def half_answered(self, client: str) -> bool:
        """Whether a client waits for the rest of a response."""
        return any(each.begun and link.client.name == client for link, each in self._connections.items())

    def half_sent(self) -> bool:
        """Whether an upstream connection waits for the rest of a request."""
        return self.core is not None and any(link._sending for link in self.core.links._live.values())

    def step(self) -> None:
        core = self.core
        if core is None or not self.alive or self.frozen:
            return
        while actions := core.poll(self.clock.now):
            for action in actions:
                if self._dies():
                    return
                self._carry_out(action)
        if self.core is not core:
            return
        self._at_work.check(core, self._hosts())
        due = core.deadline
        if due is not None:
            self._alarm = max(due, self.clock.now)
            self.clock.at(self._alarm, partial(self._ring, self._alarm))

    def _ring(self, when: float) -> None:
        if not self.held(partial(self._ring, when)) and when == self._alarm:
            self.step()

    def _carry_out(self, action: proxy.Action) -> None:
        assert self.core is not None
        match action:
            case proxy.AnswerClient(client, ticket, parts, _, left):
                for connection in self._connections.values():
                    if connection.number == client:
                        data = connection.begun.pop(ticket, b"") + b"".join(parts)
                        if left:
                            self.front.features[ANSWERED] += 1
                            connection.begun[ticket] = data
                        else:
                            connection.answers[ticket] = data
                            connection.flush()
                        break
            case proxy.CloseClient(client, why):
                for connection in list(self._connections.values()):
                    if connection.number == client:
                        connection.waiting = None
                        connection.close(why)
            case proxy.ConnectUpstream(link, (host, port), _):
                self.network.connect(self, sdk.Connect((link, "proxy"), host, port))
            case proxy.SendUpstream(link, parts):
                self.network.send(self, sdk.Send((link, "proxy"), parts))
            case proxy.FinishUpstream(link):
                self.network.finish(self, sdk.Finish((link, "proxy")))
            case proxy.DisconnectUpstream(link):
                if self.pieces is not None:
                    self.pieces.drop(link)
                if self.abrupt and (ends := self.network.links.get((self.name, (link, "proxy")))):
                    ends.on_its_way.clear()
                self.network.close(self, sdk.Close((link, "proxy")))
            case proxy.AbandonJournal():
                self._abandon()
            case proxy.Store() if self.disk_is_full:
                self._abandon()
                self.core.handle(proxy.JournalLost("the disk is full"), self.clock.now)
            case proxy.Store(segment, data, obsolete):
                assert self.stored is not None
                self.abandoned = self.abandoned and not obsolete
                if self.dies_after_stores is not None:
                    self.dies_after_stores -= 1
                    if self.dies_after_stores <= 0:
                        self.dies_after_stores, self.dies_at = None, 0
                self.stored = [each for each in self.stored if each[0] >= obsolete]
                self.stored.append((segment, data))
            case proxy.Listen(node):
                self.clock.later(0.001, partial(self._listen, self.core, node))
            case proxy.Work(number, call):
                self.clock.later(
                    self._chance.uniform(0.0, self._longest_work), partial(self._work, self.core, number, call)
                )

    def _abandon(self) -> None:
        self.stored, self.abandoned = [], True

    def _work(self, core: ProxyCore, number: int, call: Callable[[], Any]) -> None:
        if self.core is core and not self.held(partial(self._work, core, number, call)):
            self._tell(proxy.Worked(number, call()))

    def _listen(self, core: ProxyCore, node: int) -> None:
        if self.core is core:
            self._tell(proxy.Listening(node, (PORT + node,)))
