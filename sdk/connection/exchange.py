"""One request and what becomes of it: an `Exchange` ends exactly once, with the response or an error.

Rules:
- Nothing is retried here: the part that made an exchange decides whether to try again.
- After `Exchange.cancel` nothing of it is called any more. What the driver does not have yet is never sent; the answer
  to what it has is thrown away.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.wire import Buffer
from ottla.sdk.timers import Timer

WAIT_FOR_MEMBERS = frozenset({"JoinGroup", "SyncGroup"})
"""Their answers wait at the broker for as long as members take."""
_MAY_WAIT = WAIT_FOR_MEMBERS | {"Fetch"}
"""Their answers may wait at the broker."""
SLOW_PART = 0.5
"""Of the time that an answer is given: one that took more was slow."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and what becomes of it.

    Attributes:
        message: the request; or its class, where `build` makes it of the version once that is known.
        ended: called once with the response message or the error, and ``now``.
        deadline: when to give up, in the time of ``now``.
        one_way: the broker sends no answer (Produce with acks=0); ended with ``None`` once it is written.
        build: makes the request of the version that is spoken.
        versions: the lowest and the highest that will do, where they are fewer than `versions.SPOKEN`.
        background: whichever node answers will do, or nobody waits for the answer: its node is not missed for it.
        since: when it was submitted.
        sent_at: when it was handed to the driver.
        timer: ends it at its deadline.
        withdraw: takes it out of what waits; ``None`` once the driver has it.
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

    @property
    def kind(self) -> type:
        """The class of the request."""
        return self.message if isinstance(self.message, type) else type(self.message)

    @property
    def wait(self) -> float:
        """Seconds for which it asks the broker to hold back an answer."""
        return float(getattr(self.message, "max_wait_ms", 0)) / 1000

    @property
    def name(self) -> str:
        return self.kind.__name__.removesuffix("Request")

    def response(self, frame: Buffer) -> Any:
        """The message of the answer, a frame without its length. Raises `DecodeError`."""
        return frames.parse_response(_response(self.kind), self.version, frame)[1]

    def was_slow(self, took: float) -> bool:
        """Whether so many seconds are long for this request."""
        return took > (self.deadline - self.sent_at) * SLOW_PART and self.name not in _MAY_WAIT

    def cancel(self) -> None:
        """The answer is not wanted any more: `ended` is not called, and what the driver does not have is never sent."""
        self.ended = ignored
        if self.withdraw:
            self.withdraw(self)

    def settle(self, result: Any, now: float) -> None:
        """End it.

        What is called often holds the exchange: were it kept here, each request would leave a reference cycle.
        """
        if self.timer:
            self.timer.cancel()
        ended, self.ended, self.build, self.withdraw = self.ended, ignored, None, None
        ended(result, now)


@functools.cache
def _response(request: type) -> type[Any]:
    return APIS[wire.api(request).key].response


def ignored(answer: Any, now: float) -> None:
    """Takes answers that are not wanted any more."""
