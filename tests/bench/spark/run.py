"""Reading in Spark beside Spark's own connector, in one Spark, from one broker, in the same run.

Each case is a topic; each round reads it in both ways, one after the other, so that a machine that slows down slows
both. A ratio is taken within each round; the output has medians and, in brackets, quartiles.

    all columns     every column goes to the sink `noop`
    aggregation     count and sum of the lengths of the values
    stream          the whole topic as a stream with the trigger availableNow, into the sink `noop`
    micro-batches   the same in `BATCHES` batches, without the time before and after them: a query of ottla starts a
                    Python process, which takes a second, and a query of the connector starts a consumer

The broker is Apache Kafka, or brokerlite (``--brokerlite``); it shares the machine with Spark. Values are text that
compresses to about a third. Elapsed time is the time that a user waits. If other programs use the same cores, processor
time, of the JVM and all Python workers, says more.

The connector takes minutes for each reading of a thousand partitions.

The connector's jars come from Maven, for the Spark version in `CONNECTOR`.
"""

import argparse
import contextlib
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

import ottla.spark
from ottla.codec import engine
from tests import kafka
from tests.bench.brokers.server import Apache, Broker, Brokerlite, Server
from tests.interop.peers import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
ROUNDS = 5
BYTES = 200 * 10**6
"""Bytes of values in a topic, so many that reading them takes longer than the start of a query."""
BATCHES = 20
FEW = 20
"""Records of a partition when there are a thousand partitions."""
OURS, THEIRS = "ottla", "kafka"
"""Names of formats."""

Options = dict[str, str]
Work = Callable[["SparkSession", str, Options, int], float | None]
"""Reads a topic in a format; the topic has so many records. Returns the seconds that count, or `None` for all."""


@dataclass(frozen=True)
class Case:
    """A topic, and the way of reading it."""

    partitions: int
    size: int
    """Bytes of a value."""
    compression: str

    @property
    def name(self) -> str:
        return f"{self.partitions} partitions, {self.size} B, {self.compression}"

    def records(self, values: int) -> int:
        """The number of records for so many bytes of values; with a thousand partitions, a few for each."""
        return self.partitions * FEW if self.partitions >= 1000 else values // self.size

    @property
    def topic(self) -> str:
        return f"bench-{self.partitions}-{self.size}-{self.compression}"


def cases() -> list[Case]:
    usual = [Case(n, size, codec) for n in (4, 12) for size in (100, 1000) for codec in ("none", "lz4")]
    return [*usual, Case(1000, 100, "none")]


def fill(bootstrap: str, case: Case, count: int) -> None:
    """Write ``count`` records to the topic of ``case``, spread evenly, in batches like a producer's."""
    create_topic(bootstrap, case.topic, partitions=case.partitions)
    rng = random.Random(1)
    words = [b"%06d" % rng.randrange(10**6) for _ in range(50)]
    values = [b" ".join(rng.choices(words, k=case.size // 7 + 1))[: case.size] for _ in range(1000)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 100_000,
            "compression.type": case.compression,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(count):
        while True:
            try:
                producer.produce(case.topic, values[number % 1000], b"key-%d" % number, number % case.partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def load(spark: "SparkSession", way: str, options: Options) -> "DataFrame":
    return spark.read.format(way).options(**options).load()


def all_columns(spark: "SparkSession", way: str, options: Options, count: int) -> None:
    load(spark, way, options).write.format("noop").mode("overwrite").save()


def aggregation(spark: "SparkSession", way: str, options: Options, count: int) -> None:
    load(spark, way, options).selectExpr("count(value)", "sum(length(value))").collect()


def stream(spark: "SparkSession", way: str, options: Options, count: int) -> None:
    batches_of_stream(spark, way, options)


def batches_of_stream(spark: "SparkSession", way: str, options: Options) -> list[float]:
    """Read the topic as a stream; returns the seconds of each batch."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as checkpoint:
        source = spark.readStream.format(way).options(startingOffsets="earliest", **options).load()
        sink = source.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        if not query.awaitTermination(300):
            raise RuntimeError(f"a stream of format {way} does not end")
        return [each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress if each.numInputRows]


def micro_batches(spark: "SparkSession", way: str, options: Options, count: int) -> float:
    taken = batches_of_stream(spark, way, options | {"maxOffsetsPerTrigger": str(-(-count // BATCHES))})
    return len(taken) * statistics.median(taken)


WORK: dict[str, Work] = {
    "all columns": all_columns,
    "aggregation": aggregation,
    "stream": stream,
    "micro-batches": micro_batches,
}


@dataclass(frozen=True)
class Cost:
    """The cost of a query in seconds, its planning included."""

    wall: float
    cpu: float
    """Processor time of the JVM and of all Python workers."""


def cost(spark: "SparkSession", bootstrap: str, case: Case, way: str, work: Work, count: int) -> Cost:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": case.topic}
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    began, used = time.monotonic(), cpu_below(jvm)
    counted = work(spark, way, options, count)
    return Cost(time.monotonic() - began if counted is None else counted, cpu_below(jvm) - used)


def cpu_below(pid: int) -> float:
    """Processor time of a process and all of its descendants, in seconds. Linux only."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))  # with the time of children that have ended
    found, grown = {pid}, True
    while grown:
        more = {each for each, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return sum(ticks[each] for each in found) / os.sysconf("SC_CLK_TCK")


def line(title: str, count: int, taken: dict[str, list[Cost]]) -> str:
    """A line of the table: millions of rows a second in both ways, and the ratio of ottla's figure to the connector's.

    First in elapsed time, then in processor time: the rate of one core.
    """
    parts = []
    for what in ("wall", "cpu"):
        of = {way: [getattr(each, what) for each in taken[way]] for way in (OURS, THEIRS)}
        ratios = [theirs / ours for ours, theirs in zip(of[OURS], of[THEIRS], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4)
        rates = "".join(f"{count / statistics.median(of[way]) / 1e6:>10.2f}" for way in (OURS, THEIRS))
        parts.append(f"{rates}   ×{f'{median:.2f} ({low:.2f}-{high:.2f})':<20}")
    return f"  {title:<16}{''.join(parts)}".rstrip()


@contextlib.contextmanager
def session() -> "Iterator[SparkSession]":
    jars = ",".join(str(kafka.jar(each)) for each in CONNECTOR)
    settings: dict[str, str] = {"spark.jars": jars, "spark.driver.memory": "2g"}
    spark = ottla.spark.session(app_name="ottla's benchmark", **settings)
    try:
        yield spark
    finally:
        spark.stop()


def main(arguments: list[str]) -> int:
    """Run the cases whose name contains one of the given words, or all without any; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench spark")
    parser.add_argument("wanted", nargs="*")
    parser.add_argument("--brokerlite", action="store_true", help="read from brokerlite, not from Apache Kafka")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--bytes", type=int, default=BYTES, help="of the values of a topic")
    given = parser.parse_args(arguments)
    chosen = [case for case in cases() if not given.wanted or any(word in case.name for word in given.wanted)]
    if not chosen:
        names = "".join(f"\n  {case.name}" for case in cases())
        print(f"no case has {' or '.join(map(repr, given.wanted))} in its name; there are:{names}", file=sys.stderr)
        return 2
    broker = Brokerlite() if given.brokerlite else Apache()
    with serving(broker) as bootstrap, session() as spark:
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(
            f"Python {platform.python_version()}, the codec in {engine}, Spark {spark.version}, {CONNECTOR[0]}, "
            f"{broker.name}, {os.cpu_count()} cores, load {load}; millions of rows a second\n"
            f"{'':<18}{OURS:>10}{THEIRS:>10}   {'by the clock':<21}{OURS:>10}{THEIRS:>10}   by processor time"
        )
        for case in chosen:
            measure(spark, bootstrap, case, case.records(given.bytes), given.rounds)
    return 0


def measure(spark: "SparkSession", bootstrap: str, case: Case, count: int, rounds: int) -> None:
    fill(bootstrap, case, count)
    print(case.name)
    for title, work in WORK.items():
        taken: dict[str, list[Cost]] = {OURS: [], THEIRS: []}
        for each in range(rounds + 1):
            for way in (OURS, THEIRS):
                needed = cost(spark, bootstrap, case, way, work, count)
                if each:  # the first round is not measured
                    taken[way].append(needed)
        print(line(title, count, taken), flush=True)


@contextlib.contextmanager
def serving(broker: Broker) -> Iterator[str]:
    """The address of a running broker."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        contextlib.closing(Server(broker, Path(home))) as server,
    ):
        server.start()
        yield server.bootstrap
