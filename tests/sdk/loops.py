"""The operations of a loop that scenarios need: a scenario is written once, and runs in trio and in asyncio.

    async def test_what_is_sent_comes_back(loop: Loop, ottla_broker: Broker) -> None:
        with loop.fail_after(5):
            async with loop.connect(ottla_broker.bootstrap) as client:
                ...

Rules:
- A test with the fixture `loop` (tests/sdk/conftest.py) runs once in each loop of `LOOPS`; all others run in trio.
- The names are trio's. In asyncio they use what its users have (`asyncio.timeout`, `TaskGroup`, `to_thread`): there a
  cancellation is raised once, and can be lost. This module does not repeat it, as anyio would.
- A test of a feature of one loop (`trio.testing.MockClock`, instruments) belongs to the tests of that driver.
"""

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

import pytest
import trio
import trio.testing

import ottla
from ottla import Client

T = TypeVar("T")


class Event(Protocol):
    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self) -> Any: ...


class CancelScope(Protocol):
    @property
    def cancelled_caught(self) -> bool: ...
    def cancel(self) -> None: ...


class Nursery(Protocol):
    @property
    def cancel_scope(self) -> CancelScope: ...
    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> Any: ...


class Loop(Protocol):
    """One way to run a scenario."""

    cancelled: type[BaseException]
    """The exception in a cancelled task."""
    too_slow: type[Exception]
    """The exception that `fail_after` raises."""

    def connect(self, bootstrap: Any, **options: Any) -> Client:
        """`ottla.connect`, or `ottla.aio.connect`."""

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T: ...
    def current_time(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    async def sleep_forever(self) -> None: ...
    async def checkpoint(self) -> None: ...
    def fail_after(self, seconds: float) -> AbstractContextManager[CancelScope]: ...
    def move_on_after(self, seconds: float) -> AbstractContextManager[CancelScope]: ...
    def cancel_scope(self) -> AbstractContextManager[CancelScope]: ...
    def open_nursery(self) -> AbstractAsyncContextManager[Nursery]: ...
    def event(self) -> Event: ...
    async def in_thread(self, function: Callable[..., T], *args: Any) -> T: ...

    def from_threads(self) -> Callable[..., Any]:
        """A function for other threads: called with an async function and its arguments, it runs that in this loop."""

    async def wait_all_tasks_blocked(self, cushion: float = 0.0) -> None:
        """Wait until every other task has waited for ``cushion`` seconds."""


class Trio:
    cancelled: type[BaseException] = trio.Cancelled
    too_slow: type[Exception] = trio.TooSlowError
    run = staticmethod(trio.run)
    current_time = staticmethod(trio.current_time)
    sleep = staticmethod(trio.sleep)
    sleep_forever = staticmethod(trio.sleep_forever)
    checkpoint = staticmethod(trio.lowlevel.checkpoint)
    fail_after = staticmethod(trio.fail_after)
    move_on_after = staticmethod(trio.move_on_after)
    cancel_scope = staticmethod(trio.CancelScope)
    open_nursery = staticmethod(trio.open_nursery)
    event = staticmethod(trio.Event)
    in_thread = staticmethod(trio.to_thread.run_sync)
    wait_all_tasks_blocked = staticmethod(trio.testing.wait_all_tasks_blocked)

    def connect(self, bootstrap: Any, **options: Any) -> Client:
        return ottla.connect(bootstrap, **options)

    def from_threads(self) -> Callable[..., Any]:
        return functools.partial(trio.from_thread.run, trio_token=trio.lowlevel.current_trio_token())


class Timeout:
    """An `asyncio.timeout` in a plain ``with`` statement: entering and leaving it never waits."""

    def __init__(self, seconds: float | None, fails: bool) -> None:
        self._timeout, self._fails = asyncio.timeout(seconds), fails
        self.cancelled_caught = False

    def cancel(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())

    def __enter__(self) -> "Timeout":
        _at_once(self._timeout.__aenter__())
        return self

    def __exit__(self, *error: Any) -> bool:
        try:
            _at_once(self._timeout.__aexit__(*error))
        except TimeoutError:
            if self._fails:
                raise
            self.cancelled_caught = True
            return True
        return False


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that does not wait."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
        raise AssertionError(f"{coroutine} waits")


class Tasks:
    """A nursery of asyncio tasks; errors come in a group, as in trio."""

    def __init__(self, group: asyncio.TaskGroup, scope: CancelScope) -> None:
        self._group, self.cancel_scope = group, scope

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        async def task() -> None:
            await function(*args)

        self._group.create_task(task(), name=getattr(function, "__name__", None))


class Asyncio:
    """The loop of the standard library, or another one by its factory."""

    cancelled: type[BaseException] = asyncio.CancelledError
    too_slow: type[Exception] = TimeoutError
    sleep = staticmethod(asyncio.sleep)
    event = staticmethod(asyncio.Event)

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._factory = factory
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()

    def connect(self, bootstrap: Any, **options: Any) -> Client:
        client: Client = importlib.import_module("ottla.aio").connect(bootstrap, **options)
        self._clients.add(client)
        return client

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            try:
                return await scenario()
            finally:
                left = asyncio.all_tasks() - {asyncio.current_task()}
                assert not left, f"tasks still run: {left}"

        with self.runner() as runner:
            return runner.run(main())

    @contextlib.contextmanager
    def runner(self) -> Iterator[asyncio.Runner]:
        """A runner for a program's main function that shuts the loop down, and fails if the loop reports an error.

        The loop is in debug mode in Python's development mode, as in `make deep`: it costs a third of the time.
        """
        complaints: list[dict[str, Any]] = []
        try:
            with asyncio.Runner(loop_factory=self._factory) as runner:
                runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(context))
                try:
                    yield runner
                except pytest.fail.Exception:  # such as the timeout of a test that hangs
                    self._show(runner.get_loop())
                    raise
        finally:
            assert not complaints, complaints

    def _show(self, loop: asyncio.AbstractEventLoop) -> None:
        """Print where all tasks are, and the waits of all clients."""
        for task in asyncio.all_tasks(loop):
            print(task)
            task.print_stack(file=sys.stdout)
        for client in self._clients:
            print(client.explain())

    def current_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep_forever(self) -> None:
        await asyncio.Event().wait()

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(function, *args)

    def from_threads(self) -> Callable[..., Any]:
        loop = asyncio.get_running_loop()

        async def run(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
            return await function(*args)

        return lambda function, *args: asyncio.run_coroutine_threadsafe(run(function, args), loop).result()

    def fail_after(self, seconds: float) -> Timeout:
        return Timeout(seconds, fails=True)

    def move_on_after(self, seconds: float) -> Timeout:
        return Timeout(seconds, fails=False)

    def cancel_scope(self) -> Timeout:
        return Timeout(None, fails=False)

    @contextlib.asynccontextmanager
    async def open_nursery(self) -> AsyncIterator[Tasks]:
        with Timeout(None, fails=False) as scope:
            async with asyncio.TaskGroup() as group:
                yield Tasks(group, scope)

    async def wait_all_tasks_blocked(self, cushion: float = 0.0) -> None:
        """asyncio has no event for "all tasks wait for I/O", so this polls."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        since = self.current_time()
        while True:
            await asyncio.sleep(cushion / 10)
            if any(not task.done() and getattr(task, "_fut_waiter", None) is None for task in others):
                since = self.current_time()
            elif self.current_time() - since >= cushion:
                return


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


ALL: dict[str, Loop] = {"trio": Trio(), "asyncio": Asyncio(asyncio.SelectorEventLoop)}
if _is_there("uvloop"):
    ALL["uvloop"] = Asyncio(importlib.import_module("uvloop").new_event_loop)
LOOPS: dict[str, Loop] = ALL if _is_there("ottla.aio") else {"trio": ALL["trio"]}
"""The loops that the client supports."""
