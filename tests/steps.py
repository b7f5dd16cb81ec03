"""No step of a server's task may hold its loop for long: all other tasks of the server wait meanwhile.

The measure is the thread's CPU time between two checkpoints of a task, because on a busy machine any step takes long
by the wall clock. Three costs are not the fault of the step in which they occur, and are excluded: garbage collection,
the first import of a module, and the first use of a message, which compiles its program. A step with one of the last
two does not count at all.
"""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla
from ottla.codec import engine, machine, program

LIMIT = 0.05
"""Seconds."""
_OURS = str(Path(ottla.__file__).parent)


class Steps(trio.abc.Instrument):
    """Remembers the steps of ottla's own tasks that took longer than `LIMIT`.

    Attributes:
        slow: descriptions of these steps, with their times.
    """

    def __init__(self) -> None:
        self.slow: list[str] = []
        self._step = threading.local()
        gc.callbacks.append(self._collected)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step.made, self._step.since = _made(), time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._step.since
        if took <= LIMIT:
            return
        code = getattr(task.coro, "cr_code", None)
        if code and code.co_filename.startswith(_OURS) and self._step.made == _made():
            self.slow.append(f"{task.name} held the loop for {took * 1000:.0f} ms")

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._step.collecting = time.thread_time()
        elif hasattr(self._step, "since"):
            self._step.since += time.thread_time() - self._step.collecting


def _made() -> tuple[int, int, int]:
    """A value that changes with each imported module and each first use of a message."""
    programs = program.program.cache_info().currsize
    functions = machine.parser.cache_info().currsize + machine.builder.cache_info().currsize if engine != "c" else 0
    return len(sys.modules), programs, functions


STEPS = Steps()
_run = trio.run


def run(*args: Any, instruments: Any = (), **others: Any) -> Any:
    """`trio.run` with `STEPS`."""
    return _run(*args, instruments=[*instruments, STEPS], **others)


@pytest.fixture(autouse=True)
def no_step_holds_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test with a step that was too long; applies to modules, and folders by `conftest`, that import it."""
    monkeypatch.setattr(trio, "run", run)
    STEPS.slow.clear()
    yield
    assert STEPS.slow == [], "; ".join(STEPS.slow)
