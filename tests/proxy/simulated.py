"""Upstream and clients for `ProxyCore` without sockets or time: real bytes, checks of sequences, cuts on demand.

Rule: this file uses no rule of the proxy. The simulated broker checks sequences on its own, as Kafka does.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from ottla.codec.apis import APIS
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.codec.compression import Compression
from ottla.codec.frames import build_request, build_response, framed, parse_request, parse_response
from ottla.codec.records import BatchBuilder, Record, parse_batch
from ottla.codec.wire import Buffer
from ottla.proxy.config import ProxyConfig, parse_rule
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import (
    Address,
    AnswerClient,
    CloseClient,
    ConnectUpstream,
    DisconnectUpstream,
    FinishUpstream,
    HoldClients,
    Left,
    Listen,
    Listening,
    Requested,
    SendUpstream,
    Store,
    UpstreamConnected,
    UpstreamLost,
    UpstreamReceived,
    Work,
    Worked,
)
from ottla.proxy.journal.journal import SEGMENT_BYTES, Journal
from ottla.proxy.journal.restored import noted

PORT = 9000
"""The port of the simulated node 0; node n listens on PORT + n."""
PROXY_PORT = 19000
PRODUCE_VERSION = 9
ANSWERED, CUT_BEFORE, CUT_AFTER = "answered", "cut before", "cut after"


@dataclass
class _Memory:
    """The state of a producer id in a partition."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """Base sequence, count, base offset."""


class Upstream:
    """Brokers: topics, logs, sequences.

    Attributes:
        leaders: (topic, partition) -> node.
        logs: (topic, partition) -> the records stored.
        fate: called for each Produce request: answer it, or cut the connection before or after storing.
        errors: (topic, partition) -> error codes for its next batches, whatever they contain.
    """

    def __init__(self, topics: dict[str, int], nodes: int = 1) -> None:
        self.nodes = {node: ("broker", PORT + node) for node in range(nodes)}
        self.leaders = {(t, p): p % nodes for t, count in topics.items() for p in range(count)}
        self.cluster_id = "cluster"
        self.ids = {topic: UUID(int=number) for number, topic in enumerate(topics, 1)}
        self.logs: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.down: set[int] = set()
        self.fate: Callable[[ProduceRequest], str] = lambda request: ANSWERED
        self.errors: dict[tuple[str, int], deque[int]] = defaultdict(deque)
        self.max_batch = 10**9
        self.throttle_ms = 0
        self.produced: list[tuple[int, ProduceRequest]] = []
        self.versions: list[int] = []
        """The versions of these requests."""
        self._memories: dict[tuple[str, int, int], _Memory] = {}
        self._next_producer_id = 1000
        self._transactional: dict[str, tuple[int, int]] = {}
        """Transactional id -> producer id and epoch."""
        self.of_transactions: list[Any] = []
        """AddPartitionsToTxn and EndTxn requests, in the order of their arrival."""
        self.busy = 0
        """The number of EndTxn and InitProducerId requests that get CONCURRENT_TRANSACTIONS."""
        self.unaddable: dict[tuple[str, int], int] = {}
        """(topic, partition) -> the error code for adding it to a transaction."""
        self.newest = {0: 13, 1: 18, 3: 13, 10: 6, 18: 4, 22: 5, 24: 5, 26: 5, 28: 5, 60: 2}
        """API key -> the newest version served."""
        self.features: dict[str, int] = {}

    def forget_producers(self) -> None:
        """Forget all producers as if they had expired, but require the next sequence to be 0."""
        self._memories = {key: _Memory(-1) for key in self._memories}

    def lose_everything(self) -> None:
        """Lose all records and producers; producer ids are given out again."""
        self._memories.clear()
        self.logs.clear()
        self._next_producer_id = 1000

    def delete(self, topic: str) -> None:
        del self.ids[topic]
        self.leaders = {place: node for place, node in self.leaders.items() if place[0] != topic}

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for (t, _), log in sorted(self.logs.items()) if t == topic for record in log]

    def answer(self, node: int, frame: bytes) -> tuple[bytes | None, str]:
        """The response without its length, and what to do with the connection."""
        request = parse_request(frame)
        key, version = request.header.api_key, request.header.api_version
        how = ANSWERED
        if key == 0:
            self.versions.append(version)
            for topic in request.message.topic_data:
                topic.name = topic.name or next((name for name, id in self.ids.items() if id == topic.topic_id), "")
            self.produced.append((node, request.message))
            how = self.fate(request.message)
            if how == CUT_BEFORE:
                return None, how
        body = getattr(self, f"_{APIS[key].name.lower()}")(node, request.message)
        if key == 0 and request.message.acks == 0:
            return None, how
        return build_response(body, version, request.header.correlation_id)[4:], how

    def _apiversions(self, node: int, request: Any) -> ApiVersionsResponse:
        keys = tuple(ApiVersion(api_key=key, min_version=0, max_version=high) for key, high in self.newest.items())
        features = tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self.features.items()
        )
        return ApiVersionsResponse(error_code=0, api_keys=keys, finalized_features_epoch=1, finalized_features=features)

    def _metadata(self, node: int, request: MetadataRequest) -> MetadataResponse:
        names = sorted(self.ids) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            cluster_id=self.cluster_id,
            brokers=tuple(
                MetadataResponseBroker(node_id=n, host=host, port=port) for n, (host, port) in self.nodes.items()
            ),
            topics=tuple(self._described(name) for name in names),
        )

    def _described(self, name: str) -> MetadataResponseTopic:
        if name not in self.ids:
            return MetadataResponseTopic(error_code=3, name=name, partitions=())
        partitions = tuple(
            MetadataResponsePartition(
                error_code=0, partition_index=p, leader_id=leader, replica_nodes=(leader,), isr_nodes=(leader,)
            )
            for (topic, p), leader in sorted(self.leaders.items())
            if topic == name
        )
        return MetadataResponseTopic(error_code=0, name=name, topic_id=self.ids[name], partitions=partitions)

    def _findcoordinator(self, node: int, request: Any) -> FindCoordinatorResponse:
        host, port = self.nodes[node]
        found = Coordinator(key="g", node_id=node, host=host, port=port, error_code=0, error_message=None)
        return FindCoordinatorResponse(coordinators=(found,))

    def _initproducerid(self, node: int, request: Any) -> InitProducerIdResponse:
        if self.busy:
            self.busy -= 1
            return InitProducerIdResponse(error_code=51, producer_id=-1, producer_epoch=-1)
        if request.transactional_id in self._transactional:
            producer_id, epoch = self._transactional[request.transactional_id]
        else:
            self._next_producer_id += 1
            producer_id, epoch = self._next_producer_id, -1
        if request.transactional_id is not None:
            self._transactional[request.transactional_id] = producer_id, epoch + 1
        return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch + 1)

    def _addpartitionstotxn(self, node: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.of_transactions.append(request)
        results = tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=self.unaddable.get((topic.name, each), 0)
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _endtxn(self, node: int, request: EndTxnRequest) -> EndTxnResponse:
        if self.busy:
            self.busy -= 1
            return EndTxnResponse(error_code=51)
        self.of_transactions.append(request)
        if "transaction.version" not in self.features:
            return EndTxnResponse(error_code=0)
        producer_id, epoch = self._transactional[request.transactional_id]
        self._transactional[request.transactional_id] = producer_id, epoch + 1
        return EndTxnResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch + 1)

    def _produce(self, node: int, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=tuple(
                        self._store(node, topic.name, each.index, each.records or b"") for each in topic.partition_data
                    ),
                )
                for topic in request.topic_data
            ),
            throttle_time_ms=self.throttle_ms,
        )

    def _store(self, node: int, topic: str, index: int, data: Buffer) -> PartitionProduceResponse:
        place = topic, index
        code, offset = 0, -1
        if self.errors[place]:
            code = self.errors[place].popleft()
        elif not topic:
            code = 100
        elif self.leaders.get(place) != node:
            code = 6 if place in self.leaders else 3
        elif len(data) > self.max_batch:
            code = 10
        else:
            code, offset = self._append(place, data)
        return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

    def _append(self, place: tuple[str, int], data: Buffer) -> tuple[int, int]:
        batch, log = parse_batch(data), self.logs[place]
        assert batch.crc_matches
        if batch.producer_id >= 0:
            key = (*place, batch.producer_id)
            memory = self._memories.get(key)
            if memory is None or batch.producer_epoch > memory.epoch:
                if batch.base_sequence != 0:
                    return 45, -1
                memory = self._memories[key] = _Memory(batch.producer_epoch)
            elif batch.producer_epoch < memory.epoch:
                return 47, -1
            else:
                for first, count, offset in memory.batches:
                    if (first, count) == (batch.base_sequence, batch.count):
                        return 0, offset
                last = memory.batches[-1]
                if batch.base_sequence != last[0] + last[1]:
                    return 45, -1
            memory.batches.append((batch.base_sequence, batch.count, len(log)))
        offset = len(log)
        log += batch.records()
        return 0, offset


@dataclass
class Reply:
    """A client's reply to a request; ``frame`` is ``None`` while the reply is outstanding."""

    ticket: int
    version: int
    frame: bytes | None = None

    @property
    def produced(self) -> dict[tuple[str, int], PartitionProduceResponse]:
        assert self.frame is not None, "no response came"
        _, answer = parse_response(ProduceResponse, self.version, self.frame)
        return {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}

    @property
    def code(self) -> int:
        """The error code of the only partition."""
        (response,) = self.produced.values()
        return response.error_code

    def parsed(self, cls: type[Any]) -> Any:
        assert self.frame is not None, "no response came"
        return parse_response(cls, self.version, self.frame)[1]


class World:
    """A proxy's core between clients and `Upstream`, on a clock of its own."""

    def __init__(self, upstream: Upstream, *rules: str, journal: bool = False, **options: Any) -> None:
        self.upstream = upstream
        self.stored: list[Store] = []
        """The journal, if the proxy has one."""
        self.journal_bytes = SEGMENT_BYTES
        self._has_journal = journal
        self.now = 100.0
        self._rules, self._options = rules, options
        self.held: set[int] = set()
        self.closed: dict[int, str] = {}
        self.slow = False
        """Whether responses to Produce, and all behind them, wait for `release`."""
        self._late: list[tuple[int, bytes]] = []
        self.busy = False
        """Whether work for threads waits in ``work``."""
        self.work: list[Work] = []
        self.restart()

    def restart(self) -> None:
        """Replace the proxy by a new one; clients lose their connections."""
        config = ProxyConfig(
            upstream="broker:9000",
            listen=f"proxy:{PROXY_PORT}",
            topics=tuple(map(parse_rule, self._rules)),
            **self._options,
        )
        journal = None
        if self._has_journal:
            journal = Journal(1 + max((each.segment for each in self.stored), default=0), self.journal_bytes)
        self.core = ProxyCore(config, (("broker", PORT),), Random(0), journal)
        if journal is not None:
            self.core.restore(noted(each.data[8:] for each in self.stored), self.now)
        self.work.clear()
        self._links: dict[int, int] = {}
        self.finished: list[int] = []
        """Links on which the proxy sends no more."""
        self._replies: dict[int, Reply] = {}
        self.listens: list[int] = []
        self.settle()

    def use(self, *rules: str) -> None:
        """Replace the proxy by a new one with other rules."""
        self._rules = rules
        self.restart()

    # -- time

    def settle(self, seconds: float = 0.0) -> None:
        """Do everything that is due now, and in the next ``seconds``."""
        end = self.now + seconds
        in_vain = 0
        while True:
            while actions := self.core.poll(self.now):
                in_vain = 0
                for action in actions:
                    self._act(action)
            due = self.core.deadline
            if due is None or due > end:
                break
            in_vain = 0 if due > self.now else in_vain + 1
            assert in_vain < 100, "the machine wants to be polled again and again"
            self.now = max(due, self.now)
        self.now = end

    def _act(self, action: Any) -> None:
        match action:
            case ConnectUpstream(link, address, _):
                self._connect(link, address)
            case SendUpstream(link, parts):
                self._send(link, b"".join(parts)[4:])
            case FinishUpstream(link):
                self.finished.append(link)
                if link not in dict(self._late):
                    self.lose(link)
            case DisconnectUpstream(link):
                self._links.pop(link, None)
            case Listen(node):
                self.listens.append(node)
                self.core.handle(Listening(node, PROXY_PORT + node), self.now)
            case AnswerClient(_, ticket, parts):
                self._replies[ticket].frame = b"".join(parts)[4:]
            case CloseClient(client, why):
                self.closed[client] = why
                self.core.handle(Left(client), self.now)
            case Work() if self.busy:
                self.work.append(action)
            case Work(number, call):
                self.core.handle(Worked(number, call()), self.now)
            case Store(_, _, obsolete):
                self.stored = [*(each for each in self.stored if each.segment >= obsolete), action]
            case HoldClients(clients, held):
                (self.held.update if held else self.held.difference_update)(clients)

    def _connect(self, link: int, address: Address) -> None:
        node = next((n for n, at in self.upstream.nodes.items() if at == address), None)
        if node is None or node in self.upstream.down:
            self.core.handle(UpstreamLost(link, "refused"), self.now)
        else:
            self._links[link] = node
            self.core.handle(UpstreamConnected(link), self.now)

    def _send(self, link: int, frame: bytes) -> None:
        if link not in self._links:
            return
        node = self._links[link]
        if node in self.upstream.down:
            self.lose(link)
            return
        answer, how = self.upstream.answer(node, frame)
        if how != ANSWERED:
            self.lose(link)
        elif answer is None:
            return
        elif self._is_late(frame) or link in [late for late, _ in self._late]:
            self._late.append((link, answer))
        else:
            self.core.handle(UpstreamReceived(link, framed(answer)), self.now)

    def _is_late(self, frame: bytes) -> bool:
        return self.slow and frame[:2] == b"\0\0"

    def finish(self, work: Work) -> None:
        """Finish a piece of a thread's work."""
        self.work.remove(work)
        self.core.handle(Worked(work.number, work.call()), self.now)
        self.settle()

    def release(self) -> None:
        """Deliver the waiting responses whose connections still exist."""
        late, self._late = self._late, []
        for link, answer in late:
            if link in self._links:
                self.core.handle(UpstreamReceived(link, framed(answer)), self.now)
        for link in self.finished:
            if link in self._links:
                self.lose(link)
        self.settle()

    def lose(self, link: int) -> None:
        self._links.pop(link, None)
        self.core.handle(UpstreamLost(link, "cut"), self.now)

    def kill(self, node: int) -> None:
        """Break all connections to a node, and refuse new ones."""
        self.upstream.down.add(node)
        for link in [link for link, at in self._links.items() if at == node]:
            self.lose(link)

    # -- clients

    def request(self, client: int, body: Any, version: int, *, node: int = 0) -> Reply:
        """Send a request; the reply is filled when the response comes."""
        return self.send(client, build_request(body, version, 4711 + len(self._replies), "client")[4:], version, node)

    def send(self, client: int, frame: bytes, version: int, node: int = 0) -> Reply:
        """Send any bytes; ``version`` is the version of the response."""
        reply = self.arrive(client, frame, version, node)
        self.settle()
        return reply

    def arrive(self, client: int, frame: bytes, version: int, node: int = 0) -> Reply:
        """Pass any bytes to the core; `settle` does the rest."""
        ticket = len(self._replies)
        reply = self._replies[ticket] = Reply(ticket, version)
        self.core.handle(Requested(client, node, ticket, frame, f"10.0.0.{client}:9"), self.now)
        return reply

    def produce(
        self,
        client: int,
        batches: dict[tuple[str, int], bytes],
        *,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
        node: int = 0,
        transactional_id: str | None = None,
    ) -> Reply:
        topics: dict[str, list[PartitionProduceData]] = {}
        for (topic, index), data in batches.items():
            topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=data))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=1000,
            topic_data=tuple(TopicProduceData(name=name, partition_data=tuple(p)) for name, p in topics.items()),
        )
        return self.request(client, request, version, node=node)

    def leave(self, client: int) -> None:
        self.core.handle(Left(client), self.now)
        self.settle()

    def producer_id(self, client: int) -> int:
        """Get a producer id from upstream, through the proxy."""
        reply = self.request(client, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        producer_id: int = reply.parsed(InitProducerIdResponse).producer_id
        return producer_id


Pair = tuple[bytes | None, bytes]


def batch(
    pairs: list[Pair],
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    compression: Compression = Compression.NONE,
    transactional: bool = False,
) -> bytes:
    """A client's batch of keys and values; a retry in smaller batches has the same timestamps and headers."""
    builder = BatchBuilder()
    for number, (key, value) in enumerate(pairs, max(sequence, 0)):
        builder.append(1_700_000_000_000 + number, key, value, (("h", b"1"),) if number % 2 else ())
    return builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        compression=compression,
        transactional=transactional,
    )
