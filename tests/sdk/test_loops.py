"""The operations of a loop that scenarios use behave alike in each loop."""

import time

import pytest

from tests.patience import FAR
from tests.sdk.blocking_loop import THREADS, blocking
from tests.sdk.loops import ALL, Loop


@pytest.fixture(params=list(ALL))
def loop(request: pytest.FixtureRequest) -> Loop:
    """Each loop, whether the client supports it or not."""
    return ALL[request.param]


async def test_what_takes_too_long_is_cancelled_and_fails(loop: Loop) -> None:
    cancelled = False
    with pytest.raises(loop.too_slow), loop.fail_after(0.01):
        try:
            await loop.sleep(60)
        except loop.cancelled:
            cancelled = True
            raise
    assert cancelled


async def test_what_takes_too_long_is_left(loop: Loop) -> None:
    with loop.move_on_after(0.01) as scope:
        await loop.sleep(60)
    assert scope.cancelled_caught
    with loop.move_on_after(FAR) as in_time:
        await loop.checkpoint()
    assert not in_time.cancelled_caught


async def test_a_scope_is_cancelled_from_within(loop: Loop) -> None:
    with loop.cancel_scope() as scope:
        scope.cancel()
        await loop.sleep(60)
    assert scope.cancelled_caught


async def test_a_nursery_waits_for_its_tasks(loop: Loop) -> None:
    done: list[int] = []

    async def task(number: int) -> None:
        await loop.sleep(0.01)
        done.append(number)

    async with loop.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(task, number)
    assert sorted(done) == [0, 1, 2]


async def test_a_nursery_is_cancelled_with_its_tasks(loop: Loop) -> None:
    async with loop.open_nursery() as nursery:
        nursery.start_soon(loop.sleep, 60)
        await loop.checkpoint()
        nursery.cancel_scope.cancel()
        await loop.sleep(60)


async def test_an_error_of_a_task_ends_its_nursery_in_a_group(loop: Loop) -> None:
    async def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        async with loop.open_nursery() as nursery:
            nursery.start_soon(loop.sleep, 60)
            nursery.start_soon(fails)
    assert [repr(each) for each in caught.value.exceptions] == ["KeyError('mine')"]


async def test_it_is_seen_when_all_others_wait(loop: Loop) -> None:
    event, steps = loop.event(), 0

    async def works() -> None:
        nonlocal steps
        for _ in range(20):
            steps += 1
            await loop.checkpoint()
        await event.wait()

    async with loop.open_nursery() as nursery:
        nursery.start_soon(works)
        await loop.wait_all_tasks_blocked(0.01)
        assert steps == 20 and not event.is_set()
        event.set()


async def test_a_thread_leaves_the_loop_free(loop: Loop) -> None:
    with pytest.raises(loop.too_slow), loop.fail_after(0.01):
        await loop.in_thread(time.sleep, 0.05)
        await loop.checkpoint()


async def test_its_clock_is_that_of_its_deadlines(loop: Loop) -> None:
    start = loop.current_time()
    with loop.move_on_after(0.05):
        await loop.sleep(FAR)
    assert loop.current_time() - start >= 0.049, "uvloop rounds to milliseconds"


async def _is_left_in_a_finalizer(loop: Loop) -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(0.05)

    with loop.move_on_after(0.01) as scope:
        Slow()
        await loop.sleep(FAR)  # the cancellation interrupts the sleep, and is not raised after it
    assert scope.cancelled_caught


def test_code_that_blocks_is_ended_though_python_lost_what_was_raised_in_a_finalizer() -> None:
    blocking(_is_left_in_a_finalizer)(loop=THREADS)
