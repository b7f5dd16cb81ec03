"""What the client knows of the cluster: nodes, topics, leaders. Data and small rules, no requests.

Rules:
- A partition's leader is taken over only with a leader epoch that is not older than the one known (KIP-320); from an
  answer that is not about metadata, only with a newer one (KIP-951).
- A zero topic id means that it is not known: an old broker of a mixed cluster, or old metadata. Only two ids that are
  known and differ are two topics of the same name, one made after the other.
- A topic that was recreated has another `Topic.incarnation`: another id; or, from brokers before 2.8, which have no
  ids, a leader epoch that falls, or a topic that was gone from the metadata.
- A topic that is gone from an answer that asked for it, or answered with an error, is not known; its error is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.codec.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.codec.wire import NO_UUID
from ottla.errors import ConnectionLost, InconsistentClusterId, LeaderNotAvailable, OttlaError, broker_error
from ottla.sdk.events import Node

if TYPE_CHECKING:
    from uuid import UUID

TopicPartition = tuple[str, int]


_FALLS = 3
"""Answers in a row with lower leader epochs than before, after which those leaders are taken over."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as the metadata have it; ``leader`` is -1 while there is none."""

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
    """Another number for each topic of this name, one made after the other."""

    @property
    def extent(self) -> str:
        """Which partitions it has, for errors about one that it does not have."""
        return f"{self.name!r} has partitions 0 to {len(self.partitions) - 1}"


@dataclass(slots=True)
class Cluster:
    """The latest metadata, merged."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    """Error codes of topics that were asked for and could not be had."""
    _gone: dict[str, Topic] = field(default_factory=dict)
    """Topics that are not known any more, as they were."""
    _incarnations: int = 0
    _recreated: set[str] = field(default_factory=set)
    """Topics that have been another one of the same name."""
    _fallen: dict[str, int] = field(default_factory=dict)
    """Topics without ids whose leader epochs are lower than they were, and in how many answers in a row."""

    def leader(self, topic: str, partition: int) -> Node | None:
        """The node that leads the partition, as far as it is known."""
        known = self.topics.get(topic)
        place = known.partitions.get(partition) if known else None
        return self.nodes.get(place.leader) if place else None

    def leader_epoch(self, topic: str, partition: int) -> int:
        """-1 where it is not known, which skips the broker's check."""
        known = self.topics.get(topic)
        place = known.partitions.get(partition) if known else None
        return place.leader_epoch if place else -1

    def topic_id(self, topic: str) -> "UUID":
        """`NO_UUID` where it is not known."""
        known = self.topics.get(topic)
        return known.topic_id if known else NO_UUID

    def incarnation(self, topic: str) -> int:
        """-1 where the topic is not known."""
        known = self.topics.get(topic)
        return known.incarnation if known else -1

    def drop(self, topic: str) -> None:
        """The topic is gone, for now or for good."""
        if known := self.topics.pop(topic, None):
            self._gone[topic] = known

    def forget(self, topic: str) -> None:
        """Nobody needs to know the topic."""
        self.topics.pop(topic, None)
        self.errors.pop(topic, None)
        self._gone.pop(topic, None)
        self._recreated.discard(topic)

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Of each partition of these topics the racks of the nodes that have a replica, as far as theirs are known."""
        racks = {node.id: node.rack for node in self.nodes.values() if node.rack}
        return {
            (name, partition): frozenset(racks[node] for node in place.replicas if node in racks)
            for name in topics
            if (known := self.topics.get(name))
            for partition, place in known.partitions.items()
        }

    def moved(self, topic: str, partition: int, leader: int, leader_epoch: int, nodes: Iterable[Node]) -> bool:
        """Take over what the answer to Produce or Fetch says of a new leader (KIP-951); whether that was news.

        ``nodes`` are those that the answer gives addresses of.
        """
        known = self.topics.get(topic)
        place = known.partitions.get(partition) if known else None
        if known is None or place is None or leader < 0 or leader_epoch <= place.leader_epoch:
            return False
        if topic in self._recreated:
            return False  # by name, a broker that is behind may speak of the old one, whose epochs were higher
        self.nodes |= {each.id: each for each in nodes}
        known.partitions[partition] = replace(place, leader=leader, leader_epoch=leader_epoch)
        return leader in self.nodes

    def refusal(self, answer: MetadataResponse) -> OttlaError | None:
        """Why nothing can be learned from ``answer``, whatever it was about; `None` if it is as it should be."""
        if answer.error_code:
            return broker_error(answer.error_code)
        if not answer.brokers:  # it has just started, and does not even know itself
            return ConnectionLost("it knows no broker yet")
        if None not in (self.cluster_id, answer.cluster_id) and self.cluster_id != answer.cluster_id:
            what = f"it belongs to cluster {answer.cluster_id!r}, and this client to {self.cluster_id!r}"
            return InconsistentClusterId(what)
        return None

    def update(self, answer: MetadataResponse) -> None:
        self.cluster_id = answer.cluster_id or self.cluster_id  # brokers before 0.10.1 do not say
        self.controller_id = answer.controller_id
        self.nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
        for each in answer.topics:
            if each.name is None:
                continue
            if error_code := each.error_code or (0 if each.partitions else LeaderNotAvailable.code):  # not made yet
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
            known = None  # its epochs start over
        recreated = last is None or self._is_recreated(last, topic_id, answer, gone=before is not None)
        falls = self._fallen.pop(name, 0)
        if recreated and known:  # without ids; one answer may be that of a broker which is behind
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
            known = known or last  # back again, and its epochs go on
        partitions = {}
        for each in answer.partitions:
            new = _partition(each)
            old = known.partitions.get(new.partition) if known else None
            partitions[new.partition] = old if old and old.leader_epoch > new.leader_epoch >= 0 else new
        return Topic(name, topic_id, answer.is_internal, partitions, incarnation)

    def _is_recreated(self, last: Topic, topic_id: "UUID", answer: MetadataResponseTopic, *, gone: bool) -> bool:
        """Whether the topic is another one than the ``last`` of its name."""
        if NO_UUID not in (last.topic_id, topic_id):
            return last.topic_id != topic_id
        return gone or any(
            0 <= each.leader_epoch < last.partitions[each.partition_index].leader_epoch
            for each in answer.partitions
            if each.partition_index in last.partitions
        )


def _partition(answer: MetadataResponsePartition) -> Partition:
    return Partition(
        answer.partition_index, answer.leader_id, answer.leader_epoch, answer.replica_nodes, answer.isr_nodes
    )
