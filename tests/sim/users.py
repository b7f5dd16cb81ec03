"""Processes with a `ClientCore`, which run its steps as the shipped drivers do, and their users.

A user is a generator that yields seconds to sleep, or a `Wait` for an outcome. It gets what the SDK returns or raises.
"""

import math
import types
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from ottla.errors import OttlaError
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.pump import Link, Pump
from ottla.sdk.events import Action, Close, Connect, Event, Finish, Key, Lost, RunInThread, Send, Written
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.steps import Await, Outside, Shielded, Steps
from ottla.sdk.steps import Wait as Waits
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess

T = TypeVar("T")

SLACK = 0.05
"""Seconds by which a call may exceed its deadline."""
AFTER = 1.0
"""Most seconds that a call may still take when its process thaws after the call's deadline."""
TOO_BUSY = 20_000
"""Most timers that a core may set at one instant."""


class Violation(Exception):
    """A broken promise. Args: invariant: the promise, in a few words; detail: who, when, what."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(invariant, detail)
        self.invariant, self.detail = invariant, detail

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


@dataclass(slots=True)
class Wait:
    """Waits for an outcome, which has to be settled ``within`` seconds (``None``: at any time)."""

    outcome: Outcome[Any]
    what: str
    within: float | None = None


Script = Generator[float | Wait, None, None]


class Cancelled(BaseException):
    """The exception that an event loop raises in a cancelled task."""


@types.coroutine
def pause(seconds: float) -> Generator[float, None, None]:
    """Sleep in users' asynchronous code that the machines call: in a listener, for example."""
    yield seconds


class Tasks:
    """The tasks of a loop, as the machines see them; each user is one task, named by a string."""

    def name_of(self, task: Any) -> str:
        return str(task)

    def where(self, task: Any) -> str:
        return f"in {task}"

    def has_ended(self, task: Any) -> bool:
        return False


class Wire(Link):
    """A connection of a process, as a driver has it."""

    def __init__(self, key: Key, process: "Process") -> None:
        super().__init__(key)
        self._process = process

    def write(self) -> None:
        parts = tuple(self.outbox)
        self.outbox.clear()
        if parts:
            self.full = not self._process.network.send(self._process, Send(self.key, parts))
        if self.finishing and not self.full:
            self._process.network.finish(self._process, Finish(self.key))


class Process(SimulatedProcess, Pump[Wire]):
    """A process with a client, which runs the core's steps as the shipped drivers do.

    Args:
        chance: the client's own random numbers.
    """

    def __init__(
        self, name: str, clock: Clock, network: Network, history: History, options: Options, nodes: int, chance: Random
    ) -> None:
        core = ClientCore([(f"n{n}", PORT + n) for n in range(1, nodes + 1)], options, chance)
        SimulatedProcess.__init__(self, name, clock, network, history)
        Pump.__init__(self, core, lambda: clock.now, "simulated", lambda key: Wire(key, self))
        self._moment, self._timers = -1.0, 0
        self.turn = 0
        """Counts the steps."""
        self.connecting = 0
        """Users that wait for the first connection."""
        self.checks: list[Callable[[], None]] = []
        """Called whenever the process has nothing left to do at this instant."""
        self.fetch: Callable[[Process], None]
        """Fetches a token, if brokers require one."""
        self._set_timer = core.timers.add
        core.timers.add = self._counted  # type: ignore[method-assign] # to notice a core that never rests

    def _counted(self, when: float, call: Callable[[float], None]) -> Any:
        if self.clock.now != self._moment:
            self._moment, self._timers = self.clock.now, 0
        self._timers += 1
        if self._timers > TOO_BUSY:
            raise Violation("a core never rests", f"{self.name} sets timer after timer")
        return self._set_timer(when, call)

    # -- time --------------------------------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        if self.held(partial(self.hear, event)):
            return
        if isinstance(event, Written) and (link := self._links.get(event.key)):
            link.full = False
            link.write()
        elif isinstance(event, Lost):
            self._links.pop(event.key, None)
        self.tell(event)

    def pump(self) -> None:
        """Carry out the core's actions, and schedule the next poll."""
        if not self.alive:
            return
        self.turn += not self._pumping
        super().pump()
        if not (self._pumping or self._runs or self.core.deadline == -math.inf):
            for check in self.checks:
                check()
            self.core.gate.rest()

    def _carry_out(self, actions: Iterable[Action]) -> list[Wire]:
        for action in actions:
            if isinstance(action, Send) and (link := self._links.get(action.key)) and link.full:
                raise Violation("a request is sent before the last one is written", self.name)
        return super()._carry_out(actions)

    def _run_one(self) -> None:
        self._runs.popleft()()  # an exception here is a finding

    def _set_alarm(self, when: float) -> None:
        if when < math.inf:
            self.clock.at(when, partial(self._wake, when))

    def _wake(self, when: float) -> None:
        if not self.held(partial(self._wake, when)) and when == self._alarm_at:
            self._ring()

    def _kick(self) -> None:
        self.clock.later(0.0, self._kicked)

    def _kicked(self) -> None:
        if not self.held(self._kicked):
            self._ring()

    def _dial(self, link: Wire, wanted: Connect) -> None:
        self.network.connect(self, wanted)

    def _hang_up(self, link: Wire) -> None:
        self.network.close(self, Close(link.key))

    def _await_writable(self, link: Wire) -> None:
        """The network sends `Written` on its own."""

    def _run_in_thread(self, work: RunInThread) -> None:
        self.fetch(self)

    def close(self) -> None:
        """End the program in order."""
        self.core.close(self.clock.now)
        self._gone()

    # -- users -------------------------------------------------------------------------------------------------------

    def run(self, script: Script, done: Callable[[], None] = lambda: None) -> None:
        """Run a user's script; ``done`` is called at its end."""

        def advance() -> None:
            if self.held(advance):
                return
            try:
                what = next(script)
            except StopIteration:
                done()
            else:
                self._await(what, advance)
            self.pump()

        self.clock.later(0.0, advance)

    def _await(self, what: float | Wait, advance: Callable[[], None]) -> None:
        if isinstance(what, Wait):
            what.outcome.when_done(lambda: self.clock.later(0.0, advance))
            self.bounded(what)
        else:
            self.clock.later(what, advance)

    def bounded(self, wait: Wait) -> None:
        """Check that a call ends in time."""
        if wait.within is not None:
            self.clock.later(wait.within + SLACK, partial(self._check, wait, self.clock.now, self.thawed))

    def _check(self, wait: Wait, since: float, frozen: float) -> None:
        """Check that a bounded call has ended; if the process was frozen meanwhile, check again after the thaw."""
        if wait.outcome.done or not self.alive:
            return
        if self.thawed > since and self.thawed != frozen:
            again = self.thawed + min(wait.within or 0.0, AFTER) + SLACK
            self.clock.at(again, partial(self._check, wait, since, self.thawed))
            return
        raise Violation(
            "a call does not end by its deadline",
            f"{self.name}: {wait.what}, since {since:.3f}, had to end within {wait.within:g} s",
        )

    def connect(self) -> Script:
        """Connect, and retry until a node answers."""
        while True:
            connected = self.core.connect(self.clock.now)
            self.connecting += 1
            yield Wait(connected, "connect", self.core.options.connect_timeout)
            self.connecting -= 1
            if connected.error is None:
                return
            self.history.add("·", self.name, f"cannot connect: {connected.error}")
            yield 0.5

    def do(self, call: Callable[[], T]) -> T:
        """Make a call that does not wait."""
        with self.core.gate:
            self.core.now = self.clock.now
            result = call()
        self.pump()
        return result

    def perform(
        self, steps: Steps[T], what: str, *, within: float | None = None, cancel: Outcome[None] | None = None
    ) -> Generator[float | Wait, None, T]:
        """Run the steps of a call, as drivers do.

        Args:
            within: seconds within which the call has to end.
            cancel: once it is settled, the call is cancelled if that is allowed.
        """
        ended: Outcome[None] = Outcome()
        self.bounded(Wait(ended, what, within))
        cancel = Outcome() if cancel is None else cancel
        sent: object = None
        raised: BaseException | None = None
        while True:
            try:
                wait = self.core.resume(steps, self.clock.now, sent=sent, raised=raised)
            except StopIteration as end:
                ended.succeed(None)
                result: T = end.value
                return result
            except BaseException:
                ended.succeed(None)
                raise
            finally:
                self.pump()
            sent = raised = None
            try:
                sent = yield from self._waited(wait, what, cancel)
            except Cancelled as cancelled:
                raised, cancel = cancelled, Outcome()
            except Exception as error:  # an error of the user's own code
                raised = error

    def _waited(self, wait: Waits, what: str, cancel: Outcome[None]) -> Generator[float | Wait, None, object]:
        if isinstance(wait, Outside):
            return wait.call()
        if isinstance(wait, Await):
            return (yield from self._awaited(wait, cancel))
        if isinstance(wait, Shielded):
            yield Wait(wait.outcome, what)
            return True
        if isinstance(wait, Outcome):
            yield Wait(any_of((wait, cancel)), what)
        else:
            yield 0.0
        if cancel.done and not (isinstance(wait, Outcome) and wait.done):
            raise Cancelled
        return True

    def _awaited(self, wanted: Await, cancel: Outcome[None]) -> Generator[float | Wait, None, bool]:
        """Run users' own code; return whether it ended in time."""
        began, code = self.clock.now, wanted.function(*wanted.args).__await__()
        while True:
            try:
                what: Any = next(code)
            except StopIteration:
                return True
            yield what
            if cancel.done and not wanted.shield:
                code.close()
                raise Cancelled
            if wanted.seconds is not None and self.clock.now - began > wanted.seconds:
                code.close()
                return False

    def asked(self, start: Callable[[float], Outcome[Any]], what: str, within: float) -> Generator[Wait, None, Any]:
        """Start a call and wait for it; return its value, or the error that a user would catch."""
        outcome = start(self.clock.now)
        yield Wait(outcome, what, within)
        error: OttlaError | None = outcome.error
        return error if error is not None else outcome.result()
