"""Run the gates of the Makefile named as arguments, and print what each took.

    gates.py lint types quick -- clients programs pure python3.12

First ``lint types quick``, one after the other. If all is well, the others, `LANES` at once: a lane that is free takes
the next, so name the longest first. The output of one of these is printed when it has ended.

A gate ``python3.12`` is the quick tests of all that stands on the codec on another Python, in a virtual environment of
its own (``.venv-3.12``): `make other`. A Python that is not on the machine is said to be missing, and fails nothing.

Once one of the first has failed no other is begun. Those that run at once all do: a run that took an hour says all that
is wrong. The exit code is that of the first failure. The table is printed either way, and then which tests failed: the
end of the output says it all.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

LANES = 3
"""On two cores: a third of the time a test waits."""
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


class Gates:
    """What is run, and how it went.

    Attributes:
        code: the exit code of the first that failed, or 0.
        rows: of the table.
    """

    def __init__(self) -> None:
        self.code = 0
        self.rows: list[str] = []
        self._lock = threading.Lock()

    def in_turn(self, gates: Iterable[str]) -> None:
        """Run them one after the other; what they print is seen at once."""
        for gate in gates:
            self._run(gate, None, begin=not self.code)

    def at_once(self, gates: Iterable[str]) -> None:
        """Run them in `LANES`; what one prints is seen when it has ended."""
        left = iter(gates)
        lanes = [threading.Thread(target=self._lane, args=(left,)) for _ in range(LANES)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self, left: Iterator[str]) -> None:
        while True:
            with self._lock:
                gate = next(left, None)
            if gate is None:
                return
            with tempfile.TemporaryFile("w+") as output:
                self._run(gate, output, begin=True)
                output.seek(0)
                with self._lock:
                    shutil.copyfileobj(output, sys.stdout)
                    sys.stdout.flush()

    def _run(self, gate: str, output: IO[str] | None, *, begin: bool) -> None:
        start = time.monotonic()
        code, how = run(gate, output) if begin else (0, "not run")
        with self._lock:
            self.code = self.code or code
            self.rows.append(f"  {gate:<10} {(time.monotonic() - start) / 60:7.2f}  {how}")


def main(arguments: list[str]) -> int:
    """Run the gates; returns the exit code of the first that failed, or 0."""
    first, _, rest = " ".join(arguments).partition("--")
    gates = Gates()
    with tempfile.NamedTemporaryFile("r") as failures:
        os.environ[FAILURES] = failures.name
        gates.in_turn(first.split())
        if not gates.code:
            gates.at_once(rest.split())
        print("\n  gate       minutes", *gates.rows, sep="\n")
        if failed := failures.read():
            print(f"\n{failed}", end="")
    sys.stdout.flush()
    return gates.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
