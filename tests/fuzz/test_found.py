"""Inputs that failed once do not fail again."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.codec import machine
from ottla.codec.apis.heartbeat import HeartbeatRequest
from tests.codec.engines import ENGINES
from tests.fuzz.__main__ import instrument
from tests.patience import WHOLE

ROOT = Path(__file__).parents[2]


def replay(*arguments: str) -> str:
    """The output of the fuzzer's ``replay``, in a process of its own: only there can the codec be imported twice."""
    if "c" not in ENGINES:
        pytest.skip("the extensions are not built, and the fuzzer compares them with the Python that does the same")
    command = [sys.executable, "-m", "tests.fuzz", "replay", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_inputs_that_failed_once_do_not_fail_again() -> None:
    assert ", 0 failed" in replay("--found")


@pytest.mark.deep
def test_the_engines_agree_on_the_whole_corpus() -> None:
    assert ", 0 failed" in replay()


def test_generated_code_reports_each_of_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # `instrument` replaces both for good, as the fuzzer wants it; monkeypatch puts them back behind the test.
    monkeypatch.setattr(machine._GeneratedCode, "block", machine._GeneratedCode.block)
    monkeypatch.setitem(machine._SHARED, "atheris", None)
    reached: list[int] = []
    instrument(machine, SimpleNamespace(_reserve_counter=lambda: 7, _trace_branch=reached.append))
    data = bytes(32)
    machine.parser.__wrapped__(HeartbeatRequest, 0)(data, 0, data)
    assert set(reached) == {7}
