"""Leads each stream to the connection of its partition's leader, again after each failure or change of leaders.

Rules:
- A stream is steered while it has unsettled parts. After a failure it is mended first, once no batch is in flight.
- If a partition has no leader, or an attempt has failed, the stream pauses, and the topic's metadata is requested.
- If the partition accepts no records for now, the senders of the stream's parts learn it at once.
- A batch that is older than `delivery_timeout` fails. So do the batches of a deleted partition, and the unsent batches
  of a transaction that is being aborted.
"""

import logging
from collections import deque
from collections.abc import Iterable
from functools import partial

from ottla.errors import LeaderNotAvailable, UnknownTopicId, UnknownTopicOrPartition, broker_error
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.cluster import NO_LEADER, UpstreamCluster
from ottla.proxy.upstream.connections import ProducerConnections
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.producer import BACKOFF, LONGEST_BACKOFF, UpstreamProducer
from ottla.proxy.upstream.settlements import Settlements
from ottla.proxy.upstream.streams import Stream, first_parts
from ottla.sdk.timers import Timers

log = logging.getLogger("ottla.proxy")

MOST_STEERED = 500
"""The most streams that are steered to new leaders in one step; each takes about ten microseconds."""
_NO_TOPIC = {UnknownTopicId.code, UnknownTopicOrPartition.code}
_ELECTION = 3
"""How many attempts must find no leader before clients learn it: most elections take less than these, some 0.4 s."""


class Steering:
    """Keeps the streams with unsettled parts going, until every part is stored, refused or expired.

    Args:
        later: timers for streams in backoff.

    Attributes:
        busy: streams with unsettled parts.
    """

    def __init__(
        self,
        cluster: UpstreamCluster,
        control: Control,
        connections: ProducerConnections,
        settlements: Settlements,
        later: Timers,
        delivery_timeout: float,
    ) -> None:
        self._cluster, self._control, self._connections = cluster, control, connections
        self._settlements, self._later, self._delivery_timeout = settlements, later, delivery_timeout
        self.busy: dict[Stream, UpstreamProducer] = {}
        self._seen = 0
        """The value of `UpstreamCluster.changes` that this has handled."""
        self._to_steer: deque[tuple[Stream, UpstreamProducer]] = deque()
        """Streams to register with a connection again, because leaders have changed."""
        self._put_off: dict[Stream, UpstreamProducer] = {}
        """Streams whose partitions accept no records for now."""

    @property
    def pressing(self) -> bool:
        """Whether the next `pump` has streams to handle."""
        return bool(self._to_steer or self._put_off)

    def pump(self, now: float) -> None:
        """Steer streams whose leaders may have changed; tell the senders of streams that upstream refuses for now."""
        put_off, self._put_off = self._put_off, {}
        for stream, producer in put_off.items():
            if stream.puts_off:
                self._settlements.put_off(stream, now)
                self.gave_back(producer, stream, now)
        if self._seen != self._cluster.changes:
            self._seen = self._cluster.changes
            self._connections.lead_nobody()
            self._to_steer = deque((dict(self._to_steer) | self.busy).items())  # the longest waiting first
        for _ in range(min(MOST_STEERED, len(self._to_steer))):
            stream, producer = self._to_steer.popleft()
            if stream in self.busy:
                self._steer(producer, stream, now)

    # -- leaders

    def begin(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Steer a stream that has got its first waiting part."""
        self.busy[stream] = producer
        self._steer(producer, stream, now)

    def resume(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Steer a stream that was restored from the journal, once the partition's leader is known."""
        self.busy[stream] = producer
        self._control.request_topics(stream.topic)
        self.go_on(producer, stream, now)

    def go_on(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Continue with a stream after a response, or after some of its parts were settled."""
        if producer.stopped:
            self._give_back_the_expired(producer, stream, now)
        if stream.needs_mending and not stream.in_flight:
            if stream.patient and stream.oldest is not None:
                self._try_later(producer, stream, now)
                return
            self._mend(producer, stream, now)
        self.steer(producer, stream, now)

    def gave_back(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Continue with a stream whose parts were taken back, unless it waits for its next attempt."""
        if stream.oldest is None or not stream.patient:
            self.go_on(producer, stream, now)

    def steer(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Register a stream with the connection to its leader, unless it is idle, or must be mended first."""
        self.rest_if_idle(producer, stream)
        if not stream.idle and not stream.needs_mending:
            self._steer(producer, stream, now)

    def rest_if_idle(self, producer: UpstreamProducer, stream: Stream) -> None:
        """Stop steering a stream that has no unsettled parts."""
        if stream.idle:
            self.busy.pop(stream, None)
            for connection in producer.connections.values():
                connection.ready.pop(stream, None)

    def _steer(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Register a stream with the connection to its leader, or retry later."""
        try:
            self._steer_to_leader(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: the leader of %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _steer_to_leader(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        if not self.is_described(producer, stream, now) or not stream.may_send():
            self.rest_if_idle(producer, stream)
            return
        if producer.stopped and not _is_late(producer, stream):
            self.rest_if_idle(producer, stream)
            return
        known = self._cluster.is_described(stream.topic)
        node = self._cluster.leader(stream.topic, stream.partition) if known else NO_LEADER
        if node == NO_LEADER or node not in self._cluster.nodes:
            stream.pause(LeaderNotAvailable.code if known and stream.failures >= _ELECTION else 0)
            self._try_later(producer, stream, now)
            return
        self._connections.lead(producer, stream, node, now)

    def is_described(self, producer: UpstreamProducer, stream: Stream, now: float) -> bool:
        """Take over the topic's id; false while batches for a deleted topic of the same name are in flight."""
        known = self._cluster.topics.get(stream.topic)
        if known is None or known.topic_id is stream.topic_id or known.topic_id == stream.topic_id:
            return True
        if not self._cluster.is_described(stream.topic):  # after a restart: an old Metadata version gave no id
            return True
        if stream.in_flight:
            stream.halt()
            return False
        self._settlements.settle(producer, stream, stream.described(known.topic_id), now)
        return True

    # -- failures

    def stranded(self, producer: UpstreamProducer, streams: Iterable[Stream], now: float) -> None:
        """Retry later with streams whose connection was lost; their leader may have changed."""
        for stream in streams:
            if stream.may_send():
                stream.pause()
                if not stream.in_flight:
                    self._try_later(producer, stream, now)

    def _try_later(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        failures = stream.count_failure()
        if stream.last_error in _NO_TOPIC and self._cluster.is_missing(stream.topic):
            # Not noted: until the next settlement a restart takes these batches for maybe stored, which is safe. Nearly
            # all of them go back to their clients at once, and that is noted.
            stream.gone()
        if stream.puts_off:
            self._put_off[stream] = producer
        self._control.request_topics(stream.topic)
        pause = min(BACKOFF * 2 ** (failures - 1), LONGEST_BACKOFF)
        self._later.add(now + pause, partial(self._try_again, producer, stream))

    def _try_again(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        try:
            self._give_back_the_expired(producer, stream, now)
            if stream.needs_mending and not stream.in_flight:
                self._mend(producer, stream, now)
            self.go_on(producer, stream, now)
        except Exception:
            log.exception("a bug in the proxy, please report it: records for %s-%d", stream.topic, stream.partition)
            self._try_later(producer, stream, now)

    def _mend(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        epoch = stream.epoch
        self._settlements.settle(producer, stream, stream.mend(), now)
        if stream.epoch != epoch:
            log.debug(  # a client can cause it with each request
                "producer's batches renumbered in a new epoch",
                extra={"producer_id": producer.producer_id, "partition": f"{stream.topic}-{stream.partition}"},
            )

    # -- batches that are too old

    def fail_the_expired(self, now: float) -> None:
        """Fail expired batches of all streams, also if they have no producer id yet or are throttled."""
        limit = now - self._delivery_timeout
        for stream, part in list(first_parts(self.busy)):
            if part.since <= limit or self._cluster.is_gone(stream.topic, stream.partition, now):
                producer = self.busy.get(stream)
                if producer is None:  # settled together with another stream's
                    continue
                self._give_back_the_expired(producer, stream, now)
                self.go_on(producer, stream, now)

    def _give_back_the_expired(self, producer: UpstreamProducer, stream: Stream, now: float) -> None:
        """Fail parts that have expired, or whose partition was deleted."""
        limit = 0.0 if producer.stopped and not _is_late(producer, stream) else self._delivery_timeout
        gone = self._cluster.is_gone(stream.topic, stream.partition, now)
        while not stream.in_flight and (oldest := stream.oldest) and (gone or now >= oldest.since + limit):
            code = UnknownTopicOrPartition.code if gone else stream.last_error
            reason = "the topic has no such partition any more" if gone else f"tried for {limit:g} s"
            unknown = stream.maybe_stored and not gone  # a deleted partition stores nothing any more
            said = "confirm whether it stored the batch" if unknown else "accept the batch"
            if producer.stopped:
                reason = "the transaction is aborted"
            elif producer.principal is not None and not producer.principal.usable(now):
                reason = f"{producer.principal.name} has not logged in again for {limit:g} s"
            message = f"{broker_error(code).name}: upstream did not {said} ({reason})"
            given_back = stream.expire(PartResult(code, message=message, unknown=unknown))
            self._settlements.settle(producer, stream, given_back, now)


def _is_late(producer: UpstreamProducer, stream: Stream) -> bool:
    """Whether a batch of an aborted transaction has an unknown outcome, and could arrive in the next transaction.

    Such a batch is sent again until upstream confirms it, so that no copy can arrive later. With transactions of
    version 2 this is not needed, because the next transaction has another epoch.
    """
    return stream.maybe_stored and producer.transaction is not None and not producer.transaction.implicit
