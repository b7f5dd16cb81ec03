"""ottla on asyncio: like `of_ottla`, on the loop of the standard library."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import ottla.aio
from tests.bench.clients import of_ottla

T = TypeVar("T")


class Tasks:
    """A task group with the interface of a nursery."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        self._group.create_task(function(*args))


class Asyncio:
    connect = staticmethod(ottla.aio.connect)
    sleep = staticmethod(asyncio.sleep)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with asyncio.Runner(loop_factory=self.factory) as runner:
            return runner.run(scenario())

    @asynccontextmanager
    async def open_nursery(self) -> AsyncIterator[Tasks]:
        async with asyncio.TaskGroup() as group:
            yield Tasks(group)


__getattr__ = of_ottla.on_loop(Asyncio())
