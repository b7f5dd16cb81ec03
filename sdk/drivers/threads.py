"""The driver for code that blocks: an I/O thread takes the steps of the core, and callers sleep until theirs are done.

Theory of operation: the core belongs to the I/O thread, wholly. It resumes the calls of users (`callers`). So
heartbeats, linger and retries go on while callers compute, and any number of threads may call. What is done for each
record, or batch, is not worth two switches of threads: `AppendFastPath` appends in the thread that sends, in C, where
nothing comes in between; and a thread that reads takes batches that it is offered while the core rests (`Ahead`).

Why callers do not take steps themselves, under a lock: Python runs signal handlers in the main thread, between any two
of its instructions. Here Ctrl-C meets a caller that sleeps, or code of the user's, and never the midst of a step; what
was raised is posted, and the steps of the call see it as they would a cancellation. There is no lock to be left held.
A caller that is interrupted once more, while its call tidies up, waits no longer. An interrupt can also come before the
one before it is posted. So a call that its thread leaves is put into `Callers.left` first of all, by an assignment,
before which Python does not look for signals; and the next call of that thread ends what is still there.

After a fork there is no I/O thread in the child, and its sockets are the parent's: they are closed there without a
word, and every call is refused.

The thread is a daemon: a program that ends without leaving its client waits for it a moment, and no longer.
"""

import os
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ottla.errors import Closed, LocalProtocolError
from ottla.sdk.arguments import refused_coroutine
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.callers import Call, Callers
from ottla.sdk.drivers.driver import started
from ottla.sdk.drivers.io_thread import IoThread
from ottla.sdk.events import Run
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.core import ProducerCore, Take
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.steps import Await, Outside, Steps, Turn

T = TypeVar("T")

log = logger("ottla.sdk")

_STOP = 5.0
"""Seconds for the I/O thread to end."""
_EXIT = 1.0
"""Seconds for that where the program ends, and the client was not left."""
_SIGNALS = 0.5
"""Seconds after which a caller that sleeps looks for signals: Python misses one that comes as a thread falls asleep."""
_LAST_ROUNDS = 100
"""Of callbacks that are called when the client is left."""


class ThreadDriver(IoThread):
    """Drives ``core`` in a thread."""

    def __init__(self, core: ClientCore) -> None:
        super().__init__(core)
        self._callers = Callers(core, self.now)
        core.threaded, core.come_back = True, self._post
        self._refusal = ""
        """Why nothing can be called any more."""

    # -- beginning and end -------------------------------------------------------------------------------------------

    @staticmethod
    def require_loop() -> None:
        """None is needed."""

    @staticmethod
    def in_thread(function: Callable[[], T]) -> T:
        """Its result: the caller is a thread."""
        return function()

    def start(self) -> None:
        _DRIVERS.add(self)
        super().start()

    def close(self) -> None:
        """End the core: whatever waits fails, and what that hands out is run."""
        self._perform(Call(None, super().close, _LAST_ROUNDS))

    def stop(self, error: BaseException | None) -> None:
        """End the I/O thread; raise what has broken it, if something did."""
        self._stop()
        self._thread.join(_STOP)
        if self._thread.is_alive():
            log.error("the client's thread has not ended", extra={"seconds": _STOP})
        if self._bug is not None and error is not self._bug:
            raise self._bug from error

    def abandon(self) -> bool:
        """As `Stepper.abandon`: the I/O thread ends, and its connections."""
        if self._refusal:
            return False  # it is the parent's
        self._stop()
        if not self._runs_here():
            self._thread.join(_EXIT)
        return True

    def is_gone(self, error: BaseException | None) -> bool:
        """In the child of a fork the blocks of the parent's clients are left by errors without a word."""
        return bool(self._refusal) and error is not None

    def forked(self) -> None:
        """In the child: nothing is sent or waited for, and no call does anything."""
        self._refusal = (
            f"this client was opened in process {os.getppid()}, and does not work in {os.getpid()}, which was forked "
            "from it: open a client in each process, after the fork (gunicorn: in post_fork; uWSGI: @postfork; "
            "multiprocessing: in the function that the process runs)"
        )
        self.core.gate.entered[1] = 1
        self._forget_sockets()

    def refuse_another_loop(self) -> None:
        """Raise `LocalProtocolError` in a forked child; all threads of the process may call."""
        if self._refusal:
            raise LocalProtocolError(self._refusal)

    # -- calls, in the threads of callers ------------------------------------------------------------------------------

    def run(self, steps: Steps[T], undo: Callable[[T], object] | None = None) -> T:
        """Take the steps of a call, waiting for what each waits for.

        Args:
            undo: is called with a result that does not reach the caller, who was interrupted just then.
        """
        result: T = self._perform(Call(steps, undo=undo))
        return result

    def send_many(self, core: ProducerCore, take: Take, make: Callable[[Any, Any], PendingRecord]) -> None:
        """As `ProducerCore.send_many`; here, as no other thread needs a turn, but for records that are refused."""
        self.refuse_another_loop()
        while (refused := take()) is not None:
            if refused:
                self.run(core.send_soon(make(*refused)))

    def call(self, start: Callable[[float], Outcome[T]]) -> T:
        """Start something on the core and wait for its outcome, which is cancelled with its caller."""
        return self.run(started(self.core, start))

    def do(self, call: Callable[[], T]) -> T:
        """A call of a user that waits for nothing."""
        result: T = self._perform(Call(None, partial(super().do, call)))
        return result

    def read(self, call: Callable[[], T]) -> T:
        """Look at what belongs to the core."""
        return self.do(call)

    def _perform(self, call: Call) -> Any:
        self.refuse_another_loop()
        if self._stopped or self._runs_here():
            return self._perform_here(call)
        try:
            self._post(partial(self._callers.begin, call))
            self._attend(call)
        except BaseException as error:  # Ctrl-C, or whatever handlers of signals and callbacks raise
            self._callers.left[call] = error  # first of all
            self.core.gate.entered[1] = 1
            if not self._refusal:
                self._cut_short(call, error)
            raise
        if call.error is None:
            return call.value
        failed, call.error = call.error, None
        try:
            raise failed
        finally:
            del failed  # with the circle that its traceback makes

    def _cut_short(self, call: Call, error: BaseException) -> None:
        try:
            call.cut = True  # what it has taken is put back before this thread asks for more
            self._post(partial(self._callers.interrupt, call, error))
            self._callers.left.pop(call, None)  # its thread is back, and may call others within a job
            self._attend(call)
        except BaseException as again:  # once more
            self._callers.left[call] = again
            self.core.gate.entered[1] = 1
            self._post(partial(self._callers.abandon, call, again))
            raise
        if call.error is not None and call.error is not error:  # what it has made of it
            raise call.error

    def _attend(self, call: Call) -> None:
        """Wait until the call is over, and do meanwhile what can only be done in this thread."""
        done: object = None
        while True:
            while not call.ready.acquire(timeout=_SIGNALS):
                self.refuse_another_loop()  # a handler of signals may have forked
            if call.over and not call.cut:
                return
            job = call.job
            if job is None or job is done:  # it was taken back, or was done just as it was handed out
                continue
            done = job
            if isinstance(job, deque):
                while job:
                    _call_back(job)
                self.refuse_another_loop()
                self._post(partial(self._callers.served, call))
                continue
            sent: object = None
            raised: BaseException | None = None
            try:
                sent = job.call() if isinstance(job, Outside) else _notified(job)
            except BaseException as error:  # what becomes of it the call decides
                raised = error
            self.refuse_another_loop()
            self._post(partial(self._callers.answer, call, sent, raised))
            del raised

    def _perform_here(self, call: Call) -> Any:
        """In the I/O thread, where handlers of the log and assignors are called, or behind its end: without waiting."""
        if call.function is not None:
            return call.function()
        assert call.steps is not None
        sent: object = None
        raised: BaseException | None = None
        while True:
            try:
                wait = self.core.resume(call.steps, self.now(), sent=sent, raised=raised)
            except StopIteration as end:
                return end.value
            sent = raised = None
            if isinstance(wait, Outside):
                try:
                    sent = wait.call()
                except Exception as error:  # what becomes of it the call decides
                    raised = error
            elif not (isinstance(wait, Turn) or (isinstance(wait, Outcome) and wait.done)):
                what = "this call would have to wait, in the client's own thread: hand it to a thread of yours"
                raised = Closed("the client is closed") if self._stopped else LocalProtocolError(what)

    # -- in the I/O thread ---------------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        resumed = self._callers.resume_ready()
        self._callers.hand_out()
        if not resumed:
            self.core.gate.rest()
        return resumed

    def _ended(self) -> None:
        self._callers.close()

    def _take(self, run: Run) -> None:
        if not self._callers.add(run):
            super()._take(run)

    # -- to see what happens -------------------------------------------------------------------------------------------

    def watch(self, limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
        """Nothing: whatever callers compute, the I/O thread goes on."""
        return lambda: None

    def current_task(self) -> threading.Thread:
        return threading.current_thread()

    def name_of(self, task: threading.Thread) -> str:
        return task.name

    def where(self, task: threading.Thread | None) -> str:
        """Where a thread stands: the innermost lines of its own code, and how it got there."""
        frame = sys._current_frames().get(task.ident) if task is not None and task.ident is not None else None
        places = [
            f"{each.filename}:{each.lineno} in {each.name}"
            for each in (traceback.extract_stack(frame) if frame is not None else ())
            if "/threading.py" not in each.filename
        ]
        return " > ".join(places[-3:]) or "unknown"

    def has_ended(self, task: threading.Thread) -> bool:
        return not task.is_alive()


def _call_back(job: deque[Run]) -> None:
    """Call the first; one that is cut short by Ctrl-C, and can go on, is left to the next that calls callbacks."""
    run = job[0]
    if not run.resumable:
        job.popleft()
    try:
        run.call()
    except Exception:  # what ends the program is raised in the caller
        log.exception("code that was called by the client raised")
    if run.resumable:
        job.popleft()


def _notified(wanted: Any) -> bool:
    """Call what the user gave; it has come to its end, however long that took: a thread cannot be cancelled."""
    assert isinstance(wanted, Await)
    name = getattr(wanted.function, "__qualname__", repr(wanted.function))
    if (error := refused_coroutine(name, wanted.function(*wanted.args))) is not None:
        raise error
    return True


_DRIVERS: "weakref.WeakSet[ThreadDriver]" = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_DRIVERS):
        each.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
