"""What every test may use, which engine the codec runs in, and the minutes that each part of the suite took.

Slow tests run last, so that a small mistake is seen early.
"""

import gc
import os
import platform
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ottla.codec import engine
from tests.gates import FAILURES
from tests.packaging import extension

pytest_plugins = ["tests.kafka"]

# How long something takes says more of the machine than of what is tested.
settings.register_profile("ottla", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A suite that a shell started in the background ignores interrupts, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

FORGIVEN = 3
"""Tests, at most, that may run again."""
RUNNING = platform.python_version()
_again = False
"""What failed a moment ago is run again (Makefile, `slow`)."""
_seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
"""Part (a folder below tests) -> seconds in [quick, slow] tests, their fixtures included."""


def pytest_configure(config: pytest.Config) -> None:
    global _again
    _again = bool(config.getoption("lf", False)) and FAILURES in os.environ
    if _again and config.cache and (failed := len(config.cache.get("cache/lastfailed", {}))) > FORGIVEN:
        pytest.exit(f"{failed} tests failed: that is no accident, so they do not run again", 1)


def pytest_report_header() -> str:
    stale = extension.stale() if engine == "c" else []
    return f"codec: {engine}" + (f", built before {' and '.join(stale)} was edited (make extension)" if stale else "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_collection_finish() -> None:
    # What is there now stays, so that the collections which tests ask for need not look at it, again and again.
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = Path(report.nodeid.partition("::")[0]).parent.name
    _seconds[part]["slow" in report.keywords] += report.duration
    if "PYTEST_XDIST_WORKER" in os.environ or not (path := os.environ.get(FAILURES)):
        return
    what = f"{report.nodeid} (Python {RUNNING}, codec in {engine})"
    with open(path, "a") as file:  # at once: a suite that is killed has a summary here, too
        if report.failed:
            why = report.longreprtext.rstrip().splitlines() or ["nobody knows why"]
            found = next((line for line in why if line.startswith("E  ")), why[-1]).removeprefix("E").strip()
            print(f"FAILED {what}: {found[:300]}", file=file)
        elif report.passed and report.when == "call" and _again:
            print(f"passed when it ran again: {what}", file=file)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _seconds:
        return
    terminalreporter.section("minutes by part")
    terminalreporter.write_line(f"{'':<14}{'quick':>7}{'slow':>7}")
    for part, (quick, slow) in sorted(_seconds.items()):
        terminalreporter.write_line(f"{part:<14}{quick / 60:7.2f}{slow / 60:7.2f}")
