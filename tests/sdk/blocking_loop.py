"""Run scenarios written for event loops as blocking code: without ``async`` and ``await``, with threads as tasks.

`blocking` compiles the source of a scenario with the fixture `loop` a second time, and passes it `Threads`. The end of
a scope works like Ctrl-C: a signal handler raises `Cancelled` in the main thread, at whatever line that is. No other
thread can be cancelled, so `BEYOND` names the scenarios that need that, or that need features of a real loop.
"""

import builtins
import contextlib
import functools
import importlib.util
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import ottla.sync
from tests.patience import HUNG
from tools.faces import WITHOUT_ASYNC

SYNTAX = [
    *WITHOUT_ASYNC,
    (r"\b(contextlib\.)?asynccontextmanager\b", r"\1contextmanager"),
    (r"\bAsync(Iterator|ExitStack)\b", r"\1"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\b(aclose)\(", "close("),
    (r"\banext\(", "next("),
    (r"\basync (?=\w+ for)", ""),
    (r"from tests\.sdk\.(contents|reading|suspensions) import", r"from tests.sdk._blocking_\1 import"),
]

FACES = {"ottla", "ottla.sdk.client", "ottla.sdk.consumer", "ottla.sdk.producer", "ottla.sdk.transform"}


class Cancelled(BaseException):
    """The time of a scope has passed, or the test cancelled it."""

    def __init__(self, scope: "Scope") -> None:
        self.scope = scope


class Scope:
    """Cancels its block after some seconds if the block runs in the main thread; in other threads it does nothing."""

    def __init__(self, seconds: float | None = None, *, fails: bool = False) -> None:
        self.cancelled_caught = False
        self._seconds, self._fails = seconds, fails
        self.open = self.closed = self.due = False
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "Scope":
        if self._main:
            signal.signal(signal.SIGUSR1, _raise)
            _SCOPES.append(self)
            if self._seconds is not None:
                _ALARMS.set(time.monotonic() + self._seconds, self)
            self.open = True  # from here on `__exit__` sees every exception of the block
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        self.closed = True
        if self._main:
            _SCOPES.remove(self)
        if not (isinstance(error, Cancelled) and error.scope is self):
            return False
        if self._fails:
            raise TimeoutError from error
        self.cancelled_caught = True
        return True

    def cancel(self) -> None:
        self.due = True
        if self.open and not self.closed:
            self.interrupt()
            _ALARMS.repeat(self)

    def interrupt(self) -> None:
        if not self.closed:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def take(self) -> bool:
        """Whether the scope is to be cancelled now; the answer is yes only once."""
        due, self.due = self.due and self.open and not self.closed, False
        return due


class Alarms:
    """A thread that cancels scopes when their time has passed.

    All scopes share one: a signal could arrive while a scope starts a thread of its own."""

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[tuple[float, Scope, bool]] = queue.SimpleQueue()
        self._started = False

    def set(self, when: float, scope: Scope) -> None:
        self._put(when, scope, False)

    def repeat(self, scope: Scope) -> None:
        """Repeat the signal until the scope takes it: a signal just before the main thread blocks does not wake it."""
        self._put(time.monotonic() + 0.05, scope, True)

    def _put(self, when: float, scope: Scope, cancelled: bool) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._watch, daemon=True, name="alarms").start()
        self._new.put((when, scope, cancelled))

    def _watch(self) -> None:
        waiting: list[tuple[float, Scope, bool]] = []
        while True:
            now = time.monotonic()
            ready = [each for each in waiting if each[0] <= now and each[1].open]
            waiting = [each for each in waiting if each not in ready and not each[1].closed]
            for _, scope, cancelled in ready:
                if not cancelled:
                    scope.cancel()
                elif scope.due:
                    scope.interrupt()
                    self.repeat(scope)
            due = min((max(each[0] - now, 0.001) for each in waiting), default=None)
            with contextlib.suppress(queue.Empty):
                waiting.append(self._new.get(timeout=due))


_ALARMS = Alarms()
_NEVER = Scope()
_NEVER.closed = True
_SCOPES: list[Scope] = []


def _raise(*_: object) -> None:
    for scope in _SCOPES:
        if scope.take():
            raise Cancelled(scope)


@contextlib.contextmanager
def _nothing_lost() -> Iterator[None]:
    """Cancel the scope again if Python discards `Cancelled`, as it does in finalizers and in callbacks of gc.

    Each scenario sets the hook, because pytest replaces it after reading the first conftest.py.
    """
    report = sys.unraisablehook

    def raise_again(lost: "sys.UnraisableHookArgs") -> None:
        if isinstance(lost.exc_value, Cancelled):
            _ALARMS.set(0.0, lost.exc_value.scope)
        else:
            report(lost)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = report


class Tasks:
    """A nursery of threads; their errors are raised as a group."""

    def __init__(self, scope: Scope) -> None:
        self.cancel_scope, self._errors = scope, list[BaseException]()
        self._threads: list[threading.Thread] = []

    def start_soon(self, function: Callable[..., Any], /, *args: Any) -> None:
        def task() -> None:
            try:
                function(*args)
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=task, daemon=True, name=getattr(function, "__name__", None))
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(HUNG)
            assert not thread.is_alive()
        if self._errors:
            raise BaseExceptionGroup("tasks", self._errors)


class Threads:
    """The `Loop` of code without a loop."""

    cancelled: type[BaseException] = Cancelled
    too_slow: type[Exception] = TimeoutError
    sleep = staticmethod(time.sleep)
    current_time = staticmethod(time.monotonic)
    event = staticmethod(threading.Event)
    cancel_scope = move_on_after = staticmethod(Scope)
    fail_after = staticmethod(functools.partial(Scope, fails=True))

    def connect(self, bootstrap: Any, **options: Any) -> Any:
        return ottla.sync.connect(bootstrap, **options)

    def run(self, scenario: Callable[[], Any]) -> Any:
        _ALARMS.set(0.0, _NEVER)  # starts the alarm thread now, so that it does not count as left behind
        before = threading.active_count()
        result = scenario()
        assert threading.active_count() <= before, f"threads still run: {threading.enumerate()}"
        return result

    def sleep_forever(self) -> None:
        threading.Event().wait()

    def checkpoint(self) -> None:
        time.sleep(0)

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def from_threads(self) -> Callable[..., Any]:
        return lambda function, *args: function(*args)

    @contextlib.contextmanager
    def open_nursery(self) -> Iterator[Tasks]:
        with Scope() as scope:
            tasks = Tasks(scope)
            yield tasks
            tasks.end()

    def wait_all_tasks_blocked(self, cushion: float = 0.0) -> None:
        time.sleep(max(cushion, 0.1))


THREADS = Threads()


def blocking(test: Callable[..., Any]) -> Callable[..., Any]:
    """The blocking variant of a test, and of those arguments that are functions of the same module."""
    module = _made(test.__module__)
    made: Callable[..., Any] = getattr(module, test.__name__)

    @functools.wraps(made)
    def run(**given: Any) -> Any:
        with _nothing_lost():
            return made(**{name: _of(module, test.__module__, each) for name, each in given.items()})

    return run


def _of(module: ModuleType, name: str, given: Any) -> Any:
    if isinstance(given, FunctionType) and given.__module__ == name:
        return getattr(module, given.__name__)
    return given


@functools.cache
def _made(name: str) -> ModuleType:
    for helper in ("contents", "reading", "suspensions"):
        if f"tests.sdk._blocking_{helper}" not in sys.modules:
            sys.modules[f"tests.sdk._blocking_{helper}"] = ModuleType(helper)
            sys.modules[f"tests.sdk._blocking_{helper}"] = _made(f"tests.sdk.{helper}")
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    with open(spec.origin) as file:
        source = file.read()
    for pattern, replaced in SYNTAX:
        source = re.sub(pattern, replaced, source)
    module = ModuleType(f"{name}_blocking")
    module.__file__ = spec.origin
    vars(module)["__builtins__"] = vars(builtins) | {"__import__": _imported}
    exec(compile(source, spec.origin, "exec"), vars(module))
    return module


class _Blocking(ModuleType):
    """A module whose public names come from the blocking client where it has them."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(ottla.sync if name in ottla.sync.__all__ and name != "connect" else self._module, name)


def _imported(name: str, *how: Any) -> Any:
    module = builtins.__import__(name, *how)
    return _Blocking(module) if module.__name__ in FACES else module


THREADS_END_BY_THEMSELVES = "cancels another task, but no thread can be cancelled"
CALLBACKS = "has async callbacks, which the blocking client refuses"
BEYOND: dict[str, str] = {
    "test_a_send_that_is_cancelled_just_when_its_record_fails_loses_no_word_of_it": "cancels inside a callback",
    "test_arguments_of_the_wrong_type_are_refused_by_name_and_nothing_is_done": "its listener is async",
    "test_callbacks_are_not_kept_and_each_kind_is_looked_at": CALLBACKS,
    "test_whoever_is_told_of_a_delivery_must_not_be_awaited": CALLBACKS,
    "test_what_was_accepted_goes_out_though_the_next_record_is_refused": "uses the core, as only the I/O thread may",
    "test_a_producer_is_used_where_its_client_lives": "any thread may use a producer",
    "test_calls_of_a_consumer_in_another_thread_are_refused_before_they_touch_anything": "any thread may use one",
    "test_cancelled_is_not_accepted": "Ctrl-C may come after a call has returned, before its caller knows",
    "test_code_that_blocks_the_loop_is_named_before_the_group_misses_the_member": "there is no loop to block",
    "test_a_listener_that_keeps_the_consumer_from_leaving_is_named": "the call waits for a listener that blocks",
    "test_two_tasks_cannot_wait_for_batches_of_one_consumer": THREADS_END_BY_THEMSELVES,
    "test_the_listener_hears_what_comes_and_goes_in_order": THREADS_END_BY_THEMSELVES,
    "test_a_commit_of_everything_tells_of_what_a_rebalance_took_unless_it_was_committed": THREADS_END_BY_THEMSELVES,
    "test_the_core_is_traced_while_it_steps": "the core runs in the I/O thread, which gets no signals",
    "test_ctrl_c_never_leaves_a_step_half_done": "the same; test_sync_interrupts.py has its own tests",
    "test_options_that_contradict_each_other_are_refused[threads-options6-need a group .* without assign]": (
        "its argument is an object of the asynchronous module"
    ),
    "test_more_members_than_partitions_wait_and_take_over": THREADS_END_BY_THEMSELVES,
}
"""Tests that need a real loop, and the reason."""
