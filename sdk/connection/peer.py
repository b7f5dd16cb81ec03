"""Facts that all connections to one node share: whether it can be reached, its API versions, its traffic metrics.

Rules:
- After a failure no connection is tried before `retry_at`: 50 ms that double up to a second, with a jitter of 20
  percent, so that clients that lost the same broker do not reconnect at the same moment. A ready connection resets it.
- The setup timeout of a connection doubles with each attempt that exceeded it (KIP-601).
- A node that has a new address is tried there at once.

Source: ClusterConnectionStates.java; the metrics' names: SelectorMetrics in Selector.java, and Sender.java.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.sdk.connection.credentials import Credentials
from ottla.sdk.connection.handshake import Features
from ottla.sdk.connection.versions import Range, agreed, throttles_clients
from ottla.sdk.events import Node
from ottla.sdk.logs import logger
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

    from ottla.tls import TlsConnection

log = logger("ottla.sdk.connection")

SETUP_MAX = 3.0
"""The setup timeout grows up to so many times `connect_timeout`."""
REFUSAL_INTERVAL = 60.0
"""Seconds between two log lines about refusals of a client that was accepted before."""
_JITTER = 0.2
_RENEWAL = (0.8, 0.9)


class Traffic:
    """The metrics of one node, under Kafka's names."""

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
        self._metrics = metrics

    def remove(self) -> None:
        """Remove the metrics: the node is gone."""
        handles = [each for name, each in vars(self).items() if name != "_metrics"]
        self._metrics.remove(*handles)


class Peer:
    """One node, as its connections see it; calls ``on_failure(now)`` when a connection to it broke."""

    def __init__(
        self,
        node: Node,
        options: Options,
        metrics: Metrics,
        rng: "Random",
        credentials: Credentials,
        on_failure: Callable[[float], None] = lambda now: None,
    ) -> None:
        self.node = node
        self.credentials = credentials
        self.options = options
        self.traffic = Traffic(metrics, node.id)
        self.versions: Mapping[int, Range] | None = None
        """Per API key, the lowest and the highest version; ``None`` until the node has sent them."""
        self.features = Features()
        """The cluster's features, as the node reported them last."""
        self._chosen: dict[tuple[type, Range | None], int] = {}
        """The highest version that both sides speak, per request and wanted range."""
        self.throttles_clients = False
        """It answers a client that is over its quota at once, and expects it to pause."""
        self.failures = 0
        """Failed attempts and connections since the last success."""
        self.trouble = ""
        """Why the last one failed; empty if there is no failure."""
        self.since = math.nan
        """When the first of these failures happened."""
        self.retry_at = -math.inf
        self.answered_at = -math.inf
        """When it last answered."""
        self._refused_at = -math.inf
        """When it refused this client after having accepted it."""
        self._stale = ""
        """Why changed certificates could not be loaded, at the last check."""
        self._rng, self._on_failure = rng, on_failure
        self._late = 0

    @property
    def setup_timeout(self) -> float:
        """Seconds for the next attempt to connect."""
        return self.options.connect_timeout * min(2.0**self._late, SETUP_MAX)

    @property
    def connects_at(self) -> float:
        """When the next attempt to connect is due: never, while a token is missing."""
        return math.inf if self.credentials.missing and not self.credentials.denied else self.retry_at

    def renewal(self) -> float:
        """The part of a session after which to renew it; random, so that not all connections renew at once."""
        return self._rng.uniform(*_RENEWAL)

    def secured(self) -> "TlsConnection | None":
        """The client's side of TLS for a new connection; ``None`` without TLS."""
        tls = self.options.tls
        if tls is None:
            return None
        secured = tls.connection(self.node.host)
        if tls.stale != self._stale:
            self._stale = tls.stale
            if self._stale:
                log.warning("new TLS files cannot be loaded, keeping the previous ones", extra={"why": self._stale})
        return secured

    def version(self, request: type, wanted: Range | None, where: str) -> int:
        """The highest version of a request that both sides speak, of those ``wanted``.

        Raises:
            UnsupportedVersion: there is none.
        """
        version = self._chosen.get((request, wanted))
        if version is None:
            version = self._chosen[request, wanted] = agreed(request, wanted, self.versions or {}, where)
        return version

    def works(self, versions: Mapping[int, Range], features: Features) -> None:
        """A connection is ready."""
        if features.epoch >= self.features.epoch:
            self.features = features
        if versions != self.versions:
            self.versions = versions
            self._chosen.clear()
            self.throttles_clients = throttles_clients(versions)
        self.failures, self._late, self.trouble, self.since, self.retry_at = 0, 0, "", math.nan, -math.inf

    def answered(self, took: float, now: float) -> None:
        """It has answered a request of any connection, ``took`` seconds after it was sent: so it works."""
        self.answered_at = now
        self.traffic.latency.record(took, now)

    def silent_since(self, when: float) -> float:
        """Since when it has answered no request, if one of its connections has trouble since ``when``.

        If another connection gets answers, the node works, and only this one has trouble.
        """
        return max(when, self.answered_at)

    def failed(self, why: str, now: float, *, late: bool = False) -> None:
        """A connection or an attempt failed; ``late``: because it exceeded the setup timeout."""
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

    def refused(self, now: float) -> bool:
        """Take note of a refusal; returns whether to log it. The first connection's refusal is raised to the caller."""
        news = self.versions is not None and now >= self._refused_at + REFUSAL_INTERVAL
        if news:
            self._refused_at = now
        return news

    def moved(self, node: Node) -> bool:
        """Adopt the address of ``node``; returns whether it changed."""
        other = (node.host, node.port) != (self.node.host, self.node.port)
        self.node = node
        if other:  # connections to the old address may live on, with the known versions
            self.failures, self._late, self.trouble, self.since, self.retry_at = 0, 0, "", math.nan, -math.inf
        return other

    def attempts(self, now: float) -> str:
        """The failed attempts, for a message; empty if there are none."""
        if not self.trouble:
            return ""
        tried = f"{self.failures} attempts" if self.failures > 1 else "1 attempt"
        return f"{tried} in {max(now - self.since, 0.0):.1f} s, last error: {self.trouble}"
