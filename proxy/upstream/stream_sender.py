"""Sends the batches of streams in Produce requests, and hands each batch its result.

Rules:
- Every request has ``acks=-1``.
- A request has the client's own client id, so that upstream's quotas are those of the client.
- A request names topics by id if it can, so that no recreated topic can store its records.
- A batch in flight fails after `request_timeout`, its outcome unknown.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.codec.records import RecordBatch
from ottla.codec.wire import NO_UUID
from ottla.errors import OttlaError, ProducerFenced, UnknownServerError
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.batches import Part, PartResult, UpstreamBatch, build_whole
from ottla.proxy.upstream.connections import ProducerConnections
from ottla.proxy.upstream.lent import USED_UP, Lent
from ottla.proxy.upstream.link import UpstreamLink
from ottla.proxy.upstream.producer import ProducerConnection, UpstreamProducer
from ottla.proxy.upstream.settlements import Settlements
from ottla.proxy.upstream.steering import Steering
from ottla.proxy.upstream.streams import Stream

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.proxy")

BY_ID, IMPLICIT = 13, 12
"""Versions of Produce: the first with topic ids, and the first that adds partitions to the transaction."""
REQUEST_BYTES = 8 * 2**20
"""No batch is added to a request of at least this size."""
LONG_REST = 600.0
"""Seconds of rest after which upstream may have forgotten a producer (`producer.id.expiration.ms`, a day usually)."""
_UNBUILT = PartResult(UnknownServerError.code, message="the proxy cannot build a batch of these records")
_NO_EPOCHS = PartResult(ProducerFenced.code, message="all epochs of the producer id are used up: open a new producer")

Sent = list[tuple[Stream, UpstreamBatch]]


class StreamSender:
    """Builds each request from a batch of every ready stream, and gives the streams the results."""

    def __init__(
        self,
        connections: ProducerConnections,
        steering: Steering,
        lent: Lent,
        threads: Threads,
        settlements: Settlements,
        config: ProxyConfig,
    ) -> None:
        self._connections, self._steering, self._lent = connections, steering, lent
        self._threads, self._settlements, self._config = threads, settlements, config

    def send(self, connection: ProducerConnection, link: UpstreamLink, now: float) -> bool:
        """Send a request with a batch of each ready stream; returns whether there was any."""
        sent: Sent = []
        size = 0
        by_id, newest = _goes_by_id(connection), _newest(connection.producer)
        transaction = connection.producer.transaction
        topics: dict[str, list[PartitionProduceData]] = {}
        ids: dict[str, UUID] = {}
        for stream in list(connection.ready):
            if sent and (size >= REQUEST_BYTES or self._threads.budget_is_spent):
                break
            if (batch := self._next(connection, stream, by_id, now)) is None:
                continue
            size += len(batch.data)
            sent.append((stream, batch))
            if not stream.may_send():
                del connection.ready[stream]
            topics.setdefault(stream.topic, []).append(PartitionProduceData(index=stream.partition, records=batch.data))
            ids[stream.topic] = stream.topic_id if by_id else NO_UUID
        if not sent:
            return False
        connection.began()
        failed = partial(self._unanswered, connection, sent)
        try:
            link.ask(
                ProduceRequest(
                    transactional_id=transaction.transactional_id if transaction else None,
                    acks=-1,
                    timeout_ms=int(self._config.request_timeout * 500),
                    topic_data=tuple(
                        TopicProduceData(name=name, topic_id=ids[name], partition_data=tuple(data))
                        for name, data in topics.items()
                    ),
                ),
                ProduceResponse,
                connection.version if by_id else min(connection.version, newest),
                deadline=now + self._config.request_timeout,
                answered=partial(self._answered, connection, sent),
                failed=failed,
                client_id=connection.producer.client_id,
            )
        except Exception as bug:
            failed(as_ottla_error(bug), now)
            raise
        return True

    # -- batches

    def _next(self, connection: ProducerConnection, stream: Stream, by_id: bool, now: float) -> UpstreamBatch | None:
        """The next batch of a stream; ``None``, and the stream is no longer ready, if it has none."""
        producer = connection.producer
        try:
            if stream.exhausted:
                self._give_back_the_rest(producer, stream, now)
            elif stream.may_send() and producer.producer_id is not None:
                if not stream.in_flight and now >= stream.sent_at + LONG_REST:
                    stream.rested()
                if (part := stream.unbuilt(self._threads.is_long)) is None:
                    return self._built_here(producer, stream, producer.producer_id, by_id, now)
                part.begin_building()
                build = partial(build_whole, part, transactional=stream.transactional)
                self._threads.run(build, partial(self._built_in_a_thread, producer, stream, part))
            connection.ready.pop(stream, None)
        except Exception:
            log.exception("a bug in the proxy, please report it: a batch for %s-%d", stream.topic, stream.partition)
            connection.ready.pop(stream, None)
            if stream.waiting:
                self._settlements.settle(producer, stream, [(stream.waiting.popleft(), _UNBUILT)], now)
            self._steering.go_on(producer, stream, now)
        return None

    def _built_here(
        self, producer: UpstreamProducer, stream: Stream, producer_id: int, by_id: bool, now: float
    ) -> UpstreamBatch:
        self._settlements.note(producer, stream)
        batch = stream.next(producer_id, self._config.max_batch, now, by_id=by_id)
        if batch.tries == 1:
            self._threads.spend(sum(part.size for part in batch.parts), batch.parts[0].compression)
        return batch

    def _built_in_a_thread(
        self, producer: UpstreamProducer, stream: Stream, part: Part, whole: RecordBatch | None, now: float
    ) -> None:
        """Take the batch that a thread has built, or ``None`` if it failed; the part may be settled by now."""
        part.end_building(whole)
        if part not in stream.waiting:
            return
        if whole is None:
            stream.waiting.remove(part)
            self._settlements.settle(producer, stream, [(part, _UNBUILT)], now)
        self._steering.steer(producer, stream, now)

    def _give_back_the_rest(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Fail the waiting parts of a stream whose epochs are exhausted."""
        if producer.own:
            self._lent.use_up(producer)
        result = USED_UP if producer.own else _NO_EPOCHS
        while stream.waiting:
            self._settlements.settle(producer, stream, [(stream.waiting.popleft(), result)], now)
        self._steering.rest_if_idle(producer, stream)

    # -- results

    def _unanswered(self, connection: ProducerConnection, sent: Sent, error: OttlaError, now: float) -> None:
        connection.ended(now)
        self._connections.fell_silent(connection.node, error)
        for stream, batch in sent:
            if batch.in_flight:  # otherwise its response was handled before the error
                stream.unanswered(batch)
                connection.ready.pop(stream, None)
                self._steering.go_on(connection.producer, stream, now)

    def _answered(self, connection: ProducerConnection, sent: Sent, answer: ProduceResponse, now: float) -> None:
        self._connections.answers(connection.node)
        results = {
            (topic.name or topic.topic_id, each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        connection.throttle(now + answer.throttle_time_ms / 1000)
        for stream, batch in sent:
            partition = stream.partition
            result = results.get((stream.topic, partition)) or results.get((stream.topic_id, partition))
            if result is None:
                missing = UnknownServerError.code
                result = PartitionProduceResponse(index=stream.partition, error_code=missing, base_offset=-1)
            self._judge(connection.producer, stream, batch, result, now)
        connection.ended(now)
        self._connections.press(connection)

    def _judge(
        self,
        producer: UpstreamProducer,
        stream: Stream,
        batch: UpstreamBatch,
        answer: PartitionProduceResponse,
        now: float,
    ) -> None:
        """Handle upstream's response to a batch."""
        if not stream.has(batch):  # its producer id may be another producer's by now: the journal must not get this
            return
        settled = stream.answered(
            batch, answer.error_code, answer.base_offset, answer.error_message, answer.log_append_time_ms
        )
        self._settlements.settle(producer, stream, settled, now)
        self._steering.go_on(producer, stream, now)


def _goes_by_id(connection: ProducerConnection) -> bool:
    """Whether the next request has topic ids, so that no recreated topic can store its records."""
    transaction = connection.producer.transaction
    if connection.version < BY_ID or (transaction is not None and not transaction.implicit):
        return False
    return all(stream.topic_id.int != NO_UUID.int for stream in connection.ready)  # faster than comparing UUIDs


def _newest(producer: UpstreamProducer) -> int:
    """The newest Produce version with topic names that adds partitions to transactions only as the client does."""
    implicit = producer.transaction is None or producer.transaction.implicit
    return BY_ID - 1 if implicit else IMPLICIT - 1
