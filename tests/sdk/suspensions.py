"""A cancellation at each suspension of a call: count the points where a loop can cancel it, then try each."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import trio

from tests.sdk.loops import Loop, Trio

T = TypeVar("T")


class Suspended:
    """Awaits a coroutine and counts its suspensions; cancels it at the suspension with number ``at``."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], at: int | None, cancel: Callable[[], object]) -> None:
        self._coroutine, self._at, self._cancel = coroutine, at, cancel
        self.count = 0
        self.thrown: BaseException | None = None
        """The first exception that the loop raised in the coroutine, for example a cancellation."""

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
                self.thrown = self.thrown or error


async def cancelled_at(loop: Loop, at: int | None, coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, int]:
    """Await a coroutine, cancelled at suspension ``at``; return whether it was, and its number of suspensions."""
    if isinstance(loop, Trio):
        with trio.CancelScope() as scope:
            suspended = Suspended(coroutine, at, scope.cancel)
            await suspended
        return scope.cancelled_caught, suspended.count

    async def call() -> None:
        await suspended

    suspended = Suspended(coroutine, at, lambda: task.cancel())
    task = asyncio.create_task(call())
    try:
        await task
    except asyncio.CancelledError:
        return True, suspended.count
    return False, suspended.count
