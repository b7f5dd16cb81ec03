"""A model cluster that keeps Kafka's promises, and otherwise fails in every way that they allow.

It is written for these tests alone and shares no code with brokerlite, so that a mistake in our broker cannot hide one
in our client.

Rules:
- Records below a high watermark are on every node and are never lost. A new leader may truncate the old leader's
  further records, in part or in whole.
- The cluster knows a new leader at once, its nodes learn of it one by one. Each answers Metadata by its own knowledge,
  and a deposed leader that does not know it goes on for a while.
- A node that crashes, sleeps or is cut off from the others is noticed after a while, and its partitions move.
- The leader of the group's partition of `__consumer_offsets` coordinates the group; likewise for transactional ids, if
  the world has `transactions`.

Source: KRaftMetadataCache.java, ReplicationControlManager.java, Partition.scala.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.codec.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.codec.apis.describe_configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.codec.apis.describe_producers import DescribeProducersRequest
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.find_coordinator import (
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_offsets import ListOffsetsRequest
from ottla.codec.apis.list_transactions import ListTransactionsRequest
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.codec.apis.share_fetch import ShareFetchRequest
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.codec.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.codec.wire import NO_UUID, Buffer
from ottla.errors import (
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tests.sim.clock import Clock
from tests.sim.data import Leaders, Place
from tests.sim.groups import Coordinators, refusal
from tests.sim.history import History
from tests.sim.log import PartitionLog
from tests.sim.network import PORT, Network, Reply
from tests.sim.share_groups import ShareGroups
from tests.sim.transactions import PARTITIONS as STATE_PARTITIONS
from tests.sim.transactions import STATE, Transactions

OFFSETS = "__consumer_offsets"
RELEASES: dict[str, dict[int, tuple[int, int]]] = {
    "1.0": {0: (0, 5), 1: (0, 6), 2: (0, 2), 3: (0, 5), 8: (0, 3), 9: (0, 3), 10: (0, 1), 11: (0, 2)}
    | {12: (0, 1), 13: (0, 1), 14: (0, 1), 18: (0, 1), 19: (0, 2), 20: (0, 1), 22: (0, 0), 23: (0, 0)}
    | {17: (0, 1), 32: (0, 0), 36: (0, 0)},
    "2.1": {0: (0, 7), 1: (0, 10), 2: (0, 4), 3: (0, 7), 8: (0, 6), 9: (0, 5), 10: (0, 2), 11: (0, 3)}
    | {12: (0, 2), 13: (0, 2), 14: (0, 2), 18: (0, 2), 19: (0, 3), 20: (0, 3), 22: (0, 1), 23: (0, 2)}
    | {17: (0, 1), 32: (0, 2), 36: (0, 0)},
    "2.8": {0: (0, 9), 1: (0, 12), 2: (0, 6), 3: (0, 11), 8: (0, 8), 9: (0, 7), 10: (0, 3), 11: (0, 7)}
    | {12: (0, 4), 13: (0, 4), 14: (0, 5), 18: (0, 3), 19: (0, 7), 20: (0, 6), 22: (0, 4), 23: (0, 4)}
    | {17: (0, 1), 24: (0, 3), 25: (0, 3), 26: (0, 3), 28: (0, 3)}
    | {32: (0, 4), 36: (0, 2), 61: (0, 0)},
    "3.9": {0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 8: (0, 9), 9: (0, 9), 10: (0, 6), 11: (0, 9)}
    | {12: (0, 4), 13: (0, 5), 14: (0, 5), 18: (0, 4), 19: (0, 7), 20: (0, 6), 22: (0, 5), 23: (0, 4)}
    | {17: (0, 1), 24: (0, 5), 25: (0, 4), 26: (0, 4), 28: (0, 4)}
    | {32: (0, 4), 36: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 1)},
    "4.3": {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9)}
    | {12: (0, 4), 13: (0, 5), 14: (0, 5), 18: (0, 4), 19: (2, 7), 20: (1, 6), 22: (0, 5), 23: (2, 4)}
    | {17: (0, 1), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}
    | {32: (1, 4), 36: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 1)},
}
"""Per release of Kafka, the API versions that the model serves."""
MODERN_GROUPS = {68: (0, 1)}
"""The API versions of the group protocol of KIP-848."""
TRANSACTION_VERSIONS = {"4.3": 2}
"""Per release, the finalized level of the feature `transaction.version`."""


class Leadership(NamedTuple):
    node: int
    """-1: no leader."""
    epoch: int


@dataclass(slots=True)
class Node:
    """One broker, and its own knowledge of the cluster."""

    number: int
    up: bool = True
    asleep: bool = False
    cut_off: bool = False
    """Clients can reach it, but the other nodes cannot."""
    leaders: dict[Place, Leadership] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)
    brokers: list[int] = field(default_factory=list)
    frozen: dict[Place, int] = field(default_factory=dict)
    """Partitions that it was deposed from without knowing it, and the high watermark that it last knew."""

    @property
    def healthy(self) -> bool:
        return self.up and not self.asleep and not self.cut_off


class ModelCluster:
    """
    Args:
        topics: the number of partitions of each topic.
        release: one of `RELEASES`.
        transactions: there are transaction coordinators.
        first: the number of the first node.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Random,
        network: Network,
        history: History,
        topics: dict[str, int],
        nodes: int,
        release: str,
        *,
        transactions: bool = False,
        first: int = 1,
    ) -> None:
        self.clock, self._chance, self.network, self._history = clock, chance, network, history
        self.release = RELEASES[release]
        self.transaction_version = TRANSACTION_VERSIONS.get(release, 0)
        self.verifies = release >= "3.9"
        """Before they append, leaders verify that a partition belongs to the transaction (KIP-890)."""
        self.epochs_rise = release >= "4"
        """The cluster knows transactions that bump epochs, and checks epochs more strictly (KIP-890)."""
        self.nodes = {number: Node(number) for number in range(first, first + nodes)}
        self.ids = {name: UUID(int=7 + index) for index, name in enumerate([*topics, OFFSETS, STATE])}
        self._named = {each: name for name, each in self.ids.items()}
        """Id -> name of every topic, also of deleted ones."""
        self.buried: dict[Place, list[PartitionLog]] = {}
        """Logs of deleted topics."""
        self._next_id = 1000
        self._counts = dict(topics)
        places: list[Place] = [(name, index) for name, count in topics.items() for index in range(count)]
        places += [(OFFSETS, index) for index in range(2)]
        places += [(STATE, index) for index in range(STATE_PARTITIONS) if transactions]
        self.leaders = {place: Leadership(first + i % nodes, 0) for i, place in enumerate(places)}
        self._strict = release < "2.5"
        self.logs = {place: PartitionLog(strict=self._strict) for place in places}
        self.lagging: dict[Place, tuple[int, float]] = {}
        """The high watermark that a new leader knows, and until when it is behind."""
        self.addresses: dict[int, tuple[str, int]] = {}
        """The nodes with another host and port than usual."""
        self.cluster_id: str | None = "model"
        """``None``: brokers do not name their cluster."""
        self.ids_denied_until = 0.0
        """Until then the cluster denies all clients producer ids."""
        self.ghost = ""
        """A deleted topic that nodes still list, and do not know when a client asks for it alone."""
        self.creatable: dict[str, int] = {}
        """Topics that are created when a client asks for them with auto creation, and their numbers of partitions."""
        self._fenced: set[int] = set()
        self._producer_ids = 1000
        self.data = Leaders(self, chance)
        self.data.strict = self._strict
        self.groups = Coordinators(self, chance, history)
        self.shares = ShareGroups(self, history)
        self.group_version = 0
        """The finalized level of the feature `group.version`."""
        self.older: set[int] = set()
        """Nodes of a release without the group protocol of KIP-848, before their upgrade."""
        self.unaware: set[int] = set()
        """Nodes that do not know the level of `group.version` yet."""
        self.transactions = Transactions(self, type(chance)(chance.getrandbits(32)) if transactions else chance)
        for node in self.nodes:
            self._learn(node)

    def serve_consumer_groups(self, session: float, interval: float, pause: float, *, strict: bool) -> None:
        """Have the group protocol of KIP-848, with these timeouts in seconds; `ModernCoordinator` explains them."""
        self.group_version = 1
        self.release = self.release | {15: (0, 6)} | MODERN_GROUPS
        modern = self.groups.modern
        modern.session, modern.interval, modern.pause, modern.strict = session, interval, pause, strict

    def begin_upgrade(self) -> None:
        """Begin with nodes of an older release, without that protocol."""
        self.older, self.unaware = set(self.nodes), set(self.nodes)

    def serve_share_groups(self, session: float, interval: float, lock: float) -> None:
        """Have share groups (KIP-932), with these timeouts in seconds."""
        self.release = self.release | {76: (1, 1), 78: (1, 2), 79: (1, 2)}
        self.shares.session, self.shares.interval, self.shares.lock = session, interval, lock

    # -- requests ----------------------------------------------------------------------------------------------------

    def address(self, node: int) -> tuple[str, int]:
        return self.addresses.get(node, (f"n{node}", PORT + node))

    def up(self, node: int) -> bool:
        return node in self.nodes and self.nodes[node].up

    def awake(self, node: int) -> bool:
        return self.up(node) and not self.nodes[node].asleep

    def name(self, topic: Any, node: int | None = None) -> str:
        """The name of the topic in a request, by name or id, as ``node`` knows it."""
        by_id = getattr(topic, "topic_id", NO_UUID)
        ids = self.ids if node is None else self.nodes[node].ids
        return topic_name(topic) if by_id == NO_UUID else _by_id(ids, by_id)

    def ever_named(self, topic: Any) -> str:
        """The name of the topic in a request or an answer, also of a deleted topic."""
        by_id = getattr(topic, "topic_id", NO_UUID)
        return topic_name(topic) if by_id == NO_UUID else self._named[by_id]

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None:
        match message:
            case ApiVersionsRequest():
                reply(self._versions(node, version))
            case MetadataRequest():
                reply(self._metadata(node, version, message))
            case CreateTopicsRequest():
                reply(CreateTopicsResponse(topics=tuple(map(self._made, message.topics))))
            case DeleteTopicsRequest():
                names = message.topic_names or tuple(each.name or "" for each in message.topics)
                reply(DeleteTopicsResponse(responses=tuple(map(self._removed, names))))
            case DescribeConfigsRequest():
                found = tuple(self._configs_of(node, each) for each in message.resources)
                reply(DescribeConfigsResponse(results=found))
            case InitProducerIdRequest(transactional_id=None) if self.clock.now < self.ids_denied_until:
                code = ClusterAuthorizationFailed.code
                reply(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
            case InitProducerIdRequest(transactional_id=None):
                reply(InitProducerIdResponse(error_code=0, producer_id=self.new_producer_id(), producer_epoch=0))
            case (
                InitProducerIdRequest()
                | AddPartitionsToTxnRequest()
                | AddOffsetsToTxnRequest()
                | EndTxnRequest()
                | DescribeTransactionsRequest()
                | ListTransactionsRequest()
            ):
                self.transactions.handle(node, version, message, reply)
            case DescribeProducersRequest():
                reply(self.data.described_producers(node, message))
            case WriteTxnMarkersRequest():
                self.data.write_markers(node, message, reply)
            case FindCoordinatorRequest():
                reply(self._coordinator(node, version, message))
            case ProduceRequest():
                self.data.produce(node, version, message, reply)
            case FetchRequest():
                self.data.fetch(node, version, message, reply)
            case ListOffsetsRequest():
                reply(self.data.offsets(node, version, message))
            case OffsetForLeaderEpochRequest():
                reply(self.data.epoch_ends(node, message))
            case ShareGroupHeartbeatRequest() | ShareFetchRequest() | ShareAcknowledgeRequest():
                self.shares.handle(node, version, message, reply)
            case ConsumerGroupHeartbeatRequest() if node in self.unaware:
                reply(refusal(message, version, UnsupportedVersion.code))
            case _:
                self.groups.handle(node, client, version, message, reply)

    def _versions(self, node: int, version: int) -> Any:
        newest = self.release[18][1]
        keys = tuple(
            ApiVersion(api_key=k, min_version=a, max_version=b)
            for k, (a, b) in self.release.items()
            if node not in self.older or k not in MODERN_GROUPS
        )
        if version > newest:
            return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=keys), 0
        if not self.transaction_version:
            return ApiVersionsResponse(error_code=0, api_keys=keys)
        group_version = 0 if node in self.unaware else self.group_version
        levels = {"transaction.version": self.transaction_version, "group.version": group_version}
        features = tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level
        )
        return ApiVersionsResponse(
            error_code=0,
            api_keys=keys,
            finalized_features_epoch=self.transaction_version,
            finalized_features=features,
        )

    def _metadata(self, node: int, version: int, message: MetadataRequest) -> MetadataResponse:
        known = self.nodes[node]
        topics: dict[str, list[int]] = {}
        for name, index in known.leaders:
            topics.setdefault(name, []).append(index)
        asked = [name for name in topics if name not in (OFFSETS, STATE)]
        if message.topics is not None:
            asked = [each.name or _by_id(known.ids, each.topic_id) for each in message.topics]
            if message.allow_auto_topic_creation:
                self._make_soon(asked)
        topics_there = [self._topic(known, name, topics.get(name, [])) for name in asked]
        if self.ghost and message.topics is None:
            gone = MetadataResponsePartition(
                error_code=0, partition_index=0, leader_id=node, replica_nodes=(), isr_nodes=()
            )
            self.data.features["a topic is listed that is gone"] += 1
            topics_there.append(MetadataResponseTopic(error_code=0, name=self.ghost, partitions=(gone,)))
        return MetadataResponse(
            brokers=tuple(self._broker(n) for n in known.brokers),
            cluster_id=self.cluster_id,
            controller_id=known.brokers[0] if known.brokers else -1,
            topics=tuple(topics_there),
        )

    def _configs_of(self, node: int, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        name = resource.resource_name
        code = 0 if name in self.nodes[node].ids else UnknownTopicOrPartition.code
        values = {"max.message.bytes": str(self.data.max_message_bytes)} | self.data.configs.get(name, {})
        found = tuple(
            DescribeConfigsResourceResult(name=key, value=value, read_only=False, is_sensitive=False)
            for key, value in values.items()
        )
        return DescribeConfigsResult(
            error_code=code, error_message=None, resource_type=TOPIC, resource_name=name, configs=() if code else found
        )

    def _broker(self, node: int) -> MetadataResponseBroker:
        host, port = self.address(node)
        return MetadataResponseBroker(node_id=node, host=host, port=port)

    def _topic(self, known: Node, name: str, indexes: list[int]) -> MetadataResponseTopic:
        if not indexes:
            return MetadataResponseTopic(error_code=UnknownTopicOrPartition.code, name=name, partitions=())
        nodes = tuple(self.nodes)

        def partition(index: int) -> MetadataResponsePartition:
            leader = known.leaders[name, index]
            there = leader.node in known.brokers
            return MetadataResponsePartition(
                error_code=0 if there else LeaderNotAvailable.code,
                partition_index=index,
                leader_id=leader.node if there else -1,
                leader_epoch=leader.epoch,
                replica_nodes=nodes,
                isr_nodes=tuple(known.brokers),
            )

        return MetadataResponseTopic(
            error_code=0,
            name=name,
            topic_id=known.ids[name],
            is_internal=name in (OFFSETS, STATE),
            partitions=tuple(partition(index) for index in sorted(indexes)),
        )

    def _coordinator(self, node: int, version: int, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        known = self.nodes[node]

        def find(key: str) -> Coordinator:
            place = self.transactions.place(key) if message.key_type == TRANSACTION else self.groups.place(key)
            leader = known.leaders.get(place, Leadership(-1, -1)).node
            there = leader in known.brokers
            return Coordinator(
                key=key,
                node_id=leader if there else -1,
                host=self.address(leader)[0] if there else "",
                port=self.address(leader)[1] if there else -1,
                error_code=0 if there else CoordinatorNotAvailable.code,
                error_message=None,
            )

        if version >= 4:
            return FindCoordinatorResponse(coordinators=tuple(find(key) for key in message.coordinator_keys))
        found = find(message.key)
        return FindCoordinatorResponse(
            error_code=found.error_code, node_id=found.node_id, host=found.host, port=found.port
        )

    # -- logs --------------------------------------------------------------------------------------------------------

    def append(self, place: Place, records: Buffer) -> tuple[int, int, int]:
        """Append at the leader: (error code, base offset, end offset); the high watermark follows later."""
        epoch = self.leaders[place].epoch
        code, base, end = self.logs[place].append(records, epoch)
        if not code and end > self.logs[place].high_watermark:
            self.clock.later(
                self._chance.uniform(0.0005, 0.01), partial(self._replicate, place, self.logs[place], epoch, end)
            )
        return code, base, end

    def mark(
        self,
        place: Place,
        producer: tuple[int, int],
        *,
        commits: bool,
        coordinator_epoch: int,
        rises: bool,
        then: Callable[[int], None],
    ) -> None:
        """End a transaction in a partition; ``then(0)`` once the marker is replicated, or refused for good."""
        log, epoch = self.logs[place], self.leaders[place].epoch
        code = log.mark(producer, commits=commits, coordinator_epoch=coordinator_epoch, leader_epoch=epoch, rises=rises)
        if code:  # a newer epoch or coordinator has ended it
            then(0)
            return
        end = log.end
        self.replicate_soon(place)

        def look() -> None:
            if self.logs.get(place) is not log:
                then(0)
            elif self.leaders[place].epoch != epoch:
                then(NotLeaderOrFollower.code)
            elif log.high_watermark < end:
                self.clock.later(0.005, look)
            else:
                if place[0] == OFFSETS:
                    self.groups.transaction_ended(place, producer[0], commits=commits)
                then(0)

        look()

    def note_transaction(self, place: Place, producer_id: int, epoch: int) -> None:
        """Note a transaction's commit of offsets in the log; `Coordinators` keeps the offsets themselves."""
        self.logs[place].note((producer_id, epoch), self.leaders[place].epoch)
        self.replicate_soon(place)

    def replicate_soon(self, place: Place) -> None:
        """Let the high watermark follow the leader's end."""
        log = self.logs[place]
        delay = self._chance.uniform(0.0005, 0.01)
        self.clock.later(delay, partial(self._replicate, place, log, self.leaders[place].epoch, log.end))

    def new_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def _replicate(self, place: Place, log: PartitionLog, epoch: int, end: int) -> None:
        if self.logs.get(place) is not log or self.leaders[place].epoch != epoch:
            return
        leader = self.leaders[place]
        if leader.node == -1 or not self.nodes[leader.node].healthy:
            self.clock.later(0.1, partial(self._replicate, place, log, epoch, end))
            return
        if end > self.logs[place].high_watermark:
            self.logs[place].high_watermark = end
            self.data.replicated(place)

    # -- topics ------------------------------------------------------------------------------------------------------

    def delete(self, topic: str) -> None:
        if self.ids.pop(topic, None) is None:
            return
        for place in [place for place in self.leaders if place[0] == topic]:
            del self.leaders[place]
            self.lagging.pop(place, None)
            self.buried.setdefault(place, []).append(self.logs.pop(place))
        self.data.gone(topic)
        self.groups.forget(topic)
        self.announce()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic; a recreated one gets as many partitions as before."""
        if topic in self.ids:
            return
        self._counts.setdefault(topic, partitions)
        self._next_id += 1
        self.ids[topic] = UUID(int=self._next_id)
        self._named[self.ids[topic]] = topic
        able = [each.number for each in self.nodes.values() if each.healthy and each.number not in self._fenced]
        for index in range(self._counts[topic]):
            self.leaders[topic, index] = Leadership(self._chance.choice(able) if able else -1, 0)
            self.logs[topic, index] = PartitionLog(strict=self._strict)
        self.announce()

    def _make_soon(self, topics: Iterable[str]) -> None:
        """Create topics shortly after the answer, which does not have them yet."""
        for name in [each for each in topics if each in self.creatable and each not in self.ids]:
            self.data.features["a topic comes into being"] += 1
            within = self._chance.choice((0.0, 0.01, 0.5))
            self.clock.later(self._chance.uniform(0.0, within), partial(self.create, name, self.creatable[name]))

    def grow(self, topic: str, more: int) -> None:
        """Add partitions to a topic."""
        first = self._counts[topic]
        self._counts[topic] += more
        able = [each.number for each in self.nodes.values() if each.healthy and each.number not in self._fenced]
        for index in range(first, first + more):
            self.leaders[topic, index] = Leadership(self._chance.choice(able) if able else -1, 0)
            self.logs[topic, index] = PartitionLog(strict=self._strict)
        self.announce()

    def _made(self, topic: CreatableTopic) -> CreatableTopicResult:
        code = TopicAlreadyExists.code if topic.name in self.ids else 0
        self.create(topic.name, topic.num_partitions)
        return CreatableTopicResult(name=topic.name, error_code=self._unsaid(topic.name, code), error_message=None)

    def _removed(self, name: str) -> DeletableTopicResult:
        code = 0 if name in self.ids else UnknownTopicOrPartition.code
        self.delete(name)
        return DeletableTopicResult(name=name, error_code=self._unsaid(name, code))

    def _unsaid(self, name: str, code: int) -> int:
        """Sometimes replace success by REQUEST_TIMED_OUT: the broker stops waiting, but the work is done."""
        timed_out = not code and Random(f"{name} at {self.clock.now}").random() < 0.3
        return RequestTimedOut.code if timed_out else code

    # -- leaders -----------------------------------------------------------------------------------------------------

    def move(self, place: Place, to: int | None = None) -> None:
        """Give a partition another leader, if a node is available."""
        old, log = self.leaders[place], self.logs[place]
        able = [each.number for each in self.nodes.values() if each.healthy and each.number not in self._fenced]
        others = [number for number in able if number != old.node] or able
        new = to if to in able else self._chance.choice(others) if others else -1
        if new == old.node == -1:
            return
        cuts = [log.high_watermark, *(each.end for each in log.batches if each.end > log.high_watermark)]
        kept = self._chance.choice(cuts) if new != old.node else log.end
        self._history.add("#", f"{place[0]}-{place[1]}", f"leader {old.node} → {new}, epoch {old.epoch + 1}, {kept=}")
        if old.node in self.nodes and old.node != new:
            self.nodes[old.node].frozen[place] = log.high_watermark
        if kept < log.end:
            log.truncate(kept)
        self.leaders[place] = Leadership(new, old.epoch + 1)
        lag = log.high_watermark - self._chance.choice((0, 0, 5, 20))
        self.lagging[place] = (max(lag, 0), self.clock.now + self._chance.uniform(0.0, 0.3))
        self.clock.at(self.lagging[place][1], lambda: self.data.replicated(place))
        if kept > log.high_watermark:
            self.clock.later(0.02, partial(self._replicate, place, log, old.epoch + 1, kept))
        if place[0] == OFFSETS:
            self.groups.moved(place)
            self.shares.moved(place)
        if place[0] == STATE:
            self.transactions.moved(place)

    def lowest_watermark(self, place: Place) -> int:
        """The lowest high watermark that a node answers: a former leader that has heard of no other stays behind."""
        behind = [node.frozen[place] for node in self.nodes.values() if place in node.frozen]
        return min([self.logs[place].high_watermark, *behind])

    def announce(self) -> None:
        """Let the nodes learn of new leaders, each after its own delay."""
        for number in self.nodes:
            within = self._chance.choice((0.2, 0.4, 2.0))
            self.clock.later(self._chance.uniform(0.001, within), partial(self._learn, number))

    def announce_at_once(self) -> None:
        for number in self.nodes:
            self._learn(number)

    def _learn(self, number: int) -> None:
        node = self.nodes[number]
        if not node.healthy:
            return
        node.leaders = dict(self.leaders)
        before, node.ids = node.ids, dict(self.ids)
        for topic in [topic for topic, known in before.items() if known != self.ids.get(topic)]:
            self.data.gone(topic, number)
        node.brokers = [n for n in self.nodes if n not in self._fenced]
        node.frozen.clear()
        self.data.learned(number)
        self.groups.learned(number)
        self.transactions.learned(number)

    def move_some(self, places: Iterable[Place]) -> None:
        for place in places:
            self.move(place)
        self.announce()

    # -- nodes -------------------------------------------------------------------------------------------------------

    def crash(self, number: int) -> None:
        self.nodes[number].up = False
        self.data.crashed(number)
        self.groups.crashed(number)
        self.shares.crashed(number)
        self.transactions.crashed(number)
        self.network.crash(number)
        self._suspect(number, 0.05, 1.0)

    def restart(self, number: int) -> None:
        """The node is up again, maybe before it knows any topic."""
        node = self.nodes[number]
        node.up = True
        if self._chance.random() < 0.3:
            node.leaders = {}
        self._recover(number)

    def sleep(self, number: int) -> None:
        self.nodes[number].asleep = True
        self._suspect(number, 0.5, 2.0)

    def wake(self, number: int) -> None:
        self.nodes[number].asleep = False
        self.network.wake(number)
        self._recover(number)

    def cut_off(self, number: int) -> None:
        self.nodes[number].cut_off = True
        self._suspect(number, 0.5, 2.0)

    def rejoin(self, number: int) -> None:
        self.nodes[number].cut_off = False
        self._recover(number)

    def _suspect(self, number: int, soon: float, late: float) -> None:
        def found_out() -> None:
            if not self.nodes[number].healthy:
                self._fenced.add(number)
                self.move_some([place for place, leader in self.leaders.items() if leader.node == number])

        self.clock.later(self._chance.uniform(soon, late), found_out)

    def _recover(self, number: int) -> None:
        def back() -> None:
            if not self.nodes[number].healthy:
                return
            self._fenced.discard(number)
            self.move_some([place for place, leader in self.leaders.items() if leader.node == -1])

        self.clock.later(self._chance.uniform(0.05, 0.5), back)


def _by_id(ids: dict[str, UUID], topic_id: UUID) -> str:
    return next((name for name, known in ids.items() if known == topic_id), "")


def topic_name(topic: Any) -> str:
    """The name field of a message, which is ``name`` or ``topic``."""
    return str(getattr(topic, "name", "") or getattr(topic, "topic", ""))
