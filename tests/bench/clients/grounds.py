"""Where clients are measured: on the canned broker, on one that runs already, or on Apache Kafka started for it."""

import contextlib
import dataclasses
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import trio

import ottla
from tests import kafka
from tests.bench.clients import canned
from tests.bench.clients.cases import Case
from tests.bench.clients.process import run
from tests.bench.clients.task import Task

FILL_SECONDS = 600.0
CLUSTER = 3
HEAP = "384m"
"""Of each node of three."""
STRIKES = ((0.2, 0), (0.6, 1))
"""When a node is killed, in parts of the time that is measured, and which; it comes back `DOWN` later."""
DOWN = 0.2


@dataclass(frozen=True)
class Ground:
    """A broker with the topics of a case.

    Attributes:
        prefix: of the topics' names.
        count: of records in its topics, or that are wanted there at most; ``None``: no end.
        meanwhile: what is done to the brokers during each measurement, given its seconds.
    """

    bootstrap: str
    prefix: str = canned.PREFIX
    count: int | None = None
    meanwhile: Callable[[float], None] | None = None


class Target(Protocol):
    """What `main` was asked to measure on."""

    name: str

    def refuses(self, case: Case) -> str | None:
        """Why the case makes no sense here."""

    def ground(self, case: Case, records: int | None, size: int) -> "contextlib.AbstractContextManager[Ground]":
        """Prepare a case; ``records`` and ``size`` as the command line gave them."""


class Canned:
    """A canned broker for each case."""

    name = "a canned broker"

    def refuses(self, case: Case) -> str | None:
        return "a canned broker has no nodes to kill: --kafka starts three" if case.kills else None

    @contextlib.contextmanager
    def ground(self, case: Case, records: int | None, size: int) -> Iterator[Ground]:
        with canned.running(case.topics, case.partitions, case.end, size) as bootstrap:
            yield Ground(bootstrap)


class Running:
    """A broker that runs already. What is made there is removed."""

    CONSUMED = 1_000_000
    PRODUCED = 200_000
    """Records by default: few enough for its disks, as every client produces as many in every round."""

    def __init__(self, bootstrap: str) -> None:
        self.name, self._bootstrap = f"the broker at {bootstrap}", bootstrap

    def refuses(self, case: Case) -> str | None:
        if case.kills:
            return "nodes of others are not killed: --kafka without an address starts three"
        return "only the canned broker has as many records to give and to take (--canned)" if case.steady else None

    def ground(self, case: Case, records: int | None, size: int) -> "contextlib.AbstractContextManager[Ground]":
        return self.topics(self._bootstrap, case, records, size)

    @contextlib.contextmanager
    def topics(self, bootstrap: str, case: Case, records: int | None, size: int) -> Iterator[Ground]:
        """The topics of a case, filled if it reads."""
        count = records or (self.CONSUMED if case.reads else self.PRODUCED)
        prefix = f"{canned.PREFIX}-{uuid.uuid4().hex[:6]}"
        names = canned.topic_names(case.topics, prefix)
        trio.run(_create, bootstrap, names, case.partitions)
        try:
            if case.reads:
                task = Task(
                    client="ottla",
                    way="produce" if case.end == canned.ENDLESS else "write_each",
                    bootstrap=bootstrap,
                    prefix=prefix,
                    topics=case.topics,
                    partitions=case.partitions,
                    size=size,
                    seconds=FILL_SECONDS if case.end == canned.ENDLESS else 0.0,
                    count=count,
                )
                run(task, FILL_SECONDS)
            yield Ground(bootstrap, prefix, count)
        finally:
            trio.run(_delete, bootstrap, names)


class Apache(Running):
    """Apache Kafka, started when a case needs it: one node, or three that are killed."""

    def __init__(self) -> None:
        self.name = f"Apache Kafka {kafka.VERSION}"

    def refuses(self, case: Case) -> str | None:
        return None if case.kills else super().refuses(case)

    @contextlib.contextmanager
    def ground(self, case: Case, records: int | None, size: int) -> Iterator[Ground]:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
            nodes = CLUSTER if case.kills else 1
            cluster = kafka.start(Path(home), nodes, {"min.insync.replicas": str((nodes + 1) // 2)}, heap=HEAP)
            try:
                with self.topics(cluster.bootstrap, case, records, size) as ground:
                    yield dataclasses.replace(ground, meanwhile=striking(cluster) if case.kills else None)
            finally:
                cluster.stop()


def striking(cluster: kafka.ApacheKafka) -> Callable[[float], None]:
    """Kills nodes of a cluster, each after its part of so many seconds, and starts them again."""

    def strike(seconds: float) -> None:
        start = time.monotonic()
        for when, node in STRIKES:
            time.sleep(max(start + when * seconds - time.monotonic(), 0.0))
            cluster.kill(node)
            time.sleep(max(start + (when + DOWN) * seconds - time.monotonic(), 0.0))
            cluster.revive(node)

    return strike


async def _create(bootstrap: str, names: list[str], partitions: int) -> None:
    async with ottla.connect(bootstrap) as client:
        for name in names:
            await client.create_topic(name, partitions=partitions)


async def _delete(bootstrap: str, names: list[str]) -> None:
    async with ottla.connect(bootstrap) as client:
        for name in names:
            await client.delete_topic(name)
