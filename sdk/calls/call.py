"""What all calls share: an outcome, a deadline, and the repetition of requests.

Rules:
- Each request is repeated with backoff while its error is retriable or its connection broke, and the call fails at its
  deadline with the last trouble in the message, or with what the client waits for.
- A call is written top to bottom as a generator: where something has to be waited for, it yields the `Outcome`. There
  are no callbacks to follow.
- A call ends with its outcome, whatever ends that: once the caller is cancelled, or the deadline has passed, nothing
  more is asked for, and what was not sent yet never is.
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
"""Errors after which a request may have been carried out, or still be: the last is the broker's own, which goes on."""

_LINES = 3
"""Of `ClientCore.explain`, in an error."""


class Task(Generic[T]):
    """A call: ``work(task)`` is a generator that waits for each of its steps with ``yield from``.

    Args:
        timeout: seconds from now until its deadline; by default `api_timeout`.
        background: no user waits for it: its requests are as those of `Exchange.background`.

    Attributes:
        now: the time of the step that runs.
        repeated: an earlier request of this call may have done its work.
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
        """What may still be under way."""
        self._work = work(self)
        self._waiting: Outcome[Any] | None = None
        """What the work waits for."""
        timer = core.later(self.deadline, self._expire)
        self.outcome.when_done(timer.cancel)
        self.outcome.when_done(self._end)
        core.fail_on_close(self.outcome)
        self._step(now)

    def _end(self) -> None:
        """Nothing is waited for any more."""
        for exchange in self._sent:
            exchange.cancel()
        self._sent.clear()
        if self._waiting is not None:
            self._work.close()
            self._waiting.cancel()

    def _expire(self, now: float) -> None:
        # A call that was only waiting has no trouble of its own: then the client's is what it waited for.
        waiting = "".join(f"; {line}" for line in islice(self.core.explain(now), _LINES))
        why = f"; last trouble: {self.trouble}" if self.trouble else waiting
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
            assert isinstance(waiting, Outcome), "a call of several steps waits for outcomes only"
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
        """Send ``request`` once: the answer, and the version that was spoken. The rest is as in `Exchange`."""
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
        """Wait before the next attempt; raises ``error`` if no repetition mends it."""
        if not error.retriable:
            raise error
        self.trouble = str(error)
        if isinstance(error, BrokerError) and error.stale_metadata:
            self.core.metadata.refresh(self.now)
        self._failures += 1
        yield from self.rest(self.core.backoff(self._failures - 1))

    def rest(self, seconds: float) -> Steps[None]:
        """Wait so long."""
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
        """Send ``request`` until ``judge`` of its answer finds no error; raises one that no repetition mends.

        Args:
            judge: raises what would pass elsewhere, but does not here.
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
        """The metadata of ``topics`` (``None``: of all) at this moment, refused where the client itself would."""

        def judge(answer: MetadataResponse) -> OttlaError | None:
            if (refusal := self.core.cluster.refusal(answer)) is None:
                return None
            self.core.metadata.suspect(self.now, 0.0)  # which meets the same, and does what has to be done about it
            return ConnectionLost(str(refusal))

        return self.ask(self.core.any_node, requests.metadata(topics), judge)


def mapped(outcome: Outcome[T], change: Callable[[T], U]) -> Outcome[U]:
    """``outcome`` with its value changed."""
    whole: Outcome[U] = Outcome()

    def change_it() -> None:
        if outcome.error is not None:
            whole.fail(outcome.error)
        else:
            whole.succeed(change(outcome.result()))

    outcome.when_done(change_it)
    whole.when_done(outcome.cancel)
    return whole
