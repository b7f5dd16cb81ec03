"""The fixture `loop`: a test that uses it runs once in each loop that the client supports (tests/sdk/loops.py).

It also runs once without a loop, as blocking code (tests/sdk/blocking_loop.py). `make test` runs slow tests only in
trio, and `make deep` in the other loops: the quick tests already run each loop against brokerlite.
"""

import functools
import inspect
from typing import Any

import pytest

from tests.patience import FAR
from tests.sdk.blocking_loop import BEYOND, THREADS, Threads, blocking
from tests.sdk.loops import LOOPS, Loop


def _quickly(name: str) -> Any:
    """The loop of quick tests: without uvloop, which is asyncio with other transports, except in `test_drivers.py`."""
    return pytest.param(name, marks=pytest.mark.deep) if name == "uvloop" else name


@pytest.fixture(params=[*(_quickly(name) for name in LOOPS), "threads"])
def loop(request: pytest.FixtureRequest) -> Loop | Threads:
    return THREADS if request.param == "threads" else LOOPS[request.param]


@pytest.fixture
def long_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that ends by an error or a cancellation has `FAR` to finish, instead of the moment that users have.

    For tests of work that ends then: on a busy machine, a moment may not suffice.
    """
    for limit in (
        "consume.assignment.leaving.STEP_TIMEOUT",
        "core.LEAVE_TIMEOUT",
        "produce.producer_leaving.CLOSE_TIMEOUT",
        "share.core.CLOSE_TIMEOUT",
        "transaction.core.CLOSE_TIMEOUT",
    ):
        monkeypatch.setattr(f"ottla.sdk.{limit}", FAR)


@pytest.hookimpl(tryfirst=True)  # before pytest-trio marks the remaining `async def` tests as its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _is_beyond(item)]
    for item in items:
        if isinstance(item, pytest.Function) and "loop" in item.fixturenames:
            if item.get_closest_marker("slow") and _loop_of(item) != "trio":
                item.add_marker(pytest.mark.deep)
            if _loop_of(item) == "threads":
                item.obj = blocking(item.obj)
            elif inspect.iscoroutinefunction(item.obj):
                item.obj = _run_in_loop(item.obj)


def _loop_of(item: pytest.Function) -> Any:
    return item.callspec.params.get("loop") if hasattr(item, "callspec") else None


def _is_beyond(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or _loop_of(item) != "threads":
        return False
    return item.originalname in BEYOND or item.name in BEYOND


def _run_in_loop(scenario: Any) -> Any:
    @functools.wraps(scenario)
    def test(loop: Loop, **fixtures: Any) -> None:
        loop.run(functools.partial(scenario, loop=loop, **fixtures))

    return test
