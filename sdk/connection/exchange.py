"""One request and its result: an `Exchange` ends exactly once, with the response or an error.

Rules:
- A request that the driver has ends with its response, or with an error of `NO_ANSWER`. Any other error says that the
  broker never got it.
- No exchange is retried here: the part that created an exchange decides whether to retry.
- After `Exchange.cancel` none of its functions is called. A request that the driver does not have yet is never sent;
  the response to a request that it has is ignored.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.wire import Buffer
from ottla.errors import ConnectionLost, RemoteProtocolError, TimeoutExpired
from ottla.late_dataclass import dataclass
from ottla.sdk.connection.versions import FITTED
from ottla.sdk.timers import Timer

WAIT_FOR_MEMBERS = frozenset({"JoinGroup", "SyncGroup"})
"""Requests that the broker answers only when other members have answered, too."""
_MAY_WAIT = WAIT_FOR_MEMBERS | {"Fetch", "ShareFetch"}
"""Requests that the broker may hold back."""
NO_ANSWER = (ConnectionLost, TimeoutExpired, RemoteProtocolError)
"""Errors of requests that a broker may have received: it may have carried them out, or may yet do so."""
SLOW_PART = 0.5
"""The part of a request's timeout after which its response counts as slow."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its result.

    Attributes:
        message: the request; or its class, if `build` creates it once the version is known.
        ended: called once with the response message or the error, and ``now``; with ``None`` if the request was written
            and has no response (`one_way`), or was withdrawn.
        deadline: when to give up, on the clock of ``now``.
        one_way: the broker sends no response (Produce with acks=0); ends with ``None`` once it is written.
        build: creates the request for the negotiated version.
        versions: the lowest and the highest usable version, if they are fewer than `versions.SPOKEN`.
        background: any node can answer it, or no caller waits for it: its failure does not mark the node unavailable.
        correlation_id: -1 until the driver gets the request.
        since: when it was submitted.
        sent_at: when it was handed to the driver.
        timer: ends it at its deadline.
        withdraw: removes it from the waiting requests; ``None`` once the driver has it.
        extensions: how often it got more time, because its response was arriving.
        arrived: bytes of its response when it last got more time.
    """

    message: Any
    ended: Callable[[Any, float], None]
    deadline: float
    one_way: bool = False
    build: Callable[[int], Any] | None = None
    versions: tuple[int, int] | None = None
    background: bool = False
    version: int = -1
    correlation_id: int = -1
    since: float = math.nan
    sent_at: float = math.nan
    timer: Timer | None = None
    withdraw: Callable[["Exchange"], None] | None = None
    extensions: int = 0
    arrived: int = 0

    @property
    def kind(self) -> type:
        """The class of the request."""
        return self.message if isinstance(self.message, type) else type(self.message)

    @property
    def wait(self) -> float:
        """Seconds for which the request lets the broker hold back the response."""
        return float(getattr(self.message, "max_wait_ms", 0)) / 1000

    @property
    def name(self) -> str:
        return self.kind.__name__.removesuffix("Request")

    def response(self, frame: Buffer) -> Any:
        """Parse the response, a frame without its length. Raises `DecodeError`."""
        return frames.parse_response(_response(self.kind), self.version, frame)[1]

    def was_slow(self, took: float) -> bool:
        """Whether so many seconds are slow for this request."""
        return took > (self.deadline - self.sent_at) * SLOW_PART and self.name not in _MAY_WAIT

    def submit(self, now: float, timer: Timer, withdraw: Callable[["Exchange"], None]) -> None:
        """Take note that the request waits to be sent, until ``timer`` ends it."""
        self.since, self.timer, self.withdraw = now, timer, withdraw

    def prepare(self, version: int) -> None:
        """Create the request for this version; a version that lacks some of its fields may change it."""
        self.version = version
        if self.build:
            self.message = self.build(version)
        elif fit := FITTED.get(self.kind):
            self.message = fit(self.message, version)

    def sent(self, correlation_id: int, now: float) -> None:
        """Take note that the driver gets the request, which cannot be withdrawn any more."""
        self.correlation_id, self.sent_at, self.withdraw = correlation_id, now, None

    def extend(self, timer: Timer, arrived: int) -> None:
        """Give the request more time, until ``timer`` ends it: so many bytes of the response have arrived."""
        self.timer, self.arrived = timer, arrived
        self.extensions += 1

    def cancel(self) -> None:
        """Ignore the response: `ended` is not called, and a request that the driver does not have is never sent."""
        self.ended = ignored
        if self.withdraw:
            self.withdraw(self)

    def settle(self, result: Any, now: float) -> None:
        """End the exchange.

        `ended` often refers to the exchange: if it were kept here, each request would leave a reference cycle.
        """
        if self.timer:
            self.timer.cancel()
        ended, self.ended, self.build, self.withdraw = self.ended, ignored, None, None
        ended(result, now)


@functools.cache
def _response(request: type) -> type[Any]:
    return APIS[wire.api(request).key].response


def ignored(answer: Any, now: float) -> None:
    """Ignores a response that is no longer needed."""
