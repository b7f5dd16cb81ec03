"""What the proxy knows of upstream: nodes, their ports here, and topics with their leaders.

Learnt from every Metadata answer that passes, a client's or the proxy's own; of a client's long ones the nodes alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.codec.apis.metadata import MetadataResponse, MetadataResponseTopic
from ottla.codec.apis.produce import NodeEndpoint
from ottla.codec.wire import NO_UUID
from ottla.errors import UnknownTopicOrPartition
from ottla.proxy.events import Action, Address, Listen

if TYPE_CHECKING:
    from uuid import UUID

NO_LEADER = -1
_MISSING = 15.0
"""Seconds after which a topic that upstream does not know is gone."""
_FORMER_IDS = 8
"""Of a topic, that are remembered."""
_LISTEN_AGAIN = 5.0
"""Seconds after which a port that could not be opened is tried again."""


@dataclass(slots=True)
class Topic:
    """A topic as upstream described it last."""

    topic_id: "UUID"
    leaders: dict[int, int]
    """Partition -> node; `NO_LEADER` where there is none at the moment."""
    whole: bool = False
    """It has no id only if upstream gives it none."""
    former: tuple["UUID", ...] = ()
    """The ids of those of its name that were there before it."""
    named_at: float = field(default=0.0, compare=False)
    """When an answer named its id last."""


class Cluster:
    """The nodes and topics of upstream.

    Answers have no order, and a node may lag behind. So an answer that names an id that was replaced is not believed,
    as long as others name the present one; nor that a topic of one id has fewer partitions than before.

    Args:
        host: what clients are told for every node.
    """

    def __init__(self, actions: list[Action], host: str) -> None:
        self.host = host
        self.nodes: dict[int, Address] = {}
        """Node -> where upstream says it is."""
        self.ports: dict[int, int] = {}
        """Node -> the port that clients are told for it."""
        self.topics: dict[str, Topic] = {}
        self._missing: dict[str, tuple[float, float]] = {}
        """Topic, of those that upstream had -> since when it says that there is no such, and when it said so last."""
        self.changes = 0
        """Counts up whenever a leader or a topic's id has changed."""
        self._actions = actions
        self._asked: dict[int, float] = {}
        """Node -> when its port may be asked for again."""

    def learn(self, metadata: MetadataResponse, now: float, *, newest: bool = False) -> None:
        """Take over what an answer says; ports for new nodes are asked for.

        Args:
            newest: it has the newest version that upstream and the proxy know; others may leave out the topics' ids.
        """
        for broker in sorted(metadata.brokers, key=lambda broker: broker.node_id):
            self.nodes[broker.node_id] = (broker.host, broker.port)
            if broker.node_id not in self.ports and now >= self._asked.get(broker.node_id, 0.0):
                self._asked[broker.node_id] = now + _LISTEN_AGAIN
                self._actions.append(Listen(broker.node_id))
        for topic in metadata.topics:
            if topic.name is not None and topic.partitions:
                known = self.topics.get(topic.name)
                if known is not None and topic.topic_id in known.former and now < known.named_at + _MISSING:
                    continue
                described = _described(topic, known, now)
                described.whole = newest or (known is not None and known.whole)
                if known != described:
                    self.changes += 1
                    self.topics[topic.name] = described
                elif known is not None:
                    known.named_at = described.named_at
                self._missing.pop(topic.name, None)
            elif topic.name in self.topics and topic.error_code == UnknownTopicOrPartition.code:
                since, last = self._missing.get(topic.name, (now, now))
                self._missing[topic.name] = since if now - last < _MISSING else now, now

    def listening(self, node: int, port: int | None) -> None:
        """A port was opened, or could not be."""
        if port is not None:
            self.ports[node] = port

    def is_described(self, topic: str) -> bool:
        """All is known that upstream has to say of a topic."""
        known = self.topics.get(topic)
        return known is not None and (known.whole or known.topic_id != NO_UUID)

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition, as far as known."""
        known = self.topics.get(topic)
        return known.leaders.get(partition, NO_LEADER) if known else NO_LEADER

    def is_gone(self, topic: str, partition: int, now: float) -> bool:
        """The topic was deleted, or recreated with fewer partitions (they never become fewer otherwise).

        A node that has just started may not know a topic, but not for long; so upstream has to have said it for a
        while.
        """
        known = self.topics.get(topic)
        fewer = known is not None and partition not in known.leaders
        since, last = self._missing.get(topic, (now, now))
        return fewer or last - since >= _MISSING

    def point_here(self, metadata: MetadataResponse) -> None:
        """Replace the brokers' addresses by the proxy's; brokers without a port here are left out."""
        kept = tuple(broker for broker in metadata.brokers if broker.node_id in self.ports)
        for broker in kept:
            broker.host, broker.port = self.host, self.ports[broker.node_id]
        metadata.brokers = kept

    def endpoints_here(self, endpoints: Iterable[NodeEndpoint]) -> tuple[NodeEndpoint, ...]:
        """Hints where new leaders are, with the proxy's addresses."""
        return tuple(
            NodeEndpoint(node_id=each.node_id, host=self.host, port=self.ports[each.node_id], rack=each.rack)
            for each in endpoints
            if each.node_id in self.ports
        )


def _described(topic: MetadataResponseTopic, known: Topic | None, now: float) -> Topic:
    """What an answer says; the id that is ``known`` stands in where the answer's version has none."""
    leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    if known is None:
        return Topic(topic.topic_id, leaders, named_at=now)
    if topic.topic_id == NO_UUID:
        topic_id, named_at = known.topic_id, known.named_at
    else:
        topic_id, named_at = topic.topic_id, now
    if topic_id == known.topic_id:
        if topic_id != NO_UUID:
            leaders = known.leaders | leaders
        return Topic(topic_id, leaders, former=known.former, named_at=named_at)
    former = tuple(each for each in known.former if each != topic_id)
    if known.topic_id != NO_UUID:
        former = (*former, known.topic_id)[-_FORMER_IDS:]
    return Topic(topic_id, leaders, former=former, named_at=named_at)
