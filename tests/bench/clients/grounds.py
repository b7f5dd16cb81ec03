"""Where clients are measured: on the canned broker, on one that runs already, or on Apache Kafka started for it."""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import trio
import trustme

import ottla
from tests import kafka
from tests.bench.clients import canned
from tests.bench.clients.cases import Case
from tests.bench.clients.process import run
from tests.bench.clients.task import Task
from tests.tls import kafka_store

FILL_SECONDS = 600.0
CLUSTER = 3
FORGETFUL = {
    "log.segment.bytes": str(64 * 2**20),
    "log.retention.bytes": str(64 * 2**20),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
"""Kafka keeps little of what is written: a disk that cannot follow would be all that is measured."""
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
        ca: the file of the CA, where the broker speaks TLS.
    """

    bootstrap: str
    prefix: str = canned.PREFIX
    count: int | None = None
    meanwhile: Callable[[float], None] | None = None
    ca: str | None = None


class Target(Protocol):
    """What `main` was asked to measure on."""

    name: str

    def refuses(self, case: Case) -> str | None:
        """Why the case makes no sense here."""

    def ground(
        self, case: Case, records: int | None, size: int, compression: str
    ) -> "contextlib.AbstractContextManager[Ground]":
        """Prepare a case; the rest as the command line gave it."""


class Canned:
    """A canned broker for each case."""

    name = "a canned broker"

    def refuses(self, case: Case) -> str | None:
        if case.transactional:
            return "a canned broker has no transactions: --kafka starts one that has"
        return "a canned broker has no nodes to kill: --kafka starts three" if case.kills else None

    @contextlib.contextmanager
    def ground(self, case: Case, records: int | None, size: int, compression: str) -> Iterator[Ground]:
        shape = {"topics": case.topics, "partitions": case.partitions, "end": case.end}
        with canned.running(**shape, size=size, compression=compression) as bootstrap:
            yield Ground(bootstrap)


class Running:
    """A broker that runs already. What is made there is removed."""

    CONSUMED = 1_000_000, 10**9
    PRODUCED = 200_000, 5 * 10**8
    """Records and bytes at most, by default: few enough for its disks, as every client writes them in every round."""

    def __init__(self, bootstrap: str) -> None:
        self.name, self._bootstrap = f"the broker at {bootstrap}", bootstrap

    def refuses(self, case: Case) -> str | None:
        if case.kills:
            return "nodes of others are not killed: --kafka without an address starts three"
        return "only the canned broker has as many records to give and to take (--canned)" if case.steady else None

    @contextlib.contextmanager
    def ground(self, case: Case, records: int | None, size: int, compression: str) -> Iterator[Ground]:
        count = records or _many(size, *(self.CONSUMED if case.reads else self.PRODUCED))
        with topics(self._bootstrap, case, count, size, compression) as prefix:
            yield Ground(self._bootstrap, prefix, count)


class Apache(Running):
    """Apache Kafka, started when a case needs it: one node, or three that are killed; ``tls``: clients speak it."""

    def __init__(self, release: kafka.Release = kafka.NOW, *, tls: bool = False) -> None:
        self.name = f"Apache Kafka {release.version}" + (", over TLS" if tls else "")
        self._release, self._tls = release, tls

    def refuses(self, case: Case) -> str | None:
        return None if case.kills else super().refuses(case)

    @contextlib.contextmanager
    def ground(self, case: Case, records: int | None, size: int, compression: str) -> Iterator[Ground]:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
            nodes = CLUSTER if case.kills else 1
            settings, listeners = {"min.insync.replicas": str((nodes + 1) // 2)}, {}
            if not (case.reads or case.kills):
                settings |= FORGETFUL
            if self._tls:
                settings |= kafka_store(Path(home), trustme.CA(), kafka.HOST)
                listeners["TLS"] = "SSL"
            cluster = kafka.start(Path(home) / "kafka", nodes, settings, self._release, HEAP, listeners)
            try:
                count = records or (_many(size, *self.CONSUMED) if case.reads else None)
                with topics(cluster.bootstrap, case, count, size, compression) as prefix:
                    yield Ground(
                        cluster.listener("TLS") if self._tls else cluster.bootstrap,
                        prefix,
                        count,
                        striking(cluster) if case.kills else None,
                        settings.get("ssl.truststore.location"),
                    )
            finally:
                cluster.stop()


def _many(size: int, records: int, volume: int) -> int:
    return min(records, volume // max(size, 1))


@contextlib.contextmanager
def topics(bootstrap: str, case: Case, count: int | None, size: int, compression: str) -> Iterator[str]:
    """The topics of a case, filled with ``count`` records if it reads; gives the prefix of their names."""
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
                compression=compression,
                seconds=FILL_SECONDS if case.end == canned.ENDLESS else 0.0,
                count=count,
            )
            run(task, FILL_SECONDS)
        yield prefix
    finally:
        trio.run(_delete, bootstrap, names)


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
