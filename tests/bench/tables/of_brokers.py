"""Tables of brokerlite beside Apache Kafka. Both run for the whole run, and one of them works at a time."""

import dataclasses
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from tests.bench.brokers import crowd, java
from tests.bench.brokers.server import Apache, Broker, Brokerlite, Server
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures, Task
from tests.bench.tables.of_clients import SIZES
from tests.bench.tables.stage import FILL_SECONDS, Stage, contest, run, running
from tests.bench.tables.table import EACH, Column, Found, Line, Table

OURS, KAFKA = Brokerlite.name, Apache.name
PARTITIONS = 12
JAVA = "java"
_MIB = 2**20


def _compared(stage: Stage, measure: Callable[[Stage, Server], Figures], rounds: int) -> Found:
    brokers = {OURS: stage.brokerlite, KAFKA: stage.kafka}
    return contest({name: partial(measure, stage, server) for name, server in brokers.items()}, rounds)


def _moved(
    stage: Stage, *, size: int, client: str = "confluent", compression: str = "none", partitions: int = PARTITIONS
) -> Found:
    """Both brokers get a topic to write to, and one with records to read."""
    with ExitStack() as stack:
        works: dict[str, Callable[[], Figures]] = {}
        for name, server in ((OURS, stage.brokerlite), (KAFKA, stage.kafka)):
            tasks = {
                way: stack.enter_context(
                    stage.topic(server, partitions, size, compression=compression, filled=way == "consume")
                )
                for way in ("produce", "consume")
            }
            works[name] = partial(produced_and_consumed, server, client, tasks)
        return contest(works, stage.amounts.few)


def produced_and_consumed(server: Server, client: str, tasks: dict[str, Task]) -> Figures:
    found: Figures = {}
    for way, task in tasks.items():
        before, stored = server.cpu(), server.stored(task.partitions, prefix=task.prefix)
        figures = java.WAYS[way](task) if client == JAVA else run(dataclasses.replace(task, client=client, way=way))
        cpu = server.cpu() - before
        if way == "produce":
            moved: float = server.stored(task.partitions, prefix=task.prefix) - stored
        else:
            moved = figures.get("seen", figures["records"])
        found |= {f"{way}_rate": figures["rate"], f"{way}_broker_ms": cpu * 1e3 / (moved * task.size / _MIB)}
    return found


def _lone(stage: Stage, *, way: str) -> Found:
    def measure(stage: Stage, server: Server) -> Figures:
        with stage.topic(server, 1, 100) as task:
            task = dataclasses.replace(task, client="confluent", way=way)
            run(dataclasses.replace(task, seconds=stage.amounts.warm_up))
            before, stored = server.cpu(), server.stored(1, prefix=task.prefix)
            figures = run(task)
            each = (server.cpu() - before) / (server.stored(1, prefix=task.prefix) - stored)
            return figures | {"broker_us": each * 1e6}

    return _compared(stage, measure, stage.amounts.rounds)


def _crowd(stage: Stage) -> Found:
    busy, idle = min(stage.amounts.most, 200), min(stage.amounts.most, 1000)

    def measure(stage: Stage, server: Server) -> Figures:
        with stage.topic(server, PARTITIONS, 100) as task:
            amounts = stage.amounts
            return crowd.run(
                stage.crowd(server, task, busy=busy, idle=idle, seconds=amounts.seconds, warm_up=amounts.warm_up)
            )

    return _compared(stage, measure, stage.amounts.rounds)


def _started(stage: Stage) -> Found:
    """Each starts on an empty folder, takes the volume, is killed, and starts again."""
    kinds: tuple[Broker, ...] = (Brokerlite(), Apache())
    return contest({each.name: partial(_restarted, stage, each) for each in kinds}, stage.amounts.few)


def _restarted(stage: Stage, broker: Broker) -> Figures:
    with running(broker) as server:
        found = {"ready_s": server.ready_seconds, "idle_mb": server.memory()}
        with stage.topic(server, PARTITIONS, 1000, kept=True) as task:
            count = stage.amounts.volume // 1000
            wrote = dataclasses.replace(task, client="confluent", warm_up=0.0, seconds=FILL_SECONDS, count=count)
            run(dataclasses.replace(wrote, way="produce"))
            stored = server.stored(PARTITIONS, prefix=task.prefix)
            run(dataclasses.replace(wrote, way="consume", count=stored))
            time.sleep(stage.amounts.settle)
            found |= {"used_mb": server.memory(), "peak_mb": server.memory("VmHWM")}
            server.end(signal.SIGKILL)
            found["killed_s"] = server.start()
            _check(server, task, stored)
            found["stop_s"] = server.end()
            found["clean_s"] = server.start()
            _check(server, task, stored)
    return found


def _check(server: Server, task: Task, count: int) -> None:
    if (stored := server.stored(PARTITIONS, prefix=task.prefix)) != count:
        raise Broken(f"{count:,} records were acknowledged, but the broker has {stored:,}")


def ratios(way: str) -> tuple[Column, ...]:
    return (
        Column(f"{way}: records/s", f"{way}_rate", OURS, KAFKA),
        Column(f"{way}: processor time", f"{way}_broker_ms", OURS, KAFKA),
    )


def _lines(client: str, *sizes: int) -> tuple[Line, ...]:
    return tuple(Line((SIZES[size],), partial(_moved, size=size, client=client)) for size in sizes)


TABLES = (
    Table(
        name="brokers",
        heads=("values",),
        columns=(*ratios("produce"), *ratios("consume")),
        lines=(
            *_lines("confluent", 100, 1000, 10_000),
            Line(("1 KB, lz4",), partial(_moved, size=1000, compression="lz4")),
            Line(("1 KB, 100 partitions",), partial(_moved, size=1000, partitions=100)),
        ),
    ),
    Table(
        name="brokers-ottla",
        heads=("values",),
        columns=(*ratios("produce"), *ratios("consume")),
        lines=_lines("ottla", 100, 1000),
    ),
    Table(
        name="brokers-java",
        heads=("values",),
        columns=(*ratios("produce"), *ratios("consume")),
        lines=_lines(JAVA, 100, 1000),
    ),
    Table(
        name="brokers-lone",
        heads=("a record of 100 B, awaited",),
        columns=(
            Column("p50", "p50_ms", OURS, KAFKA),
            Column("p99", "p99_ms", OURS, KAFKA),
            Column("brokerlite's p50, ms", "p50_ms", OURS),
            Column("until the reader has it, p50", "read_p50_ms", OURS, KAFKA),
            Column("brokerlite's processor time, µs", "broker_us", OURS, digits=0),
            Column("processor time", "broker_us", OURS, KAFKA),
        ),
        lines=(
            Line(("alone",), partial(_lone, way="lone")),
            Line(("with a reader that waits at the topic's end",), partial(_lone, way="relayed")),
        ),
    ),
    Table(
        name="brokers-crowd",
        heads=("connections",),
        columns=(
            Column("requests/s", "rate", OURS, KAFKA),
            Column("brokerlite's requests/s", "rate", OURS, digits=0),
            Column("p50", "p50_ms", OURS, KAFKA),
            Column("p99", "p99_ms", OURS, KAFKA),
            Column("processor time", "broker_us", OURS, KAFKA),
        ),
        lines=(Line(("200 busy, 1,000 idle",), _crowd),),
    ),
    Table(
        name="brokers-start",
        heads=("broker",),
        columns=(
            Column("ready on an empty folder, s", "ready_s", EACH),
            Column("after kill -9, s", "killed_s", EACH),
            Column("after a clean stop, s", "clean_s", EACH),
            Column("stop, s", "stop_s", EACH),
            Column("memory at the start, MB", "idle_mb", EACH, digits=0),
            Column("after 1 GB was written and read, MB", "used_mb", EACH, digits=0),
            Column("at the most, MB", "peak_mb", EACH, digits=0),
        ),
        lines=(Line((), _started),),
    ),
)
