"""Two minutes of chaos on three nodes of Apache Kafka: every promise is kept.

In a process of its own, because the witnesses' library is C, and its end must not be that of the whole suite.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INJECTED = ("kill", "pause", "move leaders", "rolling restart")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_minutes_of_kills_pauses_moves_and_restarts_break_no_promise(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seconds", "120", "--seed", "2", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not [each for each in INJECTED if each not in done.stdout], done.stdout
