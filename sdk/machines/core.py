"""The whole client as one machine: connections, metadata, timers; the producer, fetcher and calls hang on it.

    poll(now)            what is to be done: `Connect`, `Send`, `Close`
    handle(event, now)   what happened: `Connected`, `Received`, `Lost`
    deadline             when to poll next if nothing happens

Rules:
- A driver polls after every `handle`, after every call of a user, and at the deadline.
- `poll` costs what is due: a heap of timers and the connections that have something to do.
- Metadata are asked of one node at a time: of a connection that works, else of the next address in turn, so that a
  dead bootstrap address costs one attempt. While nobody can be reached, what was tried is remembered for the error.
"""

import logging
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import BrokerUnreachable, Closed, OttlaError, UnknownTopicOrPartition, broker_error
from ottla.sdk.machines.actions import Action, Connected, Event, Key, Lost, Node, Received
from ottla.sdk.machines.cluster import Cluster, Topic
from ottla.sdk.machines.connection import Connection, Exchange, State, Timing
from ottla.sdk.machines.options import Options
from ottla.sdk.machines.outcome import Outcome
from ottla.sdk.machines.timers import Timer, Timers

if TYPE_CHECKING:
    from random import Random  # a machine is given chance, it does not take any

T = TypeVar("T")

log = logging.getLogger("ottla.sdk")

DATA = "data"
"""The ordinary channel of a node."""
FETCH = "fetch"
"""The channel of fetches, which wait at the broker."""

METADATA_MAX_AGE = 300.0
UNKNOWN_TOPIC_GRACE = 5.0
"""Seconds in which a topic that the broker is just creating may be unknown."""


class ClientCore:
    """See the module. ``addresses`` are the bootstrap ``(host, port)`` pairs, at least one."""

    def __init__(self, addresses: Iterable[tuple[str, int]], options: Options, rng: "Random") -> None:
        self.options = options
        self.rng = rng
        self.cluster = Cluster()
        self.closed: OttlaError | None = None
        self._seeds = [Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses)]
        rng.shuffle(self._seeds)
        self._connections: dict[Key, Connection] = {}
        self._busy: dict[Key, None] = {}
        """Connections that may have something to do (an ordered set: replays must not depend on hashes)."""
        self._watched: dict[Key, float] = {}
        """Connections whose deadline is among the timers."""
        self._timers = Timers()
        self._actions: list[Action] = []
        self._next_seed = 0
        self._wanted: dict[str, bool] = {}
        """Topics to ask for, and whether asking may create them."""
        self._waiting: list[tuple[Outcome[Topic], str, float]] = []
        self._metadata_due: Timer | None = None
        self._metadata_asked = False
        self._metadata_failures = 0
        self._troubles: dict[str, str] = {}
        """Per address, why it could not be used; cleared by success."""
        self.observers: list[Callable[[float], None]] = []
        """Called after every update of the metadata."""
        self._closers: dict[Callable[[OttlaError], None], None] = {}

    # -- the driver's side -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Action]:
        """Run what is due and return what the driver is to do."""
        while True:
            if call := self._timers.due(now):
                call(now)
            elif self._busy:
                key = next(iter(self._busy))
                del self._busy[key]
                self._actions += self._connections[key].poll(now)
                self._watch(key)
            else:
                break
        actions, self._actions = self._actions, []
        return actions

    def handle(self, event: Event, now: float) -> None:
        connection = self._connections.get(event.key)
        if connection is None:
            return
        match event:
            case Connected():
                self._actions += connection.connected(now)
            case Received(data=data):
                self._actions += connection.received(data, now)
            case Lost(why=why):
                connection.lost(why, now)
        self._busy[event.key] = None

    @property
    def deadline(self) -> float | None:
        """When to poll next if nothing happens; ``None``: only when something does."""
        return self._timers.next

    def close(self, now: float, error: OttlaError | None = None) -> None:
        """Fail everything that waits. The driver closes the sockets."""
        if self.closed:
            return
        self.closed = error or Closed("the client is closed")
        for connection in self._connections.values():
            connection.lost("the client is closed", now)
        for closer in list(self._closers):
            closer(self.closed)
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

    def soon(self, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` within the next `poll`."""
        return self.later(-math.inf, call)

    def backoff(self, failures: int) -> float:
        """Seconds before the next attempt: doubling from 0.1 to 1, give or take a fifth."""
        return float(min(0.1 * 2 ** min(failures, 10), 1.0) * self.rng.uniform(0.8, 1.2))

    def submit(self, node: Node, exchange: Exchange, now: float, channel: str = DATA) -> None:
        """Send a request to ``node``."""
        if self.closed:
            exchange.ended(self.closed, now)
            return
        key = (node.id, channel)
        connection = self._connections.get(key)
        if connection is None or (connection.node != node and connection.state is State.DOWN):
            timing = Timing(connect_timeout=self.options.connect_timeout)
            connection = self._connections[key] = Connection(key, node, self.options.client_id, timing)
        connection.submit(exchange)
        self._busy[key] = None

    def any_node(self) -> Node:
        """A node to ask what any broker can answer: one that works, else the next in turn."""
        ready = [each for each in self._connections.values() if each.state is State.READY and each.key[1] == DATA]
        if ready:
            return min(ready, key=lambda each: (each.load, each.key)).node
        candidates = [*self.cluster.nodes.values(), *self._seeds]
        self._next_seed += 1
        return candidates[(self._next_seed - 1) % len(candidates)]

    def controller(self) -> Node:
        return self.cluster.nodes.get(self.cluster.controller_id) or self.any_node()

    def trouble(self, node: Node) -> str:
        """Why the node cannot be reached at the moment; empty where it can, or nobody tried."""
        return next((c.trouble for c in self._connections.values() if c.node == node and c.trouble), "")

    def unreachable(self, what: str, seconds: float) -> BrokerUnreachable:
        """The error for "nobody answered": each address and what it said."""
        tried = "; ".join(f"{where}: {why}" for where, why in self._troubles.items())
        tried = tried or "; ".join(f"{node.host}:{node.port}: no answer yet" for node in self._seeds)
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
        self._wanted[name] = self._wanted.get(name, False) or create
        if known and not fresh:
            outcome.succeed(known)
        elif self.closed:
            outcome.fail(self.closed)
        else:
            self.fail_on_close(outcome)
            timeout = self.options.api_timeout
            self._waiting.append((outcome, name, now + min(UNKNOWN_TOPIC_GRACE, timeout / 2)))
            late = self.later(now + timeout, lambda now: outcome.fail(self._why_no_topic(name)))
            outcome.when_done(late.cancel)
            self.refresh(now)
        return outcome

    def _why_no_topic(self, name: str) -> OttlaError:
        code = self.cluster.errors.get(name)
        if code is not None and not self._troubles:
            return broker_error(code, f"topic {name!r}")
        return self.unreachable(f"topic {name!r}", self.options.api_timeout)

    def forget(self, topics: Iterable[str]) -> None:
        """Ask for these topics no more."""
        for name in topics:
            self._wanted.pop(name, None)
            self.cluster.topics.pop(name, None)

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
        if self._metadata_asked or self.closed:
            return
        self._metadata_asked = True
        node = self.any_node()
        create = any(may and name not in self.cluster.topics for name, may in self._wanted.items())
        # One request creates all of its topics or none, so one that may create asks only for those that may be created.
        names = [name for name, may in self._wanted.items() if may or not create]
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=create
        )

        def ended(answer: MetadataResponse | OttlaError, now: float) -> None:
            self._metadata_asked = False
            if self.closed:
                return
            if isinstance(answer, OttlaError):
                self._failed(node, answer, now)
            else:
                self._learn(answer, names, now)

        timeout = min(self.options.request_timeout, self.options.connect_timeout)
        self.submit(node, Exchange(request, ended, now + timeout), now)

    def _failed(self, node: Node, error: OttlaError, now: float) -> None:
        where = f"{node.host}:{node.port}"
        self._troubles[where] = str(error).removeprefix(where).lstrip(": ")
        self._metadata_failures += 1
        log.info("metadata could not be had", extra={"node": where, "why": str(error)})
        # The next address is tried at once; only a whole round of failures earns a pause.
        round_trip = len(self._seeds) + len(self.cluster.nodes)
        rounds = self._metadata_failures // max(round_trip, 1)
        self.refresh(now, self.backoff(rounds) if self._metadata_failures % max(round_trip, 1) == 0 else 0.0)

    def _learn(self, answer: MetadataResponse, asked: list[str], now: float) -> None:
        self._metadata_failures = 0
        self._troubles.clear()
        self.cluster.update(answer)
        answered = {each.name for each in answer.topics}
        for name in asked:
            if name not in answered:
                self.cluster.topics.pop(name, None)
                self.cluster.errors[name] = UnknownTopicOrPartition.code
        still = []
        for outcome, name, grace in self._waiting:
            if outcome.done:
                continue
            if topic := self.cluster.topics.get(name):
                outcome.succeed(topic)
                continue
            error = broker_error(self.cluster.errors.get(name, UnknownTopicOrPartition.code), f"topic {name!r}")
            if error.retriable and (now < grace or not isinstance(error, UnknownTopicOrPartition)):
                still.append((outcome, name, grace))
            else:
                self._wanted.pop(name, None)
                outcome.fail(error)
        self._waiting = still
        for observer in list(self.observers):
            observer(now)
        self.refresh(now, 0.1 if still else METADATA_MAX_AGE)

    def _watch(self, key: Key) -> None:
        """Have the connection polled at its deadline; an earlier poll that is due anyway will look again."""
        due = self._connections[key].deadline
        if due is None or due >= self._watched.get(key, math.inf):
            return
        self._watched[key] = due
        self.later(due, lambda now: self._wake(key, due))

    def _wake(self, key: Key, due: float) -> None:
        if self._watched.get(key) == due:
            del self._watched[key]
        self._busy[key] = None
