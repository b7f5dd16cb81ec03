"""The cases of the brokers' benchmark. A case gets a broker that is prepared but not running, and starts it."""

import dataclasses
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tests.bench.brokers import crowd, java
from tests.bench.brokers.server import Server
from tests.bench.clients import process
from tests.bench.clients.canned import topic_names
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures, Task

JAVA = "java"
CLIENTS = {"confluent-kafka": "confluent", "ottla": "ottla", JAVA: None}
"""The load generators, and the module of each; the modules are the ones of the clients' benchmark."""
FILLER = "confluent-kafka"
PARTITIONS = 12
PATIENCE = 600.0
"""Seconds by which a client may exceed its time."""
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Options:
    """The amounts of work.

    Attributes:
        clients: names of `CLIENTS`.
        sizes: bytes of a value, one case for each.
        seconds: how long to send records; reading goes on to their end, however long that takes.
        warm_up: seconds of the same work beforehand, with each client: a JVM that has just started compiles.
        volume: the maximum bytes of values that a client produces.
        read_back: bytes to write and read before memory is measured.
        restarted: bytes of data with which a broker is killed and started again.
        settle: seconds before memory is measured.
        idle, busy: connections of a crowd.
    """

    clients: tuple[str, ...] = tuple(CLIENTS)
    sizes: tuple[int, ...] = (100, 1000, 10_000)
    seconds: float = 5.0
    warm_up: float = 5.0
    volume: int = 2**30
    read_back: int = 2**30
    restarted: int = 3 * 2**29
    settle: float = 5.0
    idle: int = 1000
    busy: int = 200


@dataclass(frozen=True)
class Row:
    """A figure as the table shows it; ``better`` says which direction is better, if either."""

    title: str
    digits: int = 0
    better: Literal["more", "less"] | None = "less"


ROWS = {
    "rate": Row("records/s", 0, "more"),
    "mb": Row("MB/s", 1, "more"),
    "requests": Row("requests/s", 0, "more"),
    "broker_ms": Row("broker's CPU, ms per MiB", 2),
    "broker_us": Row("broker's CPU, µs each", 1),
    "p50_ms": Row("p50 in ms", 2),
    "p99_ms": Row("p99 in ms", 2),
    "broker_cores": Row("cores of the broker", 2, None),
    "client_cores": Row("cores of the load generator", 2, None),
    "ready_s": Row("s until ready", 2),
    "ready_cpu_s": Row("s of CPU until ready", 2),
    "killed_s": Row("s until ready behind kill -9", 2),
    "stop_s": Row("s until it has stopped", 2),
    "clean_s": Row("s until ready behind a clean stop", 2),
    "idle_mb": Row("MB with one topic, idle", 1),
    "used_mb": Row("MB after the volume was written and read", 1),
    "settled_mb": Row("MB some seconds later", 1),
    "peak_mb": Row("MB at the most", 1),
}
"""Figures in the order of a table's lines; sizes in 10⁶ bytes, volumes in MiB, both of values."""
Found = Mapping[str, Figures]
"""What (such as a client) -> its figures."""


@dataclass(frozen=True)
class Case:
    """A case from `cases`."""

    name: str
    measure: Callable[[Server, Options], Found]


def cases(options: Options) -> list[Case]:
    each = [
        Case(f"produce and consume, {size:,} B, {compression}", partial(_moved, size=size, compression=compression))
        for size in options.sizes
        for compression in ("plain", "lz4")
    ]
    return [
        *each,
        Case("100 partitions, 1,000 B, plain", partial(_moved, size=1000, compression="plain", partitions=100)),
        Case("a lone record, 100 B, awaited", _lone),
        Case(f"many connections, {options.busy} busy, {options.idle:,} idle", _crowd),
        Case(f"start and memory, {options.read_back // _MIB:,} MiB", _started),
        Case(f"restart on {options.restarted // _MIB:,} MiB", _restarted),
    ]


def _task(server: Server, size: int, **more: object) -> Task:
    task = Task(client="", way="", bootstrap=server.bootstrap, partitions=PARTITIONS, size=size)
    return dataclasses.replace(task, **more)  # type: ignore[arg-type] # mypy takes any value for any argument


def _run(client: str, way: str, task: Task) -> Figures:
    """The figures of a client at work, in a process of its own."""
    module = CLIENTS[client]
    if module is None:
        return java.WAYS[way](task)
    return process.run(dataclasses.replace(task, client=module, way=way), task.seconds + PATIENCE)


def _moved(server: Server, options: Options, *, size: int, compression: str, partitions: int = PARTITIONS) -> Found:
    """Each client produces to a topic of its own, and reads it."""
    server.start()
    task = _task(
        server,
        size,
        partitions=partitions,
        compression="none" if compression == "plain" else compression,
        seconds=options.seconds,
        count=options.volume // size,
    )
    found: dict[str, Figures] = {}
    for client in options.clients:
        _produced_and_consumed(server, client, dataclasses.replace(task, seconds=options.warm_up))
        for way, figures in _produced_and_consumed(server, client, task).items():
            found[f"{way}, {client}"] = figures
    return found


def _produced_and_consumed(server: Server, client: str, task: Task) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with server.topic(task.partitions) as prefix:
        task = dataclasses.replace(task, prefix=prefix)
        for way in ("produce", "consume"):
            before = server.cpu()
            figures = _run(client, way, task)
            cpu = server.cpu() - before
            count = server.stored(task.partitions, prefix=prefix)
            task = dataclasses.replace(task, count=count)
            found[way] = {
                "rate": figures["rate"],
                "mb": figures["rate"] * task.size / 1e6,
                "broker_ms": cpu * 1e3 / (count * task.size / _MIB),
                "broker_cores": cpu / count * figures["rate"],
                "client_cores": figures["cpu_us"] / 1e6 * figures["rate"],
            }
    return found


def _lone(server: Server, options: Options) -> Found:
    """One record at a time: the next is sent once the last is stored."""
    server.start()
    found: dict[str, Figures] = {}
    for client in options.clients:
        if client == JAVA:  # its tool cannot do this
            continue
        with server.topic(1) as prefix:
            task = _task(server, 100, partitions=1, prefix=prefix)
            _run(client, "lone", dataclasses.replace(task, seconds=options.warm_up))
            before = server.cpu()
            figures = _run(client, "lone", dataclasses.replace(task, seconds=options.seconds))
            cpu, rate = (server.cpu() - before) / figures["records"], figures["records"] / options.seconds
        found[client] = {
            "p50_ms": figures["p50_ms"],
            "p99_ms": figures["p99_ms"],
            "broker_us": cpu * 1e6,
            "broker_cores": cpu * rate,
            "client_cores": figures["cpu_us"] / 1e6 * rate,
        }
    return found


def _crowd(server: Server, options: Options) -> Found:
    server.start()
    with server.topic(PARTITIONS) as prefix:
        before = server.cpu()
        figures = crowd.run(
            crowd.Crowd(
                port=server.port,
                topic=topic_names(1, prefix)[0],
                partitions=PARTITIONS,
                idle=options.idle,
                busy=options.busy,
                size=100,
                seconds=options.seconds,
                warm_up=options.warm_up,
            )
        )
        cpu = (server.cpu() - before) / figures["answers"]
    rate = figures["rate"]
    return {
        "100 B, produced and fetched one by one": {
            "requests": rate,
            "p50_ms": figures["p50_ms"],
            "p99_ms": figures["p99_ms"],
            "broker_us": cpu * 1e6,
            "broker_cores": cpu * rate,
            "client_cores": figures["client_cores"],
        }
    }


def _started(server: Server, options: Options) -> Found:
    """Start on an empty folder; then measure memory."""
    ready = server.start()
    found = {"ready_s": ready, "ready_cpu_s": server.cpu()}
    with server.topic(PARTITIONS) as prefix:
        time.sleep(options.settle)
        found["idle_mb"] = server.memory()
        _fill(server, prefix, options.read_back, read=True)
        found["used_mb"] = server.memory()
        time.sleep(options.settle)
        found |= {"settled_mb": server.memory(), "peak_mb": server.memory("VmHWM")}
    return {"an empty folder": found}


def _restarted(server: Server, options: Options) -> Found:
    server.start()
    with server.topic(PARTITIONS) as prefix:
        count = _fill(server, prefix, options.restarted)
        server.end(signal.SIGKILL)
        found = {"killed_s": server.start(), "ready_cpu_s": server.cpu()}
        _check_all_there(server, prefix, count)
        found["stop_s"] = server.end()
        found["clean_s"] = server.start()
        _check_all_there(server, prefix, count)
    return {f"{PARTITIONS} partitions, 1,000 B": found}


def _fill(server: Server, prefix: str, volume: int, *, read: bool = False) -> int:
    """Store so many bytes of values; returns the number of records."""
    task = _task(server, 1000, prefix=prefix, seconds=600.0, count=volume // 1000)
    _run(FILLER, "produce", task)
    count = server.stored(PARTITIONS, prefix=prefix)
    if read:
        _run(FILLER, "consume", dataclasses.replace(task, count=count))
    return count


def _check_all_there(server: Server, prefix: str, count: int) -> None:
    if (stored := server.stored(PARTITIONS, prefix=prefix)) != count:
        raise Broken(f"{count:,} records were acknowledged, but the broker has {stored:,}")
