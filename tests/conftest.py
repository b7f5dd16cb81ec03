"""Fixtures for every test, a header with the codec's engine, and the report that `tests/gates.py` reads.

Slow tests run last, so that a small mistake shows early.
"""

import gc
import inspect
import json
import logging
import os
import platform
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ottla.codec import engine
from ottla.sdk.logs import HELD
from tests import steps
from tests.examples import QUICK
from tests.gates import REPORT
from tests.packaging import extension
from tests.patience import WHOLE
from tests.zeroconf_threads import loops

pytest_plugins = ["tests.kafka", "tests.sdk.shared_topics"]

gc.disable()  # until all tests are collected: nothing of them is garbage, and every worker collects all

# The duration of an example depends more on the machine than on the tested code.
settings.register_profile("ottla", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("ottla"), max_examples=QUICK)
settings.load_profile("ottla")

# In debug mode asyncio warns of each callback that took a tenth of a second; on a busy machine many do.
logging.getLogger("asyncio").setLevel(logging.ERROR)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a background suite with SIGINT ignored, and the programs that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # Under nohup, programs would ignore a test's SIGHUP. They inherit no handler, and pytest ignores it with this one.
    signal.signal(signal.SIGHUP, lambda *_: None)

# Spark's JVM uses only its quick compiler: no test runs long enough to gain from the other one.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

TIERS = ("slow", "deep")
"""Marks of tests that `make check` does not run."""
PEERS = {"brokerlite", "chaos", "interop", "proxy"}
"""Folders with tests of clients in other languages."""
RUNNING = platform.python_version()
_report = os.environ.pop(REPORT, None)
"""Removed from the environment, so that no pytest started by a test, and no pytest-xdist worker, writes to the file."""
_running: dict[str, dict[str, Any]] = {}
"""Test -> its line of the report, until its last phase has ended."""


def pytest_report_header() -> str:
    stale = extension.stale() if engine == "c" else []
    return f"codec: {engine}" + (f", built before {' and '.join(stale)} was edited (make extension)" if stale else "")


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Drop parameters that ``-m`` excludes before pytest makes tests of them.

    Half of all tests are `deep` by a parameter, and every worker would make them only to deselect them. One parameter
    is kept where all are excluded: pytest makes a test without any of none, which would lack its mark.
    """
    yield
    excluded = [tier for tier in TIERS if f"not {tier}" in metafunc.config.option.markexpr]
    if any(metafunc.definition.get_closest_marker(tier) for tier in excluded):
        kept = []
    else:
        kept = [call for call in metafunc._calls if not any(mark.name in excluded for mark in call.marks)]
    metafunc._calls[:] = kept or metafunc._calls[:1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_is_slow)
    for item in items:
        if _is_slow(item):
            item.add_marker(pytest.mark.timeout(WHOLE))
        if (
            isinstance(item, pytest.Function)
            and inspect.iscoroutinefunction(item.obj)
            and "no_step_holds_the_loop" in item.fixturenames
        ):
            item.add_marker(pytest.mark.trio(run=steps.run), append=False)


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(tier) is not None for tier in TIERS)


def pytest_collection_finish(session: pytest.Session) -> None:
    slow = {each.path.parent.name for each in session.items if _is_slow(each)}
    if slow & PEERS and not session.config.option.collectonly:
        from tests.interop.programs import build_all  # needs the plugins, so not at the top

        build_all()
    # Freeze the objects that exist now, so that tests which collect garbage do not scan them every time.
    gc.freeze()
    gc.enable()
    _tell(count=len(session.items))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = _running.setdefault(report.nodeid, {"id": report.nodeid, "seconds": 0.0, "outcome": "passed"})
    test["seconds"] = round(test["seconds"] + report.duration, 3)
    if not report.passed:
        test["outcome"] = report.outcome
    if report.failed:
        lines = report.longreprtext.rstrip().splitlines() or ["no reason given"]
        why = next((line for line in lines if line.startswith("E  ")), lines[-1]).removeprefix("E").strip()
        test["why"] = f"{why[:300]} (Python {RUNNING}, codec in {engine})"
    if report.when == "teardown":
        _tell(**_running.pop(report.nodeid))


def _tell(**line: Any) -> None:
    if _report is not None:
        with open(_report, "a") as file:  # at once, so that a killed run has a report, too
            print(json.dumps(line), file=file)


@pytest.fixture(autouse=True)
def log_lines_are_not_held() -> Iterator[None]:
    """A client that is abandoned inside a step would hold back the log lines of all later tests."""
    yield
    held, HELD.lines = HELD.lines, None
    assert held is None, held


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that runs in this process changes its logging, and later tests would not see lines of a lower level."""
    loggers = logging.getLogger(), logging.getLogger("ottla")
    levels = [each.level for each in loggers]
    yield
    for handler in loggers[0].handlers[:]:
        if type(handler) is logging.StreamHandler:  # its stderr is gone
            loggers[0].removeHandler(handler)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def no_loop_of_zeroconf_is_left() -> Iterator[None]:
    """It uses the global random generator, and hypothesis fails a later test during which that generator changes."""
    yield
    assert not loops(), f"a test of this file leaves a thread of zeroconf: {loops()}"
