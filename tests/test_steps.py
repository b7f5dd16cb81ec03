"""The check of steps reports a task of ottla that computes for long, and no other."""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.steps import _OURS, LIMIT, Steps


def compute() -> None:
    end = time.thread_time() + 1.5 * LIMIT
    while time.thread_time() < end:
        pass


def steps_of(work: Callable[[], None], file: str) -> list[str]:
    """The reports about a task in ``file`` that runs ``work``."""
    names: dict[str, Any] = {"work": work}
    exec(compile("async def task():\n    work()", file, "exec"), names)
    steps = Steps()
    try:
        trio.run(names["task"], instruments=[steps])
    finally:
        gc.callbacks.remove(steps._collected)
    return steps.slow


def test_a_task_of_ours_that_computes_for_long_is_named() -> None:
    [said] = steps_of(compute, f"{_OURS}/serve/x.py")
    assert "held the loop for" in said


@pytest.mark.parametrize(
    ("work", "file"),
    [(compute, "/tests/x.py"), (lambda: time.sleep(2 * LIMIT), f"{_OURS}/x.py"), (lambda: None, f"{_OURS}/x.py")],
    ids=["a test's own", "one that waits", "one that does little"],
)
def test_other_steps_are_not(work: Callable[[], None], file: str) -> None:
    assert steps_of(work, file) == []


def test_the_collection_of_garbage_is_nobodys_fault() -> None:
    def work() -> None:
        while sum(spent) < 2 * LIMIT:
            before = time.thread_time()
            gc.collect()
            spent.append(time.thread_time() - before)

    spent: list[float] = []
    garbage = [[None] for _ in range(200_000)]  # allocated and freed outside: only the collection counts here
    gc.disable()
    try:
        assert steps_of(work, f"{_OURS}/x.py") == [] and sum(spent) > LIMIT
    finally:
        gc.enable()
    del garbage
