"""JSON values, parsed by the reader (`valueFormat=json`) and by Spark's `from_json`, from the same topic.

Each round parses the whole topic in both ways, one after the other, in one Spark. The schema names every field of the
values, and all fields go to the sink `noop`. ``map`` has the same values with a schema that Python parses, one value
after the other. In ``bad``, one value in a thousand does not fit the schema. The broker shares the machine.
"""

import argparse
import json
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.bench.brokers.server import Brokerlite
from tests.bench.spark.run import OURS, THEIRS, Cost, cpu_below, line, serving, session
from tests.interop.peers import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
SCHEMA = "id BIGINT, name STRING, price DOUBLE, at TIMESTAMP, tags ARRAY<STRING>"


@dataclass(frozen=True)
class Case:
    """A topic, and the way of parsing its values."""

    size: int
    """Approximate bytes of a value."""
    kind: str = ""

    @property
    def name(self) -> str:
        return f"{self.size} B{', ' if self.kind else ''}{self.kind}"

    @property
    def topic(self) -> str:
        return f"json-{self.size}-{self.kind}"

    @property
    def schema(self) -> str:
        more = ", text STRING" if self.size > 100 else ""
        return SCHEMA + more + (", sizes MAP<STRING, INT>" if self.kind == "map" else "")


CASES = [Case(100), Case(1000), Case(100, "bad"), Case(100, "map")]


def value(case: Case, number: int, rng: random.Random) -> bytes:
    fits = case.kind != "bad" or number % 1000
    fields = {
        "id": number if fits else "none",
        "name": f"n{rng.randrange(10**5)}",
        "price": rng.randrange(10**4) / 100,
        "at": f"2026-01-01T10:{number % 60:02}:00Z",
        "tags": ["a", "b"],
    }
    if case.size > 100:
        fields["text"] = " ".join(str(rng.randrange(10**6)) for _ in range(128))
    return json.dumps(fields, separators=(",", ":")).encode()


def fill(bootstrap: str, case: Case, count: int) -> None:
    create_topic(bootstrap, case.topic, partitions=PARTITIONS)
    rng = random.Random(1)
    values = [value(case, number, rng) for number in range(1000)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    for number in range(count):
        while True:
            try:
                producer.produce(case.topic, values[number % 1000], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def cost(spark: "SparkSession", bootstrap: str, case: Case, way: str) -> Cost:
    source = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", case.topic)
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    began, used = time.monotonic(), cpu_below(jvm)
    if way == OURS:
        frame = source.option("valueFormat", "json").option("valueSchema", case.schema).load()
    else:
        schema = f"{case.schema}, _corrupt_record STRING"
        frame = source.load().selectExpr(f"from_json(cast(value as string), '{schema}') AS value")
    frame.select("value").write.format("noop").mode("overwrite").save()
    return Cost(time.monotonic() - began, cpu_below(jvm) - used)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench spark-json", description=__doc__.splitlines()[0])
    parser.add_argument("wanted", nargs="*", help="words of the cases' names: all without any")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=100 * 10**6, help="of the values of a topic")
    given = parser.parse_args(arguments)
    chosen = [case for case in CASES if not given.wanted or any(word in case.name for word in given.wanted)]
    # This benchmark does not need the jars of the session. But a later session in this process does, and a JVM finds
    # data sources only in the jars of its first session.
    with serving(Brokerlite()) as bootstrap, session() as spark:
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(
            f"Spark {spark.version}, {os.cpu_count()} cores, load {load}; millions of rows a second, and × from_json's"
        )
        print(
            f"{'':<18}{'json':>10}{'from_json':>10}   {'by the clock':<21}{'json':>10}{'from_json':>10}   by processor"
        )
        for case in chosen:
            count = given.bytes // case.size
            fill(bootstrap, case, count)
            taken: dict[str, list[Cost]] = {OURS: [], THEIRS: []}
            for each in range(given.rounds + 1):
                for way in (OURS, THEIRS):
                    needed = cost(spark, bootstrap, case, way)
                    if each:  # the first round is not measured
                        taken[way].append(needed)
            print(line(case.name, count, taken), flush=True)
    return 0
