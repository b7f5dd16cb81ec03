"""The producer: places records, forms requests, judges answers.

Rules:
- A record is accepted or refused at once (`append` raises); once accepted it ends in exactly one way: stored, or failed
  with a reason within `delivery_timeout`. Failures that nobody awaits are counted and raised by the next call.
- Retriable errors and lost connections are retried with the same sequence; only the delivery deadline ends that.
- OUT_OF_ORDER_SEQUENCE_NUMBER of a batch that is not the oldest only means that the oldest has to go first. Of the
  oldest it means that the broker misses what came before: if that was a batch given up here, the rest is sent in a new
  epoch; if not, the broker lost records it had acknowledged, and the batch fails to say so.
- A key's partition is its hash over the partitions known when it is appended; keyless records stay with one partition
  for about a batch (KIP-480), then move on.

Source: Sender.java, TransactionManager.java, BuiltInPartitioner.java.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.codec.compression import Compression
from ottla.codec.partitioners import Partitioner
from ottla.codec.records import HEADER_SIZE, Headers, check_bytes
from ottla.errors import (
    BrokerError,
    BufferFull,
    ConnectionLost,
    DeliveryFailed,
    DeliveryTimeout,
    DuplicateSequenceNumber,
    EncodeError,
    OttlaError,
    OutOfOrderSequenceNumber,
    RecordTooLarge,
    RemoteProtocolError,
    TimeoutExpired,
    UnknownProducerId,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.machines.accumulator import MAX_IN_FLIGHT, Batch, Identity, PartitionQueue, Receipt
from ottla.sdk.machines.actions import Node
from ottla.sdk.machines.cluster import Topic, TopicPartition
from ottla.sdk.machines.connection import Exchange
from ottla.sdk.machines.core import ClientCore
from ottla.sdk.machines.outcome import Outcome
from ottla.sdk.machines.timers import Timer

if TYPE_CHECKING:
    from random import Random  # a machine is given chance, it does not take any

log = logging.getLogger("ottla.sdk.producer")

_RECORD_OVERHEAD = 32
"""Bytes that a record takes beside its key, value and headers, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """See `ottla.sdk.client.Client.producer`."""

    acks: int = -1
    idempotent: bool = True
    linger: float = 0.005
    batch_size: int = 64 * 2**10
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    partitioner: Partitioner | None = None
    buffer_memory: int = 32 * 2**20


@dataclass(slots=True, eq=False)
class Outgoing:
    """A record on its way in; ``outcome`` is ``None`` where nobody awaits it."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers
    timestamp: int
    outcome: Outcome[Receipt] | None = None
    size: int = 0
    """Bytes that it takes at the most; the machine's to fill in, as is the deadline."""
    deadline: float = 0.0


class ProducerMachine:
    """One producer on a `ClientCore`; ``rng`` chooses the partitions of keyless records."""

    def __init__(self, core: ClientCore, options: ProducerOptions, rng: "Random") -> None:
        self._core, self._options, self._rng = core, options, rng
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready: dict[TopicPartition, None] = {}
        """Partitions that may have a batch to send."""
        self._unplaced: dict[str, deque[Outgoing]] = {}
        self._sticky: dict[str, tuple[int, int]] = {}
        """Per topic, the partition of keyless records and the bytes it may still take."""
        self._in_flight: dict[int, int] = {}
        """Requests per node."""
        self._identity: Identity | None = None
        self._identity_asked = False
        self._identity_failures = 0
        self._holds: dict[str, Callable[[], None]] = {}
        """Topics whose metadata are kept fresh for this producer, and what ends that."""
        self._unsettled: dict[int, None] = {}
        """Numbers of batches, and of unplaced topics' records, oldest first."""
        self._numbers = 0
        self._buffered = 0
        self._rooms: deque[Outcome[None]] = deque()
        self._flushes: list[tuple[int, Outcome[None]]] = []
        self._drain_due: Timer | None = None
        self._failed: dict[TopicPartition, int] = {}
        self._first_failure: OttlaError | None = None
        self._closed = False
        self.fatal: OttlaError | None = None
        """Set once the producer can never send again."""
        core.observers.append(self._metadata_changed)
        self._forget = core.on_close(self.close)

    # -- the user's side ---------------------------------------------------------------------------------------------

    def append(self, record: Outgoing, now: float) -> None:
        """Accept a record.

        Raises:
            BufferFull: no room now; `room` tells when.
            RecordTooLarge: it would never fit a request.
            EncodeError: key, value or a header is not bytes.
            UnknownTopicOrPartition: the topic has no such partition.
        """
        if self.fatal:
            raise self.fatal
        key, value = record.key, record.value
        if not isinstance(record.topic, str) or not record.topic:
            raise EncodeError(f"a topic is named by a str, not {record.topic!r}")
        if record.headers or type(value) is not bytes or type(key) is not bytes:
            check_bytes(key, value, record.headers)
        size = _RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in record.headers:
            size += 10 + 4 * len(name) + (len(content) if content else 0)
        if HEADER_SIZE + size > self._core.options.max_request_size:
            limit = self._core.options.max_request_size
            raise RecordTooLarge(f"a record of about {size} bytes for {record.topic!r}; max_request_size is {limit}")
        if self._buffered and self._buffered + size > self._options.buffer_memory:
            raise BufferFull(f"{self._buffered} of {self._options.buffer_memory} bytes wait for the brokers")
        record.size, record.deadline = size, now + self._core.options.delivery_timeout
        known = self._core.cluster.topics.get(record.topic)
        if known is not None and record.topic not in self._unplaced:
            self._place(record, known, now)
        else:
            self._wait_for_topic(record, now)
        self._buffered += size

    def room(self) -> Outcome[None]:
        """Settled when some memory has been freed; then try `append` again."""
        outcome: Outcome[None] = Outcome()
        self._rooms.append(outcome)
        return outcome

    def flush(self, now: float) -> Outcome[None]:
        """Send what lingers; settled when everything appended so far is."""
        outcome: Outcome[None] = Outcome()
        self._flushes.append((self._numbers, outcome))
        self._all_due()
        self._settle_flushes()
        return outcome

    def _all_due(self) -> None:
        for queue in self._queues.values():
            if queue.batches:
                self._due(queue.batches[-1])

    def raise_failures(self) -> None:
        """Raise `DeliveryFailed` for records that failed since the last time and were not awaited."""
        if self._first_failure is not None:
            failed, cause = self._failed, self._first_failure
            self._failed, self._first_failure = {}, None
            raise DeliveryFailed(sum(failed.values()), failed, cause)

    def close(self, error: OttlaError) -> None:
        """Fail what is left; the producer is of no more use."""
        if self._closed:
            return
        self._closed = True
        self._forget()
        for release in self._holds.values():
            release()
        self._core.observers.remove(self._metadata_changed)
        self.fatal = self.fatal or error
        self._fail_all(error)

    @property
    def pending(self) -> int:
        """Records that are neither stored nor failed."""
        placed = sum(batch.builder.count for queue in self._queues.values() for batch in queue.batches)
        return placed + sum(map(len, self._unplaced.values()))

    # -- placing -----------------------------------------------------------------------------------------------------

    def _wait_for_topic(self, record: Outgoing, now: float) -> None:
        waiting = self._unplaced.get(record.topic)
        if waiting is not None:
            waiting.append(record)
            return
        self._unplaced[record.topic] = deque([record])
        number = self._number()
        found = self._core.topic(record.topic, now, create=True)

        def place(now: float) -> None:
            records = self._unplaced.pop(record.topic, deque())
            for each in records:
                try:
                    if found.error is not None:
                        raise found.error
                    self._place(each, found.result(), now)
                except OttlaError as error:
                    self._buffered -= each.size
                    if each.outcome is not None:
                        each.outcome.fail(error)
                    else:
                        self._count_failure(
                            (each.topic, each.partition if each.partition is not None else -1), 1, error
                        )
            if self._flushes:
                # Who flushes waits for the batches that these records went into.
                self._flushes = [(self._numbers, outcome) for _, outcome in self._flushes]
                self._all_due()
            self._settled(number)

        def arrived() -> None:
            late.cancel()
            self._core.soon(place)

        def give_up(now: float) -> None:
            why = self._core.why_no_topic(record.topic)
            found.fail(DeliveryTimeout(f"nothing is known of topic {record.topic!r} in time to deliver: {why}"))

        late = self._core.later(record.deadline, give_up)
        found.when_done(arrived)

    def _place(self, record: Outgoing, topic: Topic, now: float) -> None:
        count = len(topic.partitions)
        if record.partition is not None:
            if record.partition not in topic.partitions:
                raise UnknownTopicOrPartition(
                    f"{record.topic!r} has partitions 0 to {count - 1}, not {record.partition}"
                )
            partition = record.partition
        elif record.key is not None and self._options.partitioner is not None:
            partition = self._options.partitioner(record.key, count)
            if partition not in topic.partitions:
                has = f"{record.topic!r} has partitions 0 to {count - 1}"
                raise UnknownTopicOrPartition(f"the partitioner chose {partition!r}, but {has}")
        else:
            partition = self._stick(topic, record.size)
        place = (record.topic, partition)
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PartitionQueue(place, self._options.idempotent)
            if record.topic not in self._holds:
                self._holds[record.topic] = self._core.hold(record.topic)
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.closed or batch.builder.size + record.size > self._options.batch_size:
            if batch is not None and not batch.closed:
                batch.closed = True
                self._due(batch)
            batch = self._open(queue, record.deadline, now)
        index = batch.builder.append(record.timestamp, record.key, record.value, record.headers)
        batch.charged += record.size
        if record.outcome is not None:
            batch.awaited.append((index, record.timestamp, record.outcome))
        if not self._options.linger or batch.builder.size >= self._options.batch_size:
            self._due(batch)

    def _stick(self, topic: Topic, size: int) -> int:
        partition, left = self._sticky.get(topic.name, (-1, 0))
        if left <= 0 or partition not in topic.partitions:
            led = [each.partition for each in topic.partitions.values() if each.leader >= 0] or list(topic.partitions)
            partition, left = self._rng.choice(led), self._options.batch_size
        self._sticky[topic.name] = (partition, left - size)
        return partition

    def _open(self, queue: PartitionQueue, deadline: float, now: float) -> Batch:
        batch = Batch(self._number(), queue.place, deadline)
        queue.batches.append(batch)
        if self._options.linger:
            self._core.later(now + self._options.linger, lambda now: self._due(batch))
        batch.expiry = self._core.later(batch.deadline, lambda now: self._expire(queue, batch))
        return batch

    def _due(self, batch: Batch) -> None:
        """The batch may be sent; until it is, it may still grow."""
        if not batch.due:
            batch.due = True
            self._wake(batch.place)

    def _number(self) -> int:
        self._numbers += 1
        self._unsettled[self._numbers] = None
        return self._numbers

    # -- sending -----------------------------------------------------------------------------------------------------

    def _wake(self, place: TopicPartition) -> None:
        self._ready[place] = None
        if self._drain_due is None:
            self._drain_due = self._core.soon(self._drain)

    def _metadata_changed(self, now: float) -> None:
        for place, queue in self._queues.items():
            if queue.batches:
                self._wake(place)

    def _drain(self, now: float) -> None:
        self._drain_due = None
        if self.fatal or not self._ready:
            return
        if self._options.idempotent and self._identity is None:
            self._ask_identity(now)
            return
        while requests := self._collect(now):
            for node, batches in requests:
                self._send(node, batches, now)

    def _collect(self, now: float) -> list[tuple[Node, list[tuple[PartitionQueue, Batch]]]]:
        """One request per node that may have another, with at most one batch per partition."""
        requests: dict[int, tuple[Node, list[tuple[PartitionQueue, Batch]]]] = {}
        room: dict[int, int] = {}
        for place in list(self._ready):
            queue = self._queues[place]
            batch = queue.sendable(now)
            if batch is None:
                del self._ready[place]
                continue
            if self._identity is not None and not queue.take_up(self._identity):
                self._renew(now)
                continue
            node = self._core.cluster.leader(*place)
            if node is None:
                self._core.refresh(now, self._core.backoff(0))
                continue
            left = room.setdefault(node.id, self._core.options.max_request_size)
            crowded = node.id in requests and batch.builder.size > left
            if crowded or self._in_flight.get(node.id, 0) >= MAX_IN_FLIGHT:
                continue
            room[node.id] = left - batch.builder.size
            requests.setdefault(node.id, (node, []))[1].append((queue, batch))
        return list(requests.values())

    def _send(self, node: Node, batches: list[tuple[PartitionQueue, Batch]], now: float) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in batches:
            batch.in_flight = batch.closed = True
            topic, partition = queue.place
            data = queue.encode(batch, self._options.compression, self._options.compression_level)
            batch.attempts += 1
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=data))
        request = ProduceRequest(
            acks=self._options.acks,
            timeout_ms=int(self._core.options.request_timeout * 1000),
            topic_data=tuple(TopicProduceData(name=name, partition_data=tuple(data)) for name, data in topics.items()),
        )
        self._in_flight[node.id] = self._in_flight.get(node.id, 0) + 1

        def ended(answer: ProduceResponse | OttlaError | None, now: float) -> None:
            self._in_flight[node.id] -= 1
            self._answered(node, batches, answer, now)

        deadline = now + self._core.options.request_timeout
        self._core.submit(node, Exchange(request, ended, deadline, one_way=self._options.acks == 0), now)

    def _ask_identity(self, now: float) -> None:
        if self._identity_asked:
            return
        self._identity_asked = True

        def ended(answer: InitProducerIdResponse | OttlaError, now: float) -> None:
            self._identity_asked = False
            if isinstance(answer, InitProducerIdResponse) and answer.error_code:
                answer = broker_error(answer.error_code, "InitProducerId")
            if isinstance(answer, InitProducerIdResponse):
                self._identity = Identity(answer.producer_id, answer.producer_epoch)
                self._identity_failures = 0
                self._metadata_changed(now)
            elif _worth_a_retry(answer):
                self._core.later(now + self._core.backoff(self._identity_failures), self._drain)
                self._identity_failures += 1
            else:
                self._give_up(answer)

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        exchange = Exchange(request, ended, now + self._core.options.request_timeout)
        self._core.submit(self._core.any_node(), exchange, now)

    def _renew(self, now: float) -> None:
        """A partition starts over in the next epoch; the others change over when nothing of theirs is undecided."""
        log.warning("a new producer epoch begins, because a batch was given up or lost")
        self._identity = self._identity.successor if self._identity else None
        if self._identity is None:
            self._ask_identity(now)
        else:
            self._metadata_changed(now)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answered(
        self,
        node: Node,
        batches: list[tuple[PartitionQueue, Batch]],
        answer: ProduceResponse | OttlaError | None,
        now: float,
    ) -> None:
        results: dict[TopicPartition, PartitionProduceResponse] = {}
        if isinstance(answer, ProduceResponse):
            for topic in answer.responses:
                for each in topic.partition_responses:
                    results[topic.name, each.index] = each
        for queue, batch in batches:
            batch.in_flight = False
            if batch not in queue.batches:
                continue  # failed meanwhile, with everything else
            if answer is None:
                self._stored(queue, batch, -1, -1)
            elif isinstance(answer, OttlaError):
                self._judge(queue, batch, answer, now)
            elif (result := results.get(queue.place)) is None:
                self._judge(queue, batch, RemoteProtocolError(f"node {node.id} left {queue.place} out"), now)
            elif result.error_code == 0 or result.error_code == DuplicateSequenceNumber.code:
                self._stored(queue, batch, result.base_offset, result.log_append_time_ms)
            else:
                detail = "; ".join([f"{queue.place[0]}-{queue.place[1]}", *filter(None, [_details(result)])])
                self._judge(queue, batch, broker_error(result.error_code, detail), now)
            self._wake(queue.place)

    def _stored(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time: int) -> None:
        queue.drop(batch, stored=True)
        if not batch.abandoned:
            batch.settle(base_offset, append_time)
        self._release(batch)

    def _judge(self, queue: PartitionQueue, batch: Batch, error: OttlaError, now: float) -> None:
        """A batch was not acknowledged: retry it, renumber it, or fail it."""
        if (isinstance(error, BrokerError) and error.stale_metadata) or isinstance(
            error, ConnectionLost | TimeoutExpired
        ):
            self._core.refresh(now)
        if batch.abandoned:
            queue.drop(batch, stored=None)
            self._release(batch)
        elif isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId):
            if queue.oldest_sent() is batch and batch.sent_as == batch.sequence and not queue.renumber:
                queue.renumber = True
                if not queue.gap and isinstance(error, OutOfOrderSequenceNumber):
                    self._refuse(queue, batch, error)
        elif isinstance(error, BrokerError) and error.fatal:
            self._give_up(error)
        elif _worth_a_retry(error):
            batch.retry_at = now + self._core.backoff(batch.attempts - 1)
            self._core.later(batch.retry_at, lambda now: self._wake(batch.place))
            log.debug("a batch is retried", extra={"partition": batch.place, "why": str(error)})
        else:
            self._refuse(queue, batch, error)

    def _refuse(self, queue: PartitionQueue, batch: Batch, error: OttlaError) -> None:
        """The broker certainly did not store the batch, and never will."""
        queue.drop(batch, stored=False)
        self._fail(batch, error)

    def _expire(self, queue: PartitionQueue, batch: Batch) -> None:
        if batch.number not in self._unsettled or batch.abandoned:
            return
        topic, partition = batch.place
        leader = self._core.cluster.leader(topic, partition)
        trouble = self._core.trouble(leader) if leader else "the partition has no leader"
        error = DeliveryTimeout(
            f"{batch.builder.count} record(s) for {topic}-{partition} were not acknowledged within "
            f"{self._core.options.delivery_timeout:g} s after {batch.attempts} attempt(s)"
            + (f"; last trouble: {trouble}" if trouble else "")
        )
        if batch.in_flight:
            batch.abandoned = True
            self._fail(batch, error, release=False)
            return
        queue.drop(batch, stored=None if batch.attempts else False)
        self._fail(batch, error)
        self._wake(batch.place)

    def _fail(self, batch: Batch, error: OttlaError, *, release: bool = True) -> None:
        if unseen := batch.fail(error):
            self._count_failure(batch.place, unseen, error)
        if release:
            self._release(batch)

    def _count_failure(self, place: TopicPartition, count: int, error: OttlaError) -> None:
        self._failed[place] = self._failed.get(place, 0) + count
        self._first_failure = self._first_failure or error

    def _release(self, batch: Batch) -> None:
        if batch.expiry is not None:
            batch.expiry.cancel()
        self._buffered -= batch.charged
        self._settled(batch.number)

    def _settled(self, number: int) -> None:
        self._unsettled.pop(number, None)
        self._settle_flushes()
        while self._rooms:
            self._rooms.popleft().succeed(None)

    def _settle_flushes(self) -> None:
        oldest = next(iter(self._unsettled), self._numbers + 1)
        for each in [each for each in self._flushes if each[0] < oldest]:
            self._flushes.remove(each)
            each[1].succeed(None)

    def _give_up(self, error: OttlaError) -> None:
        self.fatal = error
        self._fail_all(error)

    def _fail_all(self, error: OttlaError) -> None:
        for queue in self._queues.values():
            for batch in list(queue.batches):
                queue.batches.remove(batch)
                if batch.abandoned:
                    self._release(batch)
                else:
                    self._fail(batch, error)
        for waiting in self._unplaced.values():
            for record in waiting:
                if record.outcome is not None:
                    record.outcome.fail(error)
                else:
                    self._count_failure((record.topic, -1), 1, error)
            waiting.clear()
        self._unsettled.clear()
        self._settle_flushes()
        while self._rooms:
            self._rooms.popleft().succeed(None)


def _worth_a_retry(error: OttlaError) -> bool:
    """Whether the same bytes may succeed later; lost connections count, because sequences make it safe."""
    if isinstance(error, BrokerError):
        return error.retriable
    return isinstance(error, ConnectionLost | TimeoutExpired | RemoteProtocolError)


def _details(result: PartitionProduceResponse) -> str:
    details = [result.error_message] if result.error_message else []
    details += [f"record {each.batch_index}: {each.batch_index_error_message}" for each in result.record_errors[:3]]
    return "; ".join(details)
