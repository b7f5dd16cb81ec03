"""Runs a client's request that takes several steps: a generator that yields each outcome for which it waits.

    def end(self, request: ClientRequest, frame: Buffer, now: float) -> Steps[None]:
        refusal, now = yield from self._transactions.end(...)
        ...
        reply, now = yield from self._link.ask(frame, now)
        self._client.pass_back(request, (reply,), now)

Rules:
- The steps continue within the call that settles the outcome, so they run in the order of the events.
- An exception after a wait closes the client's connection, and does not reach the code that settles the outcome. An
  exception after an `UpstreamAnswer` does reach it, because the response may be invalid: the link then fails the
  request, which closes the client's connection, and ends.
- The steps also continue if the client has disconnected, or its connection was closed: they check that themselves. If
  the request fails upstream, they never continue.
"""

from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar

from ottla.proxy.clients.client_connection import ClientConnection
from ottla.sdk.outcome import Outcome

T = TypeVar("T")

Steps = Generator[Outcome[Any], None, T]
"""Yields what to wait for, and returns its result."""


class UpstreamAnswer(Outcome[tuple[bytes, float]]):
    """The frame of upstream's response to a client's request, and the time."""

    __slots__ = ()


UpstreamFrame = Steps[tuple[bytes, float]]
"""Waits for upstream's response to a client's request; returns its frame, and the time."""


def until(outcome: Outcome[T]) -> Steps[T]:
    """Wait for ``outcome``, and return its value."""
    yield outcome
    return outcome.result()


def run(steps: Steps[None], client: ClientConnection) -> None:
    """Take the steps up to their next wait, and the rest when it has ended.

    A client decides how many waits there are, and many may have ended already: each is a turn of the loop.
    """
    for wait in steps:
        if not wait.done:
            go_on = partial(run, steps, client)
            wait.when_done(go_on if isinstance(wait, UpstreamAnswer) else client.contained(go_on))
            return
