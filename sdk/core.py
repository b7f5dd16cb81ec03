"""The whole client as one state machine; producer, fetcher, members and calls attach to it.

    poll(now)            returns the actions to carry out: `Connect`, `Send`, `Finish`, `Close`, `RunInThread`, `Run`
    handle(event, now)   takes an event: `Connected`, `Written`, `Received`, `Filled`, `Lost`, `Found`, `TokenFetched`
    deadline             when to poll next, if no event comes before

It is composed of

    timers        calls that are due at a time
    connections   the connections to nodes, without their sockets
    metadata      fetches what `cluster` holds: nodes, topics, leaders
    coordinators  which node coordinates a group, or a transactional id
    outages       logs brokers that are needed and not available
    metrics       by Kafka's names

Rules:
- A driver polls after every `handle`, after every call of a user, and at the deadline.
- The cost of `poll` does not grow with idle parts: it has a heap of timers, and the connections that have work.
- One step at a time: any code that touches the core, or a part of it, does so inside its gate (`ottla.sdk.gate`).
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.errors import Closed, OttlaError
from ottla.sdk.cluster.cluster import Cluster
from ottla.sdk.cluster.coordinators import Coordinators, Kind
from ottla.sdk.cluster.metadata import Metadata
from ottla.sdk.cluster.nodes import Nodes
from ottla.sdk.connection.connections import Connections
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.outages import Outages, Trouble
from ottla.sdk.events import GENERAL, Action, Event, Found, Key, Node, Run, RunInThread, RunMode, TokenFetched
from ottla.sdk.gate import Gate
from ottla.sdk.logs import logger
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options, parse_bootstrap
from ottla.sdk.outcome import Outcome, all_of, any_of
from ottla.sdk.steps import Shielded, Steps, Wait
from ottla.sdk.timers import Timer, Timers

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

T = TypeVar("T")

log = logger("ottla.sdk")


LEAVE_TIMEOUT = 0.75
"""Seconds for members to leave their groups when the client closes before its consumers."""
FINISH_TIMEOUT = 5.0
"""Seconds for brokers to close connections on which nothing more is sent."""
_SLOW_CALLBACK = 1.0
"""Seconds for which a callback runs before `explain` names it."""
_NAMED = 3
"""Addresses that a log line names."""


class Explains(Protocol):
    """A part that can wait, and says what for."""

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people: which partition, which node, since when, why, what was tried. None if all is well."""
        ...

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Work that cannot go on without these nodes (``None``: without any), as counts by unit."""
        ...


class Calling(NamedTuple):
    """A thread that calls callbacks."""

    thread: str
    since: float
    """When it began with the present batch's."""
    where: str
    """The innermost lines of its code."""

    def explain(self, now: float) -> str:
        return f"one that thread {self.thread!r} has been calling for {now - self.since:.1f} s ({self.where})"


class ClientCore:
    """The client as a state machine; see the module.

    Args:
        addresses: the bootstrap ``(host, port)`` pairs, at least one.
        find: looks for more addresses (zeroconf); may block.
    """

    def __init__(
        self,
        addresses: Iterable[tuple[str, int]],
        options: Options,
        rng: "Random",
        *,
        find: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.options = options
        self.rng = rng
        self.closed: OttlaError | None = None
        self._actions: list[Action] = []
        self.gate = Gate(self.run)
        self.threaded = False
        """The driver has a thread of its own, and callbacks run in other threads."""
        self.calling: Callable[[], Calling | None] = lambda: None
        """Returns which thread calls callbacks now; ``None``: none does, or they run within the driver."""
        self.come_back: Callable[[Callable[[], object]], object] = lambda call: call()
        """Lets a `Run`, which may be in another thread than the driver, call into the core."""
        self.now = 0.0
        """The time of the current step."""
        self.timers = Timers()
        self.metrics = Metrics(options.client_id)
        self.cluster = Cluster()
        self._nodes = Nodes(addresses, self.cluster, rng)
        self._find = find
        self.metadata = Metadata(self, self.cluster, self._nodes, findable=find is not None)
        self.connections = Connections(options, self.metrics, rng, self.timers, self._actions, self.metadata.suspect)
        self.coordinators = Coordinators(self)
        self.transaction_coordinators = Coordinators(self, Kind.TRANSACTIONAL_ID)
        self._outages = Outages(self, max(options.retry_backoff_max, options.reconnect_backoff_max))
        self.parts: dict[Explains, None] = {}
        """Parts that `explain` asks, in this order: a part adds itself, and removes itself when it closes."""
        self.members: dict[Callable[[str, float, float], Outcome[None]], None] = {}
        """For each consumer with a group, the function that makes it commit, and leave the group for good."""
        self._closers: dict[Callable[[OttlaError], None], None] = {}
        self._numbered = 0
        self.metrics.gauge("metadata-age", lambda now: now - self.metadata.all_updated_at)

    # -- the driver's side -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Action]:
        """Run the calls that are due, and return the actions for the driver."""
        with self.gate:
            self.now = now
            while True:
                if call := self.timers.due(now):
                    call(now)
                elif self.connections.busy:
                    self.connections.poll(now)
                else:
                    break
        actions = self._actions[:]
        self._actions.clear()
        return actions

    def handle(self, event: Event, now: float) -> None:
        """Take note of an event."""
        with self.gate:
            self.now = now
            if isinstance(event, Found):
                self.metadata.found(event, now)
            elif isinstance(event, TokenFetched):
                self.connections.credentials.fetched(event, now)
            else:
                self.connections.handle(event, now)

    def resume(self, steps: Steps[T], now: float, *, sent: object = None, raised: BaseException | None = None) -> Wait:
        """Let a user's call take its next step, and return its next wait.

        Args:
            sent: the value of its last ``yield``.
            raised: an exception to raise at that ``yield`` instead.

        Raises:
            StopIteration: the call has ended; ``value`` is its result.
            BaseException: the call failed, perhaps with ``raised``.
        """
        with self.gate:
            self.now = now
            return steps.send(sent) if raised is None else steps.throw(raised)

    def call(self, call: Callable[[], T], now: float) -> T:
        """Make a user's call that waits for nothing."""
        with self.gate:
            self.now = now
            return call()

    def run_in_thread(
        self, post: Callable[[Callable[[], object]], object], calling: Callable[[], Calling | None]
    ) -> None:
        """Take note that the driver has a thread of its own, and runs callbacks in others.

        Args:
            post: lets a callback call into the core.
            calling: returns which thread calls callbacks now.
        """
        self.threaded, self.come_back, self.calling = True, post, calling

    def room(self, key: Key) -> memoryview | None:
        """The rest of a large response, into which the driver may receive; it reports that with `Filled`."""
        return self.connections.room(key)

    @property
    def deadline(self) -> float | None:
        """When to poll next, if no event comes before; ``None``: only after an event or a call."""
        return -math.inf if self._actions or self.connections.busy else self.timers.next

    def leave_groups(self) -> Steps[None]:
        """Before the client closes: consumers that are still open commit and leave their groups, within a moment."""
        if self.closed or not self.members:
            return
        log.warning("client closed before its consumers", extra={"consumers": len(self.members)})
        until = self.now + LEAVE_TIMEOUT
        left = all_of([leave("the client was closed", self.now, until) for leave in list(self.members)])
        left.when_done(self.later(until, lambda now: left.cancel()).cancel)
        yield Shielded(left)

    def close(self, now: float, error: OttlaError | None = None) -> None:
        """Fail all calls that wait. The driver closes the sockets."""
        if self.closed:
            return
        self.closed = error or Closed("the client is closed")
        bugs: list[Exception] = []
        for closer in list(self._closers):
            try:
                closer(self.closed)
            except Exception as bug:  # other waiters still have to be failed
                bugs.append(bug)
        self.connections.close(now)
        self.timers.clear()
        if bugs:
            raise bugs[0]

    # -- the parts' side: time ---------------------------------------------------------------------------------------

    def later(self, when: float, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` at ``when``."""
        return self.timers.add(when, call)

    def run(self, call: Callable[[], object], mode: RunMode = RunMode.HERE, *, resumable: bool = False) -> None:
        """Have the driver call ``call()`` outside of the gate, once this step has ended (`Run`)."""
        self._actions.append(Run(call, mode, resumable))

    def soon(self, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` within the next `poll`."""
        return self.timers.add(-math.inf, call)

    def at(self, when: float) -> Outcome[None]:
        """Settled at the time ``when``. If the caller settles it earlier, the timer is cancelled."""
        over: Outcome[None] = Outcome()
        over.when_done(self.later(when, lambda now: over.succeed(None)).cancel)
        return over

    def bounded(self, outcome: Outcome[Any], until: float) -> Outcome[None]:
        """Settled once ``outcome`` is, with or without error, and at the time ``until`` at the latest."""
        over = self.at(until)
        first = any_of((outcome, over))
        first.when_done(lambda: over.succeed(None))
        return first

    def drop(self, steps: Steps[Any], now: float) -> None:
        """End a user's call that no driver resumes any more; it may clean up, but cannot wait."""
        with self.gate:
            self.now = now
            steps.close()

    def backoff(self, failures: int) -> float:
        """Seconds before the next attempt: doubles from `retry_backoff` to its maximum, with a jitter of 20 percent."""
        pause = self.options.retry_backoff * 2.0 ** min(failures, 16)
        return float(min(pause, self.options.retry_backoff_max) * self.rng.uniform(0.8, 1.2))

    def on_close(self, call: Callable[[OttlaError], None]) -> Callable[[], None]:
        """Call ``call(error)`` when the client closes; returns a function that cancels this."""
        self._closers[call] = None

        def forget() -> None:
            self._closers.pop(call, None)

        return forget

    def fail_on_close(self, outcome: Outcome[T]) -> None:
        """Fail ``outcome`` when the client closes."""
        outcome.when_done(self.on_close(outcome.fail))

    # -- the parts' side: requests -----------------------------------------------------------------------------------

    def submit(self, node: Node, exchange: Exchange, now: float, channel: str = GENERAL) -> None:
        """Send a request to ``node``, on a connection that no other channel shares."""
        if self.closed:
            exchange.settle(self.closed, now)
            return
        # The caller may have kept the node for a while; the metadata have its current address.
        self.connections.submit(self.cluster.nodes.get(node.id, node), exchange, now, channel)
        self._outages.submitted(node.id, now, background=exchange.background)

    def open_connection(self, node: Node, channel: str, now: float) -> None:
        """Connect to ``node`` in advance, so that the first request need not wait."""
        if not self.closed:
            self.connections.open(self.cluster.nodes.get(node.id, node), now, channel)

    def finish(self, channel: str) -> Outcome[None]:
        """Send nothing more on a channel; settled when the brokers have closed its connections, or on timeout.

        Only that shows that a broker has read requests without a response (acks=0).
        """
        finished = self.connections.finish(channel, self.now)
        finished.when_done(self.later(self.now + FINISH_TIMEOUT, lambda now: finished.succeed(None)).cancel)
        self.fail_on_close(finished)
        return finished

    def retire(self, channel: str) -> None:
        """Close the connections of a channel that is no longer used."""
        self.soon(lambda now: self.connections.retire(channel, now))

    def supports(self, node: Node, request: type) -> range | None:
        """As `Connections.supports`."""
        return self.connections.supports(node.id, request)

    def connected(self, node: Node) -> bool:
        """Whether a request to the node would go out at once, on the ordinary channel."""
        return self.connections.connected(node.id)

    def works(self, node: Node) -> bool:
        """Whether a connection to the node is ready."""
        return self.connections.works(node.id)

    def heard_at(self, node_id: int, channel: str) -> float:
        """As `Connections.heard_at`."""
        return self.connections.heard_at(node_id, channel)

    def muted_until(self, node_id: int, channel: str) -> float:
        """As `Connections.muted_until`."""
        return self.connections.muted_until(node_id, channel)

    def trouble(self, node: Node) -> str:
        """Why the node cannot be reached at the moment; empty if it can, or was not tried."""
        peer = self.connections.peer(node.id)
        return peer.trouble if peer else ""

    def any_node(self) -> Node:
        """A node for requests that any broker can answer: a connected node, else the next in turn."""
        return self.other_node(()) or self._nodes.seeds[0]

    def other_node(self, but: Container[int]) -> Node | None:
        """Like `any_node`, but none of the ids in ``but``: the least loaded node."""
        return self.connections.least_loaded(but) or self._nodes.next(but)

    def usual_cause(self, node: Node) -> str:
        """The usual cause if a node does not answer; empty if there is none."""
        return self.connections.usual_cause(node.id)

    @property
    def missing(self) -> str:
        """Why no connection can be opened; empty if one can."""
        return self.connections.credentials.missing

    def controller(self) -> Node:
        """The node for requests that only the controller can answer."""
        return self.cluster.nodes.get(self.cluster.controller_id) or self.any_node()

    def number(self) -> int:
        """A new number on each call, for names that have to be unique."""
        self._numbered += 1
        return self._numbered

    # -- metadata ----------------------------------------------------------------------------------

    def connect(self, now: float) -> Outcome[None]:
        """Settled once a broker has answered with metadata."""
        return self.metadata.connect(now)

    def nodes_changed(self, now: float) -> None:
        """React to new metadata: nodes may have come, gone, or changed their addresses."""
        self.connections.update(self.cluster.nodes, [each.id for each in self._nodes.seeds], now)

    def give_up(self, node: Node, why: str, now: float, channel: str | None = None) -> None:
        """Close the connections to a node that does not work, or only the one of a channel."""
        self.connections.give_up(node.id, why, now, channel)

    def give_up_all(self, why: str, now: float) -> None:
        """Close all connections."""
        self.connections.give_up_all(why, now)

    def find(self) -> None:
        """Have the driver look for other bootstrap addresses."""
        if self._find:
            self._actions.append(RunInThread(partial(_found, self._find), Found(())))

    # -- outages -----------------------------------------------------------------------------------------------------

    def troubles(self, now: float) -> Mapping[int, Trouble]:
        """As `Connections.troubles`."""
        return self.connections.troubles(now)

    @property
    def without_metadata(self) -> tuple[float, bool]:
        """Since when no broker has answered with metadata (NaN if some do), and whether a call waits for them."""
        return self.metadata.asked_since, self.metadata.waited_for

    def nobody_answers(self) -> str:
        """The addresses that gave no metadata, and why."""
        return self.metadata.tried(_NAMED)

    def all_reported(self, nodes: Container[int]) -> bool:
        """Whether ``nodes`` has all known nodes."""
        return bool(self.cluster.nodes) and all(each in nodes for each in self.cluster.nodes)

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Work of the parts that cannot go on without these nodes (``None``: without any), as counts by unit."""
        whole: Counter[str] = Counter()
        for part in self.parts:
            whole.update(part.waiting(nodes))
        return whole

    # -- for people --------------------------------------------------------------------------------------------------

    def explain(self, now: float) -> Iterator[str]:
        """The client's waits, as lines for people; none if all is well."""
        yield from self.connections.explain(now)
        yield from self.metadata.explain(now)
        for part in list(self.parts):
            yield from part.explain(now)
        if (calling := self.calling()) is not None and now - calling.since > _SLOW_CALLBACK:
            yield f"callbacks wait for {calling.explain(now)}"


def _found(find: Callable[[], Sequence[str]]) -> Found:
    try:
        return Found(tuple(parse_bootstrap(find())))
    except OttlaError:  # no broker is announced now: metadata will ask again
        return Found(())
