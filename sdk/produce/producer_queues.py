"""The batches of a producer that are not settled, in a queue per partition; and which of them may be sent, per node.

    wake ──► ready at the node of its leader ── `take_woken` ──► the sender
      └────► leaderless: metadata are refreshed

Rules:
- State per node is in a `NodeQueue`, state per partition in a `PartitionQueue`.
- While a partition has no leader, metadata are refreshed again and again, with growing pauses, as for retries.
- The cost of a drain depends on the partitions that were woken, not on the number of waiting partitions.

Source: RecordAccumulator.java (ready, drain).
"""

from collections.abc import Callable, Container, Iterator

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.batches import PartitionQueue, ProducerBatch
from ottla.sdk.produce.node_queue import NodeQueue
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.timers import Timer


class ProducerQueues:
    """All queues of one producer.

    Args:
        channel: the connections for its requests.
        drain: called with ``now``, in the next `poll`, when a partition that may have a batch to send was woken.

    Attributes:
        partitions: the queues of the partitions that the producer has used.
        woken: the nodes that may get another request.
        leaderless: leaderless partitions that have a batch to send.
    """

    def __init__(self, core: ClientCore, channel: str, drain: Callable[[float], None], *, transactional: bool) -> None:
        self._core, self._channel, self._drain, self._transactional = core, channel, drain, transactional
        self.partitions: dict[TopicPartition, PartitionQueue] = {}
        self._nodes: dict[int, NodeQueue] = {}
        self.woken: dict[int, None] = {}
        self.leaderless: dict[TopicPartition, PartitionQueue] = {}
        self._leaderless_answers = 0
        """Consecutive metadata responses that named no leader for a partition that has a batch to send."""
        self._draining: Timer | None = None

    # -- per partition -----------------------------------------------------------------------------------------------

    def partition(self, place: TopicPartition) -> PartitionQueue:
        """The queue of a partition, created when the partition is first used."""
        found = self.partitions.get(place)
        if found is None:
            incarnation = self._core.cluster.incarnation(place[0])
            found = self.partitions[place] = PartitionQueue(place, incarnation, transactional=self._transactional)
            if leader := self._core.cluster.leader(*place):
                self._core.open_connection(leader, self._channel, self._core.now)
        return found

    def forget(self, topic: str) -> list[PartitionQueue]:
        """Remove and return the queues of a topic, which have no batches."""
        return [self.partitions.pop(place) for place in list(self.partitions) if place[0] == topic]

    def make_due(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Allow the batch to be sent; until then it may still grow."""
        if queue.make_due(batch, self._core.now):
            self.wake(queue)

    def hurry(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Allow the open batch to be sent with the next response of its leader, or at once if none is expected."""
        if batch.hurried:
            return
        batch.hurry()
        if batch.due:
            return
        leader = self._core.cluster.leader(*queue.place)
        node = None if leader is None else self.node(leader.id)
        if node is not None and node.in_flight:
            node.collect(queue)
        else:
            self.make_due(queue, batch)

    # -- per node ----------------------------------------------------------------------------------------------------

    def node(self, node_id: int) -> NodeQueue:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = NodeQueue(self._core, node_id, self._channel, self.wake)
        return node

    def wake(self, queue: PartitionQueue) -> None:
        """Consider a partition that may have a batch to send."""
        if not queue.batches:
            return
        leader = self._core.cluster.leader(*queue.place)
        if leader is None:
            self.leaderless[queue.place] = queue
        else:
            self.node(leader.id).ready[queue.place] = queue
            self.woken[leader.id] = None
        self._schedule_drain()

    def wake_all(self) -> None:
        """Consider all partitions again: leaders, or the producer's identity, have changed."""
        self.leaderless.clear()
        collected = [queue for node in self._nodes.values() for queue in node.take_collected()]
        for node in self._nodes.values():
            node.ready.clear()
        self._make_due_if_hurried(collected)
        for queue in self.partitions.values():
            self.wake(queue)
        self._schedule_drain()

    def answered(self, node: NodeQueue) -> None:
        """A request to the node was answered, or has failed: it may get another one, with all that is collected."""
        node.answered()
        self._make_due_if_hurried(node.take_collected())
        self.wake_node(node)

    def wake_node(self, node: NodeQueue) -> None:
        """Consider a node that may get another request."""
        if node.ready:
            self.woken[node.id] = None
            self._schedule_drain()

    def wake_when_unmuted(self, node: NodeQueue, now: float) -> None:
        """Have a node considered again when its connection is no longer muted.

        The response that muted the connection need not be ours: the producers of a client share it.
        """
        if node.ready and node.waits_until_unmuted(now):
            self._core.later(node.muted_until, lambda now: self.wake_node(node))

    def _make_due_if_hurried(self, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            if queue.open.hurried:  # the batch that was collected, or a later one
                self.make_due(queue, queue.open)

    def metadata_changed(self) -> None:
        """Look for the new leaders of all partitions."""
        self.wake_all()
        if not self.leaderless:
            self._leaderless_answers = 0
        elif self._core.metadata.learned_all:
            self._leaderless_answers += 1

    def find_leaders(self, now: float) -> None:
        """Refresh the metadata, because of the leaderless partitions."""
        self._core.metadata.refresh(now, self._core.backoff(self._leaderless_answers))

    def take_woken(self) -> list[NodeQueue]:
        """The nodes that were woken since the last call."""
        woken, self.woken = self.woken, {}
        return [self.node(node_id) for node_id in woken]

    def _schedule_drain(self) -> None:
        """Have ``drain`` called in the next `poll`."""
        if self._draining is None or self._draining.call is None:  # the last call was made
            self._draining = self._core.soon(self._drain)

    # -- to see what waits -------------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether all batches are settled."""
        return not any(queue.batches for queue in self.partitions.values())

    @property
    def pending(self) -> int:
        """Records in batches that are not settled."""
        return sum(batch.count for queue in self.partitions.values() for batch in queue.batches)

    def leaves_gaps(self, identity: Identity | None) -> bool:
        """Whether a batch of this identity is in flight, has an unknown outcome, or is missing at the broker."""
        return any(
            queue.gap or queue.renumber_from is not None or queue.outcome_unknown
            for queue in self.partitions.values()
            if queue.identity == identity
        )

    def waiting_for(self, nodes: Container[int] | None) -> list[ProducerBatch]:
        """Batches that cannot be sent without these nodes (``None``: without any)."""
        leader = self._core.cluster.leader
        return [
            batch
            for place, queue in self.partitions.items()
            if nodes is None or ((led := leader(*place)) is not None and led.id in nodes)
            for batch in queue.batches
        ]

    def muted(self, now: float) -> Iterator[tuple[int, float]]:
        """The nodes that throttle, and for how many seconds yet."""
        for node_id, node in self._nodes.items():
            if (left := node.muted_until - now) > 0:
                yield node_id, left
