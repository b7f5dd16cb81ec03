"""Handles one client's requests that would read a topic in mode `fan-out`, or ask for its partitions and offsets.

`ottla.proxy.clients.one_partition` has the answers, and the reasons.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from ottla.codec.apis.describe_topic_partitions import DescribeTopicPartitionsResponse
from ottla.codec.frames import build_request, parse_request, parse_response
from ottla.codec.wire import Buffer
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.carried import CARRIED, DESCRIBE_TOPIC_PARTITIONS
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.one_partition import BY_TOPIC, WHOLE, ByTopic, name_of, narrowed_description
from ottla.proxy.clients.steps import Steps, run
from ottla.proxy.routing import TopicRules


class OnePartitionContext(Protocol):
    """The parts of the proxy that these requests use."""

    rules: TopicRules

    def refused_to_read(self, topic: str, request: str, client: Origin, now: float) -> None:
        """Log that a client may not read a topic: most responses have no room for a reason."""


class OnePartitionHandler:
    """Refuses a client's requests about topics in mode `fan-out`, and passes on those about others.

    Args:
        peer: the client's ``host:port``, for logs.
    """

    def __init__(self, client: ClientConnection, peer: str, link: ClientLink, shared: OnePartitionContext) -> None:
        self._client, self._peer, self._link, self._shared = client, peer, link, shared

    def handles(self, key: int) -> bool:
        """Whether requests of an API have to be read, because a topic may be in mode `fan-out`."""
        return self._shared.rules.any_fan_out and (key in BY_TOPIC or key in WHOLE or key == DESCRIBE_TOPIC_PARTITIONS)

    def handle(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Answer a request, or forward it."""
        if request.key == DESCRIBE_TOPIC_PARTITIONS:
            run(self._describe(request, frame, now), self._client)
        elif request.key in BY_TOPIC:
            run(self._without_refused(BY_TOPIC[request.key], request, frame, now), self._client)
        else:
            self._refuse_or_forward(request, frame, now)

    def _refuse_or_forward(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        parsed = parse_request(frame)
        how, fans_out = WHOLE[request.key], self._shared.rules.fans_out
        refused = [name for name in how.names(parsed.message) if fans_out(name)]
        if refused:
            self._log(request, refused, parsed.header.client_id, now)
            self._client.respond(request, how.refusal(parsed.message, fans_out))
        else:
            self._link.pass_on(request, frame, now)

    def _without_refused(self, how: ByTopic, request: ClientRequest, frame: Buffer, now: float) -> Steps[None]:
        """Forward a request without the topics that are refused, and answer for all."""
        parsed = parse_request(frame)
        topics, client_id, fans_out = parsed.message.topics, parsed.header.client_id, self._shared.rules.fans_out
        refused = [topic for topic in topics if fans_out(name_of(topic))]
        if not refused:
            self._link.pass_on(request, frame, now)
            return
        del frame
        self._log(request, map(name_of, refused), client_id, now)
        answers = tuple(map(how.refused, refused))
        if len(refused) == len(topics):
            self._client.respond(request, how.response(topics=answers))
            return
        rest = replace(parsed.message, topics=tuple(topic for topic in topics if not fans_out(name_of(topic))))
        forwarded = build_request(rest, request.version, request.correlation_id, client_id)[4:]
        reply, _ = yield from self._link.ask(forwarded, now)
        _, answer = parse_response(how.response, request.version, reply)
        self._client.respond(request, replace(answer, topics=(*answer.topics, *answers)))

    def _describe(self, request: ClientRequest, frame: Buffer, now: float) -> Steps[None]:
        """Forward DescribeTopicPartitions, and answer with one partition of these topics."""
        reply, _ = yield from self._link.ask(frame, now)
        _, answer = parse_response(DescribeTopicPartitionsResponse, request.version, reply)
        self._client.respond(request, narrowed_description(answer, self._shared.rules.fans_out))

    def _log(self, request: ClientRequest, topics: Iterable[str], client_id: str | None, now: float) -> None:
        origin = Origin(self._client.number, self._peer, client_id)
        for topic in topics:
            self._shared.refused_to_read(topic, CARRIED[request.key].name, origin, now)
