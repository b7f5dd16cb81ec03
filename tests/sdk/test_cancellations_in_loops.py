"""A cancellation at each suspension of each public method, in the loops that the client supports.

The scenarios come from `tests.sdk.cancelling`, and run over loopback against brokerlite. A test here cannot control the
events *while* a call waits; `test_cancellations.py` does that.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.errors import OttlaError
from ottla.sdk.client import Client
from ottla.sdk.outcome import Outcome
from ottla.testing import Broker
from tests.sdk import cancelling_shares, cancelling_streams  # noqa: F401 # registers scenarios
from tests.sdk.cancelling import SCENARIOS, Fate, Scenario
from tests.sdk.loops import LOOPS, Loop, Trio
from tests.sdk.suspensions import Suspended

OFTEN = {"a_block", "connecting", "list_topics", "sending", "sending_many", "flushing", "leaving_a_producer"} | {
    "iterating",
    "leaving_a_consumer_of_a_group",
    "committing_a_batch",
}
"""Scenarios that the quick tests run, too."""
HELD = {each.play.__name__ for each in SCENARIOS if "full_buffer" in each.play.__name__} | {
    "sending_what_waits_for_room_and_is_refused",
    "iterating_while_the_group_rebalances",
    "leaving_a_consumer_while_a_commit_waits_behind_another",
}
"""Scenarios that need control over the broker's answers, or another task."""
HALVES = {
    *("connecting", "leaving_a_client"),
    *("leaving_a_client_before_its_consumer", "leaving_a_client_before_its_share_consumer"),
}
"""Scenarios that enter or leave a block inside the cancelled scope, which trio does not allow."""
MOMENT = 0.02


class LoopRun:
    """Plays a scenario in a real loop; cancels the call at its suspension with number ``at``."""

    def __init__(self, loop: Loop, broker: Broker, at: int | None) -> None:
        self._loop, self._broker, self._at = loop, broker, at
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
        assert partitions == 1 or not batches

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
        return fate

    async def _cancelled(self, call: Callable[[], Awaitable[Any]]) -> Any:
        loop, task = self._loop, None if isinstance(self._loop, Trio) else asyncio.current_task()
        cancelled: list[BaseException] = []
        with trio.CancelScope() if task is None else contextlib.nullcontext() as scope:
            suspended = Suspended(_awaited(call), self._at, task.cancel if task is not None else _cancel_of(scope))
            try:
                return await suspended
            except loop.cancelled as error:
                cancelled.append(error)
                if task is None:
                    raise
                task.uncancel()
            finally:
                self.count = suspended.count
                if isinstance(suspended.thrown, loop.cancelled):
                    assert cancelled, f"a cancellation was swallowed: {suspended.thrown!r}"
        raise cancelled[0]

    def beside(self, work: Coroutine[Any, Any, Any]) -> Outcome[None]:
        raise NotImplementedError

    def hold(self) -> None:
        raise NotImplementedError

    def answer_in(self, seconds: float) -> None:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)

    async def rest(self, client: Client) -> None:
        await self._loop.sleep(MOMENT)


def _cancel_of(scope: trio.CancelScope | None) -> Callable[[], object]:
    assert scope is not None
    return scope.cancel


async def _awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def _scenarios() -> list[Any]:
    marked = []
    for name in LOOPS:
        for each in SCENARIOS:
            if (called := each.play.__name__) in HELD or (name == "trio" and called in HALVES):
                continue
            often = called in OFTEN and name != "uvloop"
            mark = pytest.mark.slow if often else pytest.mark.deep
            marked.append(pytest.param(name, each, id=f"{name}-{each}", marks=mark))
    return marked


@pytest.fixture
def ottla_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with ACLs, so that they can be created: every client may do everything."""
    config = BrokerConfig(
        port=0,
        data=tmp_path / "data",
        sync=Sync.NEVER,
        group_initial_rebalance_delay=0,
        acls=True,
        super_users=("User:ANONYMOUS",),
    )
    with Broker(config) as broker:
        yield broker


@pytest.mark.parametrize(("name", "scenario"), _scenarios())
def test_a_cancellation_at_any_suspension(name: str, scenario: Scenario, ottla_broker: Broker) -> None:
    def play(at: int | None) -> LoopRun:
        run = LoopRun(LOOPS[name], ottla_broker, at)
        LOOPS[name].run(lambda: scenario.play(run))
        with contextlib.suppress(OttlaError):
            LOOPS[name].run(lambda: _swept(run))
        return run

    clean = play(None)
    assert clean.fate is not None and not clean.fate.cancelled
    for at in range(1, clean.count + 1):
        play(at)


async def _swept(run: LoopRun) -> None:
    """Delete all that a scenario has left in the broker."""
    async with run.connect() as client:
        for group in await client.list_groups():
            await client.delete_group(group.group)
        for topic in await client.list_topics():
            await client.delete_topic(topic)
