"""Counts the producers of each host that have records under way, and refuses records of too many.

Rules:
- Every producer with records under way has its own connections to upstream (`ottla.proxy.upstream.connections`), and
  one client connection may use any number of producers. So a host may have records of only so many producers under way,
  in proportion to its connections to the proxy, which the listener bounds. Clients send refused records again. No
  producer of another host waits for that.
- A producer is at work for a host while any of the host's batches of it is unsettled, also if the client was answered,
  or has disconnected.
- A connection counts until everything that its client has sent was handled, so records that wait for their turn are
  not refused because their client has left.
- Batches from the journal are of no host: an earlier proxy has accepted them.
"""

from collections import Counter
from collections.abc import Collection

from ottla.errors import NotEnoughReplicas
from ottla.proxy.upstream.producer import UpstreamProducer

AT_LEAST = 100
"""A host may have this many producers at work, however few connections it has: few beside the 500 idle connections that
the proxy keeps anyway."""
OF_A_CONNECTION = 2
"""So many for each connection: a client without idempotence that reconnects gets another producer while records of its
former one may still be under way."""


class ProducersAtWork:
    """Counts connections and producers at work by host. Whatever is not in use takes no memory."""

    def __init__(self) -> None:
        self._host_of: dict[int, str] = {}
        """Client -> its host."""
        self._clients: Counter[str] = Counter()
        """Host -> its connections."""
        self._batches: dict[str, Counter[UpstreamProducer]] = {}
        """Host -> producer -> the unsettled batches that the host has sent with it."""

    def most(self, host: str) -> int:
        """How many producers of a host may be at work."""
        return max(AT_LEAST, OF_A_CONNECTION * self._clients[host])

    # -- connections

    def arrived(self, client: int, host: str) -> None:
        """Count a connection of a host."""
        self._host_of[client] = host
        self._clients[host] += 1

    def left(self, client: int) -> None:
        """Stop counting a connection."""
        if (host := self._host_of.pop(client, None)) is not None:
            self._clients[host] -= 1
            if not self._clients[host]:
                del self._clients[host]

    # -- batches

    def check(self, producer: UpstreamProducer, host: str) -> None:
        """Refuse records of one producer too many.

        Raises:
            NotEnoughReplicas: the host has as many other producers at work as it may.
        """
        others: Collection[UpstreamProducer] = self._batches.get(host, ())
        most = self.most(host)
        if producer not in others and len(others) >= most:
            connections = self._clients[host]
            raise NotEnoughReplicas(
                f"this host has records of {len(others)} producers under way, and may have {most} with {connections} "
                f"connection{'' if connections == 1 else 's'} to the proxy: send the records again later, or use fewer "
                "producers for each connection"
            )

    def begun(self, producer: UpstreamProducer, host: str) -> None:
        """Count an accepted batch of a producer."""
        self._batches.setdefault(host, Counter())[producer] += 1

    def settled(self, producer: UpstreamProducer, host: str) -> None:
        """Stop counting a batch: it is settled."""
        batches = self._batches[host]
        batches[producer] -= 1
        if not batches[producer]:
            del batches[producer]
        if not batches:
            del self._batches[host]
