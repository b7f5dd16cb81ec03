"""One upstream connection: the handshake, correlation ids, and answers in the order of the requests.

Rules:
- The first request is ApiVersions v0, which every broker answers; nothing else goes out before its answer.
- Correlation ids upstream are the link's own: a client's id is replaced on the way there and put back on the way back.
- A broker answers one connection's requests in order. An answer out of order, or to nothing, ends the connection.
- A link that ends tells everyone who waits: the outcome of what they asked for is unknown.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from ottla.codec import wire
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.frames import build_request, framed, parse_response
from ottla.errors import ConnectionLost, OttlaError, RemoteProtocolError, TimeoutExpired, broker_error
from ottla.proxy.carried import Versions
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.events import Action, Address, Connect, Disconnect, Send

M = TypeVar("M", bound=wire.Declared)
CLIENT_ID = "ottla-proxy"
_CORRELATION_ID = slice(4, 8)
"""Where it stands in a request frame; an answer begins with it."""

Failed = Callable[[OttlaError, float], None]


@dataclass(slots=True)
class _Expected:
    """An answer that is to come."""

    correlation_id: int
    deadline: float
    what: str
    arrived: Callable[[bytes, float], None]
    failed: Failed


class Links:
    """Makes links, and knows the live ones by number."""

    def __init__(self, actions: list[Action], connect_timeout: float) -> None:
        self.actions = actions
        self.connect_timeout = connect_timeout
        self._live: dict[int, Link] = {}
        self._numbers = count(1)
        self._next_look = 0.0

    def connect(
        self, address: Address, now: float, *, ready: Callable[[float], None], lost: Failed, client: int | None = None
    ) -> "Link":
        """Start a connection.

        Args:
            ready: called when the broker has said what it speaks.
            lost: called once when the connection ended, after everyone who waits for an answer.
            client: the client whose connection this is, if it is for one alone.
        """
        link = Link(self, next(self._numbers), address, now, ready, lost)
        self._live[link.number] = link
        self.actions.append(Connect(link.number, address, client))
        return link

    def find(self, number: int) -> "Link | None":
        return self._live.get(number)

    def forget(self, link: "Link") -> None:
        del self._live[link.number]

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
        self, links: Links, number: int, address: Address, now: float, ready: Callable[[float], None], lost: Failed
    ) -> None:
        self.number = number
        self.address = address
        self.ready = False
        self.open = True
        self.versions: Versions = {}
        """What the broker serves; known once the link is ready."""
        self._links = links
        self._on_ready, self._on_lost = ready, lost
        self._expected: deque[_Expected] = deque()
        self._correlation_ids = count(1)
        self._connect_by = now + links.connect_timeout

    @property
    def deadline(self) -> float:
        if not self.ready:
            return self._connect_by
        return self._expected[0].deadline if self._expected else float("inf")

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

        def arrived(frame: bytes, now: float) -> None:
            answered(parse_response(response, version, frame)[1], now)

        correlation_id = self._correlation_id()
        self._expected.append(_Expected(correlation_id, deadline, type(request).__name__, arrived, failed))
        self._send(build_request(request, version, correlation_id, CLIENT_ID))

    def forward(
        self, frame: bytes, *, deadline: float, arrived: Callable[[bytes, float], None] | None, failed: Failed
    ) -> None:
        """Pass a client's request on; ``arrived`` gets the answer's frame, with the client's own correlation id.

        ``arrived`` is ``None`` where no answer will come (Produce with ``acks=0``).
        """
        correlation_id = self._correlation_id()
        own = frame[_CORRELATION_ID]
        if arrived is not None:
            answer = arrived

            def restored(reply: bytes, now: float) -> None:
                answer(own + memoryview(reply)[4:], now)

            self._expected.append(_Expected(correlation_id, deadline, "a client's request", restored, failed))
        self._send(framed(frame[:4] + correlation_id.to_bytes(4, "big") + memoryview(frame)[8:]))

    def connected(self, now: float) -> None:
        """The connection is made: shake hands."""
        self.ask(
            ApiVersionsRequest(),
            ApiVersionsResponse,
            0,
            deadline=self._connect_by,
            answered=self._greeted,
            failed=_ignore,
        )

    def _greeted(self, answer: ApiVersionsResponse, now: float) -> None:
        if answer.error_code:
            raise RemoteProtocolError(f"{self} refuses ApiVersions: {broker_error(answer.error_code)}")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        self.ready = True
        self._on_ready(now)

    def received(self, frame: bytes, now: float) -> None:
        """A frame came.

        Raises:
            RemoteProtocolError: the broker breaks the protocol; the link must be ended.
        """
        correlation_id = int.from_bytes(frame[:4], "big")
        if not self._expected or self._expected[0].correlation_id != correlation_id:
            raise RemoteProtocolError(f"{self} answered request {correlation_id} out of turn")
        expected = self._expected.popleft()
        try:
            expected.arrived(frame, now)
        except Exception as error:
            expected.failed(as_ottla_error(error), now)
            raise

    def time_out(self, now: float) -> None:
        what = self._expected[0].what if self._expected else "a connection"
        self.end(TimeoutExpired(f"{self}: no answer to {what} in time"), now)

    def close(self) -> None:
        """Hang up on purpose; nobody is told."""
        if self.open:
            self.open = False
            self._links.forget(self)
            self._links.actions.append(Disconnect(self.number))

    def end(self, error: OttlaError, now: float) -> None:
        """The connection ended, or must: tell everyone who waits."""
        if not self.open:
            return
        self.close()
        waiting, self._expected = self._expected, deque()
        for each in waiting:
            with contained("an upstream connection has ended"):
                each.failed(error, now)
        with contained("an upstream connection has ended"):
            self._on_lost(error, now)

    def lost(self, why: str, now: float) -> None:
        self.end(ConnectionLost(f"{self}: {why}"), now)

    def _correlation_id(self) -> int:
        return next(self._correlation_ids) & 0x7FFFFFFF

    def _send(self, data: bytes) -> None:
        self._links.actions.append(Send(self.number, data))

    def __str__(self) -> str:
        return f"upstream {self.address[0]}:{self.address[1]}"


def _ignore(error: OttlaError, now: float) -> None:
    """The link itself tells that it was lost."""
