"""Ctrl-C or the loop ends a program: records that it accepted are stored, processed ones committed, tasks all ended.

In asyncio a cancellation is raised once, in its task, and a loop that ends cancels all of its tasks.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.errors import Closed
from ottla.sdk.drivers.asyncio import AsyncioDriver
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Shielded, Steps
from ottla.testing import Broker
from tests.sdk.loops import LOOPS, Asyncio, Loop

pytestmark = pytest.mark.usefixtures("long_goodbyes")

RECORDS = 100


def press_ctrl_c() -> None:
    """Send the signal while the loop waits, as a terminal does."""
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()


async def produces(loop: Loop, broker: Broker, then: Callable[[], object]) -> None:
    """Accept records while the topic's metadata and the connection are missing; ``linger`` would delay them, too."""
    async with loop.connect(broker.bootstrap) as client, client.producer(linger=60) as producer:
        for _ in range(RECORDS):
            await producer.send_soon("t", b"v")
        then()
        await loop.sleep_forever()


async def consumes(loop: Loop, broker: Broker, then: Callable[[], object]) -> None:
    """Report every batch as processed, commit none yet, and wait for more."""
    async with loop.connect(broker.bootstrap) as client:
        await client.create_topic("t")
        async with client.producer() as producer:
            await producer.send_many("t", [b"v"] * RECORDS)
        async with client.consumer("t", group="g") as consumer:
            handled = 0
            async for batch in consumer:
                batch.commit_soon()
                handled += len(batch)
                if handled >= RECORDS:  # more than all of them fail the check, and do not wait for ever
                    then()


def check_stored(loop: Loop, broker: Broker) -> None:
    async def scenario() -> None:
        async with loop.connect(broker.bootstrap) as client:
            assert await client.offsets({("t", 0): "end"}) == {("t", 0): RECORDS}

    loop.run(scenario)


def check_committed(loop: Loop, broker: Broker) -> None:
    async def scenario() -> None:
        async with loop.connect(broker.bootstrap) as client:
            assert (await client.committed("g"))["t", 0].offset == RECORDS
            assert not (await client.describe_groups(["g"]))["g"].members

    loop.run(scenario)


Program = Callable[[Loop, Broker, Callable[[], object]], Coroutine[Any, Any, None]]
Check = Callable[[Loop, Broker], None]
programs = pytest.mark.parametrize(
    ("main", "check"), [(produces, check_stored), (consumes, check_committed)], ids=["produces", "consumes"]
)


@pytest.fixture(params=["asyncio", pytest.param("uvloop", marks=pytest.mark.deep)])
def on_asyncio(request: pytest.FixtureRequest) -> Asyncio:
    loop = LOOPS.get(request.param)
    if not isinstance(loop, Asyncio):
        pytest.skip(f"{request.param} is not installed")
    return loop


@programs
def test_ctrl_c_leaves_what_is_accepted_its_moment(
    loop: Loop, ottla_broker: Broker, main: Program, check: Check
) -> None:
    with pytest.raises(KeyboardInterrupt):
        loop.run(lambda: main(loop, ottla_broker, press_ctrl_c))
    check(loop, ottla_broker)


@programs
@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_task_that_is_cancelled_and_again_while_it_ends_has_its_moment(
    on_asyncio: Asyncio, ottla_broker: Broker, main: Program, check: Check, times: int
) -> None:
    async def scenario() -> None:
        ready = asyncio.Event()
        task = asyncio.create_task(main(on_asyncio, ottla_broker, ready.set))
        await ready.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    on_asyncio.run(scenario)
    check(on_asyncio, ottla_broker)


@programs
def test_a_loop_that_shuts_down_leaves_what_is_accepted_its_moment(
    on_asyncio: Asyncio, ottla_broker: Broker, main: Program, check: Check
) -> None:
    """The loop cancels every task, including the client's own."""

    async def scenario() -> asyncio.Task[None]:
        ready = asyncio.Event()
        task = asyncio.create_task(main(on_asyncio, ottla_broker, ready.set))
        await ready.wait()
        return task

    with on_asyncio.runner() as runner:
        task = runner.run(scenario())
        assert not task.done()
    assert task.cancelled()
    check(on_asyncio, ottla_broker)


def test_what_is_cancelled_before_it_has_begun_to_connect_connects_all_the_same(
    on_asyncio: Asyncio, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that shuts down may cancel a task of the client before its first line."""
    start, cancelled = AsyncioDriver._start, 0

    def too_late(self: AsyncioDriver, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        nonlocal cancelled
        task = start(self, work)
        if cancelled < 2:
            cancelled += task.cancel()
        return task

    monkeypatch.setattr(AsyncioDriver, "_start", too_late)

    async def scenario() -> None:
        async with on_asyncio.connect(ottla_broker.bootstrap, api_timeout=3) as client:
            await client.create_topic("t")

    on_asyncio.run(scenario)
    assert cancelled == 2


@programs
def test_a_task_beside_it_that_fails_leaves_what_is_accepted_its_moment(
    on_asyncio: Asyncio, ottla_broker: Broker, main: Program, check: Check
) -> None:
    async def scenario() -> None:
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(main(on_asyncio, ottla_broker, ready.set))
            await ready.wait()
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as raised:
        on_asyncio.run(scenario)
    assert [type(each) for each in raised.value.exceptions] == [ZeroDivisionError]
    check(on_asyncio, ottla_broker)


@programs
def test_a_timeout_around_the_client_is_a_timeout(
    on_asyncio: Asyncio, ottla_broker: Broker, main: Program, check: Check
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(None) as timeout:
            await main(on_asyncio, ottla_broker, lambda: timeout.reschedule(0.0))

    with pytest.raises(TimeoutError):
        on_asyncio.run(scenario)
    check(on_asyncio, ottla_broker)


@programs
def test_a_second_ctrl_c_ends_it_where_what_is_accepted_waits_in_vain(
    on_asyncio: Asyncio, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, main: Program, check: Check
) -> None:
    monkeypatch.setattr("ottla.sdk.produce.producer_leaving.CLOSE_TIMEOUT", 0.2)
    monkeypatch.setattr("ottla.sdk.consume.assignment.leaving.STEP_TIMEOUT", 0.1)

    def presses_twice() -> None:
        ottla_broker.kill()
        press_ctrl_c()
        asyncio.get_running_loop().call_later(0.05, press_ctrl_c)

    with pytest.raises(KeyboardInterrupt):
        on_asyncio.run(lambda: main(on_asyncio, ottla_broker, presses_twice))


def test_a_cancellation_of_a_call_that_has_to_wait_is_not_lost_where_the_call_fails(ottla_broker: Broker) -> None:
    loop = LOOPS["asyncio"]
    outcome: Outcome[None] = Outcome()

    def leaves() -> Steps[None]:
        yield Shielded(outcome)
        raise Closed("mine")

    async def scenario() -> None:
        async with loop.connect(ottla_broker.bootstrap) as client:
            task = asyncio.create_task(client._driver.run(leaves()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            outcome.succeed(None)
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert isinstance(raised.value.__cause__, Closed)

    loop.run(scenario)
