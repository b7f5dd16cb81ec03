"""The demo's other processes: starts them, reads their reports, and ends them in every case.

Rules:
- A child reports as lines of JSON on stdout; ``{"error": "…"}`` is its last one. Its log goes to a file, whose end is
  shown if the child fails.
- Each child leads its own process group: Ctrl-C at the terminal reaches only the parent, which ends them all, with
  their own children (Spark's Java), within a second and a half.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ottla.errors import OttlaError
from ottla.properties import parse_properties

_GRACE = 1.3
"""Seconds from SIGTERM to SIGKILL."""


class DemoFailed(OttlaError):
    """The demo failed; says how, and where to look."""


def report(**facts: Any) -> None:
    """Report to the parent; called by a child."""
    print(json.dumps(facts), flush=True)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read."""
    path.touch(mode=0o600)
    path.write_text(text)


def write_settings(path: Path, settings: Mapping[str, str]) -> str:
    """Write the settings of a client with Kafka's names into a properties file; return its path."""
    write_private(path, "".join(f"{name}={value}\n" for name, value in settings.items()).replace("\\", r"\\"))
    return str(path)


def read_settings(path: str) -> dict[str, str]:
    """What `write_settings` has written."""
    return parse_properties(Path(path).read_text())


class Child:
    """A running process.

    Attributes:
        name: for the user.
    """

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log
        self._rest = b""

    async def hear(self) -> dict[str, Any] | None:
        """The child's next report; None if it ended without error.

        Raises:
            DemoFailed: it ended with an error.
        """
        assert self._process.stdout is not None, "every child is started with a pipe"
        while b"\n" not in self._rest:
            chunk = await self._process.stdout.receive_some()
            if not chunk:
                code = await self._process.wait()
                if code:
                    raise DemoFailed(f"{self.name} ended with {_ending(code)}: {self._last_words()}")
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise DemoFailed(f"{self.name}: {said['error']}")
        return said

    async def expect(self) -> dict[str, Any]:
        """The next report, from a child that must not end."""
        said = await self.hear()
        if said is None:
            raise DemoFailed(f"{self.name} ended too soon: {self._last_words()}")
        return said

    async def tell(self, line: str) -> None:
        """Send a line to the child's stdin."""
        assert self._process.stdin is not None, "every child is started with a pipe"
        with contextlib.suppress(trio.BrokenResourceError):  # `hear` will then report why
            await self._process.stdin.send_all(f"{line}\n".encode())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child and all its own children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def end(self) -> None:
        """Wait until it has ended; kill it after the grace period."""
        with trio.move_on_after(_GRACE):
            await self._process.wait()
        self.signal(signal.SIGKILL)
        await self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "every child is started with pipes"
            await trio.aclose_forcefully(pipe)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-5:]) or "it logged nothing"


class Family:
    """All children; created by `family`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    async def start(self, name: str, module: str, *arguments: str) -> Child:
        """Run ``python -m module`` with the arguments."""
        log = self._logs / f"{len(self._children)}.log"
        with log.open("wb") as stderr:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    async def end(self) -> None:
        """End all children at once."""
        for child in self._children:
            child.signal(signal.SIGTERM)
        async with trio.open_nursery() as nursery:
            for child in self._children:
                nursery.start_soon(child.end)


@asynccontextmanager
async def family(logs: Path) -> AsyncIterator[Family]:
    """Children that live no longer than the block."""
    children = Family(logs)
    try:
        yield children
    finally:
        with trio.CancelScope(shield=True):
            await children.end()


def _ending(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name
