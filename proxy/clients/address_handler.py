"""Answers requests whose responses have addresses of brokers: with the proxy's addresses instead.

Rules:
- A client that learns the address of a real broker connects to it, past the proxy. So no response has one: an address
  is replaced by the proxy's for the same node, or left out if the proxy has no port for the node.
- A client asks again if it needs a node that was left out. Meanwhile the proxy opens the node's port.
- Other responses with addresses: those to Produce, in `ProduceHandler`.
- Metadata of topics in mode `fan-out` names one partition (`ottla.proxy.clients.one_partition`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from ottla.codec.apis.describe_cluster import DescribeClusterResponse
from ottla.codec.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeResponse
from ottla.codec.apis.share_fetch import ShareFetchResponse
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import Buffer
from ottla.errors import CoordinatorNotAvailable, OttlaError
from ottla.proxy.clients.carried import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA, SHARE_ACKNOWLEDGE, SHARE_FETCH
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.one_partition import narrowed
from ottla.proxy.clients.steps import Steps, UpstreamFrame, run, until
from ottla.proxy.clients.walks import LongMetadata
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.routing import TopicRules
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.sdk.outcome import Outcome

LONG_ANSWER = 256 * 2**10
"""Beyond so many bytes the topics of a Metadata response are forwarded unread."""

C = TypeVar("C", Coordinator, FindCoordinatorResponse)
S = TypeVar("S", ShareFetchResponse, ShareAcknowledgeResponse)


class AddressContext(Protocol):
    """The parts of the proxy that these requests use."""

    cluster: UpstreamCluster
    rules: TopicRules
    threads: Threads

    def when_ports_are_open(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the port of every known broker was opened, or could not be."""

    def ask_for_nodes(self) -> None:
        """Request the list of upstream's brokers."""


class AddressHandler:
    """Answers one client's requests whose responses have addresses of brokers."""

    def __init__(self, client: ClientConnection, link: ClientLink, shared: AddressContext) -> None:
        self._client, self._link, self._shared = client, link, shared
        self._by_api: dict[int, Callable[[ClientRequest, UpstreamFrame], Steps[None]]] = {
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            DESCRIBE_CLUSTER: self._describe_cluster,
            SHARE_FETCH: partial(self._share, ShareFetchResponse),
            SHARE_ACKNOWLEDGE: partial(self._share, ShareAcknowledgeResponse),
        }

    def handle(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Forward a request, and answer it with the proxy's addresses."""
        run(self._by_api[request.key](request, self._link.ask(frame, now)), self._client)

    def _metadata(self, request: ClientRequest, forwarded: UpstreamFrame) -> Steps[None]:
        """Have ports opened for the brokers in upstream's response, and answer with the addresses of these ports."""
        frame, now = yield from forwarded
        long: LongMetadata | None = None
        fans_out = self._shared.rules.fans_out
        if len(frame) > LONG_ANSWER:  # the proxy requests the metadata of topics that it needs by itself
            long = LongMetadata(frame, request.version)
            answer = long.answer
        else:
            _, answer = parse_response(MetadataResponse, request.version, frame)
        self._shared.cluster.learn(answer, now)
        yield from self._ports()
        answer = self._shared.cluster.pointing_here(answer, self._client.listener)
        if long is None:
            self._client.respond(request, replace(answer, topics=narrowed(answer.topics, fans_out)))
        elif not self._shared.rules.any_fan_out:
            self._client.pass_back(request, long.parts(answer), now)
        else:
            yield from self._answer_narrowed(request, frame, answer, now)

    def _answer_narrowed(
        self, request: ClientRequest, frame: bytes, answer: MetadataResponse, now: float
    ) -> Steps[None]:
        """Answer with a long response, which is parsed in a thread because of topics in mode `fan-out`.

        Args:
            answer: the response without topics.
        """
        fans_out = self._shared.rules.fans_out
        done: Outcome[tuple[bytes, MetadataResponse] | OttlaError] = Outcome()

        def work() -> tuple[bytes, MetadataResponse] | OttlaError:
            try:
                topics = parse_response(MetadataResponse, request.version, frame)[1].topics
                response = replace(answer, topics=narrowed(topics, fans_out))
                spread = tuple(topic for topic in topics if fans_out(topic.name))
                built = build_response(response, request.version, request.correlation_id)
                return built, MetadataResponse(brokers=(), topics=spread)
            except Exception as error:
                return as_ottla_error(error)

        self._shared.threads.run(work, lambda result, now: done.succeed(result))
        result = yield from until(done)
        if isinstance(result, OttlaError):
            self._client.close(str(result))
            return
        response, spread = result
        self._shared.cluster.learn(spread, now)
        self._client.answer(request.ticket, response)

    def _describe_cluster(self, request: ClientRequest, forwarded: UpstreamFrame) -> Steps[None]:
        """Do the same for DescribeCluster, which may also name fenced brokers: they get their ports before they run."""
        frame, now = yield from forwarded
        _, answer = parse_response(DescribeClusterResponse, request.version, frame)
        cluster = self._shared.cluster
        cluster.request_ports((broker.broker_id for broker in answer.brokers), now)
        yield from self._ports()
        here = ((each, cluster.address_here(each.broker_id, self._client.listener)) for each in answer.brokers)
        brokers = tuple(replace(each, host=address[0], port=address[1]) for each, address in here if address)
        self._client.respond(request, replace(answer, brokers=brokers))

    def _ports(self) -> Steps[None]:
        """Wait until the port of every known broker was opened, or could not be."""
        open_: Outcome[None] = Outcome()
        self._shared.when_ports_are_open(partial(open_.succeed, None))
        yield from until(open_)

    def _find_coordinator(self, request: ClientRequest, forwarded: UpstreamFrame) -> Steps[None]:
        """Answer with the proxy's addresses of the coordinators in upstream's response."""
        frame, _ = yield from forwarded
        _, answer = parse_response(FindCoordinatorResponse, request.version, frame)
        if answer.coordinators:
            answer = replace(answer, coordinators=tuple(self._here(each) for each in answer.coordinators))
        else:  # before version 4
            answer = self._here(answer)
        self._client.respond(request, answer)

    def _here(self, found: C) -> C:
        """A coordinator with its address on the proxy."""
        cluster = self._shared.cluster
        if found.error_code:
            return replace(found, node_id=-1, host="", port=-1)
        if (address := cluster.address_here(found.node_id, self._client.listener)) is not None:
            return replace(found, host=address[0], port=address[1])
        self._shared.ask_for_nodes()  # the proxy does not know this broker yet: the client retries
        return replace(found, error_code=CoordinatorNotAvailable.code, node_id=-1, host="", port=-1)

    def _share(self, kind: type[S], request: ClientRequest, forwarded: UpstreamFrame) -> Steps[None]:
        """Replace the addresses of new leaders; a response without them, as nearly all are, passes as it is."""
        frame, now = yield from forwarded
        _, answer = parse_response(kind, request.version, frame)  # its records are neither read nor copied
        if answer.node_endpoints:
            endpoints = self._shared.cluster.endpoints_here(answer.node_endpoints, self._client.listener)
            self._client.respond(request, replace(answer, node_endpoints=endpoints))
        else:
            self._client.pass_back(request, (frame,), now)
