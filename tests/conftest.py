"""What every test may use, which engine the codec runs in, and the minutes that each part of the suite took.

Slow tests run last, so that a small mistake is seen early.
"""

import gc
import inspect
import logging
import os
import platform
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ottla.codec import engine
from ottla.sdk.logs import HELD
from tests import steps
from tests.gates import FAILURES
from tests.packaging import extension
from tests.patience import WHOLE

pytest_plugins = ["tests.kafka"]

# How long something takes says more of the machine than of what is tested.
settings.register_profile("ottla", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

# In debug mode it warns of each callback that took a tenth of a second, which a busy machine makes of many.
logging.getLogger("asyncio").setLevel(logging.ERROR)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A suite that a shell started in the background ignores interrupts, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Spark's JVM compiles as quickly as it can: no test runs for so long that more would pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

PEERS = {"brokerlite", "chaos", "interop", "proxy"}
"""Folders with tests of clients in other languages."""
RUNNING = platform.python_version()
_seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
"""Part (a folder below tests) -> seconds in [quick, slow] tests, their fixtures included."""


def pytest_report_header() -> str:
    stale = extension.stale() if engine == "c" else []
    return f"codec: {engine}" + (f", built before {' and '.join(stale)} was edited (make extension)" if stale else "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WHOLE))
        if (
            isinstance(item, pytest.Function)
            and inspect.iscoroutinefunction(item.obj)
            and "no_step_holds_the_loop" in item.fixturenames
        ):
            item.add_marker(pytest.mark.trio(run=steps.run), append=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    slow = {each.path.parent.name for each in session.items if each.get_closest_marker("slow") is not None}
    if slow & PEERS and not session.config.option.collectonly:
        from tests.interop.programs import build_all  # not before the plugins, which it needs

        build_all()
    # What is there now stays, so that the collections which tests ask for need not look at it, again and again.
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = Path(report.nodeid.partition("::")[0]).parent.name
    _seconds[part]["slow" in report.keywords] += report.duration
    path = os.environ.get(FAILURES)
    if not report.failed or path is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    what = f"{report.nodeid} (Python {RUNNING}, codec in {engine})"
    why = report.longreprtext.rstrip().splitlines() or ["nobody knows why"]
    found = next((line for line in why if line.startswith("E  ")), why[-1]).removeprefix("E").strip()
    with open(path, "a") as file:  # at once: a suite that is killed has a summary here, too
        print(f"FAILED {what}: {found[:300]}", file=file)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _seconds:
        return
    terminalreporter.section("minutes by part")
    terminalreporter.write_line(f"{'':<14}{'quick':>7}{'slow':>7}")
    for part, (quick, slow) in sorted(_seconds.items()):
        terminalreporter.write_line(f"{part:<14}{quick / 60:7.2f}{slow / 60:7.2f}")


@pytest.fixture(autouse=True)
def log_lines_are_not_held() -> Iterator[None]:
    """What leaves a client in the midst of a step would keep the lines of all tests behind it."""
    yield
    held, HELD.lines = HELD.lines, None
    assert held is None, held
