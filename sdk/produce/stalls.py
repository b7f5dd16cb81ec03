"""Watches partitions that accept no records: fails their records if the topic was recreated without them, and logs
others.

Records may wait for their delivery timeout, but not silently: if a partition has no leader, or its leader refuses them,
for `STALL` seconds, that is logged. A broker that cannot be reached is logged by the client.

A topic never loses partitions. So if one is missing, a broker does not know yet that the topic has grown, and the
records wait; or the topic was recreated with fewer, and the records for the missing ones can never be stored.
"""

import math
from collections.abc import Mapping

from ottla.errors import UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.cluster.metadata import UNKNOWN_TOPIC_GRACE
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import STALL, about, logger
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.results import Results

log = logger("ottla.sdk.producer")


class Stalls:
    """Watches the queues of one producer."""

    def __init__(self, core: ClientCore, queues: Mapping[TopicPartition, PartitionQueue], results: Results) -> None:
        self._core, self._queues, self._results = core, queues, results
        self._look_at = -math.inf

    def metadata_changed(self, queue: PartitionQueue, now: float) -> None:
        """React to new metadata of a topic: fail records for a partition that the recreated topic does not have."""
        name, partition = queue.place
        topic = self._core.cluster.topics.get(name)
        if topic is None:
            return
        if partition in topic.partitions:
            queue.found_in(topic.incarnation)
            return
        since = queue.missing_in(topic.incarnation, now)
        if since is None or not queue.batches:
            return
        if self._core.metadata.heard_for(since, now) >= UNKNOWN_TOPIC_GRACE:
            why = "it was recreated with fewer while records waited; send them again"
            for batch in list(queue.batches):
                error = UnknownTopicOrPartition(told=f"{topic.extent}, not {partition}: {why}")
                self._results.withdraw(queue, batch, error)

    def look(self, now: float) -> None:
        """Log partitions that accept nothing; call it whenever something was sent, or could not be."""
        if now < self._look_at:
            return
        late, self._look_at = now > self._look_at + STALL, now + STALL / 3
        if late:  # it had nothing to send, or the machine slept: the batches have not been tried for so long
            return
        stalled = [queue for queue in self._queues.values() if self._is_stalled(queue, now)]
        if stalled:
            self._look_at = now + STALL
            queue = min(stalled, key=lambda queue: queue.moved_at)
            records = sum(batch.count for each in stalled for batch in each.batches)
            extra = about(queue.place) | {"partition_count": len(stalled), "records": records}
            why, seconds = self._results.progress(queue, queue.batches[0], now), round(now - queue.moved_at)
            log.warning("partition accepts no records, retrying", extra=extra | {"seconds": seconds, "why": why})

    def _is_stalled(self, queue: PartitionQueue, now: float) -> bool:
        oldest = queue.batches[0] if queue.batches else None
        if oldest is None or not oldest.due or now - queue.moved_at < STALL:
            return False
        leader = self._core.cluster.leader(*queue.place)
        return leader is None or (bool(oldest.trouble) and not self._core.trouble(leader))
