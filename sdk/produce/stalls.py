"""Partitions that take no records: those that their topic has no more are given up, and of others the log tells.

Records may wait for their delivery deadline, but not silently: where the broker answers and a partition takes none for
`STALL` seconds, that is reported. Of a broker that does not answer the client tells by itself.

A partition can only be missing where a topic was recreated with fewer partitions, or where a broker does not know yet
that it has more. So records for one wait as long as a topic may be unknown.
"""

import math
from collections.abc import Mapping

from ottla.errors import UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.cluster.metadata import UNKNOWN_TOPIC_GRACE
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import STALL, logger
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.results import Results

log = logger("ottla.sdk.producer")


class Stalls:
    """Of the queues of one producer."""

    def __init__(self, core: ClientCore, queues: Mapping[TopicPartition, PartitionQueue], results: Results) -> None:
        self._core, self._queues, self._results = core, queues, results
        self._look_at = -math.inf

    def metadata_changed(self, queue: PartitionQueue, now: float) -> None:
        """Give up what waits for a partition that its topic does not have."""
        name, partition = queue.place
        topic = self._core.cluster.topics.get(name)
        if topic is None or partition in topic.partitions:
            queue.missing_since = math.nan
            return
        if math.isnan(queue.missing_since):
            queue.missing_since = now
        if queue.batches and self._core.metadata.heard_for(queue.missing_since, now) >= UNKNOWN_TOPIC_GRACE:
            has = f"{name!r} has partitions 0 to {len(topic.partitions) - 1}, not {partition}"
            why = "it was recreated with fewer while records waited; send them again"
            for batch in list(queue.batches):
                self._results.withdraw(queue, batch, UnknownTopicOrPartition(f"{has}: {why}"))

    def look(self, now: float) -> None:
        """Tell of partitions that take nothing; for whenever something is sent, or cannot be."""
        if now < self._look_at:
            return
        self._look_at = now + STALL / 3
        stalled = [queue for queue in self._queues.values() if self._is_stalled(queue, now)]
        if stalled:
            self._look_at = now + STALL
            queue = max(stalled, key=lambda queue: now - queue.batches[0].opened)
            oldest = queue.batches[0]
            records = sum(batch.count for each in stalled for batch in each.batches)
            topic, partition = queue.place
            extra = {"topic": topic, "partition": partition, "partitions": len(stalled), "records": records}
            why, seconds = self._results.progress(queue, oldest, now), round(now - oldest.opened)
            log.warning("a partition takes no records", extra=extra | {"seconds": seconds, "why": why})

    def _is_stalled(self, queue: PartitionQueue, now: float) -> bool:
        oldest = queue.batches[0] if queue.batches else None
        if oldest is None or not oldest.due or oldest.abandoned or now - oldest.opened < STALL:
            return False
        leader = self._core.cluster.leader(*queue.place)
        return leader is None or not (oldest.in_flight or self._core.trouble(leader))
