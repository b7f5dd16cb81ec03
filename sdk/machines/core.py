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
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import (
    BrokerUnreachable,
    Closed,
    ConnectionLost,
    OttlaError,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.machines.actions import Action, Close, Connected, Event, Key, Lost, Node, Received
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


@dataclass(slots=True, eq=False)
class Waiting:
    """Somebody waits for a topic to be known."""

    name: str
    create: bool
    outcome: Outcome[Topic]
    until: float | None = None
    """When an unknown topic is no longer taken for one that is being created; set by the first answer about it."""


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
        self._held: dict[str, int] = {}
        """Topics whose metadata are kept fresh, and for how many."""
        self._waiting: list[Waiting] = []
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
                if connection := self._connections.get(key):
                    self._actions += connection.poll(now)
                    self._watch(key, connection)
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
        if connection is None:
            timing = Timing(connect_timeout=self.options.connect_timeout)
            connection = self._connections[key] = Connection(key, node, self.options.client_id, timing)
        elif connection.state is State.DOWN:
            connection.node = node  # which may have another address by now
        connection.submit(exchange)
        self._busy[key] = None

    def retire(self, channel: str) -> None:
        """Close the connections of a channel, which nobody uses any more."""

        def close(now: float) -> None:
            for key in [key for key in self._connections if key[1] == channel]:
                connection = self._connections.pop(key)
                connection.lost("the channel is closed", now)
                self._watched.pop(key, None)
                self._actions.append(Close(key))

        self.soon(close)

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
        if known and not fresh:
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
        """Keep the topic's metadata fresh until what this returns is called."""
        self._held[name] = self._held.get(name, 0) + 1
        released = False

        def release() -> None:
            nonlocal released
            if released:
                return
            released = True
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
                self.forget(name)

        return release

    def forget(self, name: str) -> None:
        """What is known of the topic is out of date: whoever wants it next asks anew."""
        self.cluster.topics.pop(name, None)
        self.cluster.errors.pop(name, None)

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
        self._waiting = [each for each in self._waiting if not each.outcome.done]
        create = any(each.create and each.name not in self.cluster.topics for each in self._waiting)
        # One request creates all of its topics or none, so one that may create asks only for those that may be created.
        wanted = [each.name for each in self._waiting if each.create or not create]
        names = list(dict.fromkeys(wanted if create else [*self._held, *wanted]))
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
        self._waiting = [each for each in self._waiting if not self._judge(each, asked, now)]
        for observer in list(self.observers):
            observer(now)
        self.refresh(now, 0.1 if self._waiting else METADATA_MAX_AGE)

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
