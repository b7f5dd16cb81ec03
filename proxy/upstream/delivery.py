"""The way of rewritten records to upstream's partitions: exactly once each, in order, or given back in time.

Theory of operation: every producer has a `Stream` for each partition that it sends to, and a connection of its own to
each node (`ottla.proxy.upstream.connections`). So a partition that is slow delays the producers that send to it, and
nobody else.

Rules:
- A client's producer id goes upstream; a client without one is lent a producer (`ottla.proxy.upstream.lent`).
- All is sent with ``acks=-1``.
- Nothing waits for ever: whatever is older than `delivery_timeout` is given back, unless it is in flight, which
  `request_timeout` ends.
"""

import logging
from collections import deque
from collections.abc import Iterable
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
from ottla.proxy.upstream.batches import Batch, Part, Result, build_whole
from ottla.proxy.upstream.cluster import NO_LEADER, Cluster
from ottla.proxy.upstream.connections import BACKOFF, LONGEST_BACKOFF, Connections
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.lent import Lent
from ottla.proxy.upstream.link import Link, Links
from ottla.proxy.upstream.producer import Connection, Producer
from ottla.proxy.upstream.streams import UNAWAITED, Settled, Stream, first_parts
from ottla.sdk.timers import Timers

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.proxy.journal.journal import Journal

log = logging.getLogger("ottla.proxy")

BY_ID, IMPLICIT = 13, 12
"""Versions of Produce: the first that names topics by their ids, and the first that adds partitions to the
transaction."""
LOST = Result(OutOfOrderSequenceNumber.code, message="a batch before it, in the same epoch, may be stored or not")
REQUEST_BYTES = 8 * 2**20
"""A request is not filled beyond this, a single batch apart."""
LONG_REST = 600.0
"""Seconds after which upstream may have forgotten a producer (`producer.id.expiration.ms` is a day, as it comes)."""
LIMIT_LASTS = 600.0
"""Seconds of rest after which a larger batch is tried again: upstream may have raised its limit."""
_UNBUILT = Result(UnknownServerError.code, message="the proxy cannot make a batch of these records")
_TRY_AGAIN = Result(NotEnoughReplicas.code, message="the proxy needs another producer id: send it again")
_CALLS = 500
"""That are due, and made in one step, and streams that are steered; each takes some ten microseconds."""
_LOOK = 1.0
"""Seconds between two looks for what has waited too long."""

Sent = list[tuple[Stream, Batch]]


class Delivery:
    """All that is under way."""

    def __init__(
        self,
        links: Links,
        cluster: Cluster,
        control: Control,
        threads: Threads,
        config: ProxyConfig,
        journal: "Journal | None",
    ) -> None:
        self._threads, self._journal = threads, journal
        self._cluster, self._control, self._config = cluster, control, config
        self._busy: dict[Stream, Producer] = {}
        """Streams that have something to settle."""
        self._next_look = 0.0
        """When to look next for what has waited too long."""
        self._seen = 0
        """Of `Cluster.changes`."""
        self._to_steer: deque[tuple[Stream, Producer]] = deque()
        """Those to lead to a connection again, since leaders have changed."""
        self._later = Timers()
        self.lent = Lent(control, self._identified)
        self.connections = Connections(links, cluster, threads, self.lent, self._later, self._send, self._stranded)

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
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

    def drop(self, producer: Producer) -> None:
        """Nothing more will be sent by a producer; what is under way still comes to its end."""
        self.connections.drop(producer)

    # -- in

    def put(self, producer: Producer, topic: str, part: Part, now: float) -> None:
        """Deliver a part behind what the producer sends to its partition already; then tell its sender."""
        stream = producer.streams.get((topic, part.partition))
        if stream is None:
            known = self._cluster.topics.get(topic)  # it is not known yet to a proxy that was started again
            stream = producer.stream(topic, part.partition, known.topic_id if known else NO_UUID)
        elif stream.idle:
            if now >= stream.sent_at + LIMIT_LASTS:
                stream.forget_limit()
            self._is_described(producer, stream, now)  # or the part would be taken for one of the topic before
        if stream.lost:
            self._settle(producer, stream, [(part, LOST)], now)
            return
        waits = bool(stream.waiting)
        stream.waiting.append(part)
        self._note(producer, stream)
        if not waits:  # else it is steered already
            self._busy[stream] = producer
            self._steer(producer, stream, now)

    def resume(self, producer: Producer, stream: Stream, now: float) -> None:
        """Go on with what another process has left, once it is known where the partition's leader is."""
        self._busy[stream] = producer
        self._control.request_topics(stream.topic)
        self._go_on(producer, stream, now)

    def withdraw(self, producer: Producer, topic: str, partitions: Iterable[int], now: float) -> None:
        """Take back what was not sent yet of clients' batches that are not to be stored any more."""
        for partition in partitions:
            if stream := producer.streams.get((topic, partition)):
                self._settle(producer, stream, stream.withdraw(), now)
                self._go_on(producer, stream, now)

    def retire_lent(self, producer_id: int, now: float) -> None:
        """Upstream gives a client this producer id: if it is lent already, upstream has lost its data."""
        for producer in self.lent.of_id(producer_id):
            self.lent.use_up(producer)
            self._give_back_unsent(producer, _TRY_AGAIN, now)

    def give_back_unawaited(self, now: float) -> None:
        """Give back what was not sent yet of clients without producer ids that have gone: nobody waits for it.

        They come again, and bring it again; while upstream is away that would fill the buffer for all others.
        """
        for producer in self.lent.of_the_gone:
            self._give_back_unsent(producer, UNAWAITED, now)

    def _give_back_unsent(self, producer: Producer, result: Result, now: float) -> None:
        for stream in list(producer.streams.values()):
            if stream.waiting:
                self._settle(producer, stream, stream.give_back_unsent(result), now)
                self._go_on(producer, stream, now)

    def stop(self, producer: Producer, now: float) -> None:
        """Send nothing more of a transaction that is being aborted; what is in flight still gets its answer."""
        for stream in list(producer.streams.values()):
            if not stream.idle:
                self._go_on(producer, stream, now)

    def renew(self, producer: Producer, epoch: int, now: float) -> None:
        """A transactional producer goes on in another epoch."""
        for stream in list(producer.streams.values()):
            self._settle(producer, stream, stream.overtaken(epoch), now)
            self._rest_if_idle(producer, stream)

    def pump(self, now: float) -> None:
        """Send what can be sent."""
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
            self._to_steer = deque((dict(self._to_steer) | self._busy).items())  # those that wait longest are first
        for _ in range(min(_CALLS, len(self._to_steer))):
            stream, producer = self._to_steer.popleft()
            if stream in self._busy:
                self._steer(producer, stream, now)
        self.connections.pump(now)

    # -- where a stream goes

    def _steer(self, producer: Producer, stream: Stream, now: float) -> None:
        """To the connection to its leader, or to a later try."""
        try:
            self._steer_to_leader(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: the way for %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _steer_to_leader(self, producer: Producer, stream: Stream, now: float) -> None:
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

    def _is_late(self, producer: Producer, stream: Stream) -> bool:
        """What may be stored of a transaction that is aborted could come to upstream in the next one of its epoch.

        It is sent again until upstream has it, so that it cannot. In version 2 the next one has another epoch.
        """
        return stream.maybe_stored and producer.transaction is not None and not producer.transaction.implicit

    def _is_described(self, producer: Producer, stream: Stream, now: float) -> bool:
        """Whether nothing is left under way for another topic of the same name, which was deleted."""
        known = self._cluster.topics.get(stream.topic)
        if known is None or known.topic_id is stream.topic_id or known.topic_id == stream.topic_id:
            return True
        if not self._cluster.is_described(stream.topic):  # told without its id, to a proxy that was started again
            return True
        if stream.in_flight:
            stream.broken = True  # until that is answered
            return False
        self._settle(producer, stream, stream.described(known.topic_id), now)
        return True

    def _go_on(self, producer: Producer, stream: Stream, now: float) -> None:
        """Something of a stream was answered, or has come to an end."""
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

    def _rest_if_idle(self, producer: Producer, stream: Stream) -> None:
        if stream.idle:
            self._busy.pop(stream, None)
            for connection in producer.connections.values():
                connection.ready.pop(stream, None)

    def _try_later(self, producer: Producer, stream: Stream, now: float) -> None:
        stream.failures = min(stream.failures + 1, 10)
        self._control.request_topics(stream.topic)
        pause = min(BACKOFF * 2 ** (stream.failures - 1), LONGEST_BACKOFF)
        self._later.add(now + pause, partial(self._try_again, producer, stream))

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
        self._settle(producer, stream, stream.mend(), now)
        if stream.epoch != epoch:
            log.info(
                "a producer's records are renumbered",
                extra={"producer_id": producer.producer_id, "partition": f"{stream.topic}-{stream.partition}"},
            )

    def _look_for_the_expired(self, now: float) -> None:
        """Also where nothing is tried: there is no producer id to have, or a node asks for patience."""
        limit = now - self._config.delivery_timeout
        for stream, part in list(first_parts(self._busy)):
            if part.since <= limit or self._cluster.is_gone(stream.topic, stream.partition, now):
                producer = self._busy.get(stream)
                if producer is None:  # it was withdrawn with another's
                    continue
                self._give_back_the_expired(producer, stream, now)
                self._go_on(producer, stream, now)

    def _give_back_the_expired(self, producer: Producer, stream: Stream, now: float) -> None:
        """Give back what has waited too long, or what waits for a partition that is gone."""
        limit = 0.0 if producer.stopped and not self._is_late(producer, stream) else self._config.delivery_timeout
        gone = self._cluster.is_gone(stream.topic, stream.partition, now)
        while not stream.in_flight and (oldest := stream.oldest) and (gone or now >= oldest.since + limit):
            code = UnknownTopicOrPartition.code if gone else stream.last_error
            reason = "the topic has no such partition any more" if gone else f"tried for {limit:g} s"
            unknown = stream.maybe_stored and not gone  # what was stored there is gone, too
            said = "say whether it stored it" if unknown else "take it"
            if producer.stopped:
                reason = "the transaction is aborted"
            message = f"{broker_error(code).name}: upstream did not {said} ({reason})"
            given_back = stream.expire(Result(code, message=message, unknown=unknown))
            self._settle(producer, stream, given_back, now)

    # -- requests

    def _identified(self, producer: Producer) -> None:
        self.connections.press_all(producer)

    def _send(self, connection: Connection, link: Link, now: float) -> bool:
        """One request with a batch of each stream that is ready; whether there was any."""
        sent: Sent = []
        size = 0
        by_id, newest = self._goes_by_id(connection), self._newest(connection.producer)
        transaction = connection.producer.transaction
        topics: dict[str, list[PartitionProduceData]] = {}
        ids: dict[str, UUID] = {}
        for stream in list(connection.ready):
            if sent and (size >= REQUEST_BYTES or self._threads.step_is_full):
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

    def _goes_by_id(self, connection: Connection) -> bool:
        """Whether the next request names topics by their ids, so that it can only reach those."""
        transaction = connection.producer.transaction
        if connection.version < BY_ID or (transaction is not None and not transaction.implicit):
            return False
        return all(stream.topic_id.int != NO_UUID.int for stream in connection.ready)  # faster than to compare UUIDs

    def _newest(self, producer: Producer) -> int:
        """The newest version of Produce that names topics, and leaves transactions as the client has them."""
        implicit = producer.transaction is None or producer.transaction.implicit
        return BY_ID - 1 if implicit else IMPLICIT - 1

    def _next(self, connection: Connection, stream: Stream, by_id: bool, now: float) -> Batch | None:
        """The batch of a stream that goes now; ``None`` if it has none, and is not ready any more."""
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

    def _built_here(self, producer: Producer, stream: Stream, producer_id: int, by_id: bool, now: float) -> Batch:
        stream.sent_at = now
        self._note(producer, stream)
        batch = stream.next(producer_id, self._config.max_batch, by_id=by_id)
        if batch.tries == 1:
            self._threads.spend(sum(part.size for part in batch.parts), batch.parts[0].compression)
        return batch

    def _built_in_a_thread(
        self, producer: Producer, stream: Stream, part: Part, whole: RecordBatch | None, now: float
    ) -> None:
        """A thread has made a batch of a part, unless it failed; the part may be over by now."""
        part.building, part.whole = False, whole
        if part not in stream.waiting:
            return
        if whole is None:
            stream.waiting.remove(part)
            self._settle(producer, stream, [(part, _UNBUILT)], now)
        self._rest_if_idle(producer, stream)
        if not stream.idle and not stream.needs_mending:
            self._steer(producer, stream, now)

    def _stranded(self, producer: Producer, streams: Iterable[Stream], now: float) -> None:
        """The connection is lost over which these were to send; the leader may be another by now."""
        for stream in streams:
            if stream.may_send():
                stream.pause()
                if not stream.in_flight:
                    self._try_later(producer, stream, now)

    def _unanswered(self, connection: Connection, sent: Sent, error: OttlaError, now: float) -> None:
        connection.in_flight -= 1
        connection.idle_since = now
        self.connections.fell_silent(connection.node, error)
        for stream, batch in sent:
            if batch.in_flight:  # not judged before this was raised
                stream.unanswered(batch)
                connection.ready.pop(stream, None)
                self._go_on(connection.producer, stream, now)

    def _answered(self, connection: Connection, sent: Sent, answer: ProduceResponse, now: float) -> None:
        self.connections.answers(connection.node)
        results = {
            (topic.name or topic.topic_id, each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        connection.not_before = max(connection.not_before, now + answer.throttle_time_ms / 1000)
        for stream, batch in sent:
            place = stream.partition
            result = results.get((stream.topic, place)) or results.get((stream.topic_id, place))
            if result is None:
                missing = UnknownServerError.code
                result = PartitionProduceResponse(index=stream.partition, error_code=missing, base_offset=-1)
            self._judge(connection.producer, stream, batch, result, now)
        connection.in_flight -= 1
        connection.idle_since = now
        self.connections.press(connection)

    # -- outcomes

    def _judge(
        self, producer: Producer, stream: Stream, batch: Batch, answer: PartitionProduceResponse, now: float
    ) -> None:
        """Act on upstream's answer to a batch."""
        if batch.given_up:  # by now its producer id may be another's, of whom the journal must not say this
            return
        settled = stream.answered(batch, answer.error_code, answer.base_offset, answer.error_message)
        self._settle(producer, stream, settled, now)
        self._go_on(producer, stream, now)

    def _note(self, producer: Producer, stream: Stream) -> None:
        """A stream has changed."""
        if self._journal is not None and not producer.own:
            assert producer.producer_id is not None, "it is a client's"
            self._journal.stream(producer.producer_id, stream)

    def _settle(self, producer: Producer, stream: Stream, settled: Settled, now: float) -> None:
        """A stream has changed: tell clients what became of their records."""
        self._note(producer, stream)
        for part, result in settled:
            try:
                part.sender.settled(part, result, now)
            except Exception:
                log.exception("a bug in the proxy, please report it: records of a client are settled")

    def _give_back_the_rest(self, producer: Producer, stream: Stream, now: float) -> None:
        """The stream has had every epoch that there is."""
        if producer.own:
            self.lent.use_up(producer)
            result = _TRY_AGAIN
        else:
            why = "the producer id has had every epoch that there is: open a new producer"
            result = Result(ProducerFenced.code, message=why)
        while stream.waiting:
            self._settle(producer, stream, [(stream.waiting.popleft(), result)], now)
        self._busy.pop(stream, None)
