"""The model cluster without chance, for tests that decide themselves what happens and when.

Rules:
- Nothing rare happens, and what takes less than a second in the worlds takes no time.
- All nodes learn of a change at once, and have every record at once.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from ottla.codec.records import Record, RecordBatch, build_batch, parse_batch, rebased
from ottla.codec.wire import Buffer
from tests.sim.clock import Clock
from tests.sim.cluster import OFFSETS, Leadership, ModelCluster, Node
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.log import PartitionLog, Stored
from tests.sim.network import Network
from tests.sim.transactions import STATE


class Calm(Random):
    """No delays and first choices; a draw neither triggers the model's rare events nor prevents its usual ones."""

    def random(self) -> float:
        return 0.65

    def uniform(self, a: float, b: float) -> float:
        return a if a >= 1 else 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]


class CalmCluster(ModelCluster):
    """
    Args:
        versions: the versions that the nodes serve of each API; by default as Kafka 4.3.
        first: the number of the first node.

    Attributes:
        refuse: gives the error code with which a leader refuses a batch; 0: it judges for itself.
    """

    def __init__(
        self,
        clock: Clock,
        topics: dict[str, int],
        nodes: int = 1,
        versions: Mapping[int, tuple[int, int]] | None = None,
        *,
        first: int = 1,
    ) -> None:
        chance, history = Calm(1), History(clock, False)
        network = Network(clock, chance, history)
        super().__init__(clock, chance, network, history, topics, nodes, "4.3", transactions=True, first=first)
        self._quiet = False
        self.release = dict(versions or self.release)
        self.transactions.lateness = 0.0
        self.data.diverging = True
        self.data.full = lambda: False
        self.refuse: Callable[[Place, RecordBatch], int] = lambda place, batch: 0

    @property
    def places(self) -> list[Place]:
        """The partitions of the topics that are not internal."""
        return [place for place in self.logs if place[0] not in (OFFSETS, STATE)]

    def ask(self, node: int, version: int, message: Any) -> Any:
        """Answer a request at once, as if time ran ahead, and finish its changes; ``None``: no answer."""
        answers: list[Any] = []
        end = self.clock.now + 0.1
        self.handle(node, "client", version, message, answers.append)
        while not answers or (self.clock.due is not None and self.clock.due <= end):
            self.clock.step()
        return answers[0]

    def append(self, place: Place, records: Buffer) -> tuple[int, int, int]:
        """Append at the leader and at every replica."""
        if code := self.refuse(place, parse_batch(records)):
            return code, -1, -1
        result = super().append(place, records)
        Log(self, place).replicate()
        return result

    def lead(self, place: Place, node: int, epoch: int | None = None) -> None:
        """Begin a new leader epoch, by default the next, under this node; -1: without a leader."""
        self.leaders[place] = Leadership(node, self.leaders[place].epoch + 1 if epoch is None else epoch)
        self.announce()

    def recreate(self, topic: str, partitions: int | None = None, leader: int | None = None, epoch: int = 0) -> None:
        """Delete a topic, if it exists, and create it, by default with the same number of partitions."""
        self._quiet = True  # the nodes learn only the end
        self.delete(topic)
        self._counts[topic] = partitions or self._counts[topic]
        self.create(topic)
        self._quiet = False
        for place in [place for place in self.leaders if place[0] == topic]:
            self.leaders[place] = Leadership(min(self.nodes) if leader is None else leader, epoch)
        self.announce()

    def add_node(self, number: int) -> None:
        self.nodes[number] = Node(number)
        self.announce()

    def announce(self) -> None:
        if not self._quiet:
            self.announce_at_once()


class Log:
    """The log of one partition in a `CalmCluster`; readers see appended records at once."""

    def __init__(self, cluster: CalmCluster, place: Place) -> None:
        self._cluster, self._place = cluster, place

    @property
    def model(self) -> PartitionLog:
        return self._cluster.logs[self._place]

    @property
    def batches(self) -> list[Stored]:
        return self.model.batches

    @property
    def records(self) -> list[Record]:
        """All records, without the markers of transactions."""
        return [record for batch in self.batches if batch.commits is None for record in batch.read()]

    @property
    def values(self) -> list[bytes | None]:
        return [each.value for each in self.records]

    @property
    def end(self) -> int:
        return self.model.end

    @property
    def leader_epoch(self) -> int:
        return self._cluster.leaders[self._place].epoch

    def append(self, *values: bytes, timestamp: int = 0) -> None:
        """Append one batch."""
        data = build_batch([Record(0, timestamp, None, value) for value in values])
        self.append_batch(rebased(data, self.end, self.leader_epoch), len(values))

    def append_batch(self, data: bytes, count: int) -> None:
        """Append these bytes as they are."""
        self.model.store(data, count, self.leader_epoch)
        self.replicate()

    def produce(self, data: Buffer) -> int:
        """Append a producer's batch, and return an error code."""
        code, *_ = self.model.append(data, self.leader_epoch)
        self.replicate()
        return code

    def replicate(self) -> None:
        """Let every replica have all of the log."""
        self.model.high_watermark = self.end
        self._cluster.data.replicated(self._place)

    def lead(self, node: int, epoch: int | None = None) -> None:
        self._cluster.lead(self._place, node, epoch)

    def truncate(self, end: int, leader: int | None = None) -> None:
        """Lose the end of the log, as in an unclean election, and begin a new leader epoch."""
        self.model.truncate(end)
        self.model.high_watermark = min(self.model.high_watermark, end)
        self.lead(self._cluster.leaders[self._place].node if leader is None else leader)

    def retain(self, start: int) -> None:
        """Delete the records before this offset, as retention does."""
        self.model.start = start
        while self.batches and self.batches[0].end <= start:
            del self.batches[0], self.model._bases[0]

    def damage(self, which: int, at: int, new: bytes) -> None:
        """Overwrite bytes of a batch; a negative position counts from its end."""
        data = self.batches[which].data
        at %= len(data)
        self.batches[which] = self.batches[which]._replace(data=data[:at] + new + data[at + len(new) :])
