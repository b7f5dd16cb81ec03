"""A chaos run: three nodes of Apache Kafka, programs that load them, and faults of both.

Rules:
- A seed decides the faults and their order, but not their exact times: processes and their clocks are real.
- The load ends after the injections do. Then everything must come to rest, without further faults.
- The run's folder keeps all output: the journals, the output of the programs, the brokers' logs.
"""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from tests.chaos import injections
from tests.chaos.injections import Injection
from tests.chaos.secured import LISTENER, SecuredProxy
from tests.chaos.setup import Role, Setup
from tests.chaos.witness import Witness
from tests.chaos.workers import WorkerFaults, Workers
from tests.kafka import Release, start
from tests.patience import HUNG

WARM_UP = HUNG
"""Seconds until the load must flow; on a busy machine imports alone take some."""
SETTINGS = {
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
HEAP = "320m"

Series = Sequence[tuple[float, float]]
"""Pairs of seconds since the start, and a value."""


@dataclass(frozen=True)
class Chart:
    """Lines over time; with ``log`` the values are on a logarithmic scale."""

    title: str
    lines: Mapping[str, Series]
    unit: str
    log: bool = False


@dataclass
class Findings:
    """The verdict on a load: its broken promises, and figures as rows and plots."""

    broken: list[str]
    rows: list[tuple[str, str]]
    charts: list[Chart] = field(default_factory=list)


@dataclass
class Result:
    """The result of a run; ``begin`` is the monotonic time at which plots start."""

    load: str
    release: Release
    seed: int
    begin: float
    load_end: float
    end: float
    injections: list[Injection]
    findings: Findings


@dataclass
class Scene:
    """A run's objects and settings, as its load gets them."""

    seed: int
    workers: Workers
    witness: Witness
    log: injections.Log
    say: Callable[[str], None]
    begin: float

    def faults(self, role: Role, kinds: Sequence[str]) -> WorkerFaults:
        return WorkerFaults(self.workers, role, kinds, self.log, random.Random(f"{self.seed} {role}s"))


class Load(ABC):
    """A load that works while nodes are broken, and its judge.

    Attributes:
        topics: the topics to create, ``{name: partitions}``.
        flows: kinds of events; a program works once it has written one of each.
        coordinated: as in `injections.Nodes`.
    """

    topics: ClassVar[Mapping[str, int]]
    flows: ClassVar[frozenset[str]]
    coordinated: tuple[str, Sequence[str]] | None = None

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @classmethod
    @abstractmethod
    def setup(cls, seed: int) -> Setup:
        """The settings that its programs share; the run fills in names and addresses."""

    @abstractmethod
    def faults(self) -> tuple[WorkerFaults, tuple[float, float]]:
        """The faults of its programs, and the range of seconds between two faults."""

    @abstractmethod
    def start(self) -> None:
        """Start the programs."""

    def watching(self) -> AbstractContextManager[object]:
        """A context that lasts from before the programs start until after they have ended."""
        return nullcontext()

    @abstractmethod
    def end(self) -> None:
        """Make the programs stop sending."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until the remaining work is done, and end the programs; the judge decides whether all was done."""

    @abstractmethod
    def gather(self) -> None:
        """Read the evidence that needs running nodes."""

    @abstractmethod
    def judge(self, load_end: float, end: float) -> Findings:
        """Judge the promises; times are on the clock of `Scene.begin`."""


def run(
    kind: type[Load],
    seconds: float,
    seed: int,
    folder: Path,
    release: Release,
    rate: float | None = None,
    say: Callable[[str], None] = print,
    *,
    secured: bool = False,
) -> Result:
    """Inject faults for so many seconds after the load has begun to flow, and judge.

    Args:
        folder: for all output; the run creates it.
        rate: records or transactions a second, for each program that sends; by default the load's own.
        secured: the programs use a proxy, as in `tests.chaos.secured`.
    """
    folder.mkdir(parents=True)
    proxy = SecuredProxy(folder / "proxy") if secured else None
    settings, listeners = (SETTINGS, {}) if proxy is None else (SETTINGS | proxy.settings, {LISTENER: "SASL_SSL"})
    kafka = start(folder / "kafka", 3, settings, release, heap=HEAP, listeners=listeners)
    setup = replace(kind.setup(seed), bootstrap=kafka.bootstrap)
    setup = setup if rate is None else replace(setup, rate=rate)
    workers = Workers(folder, setup)
    try:
        witness = Witness(kafka.bootstrap, kind.topics)
        witness.create_topics()
        if proxy is not None:
            workers.use(proxy.start(kafka, setup, kind.topics))
        begin = time.monotonic()
        log = injections.Log(begin, say)
        load = kind(Scene(seed, workers, witness, log, say, begin))
        with load.watching():
            load.start()
            _await_load(workers, load.flows)
            witness.await_in_sync()
            nodes = injections.Nodes(kafka, witness, log, random.Random(f"{seed} nodes"), load.coordinated)
            faults, between = load.faults()
            tracks = [(nodes.kinds, injections.BETWEEN), (faults.kinds, between)]
            _inject(tracks, seed, time.monotonic() + seconds)
            load.end()
            load_end = time.monotonic()
            say(f"{load_end - begin:6.1f} s  the load has ended")
            load.settle()
        say(f"{time.monotonic() - begin:6.1f} s  reading the log")
        load.gather()
    finally:
        workers.stop()
        kafka.stop()
        if proxy is not None:
            proxy.stop()
    end = time.monotonic()
    name = f"{kind.__name__} by a secured proxy" if secured else kind.__name__
    return Result(name, release, seed, begin, load_end, end, log.all, load.judge(load_end, end))


def _inject(
    tracks: Sequence[tuple[Mapping[str, Callable[[], None]], tuple[float, float]]], seed: int, until: float
) -> None:
    """Run all tracks at once."""
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


def _await_load(workers: Workers, flows: frozenset[str]) -> None:
    """Wait until every program works."""
    until = time.monotonic() + WARM_UP
    while any(not flows & {each[0] for each in events} for events in workers.journals().values()):
        workers.look()
        if workers.died or time.monotonic() > until:
            raise RuntimeError(f"the load does not flow after {WARM_UP:g} s: {workers.died or list(workers.setups)}")
        time.sleep(0.5)
