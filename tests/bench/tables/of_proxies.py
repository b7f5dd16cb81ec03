"""The table of our proxy beside others that this machine has, all in front of Apache Kafka.

None of them changes a record. Each has the port of its own that confluent-kafka connects to; the processor time of
its process is measured from the client's start to its end.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import kafka
from tests.bench.brokers.server import cpu_of
from tests.bench.clients.task import Figures, Task
from tests.bench.proxy.others import OTHERS, available
from tests.bench.proxy.run import DIRECT, PARTITIONS
from tests.bench.tables.of_clients import SIZES
from tests.bench.tables.stage import Stage, contest, run
from tests.bench.tables.table import Column, Found, Line, Table

OURS = "ottla"
PROXIES = (OURS, *OTHERS)


def _through(task: Task, port: int, pid: int) -> Figures:
    before = cpu_of(pid)
    figures = run(dataclasses.replace(task, bootstrap=f"{kafka.HOST}:{port}"))
    figures["us_per_mb"] = (cpu_of(pid) - before) * 1e6 / (figures["seen"] * task.size / 1e6)
    return figures


def _measured(stage: Stage, *, way: str, size: int) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        stage.topic(stage.kafka, PARTITIONS, size, filled=way == "consume") as topic,
        contextlib.ExitStack() as stack,
    ):
        task = dataclasses.replace(topic, client="confluent", way=way)
        works: dict[str, Callable[[], Figures]] = {DIRECT: partial(run, task)}
        for name, proxy in available(stage.kafka.bootstrap, Path(home)):
            work = works[name] = partial(_through, task, *stack.enter_context(proxy))
            work()  # the JVM of kroxylicious has to warm up
        return contest(works, stage.amounts.few)


TABLES = (
    Table(
        name="proxies",
        heads=("", "values"),
        columns=(
            Column("direct, records/s", "rate", DIRECT, digits=0),
            *(Column(f"{each}: × direct", "rate", each, DIRECT) for each in PROXIES),
            *(Column(f"{each}: processor time, µs/MB", "us_per_mb", each, digits=0) for each in PROXIES),
        ),
        lines=tuple(
            Line((way, SIZES[size]), partial(_measured, way=way, size=size))
            for way in ("produce", "consume")
            for size in (100, 1000, 10_000)
        ),
    ),
)
