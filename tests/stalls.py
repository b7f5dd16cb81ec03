"""Run pytest on a machine that seems to stand still now and then, to find tests that lean on time.

    python -m tests.stalls --seconds 0.8 -- -m "not slow" -n 3 tests/sdk
    python -m tests.stalls --all -- -m slow tests/interop

Again and again one process is stopped for ``--seconds``: of the workers of pytest-xdist, or of pytest itself; with
``--all`` any that was started below it, too: brokers, Kafka, clients of other languages. A test that fails under this
fails one day on a busy machine. Linux only.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

from tests.processes import below

WORKER = "sys.stdin.readline"
"""In the command line of each of pytest-xdist's."""


def stop(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)  # in which it stands still: nothing is waited for
        finally:
            os.kill(pid, signal.SIGCONT)


def main(arguments: list[str]) -> int:
    """Returns pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.stalls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.8, help="that a process stands still")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two of them, on average")
    parser.add_argument("--all", action="store_true", help="any process below pytest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, behind --")
    given = parser.parse_args(arguments)
    rng = random.Random(given.seed)
    running = subprocess.Popen([sys.executable, "-X", "dev", "-m", "pytest", *given.pytest])
    try:
        while running.poll() is None:
            started = below({running.pid})
            wanted = [pid for pid, (_, command) in started.items() if given.all or WORKER in command]
            stop(rng.choice([*wanted, running.pid] if given.all else wanted or [running.pid]), given.seconds)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(rng.uniform(0.5, 1.5) * given.every)
    except KeyboardInterrupt:
        pass  # pytest has it, too
    return running.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
