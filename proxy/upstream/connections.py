"""Producers' connections to nodes: made when something is to be sent, closed when they have carried nothing for long.

Every producer has a connection of its own to each node, because a broker serves the requests of a connection one by
one.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import OttlaError
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.cluster import Cluster
from ottla.proxy.upstream.lent import Lent
from ottla.proxy.upstream.link import Link, Links
from ottla.proxy.upstream.producer import Connection, Producer
from ottla.proxy.upstream.streams import Stream
from ottla.sdk.timers import Timers

log = logging.getLogger("ottla.proxy")

NEWEST_PRODUCE = 13
REQUESTS = 5
"""That a connection has in flight at most."""
BACKOFF, LONGEST_BACKOFF = 0.05, 1.0
IDLE_CONNECTION = 60.0
"""Seconds after which a connection that carries nothing is closed."""
MOST_CONNECTIONS = 500
"""Beyond so many, one that is idle is closed for each that is made: one client may have thousands of producers."""

Send = Callable[[Connection, Link, float], bool]
Stranded = Callable[[Producer, Iterable[Stream], float], None]


class Connections:
    """All connections for records.

    Args:
        later: for what waits for a node.
        send: sends a request over a connection; returns whether there was anything to send.
        stranded: is given the streams of a connection that was lost before they could send.
    """

    def __init__(
        self,
        links: Links,
        cluster: Cluster,
        threads: Threads,
        lent: Lent,
        later: Timers,
        send: Send,
        stranded: Stranded,
    ) -> None:
        self._links, self._cluster, self._threads, self._lent = links, cluster, threads, lent
        self._later, self._send, self._stranded = later, send, stranded
        self._all: dict[Connection, None] = {}
        """The longest unused first."""
        self._pressing: dict[Connection, None] = {}
        """Those to look at in the next `pump`."""
        self._silent: set[int] = set()
        """Nodes that did not answer, or could not be reached, when something was sent last."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def pressing(self) -> bool:
        """There is something to send."""
        return bool(self._pressing)

    def lead(self, producer: Producer, stream: Stream, node: int, now: float) -> None:
        """Have a stream send to a node."""
        connection = producer.connections.get(node)
        if connection is None:
            self._make_room(producer)
            connection = producer.connections[node] = Connection(producer, node, now)
        self._all.pop(connection, None)
        self._all[connection] = None
        connection.ready[stream] = None
        self.press(connection)

    def lead_nobody(self) -> None:
        """Leaders have changed: each stream is to be led to a node again."""
        for connection in self._all:
            connection.ready.clear()

    def press(self, connection: Connection) -> None:
        """Look soon whether there is something to send."""
        self._pressing[connection] = None

    def press_all(self, producer: Producer) -> None:
        """The same for all connections of a producer."""
        self._pressing |= dict.fromkeys(producer.connections.values())

    def drop(self, producer: Producer) -> None:
        """Nothing more will be sent by a producer."""
        for connection in list(producer.connections.values()):
            if connection.idle:
                self._close(connection)

    def pump(self, now: float) -> None:
        """Send what can be sent."""
        while self._pressing and not self._threads.step_is_full:  # the others go on in the next step
            connection = next(iter(self._pressing))
            del self._pressing[connection]
            try:
                self._drive(connection, now)
            except Exception as bug:  # of one producer's records: the other connections go on
                log.exception("a bug in the proxy, please report it: records for node %d", connection.node)
                if connection.link is None:
                    self._lost(connection, as_ottla_error(bug), now)
                else:
                    connection.link.end(as_ottla_error(bug), now)

    def _drive(self, connection: Connection, now: float) -> None:
        if not connection.ready or connection.in_flight >= REQUESTS:
            return
        if now < connection.not_before:
            if not connection.waits:
                connection.waits = True
                self._later.add(connection.not_before, partial(self._has_waited, connection))
            return
        address = self._cluster.nodes[connection.node]
        if (
            connection.link is not None
            and connection.link.open
            and connection.link.address != address
            and not connection.in_flight
        ):
            connection.link.close()  # the node has moved
            connection.link = None
        if connection.link is None or not connection.link.open:
            ready, lost = partial(self._ready, connection), partial(self._lost, connection)
            connection.link = self._links.connect(address, now, ready=ready, lost=lost)
        elif connection.link.ready and self._lent.has_id(connection.producer):
            while connection.ready and connection.in_flight < REQUESTS and self._send(connection, connection.link, now):
                if self._threads.step_is_full:
                    self.press(connection)
                    break

    def _has_waited(self, connection: Connection, now: float) -> None:
        connection.waits = False
        self.press(connection)

    def _ready(self, connection: Connection, now: float) -> None:
        assert connection.link is not None, "a link that is ready was made"
        connection.version = connection.link.version(ProduceRequest, NEWEST_PRODUCE)
        connection.failures = 0
        self.press(connection)

    def _lost(self, connection: Connection, error: OttlaError, now: float) -> None:
        connection.link = None
        connection.not_before = now + min(BACKOFF * 2**connection.failures, LONGEST_BACKOFF)
        if connection.ready:
            self.fell_silent(connection.node, error)
        connection.failures = min(connection.failures + 1, 10)
        ready, connection.ready = connection.ready, {}
        self._stranded(connection.producer, ready, now)

    # -- nodes

    def fell_silent(self, node: int, error: OttlaError) -> None:
        """A node does not answer: say so once, however many producers wait for it."""
        if node not in self._silent:
            self._silent.add(node)
            log.warning("a node does not answer, and records for it wait: %s", error, extra={"node": node})

    def answers(self, node: int) -> None:
        """A node has answered."""
        if node in self._silent:
            self._silent.remove(node)
            log.warning("a node answers again, and takes records", extra={"node": node})

    # -- their number

    def close_the_idle(self, now: float) -> None:
        """Close those that have carried nothing for long."""
        for connection in list(self._all):
            if connection.idle and now >= connection.idle_since + IDLE_CONNECTION:
                self._close(connection)

    def _make_room(self, producer: Producer) -> None:
        """For a connection of a producer."""
        if len(self._all) >= MOST_CONNECTIONS:
            others = (each for each in self._all if each.idle and each.producer is not producer)
            if unused := next(others, None):
                self._close(unused)

    def _close(self, connection: Connection) -> None:
        if connection.link is not None:
            connection.link.close()
        del self._all[connection], connection.producer.connections[connection.node]
        self._pressing.pop(connection, None)
