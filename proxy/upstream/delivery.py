"""Delivers rewritten records to upstream's partitions: exactly once and in order, or fails them in time.

Theory of operation: every producer has a `Stream` for each partition that it sends to, and its own connection to each
broker (`ottla.proxy.upstream.connections`). So a slow partition delays only the producers that send to it. `Steering`
leads streams to the connections of their leaders, and `StreamSender` sends the batches of all streams that a
connection has ready.

Rule: a client's producer id is used upstream, too; a client without one is lent a producer
(`ottla.proxy.upstream.lent`).
"""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, OutOfOrderSequenceNumber
from ottla.proxy.config import ProxyConfig
from ottla.proxy.routing import Destination
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.batches import Part, PartOwner, PartResult
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.connections import ProducerConnections
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.lent import USED_UP, Lent
from ottla.proxy.upstream.link import UpstreamLinks
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.settlements import Settlements
from ottla.proxy.upstream.steering import Steering
from ottla.proxy.upstream.stream_sender import StreamSender
from ottla.proxy.upstream.streams import CLIENT_GONE, Stream
from ottla.sdk.timers import Timers

if TYPE_CHECKING:
    from ottla.proxy.journal.journal import Journal

LOST = PartResult(OutOfOrderSequenceNumber.code, message="the outcome of an earlier batch in the same epoch is unknown")
LIMIT_LASTS = 600.0
"""Seconds of rest after which larger batches are tried again: upstream may have raised its limit."""
_TIMERS = 500
"""The most timers that fire in one step; each takes about ten microseconds."""
_LOOK = 1.0
"""Seconds between two checks for expired batches."""


class Delivery:
    """Takes parts for upstream, delivers them, and gives them back if they must not be stored any more.

    Args:
        of_clients: the producer ids of clients, which no lent producer may have.
    """

    def __init__(
        self,
        links: UpstreamLinks,
        cluster: UpstreamCluster,
        control: Control,
        threads: Threads,
        config: ProxyConfig,
        of_clients: Container[int],
        journal: "Journal | None",
    ) -> None:
        self._cluster = cluster
        self._later = Timers()
        self._settlements = Settlements(journal)
        self.lent = Lent(control, of_clients, self._denied)
        self.connections = ProducerConnections(links, cluster, threads, self.lent, self._later, self._stranded)
        self._steering = Steering(
            cluster, control, self.connections, self._settlements, self._later, config.delivery_timeout
        )
        self._sender = StreamSender(self.connections, self._steering, self.lent, threads, self._settlements, config)
        self._next_look = 0.0
        """When to check next for expired batches."""

    def _stranded(self, producer: UpstreamProducer, streams: Iterable[Stream], now: float) -> None:
        self._steering.stranded(producer, streams, now)

    @property
    def idle(self) -> bool:
        """All parts are settled."""
        return not self._steering.busy

    @property
    def deadline(self) -> float | None:
        if self.connections.pressing or self._steering.pressing:
            return 0.0
        later = self._later.next
        if not len(self.connections) and self.idle:
            return later
        return self._next_look if later is None else min(later, self._next_look)

    def pump(self, now: float) -> None:
        """Fire due timers, fail expired batches, steer streams, and send requests."""
        for _ in range(_TIMERS):
            if (call := self._later.due(now)) is None:
                break
            call(now)
        if now >= self._next_look:
            self._next_look = now + _LOOK
            self._steering.fail_the_expired(now)
            self.lent.sweep()
            self.connections.close_the_idle(now)
        self._steering.pump(now)
        self.connections.pump(self._sender.send, now)

    # -- parts

    def put(self, producer: UpstreamProducer, part: Part, now: float) -> None:
        """Deliver a part behind the producer's earlier parts for its destination, and give its sender the outcome."""
        stream = producer.streams.get(part.destination)
        if stream is None:
            known = self._cluster.topics.get(part.destination.topic)  # unknown after a restart, until metadata arrives
            stream = producer.stream(part.destination, known.topic_id if known else NO_UUID)
        elif stream.idle:
            if now >= stream.sent_at + LIMIT_LASTS:
                stream.forget_limit()
            # Otherwise a recreated topic would fail the part as an older one.
            self._steering.is_described(producer, stream, now)
        if stream.lost:
            self._settlements.settle(producer, stream, [(part, LOST)], now)
            return
        waits = bool(stream.waiting)
        stream.waiting.append(part)
        self._settlements.note(producer, stream)
        if not waits:  # otherwise the stream is steered already
            self._steering.begin(producer, stream, now)

    def resume(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Deliver the parts of a stream that was restored from the journal."""
        self._steering.resume(producer, stream, now)

    def withdraw(self, producer: UpstreamProducer, destinations: Iterable[Destination], now: float) -> None:
        """Withdraw the unsent parts of clients' batches that must not be stored, because a batch before them failed."""
        for destination in destinations:
            if stream := producer.streams.get(destination):
                self._settlements.settle(producer, stream, stream.withdraw(), now)
                self._steering.go_on(producer, stream, now)

    def open_records(self, sender: PartOwner, producer: UpstreamProducer, destinations: Iterable[Destination]) -> int:
        """How many records of a client's batch are unsettled; a record counts once for each destination."""
        return sum(stream.open_records(sender) for stream in _streams(producer, destinations))

    def may_store(self, sender: PartOwner, producer: UpstreamProducer, destinations: Iterable[Destination]) -> bool:
        """Whether any unsettled record of a client's batch is in flight, or may be stored."""
        return any(stream.may_store(sender) for stream in _streams(producer, destinations))

    def take_back(
        self,
        sender: PartOwner,
        producer: UpstreamProducer,
        destinations: Iterable[Destination],
        result: PartResult,
        now: float,
    ) -> None:
        """Settle the parts of a client's batch that are surely not stored with ``result``."""
        for stream in _streams(producer, destinations):
            if not stream.may_store(sender):
                self._settlements.settle(producer, stream, stream.take_back(sender, result), now)
                self._steering.gave_back(producer, stream, now)

    def give_back_of_the_gone(self, now: float) -> None:
        """Fail the unsent parts of disconnected clients without producer ids, because the buffer is full.

        Such clients got no answer, so they reconnect and send their records again. While upstream is unavailable that
        would fill the buffer for all others. Records with ``acks=0`` stay: their client expects no answer, and never
        sends them again.
        """
        for producer in self.lent.of_the_gone:
            if not producer.unawaited:
                self._give_back_unsent(producer, CLIENT_GONE, now)

    def _denied(self, producer: UpstreamProducer, error: BrokerError, now: float) -> None:
        self._give_back_unsent(producer, PartResult(error.code, message=error.detail), now)

    def _give_back_unsent(self, producer: UpstreamProducer, result: PartResult, now: float) -> None:
        for stream in list(producer.streams.values()):
            if stream.waiting:
                self._settlements.settle(producer, stream, stream.give_back_unsent(result), now)
                self._steering.go_on(producer, stream, now)

    # -- producers

    def drop(self, producer: UpstreamProducer) -> None:
        """Close the idle connections of a producer that gets no more parts; its unsettled parts are still sent."""
        self.connections.drop(producer)

    def retire_lent(self, producer_id: int, now: float) -> None:
        """Stop lending producers with this id: upstream has given it to a client, so it has lost its data."""
        for producer in self.lent.of_id(producer_id):
            self.lent.use_up(producer)
            self._give_back_unsent(producer, USED_UP, now)

    def stop(self, producer: UpstreamProducer, now: float) -> None:
        """Stop sending a transaction that is being aborted; batches in flight still get their responses."""
        for stream in list(producer.streams.values()):
            if not stream.idle:
                self._steering.go_on(producer, stream, now)

    def renew(self, producer: UpstreamProducer, epoch: int, now: float) -> None:
        """Move a transactional producer to a new epoch."""
        for stream in list(producer.streams.values()):
            self._settlements.settle(producer, stream, stream.overtaken(epoch), now)
            self._steering.rest_if_idle(producer, stream)


def _streams(producer: UpstreamProducer, destinations: Iterable[Destination]) -> list[Stream]:
    """The streams of a producer for these destinations."""
    return [stream for each in destinations if (stream := producer.streams.get(each)) is not None]
