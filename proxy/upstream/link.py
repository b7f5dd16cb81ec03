"""One upstream connection: TLS, the handshake, correlation ids, and responses in the order of the requests.

Rules:
- TLS and the stages of the handshake are the client's (`ottla.sdk.connection`). No other request is sent before them.
- Then the broker tells its cluster id: another cluster may have the address by now, and gets no requests. A broker
  tells it only to clients that have logged in. So before a client's login, or one with its credentials, the proxy logs
  in there as itself, on a connection of its own (`Recognition`).
- When a session is about to expire (KIP-368), the next request starts a reauthentication behind all requests in flight.
  Until it is done the link is not ready, as before its first handshake, and its user holds back new requests.
- The link has its own correlation ids: it replaces a client's id in the request, and restores it in the response.
- A broker answers one connection's requests in order. A response out of order, or without a request, ends the link.
- When a link ends, every waiting request fails with its outcome unknown.
- A passage is a large frame that is passed on in pieces, as its bytes arrive, to the client or to the broker. A
  response may be long under way: its deadline moves with each piece, and is off while the client is the slower one.
  Other requests wait until the passage of a request is complete. If its client leaves before that, the link finishes.
- A client that disconnects does not cancel its requests. Its link lingers until they are answered, and then finishes:
  it sends the end of its output, and upstream reads all bytes and closes. A close at once could make the operating
  system drop requests that upstream has not read.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.addresses import format_address
from ottla.codec import wire
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.frames import build_request_parts, parse_response
from ottla.codec.inbox import Blocks
from ottla.codec.wire import Buffer
from ottla.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionLost,
    InconsistentClusterId,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
)
from ottla.proxy.clients.carried import Versions
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.events import Action, Address, ConnectUpstream, DisconnectUpstream, FinishUpstream, SendUpstream
from ottla.proxy.upstream.principals import Principal
from ottla.proxy.upstream.recognition import HOLDS, Recognition
from ottla.sdk.connection.credentials import ConnectionCredentials, Credentials
from ottla.sdk.connection.handshake import HINT_AFTER, OURS, Features, HandshakeRequest, Software
from ottla.sdk.connection.session import Session
from ottla.sdk.connection.wire import Sink, Wire
from ottla.server_metrics import Histogram

if TYPE_CHECKING:
    from ottla.tls import TLS, TlsConnection  # for types only: a state machine imports no OpenSSL

log = logging.getLogger("ottla.proxy")

M = TypeVar("M", bound=wire.Declared)
CLIENT_ID = "ottla-proxy"
_MOST_OFFERS = 1000
_METADATA_VERSION = 12
_SAYS_CLUSTER_ID = 2
LINGER = 120.0
"""Seconds after its client has disconnected until a link ends, even if upstream has not answered or read everything."""
STALLED = 30.0
"""Seconds after a piece of a response until a link ends if upstream sends no other piece."""
MOST_ENDING = 500
"""The most links of disconnected clients that only wait for responses; beyond it the oldest is closed."""
_CORRELATION_ID = slice(4, 8)
"""Its bytes in a request frame; a response begins with it."""

Parts = tuple[Buffer, ...]
"""The pieces of a frame."""
Failed = Callable[[OttlaError, float], None]
Passed = Callable[[Parts, int, float], None]
"""Gets a piece of a response, the first one with the length of the frame, and how many bytes follow."""


@dataclass(slots=True, eq=False)
class _Expected:
    """A response that the link waits for."""

    correlation_id: int
    deadline: float
    what: str
    arrived: Callable[[Buffer, float], None]
    failed: Failed
    key: int
    """The API."""
    sent: float = 0.0
    passed: Callable[[int, Buffer, int, float], None] | None = None
    """Gets the pieces of a large response, with the size of the frame and how many bytes follow; ``None``: the response
    is collected."""

    def sent_at(self, now: float) -> None:
        """Take the time when its request is sent: a reauthentication may hold it back."""
        self.sent = now

    def wait_until(self, deadline: float) -> None:
        """Move the deadline: a part of the request or of the response has passed."""
        self.deadline = deadline


class UpstreamLinks:
    """Opens links, and finds the live ones by number.

    Args:
        tls: the TLS settings for upstream; ``None`` for plaintext.
        credentials: the SASL credentials of the proxy itself, if upstream requires them.
        nobody: no credentials, for links whose clients log in to upstream themselves.
        most_ending: the most links that linger or finish; beyond it the oldest is closed, even with requests to send.
            All clients may disconnect at once, so it is at least the number of clients.
    """

    def __init__(
        self,
        actions: list[Action],
        connect_timeout: float,
        tls: "TLS | None",
        credentials: Credentials,
        nobody: Credentials,
        most_ending: int = MOST_ENDING,
    ) -> None:
        self.actions = actions
        self.connect_timeout, self.credentials, self.nobody = connect_timeout, credentials, nobody
        self.blocks = Blocks()
        """The memory of large responses that are collected."""
        self.now = 0.0
        """The time of the last event or poll."""
        self.cluster_id: str | None = None
        """The cluster id that upstream must have; ``None``: any."""
        self.durations: dict[Address, dict[int, Histogram]] = {}
        """Of the requests to the last `_MOST_OFFERS` brokers, by API; the newest broker last."""
        self.unanswered: dict[Address, int] = {}
        """How many requests to these brokers ended without a response."""
        self._offers: dict[Address, tuple[Versions, Features]] = {}
        """What the last `_MOST_OFFERS` brokers have offered; the newest last."""
        self._most_ending = most_ending
        self._tls, self._stale = tls, ""
        self._live: dict[int, UpstreamLink] = {}
        self._ending: dict[UpstreamLink, None] = {}
        """Links that linger or finish, the oldest first."""
        self._unconnected: dict[UpstreamLink, ConnectUpstream] = {}
        """Links that wait before they connect."""
        self._awaiting_token: dict[UpstreamLink, None] = {}
        """Those that wait for a token; the others wait until their broker is recognized."""
        self._recognition = Recognition(self.connect)
        self._numbers = count(1)
        self._next_look = 0.0

    def tick(self, now: float) -> None:
        """Take the time of an event or poll."""
        self.now = now

    def require_cluster(self, cluster_id: str | None) -> None:
        """Have later links end if their brokers belong to another cluster; ``None``: any will do."""
        self.cluster_id = cluster_id

    def connect(
        self,
        address: Address,
        now: float,
        *,
        ready: Callable[[float], None],
        lost: Failed,
        client: int | None = None,
        software: Software = OURS,
        principal: Principal | None = None,
    ) -> "UpstreamLink":
        """Open a link.

        Args:
            ready: called when requests can be sent.
            lost: called once when the link has ended, after all its waiting requests have failed.
            client: the client that the link serves; ``None`` for a link of the proxy's own.
            software: the client's software, for upstream.
            principal: as whom the link logs in; ``None``: as the proxy itself.
        """
        credentials = principal or self.credentials
        link = UpstreamLink(self, next(self._numbers), address, now, ready, lost, software, credentials)
        self._open(link, client, now)
        return link

    def relay(
        self,
        address: Address,
        now: float,
        *,
        ready: Callable[[float], None],
        lost: Failed,
        client: int,
        software: Software = OURS,
    ) -> "UpstreamLink":
        """Open a link on which the client itself logs in; see `connect`."""
        link = RelayedLink(self, next(self._numbers), address, now, ready, lost, software, self.nobody)
        self._open(link, client, now)
        return link

    def _open(self, link: "UpstreamLink", client: int | None, now: float) -> None:
        """Connect a link, at once or when there is a token, and its broker is recognized."""
        self._live[link.number] = link
        self._unconnected[link] = ConnectUpstream(link.number, link.address, client)
        self._admit(link, now)

    def _admit(self, link: "UpstreamLink", now: float) -> None:
        if not link.credentials.usable(now):
            self._awaiting_token[link] = None
        elif link.credentials is self.credentials or self.cluster_id is None:
            link.connect(now)
        else:
            link.await_recognition()
            self._recognition.admit(link, link.address, now)

    def connect_now(self, link: "UpstreamLink", now: float) -> None:
        """Have the driver connect a link if it has credentials."""
        if link.credentials.usable(now):
            self.actions.append(self._unconnected.pop(link))
        else:
            self._awaiting_token[link] = None

    def distrust(self, address: Address) -> None:
        """Recognize an address again before clients log in there."""
        self._recognition.distrust(address)

    def remember_offer(self, address: Address, versions: Versions, features: Features) -> None:
        """Remember what a broker offers, for clients that come while upstream is unavailable."""
        self._offers.pop(address, None)
        self._offers[address] = versions, features
        if len(self._offers) > _MOST_OFFERS:  # addresses come and go
            del self._offers[next(iter(self._offers))]

    def offer_of(self, address: Address | None) -> tuple[Versions, Features] | None:
        """What a broker offered last; of a broker that has never answered, what another one offered."""
        known = None if address is None else self._offers.get(address)
        return known or next(reversed(self._offers.values()), None)

    def durations_of(self, address: Address) -> dict[int, Histogram]:
        """The durations of the requests to a broker, by API."""
        known = self.durations[address] = self.durations.pop(address, {})
        if len(self.durations) > _MOST_OFFERS:  # addresses come and go
            gone = next(iter(self.durations))
            del self.durations[gone]
            self.unanswered.pop(gone, None)
        return known

    def in_flight(self) -> Iterator[tuple[Address, int]]:
        """Each connection: its broker, and how many requests wait for a response."""
        for link in list(self._live.values()):
            yield link.address, link.in_flight

    def find(self, number: int) -> "UpstreamLink | None":
        return self._live.get(number)

    def hang_up(self, link: "UpstreamLink") -> None:
        """Close the connection of a link."""
        del self._live[link.number]
        self._ending.pop(link, None)
        if link.address in self.durations:
            self.unanswered[link.address] = self.unanswered.get(link.address, 0) + link.in_flight
        self._awaiting_token.pop(link, None)
        self._recognition.withdraw(link, link.address)
        if self._unconnected.pop(link, None) is None:
            self.actions.append(DisconnectUpstream(link.number))

    def ends(self, link: "UpstreamLink", now: float) -> None:
        """Register a link that lingers or finishes; ends the oldest one if there are too many."""
        self._ending[link] = None
        if len(self._ending) <= MOST_ENDING:
            return
        waiting = [each for each in self._ending if not each.has_to_send]
        if len(waiting) > MOST_ENDING:
            oldest = waiting[0]
        elif len(self._ending) > self._most_ending:
            oldest = next(iter(self._ending))
        else:
            return
        oldest.end(TimeoutExpired(f"{oldest}: too many clients disconnected before their responses"), now)

    @property
    def idle(self) -> bool:
        """All links of disconnected clients have sent their requests; some may wait for responses."""
        return all(link.ready for link in self._ending)

    def finish(self, now: float) -> None:
        """Finish all links of disconnected clients, because the proxy stops."""
        for link in list(self._ending):
            link.finish(now)

    @property
    def finished(self) -> bool:
        """Upstream has closed all links of disconnected clients."""
        return not self._ending

    def begin(self, now: float) -> None:
        """Connect the links that wait for a token, if there is one; end them if it was denied."""
        for link in list(self._awaiting_token):
            if not link.open:  # the end of another one has closed it
                continue
            if link.credentials.usable(now):
                del self._awaiting_token[link]
                self._admit(link, now)
            elif denied := link.credentials.denied:
                link.end(type(denied)(f"{link}: {denied}"), now)

    def secured(self, host: str) -> "TlsConnection | None":
        """The proxy's side of TLS for a new connection; ``None`` for plaintext."""
        if self._tls is None:
            return None
        secured = self._tls.connection(host)
        if self._tls.stale != self._stale:
            self._stale = self._tls.stale
            if self._stale:
                log.warning("new TLS files for upstream cannot be loaded, keeping the previous ones: %s", self._stale)
        return secured

    @property
    def deadline(self) -> float | None:
        return self._next_look if self._live else None

    def expire(self, now: float) -> None:
        """End the links whose deadline has passed; checks once a second, so that most polls cost nothing."""
        if now >= self._next_look:
            self._next_look = now + 1.0
            self._recognition.try_again(now)
            for link in [link for link in self._live.values() if link.deadline <= now]:
                link.time_out(now)


class UpstreamLink:
    """One upstream connection.

    Args:
        credentials: by which the link logs in.
    """

    def __init__(
        self,
        links: UpstreamLinks,
        number: int,
        address: Address,
        now: float,
        ready: Callable[[float], None],
        lost: Failed,
        software: Software,
        credentials: ConnectionCredentials,
    ) -> None:
        self.number = number
        self.address = address
        self.credentials = credentials
        self.ready = False
        """The link takes requests: after the handshake, and not during a reauthentication."""
        self.open = True
        self._links = links
        self._on_ready, self._on_lost = ready, lost
        self._expected: deque[_Expected] = deque()
        self._durations = links.durations_of(address)
        wire = partial(Wire, begins=self._begins, blocks=links.blocks)
        self._session = Session(credentials, _renewal, software, wire)
        self._begun = False
        """The link has been ready at least once."""
        self._end_by = math.inf
        """When the link ends, even with open requests."""
        self._finishes = False
        """No more requests will be sent."""
        self._served = False
        """A request after the handshake was answered; only messages use it."""
        self._held: list[tuple[_Expected | None, Parts]] | None = None
        """Requests held back by a reauthentication, or by a passage of another request; ``None`` if there is none."""
        self._sending: tuple[int, _Expected | None] | None = None
        """The request that a client is still sending: how many bytes of it are missing, and its response."""
        self._paused = False
        """The client is slower than upstream, so that this connection is not read."""
        self.unsent = 0
        """Bytes of the requests that the link still held back when it ended."""
        self._correlation_ids = count(1)
        self._connect_by = now + links.connect_timeout
        self.connecting_since = now
        """When it began to connect."""
        self._awaits_recognition = False
        """The link does not connect, or did not, before its broker is recognized."""

    @property
    def versions(self) -> Versions:
        """API versions of the broker; empty until the link is ready."""
        return self._session.versions

    @property
    def features(self) -> Features:
        """Finalized features of the cluster; empty until the link is ready."""
        return self._session.features

    @property
    def deadline(self) -> float:
        if not self._begun:
            return min(self._connect_by, self._end_by)
        return min(self._expected[0].deadline if self._expected and not self._paused else math.inf, self._end_by)

    @property
    def in_flight(self) -> int:
        """How many requests wait for a response."""
        return len(self._expected)

    @property
    def has_to_send(self) -> bool:
        """Whether requests may be unsent: the link is not ready, or no response is expected (``acks=0``)."""
        return not self.ready or not self._expected

    def version(self, message: type[Any], newest: int) -> int:
        """The newest version of a message's API that both sides know, up to ``newest``.

        Raises:
            RemoteProtocolError: there is no common version.
        """
        declared = wire.api(message)
        low, high = self.versions.get(declared.key, (0, -1))
        version = min(high, newest, declared.versions.high)
        if version < max(low, declared.versions.low):
            raise RemoteProtocolError(f"{self} serves no version of {message.__name__} that the proxy knows")
        return version

    def ask(
        self,
        request: Any,
        response: type[M],
        version: int,
        *,
        deadline: float,
        answered: Callable[[M, float], None],
        failed: Failed,
        client_id: str | None = CLIENT_ID,
    ) -> None:
        """Send one of the proxy's own requests, or one on behalf of the client with this id."""

        def arrived(frame: Buffer, now: float) -> None:
            answered(parse_response(response, version, frame)[1], now)

        correlation_id = self._correlation_id()
        key = wire.api(type(request)).key
        expected = _Expected(correlation_id, deadline, type(request).__name__, arrived, failed, key)
        self._send(expected, *build_request_parts(request, version, correlation_id, client_id))

    def forward(
        self,
        frame: Buffer,
        *,
        deadline: float,
        arrived: Callable[[Parts, float], None] | None,
        failed: Failed,
        passed: Passed | None = None,
        size: int = 0,
    ) -> None:
        """Forward a client's request; the response gets the client's correlation id. No frame is copied.

        Args:
            arrived: gets the frame of the response, in parts; ``None`` for a request without a response (Produce with
                ``acks=0``).
            passed: gets the pieces of a large response instead.
            size: of the whole frame if ``frame`` is only its first part, and `go_on` brings the rest.
        """
        correlation_id = self._correlation_id()
        asked, own, rest = frame[:4], bytes(frame[_CORRELATION_ID]), memoryview(frame)[8:]
        expected: _Expected | None = None
        if arrived is not None:
            answer, piece_of = arrived, passed

            def restored(reply: Buffer, now: float) -> None:
                answer((own, memoryview(reply)[4:]), now)

            def restored_piece(size: int, piece: Buffer, left: int, now: float) -> None:
                assert piece_of is not None, "only then"
                first = len(piece) + left == size
                piece_of((size.to_bytes(4, "big"), own, memoryview(piece)[4:]) if first else (piece,), left, now)

            key, what = int.from_bytes(asked[:2], "big"), "a client's request"
            expected = _Expected(correlation_id, deadline, what, restored, failed, key)
            if passed is not None:
                expected = replace(expected, passed=restored_piece)
        size = size or len(frame)
        head = b"".join((size.to_bytes(4, "big"), asked, correlation_id.to_bytes(4, "big")))
        left = size - len(frame)
        self._send(expected, head, rest, left=left)
        if left:
            self._sending, self._held = (left, expected), []

    @property
    def takes_passage(self) -> bool:
        """Whether a request can be sent piece by piece now: no other is held back, and no reauthentication is due."""
        return self.ready and self._held is None and not self._session.renewable(self._links.now)

    def go_on(self, piece: Buffer, deadline: float) -> None:
        """Send the next piece of the request that has begun; the response may take until ``deadline``."""
        assert self._sending is not None, "only a request that has begun goes on"
        left, expected = self._sending
        left -= len(piece)
        if expected is not None:
            expected.wait_until(deadline)
        self._write(piece, left=left)
        self._sending = (left, expected) if left else None
        if not left:
            self._send_held()

    def break_off(self, now: float) -> None:
        """Finish the link if its client has left within a request: no other can be sent behind half of it."""
        if self._sending is None:
            return
        _, expected = self._sending
        dropped = [each for each, _ in self._held or () if each]
        if expected is not None and expected in self._expected:  # otherwise upstream has answered already
            self._expected.remove(expected)
            dropped.append(expected)
        self._sending, self._held = None, None
        for each in dropped:
            each.failed(ConnectionLost(f"{self}: the client has left within a request"), now)
        self.finish(now)

    # -- the handshake -----------------------------------------------------------------------------------------------

    def await_recognition(self) -> None:
        """Wait until the broker is recognized."""
        self._awaits_recognition = True

    def connect(self, now: float) -> None:
        """Connect, now that the broker is recognized, or wait for credentials that have been dropped meanwhile."""
        self._connect_by, self.connecting_since = now + self._links.connect_timeout, now
        self._links.connect_now(self, now)

    def connected(self, now: float) -> None:
        """Start TLS, if there is TLS, and then the handshake: the connection is open."""
        if self._awaits_recognition and now > self.connecting_since + HOLDS:
            why = "it took too long to connect: the address may belong to another cluster by now"
            self.end(ConnectionLost(f"{self}: {why}"), now)
            return
        with self._refusals(now):
            self._session.connected(self._links.secured(self.address[0]))
            self._secure(now)

    def _secure(self, now: float) -> None:
        """Send what TLS has to send; start the handshake once TLS is established."""
        if answers := self._session.wire.take_answers():
            self._links.actions.append(SendUpstream(self.number, answers))
        if step := self._session.secured(now):
            self._shake(step, self._connect_by)

    def _shake(self, step: HandshakeRequest, deadline: float) -> None:
        """Send a request of the handshake."""
        correlation_id = self._correlation_id()
        key, now = wire.api(type(step.request)).key, self._links.now
        self._expected.append(_Expected(correlation_id, deadline, self._session.stage, self._shaken, _ignore, key, now))
        self._write(*build_request_parts(step.request, step.version, correlation_id, CLIENT_ID))

    def _shaken(self, frame: Buffer, now: float) -> None:
        """Handle a response of the handshake."""
        try:
            step = self._session.answered(frame, now)
        except BrokerError as error:
            raise ConnectionLost(f"the handshake failed: {error}") from None
        if step:
            self._shake(step, self._connect_by if not self._begun else now + self._links.connect_timeout)
        elif not self._begun:
            self._links.remember_offer(self.address, self.versions, self.features)
            self._identify(now)
        elif self._held is not None:
            self._send_held()
            self._begin(now)

    def _identify(self, now: float) -> None:
        """Begin once the cluster of the broker is checked."""
        self.check_cluster(self._begin, self._connect_by, now)

    def check_cluster(self, then: Callable[[float], None], deadline: float, now: float) -> None:
        """Check the broker's cluster id, if upstream's is known, and go on; the link ends if it is another cluster."""
        version = self.version(MetadataRequest, _METADATA_VERSION)
        if self._links.cluster_id is None or version < _SAYS_CLUSTER_ID:
            then(now)
            return

        def identified(answer: MetadataResponse, now: float) -> None:
            there, wanted = answer.cluster_id, self._links.cluster_id
            if there and wanted not in (None, there):
                self._links.distrust(self.address)
                why = f"is cluster {there}, but this proxy's records are for cluster {wanted}"
                self.end(InconsistentClusterId(f"{self} {why}"), now)
            else:
                then(now)

        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        self.ask(request, MetadataResponse, version, deadline=deadline, answered=identified, failed=_ignore)

    def _begin(self, now: float) -> None:
        self._begun = self.ready = True
        self._finish_if_due()
        self._on_ready(now)

    def _renew(self, now: float) -> None:
        """Start a reauthentication behind the requests in flight."""
        self._held, self.ready = [], False
        behind = self._expected[-1].deadline if self._expected else now
        self._shake(self._session.renew(now), behind + self._links.connect_timeout)

    # -- responses ---------------------------------------------------------------------------------------------------

    def received(self, data: bytes, now: float) -> None:
        """Handle bytes from the broker.

        Raises:
            RemoteProtocolError: the broker violates the protocol; the caller must end the link.
        """
        with self._refusals(now):
            for frame in self._session.wire.feed(data):
                self._answered(frame, now)
                if not self.open:
                    return
            self._secure(now)
            if self._session.wire.ended:
                self.lost("closed by upstream", now)

    @contextmanager
    def _refusals(self, now: float) -> Iterator[None]:
        """End the link if one side refuses the other, which is neither a bug nor a violation of the protocol."""
        try:
            yield
        except (AuthenticationFailed, ConnectionLost) as error:
            self.end(type(error)(f"{self}: {error}"), now)

    def _answered(self, frame: Buffer, now: float) -> None:
        expected = self._expected_in(frame)
        self._expected.popleft()
        self._observe(expected, now)
        with self._failing(expected, now):
            expected.arrived(frame, now)

    def _expected_in(self, frame: Buffer) -> _Expected:
        """The request that a response answers: the first one without a response."""
        correlation_id = int.from_bytes(frame[:4], "big")
        if not self._expected or self._expected[0].correlation_id != correlation_id:
            raise RemoteProtocolError(f"{self} answered request {correlation_id} out of order")
        return self._expected[0]

    def _observe(self, expected: _Expected, now: float) -> None:
        durations = self._durations.get(expected.key) or self._durations.setdefault(expected.key, Histogram())
        durations.observe(now - expected.sent)
        self._served = self._begun

    @contextmanager
    def _failing(self, expected: _Expected, now: float) -> Iterator[None]:
        """Fail a request first if handling its response raises: it is no longer among the expected."""
        try:
            yield
        except Exception as error:
            expected.failed(as_ottla_error(error), now)
            raise

    def _begins(self, size: int, start: bytes) -> Sink | None:
        """Pass a large response on in pieces if its request allows that."""
        expected = self._expected_in(start)
        if expected.passed is None:
            return None
        self._observe(expected, self._links.now)
        return partial(self._pass_on, expected, size)

    def _pass_on(self, expected: _Expected, size: int, piece: Buffer, left: int) -> None:
        now = self._links.now
        assert expected.passed is not None, "only such a response is passed on"
        if not self.open:
            return
        if left:
            expected.wait_until(now + STALLED)
        else:
            self._expected.popleft()
            self._wait_on(now)
        with self._failing(expected, now):
            expected.passed(size, piece, left, now)

    def _wait_on(self, now: float) -> None:
        """Give the next response some time: it may have waited behind others, because the client was slow."""
        if self._expected:
            self._expected[0].wait_until(max(self._expected[0].deadline, now + STALLED))

    def pause(self, paused: bool, now: float) -> None:
        """Take the news that the connection is not read, because its client is slow, or that it is read again."""
        self._paused = paused
        self._wait_on(now)

    @property
    def passing(self) -> int:
        """Bytes that upstream has not sent yet of a response that is passed on in pieces."""
        return self._session.wire.left

    @property
    def needs(self) -> int:
        """Bytes of memory that a large response needs to be collected further; 0 if there is none."""
        return self._session.wire.needs

    @property
    def pending(self) -> int:
        """Bytes of an incomplete small response."""
        return self._session.wire.pending

    @property
    def usual_cause(self) -> str:
        """The usual cause if the broker does not answer now, to follow the reason; empty if there is none."""
        return self._session.usual_cause

    def time_out(self, now: float) -> None:
        what = self._expected[0].what if self._expected else "a connection"
        missing = "" if self._begun else self.credentials.missing
        if self._awaits_recognition and not self._expected and not missing:
            missing = "the broker was not recognized in time"
        self.end(TimeoutExpired(f"{self}: {missing or f'no answer to {what} in time{self.usual_cause}'}"), now)

    def close(self) -> None:
        """Close the connection without calling ``lost`` or failing requests."""
        if self.open:
            self.open = False
            self._links.hang_up(self)

    def linger(self, now: float) -> None:
        """Limit the link's remaining time to `LINGER`, because its client has disconnected."""
        if self.open:
            self._end_by = min(self._end_by, now + LINGER)
            self._links.ends(self, now)

    def finish(self, now: float) -> None:
        """End the link's output, so that upstream closes the connection; open requests still get their responses."""
        if not self.open or self._finishes:
            return
        if not self._begun:
            self.close()
            return
        self._finishes, self._end_by = True, min(self._end_by, now + LINGER)
        self._finish_if_due()
        self._links.ends(self, now)

    def _finish_if_due(self) -> None:
        if self._finishes and self.ready:
            self._links.actions.append(FinishUpstream(self.number))

    def end(self, error: OttlaError, now: float) -> None:
        """Close the link and fail all its waiting requests with ``error``."""
        if not self.open:
            return
        self.close()
        waiting = [*self._expected, *(each for each, _ in self._held or () if each)]
        self.unsent = sum(len(part) for _, parts in self._held or () for part in parts)
        self._expected.clear()
        self._held = self._sending = None
        for each in waiting:
            with contained("an upstream connection has ended"):
                each.failed(error, now)
        with contained("an upstream connection has ended"):
            self._on_lost(error, now)

    def lost(self, why: str, now: float) -> None:
        if not self._finishes:
            self._links.distrust(self.address)
        self.end(ConnectionLost(f"{self}: {why}{self._hint()}"), now)

    def _hint(self) -> str:
        """The usual cause if the connection is lost at this stage."""
        return self._session.hint or (HINT_AFTER if self._expected and not self._served else "")

    def _correlation_id(self) -> int:
        return next(self._correlation_ids) & 0x7FFFFFFF

    def _send(self, expected: _Expected | None, *parts: Buffer, left: int = 0) -> None:
        """Send a request, or hold it back until a due reauthentication is done."""
        now = self._links.now
        if self._held is None and not left and self._session.renewable(now):  # not between the pieces of a request
            self._renew(now)
        if self._held is not None:
            self._held.append((expected, parts))
            return
        if expected is not None:
            expected.sent_at(now)
            self._expected.append(expected)
        self._write(*parts, left=left)

    def _send_held(self) -> None:
        held, self._held = self._held or [], None
        for expected, parts in held:
            self._send(expected, *parts)

    def _write(self, *parts: Buffer, left: int = 0) -> None:
        self._links.actions.append(SendUpstream(self.number, self._session.wire.seal(parts), left))

    def __str__(self) -> str:
        return f"upstream {format_address(*self.address)}"


class RelayedLink(UpstreamLink):
    """A link on which the client itself logs in: only then upstream tells its cluster id (`check_cluster`)."""

    def _identify(self, now: float) -> None:
        self._begin(now)


def _renewal() -> float:
    """The part of a session after which the link reauthenticates."""
    return 0.85


def _ignore(error: OttlaError, now: float) -> None:
    """Do nothing: the link itself reports that it was lost."""
