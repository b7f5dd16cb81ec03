"""Decides over each request of a client, before any other part of the proxy reads it.

Rules:
- A client with every right passes unread.
- A request with a topic id whose name the proxy does not know waits, and the later ones behind it, until upstream has
  told the name. The name of an id never changes, so it is asked for once.
- A request with bytes behind its message closes the connection: upstream might read them differently.
- A long response that has to be changed is read and built in a thread.
- Denied entries wait for the response to which they are added, and count as memory of their client. The wait may take
  minutes: brokers handle the requests of a connection one by one, and an earlier Fetch may wait for records.
- A Fetch waits no longer than the session of its client lasts.
- Transaction coordinators check the producer id of AddPartitionsToTxn and AddOffsetsToTxn. Their consent tells the
  proxy which transactional id has it, which the screens ask for.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ottla.client_info import ClientInfo
from ottla.codec.apis import APIS
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.elements import check_elements
from ottla.codec.error_codes import error_codes
from ottla.codec.frames import build_request, build_response_parts, parse_request, parse_response
from ottla.codec.wire import NO_UUID, Buffer, in_memory
from ottla.errors import NotEnoughReplicas, OttlaError, RemoteProtocolError
from ottla.proxy.clients.access.fetches import ConnectionFetchSessions
from ottla.proxy.clients.access.owners import ProducerOwners
from ottla.proxy.clients.access.screening import PASS, Asked, Change, Screen, Verdict
from ottla.proxy.clients.access.screens import IDS, SCREENS
from ottla.proxy.clients.access.shares import ConnectionShareSessions, ShareSessionOpeners
from ottla.proxy.clients.access.transactions import may_produce
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.carried import CARRIED, FETCH, METADATA, PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ANSWER_TIMEOUT, ClientLink
from ottla.proxy.clients.dialects import UNNAMED, Dialect
from ottla.proxy.clients.request_line import RequestLine
from ottla.proxy.clients.walks import produce_head, with_shorter_wait
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.link import Parts

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.acl.access import Access

MOST_NAMED = 10_000
"""The most topics, partitions, groups and so on in a request that is parsed or checked: a MiB of FindCoordinator may
name half a million groups, taking 5 s. A Produce request takes about 0.1 s if each topic differs. A request of so many
bytes cannot name more."""
_LONG = 256 * 2**10
"""Bytes of a response that is changed in a thread."""
_HELD_PER_BYTE = 12
"""Bytes of memory that are held until the response, for each byte of the request; as many were measured for Fetch."""
_LONGEST_WAIT = ANSWER_TIMEOUT / 2
"""Seconds that a Fetch may wait; after `ANSWER_TIMEOUT` its client would lose the connection."""
_METADATA_VERSION = 12
"""The first version by which a topic is found by its id."""
_CLIENT_ID = "ottla-proxy"

Pass = Callable[[ClientRequest, Buffer, float], None]
"""Handles a request that may pass."""


class GuardContext(Protocol):
    """The parts of the proxy that a guard uses."""

    access: "Access"
    buffered: Buffered
    cluster: UpstreamCluster
    owners: ProducerOwners
    threads: Threads
    share_session_openers: ShareSessionOpeners


class Guard:
    """Decides over the requests of one client.

    Args:
        info: who the client is.
    """

    def __init__(
        self, client: ClientConnection, link: ClientLink, line: RequestLine, info: ClientInfo, shared: GuardContext
    ) -> None:
        self._client, self._link, self._line, self._info, self._shared = client, link, line, info, shared
        self._dialect = UNNAMED
        self._held: dict[int, int] = {}
        """Ticket -> bytes of memory that are held until the response comes."""
        self._sessions = ConnectionFetchSessions()
        self._share_sessions = ConnectionShareSessions(link.node, shared.share_session_openers)
        self._of_sessions: dict[int, Screen] = {
            FETCH: self._sessions.fetch,
            SHARE_FETCH: self._share_sessions.fetch,
            SHARE_ACKNOWLEDGE: self._share_sessions.acknowledge,
        }

    def all_handled(self) -> None:
        """Finish, because all requests of a disconnected client are handled."""
        self._share_sessions.left()

    def speaks(self, dialect: Dialect) -> None:
        """Notice the kind of the client, as its ApiVersions request says."""
        self._dialect = dialect

    def lets_pass(self, start: Buffer, size: int) -> bool:
        """Whether a Produce request, of which this is the beginning, needs no screen."""
        if self._shared.access.has_every_right(self._info):
            return True
        head = produce_head(start, size)
        return head is not None and may_produce(self._asked(None, head.version), head)

    def screen(self, request: ClientRequest, frame: Buffer, then: Pass, now: float) -> None:
        """Decide over a request: call ``then`` with its allowed parts, or answer it.

        Raises:
            RemoteProtocolError: the request is invalid, or names too much.
        """
        if request.key in (FETCH, SHARE_FETCH):
            most = max(min(_LONGEST_WAIT, self._info.session_ends_at - now), 0.0)
            frame = with_shorter_wait(frame, int(most * 1000))
        if self._shared.access.has_every_right(self._info):
            then(request, frame, now)
            return
        if request.key == PRODUCE and self.lets_pass(frame, len(frame)):
            then(request, frame, now)
            return
        check_elements(frame, MOST_NAMED)
        parsed = parse_request(frame)
        if parsed.leftover:
            raise RemoteProtocolError(f"{CARRIED[request.key].name} has {parsed.leftover} bytes behind its end")
        unknown = self._unknown_ids(request, parsed.message)
        decide = partial(self._decide, request, parsed.message, parsed.header.client_id, frame, then)
        if unknown and self._link.newest(METADATA) >= _METADATA_VERSION:
            self._line.hold(len(frame))
            self._ask_names(unknown, decide, now)
        else:
            decide(now)

    def _asked(self, message: Any, version: int) -> Asked:
        shared = self._shared
        return Asked(
            message, version, self._info, shared.access, shared.cluster.names, shared.owners, self._dialect.abort
        )

    def _decide(
        self, request: ClientRequest, message: Any, client_id: str | None, frame: Buffer, then: Pass, now: float
    ) -> None:
        screen = self._of_sessions.get(request.key) or SCREENS[request.key]
        verdict = screen(self._asked(message, request.version))
        if verdict.closes:
            self._client.close(verdict.closes)
        elif verdict.answer is not None:
            self._client.respond(request, verdict.answer)
        else:
            if verdict is PASS and (confirmed := _producer_in(message)) is not None:
                self._client.intercept(request.ticket, partial(self._confirmed, request, *confirmed), whole=True)
            self._let_pass(request, verdict, client_id, frame, then, now)

    def _let_pass(
        self, request: ClientRequest, verdict: Verdict, client_id: str | None, frame: Buffer, then: Pass, now: float
    ) -> None:
        if verdict.change is not None and not self._client.gone:
            if not self._hold(request, _HELD_PER_BYTE * len(frame)):
                return
            self._client.intercept(request.ticket, partial(self._answered, request, verdict.change), whole=True)
        elif request.key == FETCH:
            self._client.intercept(request.ticket, partial(self._fetched, request), whole=False)
        if verdict.request is not None:
            frame = build_request(verdict.request, request.version, request.correlation_id, client_id)[4:]
        then(request, frame, now)

    def _hold(self, request: ClientRequest, size: int) -> bool:
        """Count memory that is held until the response comes, if there is room; otherwise close the connection."""
        try:
            self._shared.buffered.check_room(self._client.number, size)
        except NotEnoughReplicas:
            self._client.close("the proxy's buffer is full, and too many requests of this client wait for upstream")
            return False
        self._held[request.ticket] = size
        self._shared.buffered.count(self._client.number, size)
        return True

    def _release(self, request: ClientRequest) -> None:
        if size := self._held.pop(request.ticket, 0):
            self._shared.buffered.count(self._client.number, -size)

    def left(self) -> None:
        """Handle the end of the client's connection: no response is changed any more."""
        self._shared.buffered.count(self._client.number, -sum(self._held.values()))
        self._held.clear()

    # -- topic ids

    def _unknown_ids(self, request: ClientRequest, message: Any) -> "tuple[UUID, ...]":
        if (ids := IDS.get(request.key)) is None:
            return ()
        names = self._shared.cluster.names
        return tuple(dict.fromkeys(each for each in ids(message) if each != NO_UUID and each not in names))

    def _ask_names(self, ids: "tuple[UUID, ...]", decide: Callable[[float], None], now: float) -> None:
        """Ask upstream for the names of topics, and decide; ids that upstream does not know stay without a name."""
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(topic_id=each, name=None) for each in ids),
            allow_auto_topic_creation=False,
        )

        def told(parts: Parts, now: float) -> None:
            _, answer = parse_response(MetadataResponse, _METADATA_VERSION, b"".join(parts))
            self._shared.cluster.learn_names(answer.topics)
            self._line.release(now, self._client.contained(partial(self._go_on, decide)))

        frame = build_request(request, _METADATA_VERSION, 0, _CLIENT_ID)[4:]
        self._link.forward(frame, self._client.contained(told), now, lost=self._line.release)

    def _go_on(self, decide: Callable[[float], None], now: float) -> None:
        if self._client.closed:
            return
        try:
            decide(now)
        except RemoteProtocolError as error:
            self._client.close(str(error))

    # -- responses

    def _fetched(self, request: ClientRequest, parts: Parts, left: int) -> None:
        """Learn from the beginning of a response to Fetch which session it begins, and pass it on."""
        start = b"".join(bytes(memoryview(part)[:32]) for part in parts[:4])
        self._sessions.notice(request.version, start[4:])
        self._client.answer_now(request.ticket, *parts, left=left)

    def _confirmed(
        self, request: ClientRequest, transactional_id: str, producer_id: int, parts: Parts, left: int
    ) -> None:
        """Learn from the coordinator's consent that the transactional id has this producer id."""
        _, answer = parse_response(APIS[request.key].response, request.version, b"".join(parts)[4:])
        if _consents(answer):
            self._shared.owners.confirm(transactional_id, producer_id, self._info.principal)
        self._client.answer_now(request.ticket, *parts, errors=error_codes(answer), left=left)

    def _answered(self, request: ClientRequest, change: Change, parts: Parts, left: int) -> None:
        """Answer with a changed response of upstream."""
        self._release(request)
        frame = b"".join(parts)[4:]
        if len(frame) <= _LONG:
            self._respond(request, _changed(request, change, frame), 0.0)
        else:
            self._shared.threads.run(
                partial(_changed, request, change, frame),
                self._client.contained(partial(self._respond, request)),
            )

    def _respond(
        self, request: ClientRequest, result: "tuple[list[Buffer], list[int]] | OttlaError", now: float
    ) -> None:
        if isinstance(result, OttlaError):
            self._client.close(str(result))
        else:
            parts, errors = result
            self._client.answer_now(request.ticket, *parts, errors=errors)


def _producer_in(message: Any) -> tuple[str, int] | None:
    """The transactional id and the producer id of a request that brings partitions or offsets into a transaction."""
    match message:
        case AddPartitionsToTxnRequest():
            return message.v3_and_below_transactional_id, message.v3_and_below_producer_id
        case AddOffsetsToTxnRequest():
            return message.transactional_id, message.producer_id
        case _:
            return None


def _consents(answer: Any) -> bool:
    """Whether a coordinator has agreed: a request for no partition gets no error, because there is no place for one."""
    if isinstance(answer, AddPartitionsToTxnResponse) and not any(
        each.results_by_partition for each in answer.results_by_topic_v3_and_below
    ):
        return False
    return not any(error_codes(answer))


def _changed(request: ClientRequest, change: Change, frame: bytes) -> "tuple[list[Buffer], list[int]] | OttlaError":
    """The parts of a changed response, and its error codes; runs in a thread, and raises nothing."""
    try:
        _, message = parse_response(APIS[request.key].response, request.version, frame)
        changed = change(message)
        if changed is message:
            return [len(frame).to_bytes(4, "big"), frame], error_codes(message)
        return in_memory(build_response_parts(changed, request.version, request.correlation_id)), error_codes(changed)
    except Exception as error:
        return as_ottla_error(error)
