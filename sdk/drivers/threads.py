"""The driver for blocking code: an I/O thread takes the steps of the core, and callers sleep until theirs are done.

Theory of operation: only the I/O thread touches the core. It resumes the users' calls (`callers`). So heartbeats,
linger and retries go on while callers compute, and any number of threads may call. Work done for each record or batch
is too small for two switches of threads: `AppendFastPath` appends in the thread that sends, in C, where no other thread
can interfere; and a thread that reads takes batches that are offered to it while the core is idle (`Ahead`).

Why callers do not take steps themselves, under a lock: Python runs signal handlers in the main thread, between any two
of its instructions. Here Ctrl-C hits a sleeping caller, or the user's code, but never the middle of a step; the
exception is posted, and the steps of the call see it as a cancellation. No lock can stay held. If a caller is
interrupted a second time, while its call cleans up, it no longer waits. An interrupt can also come before the one
before it is posted. So a call that its thread leaves is first of all stored in `Callers.left`, by an assignment, before
which Python does not check for signals; and the next call of that thread ends the calls that are still there.

After a fork the child has no I/O thread, and its sockets are the parent's: the child closes them without sending
anything, and every call is refused.

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
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import Closed, LocalProtocolError
from ottla.sdk.arguments import refused_coroutine
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import Calling, ClientCore
from ottla.sdk.drivers.callers import Callers, UserCall
from ottla.sdk.drivers.driver import innermost, started
from ottla.sdk.drivers.io_thread import IoThread
from ottla.sdk.events import Run
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Await, Outside, Steps, Turn

if TYPE_CHECKING:
    from ottla.sdk.produce.core import ProducerCore, Take
    from ottla.sdk.produce.records import AwaitedReceipt, PendingRecord, Receipt

T = TypeVar("T")

log = logger("ottla.sdk")

_STOP = 5.0
"""Seconds for the I/O thread to end."""
_EXIT = 1.0
"""Seconds for it to end if the program ends without leaving the client."""
_SIGNALS = 0.5
"""Seconds after which a sleeping caller checks for signals: Python misses a signal sent as a thread falls asleep."""
_LAST_ROUNDS = 100
"""Rounds of callbacks that closing the client may call."""
_IN_THE_IO_THREAD = "this call would have to wait in the client's own thread: move it to a thread of yours"


class ThreadDriver(IoThread):
    """Drives ``core`` in a thread."""

    def __init__(self, core: ClientCore) -> None:
        super().__init__(core)
        self._callers = Callers(core, self.now)
        core.run_in_thread(self._come_back, self._calling)
        self._refusal = ""
        """Why every call is refused."""

    # -- beginning and end -------------------------------------------------------------------------------------------

    @staticmethod
    def require_loop() -> None:
        """Nothing to check: this driver needs no loop."""

    @staticmethod
    def in_thread(function: Callable[[], T]) -> T:
        """The result of the function: the caller is a thread already."""
        return function()

    def start(self) -> None:
        _DRIVERS.add(self)
        super().start()

    def close(self) -> None:
        """Close the core: fails everything that waits, and runs the callbacks of that."""
        self._perform(UserCall(None, super().close, _LAST_ROUNDS))

    def stop(self, error: BaseException | None) -> None:
        """End the I/O thread; raise the bug that stopped it, if there was one."""
        self._stop()
        self._thread.join(_STOP)
        if self._thread.is_alive():
            log.error("the client's thread has not ended", extra={"seconds": _STOP})
        if self._bug is not None and error is not self._bug:
            raise self._bug from error

    def abandon(self) -> bool:
        """Like `Pump.abandon`: ends the I/O thread, and its connections."""
        if self._refusal:
            return False  # it belongs to the parent process
        self._stop()
        if not self._runs_here():
            self._thread.join(_EXIT)
        return True

    def is_gone(self, error: BaseException | None) -> bool:
        """In a forked child, blocks of the parent's clients that end by an error do nothing."""
        return bool(self._refusal) and error is not None

    def forked(self) -> None:
        """In the child: send no more, end all waits, and refuse every call."""
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
        """Run the steps of a call, waiting between them.

        Args:
            undo: called with a result that does not reach the caller because an exception interrupted it just then.
        """
        result: T = self._perform(UserCall(steps, undo=undo))
        return result

    def send_many(self, core: "ProducerCore", take: "Take", make: "Callable[[Any, Any], PendingRecord]") -> None:
        """Like `ProducerCore.send_many`, which only has to handle refused records: no other thread needs a turn."""
        self.refuse_another_loop()
        while (refused := take()) is not None:
            if refused:
                self.run(core.send_soon(make(*refused)))

    def call(self, start: Callable[[float], Outcome[T]]) -> T:
        """Start a call on the core and wait for its outcome, which is cancelled with its caller."""
        return self.run(started(self.core, start))

    def do(self, call: Callable[[], T]) -> T:
        """Make a user's call that does not wait."""
        result: T = self._perform(UserCall(None, partial(super().do, call)))
        return result

    def may_append(self) -> bool:
        """Whether this thread may append a record itself: a forked child never may."""
        return not self._refusal

    def refuse_in_own_thread(self) -> None:
        """Raise `LocalProtocolError` in the I/O thread, which calls log handlers and assignors, and must not wait."""
        if self._runs_here() and not self._stopped:
            raise LocalProtocolError(_IN_THE_IO_THREAD)

    def refuse_within_callback(self) -> None:
        """Refuse a call that will wait for callbacks before it has any effect: a refused record must not be sent.

        Raises:
            LocalProtocolError: the call would wait for itself; it was made within a callback, or in the I/O thread.
        """
        self.refuse_in_own_thread()
        if self._callers.calls_back(threading.get_ident()):  # perhaps: an interrupt may not be posted yet
            self._perform(UserCall(None, partial(self._callers.refuse_within_callback, threading.get_ident())))

    def receive(self, core: "ProducerCore", awaited: "AwaitedReceipt", aim: TopicPartition) -> "Receipt":
        """Wait for the receipt. The steps abandon it if Ctrl-C interrupts, however often that comes."""
        return self.run(core.received(awaited, aim))

    def unwind(self, call: Callable[[], object]) -> None:
        """Make a call of the core for a call that ends by an exception."""
        self.do(call)

    def read(self, call: Callable[[], T]) -> T:
        """Read data that belong to the core."""
        return self.do(call)

    def _perform(self, call: UserCall) -> Any:
        self.refuse_another_loop()
        if self._stopped or self._runs_here():
            return self._perform_here(call)
        try:
            self._post(partial(self._callers.begin, call))
            self._attend(call)
        except BaseException as error:  # Ctrl-C, or another exception of signal handlers and callbacks
            self._callers.left[call] = error  # first of all; see the module
            self.core.gate.entered[1] = 1
            if not self._refusal:
                self._cut_short(call, error)
            raise
        if call.error is None:
            return call.value
        raise call.take_error()

    def _cut_short(self, call: UserCall, error: BaseException) -> None:
        try:
            call.cut_short()  # batches that it has taken are put back before this thread asks for more
            self._post(partial(self._callers.interrupt, call, error))
            self._callers.left.pop(call, None)  # its thread is waiting again, and may make other calls within a job
            self._attend(call)
        except BaseException as again:  # a second interrupt
            self._callers.left[call] = again
            self.core.gate.entered[1] = 1
            self._post(partial(self._callers.abandon, call, again))
            raise
        if call.error is not None and call.error is not error:  # the steps replaced the error
            raise call.error

    def _attend(self, call: UserCall) -> None:
        """Wait until the call has ended, and meanwhile do the jobs that need this thread."""
        done: object = None
        while True:
            while not call.ready.acquire(timeout=_SIGNALS):
                self.refuse_another_loop()  # a signal handler may have forked
            if call.over and not call.cut:
                return
            job = call.job
            if job is None or job is done:  # taken back, or done already when it was handed out
                continue
            done = job
            if isinstance(job, deque):
                while job:
                    call.call_back(self.now())
                    _call_back(job)
                self.refuse_another_loop()
                self._post(partial(self._callers.served, call))
                continue
            sent: object = None
            raised: BaseException | None = None
            try:
                sent = job.call() if isinstance(job, Outside) else _notified(job)
            except BaseException as error:  # the call decides
                raised = error
            self.refuse_another_loop()
            self._post(partial(self._callers.answer, call, sent, raised))
            del raised

    def _perform_here(self, call: UserCall) -> Any:
        """Make a call without waiting: in the I/O thread, which calls log handlers and assignors, or after its end."""
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
                except Exception as error:  # the call decides
                    raised = error
            elif not (isinstance(wait, Turn) or (isinstance(wait, Outcome) and wait.done)):
                raised = Closed("the client is closed") if self._stopped else LocalProtocolError(_IN_THE_IO_THREAD)

    # -- in the I/O thread ---------------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        resumed = self._callers.resume_ready()
        self._callers.hand_out()
        if not resumed:
            self.core.gate.rest()
        return resumed

    def _ended(self) -> None:
        self._callers.close()

    def _come_back(self, call: Callable[[], object]) -> None:
        """Let a `Run` call into the core: at once in this thread, where the next `Run` may already depend on it."""
        if self._runs_here():
            call()
        else:
            self._post(call)

    def _take(self, run: Run) -> None:
        if not self._callers.add(run):
            super()._take(run)

    # -- to see what happens -------------------------------------------------------------------------------------------

    def watch(self, limit: float, report: Callable[[float, str], None]) -> Callable[[], None]:
        """Nothing to watch: the I/O thread runs while callers compute."""
        return lambda: None

    def current_task(self) -> threading.Thread:
        return threading.current_thread()

    def name_of(self, task: threading.Thread) -> str:
        return task.name

    def where(self, task: threading.Thread | None) -> str:
        """Where a thread is: the innermost lines of its own code, from the outside in."""
        frame = sys._current_frames().get(task.ident) if task is not None and task.ident is not None else None
        stack = traceback.extract_stack(frame) if frame is not None else ()
        return innermost(
            [(each.filename, each.lineno or 0, each.name) for each in stack if "/threading.py" not in each.filename]
        )

    def has_ended(self, task: threading.Thread) -> bool:
        return not task.is_alive()

    def _calling(self) -> Calling | None:
        if (call := self._callers.server) is None:
            return None
        thread = next((each for each in threading.enumerate() if each.ident == call.thread), None)
        return Calling(thread.name if thread is not None else str(call.thread), call.since, self.where(thread))


def _call_back(job: deque[Run]) -> None:
    """Call the first; if Ctrl-C interrupts it, and it can be resumed, it stays for the next thread with callbacks."""
    run = job[0]
    if not run.resumable:
        job.popleft()
    try:
        run.call()
    except Exception:  # KeyboardInterrupt and SystemExit are raised in the caller
        log.exception("user callback raised")
    if run.resumable:
        job.popleft()


def _notified(wanted: Any) -> bool:
    """Call the user's function; it always finishes, however long that takes: a thread cannot be cancelled."""
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
