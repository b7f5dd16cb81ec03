"""Chooses the partition of a record.

Rules:
- A key's partition is its hash over the partitions known when the record is appended; keyless records stay with one
  partition for about 16 KiB, then move on, away from slow partitions (KIP-794).
- A partitioner given by name is ottla's, and is called when the record is appended. A custom partitioner is the user's
  code, which may call anything: `choose` calls it outside of the core's gate, before the record is appended.

Source: BuiltInPartitioner.java.
"""

import operator
from typing import TYPE_CHECKING, cast

from ottla.errors import EncodeError, OttlaError, UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.append import TopicBuffer
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import Choice, Chooser, Keyed
from ottla.sdk.produce.producer_queues import ProducerQueues
from ottla.sdk.produce.records import PendingRecord

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

_STICKY_BYTES = 16 * 2**10
"""Bytes after which keyless records move on with the next batch. Source: ProducerConfig.java, batch.size."""


class Placing:
    """Chooses partitions by ``partitioner``; ``rng`` chooses for keyless records."""

    def __init__(
        self,
        core: ClientCore,
        options: ProducerOptions,
        partitioner: Keyed | Chooser,
        rng: "Random",
        queues: ProducerQueues,
    ) -> None:
        self._core, self._rng, self._queues = core, rng, queues
        self._sticky_bytes = min(options.batch_size, _STICKY_BYTES)
        self._partitioner = partitioner
        self._users_own = not isinstance(options.partitioner, str)

    def asks_user(self, record: PendingRecord) -> bool:
        """Whether the user's own code has to choose the partition."""
        if not self._users_own or record.partition is not None or record.refused is not None:
            return False
        return not isinstance(self._partitioner, Keyed) or self._is_hashed(self._partitioner, record.key)

    def choose(self, record: PendingRecord) -> None:
        """Call the user's partitioner, if the topic is known; outside of the gate. Sets `partition`, or `refused`."""
        topic = self._core.cluster.topics.get(record.topic) if isinstance(record.topic, str) else None
        if topic is None:
            return
        try:
            record.choose(self._ask(record, topic))
        except OttlaError as error:
            record.refuse(error)

    def partition(self, record: PendingRecord, topic: Topic, buffer: TopicBuffer) -> int:
        """The partition of a record that is being appended.

        Raises:
            UnknownTopicOrPartition: the topic does not have the partition that the record names.
            EncodeError: the partitioner cannot use the key, or failed.
        """
        if record.refused is not None:
            raise record.refused
        if record.partition is not None:
            if record.partition not in topic.partitions:
                raise UnknownTopicOrPartition(told=f"{topic.extent}, not {record.partition}")
            return record.partition
        if isinstance(self._partitioner, Keyed) and not self._is_hashed(self._partitioner, record.key):
            return self.stick(topic, buffer, record.size)
        return self._ask(record, topic)

    def _is_hashed(self, partitioner: Keyed, key: bytes | None) -> bool:
        return bool(key) or (partitioner.hash_null if key is None else partitioner.hash_empty)

    def _ask(self, record: PendingRecord, topic: Topic) -> int:
        partitioner = self._partitioner
        try:
            if isinstance(partitioner, Keyed):
                partition = operator.index(partitioner.hash(record.key or b"", len(topic.partitions)))
            else:
                partition = operator.index(partitioner.choose(self._choice(record, topic)))
            known = partition in topic.partitions
        except (OttlaError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # from the user's code: also the cancellation of something else
            raise EncodeError(f"the partitioner raised {error!r}") from error
        if not known:
            raise EncodeError(f"the partitioner chose {partition!r}, but {topic.extent}")
        return partition

    def _choice(self, record: PendingRecord, topic: Topic) -> Choice:
        led = [each.partition for each in topic.partitions.values() if each.leader >= 0]

        def queued(partition: int) -> int:
            queue = self._queues.partitions.get((topic.name, partition))
            return sum(batch.size for batch in queue.batches) if queue else 0

        return Choice(topic.name, record.key, record.value, sorted(topic.partitions), sorted(led), queued)

    def stick(self, topic: Topic, buffer: TopicBuffer, size: int) -> int:
        """The current partition for keyless records; after a batch another one, preferably with a short queue."""
        sticky = cast("PartitionQueue | None", buffer.sticky)
        if sticky and sticky.sticks(size) and sticky.place[1] in topic.partitions:
            return sticky.place[1]
        nodes = self._core.cluster.nodes
        well = {each.id for each in nodes.values() if not self._core.trouble(each)}
        led = [each.partition for each in topic.partitions.values() if each.leader in nodes]
        able = [each for each in led if topic.partitions[each].leader in well]
        among = able or led or list(topic.partitions)
        queues = [self._queues.partitions.get((topic.name, each)) for each in among]
        waiting = [len(queue.batches) if queue else 0 for queue in queues]
        most = max(waiting)
        partition = self._rng.choices(among, [most + 1 - each for each in waiting])[0]
        queue = self._queues.partition((topic.name, partition))
        queue.stick(self._sticky_bytes)
        buffer.stick_to(queue)
        return partition
