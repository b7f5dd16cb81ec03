"""What the fuzzer has found is never found again."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.codec.engines import ENGINES
from tests.patience import WHOLE

ROOT = Path(__file__).parents[2]


def replay(*arguments: str) -> str:
    """What the fuzzer says when it tries its inputs again; in a process of its own, where it can import two codecs."""
    if "c" not in ENGINES:
        pytest.skip("the extensions are not built, and the fuzzer compares them with the Python that does the same")
    command = [sys.executable, "-m", "tests.fuzz", "replay", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_was_found_once_is_right_now() -> None:
    assert ", 0 failed" in replay("--found")


@pytest.mark.deep
def test_the_engines_agree_on_the_whole_corpus() -> None:
    assert ", 0 failed" in replay()
