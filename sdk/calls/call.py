"""What all calls share: an outcome, a deadline, and the repetition of requests.

Rules:
- Each request is repeated with backoff while its error is retriable or its connection broke, and the call fails at its
  deadline with the last trouble in the message, or with what the client waits for.
- A `Task` is a call of several steps, written top to bottom as a generator: where something has to be waited for, it
  yields the `Outcome`. There are no callbacks to follow.
- A call ends with its outcome, whatever ends that: once the caller is cancelled, or the deadline has passed, nothing
  more is asked for, and what was not sent yet never is.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any, Generic, TypeVar

from ottla.errors import BrokerError, ConnectionLost, OttlaError, TimeoutExpired
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import DATA, Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

T = TypeVar("T")
U = TypeVar("U")

_LINES = 3
"""Of `ClientCore.explain`, in an error."""


class Call(Generic[T]):
    """An outcome and its deadline, ``timeout`` seconds from now (by default `api_timeout`)."""

    def __init__(self, core: ClientCore, what: str, now: float, timeout: float | None = None) -> None:
        self.core, self.what = core, what
        self.outcome: Outcome[T] = Outcome()
        self.timeout = core.options.api_timeout if timeout is None else timeout
        self.deadline = now + self.timeout
        self.trouble = ""
        self.repeated = False
        """An earlier request of this call may have done its work."""
        self._failures = 0
        self._sent: list[Exchange] = []
        """What may still be under way."""
        timer = core.later(self.deadline, self._expire)
        self.outcome.when_done(timer.cancel)
        self.outcome.when_done(self._end)
        core.fail_on_close(self.outcome)

    def _end(self) -> None:
        """Nothing is waited for any more."""
        for exchange in self._sent:
            exchange.cancel()
        self._sent.clear()

    def _expire(self, now: float) -> None:
        # A call that was only waiting has no trouble of its own: then the client's is what it waited for.
        waiting = "".join(f"; {line}" for line in islice(self.core.explain(now), _LINES))
        why = f"; last trouble: {self.trouble}" if self.trouble else waiting
        self.outcome.fail(TimeoutExpired(f"{self.what}: not done within {self.timeout:g} s{why}"))

    def ask(
        self,
        node: Callable[[], Node],
        request: Any,
        judge: Callable[[Any, float], OttlaError | None],
        now: float,
        build: Callable[[int], Any] | None = None,
    ) -> None:
        """Send ``request`` until ``judge`` of its answer finds no error, or one that no repetition mends.

        Args:
            build: makes the request of the version that the broker speaks; ``request`` is its class then.
        """

        if self.outcome.done:
            return

        def ended(answer: Any, now: float) -> None:
            self._sent.remove(exchange)
            error = answer if isinstance(answer, OttlaError) else judge(answer, now)
            if error is not None:
                self.repeated |= isinstance(answer, ConnectionLost | TimeoutExpired)
                self.retry(error, lambda now: self.ask(node, request, judge, now, build), now)

        until = min(now + self.core.options.request_timeout, self.deadline)
        exchange = Exchange(request, ended, until, build=build)
        self._sent.append(exchange)
        self.core.submit(node(), exchange, now)

    def retry(self, error: OttlaError, again: Callable[[float], None], now: float) -> None:
        """Do ``again`` after a pause if the error may pass; otherwise the call fails with it."""
        if self.outcome.done:
            return
        if not error.retriable or self.core.closed:
            self.outcome.fail(error)
            return
        self.core.later(now + self.note(error, now), again)

    def note(self, error: OttlaError, now: float) -> float:
        """Keep the error for the message at the deadline; the seconds to pause before the next attempt."""
        self.trouble = str(error)
        if isinstance(error, BrokerError) and error.stale_metadata:
            self.core.metadata.refresh(now)
        self._failures += 1
        return self.core.backoff(self._failures - 1)


class Task(Call[T]):
    """A call of several steps: ``work(task)`` is a generator that waits for each with ``yield from``.

    Attributes:
        now: the time of the step that runs.
    """

    def __init__(
        self,
        core: ClientCore,
        what: str,
        now: float,
        work: Callable[["Task[T]"], Steps[T]],
        timeout: float | None = None,
    ) -> None:
        super().__init__(core, what, now, timeout)
        self.now = now
        self._work = work(self)
        self._waiting: Outcome[Any] | None = None
        """What the work waits for."""
        self._step(now)

    def _end(self) -> None:
        super()._end()
        if self._waiting is not None:
            self._work.close()
            self._waiting.cancel()

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
        exchange = Exchange(request, ended, until, build=build, versions=versions)
        self._sent.append(exchange)
        self.core.submit(node, exchange, self.now, channel)
        return outcome

    def pause(self, error: OttlaError) -> Steps[None]:
        """Wait before the next attempt; raises ``error`` if no repetition mends it."""
        if not error.retriable:
            raise error
        rested: Outcome[None] = Outcome()
        self.core.later(self.now + self.note(error, self.now), lambda now: rested.succeed(None))
        yield rested

    def ask_any(self, request: Any) -> Steps[Any]:
        """What any broker answers, whichever comes first to do so."""
        while True:
            try:
                answer, _ = yield from settled(self.request(self.core.any_node(), request))
                return answer
            except OttlaError as error:
                yield from self.pause(error)


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
