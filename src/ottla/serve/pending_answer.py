"""An answer's position in the order of a connection's requests."""

import time
from collections.abc import Iterable
from typing import Protocol

from ottla.client_info import ClientInfo
from ottla.codec.wire import Buffer, Part
from ottla.serve.answered import ObservedRequest
from ottla.serve.listener_context import ListenerContext
from ottla.serve.traffic import ApiTraffic


class AnswersInOrder(Protocol):
    """The connection of a request."""

    session: ClientInfo

    def answered(self, answer: "PendingAnswer", parts: tuple[Part, ...], left: int) -> None:
        """See `AcceptedConnection.answered`."""
        ...


class PendingAnswer:
    """A position in a connection's order of answers; filled once."""

    __slots__ = ("_api", "_connection", "_since", "left", "parts")

    def __init__(self, connection: AnswersInOrder, api: ApiTraffic) -> None:
        self._connection, self._api = connection, api
        self._since = time.perf_counter()
        self.parts: tuple[Part, ...] | None = None
        self.left = 0
        """Bytes of the answer that are not given yet."""

    def send(self, *parts: Part, errors: Iterable[int] = (), left: int = 0) -> None:
        """Answer with the bytes of a frame (its length included), in as many parts as is convenient.

        Parts are not copied: a part must not change until it is released, as soon as it is written.

        Args:
            errors: the error codes in the answer; the metrics count them.
            left: bytes of the frame that further calls bring.
        """
        if self.parts is None:
            self._api.durations.observe(time.perf_counter() - self._since)
        if errors:
            self._api.failed(errors)
        self._connection.answered(self, parts, left)

    def fill(self, parts: tuple[Part, ...], left: int) -> None:
        """Keep a part of the answer, to which ``left`` bytes are missing, until the answers before it are written."""
        self.parts = (*self.parts, *parts) if self.parts else parts
        self.left = left

    def release(self) -> None:
        """Release the parts: the outbox has them, or nobody takes them."""
        self.parts = ()

    def conceal(self) -> None:
        """Let no observer see the request: it is a secret, and has no header."""

    def nothing(self) -> None:
        """End a request without a response (Produce with ``acks=0``)."""
        self.send()

    def abandon(self) -> None:
        """Release it, because the connection has ended."""
        self.release()


class ObservedAnswer(PendingAnswer):
    """A `PendingAnswer` that calls observers when all of it is given, or when its connection ends before."""

    __slots__ = ("_errors", "_request", "_shared", "_size")

    def __init__(
        self,
        connection: AnswersInOrder,
        api: ApiTraffic,
        shared: ListenerContext,
        frame: Buffer,
        size: int,
    ) -> None:
        super().__init__(connection, api)
        self._shared = shared
        self._request: ObservedRequest | None = ObservedRequest(connection.session, frame, size)
        self._size = 0
        """Bytes of the answer so far."""
        self._errors: tuple[int, ...] = ()

    def send(self, *parts: Part, errors: Iterable[int] = (), left: int = 0) -> None:
        codes = tuple(errors)
        self._size += sum(map(len, parts))
        self._errors += codes
        if not left:
            self._tell(self._size, self._errors)
        super().send(*parts, errors=codes, left=left)

    def conceal(self) -> None:
        self._request = None

    def abandon(self) -> None:
        self._tell(None, ())
        super().abandon()

    def _tell(self, response: int | None, errors: tuple[int, ...]) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.answered(self._shared.observers, response, errors)
