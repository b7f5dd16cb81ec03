"""The program `ottla` as a process, for tests; no test sleeps, and every wait has a deadline."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import HUNG

PROMPT = 8.0
"""Seconds from a signal to the end of a program, which allows itself 1.8 s. A program that waits for a timeout of the
protocol instead takes 10 s or more."""

# In development mode the interpreter prints warnings to stderr, where a test sees them as errors.
COMMAND = (sys.executable, "-X", "dev", "-m", "ottla.cli")
_OUTAGES = re.compile(rb"^\S+ WARNING ottla\.sdk\.outages  .*\n", re.MULTILINE)
"""Lines about a broker that does not answer for seconds: most run in the test's process, which may be paused."""
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}


def run(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command that ends by itself; lines about outages are left out of its stderr."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], input=given, capture_output=True, timeout=HUNG, env=ENVIRONMENT
    )
    done.stderr = _OUTAGES.sub(b"", done.stderr)
    return done


class Program:
    """A running command; lines about outages are left out of its stderr."""

    def __init__(
        self, arguments: tuple[str | Path, ...], env: Mapping[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> None:
        self.process = subprocess.Popen(
            [*before, *COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**ENVIRONMENT, **(env or {})},
            start_new_session=True,
        )
        self._rest = b""

    def line(self) -> bytes:
        """The next line on stdout."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + HUNG
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert chunk, f"no line came; stderr: {self.end(signal.SIGKILL)[1]!r}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def facts(self) -> dict[str, Any]:
        """The next line, parsed as JSON."""
        facts: dict[str, Any] = json.loads(self.line())
        return facts

    def give(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end(self, number: signal.Signals, within: float = HUNG) -> tuple[int, bytes, float]:
        """Send a signal and wait for the end: the exit code, stderr, and the seconds it took."""
        assert self.process.stdin is not None
        start = time.monotonic()
        # `communicate` closes stdin, and the program might see the end of its input before the signal.
        open_stdin = os.dup(self.process.stdin.fileno())
        try:
            self.process.send_signal(number)
            out, err = self.process.communicate(timeout=within)
        finally:
            os.close(open_stdin)
        self._rest += out
        return self.process.returncode, _OUTAGES.sub(b"", err), time.monotonic() - start

    def ended(self) -> tuple[int, bytes]:
        """Wait until it ends by itself; return the exit code and stderr."""
        out, err = self.process.communicate(timeout=HUNG)
        self._rest += out
        return self.process.returncode, _OUTAGES.sub(b"", err)

    @property
    def rest(self) -> bytes:
        """The rest of stdout."""
        return self._rest


@contextmanager
def running(
    *arguments: str | Path, env: Mapping[str, str] | None = None, before: tuple[str, ...] = ()
) -> Iterator[Program]:
    """A command that runs during the block; ``before`` is a command that starts it, for example nohup."""
    program = Program(arguments, env, before)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()
