"""Inputs that failed once do not fail again."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.codec.engines import ENGINES
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


def test_inputs_that_failed_once_do_not_fail_again() -> None:
    assert ", 0 failed" in replay("--found")


@pytest.mark.deep
def test_the_engines_agree_on_the_whole_corpus() -> None:
    assert ", 0 failed" in replay()
