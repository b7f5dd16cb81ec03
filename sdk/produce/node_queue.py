"""The sender's state per node; its state per partition is a `PartitionQueue`.

Rules:
- Partitions that a node refused with the same error are retried together, after one pause, in one request.
- A node causes a metadata refresh at most once per `retry_backoff`, however many batches it refuses.
- A connection that is muted, because its node throttles (KIP-219), gets no requests: batches fill up meanwhile.

Source: sink.go of franz-go; Sender.java.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field

from ottla.errors import ConcurrentTransactions, OttlaError
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.batches import MAX_IN_FLIGHT, PartitionQueue, ProducerBatch

MAX_REQUESTS = MAX_IN_FLIGHT
"""Produce requests in flight to one node; as many, because each has at most one batch of a partition. (Java's
`max.in.flight.requests.per.connection`)"""
_MARKERS = 0.002
"""Seconds of the first pause while the previous transaction is ending; each further pause is twice as long."""


@dataclass(slots=True, eq=False)
class Pause:
    """Partitions that wait ``until`` the node is tried again."""

    until: float
    queues: dict[TopicPartition, PartitionQueue] = field(default_factory=dict)


class NodeQueue:
    """One node, and the batches for it; calls ``wake`` with each partition when its pause ends."""

    def __init__(self, core: ClientCore, node_id: int, channel: str, wake: Callable[[PartitionQueue], None]) -> None:
        self._core, self.id, self._channel, self._wake = core, node_id, channel, wake
        self.ready: OrderedDict[TopicPartition, PartitionQueue] = OrderedDict()
        """Partitions that may have a batch to send, in turn."""
        self.in_flight = 0
        """Produce requests in flight."""
        self._collected: dict[TopicPartition, PartitionQueue] = {}
        """Partitions whose open batch has records that callers await, until the next response. Not the batches: one
        that has failed meanwhile would be kept, and no memory be counted for it."""
        self._pauses: dict[type[OttlaError], Pause] = {}
        self._waits_until = -math.inf
        """Until when the connection is muted, as far as a timer waits for that."""
        self._refresh_at = 0.0
        """When metadata may be refreshed again."""

    @property
    def muted_until(self) -> float:
        """Until when the node wants no requests."""
        return self._core.muted_until(self.id, self._channel)

    def may_send(self, now: float) -> bool:
        return bool(self.ready) and self.in_flight < MAX_REQUESTS and self.muted_until <= now

    def waits_until_unmuted(self, now: float) -> bool:
        """Whether the connection is muted, until a time that is news."""
        before, self._waits_until = self._waits_until, self.muted_until
        return now < self._waits_until != before

    def sent(self) -> None:
        """Count a request that was sent."""
        self.in_flight += 1

    def answered(self) -> None:
        """Count a request that was answered, or has failed."""
        self.in_flight -= 1

    def collect(self, queue: PartitionQueue) -> None:
        """Let the open batch of a partition wait for the next response, which makes it due."""
        self._collected[queue.place] = queue

    def take_collected(self) -> list[PartitionQueue]:
        """Take the partitions that wait."""
        collected, self._collected = self._collected, {}
        return list(collected.values())

    def pause(self, queue: PartitionQueue, batch: ProducerBatch, error: OttlaError, now: float) -> None:
        """Retry ``batch`` after the pause for this error; the first such batch determines its length."""
        kind = type(error)
        pause = self._pauses.get(kind)
        if pause is None:
            seconds = self._core.backoff(batch.attempts - 1)
            if kind is ConcurrentTransactions:  # markers are being written, which takes milliseconds
                seconds = min(_MARKERS * 2 ** min(batch.attempts - 1, 10), seconds)
            pause = self._pauses[kind] = Pause(now + seconds)
            self._core.later(pause.until, lambda now: self._go_on(kind))
        batch.retry(pause.until)
        pause.queues[queue.place] = queue

    def refresh(self, now: float) -> None:
        """Refresh the metadata, unless that was done just now."""
        self._core.metadata.refresh(now, max(0.0, self._refresh_at - now))
        if now >= self._refresh_at:
            self._refresh_at = now + self._core.options.retry_backoff

    def _go_on(self, kind: type[OttlaError]) -> None:
        for queue in self._pauses.pop(kind).queues.values():
            self._wake(queue)
