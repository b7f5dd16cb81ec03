"""The programs of a chaos run, and their faults."""

import contextlib
import dataclasses
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.chaos import journal
from tests.chaos.fences import Programs
from tests.chaos.injections import REPLACED, Log
from tests.chaos.setup import Role, Setup
from tests.patience import HUNG

ENDING = HUNG
"""Seconds for a program to end in good order; a producer may need its delivery timeout."""
PAUSES = (2.0, 20.0)
"""Seconds for which a program is stopped: shorter and longer than the timeouts of its session and its transactions."""
VISIT = (5.0, 15.0)
"""Seconds for which an additional member stays in the group."""


class Workers:
    """The programs of a run, by their names.

    Attributes:
        killed: name -> when the run killed it.
        died: name -> how the program failed on its own.
        fenced: programs that ended because of a newer producer.
    """

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._folder, self._setup = folder, setup
        self._lock = threading.Lock()
        self.setups: dict[str, Setup] = {}
        self.started: dict[str, float] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: dict[str, float] = {}
        self.died: dict[str, str] = {}
        self.fenced: list[str] = []

    def use(self, setup: Setup) -> None:
        """Start later programs with these settings."""
        self._setup = setup

    def start(self, role: Role, transactional_id: str = "", transaction_timeout: float = 0.0) -> str:
        """Start another program of a role, and return its name."""
        with self._lock:
            name = f"{role}-{1 + sum(each.role == role for each in self.setups.values())}"
            setup = self.setups[name] = dataclasses.replace(
                self._setup,
                role=role,
                name=name,
                journal=str(self._folder / f"{name}.jsonl"),
                seed=self._setup.seed + len(self.setups),
                transactional_id=transactional_id,
                transaction_timeout=transaction_timeout or self._setup.transaction_timeout,
            )
            self.started[name] = time.monotonic()
            with (self._folder / f"{name}.txt").open("wb") as printed:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.chaos.worker", json.dumps(dataclasses.asdict(setup))],
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                )
            return name

    def successor(self, name: str) -> str:
        """Start a program that replaces another, with the same transactional id, and return its name."""
        setup = self.setups[name]
        return self.start(setup.role, setup.transactional_id, setup.transaction_timeout)

    def ready(self, role: Role) -> list[str]:
        """Programs whose journal has an event; before that, a signal would just end them."""
        return [name for name in self.running if self.setups[name].role == role and self._writes(name)]

    def _writes(self, name: str) -> bool:
        journal = self._folder / f"{name}.jsonl"
        return journal.exists() and journal.stat().st_size > 0

    def signal(self, name: str, what: signal.Signals) -> None:
        self.running[name].send_signal(what)

    def kill(self, name: str) -> None:
        self.killed[name] = time.monotonic()
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def look(self) -> None:
        """Record the programs that have ended on their own."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                self._note_end(name, process)

    def end(self, names: Iterable[str]) -> None:
        """Ask programs to end, and record those which did not end, or ended with an error."""
        until = time.monotonic() + ENDING
        wanted = list(names)
        while time.monotonic() < until:
            self.look()
            ending = [name for name in wanted if name in self.running]
            if all(map(self._writes, ending)):
                break
            time.sleep(0.5)
        for name in ending:
            self.running[name].send_signal(signal.SIGTERM)
        until = time.monotonic() + ENDING
        for name in ending:
            self.await_end(name, max(until - time.monotonic(), 0.1))

    def end_all(self, role: Role) -> None:
        self.end([name for name in self.running if self.setups[name].role == role])

    def await_end(self, name: str, seconds: float) -> None:
        """Wait for the end of a program that must end, such as a fenced one."""
        process = self.running[name]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        del self.running[name]
        if process.returncode is None:
            self.died[name] = f"does not end within {seconds:.0f} s"
            process.kill()
            process.wait()
        else:
            self._note_end(name, process, expected=True)

    def stop(self) -> None:
        """End all programs that still run."""
        for process in self.running.values():
            process.kill()
            process.wait()
        self.running.clear()

    def events(self, name: str) -> list[journal.Event]:
        return list(journal.read(self._folder / f"{name}.jsonl"))

    def programs(self) -> Programs:
        """The evidence about all of them."""
        return Programs(
            self.journals(),
            {name: each.transactional_id for name, each in self.setups.items()},
            {name: each.transaction_timeout for name, each in self.setups.items()},
            self.started,
            list(self.killed),
            self.died,
        )

    def journals(self) -> dict[str, list[journal.Event]]:
        return {name: self.events(name) for name in self.setups}

    def _note_end(self, name: str, process: subprocess.Popen[bytes], *, expected: bool = False) -> None:
        fenced = any(kind == "fenced" for kind, *_ in self.events(name))
        if fenced:
            self.fenced.append(name)
        if process.returncode or not (fenced or expected):
            lines = (self._folder / f"{name}.txt").read_text(errors="replace").splitlines()
            said = [line.strip(" |") for line in lines if any(map(str.isalpha, line))]  # not an exception group's frame
            self.died[name] = f"exit code {process.returncode}, {said[-1] if said else 'without a word'}"


class WorkerFaults:
    """Injects faults of the programs of a role.

    Args:
        kinds: names of the methods; each is a kind of fault.
    """

    def __init__(self, workers: Workers, role: Role, kinds: Iterable[str], log: Log, rng: random.Random) -> None:
        self._workers, self._role, self._log, self._rng = workers, role, log, rng
        self.kinds: dict[str, Callable[[], None]] = {
            f"{kind.replace('_', ' ')} {role}": getattr(self, kind) for kind in kinds
        }

    def kill(self) -> None:
        """Kill a program with kill -9, and start its replacement."""
        name = self._any()
        with self._log.note(f"kill {self._role}", name) as injection:
            self._workers.kill(name)
            time.sleep(self._rng.uniform(*REPLACED))
            injection.more = f"replaced by {self._workers.successor(name)}"

    def slow(self) -> None:
        """Make a handler too slow."""
        name = self._any()
        setup = self._workers.setups[name]
        with self._log.note(f"slow {self._role}", name) as injection:
            self._workers.signal(name, signal.SIGUSR1)
            time.sleep(setup.slowness)
            injection.more = f"a handler of {setup.slowness:g} s, {setup.max_poll_interval:g} s are allowed"

    def pause(self) -> None:
        name = self._any()
        with self._log.note(f"pause {self._role}", name):
            self._workers.signal(name, signal.SIGSTOP)
            time.sleep(self._rng.uniform(*PAUSES))
            self._workers.signal(name, signal.SIGCONT)

    def usurp(self) -> None:
        """Start another program with the transactional id of a running or stopped program, which must then end."""
        # A program without any transaction could initialize its producer after its successor, and fence it.
        name = self._any("open")
        stopped = self._rng.random() < 0.5
        with self._log.note(f"usurp {self._role}", name) as injection:
            if stopped:
                self._workers.signal(name, signal.SIGSTOP)
            successor = self._workers.successor(name)
            time.sleep(self._rng.uniform(*PAUSES))
            if stopped:
                self._workers.signal(name, signal.SIGCONT)
            self._workers.await_end(name, ENDING)
            injection.more = f"by {successor}, while it {'was stopped' if stopped else 'ran'}"

    def visit(self) -> None:
        """Add a member to the group, which later leaves in good order."""
        with self._log.note(f"visit {self._role}", "") as injection:
            injection.target = name = self._workers.start(self._role, f"visitor-{self._rng.randrange(10**6)}")
            time.sleep(self._rng.uniform(*VISIT))
            self._workers.end([name])
            injection.more = "came and left"

    def _any(self, event: str = "") -> str:
        """A running program that has written such an ``event``.

        Programs that were fenced for the age of their transaction are replaced first.
        """
        self._workers.look()
        heirs = {self._workers.setups[name].transactional_id for name in self._workers.running}
        for name in self._workers.fenced:
            if self._workers.setups[name].transactional_id not in heirs:
                heirs.add(self._workers.setups[name].transactional_id)
                self._workers.successor(name)
        while not (names := [each for each in self._workers.ready(self._role) if self._has_written(each, event)]):
            time.sleep(0.5)
        return self._rng.choice(names)

    def _has_written(self, name: str, event: str) -> bool:
        return not event or any(kind == event for kind, *_ in self._workers.events(name))
