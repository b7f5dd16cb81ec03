"""``python -m tests.bench spark-write``: format "ottla" beside Spark's own connector, writing the same rows.

One Spark, one Apache Kafka; in each round both formats write, in an order that changes with each round, each to a topic
of its own with 12 partitions. Spark generates the rows, at the same cost for both. A ratio is taken within each round;
the output has its median and, in brackets, its quartiles. Rates are in elapsed time. If other programs use the same
cores, rely on processor time: of Spark with its Python workers, and of the broker.

A write begins once leaders serve all partitions of the new topic (`create_topic`). Kafka's metadata name a leader
before it has created its log. The first batch of a Java producer may then fail, and the next one succeed. From then on,
the broker refuses the first batch as out of order. After ``delivery.timeout.ms``, Spark's own connector fails with
"Expiring 16 record(s)": a batch of 16 KiB with records of 1 KB.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

import ottla.spark
from ottla.codec import engine
from tests import kafka
from tests.interop.peers import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
OURS, THEIRS = "ottla", "kafka"
"""Spark's formats."""
PARTITIONS = 12
FIGURES = ("rows/s", "rows per s of all processors", "... of Spark and its workers", "... of the broker")
Found = dict[str, float]
"""Titles by figure; for each, more is better."""


def processor_seconds(*roots: int) -> float:
    """Processor time of processes and all of their descendants, ended ones included."""
    spent: dict[int, float] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(folder.name)
        parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for pid, seconds in spent.items() if any(each in roots for each in _line(pid, parents)))


def _line(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid:
        yield pid
        pid = parents.get(pid, 0)


@contextmanager
def broker() -> Iterator[kafka.ApacheKafka]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
        running = kafka.start(Path(home) / "kafka", 1, heap="1g")
        try:
            yield running
        finally:
            running.stop()


def write(
    rows: "DataFrame", count: int, way: str, running: kafka.ApacheKafka, topic: str, settings: dict[str, str]
) -> Found:
    """The figures of one write of ``count`` rows."""
    create_topic(running.bootstrap, topic, partitions=PARTITIONS)
    nodes = [node.process.pid for node in running.nodes if node.process is not None]
    options = {"kafka.bootstrap.servers": running.bootstrap, "topic": topic, **settings}
    spark, servers, start = processor_seconds(os.getpid()), processor_seconds(*nodes), time.monotonic()
    rows.write.format(way).mode("append").options(**options).save()
    taken = time.monotonic() - start
    of_broker = processor_seconds(*nodes) - servers
    of_spark = processor_seconds(os.getpid()) - spark - of_broker  # the broker is a descendant, too
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    return dict(
        zip(
            FIGURES,
            (count / taken, count / (of_spark + of_broker), count / of_spark, count / of_broker),
            strict=True,
        )
    )


def table(name: str, ours: list[Found], theirs: list[Found]) -> list[str]:
    """A line for each figure."""
    lines = [f"{name:<44}{OURS:>14}{THEIRS:>14}{'ratio':>24}"]
    for figure in FIGURES:
        pairs = [(one[figure], other[figure]) for one, other in zip(ours, theirs, strict=True)]
        medians = "".join(f"{statistics.median(each):>14,.0f}" for each in zip(*pairs, strict=True))
        lines.append(f"  {figure:<42}{medians}{_spread([one / other for one, other in pairs]):>24}")
    return lines


def _spread(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return "".join(f"{each:.2f}" for each in ratios)
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def made(spark: "SparkSession", size: int, count: int, *, keyed: bool) -> "DataFrame":
    """Rows with values of so many bytes."""
    columns = [f"CAST(repeat('x', {size}) AS BINARY) AS value"]
    if keyed:
        columns.append("CAST(CAST(id AS STRING) AS BINARY) AS key")
    return spark.range(0, count, numPartitions=4).selectExpr(*columns)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench spark-write",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="bytes of each value")
    parser.add_argument("--megabytes", type=int, default=200, help="of values, in each round")
    parser.add_argument("--keyless", action="store_true", help="rows without keys")
    parser.add_argument("--compression", default="none")
    given = parser.parse_args(arguments)
    jars = ",".join(str(kafka.jar(each)) for each in JARS)
    with broker() as running:
        spark = ottla.spark.session("bench", **{"spark.jars": jars})
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"Spark {spark.version}, {os.cpu_count()} cores, load {load}; codec in {engine}; Kafka {kafka.VERSION}\n")
        for size in given.sizes:
            count = given.megabytes * 10**6 // size
            rows = made(spark, size, count, keyed=not given.keyless)
            found: dict[str, list[Found]] = {OURS: [], THEIRS: []}
            settings = {"kafka.compression.type": given.compression}
            for number in range(-1, given.rounds):  # the first one warms up
                ways = (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS)
                for way in ways:
                    figures = write(rows, count, way, running, f"{way}-{size}-{number + 1}", settings)
                    if number >= 0:
                        found[way].append(figures)
            title = f"{size:,} B, {'keyless' if given.keyless else 'keyed'}, {PARTITIONS} partitions"
            print(*table(title, found[OURS], found[THEIRS]), "", sep="\n", flush=True)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
