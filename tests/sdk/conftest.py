"""The fixture `loop`: a test that has it runs once under each loop that the client runs in (tests/sdk/loops.py)."""

import functools
import inspect
from typing import Any

import pytest

from tests.sdk.loops import LOOPS, Loop


def _quickly(name: str) -> Any:
    """uvloop is asyncio with other transports: what is quick stays quick without it, but for `test_drivers.py`."""
    return pytest.param(name, marks=pytest.mark.slow) if name == "uvloop" else name


@pytest.fixture(params=[_quickly(name) for name in LOOPS])
def loop(request: pytest.FixtureRequest) -> Loop:
    return LOOPS[request.param]


@pytest.hookimpl(tryfirst=True)  # before pytest-trio marks what is still `async def` as its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "loop" in item.fixturenames and inspect.iscoroutinefunction(item.obj):
            item.obj = _run_in_loop(item.obj)


def _run_in_loop(scenario: Any) -> Any:
    @functools.wraps(scenario)
    def test(loop: Loop, **fixtures: Any) -> None:
        loop.run(functools.partial(scenario, loop=loop, **fixtures))

    return test
