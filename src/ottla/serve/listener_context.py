"""The limits and the shared state of a listener's connections."""

import logging
from collections.abc import Hashable, Sized
from dataclasses import dataclass, field

import trio

from ottla.addresses import network_of
from ottla.client_info import ClientInfo
from ottla.codec.frames import MAX_FRAME
from ottla.codec.inbox import Blocks
from ottla.complaints import Complaints
from ottla.serve.access_log import AccessLog
from ottla.serve.established import Established
from ottla.serve.memory import Budget, Memory
from ottla.serve.newcomers import Arrival, Newcomers
from ottla.serve.observer_thread import ObserverThread
from ottla.serve.traffic import ListenerTraffic

log = logging.getLogger("ottla.serve")

_CHUNK = 64 * 2**10


@dataclass(frozen=True, kw_only=True)
class ListenerLimits:
    """Bounds of a listener; bytes and seconds."""

    max_frame: int = MAX_FRAME
    max_connections: int = 2000
    pipeline: int = 64
    """Unanswered requests of one connection above which it is no longer read."""
    unsent: int = 64 * 2**20
    """Bytes of unread answers of one connection above which it is no longer read; the last answer may exceed it."""
    all_unsent: int = 512 * 2**20
    """The same for all connections together: above it, connections with more than an equal share are not read."""
    all_frames: int = 256 * 2**20
    """Bytes of large incomplete requests, all together; one more may exceed it (`ottla.serve.memory`).

    As Kafka's `queued.max.request.bytes`.
    """
    idle: float = 600.0
    """Kafka's `connections.max.idle.ms`."""
    write: float = 30.0
    """How long a peer may read nothing of its answers."""
    handshake: float = 10.0
    """How long a client may take for the TLS handshake and SASL."""
    drain: float = 1.5
    """How long answers may take once the listener closes."""


@dataclass
class ListenerContext:
    """The shared state of a listener's connections."""

    limits: ListenerLimits
    connections: Sized
    """All connections of the listener, to which the listener alone adds and removes."""
    budget: Budget | None = None
    """Bounds requests and answers instead of `ListenerLimits.all_frames` and `all_unsent`."""
    complaints: Complaints = field(default_factory=Complaints)
    chunk: memoryview = field(default_factory=lambda: memoryview(bytearray(_CHUNK)))
    """The receive buffer for small requests, which are copied out of it at once."""
    blocks: Blocks = field(default_factory=Blocks)
    traffic: ListenerTraffic = field(default_factory=ListenerTraffic)
    observers: tuple[ObserverThread, ...] = ()
    """Called for each request when it is answered."""
    access_log: AccessLog | None = None
    """One of them, if it is wanted."""
    frames: Memory = field(init=False)
    newcomers: Newcomers = field(init=False)
    """The connections whose clients have not authenticated yet."""
    established: Established = field(init=False)
    """The others."""
    unsent: int = 0
    """Bytes of answers of all connections that their peers have not read yet."""

    def __post_init__(self) -> None:
        self.frames = Memory(self.limits.all_frames, self.budget)
        limits = self.limits
        self.established = Established(limits.max_connections, self.traffic, self.complain)
        self.newcomers = Newcomers(
            limits.max_connections, limits.handshake, self.traffic, self.complain, self._identified
        )

    def _identified(self, connection: Arrival) -> None:
        self.established.enter(connection)
        connection.identified()

    def observe(self, observer: ObserverThread) -> None:
        """Have an observer called for each request that is answered, until `ignore`."""
        self.observers = (*self.observers, observer)

    def ignore(self, observer: ObserverThread) -> None:
        """Let an observer end behind the requests that it has got."""
        self.observers = tuple(each for each in self.observers if each is not observer)
        observer.end()

    def log_access(self, to: str | None) -> None:
        """Write a line for each request to this file, or to stderr (`line_file.STDERR`); ``None``: to none.

        Raises:
            ConfigurationError: the file cannot be opened; the former access log continues.
        """
        opened = None if to is None else AccessLog(to)
        if self.access_log is not None:
            self.ignore(self.access_log)
        self.access_log = opened
        if opened is not None:
            self.observe(opened)

    def count_unsent(self, connection: Hashable, change: int) -> None:
        """Count bytes of answers: positive when they are given, negative when they are written or dropped."""
        self.unsent += change
        self.count(connection, change)

    def count(self, connection: Hashable, change: int) -> None:
        """Count other bytes, which only the budget bounds."""
        if self.budget is not None:
            self.budget.count(connection, change)

    def is_greedy(self, unsent: int) -> bool:
        """Whether too much is unsent, and ``unsent`` bytes are more than one connection's share."""
        if self.budget is not None:
            return False
        limit = self.limits.all_unsent
        return self.unsent > limit and unsent * len(self.connections) > limit

    def complain(self, text: str, session: ClientInfo, kind: str = "") -> None:
        """Log a complaint about a client, if it is new; see `Complaints`."""
        host = session.peer_host
        if self.complaints.is_new(trio.current_time(), host, text, kind=kind, source=network_of(host)):
            log.warning("%s", text, extra={"peer": session.peer})
