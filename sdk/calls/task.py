"""The common base of calls: an outcome, a deadline, and retries of requests.

Rules:
- Each request is retried with backoff while its error is retriable or its connection broke. At its deadline the call
  fails, with the last error in the message, or a list of the client's waits.
- A call is a generator that is read from top to bottom: to wait, it yields an `Outcome`. There are no callbacks to
  follow.
- A call ends with its outcome, for whatever reason: after a cancellation or the deadline it sends no further request,
  and requests that were not sent yet never are.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from ottla.codec.apis.metadata import MetadataResponse
from ottla.errors import BrokerError, ConnectionLost, OttlaError, RequestTimedOut, TimeoutExpired
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import DATA, Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

T = TypeVar("T")
U = TypeVar("U")

UNSURE = (ConnectionLost, TimeoutExpired, RequestTimedOut)
"""Errors after which a request may have been executed, or may yet be: after the last one the broker goes on with it."""

_LINES = 3
"""Lines of `ClientCore.explain` in an error."""


class Task(Generic[T]):
    """A call: ``work(task)`` is a generator that waits for each of its steps with ``yield from``.

    Args:
        timeout: seconds from now until its deadline; by default `api_timeout`.
        background: no user waits for it: see `Exchange.background`.

    Attributes:
        now: the time of the current step.
        repeated: whether an earlier request of this call may have been executed.
    """

    def __init__(
        self,
        core: ClientCore,
        what: str,
        now: float,
        work: Callable[["Task[T]"], Steps[T]],
        timeout: float | None = None,
        *,
        background: bool = False,
    ) -> None:
        self.core, self.what, self.now, self.background = core, what, now, background
        self.outcome: Outcome[T] = Outcome()
        self.timeout = core.options.api_timeout if timeout is None else timeout
        self.deadline = now + self.timeout
        self.trouble = ""
        self.repeated = False
        self._failures = 0
        self._sent: list[Exchange] = []
        """Requests that may still be in flight."""
        self._work = work(self)
        self._waiting: Outcome[Any] | None = None
        """The outcome that the work waits for."""
        timer = core.later(self.deadline, self._expire)
        self.outcome.when_done(timer.cancel)
        self.outcome.when_done(self._end)
        core.fail_on_close(self.outcome)
        self._step(now)

    def _end(self) -> None:
        """Cancel all requests and waits."""
        for exchange in self._sent:
            exchange.cancel()
        self._sent.clear()
        if self._waiting is not None:
            self._work.close()
            self._waiting.cancel()

    def _expire(self, now: float) -> None:
        # A call that only waited for the client has no error of its own: list the client's waits.
        waiting = "".join(f"; {line}" for line in islice(self.core.explain(now), _LINES))
        why = f"; last error: {self.trouble}" if self.trouble else waiting
        self.outcome.fail(TimeoutExpired(f"{self.what}: not done within {self.timeout:g} s{why}"))

    def _step(self, now: float) -> None:
        self._waiting = None
        if self.outcome.done:
            return
        self.now = now
        try:
            waiting = next(self._work)
        except StopIteration as end:
            self.outcome.succeed(end.value)
        except OttlaError as error:
            self.outcome.fail(error)
        else:
            assert isinstance(waiting, Outcome), "a call of several steps may only wait for outcomes"
            self._waiting = waiting
            waiting.when_done(lambda: self.core.soon(self._step))

    def request(
        self,
        node: Node,
        request: Any,
        build: Callable[[int], Any] | None = None,
        versions: tuple[int, int] | None = None,
        channel: str = DATA,
    ) -> Outcome[tuple[Any, int]]:
        """Send ``request`` once: returns the response, and its version. Other arguments are as in `Exchange`."""
        outcome: Outcome[tuple[Any, int]] = Outcome()

        def ended(answer: Any, now: float) -> None:
            self._sent.remove(exchange)
            if isinstance(answer, OttlaError):
                outcome.fail(answer)
            else:
                outcome.succeed((answer, exchange.version))

        until = min(self.now + self.core.options.request_timeout, self.deadline)
        exchange = Exchange(request, ended, until, build=build, versions=versions, background=self.background)
        self._sent.append(exchange)
        self.core.submit(node, exchange, self.now, channel)
        return outcome

    def pause(self, error: OttlaError) -> Steps[None]:
        """Wait before the next attempt; raises ``error`` if it is not retriable."""
        if not error.retriable:
            raise error
        self.trouble = str(error)
        if isinstance(error, BrokerError) and error.stale_metadata:
            self.core.metadata.refresh(self.now)
        self._failures += 1
        yield from self.rest(self.core.backoff(self._failures - 1))

    def rest(self, seconds: float) -> Steps[None]:
        """Wait for so many seconds."""
        rested: Outcome[None] = Outcome()
        self.core.later(self.now + seconds, lambda now: rested.succeed(None))
        yield rested

    def ask(
        self,
        node: Callable[[], Node],
        request: Any,
        judge: Callable[[Any], OttlaError | None],
        build: Callable[[int], Any] | None = None,
    ) -> Steps[Any]:
        """Send ``request`` until ``judge`` finds no error in the response; raises an error that is not retriable.

        Args:
            judge: returns an error, or raises an error that is retriable elsewhere, but not here.
            build: as in `Exchange`.
        """
        while True:
            error: OttlaError | None
            try:
                answer, _ = yield from settled(self.request(node(), request, build))
            except OttlaError as lost:
                error = lost
            else:
                error = judge(answer)
                if error is None:
                    return answer
            self.repeated |= isinstance(error, UNSURE)
            yield from self.pause(error)

    def ask_cluster(self, topics: Sequence[str] | None) -> Steps[MetadataResponse]:
        """Fetch the metadata of ``topics`` (``None``: of all) now; refused for the same reasons as in the client."""

        def judge(answer: MetadataResponse) -> OttlaError | None:
            if (refusal := self.core.cluster.refusal(answer)) is None:
                return None
            self.core.metadata.suspect(self.now, 0.0)  # the client's own refresh gets the same, and deals with it
            return ConnectionLost(str(refusal))

        return self.ask(self.core.any_node, requests.metadata(topics), judge)


def mapped(outcome: Outcome[T], change: Callable[[T], U]) -> Outcome[U]:
    """Follow ``outcome``, with its value changed."""
    whole: Outcome[U] = Outcome()

    def change_it() -> None:
        if outcome.error is not None:
            whole.fail(outcome.error)
        else:
            whole.succeed(change(outcome.result()))

    outcome.when_done(change_it)
    whole.when_done(outcome.cancel)
    return whole
