"""What the drivers of all loops share: a step, and a call of a user.

Theory of operation: the core is only touched between two switches of tasks, in the thread of the loop, and inside its
gate. Whatever changes something calls `step`, which polls the core and carries out its actions. A call is a generator
(`ottla.sdk.steps`), which `run` resumes whenever what it waits for is there.

A turn of a loop costs a good part of a request. So `step` itself writes to the sockets what they take at once, nearly
always all of it; only for the rest is the loop asked to say when there is room. The alarm is moved earlier as need be,
and nobody is woken for a later one.

User code (`Run`) is called when everything else of the step is done. What it does with the client in turn is seen to in
the next turn of the loop: a callback that sends for ever starves nobody.

A driver derives from `Driver` and says how its loop waits, dials and rings.
"""

import contextlib
import math
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.codec.wire import Buffer
from ottla.errors import LocalProtocolError, OttlaError
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.watchdog import Watchdog
from ottla.sdk.events import Action, Close, Connect, Event, Find, Finish, Key, Lost, Run, Send, Written
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import CHECK, Await, Shielded, Steps, Wait, settled

T = TypeVar("T")

log = logger("ottla.sdk")

CHUNK = 64 * 2**10
"""Bytes of one read; the rest of what is larger is read into its place."""
_LAST_STEPS = 100
"""Steps at the end of a client, in which callbacks may still ask for something, and are refused."""


class Link(ABC):
    """One connection, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.outbox: deque[Buffer] = deque()
        """What is still to be written."""
        self.full = False
        """The system takes no more for now."""
        self.finishing = False
        """Once the outbox is empty, the other side is told that nothing follows."""
        self.broke = ""
        """Why writing failed: the first that touches a broken socket gets the reason, a reader sees a mere end."""

    @property
    def wrote(self) -> bool:
        """The system has taken everything."""
        return not (self.outbox or self.full or self.broke)

    @abstractmethod
    def write(self) -> None:
        """Have the system take of the outbox what it takes now; end the writing where that is all, and it is to end."""


L = TypeVar("L", bound=Link)


class Awaited(NamedTuple):
    """What became of a function of the user's."""

    returned: bool
    """It came to its end, and was not given up."""
    raised: BaseException | None = None
    late: BaseException | None = None
    """A cancellation of the caller that had to wait."""


class Driver(ABC, Generic[L]):
    """Drives ``core``.

    Args:
        now: the loop's clock, in seconds, callable from any thread.
        loop: its name, for messages.
        link: makes the loop's own kind of connection.
    """

    def __init__(self, core: ClientCore, now: Callable[[], float], loop: str, link: Callable[[Key], L]) -> None:
        self.core, self.now, self._loop, self._link = core, now, loop, link
        self._thread = threading.current_thread()
        """Where the loop runs; there is one at a time in a thread."""
        self._links: dict[Key, L] = {}
        self._reached: dict[tuple[str, int], str] = {}
        """Per name and port, the address that took the last connection."""
        self._runs: deque[Callable[[], object]] = deque()
        """Code of the user's that is to be called."""
        self._stepping = False
        self._exit: BaseException | None = None
        """What user code raised to end the program."""
        self._alarm_at = math.inf
        """When the loop wakes the driver by itself."""
        self._lag = core.metrics.timing("io-loop-lag")

    # -- what a loop can do ------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def require_loop() -> None:
        """Say what to do where the loop does not run.

        Raises:
            LocalProtocolError: it does not.
        """

    @abstractmethod
    async def start(self) -> None:
        """Begin to keep time."""

    @abstractmethod
    async def stop(self, error: BaseException | None) -> None:
        """End everything that was started; raise what ended it earlier, if something did.

        Args:
            error: what the user's block is left by.
        """

    @abstractmethod
    def current_task(self) -> Any:
        """The task that runs, to be compared, and for `name_of` and `coroutine_of`."""

    @abstractmethod
    def name_of(self, task: Any) -> str: ...

    @abstractmethod
    def coroutine_of(self, task: Any) -> Any: ...

    @staticmethod
    @abstractmethod
    async def in_thread(function: Callable[[], T]) -> T:
        """The result of a blocking function; where that is cancelled, the thread is left to its own end."""

    @abstractmethod
    def _set_alarm(self, when: float) -> None:
        """Call `_ring` at ``when``, and no more at the time that was set before."""

    @abstractmethod
    def _kick(self) -> None:
        """Call `_ring` in the next turn of the loop."""

    @abstractmethod
    def _dial(self, link: L, wanted: Connect) -> None:
        """Begin to connect."""

    @abstractmethod
    def _hang_up(self, link: L) -> None:
        """End a connection, or the attempt to make it; it is no longer among the links."""

    @abstractmethod
    def _await_writable(self, link: L) -> None:
        """Have the link write again whenever the system takes more, and tell the core when all is `Written`."""

    @abstractmethod
    def _find_again(self) -> None:
        """Look for brokers by zeroconf, and tell the core what was `Found`."""

    @abstractmethod
    def _call_soon(self, call: Callable[[], object]) -> object:
        """From any thread: have the loop call ``call()``; raises RuntimeError once the loop has ended."""

    @abstractmethod
    async def _settled(self, outcome: Outcome[Any]) -> None:
        """Return once ``outcome`` is settled."""

    @abstractmethod
    async def _shielded(self, outcome: Outcome[Any]) -> BaseException | None:
        """As `_settled`, whatever is cancelled meanwhile; the cancellation, if the loop will not raise it once more."""

    @abstractmethod
    async def _awaited(self, wanted: Await) -> Awaited:
        """Await what the user gave. Raises what it raises, and a cancellation, unless that has to wait."""

    @abstractmethod
    async def _turn(self) -> None:
        """Let the other tasks run."""

    @abstractmethod
    async def _check(self) -> None:
        """Raise a cancellation that is there already."""

    # -- calls -------------------------------------------------------------------------------------------------------

    async def run(self, steps: Steps[T]) -> T:
        """Take the steps of a call, waiting for what each waits for."""
        sent: object = None
        raised: BaseException | None = None
        late: BaseException | None = None
        """A cancellation that came where it had to wait."""
        while True:
            try:
                wait = self._resume(steps, sent, raised)
            except StopIteration as end:
                if late is not None:
                    raise late from None
                result: T = end.value
                return result
            except Exception as error:  # both cannot be raised, and a cancellation that is not would be lost
                if late is not None:
                    raise late from error
                raise
            sent = raised = None
            try:
                if isinstance(wait, Shielded):
                    late = await self._shielded(wait.outcome) or late
                elif isinstance(wait, Await) and (wait.shield or late is None):
                    sent, raised, cancelled = await self._awaited(wait)
                    late = cancelled or late
                elif late is not None:
                    raised, late = late, None
                elif isinstance(wait, Outcome):
                    await self._settled(wait)
                elif wait is CHECK:
                    await self._check()
                else:
                    await self._turn()
            except GeneratorExit:  # nobody awaits this any more, so that nothing can be waited for
                self._drop(steps)
                raise
            except BaseException as error:  # a cancellation, or the user's own: what becomes of it the call decides
                raised = error

    def _drop(self, steps: Steps[Any]) -> None:
        """Nobody awaits a call any more: it tidies up, as in any other step, and can wait for nothing.

        A coroutine may be freed anywhere, also within a step and in another thread, and the loop may have ended. Then
        its steps are freed as well, and what they leave to be done waits for the next step, if there is one.
        """
        if threading.get_ident() != self._thread.ident or self.core.gate.entered[0]:
            return
        with self.core.gate:
            self.core.now = self.now()
            steps.close()
        with contextlib.suppress(RuntimeError):
            self.nudge()

    async def call(self, start: Callable[[float], Outcome[T]]) -> T:
        """Start something on the core and wait for its outcome, which is cancelled with its caller."""
        return await self.run(_started(self.core, start))

    async def wait(self, outcome: Outcome[T]) -> T:
        """The value of an outcome that others may wait for, too; raises its error."""
        self.catch_up()
        await self._settled(outcome)
        return outcome.result()

    def _resume(self, steps: Steps[Any], sent: object, raised: BaseException | None) -> Wait:
        self.refuse_another_loop()
        try:
            return self.core.resume(steps, self.now(), sent=sent, raised=raised)
        except KeyboardInterrupt as interrupt:
            if interrupt is not raised:  # it came in the midst of the step
                self._broken(interrupt)
            raise
        finally:
            self.catch_up()

    def do(self, call: Callable[[], T]) -> T:
        """A call of a user that waits for nothing."""
        self.refuse_another_loop()
        core = self.core
        try:
            with core.gate:
                core.now = self.now()
                return call()
        except KeyboardInterrupt as interrupt:
            self._broken(interrupt)
            raise
        finally:  # what is refused may have something to be done as well
            self.nudge()

    def refuse_another_loop(self) -> None:
        """Raise `LocalProtocolError` in a thread that the client does not belong to."""
        if threading.get_ident() != self._thread.ident:
            raise LocalProtocolError(
                f"this client belongs to the {self._loop} loop in thread {self._thread.name!r}, and is used in "
                f"{threading.current_thread().name!r}: open another client here, or call there by {self._from_thread}"
            )

    _from_thread = ""
    """How to call into the loop from another thread."""

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Poll the core and carry out what it asks for."""
        self.refuse_another_loop()
        if self._stepping:  # by user code that this step runs
            self._kick()
            return
        self._stepping = True
        try:
            now = self.now()
            while actions := self.core.poll(now):
                for link in self._carry_out(actions):
                    if self._links.get(link.key) is link:
                        self.core.handle(Written(link.key), now)
            for _ in range(len(self._runs)):
                self._run_one()
        except (Exception, KeyboardInterrupt) as bug:  # nobody may wait for what it left half done
            self._broken(bug)
            raise
        finally:
            self._stepping = False
            self._look_ahead()
        if (leave := self._exit) is not None:
            self._exit = None
            self._broken(leave)
            raise leave

    def _carry_out(self, actions: Iterable[Action]) -> list[L]:
        """Do what the core asks for; the connections that have written all that they were given."""
        sent: dict[Key, L] = {}
        for action in actions:
            match action:
                case Send(key=key, parts=parts):
                    if link := self._links.get(key):
                        link.outbox += parts
                        sent[key] = link
                case Connect(key=key):
                    link = self._links[key] = self._link(key)
                    self._dial(link, action)
                case Finish(key=key):
                    if finishing := self._links.get(key):
                        finishing.finishing = True
                        if not finishing.full:
                            finishing.write()
                case Close(key=key):
                    if closed := self._links.pop(key, None):
                        self._hang_up(closed)
                case Find():
                    self._find_again()
                case Run(call=call):
                    self._runs.append(call)
        for link in sent.values():
            if not link.full:
                link.write()
                if link.full:
                    self._await_writable(link)
        return [link for link in sent.values() if link.wrote]

    def _run_one(self) -> None:
        call = self._runs.popleft()
        try:
            call()
        except (KeyboardInterrupt, SystemExit) as leave:  # once the step is over
            self._exit = self._exit or leave
        except BaseException:  # whatever it is: a cancellation of something else may come out of it, too
            log.exception("code that was called by the client raised")

    def _look_ahead(self) -> None:
        """See to it that the next step is taken in time."""
        now, due = self.now(), self.core.deadline
        if self._runs:
            self._kick()
        if self._alarm_at <= now:  # what it was for is done
            self._measure(now)
            self._move_alarm(math.inf if due is None else due)
        elif due is not None and due < self._alarm_at:
            self._move_alarm(due)

    def nudge(self) -> None:
        """Have the loop wake earlier if the core has something to do before it would."""
        self.refuse_another_loop()
        due = self.core.deadline
        if due is None or due >= self._alarm_at:
            return
        if due <= self.now():
            self._kick()
        else:
            self._move_alarm(due)

    def catch_up(self) -> None:
        """Step, if there is anything to do now; or have the loop wake in time."""
        due = self.core.deadline
        if due is not None and due <= self.now():
            self.step()
        else:
            self.nudge()

    def _move_alarm(self, when: float) -> None:
        self._alarm_at = when
        self._set_alarm(when)

    def _ring(self) -> None:
        """The alarm rings, or somebody kicked: take a step."""
        self._measure(self.now())
        self._alarm_at = math.inf
        self.step()

    def _measure(self, now: float) -> None:
        """How late the alarm is seen to."""
        if 0 <= (late := now - self._alarm_at) < math.inf:
            self._lag.record(late, now)

    # -- what happens ------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Tell the core what happened, and do what it wants done."""
        try:
            self.core.handle(event, self.now())
        except (Exception, KeyboardInterrupt) as bug:  # as in `step`
            self._broken(bug)
            raise
        self.step()

    def _lost(self, link: L, why: str) -> None:
        """The connection, or the attempt to make it, has ended by itself."""
        if self._links.get(link.key) is link:
            del self._links[link.key]
            self.tell(Lost(link.key, link.broke or why))

    def _broken(self, bug: BaseException) -> None:
        """The core cannot go on: whatever waits fails."""
        what = f"{type(bug).__name__}: {bug}" if str(bug) else type(bug).__name__
        why = f"the client has stopped on a bug in ottla, please report it: {what}"
        if not isinstance(bug, Exception):
            why = f"the client has stopped in the midst of something, by {what}"
        error = OttlaError(why)
        error.__cause__ = bug
        with contextlib.suppress(Exception), self.core.gate:  # what is broken may be broken here too: `bug` says more
            self.core.close(self.now(), error)

    def close(self) -> None:
        """End the core: whatever waits fails, and what that hands out is run."""
        self.do(lambda: self.core.close(self.core.now))
        for _ in range(_LAST_STEPS):
            self.step()
            if not self._runs and self.core.deadline is None:
                break

    # -- to see what happens -----------------------------------------------------------------------------------------

    def watch(self, limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
        """Have a thread call ``report(seconds, stack)`` when the loop has not turned for ``limit`` seconds.

        The stack tells where the code stands that keeps the loop from turning. Returns what ends the watch, which ends
        with the client at the latest.
        """
        watchdog = Watchdog(self._call_soon, limit, report)
        forget = self.core.on_close(lambda error: watchdog.stop())

        def stop() -> None:
            forget()
            watchdog.stop()

        return stop

    def where(self, task: Any) -> str:
        """Where a task stands: the innermost lines of its own code, and how it got there."""
        places: list[str] = []
        coroutine: Any = self.coroutine_of(task) if task is not None else None
        while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
            if f"/{self._loop}/" not in frame.f_code.co_filename:
                places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
            coroutine = coroutine.cr_await
        return " > ".join(places[-3:]) or "unknown"

    def has_ended(self, task: Any) -> bool:
        return getattr(self.coroutine_of(task), "cr_frame", None) is None


class DriverType(Protocol):
    """A class of drivers."""

    def __call__(self, core: ClientCore, find: Callable[[], Sequence[str]] | None) -> Driver[Any]: ...
    def require_loop(self) -> None: ...
    async def in_thread(self, function: Callable[[], T]) -> T: ...


def _started(core: ClientCore, start: Callable[[float], Outcome[T]]) -> Steps[T]:
    return (yield from settled(start(core.now)))


def reason(error: BaseException) -> str:
    """An operating system's error in a few words; loops wrap those of each address they tried."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    if error.__cause__ is not None:
        return reason(error.__cause__)
    return str(error).lower() or type(error).__name__
