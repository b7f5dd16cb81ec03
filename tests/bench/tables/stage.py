"""The brokers of a run. Each starts when a table first needs it, and runs until the end.

Rules:
- One JVM serves all tables of a run, except those about its start. It works for `Amounts.jvm` seconds before anything
  is measured: it stores, answers readers, commits transactions and serves many connections, so that this is compiled.
- In each round another contestant works first. Before each one works, dirty pages are written to the disk.
- Topics that are only written keep 64 MB of each partition. Otherwise the disk would decide the figures.
"""

import contextlib
import dataclasses
import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.brokers import crowd
from tests.bench.brokers.server import Apache, Broker, Brokerlite, Server
from tests.bench.clients import canned, process
from tests.bench.clients.canned import topic_names
from tests.bench.clients.task import Figures, Task
from tests.bench.tables.table import Found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 120.0
FILL_SECONDS = 300.0
FORGETFUL = {"retention.bytes": str(64 * 2**20), "segment.bytes": str(64 * 2**20)}
_OFTEN = {"log.retention.check.interval.ms": "1000"}
_UNFENCED = {"broker.session.timeout.ms": "60000"}
"""On a busy machine the only node would otherwise lose its partitions for a moment."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """The amounts of work of a run.

    Attributes:
        rounds: the number of rounds of the tables that compare clients; others have fewer.
        seconds: the measured work of a contestant in a round.
        warm_up: seconds of the same work beforehand, which do not count.
        jvm: seconds of load before Apache Kafka is measured.
        volume: bytes of values in a topic that is read.
        spark: bytes of values that a query of Spark reads.
        settle: seconds before memory is measured.
        most: an upper limit of numbers of connections, partitions and the like.
        every: whether all lines of a table are measured, not only the first.
    """

    rounds: int = 4
    seconds: float = 5.0
    warm_up: float = 0.5
    jvm: float = 60.0
    volume: int = 10**9
    spark: int = 3 * 10**8
    settle: float = 3.0
    most: int = 10_000
    every: bool = True

    @property
    def few(self) -> int:
        """The number of rounds of the other tables."""
        return min(self.rounds, 3)


TINY = Amounts(
    rounds=1, seconds=0.1, warm_up=0.05, jvm=1.0, volume=8 * 10**6, spark=10**5, settle=0.0, most=20, every=False
)
"""Shows that every table can be made. The figures mean nothing."""


class Stage:
    """The brokers, and ways to let contestants work on them."""

    def __init__(self, amounts: Amounts) -> None:
        self.amounts = amounts
        self._exits = contextlib.ExitStack()
        self._servers: dict[str, Server] = {}
        self._done: set[str] = set()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    @property
    def kafka(self) -> Server:
        """Apache Kafka, warm."""
        return self._started(Apache(_OFTEN | _UNFENCED))

    @property
    def brokerlite(self) -> Server:
        return self._started(Brokerlite(_OFTEN))

    def _started(self, broker: Broker) -> Server:
        """The broker, started again if it has ended: one failure must not become that of all later tables."""
        server = self._servers.get(broker.name)
        if server is None or not server.is_running:
            server = self._exits.enter_context(running(broker, tls=True))
            if isinstance(broker, Apache):
                self._warm(server)
            self._servers[broker.name] = server
        return server

    @cached_property
    def spark(self) -> "SparkSession":
        from tests.bench.spark.run import session  # here, not above: PySpark takes a second

        return self._exits.enter_context(session())

    def once(self, name: str, work: Callable[[], object]) -> None:
        """Do work that several lines need, when the first of them asks for it."""
        if name not in self._done:
            work()
            self._done.add(name)

    def _warm(self, server: Server) -> None:
        end, seconds = time.monotonic() + self.amounts.jvm, self.amounts.jvm / 20
        while time.monotonic() < end:
            for size, compression in ((100, "none"), (1000, "lz4"), (10_000, "none")):
                with self.topic(server, 12, size, compression=compression, filled=True) as task:
                    run(dataclasses.replace(task, client="confluent", way="consume", seconds=seconds))
            with self.topic(server, 12, 100) as task:
                for way in ("produce", "transactions", "lone"):
                    run(dataclasses.replace(task, client="confluent", way=way, seconds=seconds))
                crowd.run(self.crowd(server, task, busy=min(self.amounts.most, 100), idle=0, seconds=seconds))

    @staticmethod
    def crowd(server: Server, task: Task, *, busy: int, idle: int, seconds: float, warm_up: float = 0.0) -> crowd.Crowd:
        """Connections to the topic of a task."""
        [topic] = topic_names(1, task.prefix)
        return crowd.Crowd(
            port=server.port,
            topic=topic,
            partitions=task.partitions,
            idle=idle,
            busy=busy,
            size=100,
            seconds=seconds,
            warm_up=warm_up,
            process=server.pid,
        )

    @contextlib.contextmanager
    def topic(
        self,
        server: Server,
        partitions: int,
        size: int,
        *,
        compression: str = "none",
        filled: bool = False,
        kept: bool = False,
    ) -> Iterator[Task]:
        """A new topic, which the end of the block removes.

        Args:
            filled: whether it has records to read, over and over.
            kept: whether it retains all records that are written there.
        """
        prefix = f"{canned.PREFIX}-{uuid.uuid4().hex[:6]}"
        configs = None if filled or kept else FORGETFUL
        with server.topic(partitions, prefix=prefix, configs=configs):
            task = Task(
                client="",
                way="",
                bootstrap=server.bootstrap,
                prefix=prefix,
                partitions=partitions,
                size=size,
                compression=compression,
                seconds=self.amounts.seconds,
                warm_up=self.amounts.warm_up,
            )
            if filled:
                count = self.amounts.volume // size
                fill = dataclasses.replace(task, client="ottla", way="produce", warm_up=0.0, seconds=FILL_SECONDS)
                run(dataclasses.replace(fill, count=count))
                task = dataclasses.replace(task, count=count, passes=True)
            yield task


@contextlib.contextmanager
def running(broker: Broker, *, tls: bool = False) -> Iterator[Server]:
    """A broker in a process of its own, on an empty folder; ``tls``: with a second listener."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        contextlib.closing(Server(broker, Path(home), tls=tls)) as server,
    ):
        server.start()
        yield server


def run(task: Task, patience: float = PATIENCE) -> Figures:
    """The figures of a client in a process of its own, which may exceed its time by ``patience`` seconds."""
    return process.run(task, task.seconds * 4 + patience)


def contest(contestants: Mapping[str, Callable[[], Figures]], rounds: int, *, flushed: bool = True) -> Found:
    """Let every contestant work once in each round, each time another one first. After a failure it works no more.

    Args:
        flushed: whether dirty pages are written to the disk before each one works.
    """
    found: Found = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        turn = number % len(names)
        for name in itertools.chain(names[turn:], names[:turn]):
            figures = found[name]
            if isinstance(figures, str):
                continue
            if flushed:
                os.sync()
            try:
                figures.append(contestants[name]())
            except Exception as error:  # whatever it is, the others go on, and the table names it
                found[name] = _said(error)
    return found


def _said(error: Exception) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def contest_of_clients(task: Task, contestants: Mapping[str, Mapping[str, object]], rounds: int) -> Found:
    """As `contest`; each contestant is the task with these attributes changed."""
    tasks = {name: dataclasses.replace(task, **given) for name, given in contestants.items()}  # type: ignore[arg-type]
    return contest({name: lambda each=each: run(each) for name, each in tasks.items()}, rounds)  # type: ignore[misc]
