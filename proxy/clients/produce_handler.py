"""Handles Produce requests: the proxy rewrites record sets, passes them to the client's broker, or refuses them.

Rules:
- Record sets for rewritten topics go to `Acceptance`, in the order of their arrival; the rest of the request goes to
  the broker. `PendingProduce` makes one response of both.
- Record sets for topics in mode `reject` are screened first; the accepted ones stay in one request with all others. If
  the rule of one of these topics changes meanwhile, the request is handled again, under the new rules.
- After a change of the rules, no records overtake earlier ones of their client that go another way (`Unsettled`).
- With ``acks=0`` no response can say that records were refused, so the client's connection is closed, as on a broker.
- A request that names a partition twice is refused as a whole. Kafka's broker keeps only the last batch of such
  a partition, and answers once (KafkaApis.handleProduceRequest); no client sends such a request.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.frames import build_request, parse_request, parse_response
from ottla.codec.wire import Buffer
from ottla.errors import InvalidRequest, InvalidRequiredAcks, NotLeaderOrFollower
from ottla.proxy.clients.acceptance import Acceptance
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import Answered, Offer, Origin
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.dialects import Dialect
from ottla.proxy.clients.observer import Observer, Tallies, records_of_head
from ottla.proxy.clients.opening import detached
from ottla.proxy.clients.pending_produce import PendingProduce
from ottla.proxy.clients.record_set_queue import OVERHEAD
from ottla.proxy.clients.rejecter import Refusals, Rejecter
from ottla.proxy.clients.request_line import RequestLine
from ottla.proxy.clients.steps import Steps, run
from ottla.proxy.clients.unsettled import Unsettled
from ottla.proxy.clients.walks import produce_head
from ottla.proxy.clients.windows import ClientResult
from ottla.proxy.routing import TopicRules
from ottla.proxy.topic_rule import Mode
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.link import Parts
from ottla.proxy.upstream.principals import Principal
from ottla.sdk.timers import Timers

ENDPOINTS_SINCE = 10
"""The first version of Produce whose responses have addresses of leaders (KIP-951)."""
_NAMED_TWICE = ClientResult(InvalidRequest.code, error_message="the request names a partition more than once")
"""The response to such a request could not distinguish the two."""
_RULES_CHANGED = ClientResult(
    NotLeaderOrFollower.code, error_message="the proxy's topic rules have just changed: send the records again"
)


class _Taken(NamedTuple):
    """A Produce request.

    Attributes:
        message: the record sets that are not refused yet.
        frame: the whole request.
    """

    request: ClientRequest
    message: ProduceRequest
    pending: PendingProduce
    frame: Buffer


class ProduceContext(Protocol):
    """The parts of the proxy that Produce requests use."""

    timers: Timers
    rules: TopicRules
    admission: Admission
    tallies: Tallies
    observer: Observer
    rejecter: Rejecter
    acceptance: Acceptance
    cluster: UpstreamCluster


class ProduceHandler:
    """Handles one client's Produce requests.

    Args:
        peer: the client's ``host:port``, for logs.
    """

    def __init__(
        self, client: ClientConnection, peer: str, link: ClientLink, line: RequestLine, shared: ProduceContext
    ) -> None:
        self._client, self._link, self._line, self._shared = client, link, line, shared
        self._origin = Origin(client.number, peer)
        self._unsettled = Unsettled(shared.rules, shared.timers)
        self._unread = 0
        """Bytes of the request that has begun, and that the client has not sent yet."""
        self._begun = 0, 0
        """Its records, and their bytes."""
        self._unanswered: ClientRequest | None = None
        """That request, if it has no response (``acks=0``)."""

    def runs(self, software: str) -> None:
        """Notice the client's software, as its ApiVersions request names it."""
        self._origin = replace(self._origin, software=software)

    def acts_for(self, principal: Principal) -> None:
        """Notice the client's user at upstream."""
        self._origin = replace(self._origin, principal=principal)

    def produce(self, request: ClientRequest, frame: Buffer, dialect: Dialect, now: float) -> None:
        """Handle a Produce request of a client with this dialect."""
        parsed = parse_request(frame)
        message: ProduceRequest = parsed.message
        client_id = parsed.header.client_id
        if client_id != self._origin.client_id:
            self._origin = replace(self._origin, client_id=client_id)
        pending = PendingProduce(message, request.version, dialect, partial(self._client.respond, request))
        if pending.names_a_partition_twice:
            self._refuse_whole(message, pending, _NAMED_TWICE, now)
        else:
            self._handle(_Taken(request, message, pending, frame), now)

    def _handle(self, taken: _Taken, now: float) -> None:
        """Handle a request as the modes of its topics say, once it overtakes no earlier records."""
        if self._client.closed:  # while the request waited
            return
        if self._unsettled.must_go_first:
            self._line.hold(len(taken.frame))
            self._unsettled.when_ended(self._client.contained(partial(self._go_on, taken)), now)
        elif any(self._shared.rules.mode(topic.name) is Mode.REJECT for topic in taken.message.topic_data):
            run(self._screen(taken, now), self._client)
        else:
            self._carry_out(taken, now)

    def _go_on(self, taken: _Taken, in_time: bool, now: float) -> None:
        """Handle a request that has waited for earlier ones."""
        refuse = partial(self._refuse_whole, taken.message, taken.pending, _RULES_CHANGED)
        self._line.release(now, self._client.contained(partial(self._handle, taken) if in_time else refuse))

    def _screen(self, taken: _Taken, now: float) -> Steps[None]:
        """Refuse the record sets that mode `reject` does not let pass, and handle the others."""
        message, rules = taken.message, self._shared.rules
        rejecting = [topic for topic in message.topic_data if rules.mode(topic.name) is Mode.REJECT]
        others = [topic for topic in message.topic_data if rules.mode(topic.name) is not Mode.REJECT]
        self._line.hold(len(taken.frame))
        again = None
        try:
            refusals, now = yield from self._shared.rejecter.screen(self._origin, rejecting, now)
            if refusals is None or any(rules.mode(topic.name) is Mode.REJECT for topic in others):
                again = self._client.contained(partial(self._handle, taken))
            elif not self._client.closed:  # an earlier request may have closed it meanwhile
                rest = self._without(message, refusals, taken.pending, now)
                self._carry_out(taken._replace(message=rest), now)
        except Exception:
            self._client.failed("a request")
        self._line.release(now, again)

    def _without(
        self, message: ProduceRequest, refusals: Refusals, pending: PendingProduce, now: float
    ) -> ProduceRequest:
        """Tell the client of refused record sets, and return the request without them."""
        if not refusals:
            return message
        for (name, index), refusal in refusals.items():
            self._settle(message.acks, pending, name, index, refusal, now)
        kept = (
            replace(
                topic,
                partition_data=tuple(each for each in topic.partition_data if (topic.name, each.index) not in refusals),
            )
            for topic in message.topic_data
        )
        return replace(message, topic_data=tuple(topic for topic in kept if topic.partition_data))

    def _carry_out(self, taken: _Taken, now: float) -> None:
        """Rewrite record sets, and pass the others on."""
        request, message, pending, frame = taken
        rewrites = self._shared.rules.rewrites
        rewritten = tuple(topic for topic in message.topic_data if rewrites(topic.name))
        passed = tuple(
            topic
            for topic in message.topic_data
            if not rewrites(topic.name) and not self._keeps_back(topic, message.acks, pending, now)
        )
        self._observe(passed, now)
        if rewritten:
            self._rewrite(rewritten, message, pending, len(frame), now)
        if passed:
            pending.pass_on(passed)
            whole = pending.passes_whole
            if not whole:
                rest = replace(message, topic_data=passed)
                frame = build_request(rest, request.version, request.correlation_id, self._origin.client_id)[4:]
            self._forward(taken, frame, now, whole=whole)
        if message.acks == 0:
            self._client.answer(request.ticket)
        elif not passed:
            pending.answer_if_complete()

    def _forward(self, taken: _Taken, frame: Buffer, now: float, *, whole: bool, size: int = 0) -> None:
        """Forward what passes of a request, of which ``frame`` may be the beginning."""
        if not taken.message.acks:
            self._link.forward(frame, None, now, size=size)
            return
        [number] = self._unsettled.begin()
        arrived = partial(self._produced, taken, number, whole=whole)
        self._link.forward(frame, arrived, now, size=size, lost=partial(self._unsettled.ended, number))

    # -- requests that pass piece by piece

    def passes(self, start: Buffer, size: int) -> bool:
        """Whether a request of ``size`` bytes passes unread, as its beginning tells.

        The others are read whole, also those with several partitions, because these may name one twice.
        """
        head = produce_head(start, size)
        return (
            head is not None
            and not self._unsettled.must_go_first
            and self._shared.rules.of(head.topic) is None
            and records_of_head(head.data, head.size) is not None
            and self._shared.admission.may_pass(head.topic, head.data)
        )

    def begin(self, request: ClientRequest, size: int, start: Buffer, dialect: Dialect, now: float) -> None:
        """Forward the beginning of a request that `passes`."""
        head = produce_head(start, size)
        assert head is not None, "it passes"
        self._begun = records_of_head(head.data, head.size) or 0, head.size
        self._unread = size - len(start)
        self._unanswered = None if head.acks else request
        unread = PartitionProduceData(index=head.partition, records=None)
        topic = TopicProduceData(name=head.topic, partition_data=(unread,))
        message = ProduceRequest(
            transactional_id=head.transactional_id, acks=head.acks, timeout_ms=0, topic_data=(topic,)
        )
        pending = PendingProduce(message, request.version, dialect, partial(self._client.respond, request))
        pending.pass_on((topic,))
        self._forward(_Taken(request, message, pending, start), start, now, whole=True, size=size)

    def go_on(self, piece: Buffer, now: float) -> None:
        """Forward the next piece of the request that has begun."""
        self._unread -= len(piece)
        self._link.go_on(piece, now)
        if self._unread:
            return
        self._shared.tallies.count_passed(*self._begun)  # now: the client might have left before
        if self._unanswered is not None:
            self._client.answer(self._unanswered.ticket)

    # -- record sets that pass

    def _keeps_back(self, topic: TopicProduceData, acks: int, pending: PendingProduce, now: float) -> bool:
        """Refuse records for a topic that is not rewritten if they must not pass; returns whether they were refused."""
        refuses = self._shared.admission.refuses_to_pass
        refusal = next(
            filter(None, (refuses(topic.name, each.records, self._origin) for each in topic.partition_data)), None
        )
        if refusal is None:
            return False
        for each in topic.partition_data:
            self._settle(acks, pending, topic.name, each.index, refusal, now)
        return True

    def _observe(self, topics: Iterable[TopicProduceData], now: float) -> None:
        for topic in topics:
            for each in topic.partition_data:
                self._shared.tallies.passed(each.records)
            if self._shared.rules.mode(topic.name) is Mode.OBSERVE:
                self._shared.observer.observe(self._origin, topic.name, topic.partition_data, now)

    def _produced(self, taken: _Taken, number: int, frame: Parts, now: float, *, whole: bool) -> None:
        request = taken.request
        if whole and request.version < ENDPOINTS_SINCE:
            self._client.pass_back(request, frame, now)
        else:
            _, answer = parse_response(ProduceResponse, request.version, b"".join(frame))
            endpoints = self._shared.cluster.endpoints_here(answer.node_endpoints, self._client.listener)
            taken.pending.take(replace(answer, node_endpoints=endpoints))
        self._unsettled.ended(number, now)

    # -- record sets that are rewritten

    def _rewrite(
        self,
        topics: tuple[TopicProduceData, ...],
        message: ProduceRequest,
        pending: PendingProduce,
        size: int,
        now: float,
    ) -> None:
        # All at once: record sets that are queued are unsettled, too.
        numbered = [(topic, self._unsettled.begin(len(topic.partition_data))) for topic in topics]
        offers = self._offers(numbered, message, pending)
        if message.acks in (-1, 0, 1):
            size += OVERHEAD * sum(len(topic.partition_data) for topic in topics)
            self._shared.acceptance.line.request(self._client.number, offers, size, now)
        else:
            for offer in offers:
                offer.refuse(InvalidRequiredAcks(), now)

    def _offers(
        self, numbered: Iterable[tuple[TopicProduceData, range]], message: ProduceRequest, pending: PendingProduce
    ) -> Iterator[Offer]:
        """The record sets of these rewritten topics."""
        for topic, numbers in numbered:
            for each, number in zip(topic.partition_data, numbers, strict=True):
                heard = partial(pending.settle, topic.name, each.index) if message.acks else self._unawaited
                yield Offer(
                    topic=topic.name,
                    partition=each.index,
                    data=detached(each.records or b""),
                    transactional_id=message.transactional_id,
                    version=pending.version,
                    origin=self._origin,
                    awaited=message.acks != 0,
                    timeout=message.timeout_ms / 1000,
                    answered=self._client.contained(partial(self._settled, number, heard)),
                )

    def _settled(self, number: int, heard: Answered, outcome: ClientResult, now: float) -> None:
        """Take the outcome of a rewritten record set."""
        try:
            heard(outcome, now)
        finally:
            self._unsettled.ended(number, now)

    # -- refusals

    def _settle(
        self, acks: int, pending: PendingProduce, topic: str, partition: int, refusal: ClientResult, now: float
    ) -> None:
        if acks:
            pending.settle(topic, partition, refusal, now)
        else:
            self._unawaited(refusal, now)

    def _refuse_whole(
        self, message: ProduceRequest, pending: PendingProduce, refusal: ClientResult, now: float
    ) -> None:
        """Refuse all record sets of a request."""
        if not message.acks:
            self._unawaited(refusal, now)
            return
        for topic in message.topic_data:
            for each in topic.partition_data:
                pending.settle(topic.name, each.index, refusal, now)

    def _unawaited(self, outcome: ClientResult, now: float) -> None:
        """Take the outcome of records with ``acks=0``: an error closes the connection, as on a broker."""
        if outcome.error_code:
            why = f"records with acks=0 were refused with error {outcome.error_code}: {outcome.error_message}"
            self._client.close(why)
