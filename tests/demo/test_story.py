"""The demo's verdict, and its handling of its processes."""

import importlib.util
import os
import signal
from pathlib import Path

import pytest
import trio

from ottla.cli.demo import story
from ottla.cli.demo.children import DemoFailed, family
from ottla.cli.demo.expected import Days, Difference, Fleet, Scatter
from ottla.cli.demo.story import Finding, Findings, Stopwatch, Truth, wrongs
from ottla.errors import ConfigurationError, TimeoutExpired

ALL_THERE = Difference(missing=0, doubled=0, foreign=0)
SCATTER = Scatter(records=4, without_key=1, aircraft=2, scattered=1, counted_apart=3)
DAYS = {"2013-01-01": {"EWR": 3, "JFK": 1}}
TRUTH = Truth(scatter={"t": SCATTER}, fleets={"UA": Fleet(flights=4)}, names={}, days=DAYS)


def finding(
    scatter: Scatter = SCATTER,
    fleets: dict[str, Fleet] | None = None,
    difference: Difference = ALL_THERE,
    days: Days = DAYS,
) -> Findings:
    found = Finding(scatter=scatter, fleets=fleets or {"UA": Fleet(flights=4)}, difference=difference)
    return Findings(topics={"t": found}, days=days)


def test_nothing_is_wrong_if_all_counts_are_as_computed() -> None:
    assert wrongs(TRUTH, finding()) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (finding(difference=Difference(missing=1, doubled=0, foreign=0)), "missing=1"),
        (finding(difference=Difference(missing=0, doubled=1, foreign=0)), "doubled=1"),
        (finding(scatter=Scatter(records=4, without_key=1, aircraft=2, scattered=0, counted_apart=3)), "scattered=0"),
        (finding(fleets={"UA": Fleet(flights=3)}), "flights=3"),
        (finding(fleets={"UA": Fleet(flights=4), "XX": Fleet(flights=1)}), "carrier XX"),
        (finding(days={"2013-01-01": {"EWR": 3}}), "2013-01-01, as a stream: expected {'EWR': 3, 'JFK': 1}, found"),
        (finding(days=DAYS | {"2013-01-02": {"EWR": 1}}), "2013-01-02, as a stream: expected None"),
        (Findings(days=DAYS), "reported nothing"),
    ],
)
def test_every_count_that_is_off_is_named(found: Findings, words: str) -> None:
    assert [words in wrong for wrong in wrongs(TRUTH, found)] == [True]


def test_missing_packages_are_named_with_the_way_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else object())
    with pytest.raises(ConfigurationError, match=r"^the demo needs pyspark: pip install 'ottla\[demo\]'$"):
        story.need_extras()


async def test_a_step_that_takes_too_long_is_an_error_that_names_it(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(TimeoutExpired, match="'sleep' is not done after 5 s"), Stopwatch().step("sleep", 5):
        await trio.sleep(6)


@pytest.fixture
def talker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that runs the Python code that it gets."""
    (tmp_path / "talker.py").write_text("import sys, json, os, time\nexec(sys.argv[1])\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "talker"


async def test_a_child_is_heard_line_by_line_and_answered(tmp_path: Path, talker: str) -> None:
    code = "print(json.dumps({'n': 1}), flush=True); print(json.dumps({'heard': sys.stdin.readline()}))"
    async with family(tmp_path) as children:
        child = await children.start("x", talker, code)
        assert await child.hear() == {"n": 1}
        await child.tell("go")
        assert await child.expect() == {"heard": "go\n"}
        assert await child.hear() is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('why', file=sys.stderr); sys.exit(3)", "x ended with code 3: why"),
        ("os.kill(os.getpid(), 9)", "x ended with SIGKILL: it logged nothing"),
        ("print(json.dumps({'error': 'no such thing'})); sys.exit(1)", "x: no such thing"),
    ],
)
async def test_a_child_that_fails_says_why(tmp_path: Path, talker: str, code: str, words: str) -> None:
    async with family(tmp_path) as children:
        child = await children.start("x", talker, code)
        with pytest.raises(DemoFailed, match=words):
            await child.hear()


async def test_no_child_outlives_the_family_nor_what_it_started(tmp_path: Path, talker: str) -> None:
    code = (
        "import subprocess, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(json.dumps({'pids': [os.getpid(), below.pid]}), flush=True); time.sleep(600)"
    )
    with trio.CancelScope() as scope:
        async with family(tmp_path) as children:
            child = await children.start("x", talker, code)
            said = await child.expect()
            start = trio.current_time()
            scope.cancel()
            await trio.sleep_forever()
    assert trio.current_time() - start < 60, "the children sleep for 600 s"
    for pid in said["pids"]:
        await _gone(pid)


async def _gone(pid: int) -> None:
    """Wait until a process has ended; a zombie that its new parent has not yet waited for counts as ended."""
    with trio.fail_after(60):
        while True:
            try:
                os.kill(pid, signal.SIG_DFL)
                if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            except (ProcessLookupError, FileNotFoundError):
                return
            await trio.sleep(0.01)
