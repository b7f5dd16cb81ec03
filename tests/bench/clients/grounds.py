"""The brokers for the clients' benchmark: the canned one, a running one, or Apache Kafka started for it."""

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
"""Kafka retains few of the records: otherwise a slow disk would decide the figures."""
HEAP = "384m"
"""The heap of each of three nodes."""
STRIKES = ((0.2, 0), (0.6, 1))
"""When to kill which node, as parts of the measured time; it restarts `DOWN` later."""
DOWN = 0.2


@dataclass(frozen=True)
class Ground:
    """A broker with the topics of a case.

    Attributes:
        prefix: the prefix of the topics' names.
        count: the number of records in its topics, or the maximum to write there; ``None``: unlimited.
        meanwhile: injects faults during each measurement; called with its seconds.
        ca: the file of the CA, if the broker speaks TLS.
    """

    bootstrap: str
    prefix: str = canned.PREFIX
    count: int | None = None
    meanwhile: Callable[[float], None] | None = None
    ca: str | None = None


class Target(Protocol):
    """The kind of broker that `main` was asked to use."""

    name: str

    def refuses(self, case: Case) -> str | None:
        """The reason why the case makes no sense here, if there is one."""

    def ground(
        self, case: Case, records: int | None, size: int, compression: str
    ) -> "contextlib.AbstractContextManager[Ground]":
        """Prepare a case; the other arguments are the command line's."""


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
    """A broker that runs already. Topics created there are removed."""

    CONSUMED = 1_000_000, 10**9
    PRODUCED = 200_000, 5 * 10**8
    """The default maximum of records and bytes: small, because every client writes them to its disks in every round."""

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
    """Apache Kafka, started when a case needs it: one node, or three of which some are killed; ``tls``: with TLS."""

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
    """Create the topics of a case, with ``count`` records if it reads; gives the prefix of their names."""
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
    """A function that kills nodes of a cluster, each after its part of the given seconds, and restarts them."""

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
