"""The proxy beside a direct connection to the same broker, in the same run.

Each case is measured in these ways, one after the other in each round:

    direct              without a proxy
    passed              through a proxy without a rule for the topic
    observe             through a proxy that passes the records, and counts the keys outside their partition
    rewrite             through a proxy that moves the records: no two of them are certain to stay together
    rewrite, journal    the same with --state
    copy                through a proxy that moves the records, and sends the same ones to a further topic

Everything is a process of its own; the broker is the canned one, which costs little, or Apache Kafka (``--kafka``).
Synthetic producers (`tests.bench.proxy.load`) send batches of an exact size. Their keys are in librdkafka's partitions,
and the proxy moves them to Java's. Processor time, user's and system's, is measured of the proxy's process; it says
how many records a second one core handles. Rates and latencies are in elapsed time, which other programs on the
machine affect.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ottla.codec import engine
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from tests import kafka
from tests.bench.brokers.server import Apache, Server, memory_of
from tests.bench.clients import canned, process
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures, Task
from tests.bench.peer import Peer
from tests.bench.proxy import load
from tests.bench.proxy.load import Load

PARTITIONS = 12
KB16, MB1 = 16 * 2**10, 10**6
"""Bytes of a batch; a request has one of the larger batches, or a smaller one for each partition."""
READY_SECONDS = 20.0
PATIENCE = 120.0
ROUNDS = 5
_METADATA = 4
"""The first version that a proxy with ACLs offers."""
_TOPIC = canned.topic_names(1)[0]
DIRECT, PASSED, OBSERVE, REWRITE, JOURNAL = "direct", "passed", "observe", "rewrite", "rewrite, journal"
COPY = "copy"
WAYS = (DIRECT, PASSED, OBSERVE, REWRITE, JOURNAL, COPY)


@dataclass(frozen=True)
class Row:
    """A figure of the table.

    Attributes:
        compared: the table compares it with another way, by a ratio (×) or a difference (+).
        base: that way.
    """

    title: str
    digits: int
    compared: str = ""
    base: str = DIRECT


ROWS = {
    "rate": Row("records/s", 0, "×"),
    "mb": Row("MB/s", 0),
    "per_core": Row("records/s of a core", 0),
    "us_per_mb": Row("us of the proxy for each MB", 0, "×", PASSED),
    "p50_ms": Row("p50 in ms", 2, "+"),
    "p99_ms": Row("p99 in ms", 2),
    "kb": Row("KB of memory for each producer", 1),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case, which is measured in all ways.

    Attributes:
        measure: called with the port to connect to, the process id of the proxy if there is one, and seconds.
    """

    name: str
    measure: Callable[[int, int | None, float], Figures]
    rows: tuple[str, ...]
    ways: tuple[str, ...] = WAYS


def _produced(given: Load) -> Callable[[int, int | None, float], Figures]:
    def measure(port: int, pid: int | None, seconds: float) -> Figures:
        figures = load.run(replace(given, port=port, process=pid, seconds=seconds, warm_up=seconds / 4))
        if pid is not None and figures["cpu_us"]:  # a very short measurement may be below the resolution of its clock
            figures["per_core"] = 1e6 / figures["cpu_us"]
            figures["us_per_mb"] = figures["cpu_us"] / given.size * 1e6
        return figures

    return measure


def _by_client(client: str, way: str, size: int, compression: str) -> Callable[[int, int | None, float], Figures]:
    def measure(port: int, pid: int | None, seconds: float) -> Figures:
        task = Task(
            client=client,
            way=way,
            bootstrap=f"{kafka.HOST}:{port}",
            partitions=PARTITIONS,
            size=size,
            compression=compression,
            seconds=seconds,
            warm_up=seconds / 4,
        )
        figures = process.run(task, seconds * 2 + PATIENCE)
        if "rate" in figures:
            figures["mb"] = figures["rate"] * size / 1e6
        return figures

    return measure


def _remembered(port: int, pid: int | None, seconds: float) -> Figures:
    """The memory that the proxy keeps for each producer that has sent a record to each of 12 partitions."""
    if pid is None:
        raise Broken("there is no proxy")
    once = Load(port=port, topic=_TOPIC, partitions=PARTITIONS, size=100, batch=0, together=PARTITIONS, once=True)
    load.run(replace(once, connections=100))  # objects that the first use creates are not measured
    before = memory_of(pid)
    count = min(2000, int(500 * seconds))
    load.run(replace(once, connections=count))
    return {"kb": (memory_of(pid) - before) * 1e3 / count}


def cases(sizes: list[int], compressions: list[str]) -> list[Case]:
    found: list[Case] = []
    for batch, together, name in ((MB1, 1, "1 MB"), (KB16, PARTITIONS, "16 KB"), (KB16, 1, "16 KB, one in a request")):
        for compression in compressions:
            for size in sizes:
                if size >= batch:
                    continue
                given = Load(
                    port=0,
                    topic=_TOPIC,
                    partitions=PARTITIONS,
                    size=size,
                    batch=batch,
                    together=together,
                    compression=compression,
                )
                title = f"produce, batches of {name}, {size:,} B" + (
                    f", {compression}" if compression != "none" else ""
                )
                found.append(Case(name=title, measure=_produced(given), rows=("rate", "mb", "per_core", "us_per_mb")))
    lone = Load(port=0, topic=_TOPIC, partitions=PARTITIONS, size=1000, batch=0, in_flight=1)
    for size, batch, name in ((100, 0, "one record"), (1000, 0, "one record"), (1000, KB16, "a batch of 16 KB")):
        given = replace(lone, size=size, batch=batch)
        found.append(Case(name=f"latency, {name}, {size:,} B", measure=_produced(given), rows=("p50_ms", "p99_ms")))
    found.append(
        Case(
            name="latency, confluent-kafka, 1,000 records/s, 1,000 B",
            measure=_by_client("confluent", "paced", 1000, "none"),
            rows=("p50_ms", "p99_ms"),
        )
    )
    for client in ("confluent", "ottla"):
        for compression in compressions:
            for size in sizes:
                title = f"produce, {client}'s client, {size:,} B" + (
                    f", {compression}" if compression != "none" else ""
                )
                measure = _by_client(client, "produce", size, compression)
                found.append(Case(name=title, measure=measure, rows=("rate", "mb")))
    found.append(Case(name="memory", measure=_remembered, rows=("kb",), ways=(REWRITE, JOURNAL)))
    return found


def proxy(upstream: str, home: Path, *options: str) -> contextlib.AbstractContextManager[tuple[int, int]]:
    """Our proxy in a process of its own: its port for the first node, and its process id; see `program`."""
    [port] = kafka.free_ports(1)
    listen = ("--upstream", upstream, "--listen", f"{kafka.HOST}:{port}")
    return program(home, port, sys.executable, "-m", "ottla", "proxy", *listen, *options)


@contextlib.contextmanager
def program(home: Path, port: int, *command: str) -> Iterator[tuple[int, int]]:
    """A proxy in a process of its own: the port where it listens, and its process id.

    Raises:
        Broken: it ended before it answered, or took too long.
    """
    said = home / f"proxy-{port}"
    with said.open("wb") as log:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + READY_SECONDS
        while not answers(port):
            if running.poll() is not None or time.monotonic() > end:
                raise Broken(f"{shlex.join(command)} did not start:\n{said.read_text()}")
            time.sleep(0.02)
        yield port, running.pid
    finally:
        running.terminate()
        running.wait()


@contextlib.contextmanager
def addresses(
    where: str, home: Path, ways: tuple[str, ...], further: str = ""
) -> Iterator[dict[str, tuple[int, int | None]]]:
    """Proxies in front of the broker at ``where``: the port of each way, and the process id of its proxy if any.

    Args:
        further: the topic that gets the copies.
    """
    rewritten = ("--topic", f"{_TOPIC}=rewrite")
    options = {
        PASSED: (),
        OBSERVE: ("--topic", f"{_TOPIC}=observe"),
        REWRITE: rewritten,
        JOURNAL: (*rewritten, "--state", str(home / "state")),
        COPY: ("--topic", f"{_TOPIC}=copy:{further}", "--topic", f"{further}=rewrite"),
    }
    with contextlib.ExitStack() as stack:
        at: dict[str, tuple[int, int | None]] = {DIRECT: (int(where.rpartition(":")[2]), None)}
        for way in ways:
            if way != DIRECT:
                at[way] = stack.enter_context(proxy(where, home, *options[way]))
        yield at


@contextlib.contextmanager
def _apache(home: Path) -> Iterator[tuple[str, str]]:
    """Apache Kafka with the topic; gives its ``host:port``, and the topic for copies."""
    server = Server(Apache(), home)
    try:
        server.start()
        with server.topic(PARTITIONS), server.topic(PARTITIONS, prefix="copies"):
            yield server.bootstrap, canned.topic_names(1, "copies")[0]
    finally:
        server.close()


@contextlib.contextmanager
def _canned() -> Iterator[tuple[str, str]]:
    """The canned broker; gives the same."""
    with canned.running(topics=2, partitions=PARTITIONS) as where:
        yield where, canned.topic_names(2)[1]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), contextlib.closing(Peer(port, timeout=READY_SECONDS)) as peer:
        return len(peer.ask(MetadataRequest(topics=None), _METADATA, MetadataResponse).brokers) > 0
    return False


def measured(case: Case, rounds: int, seconds: float, *, on_kafka: bool = False) -> list[str]:
    """The table of a case."""
    found: dict[str, list[Figures]] = {way: [] for way in case.ways}
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
        where, further = stack.enter_context(_apache(home) if on_kafka else _canned())
        at = stack.enter_context(addresses(where, home, case.ways, further))
        try:
            for _ in range(rounds):
                for way in case.ways:
                    found[way].append(case.measure(*at[way], seconds))
        except (Broken, subprocess.SubprocessError, OSError) as error:
            return [case.name, f"  failed, {way}: {error}"]
    return table(case, found)


def table(case: Case, found: dict[str, list[Figures]]) -> list[str]:
    """A line for each figure and way: the median, and the comparison with another way, with quartiles."""
    lines = [case.name]
    for figure in case.rows:
        row = ROWS[figure]
        for way, rounds in found.items():
            if figure not in rounds[0]:
                continue
            line = (
                f"  {row.title + ', ' + way:<48}{statistics.median(each[figure] for each in rounds):>16,.{row.digits}f}"
            )
            if row.compared and way != row.base and row.base in found:
                pairs = zip(rounds, found[row.base], strict=True)
                if row.compared == "×":
                    line += f"{_spread([one[figure] / other[figure] for one, other in pairs], '×'):>28}"
                else:
                    line += f"{_spread([one[figure] - other[figure] for one, other in pairs], '+'):>28}"
            elif len(rounds) > 1:
                line += f"{_spread([each[figure] for each in rounds], '', row.digits):>28}"
            lines.append(line)
    return lines


def _spread(values: list[float], mark: str, digits: int = 2) -> str:
    if len(values) < 2:
        return f"{mark}{values[0]:,.{digits}f}"
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return (f"{mark}{median:,.{digits}f} " if mark else "") + f"({low:,.{digits}f}–{high:,.{digits}f})"


def main(arguments: list[str]) -> int:
    """Run the cases whose name contains one of the given words, or all without any; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench proxy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="those with one of these words in their name")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000], help="bytes of each value")
    parser.add_argument("--compression", nargs="+", default=["none", "lz4"], help="none, gzip, snappy, lz4 or zstd")
    parser.add_argument("--kafka", action="store_true", help="in front of Apache Kafka, which is started for each case")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="measure only these ways")
    given = parser.parse_args(arguments)
    known = cases(given.sizes, given.compression)
    if unknown := [word for word in given.cases if not any(word in case.name for case in known)]:
        names = "".join(f"\n  {case.name}" for case in known)
        print(f"no case has {' or '.join(map(repr, unknown))} in its name; there are:{names}", file=sys.stderr)
        return 2
    if given.kafka:
        kafka.classpath()  # downloads are not measured
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        f"ottla with its codec in {engine}, trio {importlib.metadata.version('trio')}",
        f"in front of {Apache.name if given.kafka else 'a canned broker'}",
        "",
        sep="\n",
        flush=True,
    )
    for case in known:
        if not given.cases or any(word in case.name for word in given.cases):
            before = os.getloadavg()[0]
            chosen = replace(case, ways=tuple(way for way in case.ways if way in given.ways))
            lines = measured(chosen, given.rounds, given.seconds, on_kafka=given.kafka)
            print(*lines, f"  load before: {before:.1f}; behind: {os.getloadavg()[0]:.1f}", "", sep="\n", flush=True)
    return 0
