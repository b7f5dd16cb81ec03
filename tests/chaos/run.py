"""A chaos run: three nodes of Apache Kafka, two producers, three consumers of a group, and what is done to them.

Rules:
- A seed decides what is injected and in which order, not when exactly: processes and their clocks are real.
- The load ends after the injections do; then the group must catch up with everything, and leave in peace.
- What each program says stands in a folder, which stays: journals, what they printed, the brokers' logs.
"""

import contextlib
import dataclasses
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from tests.chaos import injections, journal
from tests.chaos.injections import Injection
from tests.chaos.ledger import Bounds, Evidence, Verdict, judge
from tests.chaos.witness import Watch, Witness
from tests.chaos.worker import Role, Setup
from tests.kafka import start

TOPIC, GROUP, PARTITIONS = "chaos", "chaos-group", 9
PRODUCERS, CONSUMERS = 2, 3
WARM_UP = 90.0
"""Seconds within which the load must flow; imports alone take some on a busy machine."""
CATCH_UP = 120.0
"""Seconds for the group to read and commit what is left when the injections are over."""
ENDING = 100.0
"""Seconds for a program to end by itself; a producer may need its delivery timeout."""
SETTINGS = {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "3"}
HEAP = "320m"
ASSIGNORS = (("range",), ("cooperative-sticky",))


@dataclass
class Result:
    """Of a run; ``begin`` is the monotonic time to which plots count."""

    seed: int
    assignors: tuple[str, ...]
    begin: float
    load_end: float
    end: float
    injections: list[Injection]
    evidence: Evidence
    verdict: Verdict
    bounds: Bounds


class Workers:
    """The programs of a run, by their names."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._folder, self._setup = folder, setup
        self._lock = threading.Lock()
        self._count: dict[Role, int] = {"producer": 0, "consumer": 0}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.names: list[str] = []
        self.killed: dict[str, float] = {}
        self.died: dict[str, str] = {}

    def start(self, role: Role) -> str:
        with self._lock:
            self._count[role] += 1
            name = f"{role}-{self._count[role]}"
            setup = dataclasses.replace(
                self._setup,
                role=role,
                name=name,
                journal=str(self._folder / f"{name}.jsonl"),
                seed=self._setup.seed + len(self.names),
            )
            with (self._folder / f"{name}.txt").open("wb") as printed:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.chaos.worker", json.dumps(dataclasses.asdict(setup))],
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                )
            self.names.append(name)
            return name

    def consumers(self) -> list[str]:
        """Those that have got so far as to write something down; before that a signal would just end them."""
        names = [name for name in self.running if name.startswith("consumer")]
        return [name for name in names if (self._folder / f"{name}.jsonl").exists()]

    def kill(self, name: str) -> None:
        self.killed[name] = time.monotonic()
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def look(self) -> None:
        """Note who has ended without being told to."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[name]
                self.died[name] = self._how(name, process)

    def end(self, role: str) -> None:
        """Have all of a role end by themselves, and note who did not, or not well."""
        self.look()
        ending = {name: process for name, process in self.running.items() if name.startswith(role)}
        for process in ending.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + ENDING
        for name, process in ending.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.1))
            if process.poll() is None:
                self.died[name] = f"does not end within {ENDING:g} s"
                process.kill()
                process.wait()
            elif process.returncode:
                self.died[name] = self._how(name, process)
            del self.running[name]

    def stop(self) -> None:
        """End what still runs."""
        for process in self.running.values():
            process.kill()
            process.wait()
        self.running.clear()

    def _how(self, name: str, process: subprocess.Popen[bytes]) -> str:
        lines = (self._folder / f"{name}.txt").read_text(errors="replace").splitlines()
        said = [line.strip(" |") for line in lines if any(map(str.isalpha, line))]  # the frame of a group says nothing
        return f"exit code {process.returncode}, {said[-1] if said else 'without a word'}"

    def journals(self) -> dict[str, list[journal.Event]]:
        return {name: list(journal.read(self._folder / f"{name}.jsonl")) for name in self.names}


class ConsumerFaults:
    """kill -9, and handlers that take too long."""

    def __init__(self, workers: Workers, setup: Setup, log: injections.Log, rng: random.Random) -> None:
        self._workers, self._setup, self._log, self._rng = workers, setup, log, rng
        self.kinds = {"kill consumer": self.kill, "slow consumer": self.slow}

    def kill(self) -> None:
        name = self._any()
        with self._log.note("kill consumer", name) as injection:
            self._workers.kill(name)
            time.sleep(self._rng.uniform(*injections.REPLACED))
            injection.more = f"replaced by {self._workers.start('consumer')}"

    def slow(self) -> None:
        name = self._any()
        with self._log.note("slow consumer", name) as injection:
            self._workers.running[name].send_signal(signal.SIGUSR1)
            time.sleep(self._setup.slowness)
            injection.more = f"a handler of {self._setup.slowness:g} s, {self._setup.max_poll_interval:g} s are allowed"

    def _any(self) -> str:
        self._workers.look()
        while not (names := self._workers.consumers()):
            time.sleep(0.5)
        return self._rng.choice(names)


def run(seconds: float, seed: int, folder: Path, rate: float = 100.0, say: Callable[[str], None] = print) -> Result:
    """Play for so many seconds after the load has begun, and judge.

    Args:
        folder: for everything that is written; made anew.
        rate: records a second, of each producer.
    """
    folder.mkdir(parents=True)
    assignors = ASSIGNORS[seed % len(ASSIGNORS)]
    kafka = start(folder / "kafka", 3, SETTINGS, heap=HEAP)
    setup = Setup("producer", "", kafka.bootstrap, TOPIC, "", seed * 1000, rate=rate, group=GROUP, assignors=assignors)
    # A member that dies just before its rebalance ends, while its coordinator is stopped.
    silence = setup.session_timeout + 2 * setup.max_poll_interval + injections.PAUSES[1] + 20.0
    bounds = Bounds(setup.delivery_timeout + 5.0, silence, handler=setup.max_poll_interval)
    workers = Workers(folder, setup)
    try:
        witness = Witness(kafka.bootstrap, TOPIC, PARTITIONS, GROUP)
        witness.create_topic()
        begin = time.monotonic()
        log = injections.Log(begin, say)
        with Watch(witness) as watch:
            crew: dict[Role, int] = {"producer": PRODUCERS, "consumer": CONSUMERS}
            for role, count in crew.items():
                for _ in range(count):
                    workers.start(role)
            _await_load(workers)
            witness.await_in_sync()
            _inject(
                [
                    (injections.Nodes(kafka, witness, log, random.Random(f"{seed} nodes")).kinds, injections.BETWEEN),
                    (
                        ConsumerFaults(workers, setup, log, random.Random(f"{seed} consumers")).kinds,
                        injections.BETWEEN_CONSUMERS,
                    ),
                ],
                seed,
                time.monotonic() + seconds,
            )
            workers.end("producer")
            load_end = time.monotonic()
            say(f"{load_end - begin:6.1f} s  the producers have ended")
            _await_caught_up(witness, workers, say)
            workers.end("consumer")
        say(f"{time.monotonic() - begin:6.1f} s  reading the log")
        evidence = Evidence(
            workers.journals(), workers.killed, workers.died, witness.log(), witness.commits(), watch.seen
        )
    finally:
        workers.stop()
        kafka.stop()
    verdict = judge(evidence, bounds)
    return Result(seed, assignors, begin, load_end, time.monotonic(), log.all, evidence, verdict, bounds)


def _inject(tracks: list[tuple[dict[str, Callable[[], None]], tuple[float, float]]], seed: int, until: float) -> None:
    """Play all tracks at once."""
    running = [
        injections.Track(kinds, random.Random(f"{seed} track {number}"), between, until)
        for number, (kinds, between) in enumerate(tracks)
    ]
    for track in running:
        track.start()
    try:
        for track in running:
            track.end()
    finally:
        for track in running:
            track.interrupt()


def _await_load(workers: Workers) -> None:
    """Wait until every program does its work."""
    until = time.monotonic() + WARM_UP
    while any(not {"acked", "batch"} & {each[0] for each in events} for events in workers.journals().values()):
        workers.look()
        if workers.died or time.monotonic() > until:
            raise RuntimeError(f"the load does not flow after {WARM_UP:g} s: {workers.died or workers.names}")
        time.sleep(0.5)


def _await_caught_up(witness: Witness, workers: Workers, say: Callable[[str], None]) -> None:
    """Wait until the group has committed everything; whether it did is for the judge."""
    until = time.monotonic() + CATCH_UP
    behind: dict[int, int] = {}
    while time.monotonic() < until:
        workers.look()
        with contextlib.suppress(KafkaException):
            ends, committed = witness.ends(), witness.committed()
            behind = {each: end - committed.get(each, 0) for each, end in ends.items() if committed.get(each, 0) < end}
            if not behind:
                return
        time.sleep(0.5)
    say(f"the group did not catch up within {CATCH_UP:g} s: {behind}")
