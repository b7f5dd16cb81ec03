"""Run the gates of the Makefile named as arguments, and print what each took.

    gates.py lint types quick -- clients -- pure python3.12

First ``lint types quick``, one after the other; if all is well, at once ``clients`` and ``pure python3.12``. The output
of all but the first of these lanes is printed when they have ended.

A gate ``python3.12`` is the quick tests of all that stands on the codec on another Python, in a virtual environment of
its own (``.venv-3.12``): `make other`. A Python that is not on the machine is said to be missing, and fails nothing.

A lane stops at its first gate that fails, and the exit code is that of the first failure. The table is printed either
way, and then which tests failed: the end of the output says it all.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

RUNNING = f"python{sys.version_info.major}.{sys.version_info.minor}"
FAILURES = "OTTLA_TEST_FAILURES"
"""Names the file in which `tests/conftest.py` writes a line for each test that failed."""


def interpreter(name: str) -> str | None:
    """A Python called ``name`` that starts and can make virtual environments: from the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [*filter(None, [shutil.which(name)]), *map(str, pyenv.glob(f"versions/*/bin/{name}"))]
    for path in found:
        # pyenv's shims are there for versions that do not start.
        if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return path
    return None


def run(gate: str, output: IO[str] | None) -> tuple[int, str]:
    """Run one gate; returns its exit code, and in a word how it went."""
    command = ["make", "--no-print-directory"]
    if gate == RUNNING:
        return 0, "the one that runs"
    if not gate.startswith("python"):
        command.append(gate)
    elif path := interpreter(gate):
        command += ["other", f"PYTHON={path}", f"VENV=.venv-{gate.removeprefix('python')}"]
    else:
        return 0, "not on this machine: not tested"
    print(f"\n── {gate} ──", flush=True, file=output)
    code = subprocess.run(command, stdout=output, stderr=output and subprocess.STDOUT).returncode
    return code, "FAILED" if code else "ok"


class Lane:
    """Gates that run one after the other; ``output`` is a file, or ``None`` for what is seen at once."""

    def __init__(self, gates: list[str], output: IO[str] | None = None) -> None:
        self.gates, self.output = gates, output
        self.code = 0
        self.rows: list[str] = []

    def run(self) -> None:
        for gate in self.gates:
            start = time.monotonic()
            how = "not run"
            if not self.code:
                self.code, how = run(gate, self.output)
            self.rows.append(f"  {gate:<10} {(time.monotonic() - start) / 60:7.2f}  {how}")


def main(arguments: list[str]) -> int:
    """Run the gates; returns the exit code of the first that failed, or 0."""
    first, *rest = [text.split() for text in " ".join(arguments).split("--")]
    with contextlib.ExitStack() as files:
        failures = files.enter_context(tempfile.NamedTemporaryFile("r"))
        os.environ[FAILURES] = failures.name
        lanes = [Lane(first)]
        lanes[0].run()
        if rest and not lanes[0].code:
            beside = [Lane(gates, files.enter_context(tempfile.TemporaryFile("w+"))) for gates in rest[1:]]
            lanes += [Lane(rest[0]), *beside]
            threads = [threading.Thread(target=lane.run) for lane in lanes[1:]]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for lane in beside:
                assert lane.output is not None
                lane.output.seek(0)
                shutil.copyfileobj(lane.output, sys.stdout)
        print("\n  gate       minutes", *(row for lane in lanes for row in lane.rows), sep="\n")
        if failed := failures.read():
            print(f"\n{failed}", end="")
    sys.stdout.flush()
    return next((lane.code for lane in lanes if lane.code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
