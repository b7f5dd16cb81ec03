"""A producer id on upstream, with its streams, its connections and the state of its transaction."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.proxy.events import Address
from ottla.proxy.routing import Destination
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.link import CLIENT_ID, Failed, UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.principals import Principal
from ottla.proxy.upstream.streams import Stream

if TYPE_CHECKING:
    from uuid import UUID

BACKOFF, LONGEST_BACKOFF = 0.05, 1.0
"""Seconds before the next attempt: after the first failure, and at most."""


_LONGEST_CLIENT_ID = 1000


@dataclass(slots=True, eq=False)
class UpstreamTransaction:
    """Tracks the transactions of a transactional producer in one epoch.

    Attributes:
        epoch: the epoch from upstream's transaction coordinator.
        implicit: brokers add partitions to the transaction themselves (``transaction.version`` 2).
        failure: why the open transaction must be aborted.
        aborting: the open transaction is being aborted, and no more of its batches are sent.
        parked: how many of its record sets wait for the metadata of their topic.
        waiting: called once none of its batches is under way.
        number: counts the transactions.
        ending: the last EndTxn sent to upstream; only its response ends the open transaction.
        added: topic -> the partitions added to the open transaction, until its EndTxn is sent to upstream.
    """

    transactional_id: str
    epoch: int
    implicit: bool = False
    failure: PartResult | None = None
    aborting: bool = False
    parked: int = 0
    waiting: list[Callable[[float], None]] = field(default_factory=list)
    number: int = 0
    ending: object = None
    added: dict[str, set[int]] = field(default_factory=dict)

    def fail(self, result: PartResult) -> bool:
        """Have it aborted; returns whether that is new. An unknown outcome replaces other reasons: see `ended`."""
        if self.failure is not None and (self.failure.unknown or not result.unknown):
            return False
        self.failure = result
        return True

    def abort(self, result: PartResult) -> None:
        """Stop sending its batches, because its client aborts it."""
        self.aborting = True
        self.failure = self.failure or result

    def end(self, request: object) -> bool:
        """Take the EndTxn that is sent to upstream; returns whether partitions were removed.

        Records after EndTxn could become part of the next transaction, so all its partitions are removed.
        """
        self.ending = request
        had = bool(self.added)
        self.added.clear()
        return had

    def ended(self, request: object) -> bool:
        """Begin the next transaction, because upstream confirmed EndTxn; false if ``request`` is not the last EndTxn.

        A failure whose outcome is unknown stays: a late batch could join the next transaction of this epoch.
        """
        if self.ending is not request:
            return False
        self.aborting = False
        if self.failure is not None and not self.failure.unknown:
            self.failure = None
        return True

    def add(self, topic: str, partitions: set[int]) -> bool:
        """Add partitions that the coordinator has added; returns whether there are new ones."""
        if partitions <= self.added.get(topic, set()):
            return False
        self.added.setdefault(topic, set()).update(partitions)
        return True

    def written_with(self, *, implicit: bool) -> bool:
        """Take how its client writes to it; returns whether that has changed."""
        changed, self.implicit = self.implicit != implicit, implicit
        return changed

    def park(self) -> None:
        """Count a record set that waits for the metadata of its topic."""
        self.parked += 1

    def unpark(self) -> None:
        """Count a record set that waits no more."""
        self.parked -= 1

    def go_on(self, now: float) -> None:
        """Call everything in `waiting`: none of its batches is under way."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each(now)


class UpstreamProducer:
    """Holds the streams and connections of one producer id.

    Attributes:
        producer_id: ``None`` if it is the proxy's own and not allocated yet.
        principal: the user as whom it sends; ``None``: the proxy's.
        own: it is the proxy's, not a client's.
        epoch: the least epoch of new streams, outside transactions.
        transaction: ``None`` if it is not transactional, or its epoch is unknown.
        connections: node id -> connection.
        client_id: the id of the client that sends with it. Upstream gets it, too: its quotas and metrics are by client
            id. After a restart it is the proxy's own, until the client sends again.
        unawaited: of a lent producer, its client has sent records with ``acks=0``.
        unopened: of a lent producer, the client's batches that wait because a thread is reading them or a batch before
            them.
    """

    __slots__ = (
        "_passed",
        "client_id",
        "connections",
        "epoch",
        "own",
        "principal",
        "producer_id",
        "streams",
        "transaction",
        "unawaited",
        "unopened",
    )

    def __init__(self, producer_id: int | None = None, principal: Principal | None = None) -> None:
        self.producer_id, self.principal = producer_id, principal
        self.own = producer_id is None
        self.epoch = 0
        self._passed: dict[str, int] = {}
        """Topic -> the least epoch of new streams to it."""
        self.transaction: UpstreamTransaction | None = None
        self.streams: dict[Destination, Stream] = {}
        self.connections: dict[int, ProducerConnection] = {}
        self.client_id: str | None = CLIENT_ID
        self.unawaited = False
        self.unopened: deque[Any] = deque()

    @property
    def idle(self) -> bool:
        return not self.unopened and all(stream.idle for stream in self.streams.values())

    @property
    def stopped(self) -> bool:
        """Its transaction is being aborted, so no more of its batches are sent."""
        return self.transaction is not None and self.transaction.aborting

    def begin_epoch(self, transaction: UpstreamTransaction) -> None:
        """Take the state of its transactions in a new epoch."""
        self.transaction = transaction

    def pass_epoch(self, topics: Iterable[str], epoch: int) -> None:
        """Have new streams to these topics use later epochs than this one of its client."""
        for topic in topics:
            self._passed[topic] = max(self._passed.get(topic, 0), epoch + 1)

    def accept(self, batch: Any, *, awaited: bool) -> None:
        """Take a batch of the client to which it is lent."""
        self.unawaited = self.unawaited or not awaited
        self.unopened.append(batch)

    def freed(self) -> None:
        """Prepare it for the next client to which it is lent."""
        self.unawaited = False

    def serve(self, client_id: str | None) -> None:
        """Send for the client with this id from now on; ids that are too long to remember count as the proxy's own."""
        self.client_id = CLIENT_ID if client_id and len(client_id) > _LONGEST_CLIENT_ID else client_id

    def identify(self, producer_id: int, epoch: int) -> None:
        """Take the producer id that upstream has allocated; no batch may be numbered yet."""
        self.producer_id, self.epoch = producer_id, epoch
        for stream in self.streams.values():
            stream.renewed(epoch)

    def stream(self, destination: Destination, topic_id: "UUID") -> Stream:
        """Create the stream for a destination."""
        transactional = self.transaction is not None
        if self.transaction is not None:
            epoch = self.transaction.epoch
        else:
            epoch = max(self.epoch, self._passed.get(destination.topic, 0))
        stream = Stream(*destination, epoch, topic_id, transactional=transactional)
        self.streams[destination] = stream
        return stream


class ProducerConnection:
    """A producer's connection to one broker.

    Attributes:
        link: ``None`` before the first request, and after the link was lost.
        version: the version of Produce.
        ready: streams with batches to send.
        in_flight: how many requests are in flight.
        not_before: when the next request may be sent: the broker was unreachable, or throttles the producer (a quota).
        waits: a timer is set for that time.
        failures: failed connection attempts since the last successful one.
        principal: as whom the link has logged in; ``None``: as the proxy itself.
        idle_since: when the last request ended.
    """

    __slots__ = (
        "failures",
        "idle_since",
        "in_flight",
        "link",
        "node",
        "not_before",
        "principal",
        "producer",
        "ready",
        "version",
        "waits",
    )

    def __init__(self, producer: UpstreamProducer, node: int, now: float) -> None:
        self.producer, self.node = producer, node
        self.link: UpstreamLink | None = None
        self.principal: Principal | None = None
        self.version = 0
        self.ready: dict[Stream, None] = {}
        self.in_flight = 0
        self.not_before = 0.0
        self.waits = False
        self.failures = 0
        self.idle_since = now

    @property
    def idle(self) -> bool:
        return not self.in_flight and not self.ready

    def connect(
        self, links: UpstreamLinks, address: Address, now: float, *, ready: Callable[[float], None], lost: Failed
    ) -> None:
        """Open a link to the broker."""
        self.principal = self.producer.principal
        self.link = links.connect(address, now, ready=ready, lost=lost, principal=self.principal)

    def leave_old(self, address: Address | None) -> None:
        """Close the link if the broker has another address now, or the producer another user.

        Requests in flight keep it open.
        """
        if self.link is None or not self.link.open or self.in_flight:
            return
        if self.is_foreign or address not in (None, self.link.address):
            self.link.close()
            self.link = None

    @property
    def is_foreign(self) -> bool:
        """The link has logged in as a user to whom the producer does not belong any more."""
        return self.link is not None and self.principal is not self.producer.principal

    def connected(self, version: int) -> None:
        """Take the version of Produce: the link is ready."""
        self.version, self.failures = version, 0

    def lost(self, now: float) -> Iterable[Stream]:
        """Wait before the next attempt, because the link was lost; returns the streams that were ready to send."""
        self.link = None
        self.not_before = now + min(BACKOFF * 2**self.failures, LONGEST_BACKOFF)
        self.failures = min(self.failures + 1, 10)
        ready, self.ready = self.ready, {}
        return ready

    def begin_wait(self) -> bool:
        """Wait until `not_before`; false if a timer is set already."""
        begun, self.waits = not self.waits, True
        return begun

    def end_wait(self) -> None:
        """The timer is due."""
        self.waits = False

    def began(self) -> None:
        """Count a request that is sent."""
        self.in_flight += 1

    def ended(self, now: float) -> None:
        """Count a request that was answered, or failed."""
        self.in_flight -= 1
        self.idle_since = now

    def throttle(self, until: float) -> None:
        """Send no request before ``until``, because the broker throttles the producer."""
        self.not_before = max(self.not_before, until)
