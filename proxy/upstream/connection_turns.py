"""Bounds the connections of producers to upstream, and lets the producers of a host take turns.

A client may have any number of producer ids, and each of them has its own connections. Without a bound, one client
could take the descriptors of the proxy, and the connections that brokers accept.

Rules:
- All producers together have at most ``most`` connections open. A host opens one only while it has fewer than a third
  of those that are left. So it never has more than a quarter of all, and one host cannot lock out the others.
- Beyond that, a producer takes the place of a connection of its host whose turn is over: it carries nothing, or it has
  carried requests, and all are answered. A host without any takes such a place from the host that has most.
- If there is no such place, the producer waits. The first that waits is the next. While producers of its host wait, a
  connection sends no more than one round of requests.
- A connection counts for the host of the client for which it was opened.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.proxy.upstream.producer import ProducerConnection

_OF_THE_REST = 3
"""A host may have one part in so many of the connections that are left."""

_Connections = dict["ProducerConnection", None]


class ConnectionTurns:
    """Says which connection may be opened, and which one has to be closed for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0
        """How many connections are open, or being opened."""
        self._open: dict[str, _Connections] = {}
        """Host -> its open connections, the least recently used first."""
        self._waiting: dict[str, _Connections] = {}
        """Host -> its connections that wait to be opened, in their order."""
        self._host_of: dict[ProducerConnection, str] = {}
        """The host of each connection that is open or waits; that of its producer may be another one by now."""

    # -- waiting

    @property
    def waiting(self) -> int:
        """How many connections wait to be opened."""
        return sum(map(len, self._waiting.values()))

    def most_waiting(self) -> tuple[str, int, int]:
        """The host with most waiting connections, how many these are, and how many it has open; only if any wait."""
        host, waiting = max(self._waiting.items(), key=lambda each: len(each[1]))
        return host, len(waiting), len(self._open.get(host, ()))

    def all_next(self) -> list["ProducerConnection"]:
        """The connection of each host that is the next to be opened."""
        return [next(iter(each)) for each in self._waiting.values()]

    def next_after(self, host: str) -> list["ProducerConnection"]:
        """The next connections to try after one of this host was closed: of this host, and of another one in turn."""
        found = {host: self._waiting[host]} if host in self._waiting else {}
        if other := next(iter(self._waiting), None):
            found[other] = self._waiting[other] = self._waiting.pop(other)
        return [next(iter(each)) for each in found.values()]

    def is_awaited(self, connection: "ProducerConnection") -> bool:
        """Whether others of its host wait while this connection is open."""
        return self._host_of.get(connection) in self._waiting

    def wait(self, connection: "ProducerConnection") -> None:
        """Put a connection at the end of those of its host that wait, unless it waits already."""
        if connection not in self._host_of:
            self._host_of[connection] = host = connection.producer.host
            self._waiting.setdefault(host, {})[connection] = None

    def leave(self, connection: "ProducerConnection") -> str | None:
        """Take away a connection that waits; returns its host, ``None`` if it did not wait."""
        host = self._host_of.get(connection)
        if host is None or connection not in self._waiting.get(host, ()):
            return None
        del self._host_of[connection], self._waiting[host][connection]
        if not self._waiting[host]:
            del self._waiting[host]
        return host

    # -- opening

    def is_next(self, connection: "ProducerConnection") -> bool:
        """Whether no other connection of its host has to be opened first."""
        waiting = self._waiting.get(self._host(connection), {})
        return next(iter(waiting), connection) is connection

    def has_room(self, connection: "ProducerConnection") -> bool:
        """Whether a connection may be opened beside the others."""
        return len(self._open.get(self._host(connection), ())) * _OF_THE_REST < self._most - self.open

    def unused(self, connection: "ProducerConnection") -> "ProducerConnection | None":
        """A connection whose turn is over, to be closed for this one; ``None`` if there is none."""
        own = self._open.get(self._host(connection))
        if own is None and self._open:
            own = max(self._open.values(), key=len)
        return next((each for each in own or () if each.turn_is_over), None)

    def opened(self, connection: "ProducerConnection") -> None:
        """Count a connection that is being opened."""
        self.leave(connection)
        self.closed(connection)
        self._host_of[connection] = host = connection.producer.host
        self._open.setdefault(host, {})[connection] = None
        self.open += 1

    def used(self, connection: "ProducerConnection") -> None:
        """Note that a connection gets something to send."""
        own = self._open.get(self._host(connection), {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def closed(self, connection: "ProducerConnection") -> str | None:
        """Count a connection no more; returns its host, ``None`` if it was not open."""
        host = self._host_of.get(connection)
        if host is None or connection not in self._open.get(host, ()):
            return None
        del self._host_of[connection], self._open[host][connection]
        if not self._open[host]:
            del self._open[host]
        self.open -= 1
        return host

    def _host(self, connection: "ProducerConnection") -> str:
        return self._host_of.get(connection, connection.producer.host)
