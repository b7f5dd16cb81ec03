"""Delivers rewritten records to upstream's partitions: exactly once and in order, or fails them in time.

Theory of operation: every producer has a `Stream` for each partition that it sends to, and its own connection to each
broker (`ottla.proxy.upstream.connections`). So a slow partition delays only the producers that send to it.

Rules:
- A client's producer id is used upstream, too; a client without one is lent a producer (`ottla.proxy.upstream.lent`).
- Every request has ``acks=-1``.
- A batch that is older than `delivery_timeout` fails. One in flight fails after `request_timeout`.
"""

import logging
from collections import deque
from collections.abc import Container, Iterable
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
from ottla.errors import (
    NotEnoughReplicas,
    OttlaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownServerError,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.batches import Part, PartResult, UpstreamBatch, build_whole
from ottla.proxy.upstream.cluster import NO_LEADER, UpstreamCluster
from ottla.proxy.upstream.connections import BACKOFF, LONGEST_BACKOFF, ProducerConnections
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.lent import Lent
from ottla.proxy.upstream.link import UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.producer import ProducerConnection, UpstreamProducer
from ottla.proxy.upstream.streams import CLIENT_GONE, Settled, Stream, first_parts
from ottla.sdk.timers import Timers

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

BY_ID, IMPLICIT = 13, 12
"""Versions of Produce: the first with topic ids, and the first that adds partitions to the transaction."""
LOST = PartResult(OutOfOrderSequenceNumber.code, message="the outcome of an earlier batch in the same epoch is unknown")
REQUEST_BYTES = 8 * 2**20
"""No batch is added to a request of at least this size."""
LONG_REST = 600.0
"""Seconds of rest after which upstream may have forgotten a producer (`producer.id.expiration.ms`, a day usually)."""
LIMIT_LASTS = 600.0
"""Seconds of rest after which larger batches are tried again: upstream may have raised its limit."""
_UNBUILT = PartResult(UnknownServerError.code, message="the proxy cannot build a batch of these records")
_TRY_AGAIN = PartResult(NotEnoughReplicas.code, message="the proxy needs another producer id, retry the batch")
_CALLS = 500
"""The most timers that fire, and the most streams that are steered, in one step; each takes about ten microseconds."""
_LOOK = 1.0
"""Seconds between two checks for expired batches."""

Sent = list[tuple[Stream, UpstreamBatch]]


class Delivery:
    """Sends the batches of all streams, retries them, and settles their parts.

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
        self._threads, self._journal = threads, journal
        self._cluster, self._control, self._config = cluster, control, config
        self._busy: dict[Stream, UpstreamProducer] = {}
        """Streams with unsettled parts."""
        self._next_look = 0.0
        """When to check next for expired batches."""
        self._seen = 0
        """The value of `UpstreamCluster.changes` that this has handled."""
        self._to_steer: deque[tuple[Stream, UpstreamProducer]] = deque()
        """Streams to register with a connection again, because leaders have changed."""
        self._later = Timers()
        self.lent = Lent(control, of_clients, self._identified)
        self.connections = ProducerConnections(
            links, cluster, threads, self.lent, self._later, self._send, self._stranded
        )

    @property
    def idle(self) -> bool:
        """All parts are settled."""
        return not self._busy

    @property
    def deadline(self) -> float | None:
        if self.connections.pressing or self._to_steer:
            return 0.0
        later = self._later.next
        if not len(self.connections) and not self._busy:
            return later
        return self._next_look if later is None else min(later, self._next_look)

    # -- producers

    def drop(self, producer: UpstreamProducer) -> None:
        """Close the idle connections of a producer that gets no more parts; its unsettled parts are still sent."""
        self.connections.drop(producer)

    # -- in

    def put(self, producer: UpstreamProducer, topic: str, part: Part, now: float) -> None:
        """Deliver a part behind the producer's earlier parts for its partition, and give its sender the outcome."""
        stream = producer.streams.get((topic, part.partition))
        if stream is None:
            known = self._cluster.topics.get(topic)  # unknown after a restart, until the metadata arrives
            stream = producer.stream(topic, part.partition, known.topic_id if known else NO_UUID)
        elif stream.idle:
            if now >= stream.sent_at + LIMIT_LASTS:
                stream.forget_limit()
            self._is_described(producer, stream, now)  # or a recreated topic would fail the part as an older one
        if stream.lost:
            self._settle(producer, stream, [(part, LOST)], now)
            return
        waits = bool(stream.waiting)
        stream.waiting.append(part)
        self._note(producer, stream)
        if not waits:  # otherwise the stream is steered already
            self._busy[stream] = producer
            self._steer(producer, stream, now)

    def resume(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Send the batches of a stream that was restored from the journal, once the partition's leader is known."""
        self._busy[stream] = producer
        self._control.request_topics(stream.topic)
        self._go_on(producer, stream, now)

    def withdraw(self, producer: UpstreamProducer, topic: str, partitions: Iterable[int], now: float) -> None:
        """Withdraw the unsent parts of clients' batches that must not be stored, because a batch before them failed."""
        for partition in partitions:
            if stream := producer.streams.get((topic, partition)):
                self._settle(producer, stream, stream.withdraw(), now)
                self._go_on(producer, stream, now)

    def retire_lent(self, producer_id: int, now: float) -> None:
        """Stop lending producers with this id: upstream has given it to a client, so it has lost its data."""
        for producer in self.lent.of_id(producer_id):
            self.lent.use_up(producer)
            self._give_back_unsent(producer, _TRY_AGAIN, now)

    def give_back_of_the_gone(self, now: float) -> None:
        """Fail the unsent parts of disconnected clients without producer ids, because the buffer is full.

        Such clients got no answer, so they reconnect and send their records again. While upstream is unavailable that
        would fill the buffer for all others. Records with ``acks=0`` stay: their client expects no answer, and never
        sends them again.
        """
        for producer in self.lent.of_the_gone:
            if not producer.unawaited:
                self._give_back_unsent(producer, CLIENT_GONE, now)

    def _give_back_unsent(self, producer: UpstreamProducer, result: PartResult, now: float) -> None:
        for stream in list(producer.streams.values()):
            if stream.waiting:
                self._settle(producer, stream, stream.give_back_unsent(result), now)
                self._go_on(producer, stream, now)

    def stop(self, producer: UpstreamProducer, now: float) -> None:
        """Stop sending a transaction that is being aborted; batches in flight still get their responses."""
        for stream in list(producer.streams.values()):
            if not stream.idle:
                self._go_on(producer, stream, now)

    def renew(self, producer: UpstreamProducer, epoch: int, now: float) -> None:
        """Move a transactional producer to a new epoch."""
        for stream in list(producer.streams.values()):
            self._settle(producer, stream, stream.overtaken(epoch), now)
            self._rest_if_idle(producer, stream)

    def pump(self, now: float) -> None:
        """Fire due timers, fail expired batches, steer streams, and send requests."""
        for _ in range(_CALLS):
            if (call := self._later.due(now)) is None:
                break
            call(now)
        if now >= self._next_look:
            self._next_look = now + _LOOK
            self._look_for_the_expired(now)
            self.lent.sweep()
            self.connections.close_the_idle(now)
        if self._seen != self._cluster.changes:
            self._seen = self._cluster.changes
            self.connections.lead_nobody()
            self._to_steer = deque((dict(self._to_steer) | self._busy).items())  # the longest waiting first
        for _ in range(min(_CALLS, len(self._to_steer))):
            stream, producer = self._to_steer.popleft()
            if stream in self._busy:
                self._steer(producer, stream, now)
        self.connections.pump(now)

    # -- steering streams to leaders

    def _steer(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Register a stream with the connection to its leader, or retry later."""
        try:
            self._steer_to_leader(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: the leader of %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _steer_to_leader(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        if not self._is_described(producer, stream, now) or not stream.may_send():
            self._rest_if_idle(producer, stream)
            return
        if producer.stopped and not self._is_late(producer, stream):
            self._rest_if_idle(producer, stream)
            return
        known = self._cluster.is_described(stream.topic)
        node = self._cluster.leader(stream.topic, stream.partition) if known else NO_LEADER
        if node == NO_LEADER or node not in self._cluster.nodes:
            stream.pause()
            self._try_later(producer, stream, now)
            return
        self.connections.lead(producer, stream, node, now)

    def _is_late(self, producer: UpstreamProducer, stream: Stream) -> bool:
        """Whether a batch of an aborted transaction has an unknown outcome, and could arrive in the next transaction.

        Such a batch is sent again until upstream confirms it, so that no copy can arrive later. With transactions of
        version 2 this is not needed, because the next transaction has another epoch.
        """
        return stream.maybe_stored and producer.transaction is not None and not producer.transaction.implicit

    def _is_described(self, producer: UpstreamProducer, stream: Stream, now: float) -> bool:
        """Take over the topic's id; false while batches for a deleted topic of the same name are in flight."""
        known = self._cluster.topics.get(stream.topic)
        if known is None or known.topic_id is stream.topic_id or known.topic_id == stream.topic_id:
            return True
        if not self._cluster.is_described(stream.topic):  # after a restart: an old Metadata version gave no id
            return True
        if stream.in_flight:
            stream.broken = True  # until the batches in flight are answered
            return False
        self._settle(producer, stream, stream.described(known.topic_id), now)
        return True

    def _go_on(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Continue with a stream after a response, or after some of its parts were settled."""
        if producer.stopped:
            self._give_back_the_expired(producer, stream, now)
        if stream.needs_mending and not stream.in_flight:
            if stream.patient and not stream.idle:
                self._try_later(producer, stream, now)
                return
            self._mend(producer, stream, now)
        self._rest_if_idle(producer, stream)
        if not stream.idle and not stream.needs_mending:
            self._steer(producer, stream, now)

    def _rest_if_idle(self, producer: UpstreamProducer, stream: Stream) -> None:
        if stream.idle:
            self._busy.pop(stream, None)
            for connection in producer.connections.values():
                connection.ready.pop(stream, None)

    def _try_later(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        stream.failures = min(stream.failures + 1, 10)
        self._control.request_topics(stream.topic)
        pause = min(BACKOFF * 2 ** (stream.failures - 1), LONGEST_BACKOFF)
        self._later.add(now + pause, partial(self._try_again, producer, stream))

    def _try_again(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        try:
            self._give_back_the_expired(producer, stream, now)
            if stream.needs_mending and not stream.in_flight:
                self._mend(producer, stream, now)
            self._go_on(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _mend(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        epoch = stream.epoch
        self._settle(producer, stream, stream.mend(), now)
        if stream.epoch != epoch:
            log.info(
                "producer's batches renumbered in a new epoch",
                extra={"producer_id": producer.producer_id, "partition": f"{stream.topic}-{stream.partition}"},
            )

    def _look_for_the_expired(self, now: float) -> None:
        """Fail expired batches of all streams, also if they have no producer id yet or are throttled."""
        limit = now - self._config.delivery_timeout
        for stream, part in list(first_parts(self._busy)):
            if part.since <= limit or self._cluster.is_gone(stream.topic, stream.partition, now):
                producer = self._busy.get(stream)
                if producer is None:  # settled together with another stream's
                    continue
                self._give_back_the_expired(producer, stream, now)
                self._go_on(producer, stream, now)

    def _give_back_the_expired(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Fail parts that have expired, or whose partition was deleted."""
        limit = 0.0 if producer.stopped and not self._is_late(producer, stream) else self._config.delivery_timeout
        gone = self._cluster.is_gone(stream.topic, stream.partition, now)
        while not stream.in_flight and (oldest := stream.oldest) and (gone or now >= oldest.since + limit):
            code = UnknownTopicOrPartition.code if gone else stream.last_error
            reason = "the topic has no such partition any more" if gone else f"tried for {limit:g} s"
            unknown = stream.maybe_stored and not gone  # a deleted partition stores nothing any more
            said = "confirm whether it stored the batch" if unknown else "accept the batch"
            if producer.stopped:
                reason = "the transaction is aborted"
            message = f"{broker_error(code).name}: upstream did not {said} ({reason})"
            given_back = stream.expire(PartResult(code, message=message, unknown=unknown))
            self._settle(producer, stream, given_back, now)

    # -- requests

    def _identified(self, producer: UpstreamProducer) -> None:
        self.connections.press_all(producer)

    def _send(self, connection: ProducerConnection, link: UpstreamLink, now: float) -> bool:
        """Send a request with a batch of each ready stream; returns whether there was any."""
        sent: Sent = []
        size = 0
        by_id, newest = self._goes_by_id(connection), self._newest(connection.producer)
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
        connection.in_flight += 1
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
            )
        except Exception as bug:
            failed(as_ottla_error(bug), now)
            raise
        return True

    def _goes_by_id(self, connection: ProducerConnection) -> bool:
        """Whether the next request has topic ids, so that no recreated topic can store its records."""
        transaction = connection.producer.transaction
        if connection.version < BY_ID or (transaction is not None and not transaction.implicit):
            return False
        return all(stream.topic_id.int != NO_UUID.int for stream in connection.ready)  # faster than comparing UUIDs

    def _newest(self, producer: UpstreamProducer) -> int:
        """The newest Produce version with topic names that adds partitions to transactions only as the client does."""
        implicit = producer.transaction is None or producer.transaction.implicit
        return BY_ID - 1 if implicit else IMPLICIT - 1

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
                part.building = part.alone = True
                build = partial(build_whole, part, transactional=stream.transactional)
                self._threads.run(build, partial(self._built_in_a_thread, producer, stream, part))
            connection.ready.pop(stream, None)
        except Exception:
            log.exception("a bug in the proxy, please report it: a batch for %s-%d", stream.topic, stream.partition)
            connection.ready.pop(stream, None)
            if stream.waiting:
                self._settle(producer, stream, [(stream.waiting.popleft(), _UNBUILT)], now)
            self._go_on(producer, stream, now)
        return None

    def _built_here(
        self, producer: UpstreamProducer, stream: Stream, producer_id: int, by_id: bool, now: float
    ) -> UpstreamBatch:
        stream.sent_at = now
        self._note(producer, stream)
        batch = stream.next(producer_id, self._config.max_batch, by_id=by_id)
        if batch.tries == 1:
            self._threads.spend(sum(part.size for part in batch.parts), batch.parts[0].compression)
        return batch

    def _built_in_a_thread(
        self, producer: UpstreamProducer, stream: Stream, part: Part, whole: RecordBatch | None, now: float
    ) -> None:
        """Take the batch that a thread has built, or ``None`` if it failed; the part may be settled by now."""
        part.building, part.whole = False, whole
        if part not in stream.waiting:
            return
        if whole is None:
            stream.waiting.remove(part)
            self._settle(producer, stream, [(part, _UNBUILT)], now)
        self._rest_if_idle(producer, stream)
        if not stream.idle and not stream.needs_mending:
            self._steer(producer, stream, now)

    def _stranded(self, producer: UpstreamProducer, streams: Iterable[Stream], now: float) -> None:
        """Retry later with streams whose connection was lost; their leader may have changed."""
        for stream in streams:
            if stream.may_send():
                stream.pause()
                if not stream.in_flight:
                    self._try_later(producer, stream, now)

    def _unanswered(self, connection: ProducerConnection, sent: Sent, error: OttlaError, now: float) -> None:
        connection.in_flight -= 1
        connection.idle_since = now
        self.connections.fell_silent(connection.node, error)
        for stream, batch in sent:
            if batch.in_flight:  # otherwise its response was handled before the error
                stream.unanswered(batch)
                connection.ready.pop(stream, None)
                self._go_on(connection.producer, stream, now)

    def _answered(self, connection: ProducerConnection, sent: Sent, answer: ProduceResponse, now: float) -> None:
        self.connections.answers(connection.node)
        results = {
            (topic.name or topic.topic_id, each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        connection.not_before = max(connection.not_before, now + answer.throttle_time_ms / 1000)
        for stream, batch in sent:
            partition = stream.partition
            result = results.get((stream.topic, partition)) or results.get((stream.topic_id, partition))
            if result is None:
                missing = UnknownServerError.code
                result = PartitionProduceResponse(index=stream.partition, error_code=missing, base_offset=-1)
            self._judge(connection.producer, stream, batch, result, now)
        connection.in_flight -= 1
        connection.idle_since = now
        self.connections.press(connection)

    # -- outcomes

    def _judge(
        self,
        producer: UpstreamProducer,
        stream: Stream,
        batch: UpstreamBatch,
        answer: PartitionProduceResponse,
        now: float,
    ) -> None:
        """Handle upstream's response to a batch."""
        if batch.given_up:  # its producer id may belong to another producer by now, so the journal must not get this
            return
        settled = stream.answered(batch, answer.error_code, answer.base_offset, answer.error_message)
        self._settle(producer, stream, settled, now)
        self._go_on(producer, stream, now)

    def _note(self, producer: UpstreamProducer, stream: Stream) -> None:
        """Record a stream in the journal, because it has changed."""
        if self._journal is not None and not producer.own:
            assert producer.producer_id is not None, "clients' producers have an id"
            self._journal.stream(producer.producer_id, stream)

    def _settle(self, producer: UpstreamProducer, stream: Stream, settled: Settled, now: float) -> None:
        """Record a stream in the journal, and pass the outcomes of its parts to their senders."""
        self._note(producer, stream)
        for part, result in settled:
            try:
                part.sender.settled(part, result, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records of a client are settled")

    def _give_back_the_rest(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Fail the waiting parts of a stream whose epochs are exhausted."""
        if producer.own:
            self.lent.use_up(producer)
            result = _TRY_AGAIN
        else:
            why = "all epochs of the producer id are used up: open a new producer"
            result = PartResult(ProducerFenced.code, message=why)
        while stream.waiting:
            self._settle(producer, stream, [(stream.waiting.popleft(), result)], now)
        self._busy.pop(stream, None)
