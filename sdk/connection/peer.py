"""What all connections to one node share: whether it can be reached, which versions it speaks, what it was sent.

Rules:
- After a failure nobody connects before `retry_at`: 50 ms that double up to a second, give or take a fifth, so that
  clients that lost the same broker do not come back at the same moment. A connection that gets to work starts over.
- The time allowed for setting up a connection doubles with each attempt that ran out of it (KIP-601).
- A node that is known under another address now is tried there at once.

Source: ClusterConnectionStates.java; the metrics' names: SelectorMetrics in Selector.java, and Sender.java.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.codec import wire
from ottla.codec.apis.fetch import FetchRequest
from ottla.sdk.events import Node
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options

if TYPE_CHECKING:
    from random import Random  # a machine is given chance, it does not take any

SETUP_MAX = 3.0
"""The time for setting up a connection grows up to so many times `connect_timeout`."""
_JITTER = 0.2
_THROTTLES_CLIENTS = 8
"""Brokers from Kafka 2.0 on, whose Fetch has this version, answer at once and expect the client to wait (KIP-219)."""


class Traffic:
    """The metrics of one node, by Kafka's names."""

    def __init__(self, metrics: Metrics, node_id: int) -> None:
        tag = f"node-{node_id}"
        self.requests = metrics.meter("request", node_id=tag)
        self.responses = metrics.meter("response", node_id=tag)
        self.latency = metrics.timing("request-latency", node_id=tag)
        self.sizes = metrics.spread("request-size", node_id=tag)
        self.sent = metrics.meter("outgoing-byte", node_id=tag)
        self.received = metrics.meter("incoming-byte", node_id=tag)
        self.operations = metrics.meter("network-io", node_id=tag)
        self.in_flight = metrics.gauge("requests-in-flight", node_id=tag)
        self.connections = metrics.gauge("connection-count", node_id=tag)
        self.created = metrics.meter("connection-creation", node_id=tag)
        self.closed = metrics.meter("connection-close", node_id=tag)
        self.throttled = metrics.timing("throttle-time", node_id=tag)
        self.in_flight.set(0)
        self.connections.set(0)


class Peer:
    """One node, as far as connections to it can tell; ``on_failure(now)`` is called when it turns out to be gone."""

    def __init__(
        self,
        node: Node,
        options: Options,
        metrics: Metrics,
        rng: "Random",
        on_failure: Callable[[float], None] = lambda now: None,
    ) -> None:
        self.node = node
        self.options = options
        self.traffic = Traffic(metrics, node.id)
        self.versions: dict[int, tuple[int, int]] | None = None
        """Per API key, the lowest and the highest version; ``None`` until it has said."""
        self.chosen: dict[tuple[type, tuple[int, int] | None], int] = {}
        """What was made of them, per request and the versions that will do."""
        self.failures = 0
        """Attempts and connections that ended badly since it worked last."""
        self.trouble = ""
        """Why the last one did; empty while all is well."""
        self.since = math.nan
        """When the first of them ended."""
        self.retry_at = -math.inf
        self._rng, self._on_failure = rng, on_failure
        self._late = 0

    @property
    def setup_timeout(self) -> float:
        """Seconds for the next attempt to connect."""
        return self.options.connect_timeout * min(2.0**self._late, SETUP_MAX)

    @property
    def throttles_clients(self) -> bool:
        fetch = (self.versions or {}).get(wire.api(FetchRequest).key)
        return fetch is not None and fetch[1] >= _THROTTLES_CLIENTS

    def works(self, versions: dict[int, tuple[int, int]]) -> None:
        """A connection is ready."""
        if versions != self.versions:
            self.versions = versions
            self.chosen.clear()
        self.failures, self._late, self.trouble, self.since, self.retry_at = 0, 0, "", math.nan, -math.inf

    def failed(self, why: str, now: float, *, late: bool = False) -> None:
        """A connection or an attempt ended; ``late``: because its time was up."""
        self.trouble = why
        if not self.failures:
            self.since = now
        self._late = self._late + 1 if late else 0
        if now < self.retry_at:
            return  # the same failure, seen by another connection
        pause = self.options.reconnect_backoff * 2.0 ** min(self.failures, 16)
        pause = min(pause, self.options.reconnect_backoff_max) * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        self.retry_at = now + pause
        self.failures += 1
        self._on_failure(now)

    def moved(self, node: Node) -> bool:
        """Take over what ``node`` says of the address; whether it is another."""
        other = (node.host, node.port) != (self.node.host, self.node.port)
        self.node = node
        if other:
            self.versions = None
            self.failures, self._late, self.trouble, self.since, self.retry_at = 0, 0, "", math.nan, -math.inf
        return other

    def told(self, now: float) -> str:
        """What was tried in vain, for a message; empty while all is well."""
        if not self.trouble:
            return ""
        tried = f"{self.failures} attempts" if self.failures > 1 else "1 attempt"
        return f"{tried} in {max(now - self.since, 0.0):.1f} s, last trouble: {self.trouble}"
