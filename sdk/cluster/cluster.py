"""The client's view of the cluster: nodes, topics, leaders. Holds data and small rules, and sends no requests.

Rules:
- The client accepts a partition's leader only if its leader epoch is not older than the known one (KIP-320). A leader
  named in a Produce or Fetch response must have a newer epoch (KIP-951).
- A zero topic id means "unknown": the broker is an old one in a mixed cluster, or its metadata is old. Only two known
  ids that differ mean that the topic was deleted and recreated.
- A recreated topic gets a new `Topic.incarnation`. The sign is a new id; for brokers before 2.8, which have no ids, it
  is a lower leader epoch, or a topic that was missing from the metadata for a time.
- A topic is unknown if a response leaves it out although it was requested, or returns an error for it. The error is
  kept.
"""

from collections.abc import Iterable
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ottla.codec.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.codec.wire import NO_UUID
from ottla.errors import ConnectionLost, InconsistentClusterId, LeaderNotAvailable, OttlaError, broker_error
from ottla.late_dataclass import dataclass
from ottla.sdk.events import Node

if TYPE_CHECKING:
    from uuid import UUID

TopicPartition = tuple[str, int]


_FALLS = 3
"""After this many consecutive responses with lower leader epochs than before, the client accepts their leaders."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as the metadata describes it; ``leader`` is -1 while it is leaderless."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: "UUID"
    internal: bool
    partitions: dict[int, Partition]
    incarnation: int = 0
    """A number that differs each time a topic of this name is recreated."""

    @property
    def extent(self) -> str:
        """Says which partitions exist; used in errors about a partition that does not."""
        return f"{self.name!r} has partitions 0 to {len(self.partitions) - 1}"


def is_another(one: "UUID", other: "UUID") -> bool:
    """Whether these are the ids of two topics, perhaps of the same name; zero is unknown, and proves nothing."""
    return NO_UUID not in (one, other) and one != other


@dataclass(slots=True)
class Cluster:
    """Merges metadata responses and holds the result."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    """Error codes of requested topics that brokers did not return."""
    _gone: dict[str, Topic] = field(default_factory=dict)
    """The last known state of topics that are unknown now."""
    _incarnations: int = 0
    _recreated: set[str] = field(default_factory=set)
    """Topics that were recreated since the client first learned of them."""
    _fallen: dict[str, int] = field(default_factory=dict)
    """Topics without ids whose leader epochs fell, and in how many consecutive responses they were lower."""

    def leader(self, topic: str, partition: int) -> Node | None:
        """The node that leads the partition, or ``None`` if it is unknown."""
        known = self.topics.get(topic)
        place = known.partitions.get(partition) if known else None
        return self.nodes.get(place.leader) if place else None

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch, or -1 if it is unknown: the broker then skips its check."""
        known = self.topics.get(topic)
        place = known.partitions.get(partition) if known else None
        return place.leader_epoch if place else -1

    def topic_id(self, topic: str) -> "UUID":
        """The topic's id, or `NO_UUID` if it is unknown."""
        known = self.topics.get(topic)
        return known.topic_id if known else NO_UUID

    def incarnation(self, topic: str) -> int:
        """The topic's incarnation, or -1 if the topic is unknown."""
        known = self.topics.get(topic)
        return known.incarnation if known else -1

    def drop(self, topic: str) -> None:
        """Treat the topic as unknown, but keep its last state to compare with if it comes back."""
        if known := self.topics.pop(topic, None):
            self._gone[topic] = known

    def forget(self, topic: str) -> None:
        """Delete all that is known about the topic."""
        self.topics.pop(topic, None)
        self.errors.pop(topic, None)
        self._gone.pop(topic, None)
        self._recreated.discard(topic)

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """For each partition of these topics, the racks of its replicas; nodes whose rack is unknown are left out."""
        racks = {node.id: node.rack for node in self.nodes.values() if node.rack}
        return {
            (name, partition): frozenset(racks[node] for node in place.replicas if node in racks)
            for name in topics
            if (known := self.topics.get(name))
            for partition, place in known.partitions.items()
        }

    def moved(self, topic: str, partition: int, leader: int, leader_epoch: int, nodes: Iterable[Node]) -> bool:
        """Accept the new leader that a Produce or Fetch response names (KIP-951); return whether it can be used.

        Args:
            nodes: the nodes whose addresses the response gives.
        """
        known = self.topics.get(topic)
        place = known.partitions.get(partition) if known else None
        if known is None or place is None or leader < 0 or leader_epoch <= place.leader_epoch:
            return False
        if topic in self._recreated:
            # The response may name the topic without its id, and come from a broker with outdated metadata. It may then
            # mean the deleted topic, whose leader epochs were higher.
            return False
        self.nodes |= {each.id: each for each in nodes}
        known.partitions[partition] = replace(place, leader=leader, leader_epoch=leader_epoch)
        return leader in self.nodes

    def refusal(self, answer: MetadataResponse) -> OttlaError | None:
        """The reason to ignore the whole of ``answer``, whatever was requested; `None` if it can be used."""
        if answer.error_code:
            return broker_error(answer.error_code)
        if not answer.brokers:  # the broker has just started and does not even know itself
            return ConnectionLost("it knows no broker yet")
        if None not in (self.cluster_id, answer.cluster_id) and self.cluster_id != answer.cluster_id:
            what = f"it belongs to cluster {answer.cluster_id!r}, and this client to {self.cluster_id!r}"
            return InconsistentClusterId(what)
        return None

    def update(self, answer: MetadataResponse) -> None:
        self.cluster_id = answer.cluster_id or self.cluster_id  # brokers before 0.10.1 send no cluster id
        self.controller_id = answer.controller_id
        self.nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
        for each in answer.topics:
            if each.name is None:
                continue
            # A topic without partitions is still being created.
            if error_code := each.error_code or (0 if each.partitions else LeaderNotAvailable.code):
                self.errors[each.name] = error_code
                self.drop(each.name)
            else:
                self.errors.pop(each.name, None)
                self.topics[each.name] = self._merged(each.name, each)

    def _merged(self, name: str, answer: MetadataResponseTopic) -> Topic:
        known, before = self.topics.get(name), self._gone.pop(name, None)
        topic_id = answer.topic_id
        last = known or before
        if known and topic_id == NO_UUID:
            topic_id = known.topic_id
        elif known and known.topic_id not in (NO_UUID, topic_id):
            known = None  # leader epochs of the recreated topic start at 0 again
        recreated = last is None or self._is_recreated(last, topic_id, answer, gone=before is not None)
        falls = self._fallen.pop(name, 0)
        # Without ids, a single response with lower epochs may come from a broker with outdated metadata.
        if recreated and known:
            falls += 1
            if falls < _FALLS:
                self._fallen[name] = falls
            else:
                known = None
        if last is None or (recreated and falls < 2):
            self._incarnations += 1
            incarnation = self._incarnations
            if last is not None:
                self._recreated.add(name)
        else:
            incarnation = last.incarnation
        if not recreated:
            known = known or last  # the same topic is back, so its leader epochs still count
        partitions = {}
        for each in answer.partitions:
            new = _partition(each)
            old = known.partitions.get(new.partition) if known else None
            partitions[new.partition] = old if old and old.leader_epoch > new.leader_epoch >= 0 else new
        return Topic(name, topic_id, answer.is_internal, partitions, incarnation)

    def _is_recreated(self, last: Topic, topic_id: "UUID", answer: MetadataResponseTopic, *, gone: bool) -> bool:
        """Whether the topic was recreated after ``last``, the previous one of its name."""
        if NO_UUID not in (last.topic_id, topic_id):
            return is_another(last.topic_id, topic_id)
        return gone or any(
            0 <= each.leader_epoch < last.partitions[each.partition_index].leader_epoch
            for each in answer.partitions
            if each.partition_index in last.partitions
        )


def _partition(answer: MetadataResponsePartition) -> Partition:
    return Partition(
        answer.partition_index, answer.leader_id, answer.leader_epoch, answer.replica_nodes, answer.isr_nodes
    )
