"""Collects records into batches, per topic and partition.

Rules:
- A batch is due when it is full, has lingered, or a caller flushes or waits for space; until it is sent it may grow.
- A batch with a record that a caller awaits is due at once if no request to its leader is in flight, otherwise with the
  next response of that leader. So a lone record never lingers, and many are collected while a request is on its way, as
  by Nagle's algorithm (RFC 896).
- A batch expires with its first record's deadline, so it accepts only records offered within about a second of that
  one, even if it cannot be sent: no record fails much earlier than it has to.
- A topic without new records for five minutes is forgotten, with all its state, when the metadata of all topics are
  refreshed.
- No timer keeps a batch alive: a batch's timers end with it.

Source: RecordAccumulator.java.
"""

from collections.abc import Callable, Container

from ottla.codec.records import HEADER_SIZE
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.append import TopicBuffer
from ottla.sdk.produce.batches import NOT_OPEN, PartitionQueue, ProducerBatch
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.placing import Placing
from ottla.sdk.produce.records import PendingRecord, awaited_by
from ottla.sdk.produce.room import BATCH_OVERHEAD, Room
from ottla.sdk.produce.sender import Sender
from ottla.sdk.timers import Timer

_EARLY = 1.0
"""Seconds, in addition to the linger, that a record may fail before its own deadline; less if the deadline is short."""
_MAX_IDLE = 300.0
"""Seconds without a record after which a topic is forgotten. Source: ProducerConfig.java, metadata.max.idle.ms."""


class Accumulator:
    """Appends records to the batches of ``sender``'s queues."""

    def __init__(
        self,
        core: ClientCore,
        options: ProducerOptions,
        placing: Placing,
        room: Room,
        deliveries: Deliveries,
        sender: Sender,
    ) -> None:
        self._core, self._options, self._placing = core, options, placing
        self._room, self._deliveries, self._sender, self._queues = room, deliveries, sender, sender.queues
        self.topics: dict[str, TopicBuffer] = {}
        """Topics to which the fast path may append."""
        self.holds: dict[str, Callable[[], None]] = {}
        """Topics whose metadata are refreshed for this producer, and the function that ends that."""
        self._used: dict[str, tuple[int, float]] = {}
        """Topics, the bytes ever appended to them, and when that number was last seen to change."""
        self._span = options.linger + min(_EARLY, sender.delivery_timeout / 10)
        """Seconds between the first and the last record of a batch."""
        self._sealing: Timer | None = None

    def append(self, record: PendingRecord, topic: Topic, now: float) -> ProducerBatch:
        """Append a record to the open batch of its partition, even if memory is short; return that batch.

        Raises:
            EncodeError, UnknownTopicOrPartition: the record cannot be encoded, or has no partition.
        """
        buffer = self.buffer(topic)
        partition = self._placing.partition(record, topic, buffer)
        queue = self._queues.partition((topic.name, partition))
        if partition < len(buffer.partitions):  # metadata may lack partitions, so that numbers exceed their count
            buffer.partitions[partition] = queue
        if queue.open.left < record.size or record.deadline - queue.open.deadline > self._span:
            self._open(queue, record, now)
        batch = queue.open
        try:
            batch.add(record.size, record.timestamp, record.key, record.value, record.headers, record.callback)
        except BaseException:  # whatever it is: the batch may not stay
            if not batch.count:  # it was opened for this record; brokers refuse an empty batch
                self._sender.drop(queue, batch)
            raise
        self._room.take(record.size)
        if batch.left <= 0:
            self._queues.make_due(queue, batch)
        elif record.callback is not None and awaited_by(record.callback):
            self._queues.hurry(queue, batch)
        return batch

    def buffer(self, topic: Topic) -> TopicBuffer:
        """The buffer of a topic, created when the topic is first used."""
        buffer = self.topics.get(topic.name)
        if buffer is None:
            buffer = self.topics[topic.name] = TopicBuffer(len(topic.partitions))
            if topic.name not in self.holds:
                self.holds[topic.name] = self._core.metadata.hold(topic.name)
        return buffer

    def make_all_due(self) -> None:
        """End all lingering: every batch is due."""
        for queue in self._queues.partitions.values():
            if queue.open is not NOT_OPEN:
                self._queues.make_due(queue, queue.open)

    def metadata_changed(self, now: float, unplaced: Container[str]) -> None:
        """Hide topics that have more partitions now, or are gone, from the fast path: keys map to other partitions."""
        metadata = self._core.metadata
        for name in metadata.learned_of:
            if (buffer := self.topics.get(name)) is None:
                continue
            known = self._core.cluster.topics.get(name)
            if known is None or len(known.partitions) != len(buffer.partitions):
                del self.topics[name]
        if metadata.learned_all:
            self._forget_idle(now, unplaced)

    def close(self) -> None:
        for release in self.holds.values():
            release()

    def _open(self, queue: PartitionQueue, record: PendingRecord, now: float) -> None:
        """Begin a new batch, large enough for the record; the previous one is full, or too old."""
        was_full, before = queue.open.left < record.size, queue.close()
        room = max(min(self._options.batch_size, self._core.options.max_request_size), record.size)
        batch = ProducerBatch(self._deliveries.number(), queue.place, now, record.deadline, room, BATCH_OVERHEAD)
        if before is not None:
            self._queues.make_due(queue, before)
        self._room.take(BATCH_OVERHEAD)
        self._sender.add(queue, batch)
        if self._options.linger and not self._room.waiters:
            queue.linger(self._core, now + self._options.linger, lambda now: self._lingered(queue))
        else:
            self._queues.make_due(queue, batch)
        if self._sealing is None:
            self._sealing = self._core.later(now + self._span, self._seal)
        if before is not None and was_full and before.room == room:  # this one will probably be filled, too
            batch.builder.expect(room - HEADER_SIZE)

    def _lingered(self, queue: PartitionQueue) -> None:
        if queue.open is not NOT_OPEN:
            self._queues.make_due(queue, queue.open)

    def _seal(self, now: float) -> None:
        """Close batches that have been open for long because they cannot be sent: new records have later deadlines."""
        self._sealing = None
        latest = now + self._sender.delivery_timeout - self._span
        for queue in self._queues.partitions.values():
            if (batch := queue.open) is NOT_OPEN:
                continue
            if batch.deadline <= latest:
                queue.close()
                self._queues.make_due(queue, batch)
            elif self._sealing is None:
                self._sealing = self._core.later(now + self._span / 2, self._seal)

    def _forget_idle(self, now: float, unplaced: Container[str]) -> None:
        """Forget idle topics: a producer may use new ones without end."""
        taken = dict.fromkeys(self.holds, 0)
        busy: set[str] = set()
        for (name, _), queue in self._queues.partitions.items():
            taken[name] += queue.taken
            if queue.batches:
                busy.add(name)
        for name, count in taken.items():
            before, since = self._used.get(name, (-1, now))
            if name in busy or name in unplaced or count != before:
                self._used[name] = (count, now)
            elif now - since >= _MAX_IDLE and self._sender.identity.may_forget:
                self.topics.pop(name, None)
                self._sender.forget(name)
                del self._used[name]
                self.holds.pop(name)()
