"""The code that the drivers of all loops share: the user's calls, on top of the pump.

Theory of operation: a call is a generator (`ottla.sdk.steps`); `run` resumes it whenever its outcome is settled. After
each step of a call the core may have actions to carry out (`ottla.sdk.drivers.pump`).

A driver derives from `Driver` and defines how its loop waits, dials and wakes up.
"""

import contextlib
import os.path
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.pump import L, Pump
from ottla.sdk.drivers.watchdog import Watchdog
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import CHECK, Await, Outside, Shielded, Steps, Wait, settled

if TYPE_CHECKING:
    from ottla.sdk.produce.core import ProducerCore, Take
    from ottla.sdk.produce.records import AwaitedReceipt, PendingRecord, Receipt

T = TypeVar("T")

Place = tuple[str, int, str]
"""A place in the code: the file, the line, and the name of the function."""
_OTTLA = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
"""The folder of ottla's own code."""

log = logger("ottla.sdk")


class UserResult(NamedTuple):
    """The result of a function of the user's."""

    returned: bool
    """It finished, and was not cancelled."""
    raised: BaseException | None = None
    late: BaseException | None = None
    """A cancellation of the caller that had to wait."""


class Driver(Pump[L]):
    """Carries out the user's calls on ``core``."""

    # -- calls of a loop -----------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def require_loop() -> None:
        """Check that the loop runs here; the error says what to do.

        Raises:
            LocalProtocolError: it does not run.
        """

    @abstractmethod
    async def start(self) -> None:
        """Start keeping time."""

    @abstractmethod
    async def stop(self, error: BaseException | None) -> None:
        """End everything that was started; raise the error that ended it earlier, if there was one.

        Args:
            error: the error that ended the user's block.
        """

    @abstractmethod
    def current_task(self) -> Any:
        """The running task, for comparisons, and for `name_of` and `coroutine_of`."""

    @abstractmethod
    def name_of(self, task: Any) -> str: ...

    @abstractmethod
    def coroutine_of(self, task: Any) -> Any: ...

    @staticmethod
    @abstractmethod
    async def in_thread(function: Callable[[], T]) -> T:
        """The result of a blocking function; if this is cancelled, its thread goes on and the result is ignored."""

    @abstractmethod
    def _call_soon(self, call: Callable[[], object]) -> object:
        """Have the loop call ``call()``; from any thread. Raises RuntimeError once the loop has ended."""

    @abstractmethod
    async def settled(self, outcome: Outcome[Any]) -> None:
        """Return once ``outcome`` is settled."""

    @abstractmethod
    async def _shielded(self, outcome: Outcome[Any]) -> BaseException | None:
        """Like `settled`, despite cancellation; returns the cancellation, if the loop will not raise it again."""

    @abstractmethod
    async def _awaited(self, wanted: Await) -> UserResult:
        """Await the user's function. Raises its error, and a cancellation, unless that has to wait."""

    @abstractmethod
    async def _turn(self) -> None:
        """Let the other tasks run."""

    @abstractmethod
    def _is_cancelled(self) -> bool:
        """Whether the next wait of the running task would raise a cancellation."""

    def may_append(self) -> bool:
        """Whether the running task may have its record appended: in the client's own loop, and not cancelled."""
        return self._runs_here() and not self._is_cancelled()

    def refuse_in_own_thread(self) -> None:
        """Nothing to refuse: no thread belongs to the client."""

    def refuse_within_callback(self) -> None:
        """Nothing to refuse: in a loop, a callback cannot await a call."""

    async def receive(self, core: "ProducerCore", awaited: "AwaitedReceipt", aim: TopicPartition) -> "Receipt":
        """As `ProducerCore.received`, without steps: most records need none. The caller abandons it if cancelled."""
        await self.settled(awaited)
        return awaited.result()

    def unwind(self, call: Callable[[], object]) -> None:
        """Make a call of the core for a coroutine that ends by an exception; none if that is freed as in `_drop`."""
        if self._runs_here() and not self.core.gate.entered[0]:
            self.do(call)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def run(self, steps: Steps[T], undo: Callable[[T], object] | None = None) -> T:
        """Run the steps of a call, waiting between them.

        Args:
            undo: called with a result that does not reach the caller; here every result does.
        """
        sent: object = None
        raised: BaseException | None = None
        late: BaseException | None = None
        """A cancellation that had to wait."""
        while True:
            try:
                wait = self._resume(steps, sent, raised, late is not None)
            except StopIteration as end:
                if late is not None:
                    raise late from None
                result: T = end.value
                return result
            except Exception as error:  # only one can be raised, and the cancellation must not be lost
                if late is not None:
                    raise late from error
                raise
            sent = raised = None
            try:
                if isinstance(wait, Outside):
                    sent = wait.call()
                elif isinstance(wait, Shielded):
                    late = await self._shielded(wait.outcome) or late
                elif isinstance(wait, Await) and (wait.shield or late is None):
                    sent, raised, cancelled = await self._awaited(wait)
                    late = cancelled or late
                elif late is not None:
                    raised, late = late, None
                elif isinstance(wait, Outcome):
                    await self.settled(wait)
                else:
                    await self._turn()
            except GeneratorExit:  # the coroutine is being freed, so it cannot wait any more
                self._drop(steps)
                raise
            except BaseException as error:  # a cancellation, or the user's error: the call decides
                raised = error

    def _drop(self, steps: Steps[Any]) -> None:
        """End a call whose coroutine is freed: it may clean up, as in any other step, but cannot wait.

        A coroutine may be freed anywhere, also within a step and in another thread, and the loop may have ended. In
        those cases its steps are freed as well, and remaining actions wait for the next step, if there is one.
        """
        if not self._runs_here() or self.core.gate.entered[0]:
            return
        self.core.drop(steps, self.now())
        with contextlib.suppress(RuntimeError):  # the loop is ending, and accepts no more calls
            self.nudge()

    async def send_many(self, core: "ProducerCore", take: "Take", make: "Callable[[Any, Any], PendingRecord]") -> None:
        """Run the steps of `ProducerCore.send_many`."""
        await self.run(core.send_many(take, make))

    async def call(self, start: Callable[[float], Outcome[T]]) -> T:
        """Start a call on the core and wait for its outcome, which is cancelled with its caller."""
        return await self.run(started(self.core, start))

    def _resume(self, steps: Steps[Any], sent: object, raised: BaseException | None, late: bool) -> Wait:
        self.refuse_another_loop()
        try:
            wait = self.core.resume(steps, self.now(), sent=sent, raised=raised)
            while wait is CHECK and not (late or self._is_cancelled()):
                wait = self.core.resume(steps, self.core.now)
            return wait
        except KeyboardInterrupt as interrupt:
            if interrupt is not raised:  # it came during the step itself
                self._broken(interrupt)
            raise
        finally:
            self.catch_up()

    # -- to see what happens -------------------------------------------------------------------------------------------

    def watch(self, limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
        """Have a thread call ``report(seconds, stack)`` when the loop has been blocked for ``limit`` seconds.

        The stack shows the code that blocks the loop. Returns a function that ends the watch; it ends with the client
        at the latest. Without another thread nothing is reported.
        """
        try:
            watchdog = Watchdog(self._call_soon, limit, report)
        except RuntimeError as error:  # the consumer has joined its group already, and works without the report
            log.warning("no thread watches for code that blocks the event loop", extra={"why": str(error)})
            return lambda: None
        forget = self.core.on_close(lambda error: watchdog.stop())

        def stop() -> None:
            forget()
            watchdog.stop()

        return stop

    def where(self, task: Any) -> str:
        """Where a task is: the innermost lines of its own code, from the outside in."""
        places: list[Place] = []
        coroutine: Any = self.coroutine_of(task) if task is not None else None
        while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
            if f"/{self._loop}/" not in frame.f_code.co_filename:
                places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            coroutine = coroutine.cr_await
        return innermost(places)

    def has_ended(self, task: Any) -> bool:
        return getattr(self.coroutine_of(task), "cr_frame", None) is None


def innermost(places: Sequence[Place]) -> str:
    """The innermost of these places, from the outside in; without those in ottla, unless there are no others."""
    of_user = [each for each in places if not each[0].startswith(_OTTLA)] or places
    return " > ".join(f"{file}:{line} in {name}" for file, line, name in of_user[-3:]) or "unknown"


class DriverType(Protocol):
    """A driver class."""

    def __call__(self, core: ClientCore) -> Driver[Any]: ...
    def require_loop(self) -> None: ...
    async def in_thread(self, function: Callable[[], T]) -> T: ...


def started(core: ClientCore, start: Callable[[float], Outcome[T]]) -> Steps[T]:
    """Start a call and wait for its outcome."""
    return (yield from settled(start(core.now)))
