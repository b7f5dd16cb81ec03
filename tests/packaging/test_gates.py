"""How `make check`, `make test` and `make deep` run their gates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gates import REPORT

GATES = Path(__file__).parents[1] / "gates.py"
MAKEFILE = f"""
good other:
\t@echo $@ ran
\t@echo '{{"count": 2}}' >> ${REPORT}
\t@echo '{{"id": "tests/$@.py::test", "seconds": 1.5, "outcome": "passed"}}' >> ${REPORT}
bad:
\t@echo '{{"id": "tests/bad.py::test", "seconds": 9, "outcome": "failed", "why": "1 == 2"}}' >> ${REPORT}
\t@exit 3
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text(MAKEFILE.replace(f"${REPORT}", f"$${REPORT}"))
    return tmp_path


def gates(tree: Path, *arguments: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [sys.executable, str(GATES), *arguments], cwd=tree, env=environment, stdout=subprocess.PIPE, text=True
    )
    return done.returncode, done.stdout


def test_the_table_and_the_slowest_tests_stand_at_the_end(tree: Path) -> None:
    code, output = gates(tree, "good", "--", "other")
    assert code == 0
    table, slowest = output.split("seconds  slowest tests\n")
    assert "good ran" in table and "other ran" in table and table.count("  ok\n") == 2
    assert slowest.splitlines()[:2] == ["      1.5  tests/other.py::test", "      1.5  tests/good.py::test"]


def test_a_first_gate_that_fails_stops_the_run(tree: Path) -> None:
    code, output = gates(tree, "bad", "good", "--", "other")
    assert code == 2  # make's own exit code for a failed target
    assert "ran" not in output and "FAILED tests/bad.py::test (bad): 1 == 2" in output


def test_the_gates_that_run_at_once_all_run(tree: Path) -> None:
    code, output = gates(tree, "--", "bad", "good", "other")
    assert code == 2
    assert "good ran" in output and "other ran" in output and "FAILED tests/bad.py::test (bad): 1 == 2" in output


def test_a_gate_that_passed_runs_again_when_a_file_has_changed(tree: Path) -> None:
    def ran() -> bool:
        code, output = gates(tree, "--resume", ".cache/passed.json", "--", "good")
        assert code == 0
        return "good ran" in output

    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    (tree / ".gitignore").write_text(".cache\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *command], cwd=tree, check=True)
    assert [ran(), ran()] == [True, False]
    (tree / "Makefile").write_text((tree / "Makefile").read_text() + "\n# edited\n")
    assert [ran(), ran()] == [True, False]


def test_a_gate_that_failed_runs_again(tree: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    assert [gates(tree, "--resume", "passed.json", "--", "bad")[0] for _ in range(2)] == [2, 2]
