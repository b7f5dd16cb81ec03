"""The way of rewritten records to upstream's partitions: exactly once each, in order, or given back in time.

Theory of operation: every destination partition has a queue of batches. Records of several client batches share an
upstream batch while it waits, so that many small pieces become few requests. Each node has a lane: one connection,
one Produce request in flight, at most one batch for each partition in it (a broker serves one connection's requests
one by one, so a second request would only wait there).

Rules:
- All is sent with ``acks=-1`` under producer ids of the proxy's own, with contiguous sequences per partition.
- A batch whose outcome is unknown is sent again, the same bytes under the same sequence: upstream stores it once.
- A definite refusal does not advance the sequence. Of a shared batch it only means: try its parts one by one.
- If upstream has forgotten the sequence of a batch whose outcome is unknown, or does not tell it within
  `delivery_timeout`, it can never be known: that is what `Result.doubtful` tells. The producer id is then given up for
  that partition, because upstream would take the next batch under the same sequence for this one.
- Nothing waits for ever: whatever is older than `delivery_timeout` is given back, unless it is in flight, which
  `request_timeout` ends.
"""

import heapq
import logging
import math
from collections import deque
from functools import partial
from itertools import count

from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.codec.compression import Compression
from ottla.codec.records import RecordBatch
from ottla.errors import (
    BY_CODE,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidTimestamp,
    LeaderNotAvailable,
    MessageTooLarge,
    NotEnoughReplicas,
    OttlaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    broker_error,
)
from ottla.proxy.batches import Batch, Result, Sender, SomeRecords
from ottla.proxy.cluster import NO_LEADER, Cluster
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.control import Control, Identity
from ottla.proxy.link import Link, Links

log = logging.getLogger("ottla.proxy")

NEWEST_PRODUCE = 12
REQUEST_BYTES = 8 * 2**20
"""A request is not filled beyond this, a single batch apart."""
BACKOFF, LONGEST_BACKOFF = 0.05, 1.0

STORED = frozenset({0, DuplicateSequenceNumber.code})
SEQUENCE_LOST = frozenset(
    each.code
    for each in (
        OutOfOrderSequenceNumber,
        UnknownProducerId,
        InvalidProducerEpoch,
        ProducerFenced,
        InvalidProducerIdMapping,
    )
)
"""Upstream's idea of the proxy's own producer differs from the proxy's."""
SURELY_NOT_STORED = frozenset(each.code for each in (UnknownTopicOrPartition, NotEnoughReplicas, CorruptMessage))
"""Retriable errors that say that nothing was stored. Others, NOT_LEADER_OR_FOLLOWER too, can come after the append."""
OF_THE_CONTENT = frozenset(
    each.code
    for each in (
        MessageTooLarge,
        RecordListTooLarge,
        InvalidTimestamp,
        InvalidRecord,
        UnsupportedCompressionType,
    )
)
"""Refusals that the same bytes would have met on every earlier attempt too."""


class _Destination:
    """A partition of upstream and what waits for it."""

    __slots__ = ("busy", "failures", "identity", "last_error", "partition", "queue", "sequence", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.queue: deque[Batch] = deque()
        self.identity: Identity | None = None
        self.sequence = 0
        """Of the next batch that is stored."""
        self.busy = False
        """It is in a lane or waits for its next try."""
        self.failures = 0
        self.last_error = LeaderNotAvailable.code
        """Why its first batch is not stored yet."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Lane:
    """The way to one node."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.link: Link | None = None
        self.version = 0
        self.ready: dict[_Destination, None] = {}
        self.in_flight: deque[_Destination] = deque()
        self.not_before = 0.0
        """Nothing goes before: the node was unreachable, or has asked for patience (a quota)."""
        self.failures = 0


class _Identities:
    """The proxy's own producer ids: one for all destinations, until it is given up for one of them."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._newest: Identity | None = None
        self._asked = False

    def given(self, destination: _Destination) -> bool:
        """Whether the destination has a producer id; if there is none to have, one is asked for."""
        if destination.identity is None and self._newest is not None:
            destination.identity, destination.sequence = self._newest, 0
        if destination.identity is None and not self._asked:
            self._control.want_identity(self._take)
            self._asked = True
        return destination.identity is not None

    def abandon(self, destination: _Destination) -> None:
        """Never use the destination's producer id for it again."""
        if self._newest == destination.identity:
            self._newest = None
        destination.identity = None

    def _take(self, identity: Identity, now: float) -> None:
        self._asked, self._newest = False, identity


class Delivery:
    """All destinations and lanes."""

    def __init__(self, links: Links, cluster: Cluster, control: Control, config: ProxyConfig) -> None:
        self._links, self._cluster, self._control, self._config = links, cluster, control, config
        self._destinations: dict[tuple[str, int], _Destination] = {}
        self._lanes: dict[int, _Lane] = {}
        self._later: list[tuple[float, int, _Destination]] = []
        self._lane_due = math.inf
        """When the first lane that must be patient may go on."""
        self._next_look = 0.0
        """When to look next for what has waited too long."""
        self._seen = 0
        """Of `Cluster.changes`."""
        self._numbers = count()
        self._identities = _Identities(control)

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not any(destination.queue for destination in self._destinations.values())

    @property
    def deadline(self) -> float | None:
        later = self._later[0][0] if self._later else math.inf
        due = min(later, self._lane_due)
        if any(lane.ready for lane in self._lanes.values()):
            due = min(due, self._next_look)
        return due if due < math.inf else None

    def put(
        self,
        topic: str,
        partition: int,
        records: SomeRecords,
        size: int,
        compression: Compression,
        sender: Sender,
        now: float,
        whole: RecordBatch | None = None,
    ) -> None:
        """Deliver ``records`` (about ``size`` bytes) behind what the partition has already; then tell ``sender``.

        Args:
            whole: the client's batch, if these are all of its records.
        """
        destination = self._destinations.get((topic, partition))
        if destination is None:
            destination = self._destinations[topic, partition] = _Destination(topic, partition)
        batch = destination.queue[-1] if destination.queue else None
        if (
            batch is None
            or batch.data is not None
            or batch.compression != compression
            or batch.size + size > self._config.max_batch
            or not batch.takes(records, sender)
        ):
            batch = Batch(compression, now)
            batch.add(records, sender, whole)
            destination.queue.append(batch)
        if not destination.busy:
            destination.busy = True
            self._steer(destination, now)

    def pump(self, now: float) -> None:
        """Send what can be sent."""
        while self._later and self._later[0][0] <= now:
            _, _, destination = heapq.heappop(self._later)
            try:
                self._give_back_the_expired(destination, now)
                self._go_on(destination, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records for %s", destination)
                self._try_later(destination, now)
        if now >= self._next_look:
            self._next_look = now + 1.0
            self._look_for_the_expired(now)
        if self._seen != self._cluster.changes:
            self._seen = self._cluster.changes
            self._steer_anew(now)
        self._lane_due = math.inf
        for lane in self._lanes.values():
            if lane.ready and not lane.in_flight:
                if now >= lane.not_before:
                    self._drive_contained(lane, now)
                else:
                    self._lane_due = min(self._lane_due, lane.not_before)

    # -- where a destination goes

    def _steer(self, destination: _Destination, now: float) -> None:
        """To the lane of its leader, or to a later try."""
        try:
            self._steer_to_leader(destination, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: the way for %s", destination)
            self._try_later(destination, now)

    def _steer_to_leader(self, destination: _Destination, now: float) -> None:
        node = self._cluster.leader(destination.topic, destination.partition)
        if node == NO_LEADER or node not in self._cluster.nodes:
            self._try_later(destination, now)
            return
        if node not in self._lanes:
            self._lanes[node] = _Lane(node)
        self._lanes[node].ready[destination] = None

    def _steer_anew(self, now: float) -> None:
        """Leaders have moved, perhaps of what is ready to be sent."""
        for lane in list(self._lanes.values()):
            ready, lane.ready = lane.ready, {}
            for destination in ready:
                self._steer(destination, now)

    def _try_later(self, destination: _Destination, now: float) -> None:
        due = now + min(BACKOFF * 2**destination.failures, LONGEST_BACKOFF)
        destination.failures = min(destination.failures + 1, 10)
        heapq.heappush(self._later, (due, next(self._numbers), destination))
        self._control.want_topics(destination.topic)

    def _look_for_the_expired(self, now: float) -> None:
        """Among what is ready to be sent but is not: there is no producer id to have, or a node asks for patience."""
        for lane in list(self._lanes.values()):
            for destination in list(lane.ready):
                self._give_back_the_expired(destination, now)
                if not destination.queue:
                    del lane.ready[destination]
                    destination.busy = False

    def _give_back_the_expired(self, destination: _Destination, now: float) -> None:
        """Give back what has waited too long, or what waits for a partition that is gone."""
        limit = self._config.delivery_timeout
        gone = self._cluster.is_gone(destination.topic, destination.partition, now)
        while destination.queue and (gone or now >= destination.queue[0].since + limit):
            code = UnknownTopicOrPartition.code if gone else destination.last_error
            doubtful = destination.queue[0].uncertain
            reason = "the topic has no such partition any more" if gone else f"tried for {limit:g} s"
            if doubtful:
                self._identities.abandon(destination)
                message = f"{broker_error(code).name}: upstream did not say whether it stored it ({reason})"
            else:
                message = f"{broker_error(code).name}: upstream did not take it ({reason})"
            self._settle(destination, Result(code, message=message, doubtful=doubtful), now)

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
        if lane.link is None or not lane.link.open:
            address = self._cluster.nodes[lane.node]
            ready, lost = partial(self._ready, lane), partial(self._lost, lane)
            lane.link = self._links.connect(address, now, ready=ready, lost=lost)
        elif lane.link.ready:
            if lane.link.address != self._cluster.nodes.get(lane.node):
                lane.link.close()  # the node has moved
                lane.link = None
                self._drive(lane, now)
            else:
                self._send(lane, lane.link, now)

    def _send(self, lane: _Lane, link: Link, now: float) -> None:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        size = 0
        for destination in list(lane.ready):
            if self._identities.given(destination) and (data := self._sealed(lane, destination, now)):
                if size and size + len(data) > REQUEST_BYTES:
                    break
                size += len(data)
                del lane.ready[destination]
                lane.in_flight.append(destination)
                by_topic.setdefault(destination.topic, []).append(
                    PartitionProduceData(index=destination.partition, records=data)
                )
        if not lane.in_flight:
            return
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
            answered=partial(self._answered, lane),
            failed=partial(self._unanswered, lane),
        )

    def _sealed(self, lane: _Lane, destination: _Destination, now: float) -> bytes | None:
        """The bytes of the destination's first batch; ``None`` if it has none, and is given back."""
        try:
            return destination.queue[0].seal(destination.identity or (-1, -1), destination.sequence)
        except Exception:
            log.exception("a bug in the proxy, please report it: a batch for %s", destination)
            del lane.ready[destination]
            refusal = Result(UnknownServerError.code, message="the proxy cannot make a batch of these records")
            self._settle(destination, refusal, now)
            self._go_on(destination, now)
            return None

    def _ready(self, lane: _Lane, now: float) -> None:
        assert lane.link is not None, "a link that is ready was made"
        lane.version = lane.link.version(ProduceRequest, NEWEST_PRODUCE)
        lane.failures = 0

    def _lost(self, lane: _Lane, error: OttlaError, now: float) -> None:
        lane.link = None
        if lane.in_flight:  # never so but for a bug: the link has told of each request already
            self._unanswered(lane, error, now)
        lane.not_before = now + min(BACKOFF * 2**lane.failures, LONGEST_BACKOFF)
        if lane.failures == 0 and lane.ready:
            log.warning("records wait for a connection: %s", error, extra={"node": lane.node})
        lane.failures = min(lane.failures + 1, 10)
        ready, lane.ready = lane.ready, {}
        for destination in ready:  # the leader may be another by now
            self._try_later(destination, now)

    def _unanswered(self, lane: _Lane, error: OttlaError, now: float) -> None:
        sent, lane.in_flight = lane.in_flight, deque()
        log.warning("no answer for records, so they are sent again: %s", error, extra={"node": lane.node})
        for destination in sent:
            if destination.queue:
                destination.queue[0].uncertain = True
            destination.last_error = RequestTimedOut.code
            self._try_later(destination, now)

    def _answered(self, lane: _Lane, answer: ProduceResponse, now: float) -> None:
        results = {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}
        lane.not_before = now + answer.throttle_time_ms / 1000
        while lane.in_flight:  # until it is judged: if that raises, the rest is sent again
            destination = lane.in_flight[0]
            result = results.get((destination.topic, destination.partition))
            if result is None:
                missing = UnknownServerError.code
                result = PartitionProduceResponse(index=destination.partition, error_code=missing, base_offset=-1)
            self._judge(destination, result, now)
            lane.in_flight.popleft()

    # -- outcomes

    def _judge(self, destination: _Destination, answer: PartitionProduceResponse, now: float) -> None:
        """Act on upstream's answer to the destination's first batch."""
        batch, code = destination.queue[0], answer.error_code
        if code in SEQUENCE_LOST:
            self._sequence_lost(destination, code, now)
        elif code == UnknownServerError.code or BY_CODE.get(code, UnknownServerError).retriable:
            destination.last_error = code
            batch.uncertain = batch.uncertain or code not in SURELY_NOT_STORED
            self._try_later(destination, now)
        else:
            if code in STORED:
                destination.sequence = (destination.sequence + batch.count) & 0x7FFFFFFF
                self._settle(destination, Result(0, answer.base_offset if code == 0 else -1), now)
            elif batch.uncertain and code not in OF_THE_CONTENT:
                self._identities.abandon(destination)
                self._settle(destination, Result(code, message=answer.error_message, doubtful=True), now)
            elif len(batch.parts) > 1:
                destination.queue.popleft()
                destination.queue.extendleft(reversed(batch.single_parts()))
            else:
                self._settle(destination, Result(code, message=answer.error_message), now)
            self._go_on(destination, now)

    def _sequence_lost(self, destination: _Destination, code: int, now: float) -> None:
        name = broker_error(code).name
        log.warning("upstream has lost a sequence", extra={"partition": str(destination), "error": name})
        self._identities.abandon(destination)
        batch = destination.queue[0]
        if batch.uncertain:
            message = f"{name}: upstream no longer knows whether it stored this batch"
            self._settle(destination, Result(code, message=message, doubtful=True), now)
            self._go_on(destination, now)
        else:
            batch.data = None
            self._try_later(destination, now)

    def _settle(self, destination: _Destination, result: Result, now: float) -> None:
        """The destination's first batch is done with: tell the clients."""
        batch = destination.queue.popleft()
        destination.failures, destination.last_error = 0, LeaderNotAvailable.code
        for part in batch.parts:
            offset = result.offset + part.first if result.offset >= 0 else -1
            told = Result(result.error_code, offset, result.message, result.doubtful)
            with contained("records of a client are settled"):
                part.sender.settled(destination.partition, told, now)

    def _go_on(self, destination: _Destination, now: float) -> None:
        """The destination is neither in flight nor waiting for its next try: on with what it has, if anything."""
        destination.busy = bool(destination.queue)
        if destination.busy:
            self._steer(destination, now)
