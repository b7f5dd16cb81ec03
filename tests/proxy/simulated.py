"""Upstream and clients for `ProxyCore` without sockets or time: real bytes, and cuts on demand.

Rule: upstream is the model cluster of the simulator, which uses no rule of the proxy.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from ottla.client_info import ClientInfo
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.codec.apis.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.codec.compression import Compression
from ottla.codec.frames import build_request, build_response, framed, parse_request, parse_response
from ottla.codec.records import BatchBuilder, Record, RecordBatch
from ottla.errors import ConcurrentTransactions
from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import (
    AbandonJournal,
    Address,
    AnswerClient,
    ClientRefused,
    CloseClient,
    ConnectUpstream,
    DisconnectUpstream,
    FinishUpstream,
    HoldClients,
    JournalLost,
    Left,
    Listen,
    Listening,
    RequestBegan,
    RequestContinued,
    Requested,
    SendUpstream,
    Store,
    UpstreamConnected,
    UpstreamLost,
    UpstreamReceived,
    WelcomeClient,
    Work,
    Worked,
)
from ottla.proxy.journal.journal import SEGMENT_BYTES, Journal
from ottla.proxy.journal.restored import noted
from ottla.proxy.topic_rule import parse_rule
from tests.sim.calm import CalmCluster, Log
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.log import PartitionLog
from tests.sim.network import PORT

PROXY_PORT = 19000
PRODUCE_VERSION = 9
NEWEST = {0: (0, 13), 1: (0, 18), 3: (0, 13), 10: (0, 6), 18: (0, 4), 22: (0, 5), 24: (0, 5), 26: (0, 5), 28: (0, 5)}
NEWEST |= {32: (1, 4), 60: (0, 2)}
"""API key -> the versions served."""
UNIX_TIME = 1_700_000_000.0
"""When a world begins."""
ANSWERED, CUT_BEFORE, CUT_AFTER = "answered", "cut before", "cut after"


class Nodes(CalmCluster):
    """All nodes are at the same host."""

    def address(self, node: int) -> tuple[str, int]:
        return "broker", PORT + node


class Upstream:
    """The model cluster, which answers at once; the nodes are 0 to ``nodes`` - 1.

    Attributes:
        fate: called for each Produce request: answer it, or cut the connection before or after storing.
        errors: (topic, partition) -> error codes for its next batches, whatever they contain.
        bend: may change an answer.
        busy: the number of EndTxn and InitProducerId requests that get CONCURRENT_TRANSACTIONS.
        unaddable: (topic, partition) -> the error code for adding it to a transaction.
        features: finalized features beyond `transaction.version`, with their levels.
    """

    def __init__(self, topics: dict[str, int], nodes: int = 1) -> None:
        self.cluster = Nodes(Clock(), topics, nodes, NEWEST, first=0)
        self.cluster.transaction_version = 0
        self.cluster.cluster_id = "cluster"
        self.cluster.refuse = self._refuse
        self.down: set[int] = set()
        self.fate: Callable[[ProduceRequest], str] = lambda request: ANSWERED
        self.errors: dict[Place, deque[int]] = defaultdict(deque)
        self.bend: Callable[[Any, Any], Any] = lambda request, answer: answer
        self.throttle_ms = 0
        self.requests: list[tuple[int, int, Any]] = []
        """Node, version, message."""
        self.client_ids: list[str | None] = []
        """The client ids of the Produce requests."""
        self.busy = 0
        self.unaddable: dict[Place, int] = {}
        self.features: dict[str, int] = {}

    @property
    def produced(self) -> list[tuple[int, ProduceRequest]]:
        return [(node, message) for node, _, message in self.requests if isinstance(message, ProduceRequest)]

    @property
    def versions(self) -> list[int]:
        """The versions of the Produce requests."""
        return [version for _, version, message in self.requests if isinstance(message, ProduceRequest)]

    def asked(self, *kinds: type) -> list[Any]:
        """The requests of these kinds so far."""
        return [message for _, _, message in self.requests if isinstance(message, kinds)]

    @property
    def logs(self) -> dict[Place, list[Record]]:
        return {place: Log(self.cluster, place).records for place in sorted(self.cluster.places)}

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for (name, _), log in self.logs.items() if name == topic for record in log]

    def lead(self, topic: str, partition: int, node: int) -> None:
        """Give a partition a leader; it is created if it does not exist."""
        self.cluster.create(topic)
        if (topic, partition) not in self.cluster.leaders:
            self.cluster.grow(topic, 1)
        self.cluster.lead((topic, partition), node)

    def hide(self, topic: str) -> None:
        """Let the nodes not know the topic, until `show`."""
        for node in self.cluster.nodes.values():
            node.ids.pop(topic, None)
            node.leaders = {place: each for place, each in node.leaders.items() if place[0] != topic}

    def show(self) -> None:
        self.cluster.announce()

    def lose_everything(self) -> None:
        """Lose all records and producers; producer ids are given out again."""
        for place in self.cluster.logs:
            self.cluster.logs[place] = PartitionLog()
        self.cluster._producer_ids = 1000

    def answer(self, node: int, frame: bytes) -> tuple[bytes | None, str]:
        """The response without its length, and what to do with the connection."""
        request = parse_request(frame)
        version, message, how = request.header.api_version, request.message, ANSWERED
        self.requests.append((node, version, message))
        if isinstance(message, ProduceRequest):
            self.client_ids.append(request.header.client_id)
            for topic in message.topic_data:
                topic.name = self.cluster.name(topic)
            how = self.fate(message)
            if how == CUT_BEFORE:
                return None, how
        answer = self.bend(message, self._answer(node, version, message))
        if answer is None:
            return None, how
        said, version = answer if isinstance(answer, tuple) else (answer, version)
        return build_response(said, version, request.header.correlation_id)[4:], how

    def _answer(self, node: int, version: int, message: Any) -> Any:
        if self.busy and isinstance(message, EndTxnRequest | InitProducerIdRequest):
            self.busy -= 1
            if isinstance(message, EndTxnRequest):
                return EndTxnResponse(error_code=ConcurrentTransactions.code)
            return InitProducerIdResponse(error_code=ConcurrentTransactions.code, producer_id=-1, producer_epoch=-1)
        answer = self.cluster.ask(node, version, message)
        match answer:
            case ProduceResponse():
                answer.throttle_time_ms = self.throttle_ms
            case AddPartitionsToTxnResponse():
                for topic in answer.results_by_topic_v3_and_below:
                    for each in topic.results_by_partition:
                        each.partition_error_code |= self.unaddable.get((topic.name, each.partition_index), 0)
            case ApiVersionsResponse():
                answer.finalized_features += tuple(
                    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                    for name, level in self.features.items()
                )
                answer.finalized_features_epoch = 1
        return answer

    def _refuse(self, place: Place, batch: RecordBatch) -> int:
        return self.errors[place].popleft() if self.errors[place] else 0


def naming(topic: str, topic_id: UUID) -> Callable[[Any, Any], Any]:
    """A `bend` with which Metadata has another id of the topic, as from a node with stale metadata."""

    def bend(request: Any, answer: Any) -> Any:
        for each in answer.topics if isinstance(answer, MetadataResponse) else ():
            each.topic_id = topic_id if each.name == topic else each.topic_id
        return answer

    return bend


@dataclass
class Reply:
    """A client's reply to a request; ``frame`` is ``None`` while the reply is outstanding."""

    ticket: int
    version: int
    frame: bytes | None = None
    begun: bytes = b""
    """The pieces of the frame so far, with its length."""

    def take(self, data: bytes, left: int) -> None:
        """Take a piece; ``left`` bytes follow."""
        self.begun += data
        self.frame = None if left else self.begun[4:]

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

    def __init__(
        self,
        upstream: Upstream,
        *rules: str,
        journal: bool = False,
        bootstrap: tuple[Address, ...] = (("broker", PORT),),
        **options: Any,
    ) -> None:
        self.upstream = upstream
        self._bootstrap = bootstrap
        self.tried: list[Address] = []
        """The addresses to which the proxy has tried to connect."""
        self.stored: list[Store] = []
        """The journal, if the proxy has one."""
        self.disk_is_full = False
        self.abandoned = False
        """The journal is not whole: the next proxy does not trust it."""
        self.journal_bytes = SEGMENT_BYTES
        self._has_journal = journal
        self.now = 100.0
        self.slept = 0.0
        """Seconds for which the machine has slept, and ``now`` with it."""
        self._rules, self._options = rules, options
        self.held: set[int] = set()
        self.closed: dict[int, str] = {}
        self.welcomed: list[int] = []
        """Clients that upstream has let in."""
        self.refused: dict[int, str] = {}
        """Clients whose last login upstream has refused, and what the log says."""
        self.logged: dict[int, str] = {}
        """Why the connections in `closed` were closed that have a log line of their own."""
        self.slow = False
        """Whether responses to Produce, and all behind them, wait for `release`."""
        self._late: list[tuple[int, bytes]] = []
        self.busy = False
        """Whether work for threads waits in ``work``."""
        self.infos: dict[int, ClientInfo] = {}
        """Who clients are, if not anonymous."""
        self.peers: dict[int, str] = {}
        """The addresses of clients; the others are on a host of their own."""
        self.work: list[Work] = []
        self.restart()

    def restart(self) -> None:
        """Replace the proxy by a new one; clients lose their connections."""
        options: dict[str, Any] = dict(self._options)
        if "listeners" not in options:
            options["listen"] = f"proxy:{PROXY_PORT}"
        config = ProxyConfig(upstream="broker:9000", topics=tuple(map(parse_rule, self._rules)), **options)
        journal = None
        if self._has_journal:
            journal = Journal(1 + max((each.segment for each in self.stored), default=0), self.journal_bytes)
        self.core = ProxyCore(config, self._bootstrap, Random(0), journal, self._wall)
        if journal is not None:
            if self.abandoned:
                self._abandon()
            self.core.restore(noted(each.data[8:] for each in self.stored), self.now)
        self.work.clear()
        self._late.clear()
        self._links: dict[int, int] = {}
        self.finished: list[int] = []
        """Links on which the proxy sends no more."""
        self._replies: dict[int, Reply] = {}
        self._begun: dict[int, bytes] = {}
        """Link -> the beginning of a request."""
        self.listens: list[int] = []
        self.settle()

    def _wall(self) -> float:
        return UNIX_TIME - 100.0 + self.now + self.slept

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
                sent = self._begun.get(link, b"") + b"".join(parts)
                self._begun[link] = sent if action.left else b""
                if not action.left:
                    self._send(link, sent[4:])
            case FinishUpstream(link):
                self.finished.append(link)
                if link not in dict(self._late):
                    self.lose(link)
            case DisconnectUpstream(link):
                self._links.pop(link, None)
            case Listen(node):
                self.listens.append(node)
                self.core.handle(Listening(node, (PROXY_PORT + node,)), self.now)
            case AnswerClient(_, ticket, parts, _, left):
                self._replies[ticket].take(b"".join(parts), left)
            case CloseClient(client, why, told):
                self.closed[client] = why
                if not told:
                    self.logged[client] = why
                self.core.handle(Left(client), self.now)
            case WelcomeClient(client):
                self.welcomed.append(client)
            case ClientRefused(client, why, _):
                self.refused[client] = why
            case Work() if self.busy:
                self.work.append(action)
            case Work(number, call):
                self.core.handle(Worked(number, call()), self.now)
            case AbandonJournal():
                self._abandon()
            case Store() if self.disk_is_full:
                self._abandon()
                self.core.handle(JournalLost("No space left on device"), self.now)
            case Store(_, _, obsolete):
                self.abandoned = self.abandoned and not obsolete
                self.stored = [*(each for each in self.stored if each.segment >= obsolete), action]
            case HoldClients(clients, held):
                (self.held.update if held else self.held.difference_update)(clients)

    def _abandon(self) -> None:
        self.stored.clear()
        self.abandoned = True

    def _connect(self, link: int, address: Address) -> None:
        self.tried.append(address)
        node = next((n for n in self.upstream.cluster.nodes if self.upstream.cluster.address(n) == address), None)
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

    def receive(self, link: int, data: bytes) -> None:
        """Pass bytes of upstream to the core."""
        self.core.handle(UpstreamReceived(link, data), self.now)
        self.settle()

    def begin(self, client: int, frame: bytes, first: int, version: int) -> Reply | None:
        """Send the ``first`` bytes of a frame; ``None`` if the proxy collects it."""
        if not self.core.begins_passage(client, len(frame), frame[:first], self.now):
            return None
        ticket = len(self._replies)
        reply = self._replies[ticket] = Reply(ticket, version)
        self.core.handle(RequestBegan(client, ticket, len(frame), frame[:first]), self.now)
        self.settle()
        return reply

    def go_on(self, client: int, data: bytes) -> None:
        """Send the next bytes of a frame that has begun."""
        self.core.handle(RequestContinued(client, data), self.now)
        self.settle()

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

    def request(
        self, client: int, body: Any, version: int, *, node: int = 0, client_id: str | None = "client"
    ) -> Reply:
        """Send a request; the reply is filled when the response comes."""
        return self.send(client, build_request(body, version, 4711 + len(self._replies), client_id)[4:], version, node)

    def send(self, client: int, frame: bytes, version: int, node: int = 0) -> Reply:
        """Send any bytes; ``version`` is the version of the response."""
        reply = self.arrive(client, frame, version, node)
        self.settle()
        return reply

    def arrive(self, client: int, frame: bytes, version: int, node: int = 0) -> Reply:
        """Pass any bytes to the core; `settle` does the rest."""
        ticket = len(self._replies)
        reply = self._replies[ticket] = Reply(ticket, version)
        peer = self.peers.get(client, f"10.0.0.{client}:9")
        requested = Requested(client, node, ticket, frame, peer, info=self.infos.get(client))
        self.core.handle(requested, self.now)
        return reply

    def produce(
        self,
        client: int,
        batches: dict[tuple[str, int], bytes],
        *,
        acks: int = -1,
        timeout_ms: int = 300_000,
        version: int = PRODUCE_VERSION,
        node: int = 0,
        transactional_id: str | None = None,
        client_id: str | None = "client",
    ) -> Reply:
        topics: dict[str, list[PartitionProduceData]] = {}
        for (topic, index), data in batches.items():
            topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=data))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=tuple(TopicProduceData(name=name, partition_data=tuple(p)) for name, p in topics.items()),
        )
        return self.request(client, request, version, node=node, client_id=client_id)

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
