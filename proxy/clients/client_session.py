"""Handles one client's connection: answers its requests, forwards them to its broker, or both.

Rules:
- Each client connection has its own upstream connection, to the broker whose port it uses, opened on demand. If that is
  lost while a response is due, the client's connection is closed, as the broker itself would have done. It is closed,
  too, if it has carried records with ``acks=0``: to close the connection is a broker's only way to refuse them.
- While no broker answers the proxy, unsent requests wait, for up to ``delivery-timeout``, and the proxy answers
  ApiVersions with the versions that the broker offered last. So clients that connect meanwhile wait, too: most would
  take a closed connection for a broker that they cannot talk to. If only this client's broker does not answer, the
  proxy closes the connection, and the client goes to another broker.
- A broker may come back with other versions than the client knows. Upstream judges the client's requests: a version
  that the broker does not serve closes the connection, and the client asks for the versions again.
- A client that disconnects does not cancel its requests. Those that it sent before are handled, as by Apache Kafka's
  broker, and their responses are dropped. The upstream connection stays open until upstream has read all of them.
- Responses may be ready in any order; the listener sends them in the order of the requests.
- An API that is not in the table `CARRIED` closes the connection, as an unknown API does on a broker.
- A Produce request that names a partition twice is refused as a whole. Kafka's broker keeps only the last batch of such
  a partition, and answers once (KafkaApis.handleProduceRequest); no client sends such a request.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ParamSpec, Protocol

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.find_coordinator import FindCoordinatorResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.apis.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.codec.elements import has_more_elements
from ottla.codec.frames import build_request, build_response, parse_request, parse_response
from ottla.codec.wire import Buffer
from ottla.errors import (
    ConcurrentTransactions,
    ConnectionLost,
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidRequiredAcks,
    NotEnoughReplicas,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
    TransactionAbortable,
    UnknownProducerId,
    UnsupportedVersion,
)
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import Offer, Origin
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.carried import (
    ABORTABLE_SINCE,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CARRIED,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Versions,
    Way,
    offered,
    offers_feature,
)
from ottla.proxy.clients.dialects import UNNAMED, Dialect, dialect_of
from ottla.proxy.clients.observer import Observer
from ottla.proxy.clients.opening import detached
from ottla.proxy.clients.pending_produce import PendingProduce
from ottla.proxy.clients.record_set_queue import OVERHEAD
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.transactions import ClientTransactions, narrowed
from ottla.proxy.clients.walks import LongMetadata
from ottla.proxy.clients.windows import ClientResult
from ottla.proxy.config import ProxyConfig
from ottla.proxy.events import Action, Address, AnswerClient, CloseClient
from ottla.proxy.routing import TopicRules
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.link import Parts, UpstreamLink, UpstreamLinks
from ottla.sdk.connection.handshake import Features
from ottla.sdk.timers import Timer, Timers

log = logging.getLogger("ottla.proxy")

P = ParamSpec("P")

ANSWER_TIMEOUT = 900.0
"""Seconds that a response to a client may take; joining a group takes as long as its slowest member."""
MOST_PARTS = 10_000
"""The most topics and record sets together in a Produce request, which takes about 0.1 s if each topic differs. Also
the most names in other requests that are parsed: 1 MiB of FindCoordinator may name half a million groups, taking 5 s.
"""
CONCURRENT_WAIT = 5.0
"""Seconds that InitProducerId waits until the coordinator has ended the previous transaction."""
CONCURRENT_PAUSE = 0.05
"""Seconds between the attempts meanwhile."""
_SHORT = {PRODUCE: 64 * 2**10, FIND_COORDINATOR: MOST_PARTS, ADD_PARTITIONS_TO_TXN: MOST_PARTS}
"""API key -> a request of at most so many bytes need not be checked against `MOST_PARTS`."""
MOST_READ = 2**20
"""The most bytes of other requests that the proxy parses, or whose response it parses: none has records."""
LONG_ANSWER = 256 * 2**10
"""Beyond so many bytes the topics of a Metadata response are forwarded unread."""
_HEAD = struct.Struct(">hhi")
ENDPOINTS_SINCE = 10
"""The first version of Produce whose responses have addresses of leaders (KIP-951)."""
EPOCH_FOLLOWS_SINCE = 5
"""The first version of EndTxn that returns a new epoch for the next transaction (KIP-890)."""


class ProxyContext(Protocol):
    """The parts of the proxy that all sessions share."""

    actions: list[Action]
    config: ProxyConfig
    timers: Timers
    links: UpstreamLinks
    cluster: UpstreamCluster
    control: Control
    rules: TopicRules
    admission: Admission
    buffered: Buffered
    observer: Observer
    rewriter: Rewriter
    transactions: ClientTransactions

    def when_ports_are_open(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the port of every known broker was opened, or could not be."""

    def ask_for_nodes(self) -> None:
        """Request the list of upstream's brokers."""

    def dropped(self, why: str, size: int, now: float) -> None:
        """Log that ``size`` bytes of requests of a disconnected client were dropped."""


class ClientSession:
    """Handles the requests of one client connection."""

    def __init__(self, shared: ProxyContext, client: int, node: int, peer: str) -> None:
        self.client = client
        self._origin = Origin(client, peer)
        self._shared, self._node = shared, node
        self._link: UpstreamLink | None = None
        self._versions: Versions = {}
        self._dialect: Dialect = UNNAMED
        self._features = Features()
        self._waiting: list[tuple[Callable[[UpstreamLink], None], int]] = []
        """Calls that wait for the link, and the bytes of their requests."""
        self._asking: list[Callable[[], None]] = []
        """Answers to ApiVersions that wait for upstream's versions."""
        self._outage: Timer | None = None
        """Set while requests wait until upstream answers again; gives them up when it is due."""
        self._carries_unanswered = False
        """The link has carried requests without a response (``acks=0``)."""
        self.closed = False
        """The proxy has closed the connection: no more requests are handled or answered."""
        self._gone = False
        """The client has disconnected: no more responses are sent."""
        self._open = 0
        """How many requests have no response yet."""

    def left(self, now: float) -> None:
        """Handle the end of the client's connection."""
        self._gone = True
        if self._outage is not None and self._link is None:
            self._drop_waiting("upstream is unavailable", now)
        self._finish_if_done(now)
        if self._link is not None:
            self._link.linger(now)

    def _finish_if_done(self, now: float) -> None:
        """Finish the upstream connection once all requests of a disconnected client are handled."""
        done = not self._waiting and (self.closed or not self._open)
        if self._gone and done and self._link is not None:
            self._link.finish(now)

    def request(self, ticket: int, frame: Buffer, now: float) -> None:
        """Handle a request frame.

        Raises:
            RemoteProtocolError: the proxy does not accept it; the caller must close the connection.
        """
        if len(frame) < _HEAD.size:
            raise RemoteProtocolError(f"a frame of {len(frame)} bytes: this is not Kafka's protocol")
        key, version, correlation_id = _HEAD.unpack_from(frame)
        self._open += 1
        if key == API_VERSIONS and not 0 <= version <= CARRIED[API_VERSIONS].newest:
            refusal = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=_ranges(offered({})))
            self._answer(ticket, build_response(refusal, 0, correlation_id))
        elif key not in CARRIED or not 0 <= version <= CARRIED[key].newest:
            name = CARRIED[key].name if key in CARRIED else "unknown or not carried"
            raise RemoteProtocolError(f"API key {key} ({name}) version {version} was not offered")
        elif len(frame) > MOST_READ and CARRIED[key].way is not Way.OPAQUE and key not in (PRODUCE, METADATA):
            raise RemoteProtocolError(
                f"{CARRIED[key].name} of {len(frame)} bytes; the proxy accepts at most {MOST_READ}"
            )
        elif key in _SHORT and len(frame) > _SHORT[key] and has_more_elements(frame, MOST_PARTS):
            raise RemoteProtocolError(f"{CARRIED[key].name} names more than {MOST_PARTS} topics, partitions or groups")
        elif key == API_VERSIONS:
            software: ApiVersionsRequest = parse_request(frame).message
            self._dialect = dialect_of(software.client_software_name, software.client_software_version)
            self._ask_versions(partial(self._tell_versions, ticket, version, correlation_id), now)
        elif key == PRODUCE:
            self._produce(ticket, version, correlation_id, frame, now)
        elif key == INIT_PRODUCER_ID:
            self._ask_for_producer_id(ticket, version, frame, now + CONCURRENT_WAIT, now)
        elif key == ADD_PARTITIONS_TO_TXN:
            self._add_partitions(ticket, version, correlation_id, frame, now)
        elif key == END_TXN:
            self._end_transaction(ticket, version, correlation_id, frame, now)
        elif read := _DECODED.get(key):
            self._forward(frame, partial(read, self, ticket, version), now)
        else:
            self._pass(frame, partial(self._pass_back, ticket), now)

    # -- the link

    def _with_link(self, then: Callable[[UpstreamLink], None], now: float, size: int = 0) -> None:
        """Call ``then`` once the link is ready; until then ``size`` bytes count as buffered."""
        if self._link is not None and self._link.ready:
            then(self._link)
            return
        if self._shared.control.unavailable:
            try:
                self._shared.buffered.check_room(self.client, size)
            except NotEnoughReplicas as full:
                self.close(full.detail)
                return
        self._waiting.append((then, size))
        self._shared.buffered.count(self.client, size)
        self._open_link(now)

    def _open_link(self, now: float) -> None:
        """Connect to the broker, unless the link is open, or waits until upstream answers."""
        if self._link is None and self._outage is None:
            self._connect(now)

    def _connect(self, now: float) -> None:
        self._link = self._shared.links.connect(
            self._address, now, ready=self._ready, lost=self._contained(self._lost), client=self.client
        )

    @property
    def _address(self) -> Address:
        return self._shared.cluster.nodes[self._node]

    def _ask_versions(self, tell: Callable[[], None], now: float) -> None:
        """Call ``tell`` once upstream's versions are known."""
        if (self._link is not None and self._link.ready) or (self._shared.control.unavailable and self._recall()):
            tell()
        else:
            self._asking.append(tell)
            self._open_link(now)

    def _recall(self) -> bool:
        """Take what upstream offered last; returns whether it is known."""
        offer = self._shared.links.offer_of(self._address)
        if offer is not None:
            self._versions, self._features = offer
        return offer is not None

    def _ready(self, now: float) -> None:
        assert self._link is not None, "only an open link becomes ready"
        self._end_outage()
        self._versions, self._features = self._link.versions, self._link.features
        self._tell_asking()
        for then in self._take_waiting():
            then(self._link)
        self._finish_if_done(now)

    def _take_waiting(self) -> list[Callable[[UpstreamLink], None]]:
        waiting, self._waiting = self._waiting, []
        self._shared.buffered.count(self.client, -sum(size for _, size in waiting))
        return [then for then, _ in waiting]

    def _tell_asking(self) -> None:
        asking, self._asking = self._asking, []
        for tell in asking:
            tell()

    def _lost(self, error: OttlaError, now: float) -> None:
        unsent, self._link = self._link.unsent if self._link else 0, None
        if not (self._waiting or self._asking or self._carries_unanswered or self._gone):
            return
        passing = isinstance(error, (ConnectionLost, TimeoutExpired)) and self._shared.control.unavailable
        if passing and not (self._carries_unanswered or self._gone or self.closed):
            self._await_upstream(error, now)
        else:
            self._drop_waiting(str(error), now, unsent)
            self.close(str(error))

    # -- an outage

    def _await_upstream(self, error: OttlaError, now: float) -> None:
        """Keep the waiting requests until a broker answers, or for ``delivery-timeout``."""
        if self._asking and self._recall():
            self._tell_asking()
        if self._waiting or self._asking:
            if self._outage is None:
                give_up = self._contained(partial(self._give_up, str(error)))
                self._outage = self._shared.timers.add(now + self._shared.config.delivery_timeout, give_up)
            self._shared.control.when_answered(self, self._contained(self._connect))

    def _give_up(self, why: str, now: float) -> None:
        """Close the connection of a client whose requests have waited for too long."""
        self._drop_waiting(why, now)
        self.close(why)

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage.cancel()
            self._outage = None
            self._shared.control.withdraw(self)

    def _drop_waiting(self, why: str, now: float, unsent: int = 0) -> None:
        """Drop the waiting requests, and log how many bytes a disconnected client loses; ``unsent``: its link's."""
        self._end_outage()
        if self._gone and (size := unsent + sum(size for _, size in self._waiting)):
            self._shared.dropped(why, size, now)
        self._take_waiting()
        self._asking.clear()

    def _forward(self, frame: Buffer, arrived: Callable[[bytes, float], None], now: float) -> None:
        """Forward a request, and call ``arrived`` with the frame of the response."""
        self._pass(frame, lambda parts, now: arrived(b"".join(parts), now), now)

    def _pass(self, frame: Buffer, arrived: Callable[[Parts, float], None] | None, now: float) -> None:
        failed = self._contained(self._unanswered)

        def send(link: UpstreamLink) -> None:
            self._carries_unanswered = self._carries_unanswered or arrived is None
            link.forward(frame, deadline=now + ANSWER_TIMEOUT, arrived=arrived, failed=failed)

        self._with_link(send, now, len(frame))

    def _unanswered(self, error: OttlaError, now: float) -> None:
        self.close(str(error))

    # -- the end

    def close(self, why: str) -> None:
        """Close the client's connection without further responses."""
        if not self.closed:
            self.closed = True
            if self._gone:
                return
            self._shared.actions.append(CloseClient(self.client, why))

    def failed(self, what: str) -> None:
        """Log the exception being handled, which is a bug, and close the client's connection."""
        log.exception("a bug in the proxy, please report it: %s; the client's connection is closed", what)
        self.close("internal error")

    def _contained(self, step: Callable[P, None]) -> Callable[P, None]:
        """Wrap ``step`` for callers outside: an exception closes this client's connection, and does not reach them."""

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                step(*args, **kwargs)
            except Exception:
                self.failed("an answer")

        return call

    # -- answers

    def _answer(self, ticket: int, *parts: Buffer) -> None:
        self._open -= 1
        if self._gone:
            self._finish_if_done(self._shared.links.now)
        elif not self.closed:
            self._shared.actions.append(AnswerClient(self.client, ticket, parts))

    def _pass_back(self, ticket: int, frame: Parts, now: float) -> None:
        self._answer(ticket, sum(map(len, frame)).to_bytes(4, "big"), *frame)

    def _tell_versions(self, ticket: int, version: int, correlation_id: int) -> None:
        versions, features = offered(self._versions), self._features
        answer = ApiVersionsResponse(
            error_code=0,
            api_keys=_ranges(versions),
            finalized_features_epoch=features.epoch,
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in features.levels.items()
                if offers_feature(name, versions)
            ),
        )
        self._answer(ticket, build_response(answer, version, correlation_id))

    def _metadata(self, ticket: int, version: int, frame: bytes, now: float) -> None:
        cluster = self._shared.cluster
        if len(frame) > LONG_ANSWER:  # the proxy requests the metadata of topics that it needs by itself
            long = LongMetadata(frame, version)
            cluster.learn(long.answer, now)

            def tell() -> None:
                cluster.point_here(long.answer)
                self._pass_back(ticket, long.parts(), now)
        else:
            correlation_id, answer = parse_response(MetadataResponse, version, frame)
            cluster.learn(answer, now)

            def tell() -> None:
                cluster.point_here(answer)
                self._answer(ticket, build_response(answer, version, correlation_id))

        self._shared.when_ports_are_open(self._contained(tell))

    def _coordinator(self, ticket: int, version: int, frame: bytes, now: float) -> None:
        correlation_id, answer = parse_response(FindCoordinatorResponse, version, frame)
        cluster = self._shared.cluster
        for found in answer.coordinators or (answer,):
            if found.error_code:
                continue
            if found.node_id in cluster.ports:
                found.host, found.port = cluster.host, cluster.ports[found.node_id]
            else:  # a broker that the proxy does not know yet: the client retries
                found.error_code, found.node_id = CoordinatorNotAvailable.code, -1
                found.host, found.port = "", -1
                self._shared.ask_for_nodes()
        self._answer(ticket, build_response(answer, version, correlation_id))

    # -- transactions

    def _ask_for_producer_id(self, ticket: int, version: int, frame: Buffer, give_up_at: float, now: float) -> None:
        """Forward InitProducerId, and retry it while the coordinator ends the previous transaction.

        Clients can retry themselves, but for franz-go CONCURRENT_TRANSACTIONS is fatal at the start of a transaction.
        """
        request: InitProducerIdRequest = parse_request(frame).message
        known = self._shared.transactions.newest

        def again(now: float) -> None:
            if self._gone:  # no more retries: upstream has answered, and clients repeat the request themselves
                self._answer(ticket)
            elif not self.closed:
                self._ask_for_producer_id(ticket, version, frame, give_up_at, now)

        def arrived(answer: bytes, now: float) -> None:
            _, found = parse_response(InitProducerIdResponse, version, answer)
            if found.error_code == ConcurrentTransactions.code and now < give_up_at:
                self._shared.timers.add(now + CONCURRENT_PAUSE, self._contained(again))
                return
            if found.error_code == 0:
                self._producer_id(request, found, known, now)
            self._pass_back(ticket, (answer,), now)

        self._forward(frame, arrived, now)

    def _producer_id(
        self, request: InitProducerIdRequest, answer: InitProducerIdResponse, known: int, now: float
    ) -> None:
        if request.transactional_id is None:
            self._shared.rewriter.allocated(answer.producer_id, now)
            return
        older = None if request.producer_id >= 0 else known
        self._shared.transactions.initialized(
            request.transactional_id, answer.producer_id, answer.producer_epoch, now, older=older
        )

    def _add_partitions(self, ticket: int, version: int, correlation_id: int, frame: Buffer, now: float) -> None:
        request = parse_request(frame)
        asked: AddPartitionsToTxnRequest = request.message
        if not any(self._shared.rules.rewrites(topic.name) for topic in asked.v3_and_below_topics):
            self._pass(frame, partial(self._pass_back, ticket), now)
            return

        def arrived(frame: bytes, now: float) -> None:
            answer = parse_response(AddPartitionsToTxnResponse, version, frame)[1]
            self._shared.transactions.added(asked, answer)
            self._answer(ticket, build_response(narrowed(asked, answer), version, correlation_id))

        def go_on(widened: AddPartitionsToTxnRequest, now: float) -> None:
            if not self.closed:
                frame = build_request(widened, version, correlation_id, request.header.client_id)[4:]
                self._forward(frame, arrived, now)

        def refuse(answer: AddPartitionsToTxnResponse) -> None:
            self._answer(ticket, build_response(answer, version, correlation_id))

        self._shared.transactions.widen(asked, self._contained(go_on), refuse, now)

    def _end_transaction(self, ticket: int, version: int, correlation_id: int, frame: Buffer, now: float) -> None:
        request: EndTxnRequest = parse_request(frame).message

        def arrived(frame: bytes, now: float) -> None:
            self._shared.transactions.ended(request, parse_response(EndTxnResponse, version, frame)[1], now)
            self._pass_back(ticket, (frame,), now)

        def go_on(now: float) -> None:
            if not self.closed:
                self._forward(frame, arrived, now)

        def refuse(code: int) -> None:
            if code == TransactionAbortable.code and version < ABORTABLE_SINCE[END_TXN]:
                code = UnknownProducerId.code  # clients then abort and bump the epoch
            elif code == UnknownProducerId.code and version >= EPOCH_FOLLOWS_SINCE:  # the abort brings a new epoch
                code = TransactionAbortable.code
            self._answer(ticket, build_response(EndTxnResponse(error_code=code), version, correlation_id))

        def end(now: float) -> None:
            self._shared.transactions.end(request, self._contained(go_on), refuse, now)

        self._shared.rewriter.line.in_turn(self._contained(end), now)

    # -- Produce

    def _produce(self, ticket: int, version: int, correlation_id: int, frame: Buffer, now: float) -> None:
        request = parse_request(frame)
        message: ProduceRequest = request.message
        if request.header.client_id != self._origin.client_id:
            self._origin = Origin(self.client, self._origin.peer, request.header.client_id)
        pending = PendingProduce(message, version, correlation_id, self._dialect, partial(self._answer, ticket))
        if pending.names_a_partition_twice:
            self._refuse(message, pending, now)
            return
        rules, observer = self._shared.rules, self._shared.observer
        rewritten = tuple(topic for topic in message.topic_data if rules.rewrites(topic.name))
        passed = tuple(
            topic
            for topic in message.topic_data
            if not rules.rewrites(topic.name) and not self._keeps_back(topic, message.acks, pending, now)
        )
        for topic in passed:
            if rules.of(topic.name) is not None:
                for each in topic.partition_data:
                    observer.observe(self.client, topic.name, each.index, each.records, now)
        if rewritten:
            self._rewrite(rewritten, message, pending, len(frame), now)
        if passed:
            pending.pass_on(passed)
            if len(passed) < len(message.topic_data):
                message.topic_data = passed
                frame = build_request(message, version, correlation_id, request.header.client_id)[4:]
            arrived = partial(self._produced, pending, ticket, whole=len(passed) == pending.topics)
            self._pass(frame, arrived if message.acks else None, now)
        if message.acks == 0:
            self._answer(ticket)
        elif not passed:
            pending.answer_if_complete()

    def _keeps_back(self, topic: TopicProduceData, acks: int, pending: PendingProduce, now: float) -> bool:
        """Refuse records for a topic that is not rewritten if they must not pass; returns whether they were refused."""
        refuses = self._shared.admission.refuses_to_pass
        refusal = next(
            filter(None, (refuses(topic.name, each.records, self._origin) for each in topic.partition_data)), None
        )
        if refusal is None:
            return False
        for each in topic.partition_data:
            if acks:
                pending.settle(topic.name, each.index, refusal, now)
            else:
                self._unawaited(refusal, now)
        return True

    def _rewrite(
        self,
        topics: tuple[TopicProduceData, ...],
        message: ProduceRequest,
        pending: PendingProduce,
        size: int,
        now: float,
    ) -> None:
        offers = self._offers(topics, message, pending)
        if message.acks in (-1, 0, 1):
            size += OVERHEAD * sum(len(topic.partition_data) for topic in topics)
            self._shared.rewriter.line.request(self.client, offers, size, now)
        else:
            for offer in offers:
                offer.refuse(InvalidRequiredAcks(), now)

    def _offers(
        self, topics: Iterable[TopicProduceData], message: ProduceRequest, pending: PendingProduce
    ) -> Iterator[Offer]:
        """The record sets of these rewritten topics."""
        for topic in topics:
            for each in topic.partition_data:
                heard = partial(pending.settle, topic.name, each.index)
                yield Offer(
                    topic=topic.name,
                    partition=each.index,
                    data=detached(each.records or b""),
                    transactional_id=message.transactional_id,
                    version=pending.version,
                    origin=self._origin,
                    awaited=message.acks != 0,
                    answered=self._contained(heard) if message.acks else self._unawaited,
                )

    def _refuse(self, message: ProduceRequest, pending: PendingProduce, now: float) -> None:
        """Refuse a request that names a partition twice: its response could not distinguish the two."""
        refusal = ClientResult(InvalidRequest.code, error_message="the request names a partition more than once")
        if not message.acks:
            self._unawaited(refusal, now)
            return
        for topic in message.topic_data:
            for each in topic.partition_data:
                pending.settle(topic.name, each.index, refusal, now)

    def _unawaited(self, outcome: ClientResult, now: float) -> None:
        """Take the outcome of records with ``acks=0``: an error closes the connection, as on a broker."""
        if outcome.error_code:
            self.close(f"records with acks=0 were refused with error {outcome.error_code}: {outcome.error_message}")

    def _produced(self, pending: PendingProduce, ticket: int, frame: Parts, now: float, *, whole: bool) -> None:
        version = pending.version
        if whole and version < ENDPOINTS_SINCE:
            self._pass_back(ticket, frame, now)
            return
        _, answer = parse_response(ProduceResponse, version, b"".join(frame))
        answer.node_endpoints = self._shared.cluster.endpoints_here(answer.node_endpoints)
        pending.take(answer)


_DECODED = {
    METADATA: ClientSession._metadata,
    FIND_COORDINATOR: ClientSession._coordinator,
}


def _ranges(versions: Versions) -> tuple[ApiVersion, ...]:
    return tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items())
