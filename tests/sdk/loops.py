"""The loops that the client has a driver for, as tests see them: run a scenario, sleep, cancel at a suspension."""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import trio

import ottla
import ottla.aio
from ottla.sdk.client import Client

T = TypeVar("T")


class Suspended:
    """Awaits a coroutine and counts how often it is suspended; at the suspension numbered ``at`` it is cancelled."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], at: int | None, cancel: Callable[[], object]) -> None:
        self._coroutine, self._at, self._cancel = coroutine, at, cancel
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        sent: Any = None
        raised: BaseException | None = None
        while True:
            try:
                trap = inner.send(sent) if raised is None else inner.throw(raised)
            except StopIteration as end:
                return end.value
            self.count += 1
            if self.count == self._at:
                self._cancel()
            sent = raised = None
            try:
                sent = yield trap
            except BaseException as error:
                raised = error


class Loop(ABC):
    """One way to run the client."""

    name: str

    connect: Callable[..., Client]

    @abstractmethod
    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]], seconds: float = 10.0) -> T:
        """The result of a scenario that ends within so many seconds."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...

    @abstractmethod
    async def within(self, seconds: float, call: Awaitable[Any]) -> bool:
        """Await something for so long at most; whether it came to its end."""

    @abstractmethod
    async def cancelled_at(self, at: int | None, coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, int]:
        """Await a coroutine, cancelled at its suspension numbered ``at``; whether it was, and how many there were."""

    @abstractmethod
    async def beside(self, one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, T]) -> T:
        """The result of ``other``, while ``one`` runs in a task of its own, which is cancelled then."""

    def __repr__(self) -> str:
        return self.name


class TrioLoop(Loop):
    name = "trio"
    connect = staticmethod(ottla.connect)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]], seconds: float = 10.0) -> T:
        async def main() -> T:
            with trio.fail_after(seconds):
                return await scenario()

        return trio.run(main)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def within(self, seconds: float, call: Awaitable[Any]) -> bool:
        with trio.move_on_after(seconds) as scope:
            await call
        return not scope.cancelled_caught

    async def cancelled_at(self, at: int | None, coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, int]:
        with trio.CancelScope() as scope:
            suspended = Suspended(coroutine, at, scope.cancel)
            await suspended
        return scope.cancelled_caught, suspended.count

    async def beside(self, one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, T]) -> T:
        async def started() -> None:
            await one

        async with trio.open_nursery() as nursery:
            nursery.start_soon(started)
            result = await other
            nursery.cancel_scope.cancel()
        return result


class AsyncioLoop(Loop):
    name = "asyncio"
    connect = staticmethod(ottla.aio.connect)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]], seconds: float = 10.0) -> T:
        async def main() -> T:
            before = asyncio.all_tasks()
            async with asyncio.timeout(seconds):
                result = await scenario()
            assert asyncio.all_tasks() == before, "a task is left behind"
            return result

        with asyncio.Runner(loop_factory=self.factory) as runner:
            complaints: list[dict[str, Any]] = []
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            result = runner.run(main())
            assert not complaints, complaints
            return result

    factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, call: Awaitable[Any]) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await call
        except TimeoutError:
            return False
        return True

    async def cancelled_at(self, at: int | None, coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, int]:
        async def call() -> None:
            await suspended

        suspended = Suspended(coroutine, at, lambda: task.cancel())
        task = asyncio.create_task(call())
        try:
            await task
        except asyncio.CancelledError:
            return True, suspended.count
        return False, suspended.count

    async def beside(self, one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(one)
        try:
            return await other
        finally:
            task.cancel()
            await asyncio.wait((task,))


class UvLoop(AsyncioLoop):
    name = "uvloop"

    @staticmethod
    def factory() -> asyncio.AbstractEventLoop:
        import uvloop

        return uvloop.new_event_loop()


LOOPS: list[Loop] = [TrioLoop(), AsyncioLoop()]
if sys.platform != "win32":
    LOOPS.append(UvLoop())
