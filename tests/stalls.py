"""Run pytest while its processes are paused at random, to find tests that depend on time.

    python -m tests.stalls --seconds 0.8 -- -m "not slow" -n 3 tests/sdk
    python -m tests.stalls --all -- -m slow tests/interop

Again and again one process is paused for ``--seconds``: a worker of pytest-xdist, or else pytest itself. With ``--all``
it may also be any process below pytest: brokers, Kafka, clients of other languages. A test that fails this way will
some day fail on a busy machine. Linux only.
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
"""A part of the command line of every pytest-xdist worker."""


def stop(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)  # the length of the pause, not a wait for an event
        finally:
            os.kill(pid, signal.SIGCONT)


def main(arguments: list[str]) -> int:
    """Run pytest with pauses; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.stalls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.8, help="of each pause")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two pauses, on average")
    parser.add_argument("--all", action="store_true", help="any process below pytest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
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
        pass  # pytest gets the signal, too, and its exit code counts
    return running.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
