"""Keeps the metadata of upstream: its brokers, their ports on the proxy, and topics with their leaders.

It learns from every Metadata response, the proxy's own and those for clients; from long ones for clients it learns
only the brokers.
"""

import logging
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ottla.codec.apis.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ottla.codec.apis.produce import NodeEndpoint
from ottla.codec.apis.share_acknowledge import NodeEndpoint as AcknowledgeEndpoint
from ottla.codec.apis.share_fetch import NodeEndpoint as ShareFetchEndpoint
from ottla.codec.wire import NO_UUID
from ottla.errors import UnknownTopicOrPartition
from ottla.proxy.events import Action, Address, Listen

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.proxy")

E = TypeVar("E", NodeEndpoint, ShareFetchEndpoint, AcknowledgeEndpoint, MetadataResponseBroker)

NO_LEADER = -1
_MISSING = 15.0
"""Seconds for which upstream must say that a topic is unknown before the proxy takes it as deleted."""
_FORMER_IDS = 8
"""How many replaced ids of a topic the proxy remembers."""
_UNNAMED = 5.0
"""Seconds for which upstream must not name a broker before the proxy forgets its address."""
_MOST_NAMES = 200_000
_LISTEN_AGAIN = 5.0
"""Seconds between attempts to open a broker's port."""


@dataclass(frozen=True, slots=True)
class UpstreamTopic:
    """A topic as upstream last described it."""

    topic_id: "UUID"
    leaders: dict[int, int]
    """Partition -> leader; `NO_LEADER` for a leaderless partition."""
    whole: bool = False
    """The newest metadata version has described it: if it has no id, upstream gives it none."""
    former: tuple["UUID", ...] = ()
    """The ids of deleted topics that had the same name."""
    named_at: float = field(default=0.0, compare=False)
    """When a response last named its id."""


class UpstreamCluster:
    """Tracks the brokers and topics of upstream.

    Responses arrive in no particular order, and a broker's metadata may be old. So a response with a replaced topic id
    is ignored while others name the current id, and a topic never loses partitions unless its id changes.

    A broker that upstream stops naming is down or decommissioned. Its address is forgotten, because connecting to it
    may take as long as a timeout. Its port stays: it may come back.

    Args:
        hosts: the host that clients get for every broker, for each listener.
    """

    def __init__(self, actions: list[Action], hosts: Sequence[str]) -> None:
        self.hosts = tuple(hosts)
        self.nodes: dict[int, Address] = {}
        """Node id -> the address that upstream gives."""
        self._unnamed: dict[int, float] = {}
        """Node id -> since when responses to the proxy do not name it."""
        self.ports: dict[int, tuple[int, ...]] = {}
        """Node id -> the port that clients get, for each listener."""
        self.topics: dict[str, UpstreamTopic] = {}
        self._missing: dict[str, tuple[float, float]] = {}
        """Known topic -> when upstream first said that it is unknown, and when it last said so."""
        self.names: dict[UUID, str] = {}
        """Topic id -> name, of the last `_MOST_NAMES` topics that a response named. It never changes."""
        self.changes = 0
        """Goes up whenever a leader or a topic's id changes."""
        self._actions = actions
        self._asked: dict[int, float] = {}
        """Node id -> when its port may be requested again."""

    def learn(self, metadata: MetadataResponse, now: float, *, newest: bool = False) -> None:
        """Take over a Metadata response, and request ports for new brokers.

        Args:
            newest: it has the newest version that upstream and the proxy share; older ones may lack topic ids.
        """
        for broker in metadata.brokers:
            self.nodes[broker.node_id] = (broker.host, broker.port)
            self._unnamed.pop(broker.node_id, None)
        self.request_ports((broker.node_id for broker in metadata.brokers), now)
        if newest and metadata.brokers:
            self._forget_all_but({broker.node_id for broker in metadata.brokers}, now)
        self.learn_names(metadata.topics)
        for topic in metadata.topics:
            if topic.name is not None and topic.partitions:
                known = self.topics.get(topic.name)
                if known is not None and topic.topic_id in known.former and now < known.named_at + _MISSING:
                    continue
                whole = newest or (known is not None and known.whole)
                described = _described(topic, known, now, whole=whole)
                self.changes += known != described
                self.topics[topic.name] = described
                self._missing.pop(topic.name, None)
            elif topic.name in self.topics and topic.error_code == UnknownTopicOrPartition.code:
                since, last = self._missing.get(topic.name, (now, now))
                self._missing[topic.name] = since if now - last < _MISSING else now, now

    def learn_names(self, topics: Iterable[MetadataResponseTopic]) -> None:
        """Remember the names of topic ids."""
        for topic in topics:
            if topic.name is not None and topic.topic_id != NO_UUID:
                self.names[topic.topic_id] = topic.name
        while len(self.names) > _MOST_NAMES:
            del self.names[next(iter(self.names))]

    def request_ports(self, nodes: Iterable[int], now: float) -> None:
        """Request a port for each of these nodes that has none."""
        for node in sorted(nodes):
            if node not in self.ports and now >= self._asked.get(node, 0.0):
                self._asked[node] = now + _LISTEN_AGAIN
                self._actions.append(Listen(node))

    def _forget_all_but(self, named: Set[int], now: float) -> None:
        """Forget the brokers that upstream has not named for some seconds."""
        for node in self.nodes.keys() - named:
            if now >= self._unnamed.setdefault(node, now) + _UNNAMED:
                del self.nodes[node], self._unnamed[node]
                log.info("broker is not named by upstream any more", extra={"node": node})

    def listening(self, node: int, ports: tuple[int, ...] | None) -> None:
        """Take the ports that were opened for a broker, one for each listener; ``None`` if that failed."""
        if ports is not None:
            self.ports[node] = ports

    def is_described(self, topic: str) -> bool:
        """Whether the topic's metadata is complete: its id is known, or upstream gives it none."""
        known = self.topics.get(topic)
        return known is not None and (known.whole or known.topic_id != NO_UUID)

    def leader(self, topic: str, partition: int) -> int:
        """The leader of a partition; `NO_LEADER` if it is unknown."""
        known = self.topics.get(topic)
        return known.leaders.get(partition, NO_LEADER) if known else NO_LEADER

    def is_gone(self, topic: str, partition: int, now: float) -> bool:
        """Whether the topic was deleted, or recreated with fewer partitions (a topic never loses partitions otherwise).

        A broker that has just started may not know a topic for a short time, so upstream must say it for a while.
        """
        known = self.topics.get(topic)
        fewer = known is not None and partition not in known.leaders
        since, last = self._missing.get(topic, (now, now))
        return fewer or last - since >= _MISSING

    def is_missing(self, topic: str) -> bool:
        """Whether the newest response about a known topic said that it is unknown."""
        return topic in self._missing

    def address_here(self, node: int, listener: int) -> Address | None:
        """The address of a broker that clients of a listener get; ``None`` if the proxy has no port for it."""
        ports = self.ports.get(node)
        return None if ports is None else (self.hosts[listener], ports[listener])

    def pointing_here(self, metadata: MetadataResponse, listener: int) -> MetadataResponse:
        """Replace the brokers' addresses with the proxy's, and leave out brokers without a port here."""
        return replace(metadata, brokers=self.endpoints_here(metadata.brokers, listener))

    def endpoints_here(self, endpoints: Iterable[E], listener: int) -> tuple[E, ...]:
        """Replace addresses of brokers with the proxy's, and leave out those without a port here.

        In hints about new leaders, clients ask Metadata for those that are left out.
        """
        here = ((each, self.address_here(each.node_id, listener)) for each in endpoints)
        return tuple(replace(each, host=address[0], port=address[1]) for each, address in here if address is not None)


def _described(topic: MetadataResponseTopic, known: UpstreamTopic | None, now: float, *, whole: bool) -> UpstreamTopic:
    """The topic as a response describes it; a response without topic ids keeps the known id."""
    leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    if known is None:
        return UpstreamTopic(topic.topic_id, leaders, whole, named_at=now)
    if topic.topic_id == NO_UUID:
        topic_id, named_at = known.topic_id, known.named_at
    else:
        topic_id, named_at = topic.topic_id, now
    if topic_id == known.topic_id:
        if topic_id != NO_UUID:
            leaders = known.leaders | leaders
        return UpstreamTopic(topic_id, leaders, whole, known.former, named_at)
    former = tuple(each for each in known.former if each != topic_id)
    if known.topic_id != NO_UUID:
        former = (*former, known.topic_id)[-_FORMER_IDS:]
    return UpstreamTopic(topic_id, leaders, whole, former, named_at)
