"""HostTurns between hosts."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.serve.host_turns import HostTurns


async def test_turns_go_round_and_a_cancelled_task_takes_none(autojump_clock: MockClock) -> None:
    turns, done, scopes = HostTurns(1), list[str](), dict[str, trio.CancelScope]()

    async def work(name: str) -> None:
        with trio.CancelScope() as scopes[name]:
            async with turns.turn(name[0]):
                await trio.sleep(1)
                done.append(name)

    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
            nursery.start_soon(work, name)
            await wait_all_tasks_blocked()
        assert turns.waiting == 6
        scopes["a3"].cancel()
        scopes["c1"].cancel()
    assert done == ["a1", "a2", "b1", "a4", "b2"]
    assert turns.waiting == 0
    async with turns.turn("a"):
        assert turns.waiting == 0


async def test_a_task_that_is_called_while_it_is_cancelled_gives_its_turn_back(autojump_clock: MockClock) -> None:
    turns = HostTurns(1)

    async def wait() -> None:
        async with turns.turn("b"):
            raise AssertionError("it was cancelled before")

    async with trio.open_nursery() as nursery, turns.turn("a"):
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with trio.fail_after(1):
        async with turns.turn("c"):
            pass


async def test_several_may_work_at_a_time(autojump_clock: MockClock) -> None:
    turns, most, now = HostTurns(2), 0, 0

    async def work() -> None:
        nonlocal most, now
        async with turns.turn("a"):
            now += 1
            most = max(most, now)
            await trio.sleep(1)
            now -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(work)
    assert (most, trio.current_time()) == (2, 3.0)
