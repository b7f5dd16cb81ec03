"""The calls of blocking users, as the I/O thread sees them: it resumes their steps while their own threads sleep.

    caller  ── begin ──►  I/O thread: the steps, one after the other  ── over ──►  caller
            ◄─ job ─────  the user's own code is to be called             (callbacks, a listener's method, an iterator)
            ── report ─►

Rules:
- Everything here but `left` and `calls_back` belongs to the I/O thread. A caller's thread looks at its `UserCall` only
  when the I/O thread releases the call's lock.
- A call has one job at a time, and continues when its thread reports.
- Callbacks are called in order and one after the other, by one thread at a time: by any whose call waits, or else by
  the next that calls. A call that has ended does so for a few rounds at most, so that callbacks that send endlessly
  hold up no caller.
- A thread that calls the client within a callback calls no callbacks, and cannot wait for an outcome that is settled
  after callbacks: it would wait for itself. Calls that will wait so ask before they have any effect
  (`refuse_within_callback`). Source: KafkaProducer.java, flush within a callback.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.errors import Closed, LocalProtocolError
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Run, RunMode
from ottla.sdk.logs import logger
from ottla.sdk.outcome import AfterCallbacks, Outcome
from ottla.sdk.steps import Await, Outside, Shielded, Steps, Turn

log = logger("ottla.sdk")

_ROUNDS = 2
"""How often a call that has ended may still call new callbacks."""

Job = deque[Run] | Await | Outside
"""A task for a call's thread: callbacks, or a function of the user's that the call waits for."""


class UserCall:
    """One call of a user.

    Args:
        steps: its steps; or ``function``, which is called once and waits for nothing.
        rounds: of callbacks that it may call after its end.
        undo: called with the result of ``steps`` if that does not reach the caller.

    Attributes:
        ready: a lock that the I/O thread releases when there is a `job`, or the call is `over`.
        value, error: its result.
    """

    __slots__ = (
        "_interrupt",
        "_waits",
        "abandoned",
        "cut",
        "done",
        "error",
        "function",
        "job",
        "nested",
        "over",
        "ready",
        "rounds",
        "since",
        "steps",
        "thread",
        "undo",
        "value",
        "wanted",
    )

    def __init__(
        self,
        steps: Steps[Any] | None,
        function: Callable[[], Any] | None = None,
        rounds: int = _ROUNDS,
        undo: Callable[[Any], object] | None = None,
    ) -> None:
        self.steps, self.function, self.rounds, self.undo = steps, function, rounds, undo
        self.thread = threading.get_ident()
        self.ready = threading.Lock()
        self.ready.acquire()
        self.nested = False
        """Whether it was made within a callback."""
        self.since = 0.0
        """When its thread began to call the callbacks of a batch."""
        self.job: Job | None = None
        self.wanted: Await | Outside | None = None
        """The next job."""
        self._waits: tuple[Outcome[Any], Callable[[], object], bool] | None = None
        """The awaited outcome, its callback, and whether an interrupt has to wait for the outcome."""
        self._interrupt: BaseException | None = None
        """An exception raised in its thread that still has to be raised in its steps."""
        self.cut = False
        """An exception was raised in its thread, and the I/O thread does not know of it yet."""
        self.abandoned = False
        """Its thread no longer waits."""
        self.done = self.over = False
        self.value: Any = None
        self.error: BaseException | None = None

    # -- in its thread -----------------------------------------------------------------------------------------------

    def cut_short(self) -> None:
        """Note that an exception was raised in its thread, before it is posted to the I/O thread."""
        self.cut = True

    def call_back(self, now: float) -> None:
        """Note that its thread calls the callbacks of a batch."""
        self.since = now

    def take_error(self) -> BaseException:
        """Take the error, to raise it: its traceback refers to this call."""
        assert self.error is not None
        error, self.error = self.error, None
        return error

    # -- in the I/O thread: waits and interrupts ---------------------------------------------------------------------

    def begin(self, *, nested: bool) -> None:
        """Note that the call has arrived."""
        self.nested = nested

    def wait(self, outcome: Outcome[Any], ready: Callable[[], object], *, shielded: bool) -> None:
        """Let the steps wait for ``outcome``, and call ``ready`` when it is settled."""
        self._waits = (outcome, ready, shielded)
        outcome.when_done(ready)

    def want(self, job: Await | Outside) -> None:
        """Let the steps wait until the thread has done ``job``, which is handed out when the thread is free."""
        self.wanted = job

    def has_waited(self) -> bool:
        """Whether the awaited outcome is settled; then the steps wait no more."""
        if self._waits is None or not self._waits[0].done:
            return False
        self._waits = None
        return True

    def stop_waiting(self) -> bool:
        """End the wait, to raise an interrupt there; ``False`` if the steps do not wait, or are shielded."""
        if self.wanted is not None:
            self.wanted = None
            return True
        if self._waits is None or self._waits[2]:
            return False
        outcome, ready, _ = self._waits
        outcome.forget(ready)
        self._waits = None
        return True

    def abandon(self) -> None:
        """Note that its thread no longer waits."""
        self.abandoned = True

    def interrupted(self) -> Callable[[], object] | None:
        """Note that the I/O thread knows of the exception in its thread; returns how to undo a result, if there is one.

        The exception keeps the result from the caller.
        """
        self.cut = False
        if not self.done or self.error is not None or self.undo is None:
            return None
        undo, self.undo = self.undo, None
        return partial(undo, self.value)

    def interrupt(self, error: BaseException) -> None:
        """Keep an exception of its thread until the steps can take it."""
        self._interrupt = error

    def take_interrupt(self, wait: object) -> BaseException | None:
        """The exception to raise in the steps instead of beginning ``wait``, unless that is shielded from it."""
        if isinstance(wait, Await) and wait.shield and not self.abandoned:
            return None
        error, self._interrupt = self._interrupt, None
        return error

    # -- in the I/O thread: jobs and the end -------------------------------------------------------------------------

    def hand_callbacks(self, callbacks: deque[Run], now: float) -> None:
        """Have its thread call these callbacks."""
        self.rounds -= self.done
        self.job, self.since = callbacks, now
        self._wake()

    def hand_wanted(self) -> None:
        """Have its thread do the job that the steps wait for."""
        self.job, self.wanted = self.wanted, None
        self._wake()

    def take_job(self) -> Job | None:
        """Take the job from its thread, which has done it, or will not."""
        job, self.job = self.job, None
        return job

    def end(self, value: object = None, error: BaseException | None = None) -> None:
        """Note the result; an interrupt that could not be raised in the steps takes its place."""
        if self._interrupt is not None:
            if error is not None and error is not self._interrupt:
                self._interrupt.__cause__ = error
            error = self._interrupt
        self.value, self.error, self.done = value, error, True

    def close(self) -> None:
        """Let its thread return: with the result, or an error if there is none yet."""
        if not self.done:
            self.error, self.done = Closed("the client is closed"), True
        self.finish()

    def finish(self) -> None:
        """Let its thread return with the result."""
        self.over = True
        self._wake()

    def _wake(self) -> None:
        if self.ready.locked():  # already released if a job was taken back before the thread saw it
            self.ready.release()


class Callers:
    """The unfinished calls on ``core``."""

    def __init__(self, core: ClientCore, now: Callable[[], float]) -> None:
        self._core, self._now = core, now
        self._calls: dict[UserCall, None] = {}
        self._ready: deque[UserCall] = deque()
        """Calls whose outcome is settled."""
        self._callbacks: deque[Run] = deque()
        self._server: UserCall | None = None
        """The call whose thread is calling callbacks."""
        self.left: dict[UserCall, BaseException] = {}
        """Calls that their threads left because of an exception, perhaps before they could post it."""

    # -- posted by callers -------------------------------------------------------------------------------------------

    def begin(self, call: UserCall) -> None:
        if self.left:
            for each in [each for each in list(self.left) if each.thread == call.thread and each is not call]:
                self.abandon(each, self.left.pop(each))
        self._calls[call] = None
        call.begin(nested=self.calls_back(call.thread))
        if call.function is None:
            self._go_on(call)
            return
        try:
            call.end(call.function())
        except BaseException as error:  # raised again in the caller's thread
            call.end(error=error)
        self._hand(call)

    def served(self, call: UserCall) -> None:
        """The call's thread has called the callbacks."""
        self._take_back(call)
        self.hand_out()
        self._hand(call)

    def answer(self, call: UserCall, sent: object, raised: BaseException | None) -> None:
        """The call's thread has called the user's function."""
        call.take_job()
        self._go_on(call, sent, raised)

    def interrupt(self, call: UserCall, error: BaseException) -> None:
        """An exception was raised in the call's thread, such as Ctrl-C: cancel the call like a task."""
        if (undo := call.interrupted()) is not None:
            with self._core.gate:
                undo()
        if call.over:
            call.finish()
            return
        if call not in self._calls:  # the exception came before the call was posted
            self._calls[call] = None
            self._end(call, None, error)
            return
        served = self._server is call
        if served:
            self._take_back(call)
        in_job = call.take_job() is not None
        if call.done:
            self._hand(call)
        elif in_job or call.stop_waiting():
            self._go_on(call, None, error)
        else:
            call.interrupt(error)

    def abandon(self, call: UserCall, error: BaseException) -> None:
        """The call's thread no longer waits: let the call end on its own."""
        call.abandon()
        self.interrupt(call, error)

    def close(self) -> None:
        """End all calls: no steps are resumed any more."""
        for call in list(self._calls):
            call.close()
        self._calls.clear()

    # -- steps -------------------------------------------------------------------------------------------------------

    def resume_ready(self) -> bool:
        """Resume the calls whose outcome is settled; returns whether there were any."""
        resumed = False
        while self._ready:
            call = self._ready.popleft()
            if call.has_waited():
                self._go_on(call)
                resumed = True
        return resumed

    def _go_on(self, call: UserCall, sent: object = None, raised: BaseException | None = None) -> None:
        assert call.steps is not None
        while True:
            try:
                wait = self._core.resume(call.steps, self._now(), sent=sent, raised=raised)
            except StopIteration as end:
                self._end(call, end.value)
                return
            except BaseException as error:  # raised again in the caller's thread
                self._end(call, None, error)
                return
            sent = raised = None
            outcome = wait.outcome if isinstance(wait, Shielded) else wait
            if isinstance(outcome, AfterCallbacks) and not outcome.done and call.nested:
                raised = _would_wait_for_itself()
            elif isinstance(wait, Shielded):
                if not wait.outcome.done:
                    self._wait(call, wait.outcome, shielded=True)
                    return
            elif (raised := call.take_interrupt(wait)) is not None:
                continue
            elif isinstance(wait, Await | Outside):
                if call.abandoned:
                    raised = LocalProtocolError("the thread of this call no longer waits for it")
                else:
                    call.want(wait)
                    self._hand(call)
                    return
            elif not isinstance(wait, Turn) and not wait.done:
                self._wait(call, wait, shielded=False)
                return

    def _wait(self, call: UserCall, outcome: Outcome[Any], *, shielded: bool) -> None:
        call.wait(outcome, partial(self._ready.append, call), shielded=shielded)
        if self._callbacks:
            self.hand_out()

    def _end(self, call: UserCall, value: object = None, error: BaseException | None = None) -> None:
        call.end(value, error)
        self._hand(call)

    def _hand(self, call: UserCall) -> None:
        """Give the call's thread its next job, unless it has one."""
        if call.job is not None or call.over:
            return
        if self._can_serve(call):
            self._server = call
            call.hand_callbacks(self._next_callbacks(), self._now())
        elif call.wanted is not None:
            call.hand_wanted()
        elif call.done:
            self._calls.pop(call, None)
            call.finish()

    # -- callbacks ---------------------------------------------------------------------------------------------------

    def add(self, run: Run) -> bool:
        """Keep the user's code for one of the user's threads; ``False`` if the driver is to call it."""
        if run.mode is RunMode.HERE or (run.mode is RunMode.BEHIND and not self._callbacks and self._server is None):
            return False
        self._callbacks.append(run)
        return True

    def hand_out(self) -> None:
        """Have a thread call the new callbacks: one whose call waits, or else the next that calls."""
        self._run_those_behind()
        if self._callbacks and self._server is None:
            for call in list(self._calls):
                if self._can_serve(call):
                    self._hand(call)
                    if self._server is not None:
                        break
        entered = self._core.gate.entered
        entered[1] = 0  # no call between this and the next lines, where Python could switch threads
        if self.left or (self._callbacks and self._server is None):
            entered[1] = 1

    def _can_serve(self, call: UserCall) -> bool:
        if not self._callbacks or self._server is not None or call.nested or call.abandoned or call.job is not None:
            return False
        return call.rounds > 0 if call.done else True

    def _next_callbacks(self) -> deque[Run]:
        taken: deque[Run] = deque()
        while self._callbacks and self._callbacks[0].mode is RunMode.CALLBACK:
            taken.append(self._callbacks.popleft())
        return taken

    @property
    def server(self) -> UserCall | None:
        """The call whose thread is calling callbacks."""
        return self._server

    def calls_back(self, thread: int) -> bool:
        """Whether the thread is calling callbacks; any thread may ask."""
        server = self._server
        return server is not None and server.thread == thread

    def refuse_within_callback(self, thread: int) -> None:
        """Raise if the thread is calling callbacks."""
        if self.calls_back(thread):
            raise _would_wait_for_itself()

    def _take_back(self, call: UserCall) -> None:
        """The thread calls no more callbacks; put back the remaining ones."""
        if self._server is call:
            left, self._server = call.take_job(), None
            if isinstance(left, deque):
                self._callbacks.extendleft(reversed(left))
            self._run_those_behind()

    def _run_those_behind(self) -> None:
        while self._server is None and self._callbacks and self._callbacks[0].mode is RunMode.BEHIND:
            try:
                self._callbacks.popleft().call()
            except Exception:  # from the user's code; it must not end the client
                log.exception("user callback raised")


def _would_wait_for_itself() -> LocalProtocolError:
    return LocalProtocolError(
        "this call waits for callbacks, but was made within one: in a callback use send_soon or send_nowait, and flush "
        "or leave the producer elsewhere"
    )
