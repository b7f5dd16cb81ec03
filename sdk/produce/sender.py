"""The sending half of a producer: collects due batches per leader, forms requests, judges answers.

Rules:
- Retriable errors and lost connections are retried with the same sequence; only the delivery deadline ends that. Any
  other error fails one batch, unless it ends a producer for good (`fatal`).
- OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID or INVALID_PRODUCER_EPOCH of a batch that is not the oldest only
  means that the oldest has to go first. Of the oldest it means that the broker misses what came before: it and all
  behind it are renumbered in the next epoch of the producer id, which needs no request, and sent again (KIP-360). That
  acknowledged records are missing is told in the log, as an error: the loss is the broker's, not of these records.
- Whatever a leader may say after it has appended leaves open whether the batch is stored: with acks=all it appends,
  waits for its replicas, and answers NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION if it has to step down
  meanwhile. What was once open stays so, whatever later attempts are told, until the batch is acknowledged.
- MESSAGE_TOO_LARGE splits a batch in halves, down to single records.
- Records that the broker calls invalid fail with its words; the others of their batch fail too, and say so (KIP-467).
- A new leader that comes with an error is used at once (KIP-951). A node that throttles is left alone for as long as
  it says (KIP-219).
- A broker before Kafka 0.11 gets message sets of magic 1. It knows no producer ids, so a producer that did not insist
  on idempotence goes on without, after a warning.
- While nobody leads a partition, metadata are asked for again and again, but ever less often, as a batch is retried.
- The work of one turn is that of the batches it sends, whatever the number of partitions that wait.

Source: Sender.java, TransactionManager.java (canRetry, bumpIdempotentProducerEpoch), ProduceRequestData.json,
DelayedProduce.scala and Partition.scala (what is answered after the append).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.codec.compression import Compression
from ottla.errors import (
    BrokerError,
    ConnectionLost,
    CorruptMessage,
    DeliveryTimeout,
    DuplicateSequenceNumber,
    EncodeError,
    InvalidProducerEpoch,
    InvalidRecord,
    MessageTooLarge,
    NotEnoughReplicas,
    OttlaError,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    RemoteProtocolError,
    TimeoutExpired,
    UnknownErrorCode,
    UnknownProducerId,
    UnknownServerError,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import PRODUCE_IDEMPOTENT
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.logs import logger
from ottla.sdk.metrics import Meter, Metrics
from ottla.sdk.options import broker_timeout_ms
from ottla.sdk.produce.accumulator import MAX_IN_FLIGHT, Batch, Identity, PartitionQueue
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.producer")

_BEFORE_APPEND = (CorruptMessage, NotEnoughReplicas)
"""Those retriable errors of which it is certain that nothing was appended."""
_NOBODY_KNOWS = (UnknownServerError, UnknownErrorCode)
_NO_ANSWER = (ConnectionLost, TimeoutExpired, RemoteProtocolError)
_OUT_OF_STEP = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch)
_TOO_LARGE = (MessageTooLarge, RecordListTooLarge)
_OVERDUE = 1.0
"""Seconds that a batch may wait before `explain` speaks of it."""

Compressor = tuple[Compression, int | None]
"""A compression and its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """What the sending half has to know; see `ottla.sdk.client.Client.producer`."""

    acks: int = -1
    idempotent: bool | None = None
    """``None``: where the brokers can."""
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    topic_compression: dict[str, Compressor] = field(default_factory=dict)
    """Topics that are not compressed as the rest is."""
    delivery_timeout: float | None = None
    """Seconds; ``None``: the client's."""


class DeliveryListener(Protocol):
    """Whoever gave the batches, and keeps account of them."""

    def stored(self, batch: Batch, base_offset: int, append_time: int, now: float) -> None: ...
    def failed(self, batch: Batch, error_of: Callable[[int], OttlaError], now: float) -> None: ...
    def split(self, queue: PartitionQueue, batch: Batch, halves: tuple[Batch, Batch]) -> None: ...
    def free(self, batch: Batch) -> None: ...
    def give_up(self, error: OttlaError) -> None: ...


Pair = tuple[PartitionQueue, Batch]


@dataclass(slots=True, eq=False)
class Target:
    """One node, and what is to be sent there."""

    ready: OrderedDict[TopicPartition, PartitionQueue] = field(default_factory=OrderedDict)
    """Partitions that may have a batch to send, in turn."""
    in_flight: int = 0
    """Requests."""
    throttled: float = 0.0
    """Until when nothing may be sent there."""


class SenderMetrics:
    """Source: SenderMetricsRegistry.java; those that Kafka has per topic are only kept so, and add up."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._meters: dict[tuple[str, str], Meter] = {}
        self.batch_size = metrics.spread("batch-size")
        self.compression_rate = metrics.spread("compression-rate")
        self.queue_time = metrics.timing("record-queue-time")
        self.records_per_request = metrics.spread("records-per-request", type="producer-metrics")
        self.throttle_time = metrics.timing("produce-throttle-time")
        self.splits = metrics.meter("batch-split")

    def count(self, what: str, topic: str, amount: float, now: float) -> None:
        """``what``: record-send, record-error, record-retry, byte."""
        meter = self._meters.get((what, topic))
        if meter is None:
            meter = self._meters[what, topic] = self._metrics.meter(what, topic=topic)
        meter.add(amount, now)


class Sender:
    """Sends what is due in `queues`; ``books`` hears what becomes of it."""

    def __init__(self, core: ClientCore, options: SenderOptions, books: DeliveryListener) -> None:
        self._core, self._options, self._books = core, options, books
        self._metrics = SenderMetrics(core.metrics)
        self.delivery_timeout = options.delivery_timeout or core.options.delivery_timeout
        self.idempotent = options.acks == -1 and options.idempotent is not False
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self._targets: dict[int, Target] = {}
        self._turn: dict[int, None] = {}
        """Nodes that may have another request."""
        self._leaderless_queues: dict[TopicPartition, PartitionQueue] = {}
        """Partitions that nobody leads."""
        self._leaderless = 0
        """Metadata in turn that named no leader for some of what is to be sent."""
        self._drain_due: Timer | None = None
        self._identity: Identity | None = None
        self._identity_asked = False
        self._identity_failures = 0
        self._identity_trouble = ""
        self.stopped = False
        core.metadata.observers.append(self._learned)

    def close(self) -> None:
        self.stopped = True
        self._core.metadata.observers.remove(self._learned)

    def queue(self, place: TopicPartition) -> PartitionQueue:
        found = self.queues.get(place)
        if found is None:
            found = self.queues[place] = PartitionQueue(place, self.idempotent)
        return found

    def forget(self, topic: str) -> None:
        """Keep nothing of a topic that nothing is under way to.

        Not its sequences either: what is sent there later has to be of another epoch, in which they begin at 0. In this
        one it could pass for a repeat of what was sent before.
        """
        gone = [self.queues.pop(place) for place in list(self.queues) if place[0] == topic]
        if self._identity is not None and any(each.identity == self._identity for each in gone):
            self._identity = self._identity.successor

    def add(self, queue: PartitionQueue, batch: Batch) -> None:
        """A new batch, the last of its partition for now."""
        queue.batches.append(batch)
        self.watch(queue, batch)

    def watch(self, queue: PartitionQueue, batch: Batch) -> None:
        """See to it that the batch ends by its deadline."""
        batch.expiry = self._core.later(batch.deadline, lambda now: self._expire(queue, batch, now))

    def due(self, queue: PartitionQueue, batch: Batch) -> None:
        """The batch may be sent; until it is, it may still grow."""
        if not batch.due:
            batch.due = True
            self.wake(queue)

    def wake(self, queue: PartitionQueue) -> None:
        """The partition may have something to send."""
        if not queue.batches:
            return
        leader = self._core.cluster.leader(*queue.place)
        if leader is None:
            self._leaderless_queues[queue.place] = queue
        else:
            self._target(leader.id).ready[queue.place] = queue
            self._turn[leader.id] = None
        self._drain_soon()

    def _target(self, node_id: int) -> Target:
        target = self._targets.get(node_id)
        if target is None:
            target = self._targets[node_id] = Target()
        return target

    def _learned(self, now: float) -> None:
        """There are new metadata."""
        self._wake_all()
        self._leaderless = self._leaderless + 1 if self._leaderless_queues else 0

    def _wake_all(self) -> None:
        self._leaderless_queues.clear()
        for target in self._targets.values():
            target.ready.clear()
        for queue in self.queues.values():
            self.wake(queue)

    # -- sending -----------------------------------------------------------------------------------------------------

    def _drain(self, now: float) -> None:
        self._drain_due = None
        if self.stopped:
            return
        if self._leaderless_queues:
            self._core.metadata.refresh(now, self._core.backoff(self._leaderless))
        if self.idempotent and self._identity is None:
            self._ask_identity(now)
            return
        turn, self._turn = self._turn, {}
        for node_id in turn:
            target = self._target(node_id)
            while target.ready and target.in_flight < MAX_IN_FLIGHT and target.throttled <= now:
                pairs = self._collect(node_id, target, now)
                if not pairs:
                    break
                self._send(self._core.cluster.nodes[node_id], target, pairs, now)

    def _collect(self, node_id: int, target: Target, now: float) -> list[Pair]:
        """What the next request to the node holds: at most one batch per partition."""
        pairs: list[Pair] = []
        again: list[PartitionQueue] = []
        room = self._core.options.max_request_size
        while target.ready:
            place, queue = target.ready.popitem(last=False)
            batch = queue.sendable(now)
            if batch is None:
                continue
            leader = self._core.cluster.leader(*place)
            if leader is None or leader.id != node_id:
                self.wake(queue)
                continue
            if self._identity is not None and not queue.adopt(self._identity):
                self._renew(queue, now)
                if self._identity is None:
                    break
                queue.adopt(self._identity)
            full = bool(pairs) and batch.size > room
            if full or batch is not queue.batches[-1]:
                again.append(queue)
            if full:
                break
            room -= batch.size
            pairs.append((queue, batch))
        for queue in again:
            target.ready[queue.place] = queue
        return pairs

    def _send(self, node: Node, target: Target, pairs: list[Pair], now: float) -> None:
        records = 0
        for queue, batch in pairs:
            if not batch.attempts:
                self._metrics.queue_time.record(now - batch.opened, now)
            else:
                self._metrics.count("record-retry", queue.place[0], batch.count, now)
            queue.send(batch, node.id)
            records += batch.count
        self._metrics.records_per_request.record(records, now)
        target.in_flight += 1
        spoiled: dict[int, EncodeError] = {}

        def build(version: int) -> ProduceRequest:
            return self._request(pairs, version, spoiled, now)

        def ended(answer: ProduceResponse | OttlaError | None, now: float) -> None:
            target.in_flight -= 1
            was_sent = exchange.correlation_id >= 0
            self._answered(node, pairs, answer, spoiled, was_sent, now)
            self._go_on(node.id)

        timeout = now + self._core.options.request_timeout
        one_way = self._options.acks == 0
        exchange = Exchange(ProduceRequest, ended, timeout, one_way=one_way, build=build)
        if self.idempotent:
            exchange.versions = PRODUCE_IDEMPOTENT
        self._core.submit(node, exchange, now)

    def _request(self, pairs: list[Pair], version: int, spoiled: dict[int, EncodeError], now: float) -> ProduceRequest:
        """``spoiled`` gets the indices of the pairs that cannot be said in this version, and why."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for index, (queue, batch) in enumerate(pairs):
            topic, partition = queue.place
            compression, level = self._options.topic_compression.get(
                topic, (self._options.compression, self._options.compression_level)
            )
            try:
                data = queue.encode(batch, version, compression, level)
            except EncodeError as error:
                spoiled[index] = error
                continue
            self._metrics.batch_size.record(len(data), now)
            self._metrics.compression_rate.record(len(data) / batch.size, now)
            self._metrics.count("byte", topic, len(data), now)
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=data))
        return ProduceRequest(
            acks=self._options.acks,
            timeout_ms=broker_timeout_ms(self._core.options.request_timeout),
            topic_data=tuple(TopicProduceData(name=name, partition_data=tuple(data)) for name, data in topics.items()),
        )

    # -- the producer id ---------------------------------------------------------------------------------------------

    def _ask_identity(self, now: float) -> None:
        if self._identity_asked:
            return
        self._identity_asked = True
        node = self._core.any_node()

        def ended(answer: InitProducerIdResponse | OttlaError, now: float) -> None:
            self._identity_asked = False
            if isinstance(answer, InitProducerIdResponse) and answer.error_code:
                answer = broker_error(answer.error_code, "InitProducerId")
            if isinstance(answer, InitProducerIdResponse):
                self._identity = Identity(answer.producer_id, answer.producer_epoch)
                self._identity_failures, self._identity_trouble = 0, ""
                self._wake_all()
            elif isinstance(answer, UnsupportedVersion):
                self._do_without_identity(answer, now)
            elif answer.retriable:
                self._identity_trouble = str(answer)
                self._core.later(now + self._core.backoff(self._identity_failures), self._drain)
                self._identity_failures += 1
            else:
                self._books.give_up(answer)

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        self._core.submit(node, Exchange(request, ended, now + self._core.options.request_timeout), now)

    def _do_without_identity(self, error: UnsupportedVersion, now: float) -> None:
        """The broker is older than idempotence."""
        if self._options.idempotent:
            advice = "leave out idempotent=True to go on without"
            self._books.give_up(UnsupportedVersion(f"idempotence was asked for, but {error.detail}; {advice}"))
            return
        log.warning(
            "no idempotence: %s; a retry after a lost answer may store records twice, and one batch per partition is "
            "in flight",
            error.detail,
        )
        self.idempotent = False
        for queue in self.queues.values():
            queue.idempotent = False
        self._wake_all()

    def _renew(self, queue: PartitionQueue, now: float) -> None:
        """A partition starts over in the next epoch; the others change over when nothing of theirs is undecided."""
        log.info("a new producer epoch begins, because a batch was refused or lost", extra={"partition": queue.place})
        self._identity = self._identity.successor if self._identity else None
        if self._identity is None:
            self._ask_identity(now)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answered(
        self,
        node: Node,
        pairs: list[Pair],
        answer: ProduceResponse | OttlaError | None,
        spoiled: dict[int, EncodeError],
        was_sent: bool,
        now: float,
    ) -> None:
        results: dict[TopicPartition, PartitionProduceResponse] = {}
        if isinstance(answer, ProduceResponse):
            self._heed(node, answer, now)
            for topic in answer.responses:
                results |= {(topic.name, each.index): each for each in topic.partition_responses}
        for index, (queue, batch) in enumerate(pairs):
            batch.in_flight = False
            if batch not in queue.batches:
                continue  # failed meanwhile, with everything else
            result = results.get(queue.place)
            if index in spoiled:
                self._judge(queue, batch, spoiled[index], None, now)
            elif answer is None:
                self._stored(queue, batch, -1, -1, now)
            elif isinstance(answer, OttlaError):
                batch.doubtful |= was_sent and isinstance(answer, _NO_ANSWER)
                self._judge(queue, batch, answer, None, now)
            elif result is None:
                batch.doubtful = True
                left_out = RemoteProtocolError(f"node {node.id} left {_name(queue.place)} out of its answer")
                self._judge(queue, batch, left_out, None, now)
            elif result.error_code in (0, DuplicateSequenceNumber.code):
                self._stored(queue, batch, result.base_offset, result.log_append_time_ms, now)
            else:
                error = broker_error(result.error_code, _details(queue.place, result))
                batch.doubtful |= _maybe_stored(error)
                self._judge(queue, batch, error, result, now)
            self.wake(queue)

    def _heed(self, node: Node, answer: ProduceResponse, now: float) -> None:
        """What an answer says beside the results: new leaders, and to hold back."""
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    hint = each.current_leader
                    self._core.cluster.moved(topic.name, each.index, hint.leader_id, hint.leader_epoch, nodes)
        if answer.throttle_time_ms > 0:
            seconds = answer.throttle_time_ms / 1000
            self._metrics.throttle_time.record(seconds, now)
            self._target(node.id).throttled = now + seconds
            self._core.later(now + seconds, lambda now: self._go_on(node.id))

    def _go_on(self, node_id: int) -> None:
        """The node may have another request."""
        if self._target(node_id).ready:
            self._turn[node_id] = None
            self._drain_soon()

    def _drain_soon(self) -> None:
        if self._drain_due is None:
            self._drain_due = self._core.soon(self._drain)

    def _stored(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time: int, now: float) -> None:
        queue.drop(batch, stored=True)
        if batch.abandoned:
            self._books.free(batch)
            return
        self._metrics.count("record-send", queue.place[0], batch.count, now)
        self._books.stored(batch, base_offset, append_time, now)

    def _judge(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: OttlaError,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        """A batch was not acknowledged: retry, renumber or split it, or fail it."""
        batch.trouble = str(error)
        if isinstance(error, _NO_ANSWER) or (isinstance(error, BrokerError) and error.stale_metadata):
            self._core.metadata.refresh(now)
        if batch.abandoned:
            queue.drop(batch, stored=None)
            self._books.free(batch)
        elif isinstance(error, _OUT_OF_STEP) and self.idempotent:
            if queue.batches[0] is not batch:
                return  # what is before it has to go first
            if batch.doubtful:
                # An earlier attempt may be under way still, and be taken: under another number its records were twice.
                unsure = "an earlier attempt was never answered: the records may be in the log, or not"
                self._refuse(queue, batch, type(error)(f"{error.detail}; {unsure}"), result, now)
            else:
                self._start_over(queue, batch, error, now)
        elif isinstance(error, _TOO_LARGE) and batch.count > 1:  # an earlier attempt without an answer was so, too
            log.info("a batch is too large, and is split", extra={"partition": queue.place, "records": batch.count})
            self._metrics.splits.add(1, now)
            self._books.split(queue, batch, queue.split(batch))
        elif isinstance(error, BrokerError) and error.fatal:
            self._books.give_up(error)
        elif error.retriable:
            leader = self._core.cluster.leader(*queue.place)
            moved = leader is not None and leader.id != batch.node
            self._later(queue, batch, 0.0 if moved else self._core.backoff(batch.attempts - 1), now)
            log.debug("a batch is retried", extra={"partition": queue.place, "why": batch.trouble})
        else:
            self._refuse(queue, batch, error, result, now)

    def _start_over(self, queue: PartitionQueue, batch: Batch, error: OttlaError, now: float) -> None:
        if not queue.gap and isinstance(error, OutOfOrderSequenceNumber) and queue.acknowledged:
            log.error(
                "the broker misses records that it had acknowledged: was an unclean leader elected?",
                extra={"partition": queue.place, "why": batch.trouble},
            )
        queue.start_over(batch)
        self._later(queue, batch, self._core.backoff(batch.attempts - 1), now)

    def _later(self, queue: PartitionQueue, batch: Batch, pause: float, now: float) -> None:
        batch.retry_at = now + pause
        if pause:
            self._core.later(batch.retry_at, lambda now: self.wake(queue))

    def _refuse(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: OttlaError,
        result: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        """The broker did not store the batch, and never will; unless an earlier attempt did."""
        queue.drop(batch, stored=None if batch.doubtful else False)
        self._fail(batch, _verdict(error, result), now)
        self._books.free(batch)

    def _fail(self, batch: Batch, error_of: Callable[[int], OttlaError], now: float) -> None:
        self._metrics.count("record-error", batch.place[0], batch.count, now)
        self._books.failed(batch, error_of, now)

    # -- deadlines ---------------------------------------------------------------------------------------------------

    def _expire(self, queue: PartitionQueue, batch: Batch, now: float) -> None:
        if batch not in queue.batches or batch.abandoned:
            return
        unknown = batch.in_flight or batch.doubtful
        fate = "may be stored or not" if unknown else "certainly not stored"
        error = DeliveryTimeout(
            f"{batch.count} record(s) for {_name(queue.place)} were not acknowledged within "
            f"{self.delivery_timeout:g} s, {fate}: {self._state(queue, batch, now)}"
        )
        if batch.in_flight:
            batch.abandoned = True
            self._fail(batch, lambda index: error, now)
            return
        queue.drop(batch, stored=None if unknown else False)
        self._fail(batch, lambda index: error, now)
        self._books.free(batch)
        self.wake(queue)

    def _state(self, queue: PartitionQueue, batch: Batch, now: float) -> str:
        """Where a batch is, since when, and what was tried."""
        topic, partition = queue.place
        node = self._core.cluster.leader(topic, partition)
        words = [f"{batch.attempts} attempt(s) since {now - batch.opened:.1f} s"]
        if node is None:
            words.append(f"no leader ({self._core.metadata.why_no_leader(topic, partition)})")
        else:
            words.append(f"leader is node {node.id} at {node.host}:{node.port}")
        if batch.in_flight:
            words.append("sent there, no answer yet")
        elif self.idempotent and self._identity is None:
            why = self._identity_trouble and f" ({self._identity_trouble})"
            words.append(f"no broker has given a producer id{why}")
        elif queue.batches[0] is not batch:
            words.append("an older batch has to go first")
        trouble = batch.trouble or (self._core.trouble(node) if node else "")
        return ", ".join(words) + (f"; last trouble: {trouble}" if trouble else "")

    def explain(self, now: float) -> Iterator[str]:
        for queue in self.queues.values():
            oldest = queue.batches[0] if queue.batches else None
            if oldest and oldest.due and (oldest.trouble or now > oldest.opened + _OVERDUE):
                records = sum(each.count for each in queue.batches)
                where = _name(queue.place)
                yield f"producer: {records} record(s) for {where} wait: {self._state(queue, oldest, now)}"
        for node_id, target in self._targets.items():
            if target.throttled > now:
                yield f"producer: node {node_id} throttles, for another {target.throttled - now:.1f} s"


def _maybe_stored(error: BrokerError) -> bool:
    """Whether a leader that answers so may have appended the batch."""
    return isinstance(error, _NOBODY_KNOWS) or (error.retriable and not isinstance(error, _BEFORE_APPEND))


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def _details(place: TopicPartition, result: PartitionProduceResponse) -> str:
    details = [_name(place), *filter(None, [result.error_message])]
    details += [f"record {each.batch_index}: {each.batch_index_error_message}" for each in result.record_errors[:3]]
    return "; ".join(details)


def _verdict(error: OttlaError, result: PartitionProduceResponse | None) -> Callable[[int], OttlaError]:
    """The error of each record of a refused batch, by its index: the guilty are named, the others told apart.

    Source: KIP-467; Sender.java, failBatch.
    """
    if result is None or not result.record_errors:
        return lambda index: error
    guilty = {each.batch_index: each.batch_index_error_message or result.error_message for each in result.record_errors}
    named = {index: broker_error(result.error_code, why or "") for index, why in guilty.items()}
    innocent = InvalidRecord(f"not this one, but others of its batch, which fails as a whole: {error}; send it again")
    return lambda index: named.get(index, innocent)
