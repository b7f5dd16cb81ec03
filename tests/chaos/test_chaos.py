"""Minutes of chaos on three nodes of Apache Kafka, under each load: every promise is kept.

Each run is a process of its own: the witnesses' library is in C, and its crash must not end the whole test run.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PROGRAM

ROOT = Path(__file__).parents[2]
OF_NODES = ("kill  ", "pause  ", "move leaders", "rolling restart")
OF_TELLERS = ("kill coordinator", "kill teller", "pause teller", "usurp teller")
OF_TRANSFORMERS = ("kill coordinator", "kill transformer", "pause transformer", "visit transformer")
RUNS = (
    ("streams", "3.9", 60, 2, OF_NODES),
    ("transfers", "4.3", 90, 1, OF_NODES + OF_TELLERS),
    ("transform", "4.3", 60, 1, OF_NODES[:3] + OF_TRANSFORMERS),
)


@pytest.mark.deep
@pytest.mark.parametrize(("load", "kafka", "seconds", "seed", "injected"), RUNS, ids=lambda each: str(each)[:9])
def test_kills_pauses_moves_and_restarts_break_no_promise(
    load: str, kafka: str, seconds: int, seed: int, injected: tuple[str, ...], tmp_path: Path
) -> None:
    said = chaos(tmp_path, "--load", load, "--kafka", kafka, "--seconds", str(seconds), "--seed", str(seed))
    assert not [each for each in injected if each not in said], said


@pytest.mark.deep
def test_they_break_none_with_logins_and_acls_on_both_sides_of_a_proxy(tmp_path: Path) -> None:
    said = chaos(tmp_path, "--secured", "--load", "streams", "--seconds", "20", "--seed", "1")
    assert not [each for each in OF_NODES if each not in said], said


def chaos(folder: Path, *what: str) -> str:
    """Return the output of a run that keeps every promise."""
    command = [sys.executable, "-m", "tests.chaos", *what, "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM)
    broken = [each.strip() for each in done.stdout.splitlines() if "BROKEN: " in each]
    assert done.returncode == 0, f"{broken}\n{done.stdout}\n{done.stderr}"
    return done.stdout
