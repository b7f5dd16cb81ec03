"""One upstream connection: TLS, the handshake, correlation ids, and answers in the order of the requests.

Rules:
- TLS and the stages of the handshake are those of our client (`ottla.sdk.connection`); nothing else goes out before.
- Then the broker says of which cluster it is: another one may have the address by now, and gets nothing.
- The next request renews a session that ends (KIP-368), behind all requests under way. Until then the link is not
  ready, as before its first handshake, and its user keeps back new requests.
- Correlation ids upstream are the link's own: a client's id is replaced on the way there and put back on the way back.
- A broker answers one connection's requests in order. An answer out of order, or to nothing, ends the connection.
- A link that ends tells everyone who waits: the outcome of what they asked for is unknown.
- The end of input is no cancellation. A link whose client has left lingers until its requests are answered. Then it
  finishes: upstream takes all bytes, and closes. Closed at once, the system could drop requests without an answer.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.addresses import format_address
from ottla.codec import wire
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.frames import build_request_parts, parse_response
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
from ottla.proxy.events import Action, Address, Connect, Disconnect, Finish, Send
from ottla.sdk.connection.connection import SHORTEST_SESSION
from ottla.sdk.connection.credentials import Credentials
from ottla.sdk.connection.handshake import HINT_AFTER, HINT_BEFORE, Features, Handshake, Step
from ottla.sdk.connection.wire import Wire

if TYPE_CHECKING:
    from ottla.tls import TLS, TlsConnection  # a machine is given it: by itself it knows of no OpenSSL

log = logging.getLogger("ottla.proxy")

M = TypeVar("M", bound=wire.Declared)
CLIENT_ID = "ottla-proxy"
_METADATA_VERSION = 12
_SAYS_CLUSTER_ID = 2
_RENEWAL = 0.85
"""The part of a session after which to renew it."""
LINGER = 120.0
"""Seconds until a link ends whose client has left, whatever upstream has not answered or taken by then."""
MOST_ENDING = 500
"""Links of clients that have left and that only wait for answers, beyond which the oldest is given up."""
_CORRELATION_ID = slice(4, 8)
"""Where it stands in a request frame; an answer begins with it."""

Parts = tuple[Buffer, ...]
"""Of a frame."""
Failed = Callable[[OttlaError, float], None]


@dataclass(slots=True)
class _Expected:
    """An answer that is to come."""

    correlation_id: int
    deadline: float
    what: str
    arrived: Callable[[Buffer, float], None]
    failed: Failed


class Links:
    """Makes links, and knows the live ones by number.

    Args:
        tls: how upstream is secured; ``None``: not at all.
        credentials: what the proxy proves with who it is, where upstream wants that.
        most_ending: links that linger or finish, beyond which the oldest is given up, whatever it has to send. All
            clients may leave at once, so this is no smaller than the number of clients.
    """

    def __init__(
        self,
        actions: list[Action],
        connect_timeout: float,
        tls: "TLS | None",
        credentials: Credentials,
        most_ending: int = MOST_ENDING,
    ) -> None:
        self.actions = actions
        self.connect_timeout, self.credentials = connect_timeout, credentials
        self.now = 0.0
        """As of the last event, or poll."""
        self.cluster_id: str | None = None
        """Of the cluster that upstream has to be; ``None``: of any."""
        self._most_ending = most_ending
        self._tls, self._stale = tls, ""
        self._live: dict[int, Link] = {}
        self._ending: dict[Link, None] = {}
        """Those that linger or finish, the oldest first."""
        self._waiting: dict[Link, Connect] = {}
        """Until there is a token to begin with."""
        self._numbers = count(1)
        self._next_look = 0.0

    def connect(
        self,
        address: Address,
        now: float,
        *,
        ready: Callable[[float], None],
        lost: Failed,
        client: int | None = None,
    ) -> "Link":
        """Start a connection.

        Args:
            ready: called when requests can be sent.
            lost: called once when the connection ended, after everyone who waits for an answer.
            client: the client whose connection this is, if it is for one alone.
        """
        link = Link(self, next(self._numbers), address, now, ready, lost)
        self._live[link.number] = link
        wanted = Connect(link.number, address, client)
        if self.credentials.usable(now):
            self.actions.append(wanted)
        else:
            self._waiting[link] = wanted
        return link

    def find(self, number: int) -> "Link | None":
        return self._live.get(number)

    def hang_up(self, link: "Link") -> None:
        """End the connection of a link that is of no more use."""
        del self._live[link.number]
        self._ending.pop(link, None)
        if self._waiting.pop(link, None) is None:
            self.actions.append(Disconnect(link.number))

    def ends(self, link: "Link", now: float) -> None:
        """A link lingers or finishes; there is a bound to their number."""
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
        oldest.end(TimeoutExpired(f"{oldest}: too many clients have left without their answers"), now)

    @property
    def idle(self) -> bool:
        """No request of a client that has left waits for its link; some may wait for answers."""
        return all(link.ready for link in self._ending)

    def finish(self, now: float) -> None:
        """Finish all links of clients that have left: the proxy ends."""
        for link in list(self._ending):
            link.finish(now)

    @property
    def finished(self) -> bool:
        """Upstream has closed all of them."""
        return not self._ending

    def begin(self, now: float) -> None:
        """Connect those that have waited for a token, if there is one."""
        if not self._waiting:
            return
        if self.credentials.usable(now):
            self.actions += self._waiting.values()
            self._waiting.clear()
        elif denied := self.credentials.denied:
            for link in list(self._waiting):
                link.end(type(denied)(f"{link}: {denied}"), now)

    def secured(self, host: str) -> "TlsConnection | None":
        """The proxy's side of TLS for a new connection, where it is wanted."""
        if self._tls is None:
            return None
        secured = self._tls.connection(host)
        if self._tls.stale != self._stale:
            self._stale = self._tls.stale
            if self._stale:
                log.warning("the files of upstream's TLS have changed, and cannot be used: %s", self._stale)
        return secured

    @property
    def deadline(self) -> float | None:
        return self._next_look if self._live else None

    def expire(self, now: float) -> None:
        """End the links that have waited too long; looks once a second, so that a poll costs nothing."""
        if now >= self._next_look:
            self._next_look = now + 1.0
            for link in [link for link in self._live.values() if link.deadline <= now]:
                link.time_out(now)


class Link:
    """One upstream connection."""

    def __init__(
        self,
        links: Links,
        number: int,
        address: Address,
        now: float,
        ready: Callable[[float], None],
        lost: Failed,
    ) -> None:
        self.number = number
        self.address = address
        self.ready = False
        """The link takes requests: after the handshake, and not during the renewal of a session."""
        self.open = True
        self.versions: Versions = {}
        """What the broker serves; known once the link is ready."""
        self.features = Features()
        """What is switched on in its cluster; known then, too."""
        self._links = links
        self._on_ready, self._on_lost = ready, lost
        self._expected: deque[_Expected] = deque()
        self._wire = Wire()
        self._handshake: Handshake | None = None
        """Once TLS is agreed on, or not wanted."""
        self._greeted = False
        """The handshake is over."""
        self._begun = False
        """It was ready once."""
        self._end_by = math.inf
        """When it ends, whatever is still open."""
        self._finishes = False
        """Nothing more will be sent."""
        self._shook_at = math.nan
        """When its last request was sent."""
        self._session = self._renew_at = math.inf
        """For how many seconds it lasts, and when it is to be renewed."""
        self._served = False
        """A request after the handshake was answered: of interest for messages only."""
        self._held: list[tuple[_Expected | None, Parts]] | None = None
        """Requests of the step in which a renewal began; ``None``: the session is not being renewed."""
        self._correlation_ids = count(1)
        self._connect_by = now + links.connect_timeout

    @property
    def deadline(self) -> float:
        if not self._begun:
            return min(self._connect_by, self._end_by)
        return min(self._expected[0].deadline if self._expected else math.inf, self._end_by)

    @property
    def has_to_send(self) -> bool:
        """Requests wait for the handshake, or for upstream to take them, as far as is known."""
        return not self.ready or not self._expected

    def version(self, message: type[Any], newest: int) -> int:
        """The newest version, up to ``newest``, of a message's API that both sides know.

        Raises:
            RemoteProtocolError: there is none.
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
    ) -> None:
        """Send a request of the proxy's own."""

        def arrived(frame: Buffer, now: float) -> None:
            answered(parse_response(response, version, frame)[1], now)

        correlation_id = self._correlation_id()
        expected = _Expected(correlation_id, deadline, type(request).__name__, arrived, failed)
        self._send(expected, *build_request_parts(request, version, correlation_id, CLIENT_ID))

    def forward(
        self, frame: Buffer, *, deadline: float, arrived: Callable[[Parts, float], None] | None, failed: Failed
    ) -> None:
        """Pass a client's request on; ``arrived`` gets the answer's frame, with the client's own correlation id.

        ``arrived`` is ``None`` where no answer will come (Produce with ``acks=0``). Neither frame is copied.
        """
        correlation_id = self._correlation_id()
        asked, own, rest = frame[:4], bytes(frame[_CORRELATION_ID]), memoryview(frame)[8:]
        expected: _Expected | None = None
        if arrived is not None:
            answer = arrived

            def restored(reply: Buffer, now: float) -> None:
                answer((own, memoryview(reply)[4:]), now)

            expected = _Expected(correlation_id, deadline, "a client's request", restored, failed)
        head = b"".join((len(frame).to_bytes(4, "big"), asked, correlation_id.to_bytes(4, "big")))
        self._send(expected, head, rest)

    # -- the handshake -----------------------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """The connection is made: agree on TLS, and shake hands."""
        with self._refusals(now):
            self._wire = Wire(self._links.secured(self.address[0]))
            self._wire.begin()
            self._secure(now)

    def _secure(self, now: float) -> None:
        """Go on with TLS, if it is under way or has something to send; after it the handshake begins."""
        if answers := self._wire.take_answers():
            self._links.actions.append(Send(self.number, answers))
        if self._handshake is None and self._wire.agreed:
            self._handshake = Handshake(credentials=self._links.credentials)
            self._shake(self._handshake.begin(), self._connect_by, now)

    def _shake(self, step: Step, deadline: float, now: float) -> None:
        """Send a request of the handshake."""
        assert self._handshake is not None
        correlation_id = self._correlation_id()
        self._shook_at = now
        what = self._handshake.stage.name
        self._expected.append(_Expected(correlation_id, deadline, what, self._shaken, _ignore))
        self._write(*build_request_parts(step.request, step.version, correlation_id, CLIENT_ID))

    def _shaken(self, frame: Buffer, now: float) -> None:
        """An answer to the handshake came."""
        assert self._handshake is not None
        try:
            step = self._handshake.answered(frame)
        except AuthenticationFailed:
            self._links.credentials.refused(now)
            raise
        except BrokerError as error:
            raise ConnectionLost(f"the handshake failed: {error}") from None
        if step:
            self._shake(step, self._connect_by if not self._begun else now + self._links.connect_timeout, now)
            return
        self._session = self._handshake.session_lifetime or math.inf
        self._renew_at = self._shook_at + max(self._session * _RENEWAL, SHORTEST_SESSION)
        if not self._begun:
            self.versions, self.features = dict(self._handshake.versions), self._handshake.features
            self._identify(now)
        elif self._held is not None:
            held, self._held = self._held, None
            for expected, parts in held:
                self._send(expected, *parts)
            self._begin(now)

    def _identify(self, now: float) -> None:
        """Ask of which cluster the broker is, if that is known of upstream; then requests can be sent."""
        self._greeted = True
        version = self.version(MetadataRequest, _METADATA_VERSION)
        if self._links.cluster_id is None or version < _SAYS_CLUSTER_ID:
            self._begin(now)
            return

        def identified(answer: MetadataResponse, now: float) -> None:
            there, wanted = answer.cluster_id, self._links.cluster_id
            if there and wanted not in (None, there):
                why = f"it is of cluster {there}, and this proxy's records are for cluster {wanted}"
                self.end(InconsistentClusterId(f"{self}: {why}"), now)
            else:
                self._begin(now)

        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        by = self._connect_by
        self.ask(request, MetadataResponse, version, deadline=by, answered=identified, failed=_ignore)

    def _begin(self, now: float) -> None:
        self._begun = self.ready = True
        self._finish_if_due()
        self._on_ready(now)

    def _renew(self, now: float) -> None:
        """Prove again who this proxy is, behind what is under way."""
        self._held, self.ready = [], False
        self._handshake = Handshake(credentials=self._links.credentials, versions=self.versions)
        behind = self._expected[-1].deadline if self._expected else now
        self._shake(self._handshake.begin(), behind + self._links.connect_timeout, now)

    # -- what comes --------------------------------------------------------------------------------------------------

    def received(self, data: bytes, now: float) -> None:
        """Bytes came.

        Raises:
            RemoteProtocolError: the broker breaks the protocol; the link must be ended.
        """
        with self._refusals(now):
            for frame in self._wire.feed(data):
                self._answered(frame, now)
                if not self.open:
                    return
            self._secure(now)

    @contextmanager
    def _refusals(self, now: float) -> Iterator[None]:
        """End the link where one side refuses the other: no bug, and no breach of the protocol."""
        try:
            yield
        except (AuthenticationFailed, ConnectionLost) as error:
            self.end(type(error)(f"{self}: {error}"), now)

    def _answered(self, frame: Buffer, now: float) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        if not self._expected or self._expected[0].correlation_id != correlation_id:
            raise RemoteProtocolError(f"{self} answered request {correlation_id} out of turn")
        expected = self._expected.popleft()
        self._served = self._begun
        try:
            expected.arrived(frame, now)
        except Exception as error:  # whatever it is, its waiter is notified first
            expected.failed(as_ottla_error(error), now)
            raise

    @property
    def silence(self) -> str:
        """The usual cause of a silence at this point, to follow the reason."""
        return "" if self._handshake is None or self._greeted else self._handshake.silence

    def time_out(self, now: float) -> None:
        what = self._expected[0].what if self._expected else "a connection"
        missing = "" if self._begun else self._links.credentials.missing
        self.end(TimeoutExpired(f"{self}: {missing or f'no answer to {what} in time{self.silence}'}"), now)

    def close(self) -> None:
        """Hang up on purpose; nobody is told."""
        if self.open:
            self.open = False
            self._links.hang_up(self)

    def linger(self, now: float) -> None:
        """Whom the link is for has left: it ends soon, whatever upstream does."""
        if self.open:
            self._end_by = min(self._end_by, now + LINGER)
            self._links.ends(self, now)

    def finish(self, now: float) -> None:
        """Send nothing more, and have upstream close it; whoever waits for an answer still gets it."""
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
            self._links.actions.append(Finish(self.number))

    def end(self, error: OttlaError, now: float) -> None:
        """The connection ended, or must: tell everyone who waits."""
        if not self.open:
            return
        self.close()
        waiting = [*self._expected, *(each for each, _ in self._held or () if each)]
        self._expected.clear()
        self._held = None
        for each in waiting:
            with contained("an upstream connection has ended"):
                each.failed(error, now)
        with contained("an upstream connection has ended"):
            self._on_lost(error, now)

    def lost(self, why: str, now: float) -> None:
        self.end(ConnectionLost(f"{self}: {why}{self._hint()}"), now)

    def _hint(self) -> str:
        """What an end at this point often means."""
        if self._handshake is None:
            return "" if self._wire.agreed else HINT_BEFORE
        if not self._greeted or self._held is not None:
            return self._handshake.stage.hint
        return HINT_AFTER if self._expected and not self._served else ""

    def _correlation_id(self) -> int:
        return next(self._correlation_ids) & 0x7FFFFFFF

    def _send(self, expected: _Expected | None, *parts: Buffer) -> None:
        """Send a request, once the session is renewed if it is time for that."""
        now = self._links.now
        if self._held is None and now >= self._renew_at and self._links.credentials.renewed(self._session, now):
            self._renew(now)
        if self._held is not None:
            self._held.append((expected, parts))
            return
        if expected is not None:
            self._expected.append(expected)
        self._write(*parts)

    def _write(self, *parts: Buffer) -> None:
        self._links.actions.append(Send(self.number, self._wire.seal(parts)))

    def __str__(self) -> str:
        return f"upstream {format_address(*self.address)}"


def _ignore(error: OttlaError, now: float) -> None:
    """The link itself tells that it was lost."""
