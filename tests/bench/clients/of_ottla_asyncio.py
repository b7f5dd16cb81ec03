"""ottla on asyncio: as `of_ottla`, on the loop of the standard library."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import ottla.aio
from tests.bench.clients import of_ottla

T = TypeVar("T")


class Tasks:
    """A task group, spoken to as to a nursery."""

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


ON = Asyncio()

consume = partial(of_ottla.consume, on=ON)
consume_columns = partial(of_ottla.consume_columns, on=ON)
produce = partial(of_ottla.produce, on=ON)
produce_many = partial(of_ottla.produce_many, on=ON)
receipts = partial(of_ottla.receipts, on=ON)
receipts_many = partial(of_ottla.receipts_many, on=ON)
paced = partial(of_ottla.paced, on=ON)
awaited = partial(of_ottla.awaited, on=ON)
