"""Keeps the connections of producers to brokers: opened on demand, closed when they are idle for long.

Every producer has its own connection to each broker, because a broker handles the requests of one connection one after
the other.

Rule: records are sent only as the user to whom their producer belongs. While the proxy has no credentials of this user
(after a restart, or because upstream has refused them), the records wait for its next login, until they expire.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import AuthenticationFailed, OttlaError
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.lent import Lent
from ottla.proxy.upstream.link import UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.producer import ProducerConnection, UpstreamProducer
from ottla.proxy.upstream.streams import Stream
from ottla.sdk.timers import Timers

log = logging.getLogger("ottla.proxy")

NEWEST_PRODUCE = 13
REQUESTS = 5
"""The most requests that a connection has in flight."""
IDLE_CONNECTION = 60.0
"""Seconds after which an idle connection is closed."""
MOST_CONNECTIONS = 500
"""Beyond this, each new connection closes an idle one: one client may have thousands of producers."""

Send = Callable[[ProducerConnection, UpstreamLink, float], bool]
Stranded = Callable[[UpstreamProducer, Iterable[Stream], float], None]


class ProducerConnections:
    """Opens, drives and closes the connections that carry records.

    Args:
        later: timers for connections in backoff.
        stranded: called with the streams that were ready to send on a connection that was lost.
    """

    def __init__(
        self,
        links: UpstreamLinks,
        cluster: UpstreamCluster,
        threads: Threads,
        lent: Lent,
        later: Timers,
        stranded: Stranded,
    ) -> None:
        self._links, self._cluster, self._threads, self._lent = links, cluster, threads, lent
        self._later, self._stranded = later, stranded
        self._all: dict[ProducerConnection, None] = {}
        """The least recently used first."""
        self._pressing: dict[ProducerConnection, None] = {}
        """Connections for the next `pump`."""
        self._silent: set[int] = set()
        """Brokers that did not answer, or were unreachable, at the last attempt."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def pressing(self) -> bool:
        """Whether a connection may have something to send."""
        return bool(self._pressing)

    def lead(self, producer: UpstreamProducer, stream: Stream, node: int, now: float) -> None:
        """Register a stream with the connection to its leader, opening one if there is none."""
        connection = producer.connections.get(node)
        if connection is None:
            self._make_room(producer)
            connection = producer.connections[node] = ProducerConnection(producer, node, now)
        self._all.pop(connection, None)
        self._all[connection] = None
        connection.ready[stream] = None
        self.press(connection)

    def lead_nobody(self) -> None:
        """Unregister all streams, because leaders have changed."""
        for connection in self._all:
            connection.ready.clear()

    def press(self, connection: ProducerConnection) -> None:
        """Check this connection in the next `pump`."""
        self._pressing[connection] = None

    def press_all(self, producer: UpstreamProducer) -> None:
        """Check all connections of a producer in the next `pump`."""
        self._pressing |= dict.fromkeys(producer.connections.values())

    def drop(self, producer: UpstreamProducer) -> None:
        """Close the idle connections of a producer that sends no more."""
        for connection in list(producer.connections.values()):
            if connection.idle:
                self._close(connection)

    def pump(self, send: Send, now: float) -> None:
        """Send on every connection that can, as far as the step's budget goes.

        Args:
            send: sends a request on a connection; returns whether there was anything to send.
        """
        while self._pressing and not self._threads.budget_is_spent:  # the rest waits for the next step
            connection = next(iter(self._pressing))
            del self._pressing[connection]
            try:
                self._drive(connection, send, now)
            except Exception as bug:  # fails this connection only; the others continue
                log.exception("a bug in the proxy, please report it: records for node %d", connection.node)
                if connection.link is None:
                    self._lost(connection, as_ottla_error(bug), now)
                else:
                    connection.link.end(as_ottla_error(bug), now)

    def _drive(self, connection: ProducerConnection, send: Send, now: float) -> None:
        if not connection.ready or connection.in_flight >= REQUESTS:
            return
        if now < connection.not_before:
            if connection.begin_wait():
                self._later.add(connection.not_before, partial(self._has_waited, connection))
            return
        address = self._cluster.nodes.get(connection.node)
        connection.leave_old(address)
        if connection.is_foreign or self._awaits_login(connection, now):
            return
        if connection.link is None or not connection.link.open:
            if address is None:  # upstream does not name the broker any more
                self._stranded(connection.producer, connection.lost(now), now)
                return
            ready, lost = partial(self._ready, connection), partial(self._lost, connection)
            connection.connect(self._links, address, now, ready=ready, lost=lost)
        elif connection.link.ready and self._lent.has_id(connection.producer, self.press_all):
            while connection.ready and connection.in_flight < REQUESTS and send(connection, connection.link, now):
                if self._threads.budget_is_spent:
                    self.press(connection)
                    break

    def _awaits_login(self, connection: ProducerConnection, now: float) -> bool:
        """Whether a connection waits until its user has logged in."""
        principal = connection.producer.principal
        if principal is None or principal.usable(now):
            return False
        if principal.when_usable(connection, partial(self.press, connection)):
            log.warning("records wait until their user logs in again", extra={"principal": principal.name})
        return True

    def _has_waited(self, connection: ProducerConnection, now: float) -> None:
        connection.end_wait()
        self.press(connection)

    def _ready(self, connection: ProducerConnection, now: float) -> None:
        assert connection.link is not None, "only an open link becomes ready"
        connection.connected(connection.link.version(ProduceRequest, NEWEST_PRODUCE))
        self.press(connection)

    def _lost(self, connection: ProducerConnection, error: OttlaError, now: float) -> None:
        ready = connection.lost(now)
        if isinstance(error, AuthenticationFailed) and connection.producer.principal is not None:
            log.warning("upstream refuses the user of records: %s", error)
        elif ready:
            self.fell_silent(connection.node, error)
        self._stranded(connection.producer, ready, now)

    # -- nodes

    def fell_silent(self, node: int, error: OttlaError) -> None:
        """Log that a broker does not answer: once, however many producers wait for it."""
        if node not in self._silent:
            self._silent.add(node)
            log.warning("broker does not answer, its records wait: %s", error, extra={"node": node})

    def answers(self, node: int) -> None:
        """Log that a broker answers again, if the log says that it does not."""
        if node in self._silent:
            self._silent.remove(node)
            log.warning("broker answers again", extra={"node": node})

    # -- closing

    def close_the_idle(self, now: float) -> None:
        """Close connections that have been idle for `IDLE_CONNECTION`."""
        for connection in list(self._all):
            if connection.idle and now >= connection.idle_since + IDLE_CONNECTION:
                self._close(connection)

    def _make_room(self, producer: UpstreamProducer) -> None:
        """Close an idle connection of another producer if there are too many."""
        if len(self._all) >= MOST_CONNECTIONS:
            others = (each for each in self._all if each.idle and each.producer is not producer)
            if unused := next(others, None):
                self._close(unused)

    def _close(self, connection: ProducerConnection) -> None:
        if connection.link is not None:
            connection.link.close()
        del self._all[connection], connection.producer.connections[connection.node]
        self._pressing.pop(connection, None)
