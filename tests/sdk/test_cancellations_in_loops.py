"""A cancellation at each suspension of each public method, in the loops that the client is shipped for.

The scenarios are those of `tests.sdk.cancelling`, played over loopback against brokerlite. What happens *while* a call
waits is not in a test's hands here; see `test_cancellations.py` for that.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio

from ottla.errors import OttlaError
from ottla.sdk.client import Client
from ottla.testing import Broker
from tests.sdk import cancelling_streams  # noqa: F401 # has scenarios
from tests.sdk.cancelling import SCENARIOS, Fate, Scenario
from tests.sdk.loops import LOOPS, Loop, Trio
from tests.sdk.suspensions import Suspended

OFTEN = {"connecting", "leaving_a_client", "list_topics", "sending", "sending_many", "flushing", "leaving_a_producer"} | {
    "iterating",
    "leaving_a_consumer_of_a_group",
    "committing_a_batch",
}
"""Those that are played in the quick tests, too."""
HELD = {each.play.__name__ for each in SCENARIOS if "full_buffer" in each.play.__name__} | {
    "sending_what_waits_for_room_and_is_refused",
}
"""They need a broker that answers when it is told to."""
MOMENT = 0.02


class LoopRun:
    """Plays a scenario in a real loop; the call is cancelled at its suspension numbered ``at``."""

    def __init__(self, loop: Loop, broker: Broker, number: int, at: int | None) -> None:
        self._loop, self._broker, self._number, self._at = loop, broker, number, at
        self.count = 0
        self.fate: Fate | None = None

    def connect(self, **options: Any) -> Client:
        return self._loop.connect(self._broker.bootstrap, **options)

    async def topic(self, name: str, *batches: Sequence[bytes], partitions: int = 1, **configs: str) -> None:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        await self._loop.in_thread(self._broker.create_topic, name, partitions, given)
        async with self.connect() as client, client.producer(linger=0.0) as producer:
            for each in batches:
                await producer.send_many(name, each)
                await producer.flush()

    async def stored(self, name: str) -> list[bytes]:
        async with self.connect() as client:
            end = (await client.offsets({(name, 0): "end"}))[name, 0]
            values: list[bytes] = []
            while len(values) < end:
                values += [each.value or b"" for each in await client.fetch(name, 0, len(values))]
            return values

    async def cancelling(self, call: Callable[[], Awaitable[Any]]) -> Fate:
        fate = self.fate = Fate()
        try:
            fate.value = await self._cancelled(call)
        except self._loop.cancelled as cancelled:
            fate.cancelled, fate.error = True, cancelled
        except OttlaError as error:
            fate.error = error
        assert fate.cancelled or not self._at or self.count < self._at, f"a cancellation is swallowed: {fate}"
        return fate

    async def _cancelled(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if isinstance(self._loop, Trio):
            seen: list[BaseException] = []
            with trio.CancelScope() as scope:
                suspended = Suspended(_noted(call(), seen), self._at, scope.cancel)
                try:
                    return await suspended
                finally:
                    self.count = suspended.count
            raise seen[0]
        task = asyncio.current_task()
        assert task is not None
        suspended = Suspended(_noted(call(), []), self._at, task.cancel)
        try:
            return await suspended
        except asyncio.CancelledError:
            task.uncancel()
            raise
        finally:
            self.count = suspended.count

    def hold(self) -> None:
        raise NotImplementedError

    def answer_in(self, seconds: float) -> None:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)

    async def rest(self, client: Client) -> None:
        await self._loop.sleep(MOMENT)


async def _noted(call: Awaitable[Any], seen: list[BaseException]) -> Any:
    try:
        return await call
    except BaseException as error:
        seen.append(error)
        raise


def _scenarios() -> list[Any]:
    marked = []
    for name in LOOPS:
        for each in SCENARIOS:
            if (called := each.play.__name__) in HELD:
                continue
            often = called in OFTEN and name != "uvloop"
            marked.append(pytest.param(name, each, id=f"{name}-{each}", marks=[] if often else pytest.mark.slow))
    return marked


@pytest.mark.parametrize(("name", "scenario"), _scenarios())
def test_a_cancellation_at_any_suspension(name: str, scenario: Scenario, ottla_broker: Broker) -> None:
    def play(at: int | None) -> LoopRun:
        run = LoopRun(LOOPS[name], ottla_broker, 0, at)
        LOOPS[name].run(lambda: scenario.play(run))  # type: ignore[arg-type, return-value]
        with contextlib.suppress(OttlaError):
            LOOPS[name].run(lambda: _swept(run))
        return run

    clean = play(None)
    assert clean.fate is not None and not clean.fate.cancelled
    for at in range(1, clean.count + 1):
        play(at)


async def _swept(run: LoopRun) -> None:
    """The broker is as it was."""
    async with run.connect() as client:
        for group in await client.list_groups():
            await client.delete_group(group.group)
        for topic in await client.list_topics():
            await client.delete_topic(topic)
