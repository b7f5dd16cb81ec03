"""Runs what a machine does in several steps: a generator that is read from top to bottom.

    self._beat = Flow(core, self._heartbeat())

    def _heartbeat(self) -> Steps[None]:
        node = yield from settled(core.coordinators.find(group, core.now))
        answer = yield from settled(ask(core, node, HeartbeatRequest(...), deadline))

Rules:
- The generator may yield an `Outcome`, or `Outside` for the user's code (`ottla.sdk.steps`).
- It continues within the next `poll` after its wait has ended, never within the code that settles the outcome: so no
  machine is called while another one is in the middle of a change.
- A flow may end within its first step, before its owner holds it. So an attribute that holds a flow is assigned only
  where the flow begins (a test checks that); what the steps change is another attribute.
- A flow ends with its outcome, whoever settles it: its generator is closed, and the outcome it waits for is cancelled.
  The client's close fails it.
- Somebody reads the outcome; a flow for which nobody waits is a `LoneFlow`.
- The user's code may raise anything: the function of an `Outside` turns that into an `OttlaError` or a value. Any other
  error of a generator is a bug, and ends the client.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ottla.errors import OttlaError, TimeoutExpired
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import GENERAL, Node
from ottla.sdk.gate import Gate
from ottla.sdk.outcome import Abandoned, Outcome
from ottla.sdk.steps import Outside, Steps, Wait
from ottla.sdk.timers import Timer

T = TypeVar("T")


class FlowClient(Protocol):
    """The client, as flows see it."""

    closed: OttlaError | None
    now: float
    gate: Gate

    def later(self, when: float, call: Callable[[float], None]) -> Timer: ...
    def soon(self, call: Callable[[float], None]) -> Timer: ...
    def run(self, call: Callable[[], object]) -> None: ...
    def fail_on_close(self, outcome: Outcome[Any]) -> None: ...
    def submit(self, node: Node, exchange: Exchange, now: float, channel: str = ...) -> None: ...


class FlowExpired(TimeoutExpired):
    """Raised where a flow waits at its deadline."""


class Flow(Generic[T]):
    """Takes the first of ``steps`` at once, and each further one when its wait has ended.

    Args:
        deadline: when `FlowExpired` is raised at the wait; by default never.

    Attributes:
        outcome: the value that the steps return, or the error that they raise.
    """

    def __init__(self, client: FlowClient, steps: Steps[T], deadline: float | None = None) -> None:
        self._client, self._steps = client, steps
        self.outcome: Outcome[T] = Outcome()
        self._wait: Wait | None = None
        self._running = False
        if deadline is not None:
            self.outcome.when_done(client.later(deadline, self._expire).cancel)
        self.outcome.when_done(self._end)
        client.fail_on_close(self.outcome)
        if client.closed is not None:
            self.outcome.fail(client.closed)
        self._step()

    def cancel(self) -> None:
        """End the flow, because its result is no longer needed."""
        self.outcome.cancel()

    def _expire(self, now: float) -> None:
        self._stop_waiting()
        self._step(raised=FlowExpired("not done in time"))

    def _end(self) -> None:
        if not self._running:  # else a step ends its own flow: `_step` calls this again once the generator has stopped
            self._steps.close()
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        wait, self._wait = self._wait, None
        if isinstance(wait, Outcome):
            wait.cancel()

    def _step(self, sent: object = None, raised: BaseException | None = None) -> None:
        if self.outcome.done:
            return
        self._running = True
        try:
            self._begin(self._steps.send(sent) if raised is None else self._steps.throw(raised))
        except StopIteration as end:
            self.outcome.succeed(end.value)
        except OttlaError as error:
            self._failed(error)
        finally:
            self._running = False
        if self.outcome.done:
            self._end()

    def _failed(self, error: OttlaError) -> None:
        self.outcome.fail(error)

    def _begin(self, wait: Wait) -> None:
        self._wait = wait
        if isinstance(wait, Outside):
            self._client.run(lambda: self._outside(wait))
        elif isinstance(wait, Outcome):
            wait.when_done(lambda: self._client.soon(lambda now: self._resume(wait)))
        else:
            raise TypeError(f"a flow waits for outcomes, and for calls outside of the core, not for {wait!r}")

    def _resume(self, wait: Wait, sent: object = None, raised: BaseException | None = None) -> None:
        if wait is self._wait:
            self._wait = None
            self._step(sent, raised)

    def _outside(self, wait: Outside) -> None:
        """Call the user's code, unless the flow has ended; its value, or its error, arrives in a later step."""
        if wait is not self._wait:
            return
        sent, raised = None, None
        try:
            sent = wait.call()
        except BaseException as error:
            raised = error
            if isinstance(error, KeyboardInterrupt | SystemExit):  # also ends the caller of this function
                raise
        finally:
            with self._client.gate:
                self._client.soon(lambda now: self._resume(wait, sent, raised))


class LoneFlow(Flow[None]):
    """A flow whose outcome nobody reads: if it fails, that is a bug, which ends the client in the current step."""

    def _failed(self, error: OttlaError) -> None:
        ended = self.outcome.done  # by its owner, or by the client's close, while the step ran
        super()._failed(error)
        if not ended and not isinstance(error, Abandoned):
            raise error


def ask(
    client: FlowClient,
    node: Node,
    request: Any,
    deadline: float,
    *,
    channel: str = GENERAL,
    build: Callable[[int], Any] | None = None,
    versions: tuple[int, int] | None = None,
) -> Outcome[Any]:
    """Send a request once; the outcome is its response, or the error of its connection or its deadline.

    Cancelling the outcome withdraws a request that was not sent yet. The arguments are those of `Exchange`.
    """
    answered: Outcome[Any] = Outcome()
    exchange = Exchange(request, lambda answer, now: answered.settle(answer), deadline, build=build, versions=versions)
    client.submit(node, exchange, client.now, channel)
    answered.when_done(exchange.cancel)
    return answered


def sleep(client: FlowClient, seconds: float) -> Steps[None]:
    """Wait for so many seconds; with 0, until the calls are made that are due already."""
    over: Outcome[None] = Outcome()
    timer = client.later(client.now + seconds, lambda now: over.succeed(None))
    try:
        yield over
    finally:
        timer.cancel()
