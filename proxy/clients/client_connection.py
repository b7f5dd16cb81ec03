"""A client's own connection: sends its responses, closes it, and contains bugs in its callbacks.

Rules:
- Responses may be ready in any order; the listener sends them in the order of the requests.
- A client that disconnects does not cancel its requests. Those that it sent before are handled, as by Apache Kafka's
  broker, and their responses are dropped.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec

from ottla.codec.error_codes import error_codes
from ottla.codec.frames import build_response
from ottla.codec.wire import Buffer
from ottla.proxy.events import Action, AnswerClient, ClientRefused, CloseClient, WelcomeClient
from ottla.sdk.outcome import Outcome

log = logging.getLogger("ottla.proxy")

P = ParamSpec("P")
Intercept = Callable[[tuple[Buffer, ...], int], None]
"""Gets the parts of a response, and how many bytes follow; it answers with `ClientConnection.answer_now`."""


class ClientRequest(NamedTuple):
    """The head of a request. It holds no view of the frame, so the memory of a large one is reused while it waits.

    Attributes:
        ticket: the place of its response.
    """

    ticket: int
    key: int
    version: int
    correlation_id: int


class ClientConnection:
    """Sends the responses of one client, and closes its connection.

    Attributes:
        number: the client's number.
        listener: the number of the listener that it uses.
        closed: the proxy has closed the connection: no more requests are handled or answered.
    """

    def __init__(self, number: int, actions: list[Action], listener: int = 0) -> None:
        self.number, self.listener = number, listener
        self.closed = False
        self._actions = actions
        self._refused = False
        """Upstream has refused its last login, which is logged."""
        self._open: set[int] = set()
        """The tickets of the requests that have no response yet."""
        self._intercepted: dict[int, tuple[Intercept, bool]] = {}
        """Ticket -> who gets the response instead of the client, and whether all of it at once."""
        self._first: tuple[int, Outcome[None]] | None = None
        """The ticket of a request that waits until all before it have a response."""
        self._before = 0
        """How many of those have none yet."""
        self._dropped: Callable[[], None] | None = None
        """Set once the client has disconnected; called after each response that is dropped."""

    def requested(self, ticket: int) -> None:
        """Notice a request, which is answered later."""
        self._open.add(ticket)

    def first(self, ticket: int) -> Outcome[None]:
        """Settled once all requests before this one have a response, or the connection is closed.

        It is settled within the call that sends the last response. One request may wait at a time.
        """
        self._before = sum(each < ticket for each in self._open)
        self._first = ticket, (outcome := Outcome[None]())
        self._settle_first()
        return outcome

    def _settle_first(self) -> None:
        if self._first is not None and (self.closed or not self._before):
            (_, outcome), self._first = self._first, None
            outcome.succeed(None)

    def left(self, dropped: Callable[[], None]) -> None:
        """Handle the end of the connection; later responses are dropped, and ``dropped`` is called after each."""
        self._dropped = dropped
        self._intercepted.clear()  # some hold much memory

    @property
    def gone(self) -> bool:
        """The client has disconnected: no more responses are sent."""
        return self._dropped is not None

    @property
    def done(self) -> bool:
        """The client has disconnected, and waits for no more responses."""
        return self.gone and (self.closed or not self._open)

    # -- responses

    def respond(self, request: ClientRequest, message: Any) -> None:
        """Answer a request with a message of the proxy."""
        response = build_response(message, request.version, request.correlation_id)
        self.answer(request.ticket, response, errors=error_codes(message))

    def pass_back(self, request: ClientRequest, frame: tuple[Buffer, ...], now: float) -> None:
        """Answer a request with a frame of upstream, in parts."""
        self.answer(request.ticket, sum(map(len, frame)).to_bytes(4, "big"), *frame)

    def stream_back(self, request: ClientRequest, piece: tuple[Buffer, ...], left: int, now: float) -> None:
        """Answer a request with a piece of upstream's frame, the first with its length; ``left`` bytes follow."""
        self.answer(request.ticket, *piece, left=left)

    def answer(self, ticket: int, *parts: Buffer, errors: Sequence[int] = (), left: int = 0) -> None:
        """Answer a request with these bytes; no parts if it has no response.

        Args:
            errors: the error codes in the response, if the proxy knows them.
            left: bytes of the response that follow in further calls.
        """
        if self._intercepted and (found := self._intercepted.pop(ticket, None)) is not None and parts:
            found[0](parts, left)
        else:
            self.answer_now(ticket, *parts, errors=errors, left=left)

    def answer_now(self, ticket: int, *parts: Buffer, errors: Sequence[int] = (), left: int = 0) -> None:
        """Answer a request like `answer`, past `intercept`."""
        if not left:
            self._open.discard(ticket)
            self._before -= self._first is not None and ticket < self._first[0]
        if self._dropped is not None:
            if not left:
                self._dropped()
        elif not self.closed:
            self._actions.append(AnswerClient(self.number, ticket, parts, errors, left))
        self._settle_first()

    def intercept(self, ticket: int, intercept: Intercept, *, whole: bool) -> None:
        """Have ``intercept`` called with the response to a request, instead of the client getting it.

        Args:
            whole: it gets all of the response at once; otherwise only the first piece of a response in pieces.
        """
        self._intercepted[ticket] = intercept, whole

    def takes_pieces(self, ticket: int) -> bool:
        """Whether the response to a request may come in pieces."""
        found = self._intercepted.get(ticket)
        return found is None or not found[1]

    def welcome(self) -> None:
        """Tell the listener that upstream has let the client in."""
        self._refused = False
        if not self.closed:
            self._actions.append(WelcomeClient(self.number))

    def refused(self, why: str, kind: str) -> None:
        """Tell the listener that upstream has refused the login of the client.

        Args:
            kind: what counts as the same failure; see `Complaints`.
        """
        self._refused = True
        if not (self.closed or self.gone):
            self._actions.append(ClientRefused(self.number, why, kind))

    # -- the end

    def close(self, why: str) -> None:
        """Close the connection without further responses."""
        if not self.closed:
            self.closed = True
            if not self.gone:
                self._actions.append(CloseClient(self.number, why, told=self._refused))
            self._settle_first()

    def failed(self, what: str) -> None:
        """Log the exception being handled, which is a bug, and close the connection."""
        log.exception("a bug in the proxy, please report it: %s; the client's connection is closed", what)
        self.close("internal error")

    def contained(self, step: Callable[P, None]) -> Callable[P, None]:
        """Wrap ``step`` for callers outside: an exception closes this client's connection, and does not reach them."""

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                step(*args, **kwargs)
            except Exception:
                self.failed("an answer")

        return call
