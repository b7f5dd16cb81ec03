"""The whole client as one machine: connections, metadata, timers; the producer, fetcher and calls hang on it.

    poll(now)            what is to be done: `Connect`, `Send`, `Close`
    handle(event, now)   what happened: `Connected`, `Received`, `Lost`
    deadline             when to poll next if nothing happens

Rules:
- A driver polls after every `handle`, after every call of a user, and at the deadline.
- `poll` costs what is due: a heap of timers and the connections that have something to do.
- Metadata are asked of a connection that works, else of the next address in turn. Whoever has not answered within a
  second is given more time, but another is asked as well: a dead address costs a second at most.
- The bootstrap addresses stay in turn with the nodes known, their names resolved anew each time, so that a client
  survives the restart of a whole cluster elsewhere (KIP-899). Those found by zeroconf are looked for again (`Find`)
  after a round in which nobody answered. A broker that says REBOOTSTRAP_REQUIRED makes the client forget all nodes
  (KIP-1102).
- A machine that stops closes no sockets, and requests to it would wait until their time is over. So others are asked
  about a node that owes an answer for five seconds; if it is not among the living, its connections end, and what waits
  there goes to the new leaders. Java waits.
- While nobody can be reached, what was tried is remembered for the error.

Source: NetworkClient.java, DefaultMetadataUpdater; Metadata.java.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import (
    BrokerUnreachable,
    Closed,
    ConnectionLost,
    InvalidTopic,
    OttlaError,
    RebootstrapRequired,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.cluster.cluster import Cluster, Topic
from ottla.sdk.cluster.coordinators import Coordinators
from ottla.sdk.connection.connection import Connection, Exchange, State, common
from ottla.sdk.connection.peer import Peer
from ottla.sdk.events import (
    Action,
    Close,
    Connected,
    Event,
    Filled,
    Find,
    Found,
    Key,
    Lost,
    Node,
    Received,
    Run,
    logged,
)
from ottla.sdk.gate import Gate
from ottla.sdk.logs import logger
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, Wait
from ottla.sdk.timers import Timer, Timers

if TYPE_CHECKING:
    from random import Random  # a machine is given chance, it does not take any

T = TypeVar("T")

log = logger("ottla.sdk")

DATA = "data"
"""The ordinary channel of a node."""
FETCH = "fetch"
"""The channel of fetches, which wait at the broker."""
PRODUCE = "produce"
"""The channel of Produce, which waits for replicas: commits and metadata are not to wait behind it."""

IMPATIENCE = 1.0
"""Seconds without metadata after which another node is asked as well; doubled for each that is asked already."""
SILENCE = 5.0
"""Seconds for which a node owes an answer before others are asked about it; Fetch may take its wait longer."""
MAX_TOPIC_NAME = 249
"""Characters. Source: Topic.java, MAX_NAME_LENGTH."""
UNKNOWN_TOPIC_GRACE = 5.0
"""Seconds in which a topic that the broker is just creating may be unknown."""


@dataclass(slots=True, eq=False)
class Waiting:
    """Somebody waits for a topic to be known."""

    name: str
    create: bool
    outcome: Outcome[Topic]
    until: float | None = None
    """When an unknown topic is no longer taken for one that is being created; set by the first answer about it."""


class Explains(Protocol):
    """A part that can wait, and says for what."""

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people: which partition, which node, since when, for what, what was tried. None if all is well."""
        ...


class ClientCore:
    """See the module.

    Args:
        addresses: the bootstrap ``(host, port)`` pairs, at least one.
        findable: the driver can look for others (`Find`).
    """

    def __init__(
        self, addresses: Iterable[tuple[str, int]], options: Options, rng: "Random", *, findable: bool = False
    ) -> None:
        self.options = options
        self.rng = rng
        self.cluster = Cluster()
        self.coordinators = Coordinators(self)
        self.metrics = Metrics(options.client_id)
        self.parts: dict[Explains, None] = {}
        """What `explain` asks, in this order: a part adds itself, and takes itself out when it closes."""
        self.closed: OttlaError | None = None
        self._seeds = self._shuffled(addresses)
        self._findable, self._finding = findable, False
        self._peers: dict[int, Peer] = {}
        self._connections: dict[Key, Connection] = {}
        self._busy: dict[Key, None] = {}
        """Connections that may have something to do (an ordered set: replays must not depend on hashes)."""
        self._watched: dict[Key, float] = {}
        """Connections whose deadline is among the timers."""
        self._timers = Timers()
        self._actions: list[Action] = []
        self.gate = Gate(self.run)
        """Whatever touches the core, or a part of it, does so inside."""
        self.now = 0.0
        """The time of the step that is being taken."""
        self._next = 0
        """Counts the nodes taken in turn."""
        self._held: dict[str, int] = {}
        """Topics whose metadata are kept fresh, and for how many."""
        self._loose: dict[str, float] = {}
        """Topics that were let go of, and when metadata came first since then, or told of them; infinite: none yet."""
        self._waiting: list[Waiting] = []
        self._metadata_due: Timer | None = None
        self._asked: dict[int, Timer] = {}
        """Nodes asked for metadata that have not answered, each with when another is asked as well."""
        self._patrol: Timer | None = None
        """The next look for nodes that do not answer."""
        self._ask_again = False
        """Somebody wanted metadata newer than those under way."""
        self._created = False
        """The last request was one that may create topics."""
        self._metadata_failures = 0
        self._metadata_at = math.nan
        self._troubles: dict[str, tuple[str, int]] = {}
        """Per address, why it could not be used, and how often that was tried; cleared by success."""
        self.metrics.gauge("metadata-age", lambda now: now - self._metadata_at)
        self.observers: list[Callable[[float], None]] = []
        """Called after every update of the metadata."""
        self._closers: dict[Callable[[OttlaError], None], None] = {}
        self._numbered = 0

    # -- the driver's side -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Action]:
        """Run what is due and return what the driver is to do."""
        with self.gate:
            self.now = now
            self._poll(now)
        actions, self._actions = self._actions, []
        return actions

    def _poll(self, now: float) -> None:
        while True:
            if call := self._timers.due(now):
                call(now)
            elif self._busy:
                key = next(iter(self._busy))
                del self._busy[key]
                if connection := self._connections.get(key):
                    self._actions += connection.poll(now)
                    self._watch(key, connection)
            else:
                break

    def handle(self, event: Event, now: float) -> None:
        """Take note of what happened."""
        with self.gate:
            self.now = now
            self._handle(event, now)

    def resume(self, steps: Steps[T], now: float, *, sent: object = None, raised: BaseException | None = None) -> Wait:
        """Have a user's call take its next step; what it waits for then.

        Args:
            sent: what its last ``yield`` is answered with.
            raised: what is raised there instead.

        Raises:
            StopIteration: it is over; ``value`` is its result.
            BaseException: what it ends with, ``raised`` included.
        """
        with self.gate:
            self.now = now
            return steps.send(sent) if raised is None else steps.throw(raised)

    def _handle(self, event: Event, now: float) -> None:
        if isinstance(event, Found):
            self._found(event, now)
            return
        connection = self._connections.get(event.key)
        if connection is None:
            return
        match event:
            case Connected():
                self._actions += connection.connected(now)
            case Received(data=data):
                self._actions += connection.received(data, now)
            case Filled(count=count):
                self._actions += connection.filled(count, now)
            case Lost(why=why):
                connection.lost(why, now)
                self._busy[event.key] = None
        self._watch(event.key, connection)

    def room(self, key: Key) -> memoryview | None:
        """Where the driver may put what it receives next, saying so by `Filled`: the rest of a large answer."""
        connection = self._connections.get(key)
        return connection.room if connection else None

    @property
    def deadline(self) -> float | None:
        """When to poll next if nothing happens; ``None``: only when something does."""
        return -math.inf if self._actions or self._busy else self._timers.next

    def close(self, now: float, error: OttlaError | None = None) -> None:
        """Fail everything that waits. The driver closes the sockets."""
        if self.closed:
            return
        self.closed = error or Closed("the client is closed")
        for closer in list(self._closers):
            closer(self.closed)
        for connection in list(self._connections.values()):
            connection.retire(now)
        self._timers.clear()

    # -- the parts' side ---------------------------------------------------------------------------------------------

    def later(self, when: float, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` at ``when``."""
        return self._timers.add(when, call)

    def on_close(self, call: Callable[[OttlaError], None]) -> Callable[[], None]:
        """Call ``call(error)`` when the client closes; returns what takes that back."""
        self._closers[call] = None

        def forget() -> None:
            self._closers.pop(call, None)

        return forget

    def fail_on_close(self, outcome: Outcome[T]) -> None:
        """Nobody waits on a client that is closed."""
        outcome.when_done(self.on_close(outcome.fail))

    def run(self, call: Callable[[], object]) -> None:
        """Have the driver call ``call()``, which is code of the user's, once this step is over (`Run`)."""
        self._actions.append(Run(call))

    def soon(self, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` within the next `poll`."""
        return self.later(-math.inf, call)

    def backoff(self, failures: int) -> float:
        """Seconds before the next attempt: doubling from `retry_backoff` to its maximum, give or take a fifth."""
        pause = self.options.retry_backoff * 2.0 ** min(failures, 16)
        return float(min(pause, self.options.retry_backoff_max) * self.rng.uniform(0.8, 1.2))

    def submit(self, node: Node, exchange: Exchange, now: float, channel: str = DATA) -> None:
        """Send a request to ``node``."""
        if self.closed:
            exchange.settle(self.closed, now)
            return
        connection = self._connection(node, channel, now)
        connection.submit(exchange, now)
        self._busy[connection.key] = None
        if self._patrol is None:
            self._patrol = self.later(now + SILENCE, self._look_for_silence)

    def open_connection(self, node: Node, channel: str, now: float) -> None:
        """Connect to ``node`` before there is a request, so that the first one need not wait for it."""
        if not self.closed:
            connection = self._connection(node, channel, now)
            connection.open(now)
            self._busy[connection.key] = None

    def _connection(self, node: Node, channel: str, now: float) -> Connection:
        # What the metadata say of the address is newer than what somebody may have kept.
        peer = self._peer(self.cluster.nodes.get(node.id, node), now)
        key = (node.id, channel)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = Connection(key, peer, self.options.client_id)
        return connection

    def number(self) -> int:
        """Another number each time, for what has to have a name of its own."""
        self._numbered += 1
        return self._numbered

    def _look_for_silence(self, now: float) -> None:
        """Hear from others about nodes that have stopped to answer."""
        working = any(each.in_flight for each in self._connections.values())
        self._patrol = self.later(now + SILENCE / 2, self._look_for_silence) if working else None
        if self._silent(now):
            self.refresh(now)

    def _silent(self, now: float) -> list[Key]:
        """Connections to nodes of the cluster that owe an answer for too long."""
        limit = SILENCE + self.options.fetch_max_wait
        return [key for key, each in self._connections.items() if key[0] >= 0 and each.silence(now) >= limit]

    def _give_up_the_dead(self, now: float) -> None:
        """End connections to nodes that neither answer nor belong to the living: a stopped machine closes no sockets.

        What waits there goes to new leaders now, and not when its own time is over.
        """
        for key in self._silent(now):
            if key[0] not in self.cluster.nodes:
                self._actions.append(Close(key))
                self._connections[key].lost("it does not answer, and the cluster has given it up", now)
                self._busy[key] = None

    def _peer(self, node: Node, now: float) -> Peer:
        """What is known of the node, which may have another address by now."""
        peer = self._peers.get(node.id)
        if peer is None:
            peer = self._peers[node.id] = Peer(node, self.options, self.metrics, self.rng, self._node_failed)
        elif peer.node != node and peer.moved(node):
            log.info("a node has another address", extra={"node": node.id, "address": f"{node.host}:{node.port}"})
            for key, connection in list(self._connections.items()):
                if key[0] == node.id:
                    self._actions += connection.moved(now)
                    self._busy[key] = None
        return peer

    def _node_failed(self, now: float) -> None:
        """A connection broke: who leads what may be known elsewhere, and so may be where the cluster is now."""
        if not self._metadata_failures and not self.closed:
            self.refresh(now, self.options.retry_backoff)

    def supports(self, node: Node, request: type) -> range | None:
        """The versions of a request that both the node and we can speak: an empty range where there are none.

        ``None`` as long as the node has not said: `Exchange.build` and `Exchange.versions` then decide when it has.
        """
        peer = self._peers.get(node.id)
        return None if peer is None or peer.versions is None else common(request, None, peer.versions)

    def retire(self, channel: str) -> None:
        """Close the connections of a channel, which nobody uses any more."""

        def close(now: float) -> None:
            for key in [key for key in self._connections if key[1] == channel]:
                connection = self._connections.pop(key)
                connection.retire(now)
                self._watched.pop(key, None)
                self._actions.append(Close(key))

        self.soon(close)

    def connected(self, node: Node) -> bool:
        """A request to the node would go out at once, on the ordinary channel."""
        connection = self._connections.get((node.id, DATA))
        return connection is not None and connection.state is State.READY

    def finish(self, channel: str) -> Outcome[None]:
        """Half-close the connections of a channel; settled when the brokers have ended them, or after five seconds."""
        finished: Outcome[None] = Outcome()
        finished.succeed(None)
        return finished

    def any_node(self) -> Node:
        """A node to ask what any broker can answer: one that works, else the next in turn."""
        return self.other_node(()) or self._seeds[0]

    def other_node(self, but: Container[int]) -> Node | None:
        """A node whose id is not among ``but``: the one with the least to do of those that work, else the next in turn.

        Nodes known and bootstrap addresses take turns.
        """
        ready = [
            each
            for each in self._connections.values()
            if each.state is State.READY and each.key[1] == DATA and each.key[0] not in but
        ]
        if ready:
            return min(ready, key=lambda each: (each.load, each.key)).peer.node
        pools = [pool for pool in ([*self.cluster.nodes.values()], self._seeds) if pool]
        for _ in range(2 * max(map(len, pools))):
            turn, which = divmod(self._next, len(pools))
            self._next += 1
            node = pools[which][turn % len(pools[which])]
            if node.id not in but:
                return node
        return None

    def explain(self, now: float) -> Iterator[str]:
        """What the client waits for, in lines for people; nothing if all is well."""
        for connection in self._connections.values():
            yield from connection.explain(now)
        for where, (why, times) in self._troubles.items():
            yield f"metadata: {where} could not tell them: {why} ({_tried(times)})"
        if self._troubles and self._metadata_at < now:
            yield f"metadata: those in use are {now - self._metadata_at:.1f} s old"
        for each in self._waiting:
            if not each.outcome.done:
                yield f"topic {each.name!r}: waiting until some broker tells where it is"
        for part in list(self.parts):
            yield from part.explain(now)

    def controller(self) -> Node:
        return self.cluster.nodes.get(self.cluster.controller_id) or self.any_node()

    def trouble(self, node: Node) -> str:
        """Why the node cannot be reached at the moment; empty where it can, or nobody tried."""
        peer = self._peers.get(node.id)
        return peer.trouble if peer else ""

    def unreachable(self, what: str, seconds: float) -> BrokerUnreachable:
        """The error for "nobody answered": each address and what it said."""
        silent = [self._peers[each].node for each in self._asked] or ([] if self._troubles else self._seeds)
        said = {_address(node): "no answer yet" for node in silent}
        said |= {where: f"{why} ({_tried(times)})" for where, (why, times) in self._troubles.items()}
        tried = "; ".join(f"{where}: {why}" for where, why in said.items())
        advice = "check the address, and that a broker listens there"
        return BrokerUnreachable(f"{what}: no broker answered within {seconds:g} s ({advice}). Tried {tried}")

    # -- metadata ----------------------------------------------------------------------------------------------------

    def connect(self, now: float) -> Outcome[None]:
        """Settled once any broker has answered with metadata."""
        outcome: Outcome[None] = Outcome()

        def first(now: float) -> None:
            self.observers.remove(first)
            outcome.succeed(None)

        def give_up(now: float) -> None:
            outcome.fail(self.unreachable("cannot connect", self.options.connect_timeout))

        self.observers.append(first)
        self.fail_on_close(outcome)
        outcome.when_done(self.later(now + self.options.connect_timeout, give_up).cancel)
        self.refresh(now)
        return outcome

    def topic(self, name: str, now: float, *, create: bool = False, fresh: bool = False) -> Outcome[Topic]:
        """The topic, once it is known; asks for it if need be, or in any case if it is to be ``fresh``.

        Fails with the broker's error (`UnknownTopicOrPartition`, `InvalidTopic`, `TopicAuthorizationFailed`), the
        first only after a grace in which the broker may be creating it; or with `BrokerUnreachable`.
        """
        outcome: Outcome[Topic] = Outcome()
        known = self.cluster.topics.get(name)
        if not known and (why := unnameable(name)):
            outcome.fail(InvalidTopic(why))
        elif known and not fresh and name not in self._loose:
            outcome.succeed(known)
        elif self.closed:
            outcome.fail(self.closed)
        else:
            self.fail_on_close(outcome)
            self._waiting.append(Waiting(name, create, outcome))
            late = self.later(now + self.options.api_timeout, lambda now: outcome.fail(self.why_no_topic(name)))
            outcome.when_done(late.cancel)
            self.refresh(now)
        return outcome

    def why_no_topic(self, name: str) -> OttlaError:
        """The error for a topic that is not known, as far as anybody said why."""
        code = self.cluster.errors.get(name)
        if code is not None and not self._troubles:
            return broker_error(code, f"topic {name!r}")
        return self.unreachable(f"topic {name!r}", self.options.api_timeout)

    def why_no_leader(self, topic: str, partition: int) -> OttlaError:
        """The error for a partition that nobody leads."""
        code = self.cluster.errors.get(topic)
        where = f"{topic}-{partition}"
        return broker_error(code, where) if code else ConnectionLost(f"{where} has no leader")

    def hold(self, name: str) -> Callable[[], None]:
        """Keep the topic's metadata fresh until what this returns is called.

        What was known is not forgotten at once then, for somebody else may have learned it from `topic` and not hold it
        yet; but `topic` asks anew.
        """
        self._held[name] = self._held.get(name, 0) + 1
        if name in self._loose:
            self.soon(self.refresh)
        released = False

        def release() -> None:
            nonlocal released
            if released:
                return
            released = True
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
                self._loose[name] = math.inf

        return release

    def forget(self, name: str) -> None:
        """The topic is not as it was known: whoever wants it next asks anew."""
        self._loose.pop(name, None)
        self.cluster.forget(name)

    def refresh(self, now: float, delay: float = 0.0) -> None:
        """Ask for metadata, ``delay`` seconds from now at the latest; cheap to call often."""
        due = self._metadata_due
        if due and due.call and due.when <= now + delay:
            return
        if due:
            due.cancel()
        self._metadata_due = self.later(now + delay, self._ask)

    def _ask(self, now: float) -> None:
        self._metadata_due = None
        # Whoever has not answered in time may be stopped, and keeps nobody from asking the others.
        asked = len(self._asked)
        if not any(patience.call for patience in self._asked.values()):
            self._ask_another(now)
        if asked and len(self._asked) == asked:
            self._ask_again = True

    def _ask_another(self, now: float) -> None:
        """Ask a node that is not being asked."""
        node = self.other_node(self._asked)
        if self.closed or node is None:
            return
        self._waiting = [each for each in self._waiting if not each.outcome.done]
        # One request creates all of its topics or none, so one that may create asks only for those that may be created,
        # and the next one for all.
        create = not self._created and any(
            each.create and each.name not in self.cluster.topics for each in self._waiting
        )
        self._created = create
        wanted = [each.name for each in self._waiting if each.create or not create]
        names = list(dict.fromkeys(wanted if create else [*self._held, *wanted]))
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=create
        )

        def ended(answer: MetadataResponse | OttlaError, now: float) -> None:
            self._asked.pop(node.id).cancel()
            if self.closed:
                return
            if isinstance(answer, OttlaError):
                self._failed(node, answer, now)
            elif answer.error_code == RebootstrapRequired.code:
                self._start_over(node, now)
            elif answer.error_code or not answer.brokers:
                # A broker that has just started may know no broker yet, not even itself.
                why = broker_error(answer.error_code) if answer.error_code else ConnectionLost("it knows no broker yet")
                self._failed(node, why, now)
            else:
                self._learn(answer, names, now)

        self._asked[node.id] = self.later(now + IMPATIENCE * 2 ** len(self._asked), self._ask_another)
        timeout = min(self.options.request_timeout, self.options.connect_timeout)
        self.submit(node, Exchange(request, ended, now + timeout), now)

    def _failed(self, node: Node, error: OttlaError, now: float) -> None:
        where = _address(node)
        _, times = self._troubles.get(where, ("", 0))
        self._troubles[where] = (str(error).removeprefix(where).lstrip(": "), times + 1)
        self._metadata_failures += 1
        log.info("metadata could not be had", extra={"node": logged(node), "address": where, "why": str(error)})
        # The next address is tried at once; only a whole round of failures earns a pause.
        rounds, rest = divmod(self._metadata_failures, len(self._seeds) + len(self.cluster.nodes))
        self.refresh(now, 0.0 if rest else self.backoff(rounds))
        if not rest and self._findable and not self._finding:
            self._finding = True
            self._actions.append(Find())

    def _start_over(self, node: Node, now: float) -> None:
        """The broker knows that what we know of the cluster is worthless."""
        log.warning("a broker asks for a new start from the bootstrap addresses", extra={"node": logged(node)})
        self.cluster.nodes.clear()
        for key, connection in list(self._connections.items()):
            self._actions.append(Close(key))
            connection.lost("the broker asks for a new start from the bootstrap addresses", now)
            self._busy[key] = None
        self._failed(node, RebootstrapRequired(_address(node)), now)

    def _found(self, event: Found, now: float) -> None:
        self._finding = False
        if event.addresses and not self.closed:
            self._seeds = self._shuffled(event.addresses)
            self._metadata_failures = 0
            self.refresh(now)

    def _shuffled(self, addresses: Iterable[tuple[str, int]]) -> list[Node]:
        """The bootstrap addresses as nodes, in an order that is another for each client."""
        seeds = [Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses)]
        self.rng.shuffle(seeds)
        return seeds

    def _learn(self, answer: MetadataResponse, asked: list[str], now: float) -> None:
        self._metadata_failures, self._metadata_at = 0, now
        self._troubles.clear()
        known = self.cluster.cluster_id
        if known is not None and answer.cluster_id not in (None, known):
            log.error(
                "the cluster is another one now (its id changed): what the addresses lead to has neither the records "
                "nor the offsets of the one before; check the bootstrap addresses, or restart the client if this is "
                "meant",
                extra={"cluster_before": known, "cluster_now": answer.cluster_id},
            )
        self.cluster.update(answer)
        for node in self.cluster.nodes.values():
            if node.id in self._peers:
                self._peer(node, now)
        answered = {each.name for each in answer.topics}
        for name in asked:
            if name not in answered:
                self.cluster.drop(name)
                self.cluster.errors[name] = UnknownTopicOrPartition.code
        self._clear_out(asked, now)
        self._waiting = [each for each in self._waiting if not self._judge(each, asked, now)]
        for observer in list(self.observers):
            observer(now)
        self._give_up_the_dead(now)
        self._when_next(asked, now)

    def _clear_out(self, asked: list[str], now: float) -> None:
        """Forget topics that were let go of long ago."""
        for name in asked:
            if name in self._held:
                self._loose.pop(name, None)
            elif name in self._loose:
                self._loose[name] = now
        for name, since in list(self._loose.items()):
            self._loose[name] = min(since, now)
            if name not in self._held and now - since >= self.options.metadata_max_age:
                self.forget(name)

    def _when_next(self, asked: list[str], now: float) -> None:
        """Ask again: at once for topics that were not asked for, soon for what is being made, else when it is old."""
        again, self._ask_again = self._ask_again, False
        left_out = any(each.name not in asked for each in self._waiting)
        if left_out or (self._created and self._held):
            self.refresh(now)
        else:
            soon = self._waiting or again
            self.refresh(now, self.options.retry_backoff if soon else self.options.metadata_max_age)

    def _judge(self, waiting: Waiting, asked: list[str], now: float) -> bool:
        """Settle ``waiting`` if the answer to a question about ``asked`` allows it; whether it is settled."""
        name, outcome = waiting.name, waiting.outcome
        if outcome.done or name not in asked:
            return outcome.done
        if topic := self.cluster.topics.get(name):
            outcome.succeed(topic)
            return True
        error = broker_error(self.cluster.errors.get(name, UnknownTopicOrPartition.code), f"topic {name!r}")
        if waiting.until is None:
            waiting.until = now + min(UNKNOWN_TOPIC_GRACE, self.options.api_timeout / 2)
        passing = error.retriable and (now < waiting.until or not isinstance(error, UnknownTopicOrPartition))
        if not passing:
            outcome.fail(error)
        return not passing

    def _watch(self, key: Key, connection: Connection) -> None:
        """Have the connection polled at its deadline; an earlier poll that is due anyway will look again."""
        due = connection.deadline
        if due is None or due >= self._watched.get(key, math.inf):
            return
        self._watched[key] = due
        self.later(due, lambda now: self._wake(key, due))

    def _wake(self, key: Key, due: float) -> None:
        if self._watched.get(key) == due:
            del self._watched[key]
        self._busy[key] = None


def unnameable(topic: str) -> str:
    """Why no topic can have this name, which no request could hold; brokers judge all others."""
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        return f"topic {topic!r:.80} cannot be encoded: {error.reason}"
    return f"topic {topic!r:.80} has {len(topic)} characters, and 249 at most" if len(topic) > MAX_TOPIC_NAME else ""


def _tried(times: int) -> str:
    return f"tried {times} times" if times > 1 else "tried once"


def _address(node: Node) -> str:
    return f"{node.host}:{node.port}"
