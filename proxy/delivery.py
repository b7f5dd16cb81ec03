"""The way of rewritten records to upstream's partitions: exactly once each, in order, or given back in time.

Theory of operation: every producer has a `Stream` for each partition that it sends to, and a lane to each node: a
connection of its own, because a broker serves the requests of a connection one by one. So a partition that is slow
delays the producers that send to it, and nobody else.

Rules:
- A client's producer id goes upstream. A client without one is lent a producer of the proxy's own, which is its alone
  until it leaves and everything of it is settled.
- All is sent with ``acks=-1``.
- Nothing waits for ever: whatever is older than `delivery_timeout` is given back, unless it is in flight, which
  `request_timeout` ends.
"""

import heapq
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.errors import (
    NotEnoughReplicas,
    OttlaError,
    ProducerFenced,
    UnknownServerError,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.proxy.batches import Batch, Part, Result
from ottla.proxy.cluster import NO_LEADER, Cluster
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.control import Control, Identity
from ottla.proxy.link import Link, Links
from ottla.proxy.streams import Settled, Stream, first_parts

log = logging.getLogger("ottla.proxy")

NEWEST_PRODUCE = 12
REQUEST_BYTES = 8 * 2**20
"""A request is not filled beyond this, a single batch apart."""
REQUESTS = 5
"""That a lane has in flight at most."""
BACKOFF, LONGEST_BACKOFF = 0.05, 1.0
IDLE_LANE = 60.0
"""Seconds after which a connection that carries nothing is closed."""
LONG_REST = 600.0
"""Seconds after which upstream may have forgotten a producer (`producer.id.expiration.ms` is a day, as it comes)."""
_LOOK = 1.0
"""Seconds between two looks for what has waited too long."""

Sent = list[tuple[Stream, Batch]]


class Producer:
    """One producer id upstream, and what is sent under it.

    Attributes:
        producer_id: ``None`` where it is the proxy's own, and there is none yet.
        own: it is the proxy's, not a client's.
    """

    __slots__ = ("epoch", "lanes", "own", "producer_id", "streams")

    def __init__(self, producer_id: int | None = None) -> None:
        self.producer_id = producer_id
        self.own = producer_id is None
        self.epoch = 0
        self.streams: dict[tuple[str, int], Stream] = {}
        self.lanes: dict[int, _Lane] = {}

    @property
    def idle(self) -> bool:
        return all(stream.idle for stream in self.streams.values())


class _Lane:
    """A producer's way to one node."""

    __slots__ = ("failures", "idle_since", "in_flight", "link", "node", "not_before", "producer", "ready", "version")

    def __init__(self, producer: Producer, node: int, now: float) -> None:
        self.producer, self.node = producer, node
        self.link: Link | None = None
        self.version = 0
        self.ready: dict[Stream, None] = {}
        self.in_flight = 0
        """Requests."""
        self.not_before = 0.0
        """Nothing goes before: the node was unreachable, or has asked for patience (a quota)."""
        self.failures = 0
        self.idle_since = now


class Delivery:
    """All producers and lanes."""

    def __init__(self, links: Links, cluster: Cluster, control: Control, config: ProxyConfig) -> None:
        self._links, self._cluster, self._control, self._config = links, cluster, control, config
        self._busy: dict[Stream, Producer] = {}
        """Streams that have something to settle."""
        self._lanes: dict[_Lane, None] = {}
        self._pressing: dict[_Lane, None] = {}
        """Those to look at in the next `pump`."""
        self._later: list[tuple[float, int, Callable[[float], None]]] = []
        self._next_look = 0.0
        """When to look next for what has waited too long."""
        self._seen = 0
        """Of `Cluster.changes`."""
        self._numbers = count()
        self._lent: dict[int, Producer] = {}
        """Client -> the proxy's own producer that sends for it."""
        self._free: list[Producer] = []
        self._without_id: list[Producer] = []

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._busy

    @property
    def deadline(self) -> float | None:
        if self._pressing:
            return 0.0
        later = self._later[0][0] if self._later else None
        if not self._lanes and not self._busy:
            return later
        return self._next_look if later is None else min(later, self._next_look)

    # -- producers

    def lent(self, client: int) -> Producer:
        """The producer of the proxy's own that sends what a client has given no producer id."""
        if client not in self._lent:
            idle = next((each for each in self._free if each.idle), None)
            if idle is not None:
                self._free.remove(idle)
            self._lent[client] = idle or Producer()
        return self._lent[client]

    def left(self, client: int) -> None:
        """The client has gone."""
        if producer := self._lent.pop(client, None):
            self._free.append(producer)

    def drop(self, producer: Producer) -> None:
        """Nothing more will be sent by a producer; what is under way still comes to its end."""
        for lane in list(producer.lanes.values()):
            if not lane.in_flight and not lane.ready:
                self._close(lane)

    # -- in

    def put(self, producer: Producer, topic: str, part: Part, now: float) -> None:
        """Deliver a part behind what the producer sends to its partition already; then tell its sender."""
        stream = producer.streams.get((topic, part.partition))
        if stream is None:
            stream = producer.streams[topic, part.partition] = Stream(topic, part.partition, producer.epoch)
        stream.waiting.append(part)
        self._busy[stream] = producer
        self._steer(producer, stream, now)

    def withdraw(self, producer: Producer, topic: str, partitions: Iterable[int], now: float) -> None:
        """Take back what was not sent yet of clients' batches that are not to be stored any more."""
        for partition in partitions:
            if stream := producer.streams.get((topic, partition)):
                self._settle(stream.withdraw(), now)
                self._go_on(producer, stream, now)

    def pump(self, now: float) -> None:
        """Send what can be sent."""
        while self._later and self._later[0][0] <= now:
            _, _, call = heapq.heappop(self._later)
            call(now)
        if now >= self._next_look:
            self._next_look = now + _LOOK
            self._look_for_the_expired(now)
            self._close_the_idle(now)
        if self._seen != self._cluster.changes:
            self._seen = self._cluster.changes
            for lane in list(self._lanes):
                ready, lane.ready = lane.ready, {}
                for stream in ready:
                    self._steer(lane.producer, stream, now)
        while self._pressing:
            lane = next(iter(self._pressing))
            del self._pressing[lane]
            self._drive_contained(lane, now)

    # -- where a stream goes

    def _steer(self, producer: Producer, stream: Stream, now: float) -> None:
        """To the lane of its leader, or to a later try."""
        try:
            self._steer_to_leader(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: the way for %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _steer_to_leader(self, producer: Producer, stream: Stream, now: float) -> None:
        if not stream.may_send():
            return
        node = self._cluster.leader(stream.topic, stream.partition)
        if node == NO_LEADER or node not in self._cluster.nodes:
            stream.broken = stream.patient = True
            self._try_later(producer, stream, now)
            return
        lane = producer.lanes.get(node)
        if lane is None:
            lane = producer.lanes[node] = _Lane(producer, node, now)
            self._lanes[lane] = None
        lane.ready[stream] = None
        self._pressing[lane] = None

    def _go_on(self, producer: Producer, stream: Stream, now: float) -> None:
        """Something of a stream was answered, or has come to an end."""
        if stream.needs_mending and not stream.in_flight:
            if stream.patient and not stream.idle:
                self._try_later(producer, stream, now)
                return
            self._mend(producer, stream, now)
        if stream.idle:
            self._busy.pop(stream, None)
        elif not stream.needs_mending:
            self._steer(producer, stream, now)

    def _try_later(self, producer: Producer, stream: Stream, now: float) -> None:
        stream.failures = min(stream.failures + 1, 10)
        self._control.want_topics(stream.topic)
        pause = min(BACKOFF * 2 ** (stream.failures - 1), LONGEST_BACKOFF)
        self._call_later(now + pause, partial(self._try_again, producer, stream))

    def _try_again(self, producer: Producer, stream: Stream, now: float) -> None:
        try:
            self._give_back_the_expired(producer, stream, now)
            if stream.needs_mending and not stream.in_flight:
                self._mend(producer, stream, now)
            self._go_on(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _mend(self, producer: Producer, stream: Stream, now: float) -> None:
        epoch = stream.epoch
        self._settle(stream.mend(), now)
        if stream.epoch != epoch:
            log.info(
                "a producer's records are numbered anew",
                extra={"producer_id": producer.producer_id, "partition": f"{stream.topic}-{stream.partition}"},
            )

    def _call_later(self, due: float, call: Callable[[float], None]) -> None:
        heapq.heappush(self._later, (due, next(self._numbers), call))

    def _look_for_the_expired(self, now: float) -> None:
        """Also where nothing is tried: there is no producer id to have, or a node asks for patience."""
        limit = now - self._config.delivery_timeout
        for stream, part in list(first_parts(self._busy)):
            if part.since <= limit or self._cluster.is_gone(stream.topic, stream.partition, now):
                producer = self._busy[stream]
                self._give_back_the_expired(producer, stream, now)
                self._go_on(producer, stream, now)

    def _give_back_the_expired(self, producer: Producer, stream: Stream, now: float) -> None:
        """Give back what has waited too long, or what waits for a partition that is gone."""
        limit = self._config.delivery_timeout
        gone = self._cluster.is_gone(stream.topic, stream.partition, now)
        while not stream.in_flight and (oldest := stream.oldest) and (gone or now >= oldest.since + limit):
            code = UnknownTopicOrPartition.code if gone else stream.last_error
            reason = "the topic has no such partition any more" if gone else f"tried for {limit:g} s"
            doubtful = stream.doubtful and not gone  # what was stored there is gone, too
            said = "say whether it stored it" if doubtful else "take it"
            message = f"{broker_error(code).name}: upstream did not {said} ({reason})"
            self._settle(stream.expire(Result(code, message=message, doubtful=doubtful)), now)

    # -- the lanes

    def _drive_contained(self, lane: _Lane, now: float) -> None:
        try:
            self._drive(lane, now)
        except Exception as bug:
            log.exception("a bug in the proxy, please report it: the way to node %d", lane.node)
            if lane.link is None:
                self._lost(lane, as_ottla_error(bug), now)
            else:
                lane.link.end(as_ottla_error(bug), now)

    def _drive(self, lane: _Lane, now: float) -> None:
        if not lane.ready or lane.in_flight >= REQUESTS:
            return
        if now < lane.not_before:
            self._call_later(lane.not_before, partial(self._press, lane))
            return
        address = self._cluster.nodes[lane.node]
        if lane.link is not None and lane.link.open and lane.link.address != address and not lane.in_flight:
            lane.link.close()  # the node has moved
            lane.link = None
        if lane.link is None or not lane.link.open:
            ready, lost = partial(self._ready, lane), partial(self._lost, lane)
            lane.link = self._links.connect(address, now, ready=ready, lost=lost)
        elif lane.link.ready and self._has_id(lane.producer):
            while lane.ready and lane.in_flight < REQUESTS and self._send(lane, lane.link, now):
                pass

    def _press(self, lane: _Lane, now: float) -> None:
        self._pressing[lane] = None

    def _send(self, lane: _Lane, link: Link, now: float) -> bool:
        """One request with a batch of each stream that is ready; whether there was any."""
        sent: Sent = []
        size = 0
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for stream in list(lane.ready):
            if sent and size >= REQUEST_BYTES:
                break
            if (batch := self._next(lane, stream, now)) is None:
                continue
            size += len(batch.data)
            sent.append((stream, batch))
            if not stream.may_send():
                del lane.ready[stream]
            by_topic.setdefault(stream.topic, []).append(
                PartitionProduceData(index=stream.partition, records=batch.data)
            )
        if not sent:
            return False
        lane.in_flight += 1
        link.ask(
            ProduceRequest(
                acks=-1,
                timeout_ms=int(self._config.request_timeout * 500),
                topic_data=tuple(
                    TopicProduceData(name=topic, partition_data=tuple(data)) for topic, data in by_topic.items()
                ),
            ),
            ProduceResponse,
            lane.version,
            deadline=now + self._config.request_timeout,
            answered=partial(self._answered, lane, sent),
            failed=partial(self._unanswered, lane, sent),
        )
        return True

    def _next(self, lane: _Lane, stream: Stream, now: float) -> Batch | None:
        """The batch of a stream that goes now; ``None`` if it has none, and is not ready any more."""
        producer = lane.producer
        try:
            if stream.exhausted:
                self._give_back_the_rest(producer, stream, now)
            elif stream.may_send() and producer.producer_id is not None:
                if not stream.in_flight and now >= stream.sent_at + LONG_REST:
                    stream.rested()
                stream.sent_at = now
                return stream.next(producer.producer_id, self._config.max_batch)
        except Exception:
            log.exception("a bug in the proxy, please report it: a batch for %s-%d", stream.topic, stream.partition)
            refusal = Result(UnknownServerError.code, message="the proxy cannot make a batch of these records")
            if stream.waiting:
                self._settle([(stream.waiting.popleft(), refusal)], now)
        lane.ready.pop(stream, None)
        return None

    def _ready(self, lane: _Lane, now: float) -> None:
        assert lane.link is not None, "a link that is ready was made"
        lane.version = lane.link.version(ProduceRequest, NEWEST_PRODUCE)
        lane.failures = 0
        self._pressing[lane] = None

    def _lost(self, lane: _Lane, error: OttlaError, now: float) -> None:
        lane.link = None
        lane.not_before = now + min(BACKOFF * 2**lane.failures, LONGEST_BACKOFF)
        if lane.failures == 0 and lane.ready:
            log.warning("records wait for a connection: %s", error, extra={"node": lane.node})
        lane.failures = min(lane.failures + 1, 10)
        ready, lane.ready = lane.ready, {}
        for stream in ready:  # the leader may be another by now
            if stream.may_send():
                stream.broken = stream.patient = True
                if not stream.in_flight:
                    self._try_later(lane.producer, stream, now)

    def _unanswered(self, lane: _Lane, sent: Sent, error: OttlaError, now: float) -> None:
        lane.in_flight -= 1
        log.warning("no answer for records, so they are sent again: %s", error, extra={"node": lane.node})
        for stream, batch in sent:
            if batch.in_flight:  # not judged before this was raised
                stream.unanswered(batch)
                lane.ready.pop(stream, None)
                self._go_on(lane.producer, stream, now)

    def _answered(self, lane: _Lane, sent: Sent, answer: ProduceResponse, now: float) -> None:
        results = {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}
        lane.not_before = max(lane.not_before, now + answer.throttle_time_ms / 1000)
        for stream, batch in sent:
            result = results.get((stream.topic, stream.partition))
            if result is None:
                missing = UnknownServerError.code
                result = PartitionProduceResponse(index=stream.partition, error_code=missing, base_offset=-1)
            self._judge(lane.producer, stream, batch, result, now)
        lane.in_flight -= 1
        lane.idle_since = now
        self._pressing[lane] = None

    # -- outcomes

    def _judge(
        self, producer: Producer, stream: Stream, batch: Batch, answer: PartitionProduceResponse, now: float
    ) -> None:
        """Act on upstream's answer to a batch."""
        self._settle(stream.answered(batch, answer.error_code, answer.base_offset, answer.error_message), now)
        self._go_on(producer, stream, now)

    def _settle(self, settled: Settled, now: float) -> None:
        """Tell clients what became of their records."""
        for part, result in settled:
            with contained("records of a client are settled"):
                part.sender.settled(part, result, now)

    # -- producer ids

    def _has_id(self, producer: Producer) -> bool:
        """Whether there is a producer id; if there is none, one is asked for."""
        if producer.producer_id is None and producer not in self._without_id:
            self._control.want_identity(partial(self._take_id, producer))
            self._without_id.append(producer)
        return producer.producer_id is not None

    def _take_id(self, producer: Producer, identity: Identity, now: float) -> None:
        producer.producer_id, producer.epoch = identity
        for stream in producer.streams.values():
            stream.renewed(producer.epoch)
        for lane in producer.lanes.values():
            self._pressing[lane] = None
        self._without_id.remove(producer)

    def _give_back_the_rest(self, producer: Producer, stream: Stream, now: float) -> None:
        """The stream has had every epoch that there is."""
        if producer.own:
            self._lent = {client: each for client, each in self._lent.items() if each is not producer}
            result = Result(NotEnoughReplicas.code, message="the proxy needs another producer id: send it again")
        else:
            why = "the producer id has had every epoch that there is: open a new producer"
            result = Result(ProducerFenced.code, message=why)
        while stream.waiting:
            self._settle([(stream.waiting.popleft(), result)], now)
        self._busy.pop(stream, None)

    # -- connections

    def _close_the_idle(self, now: float) -> None:
        for lane in list(self._lanes):
            if not lane.in_flight and not lane.ready and now >= lane.idle_since + IDLE_LANE:
                self._close(lane)

    def _close(self, lane: _Lane) -> None:
        if lane.link is not None:
            lane.link.close()
        del self._lanes[lane], lane.producer.lanes[lane.node]
        self._pressing.pop(lane, None)
