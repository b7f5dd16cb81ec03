"""The common base of calls: a flow with a deadline, and retries of requests.

Rules:
- Each request is retried with backoff while its error is retriable or its connection broke. At its deadline the call
  fails, with the last error in the message, or a list of the client's waits.
- A call ends with its outcome, for whatever reason: after a cancellation or the deadline it sends no further request,
  and requests that were not sent yet never are.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from ottla.codec.apis.metadata import MetadataResponse
from ottla.errors import BrokerError, ConnectionLost, OttlaError, RequestTimedOut, TimeoutExpired
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import NO_ANSWER, Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import GENERAL, Node
from ottla.sdk.flow import Flow, sleep
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

T = TypeVar("T")
U = TypeVar("U")

UNSURE = (*NO_ANSWER, RequestTimedOut)
"""Errors after which a request may have been executed, or may yet be: after the last one the broker goes on with it."""

_LINES = 3
"""Lines of `ClientCore.explain` in an error."""


class Task(Flow[T]):
    """A call: ``work(task)`` is a generator that waits for each of its steps with ``yield from``.

    Args:
        timeout: seconds from now until its deadline; by default `api_timeout`.
        background: no user waits for it: see `Exchange.background`.

    Attributes:
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
        self.core, self.what, self.background = core, what, background
        self.timeout = core.options.api_timeout if timeout is None else timeout
        self.deadline = now + self.timeout
        self.trouble = ""
        self.repeated = False
        self._failures = 0
        self._sent: list[Exchange] = []
        """Requests that may still be in flight."""
        super().__init__(core, work(self), self.deadline)

    @property
    def now(self) -> float:
        """The time of the current step."""
        return self.core.now

    def _end(self) -> None:
        for exchange in self._sent:
            exchange.cancel()
        self._sent.clear()
        super()._end()

    def _expire(self, now: float) -> None:
        # A call that only waited for the client has no error of its own: list the client's waits.
        waiting = "".join(f"; {line}" for line in islice(self.core.explain(now), _LINES))
        why = f"; last error: {self.trouble}" if self.trouble else waiting
        self.outcome.fail(TimeoutExpired(f"{self.what}: not done within {self.timeout:g} s{why}"))

    def request(
        self,
        node: Node,
        request: Any,
        build: Callable[[int], Any] | None = None,
        versions: tuple[int, int] | None = None,
        channel: str = GENERAL,
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

    def attempt_failed(self, error: OttlaError, unsure: tuple[type[OttlaError], ...] = ()) -> None:
        """Keep the error of a request, to explain a timeout; after an error in ``unsure`` it may have been executed."""
        self.trouble = str(error)
        self.repeated |= isinstance(error, unsure)

    def pause(self, error: OttlaError) -> Steps[None]:
        """Wait before the next attempt; raises ``error`` if it is not retriable."""
        if not error.retriable:
            raise error
        self.trouble = str(error)
        if isinstance(error, BrokerError) and error.stale_metadata:
            self.core.metadata.refresh(self.now)
        self._failures += 1
        yield from sleep(self.core, self.core.backoff(self._failures - 1))

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
            self.attempt_failed(error, UNSURE)
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
