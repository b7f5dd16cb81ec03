"""Deadlines by name."""

import random
from functools import partial

import pytest

from ottla.brokerlite.machines.timers import Timers


def test_what_is_due_is_called_in_the_order_of_the_deadlines() -> None:
    timers, called = Timers(), list[tuple[str, float]]()

    def call(name: str, now: float) -> None:
        called.append((name, now))

    for name, deadline in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        timers.set(name, deadline, partial(call, name))
    assert timers.deadline == 1.0
    timers.expire(0.9)
    assert called == []
    timers.expire(2.0)
    assert called == [("a", 2.0), ("b", 2.0)] and timers.deadline == 3.0
    timers.expire(9.0)
    assert called[-1] == ("c", 9.0) and timers.deadline is None


def test_what_is_set_again_happens_once_at_the_last_deadline() -> None:
    timers, called = Timers(), list[float]()
    for deadline in (5.0, 9.0, 7.0, 2.0, 8.0):
        timers.set("x", deadline, called.append)
    assert timers.is_set("x")
    timers.expire(7.9)
    assert called == []
    timers.expire(8.0)
    timers.expire(100.0)
    assert called == [8.0] and not timers.is_set("x")


def test_what_is_cancelled_does_not_happen_and_may_be_set_again() -> None:
    timers, called = Timers(), list[float]()
    timers.set("x", 1.0, called.append)
    timers.cancel("x")
    timers.cancel("never set")
    assert timers.deadline is None
    timers.set("x", 2.0, called.append)
    timers.cancel("x")
    timers.set("x", 3.0, called.append)
    timers.expire(2.5)
    assert called == []
    timers.expire(3.0)
    assert called == [3.0]


def test_what_is_due_may_set_what_is_due_at_once() -> None:
    timers, called = Timers(), list[float]()
    timers.set("x", 1.0, lambda now: timers.set("y", now, called.append))
    timers.expire(1.0)
    assert called == [1.0]


def test_what_sets_itself_due_at_once_is_called_once_and_holds_nothing_up() -> None:
    timers, called = Timers(), list[str]()

    def again(now: float) -> None:
        called.append("again")
        timers.set("again", now, again)

    timers.set("again", 1.0, again)
    timers.set("other", 2.0, lambda now: called.append("other"))
    timers.expire(5.0)
    timers.expire(5.0)
    assert called.count("again") == 2 and called.count("other") == 1 and timers.deadline == 5.0


def test_a_clock_that_steps_forward_calls_what_repeats_once_and_one_that_steps_back_calls_nothing_early() -> None:
    timers, called = Timers(), list[float]()

    def every_second(now: float) -> None:
        called.append(now)
        timers.set("x", now + 1.0, every_second)

    timers.set("x", 1.0, every_second)
    for now in (0.5, 1.0, 1_000_000.0, 3.0, 999_999.0, 1_000_000.9, 1_000_001.0):
        timers.expire(now)
    assert called == [1.0, 1_000_000.0, 1_000_001.0]


def test_a_thousand_delays_of_one_deadline_leave_one_entry() -> None:
    timers = Timers()
    for i in range(1000):
        timers.set("x", 10.0 + i, lambda now: None)
    assert len(timers._heap) == 1


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_does_what_a_plain_dictionary_would(seed: int) -> None:
    rng = random.Random(seed)
    timers, called = Timers(), list[str]()
    plain: dict[str, float] = {}
    now = 0.0
    for _ in range(500):
        name = rng.choice("abcdef")
        match rng.choice(("set", "set", "cancel", "pass")):
            case "set":
                plain[name] = now + rng.choice((0.0, 1.0, 5.0))
                timers.set(name, plain[name], partial(lambda name, now: called.append(name), name))
            case "cancel":
                plain.pop(name, None)
                timers.cancel(name)
            case _:
                now += rng.choice((0.1, 1.0, 3.0))
                assert timers.deadline == min(plain.values(), default=None)
                due = sorted((name for name, deadline in plain.items() if deadline <= now), key=plain.__getitem__)
                called.clear()
                timers.expire(now)
                assert sorted(called) == sorted(due)
                assert [plain[name] for name in called] == [plain[name] for name in due]
                plain = {name: deadline for name, deadline in plain.items() if name not in due}


def test_cancelled_timers_do_not_stay_until_their_time() -> None:
    timers = Timers()
    for i in range(10_000):
        timers.set(i, 1e9 + i, lambda now: None)
        if i % 10:
            timers.cancel(i)
    assert len(timers._heap) <= 2 * 1000 + 101
    assert timers.deadline == 1e9
