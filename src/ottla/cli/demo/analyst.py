"""The analyst of the demo: reads topics in PySpark and reports on them; reads the last one as a stream, too.

    python -m ottla.cli.demo.analyst SETTINGS FLIGHTS.ZIP PLANES.CSV ROWS TOPIC...

It reports ``{"ready": true}`` once Spark runs, and begins when it gets a line on stdin.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.demo import expected
from ottla.cli.demo.children import read_settings, report
from ottla.cli.demo.expected import Days, Fleet, Row, Scatter
from ottla.cli.demo.flights import COLUMNS, NOT_KNOWN, TEXTS, read
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = ", ".join(f"{name} {'string' if name in TEXTS else 'int'}" for name in COLUMNS)

_ASKED_FOR = ("partition", "key", "line", "carrier", "tailnum", "arr_delay")
"""The columns that the questions need; the topic is read once, and cached for all of them."""
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Only Java's fast compiler: for a minute's work the optimizing one costs more than it saves, half of all CPU time."""


def load(spark: "SparkSession", options: Mapping[str, str], topic: str) -> "DataFrame":
    """A topic's records: partition, key, the row as it was sent, and its columns."""
    from pyspark.sql.functions import col, from_csv

    records = spark.read.format("ottla").options(**options).option("subscribe", topic).load()
    line = col("value").cast("string")
    flight = from_csv(line, SCHEMA, {"nullValue": NOT_KNOWN})
    return records.select("partition", col("key").cast("string"), line.alias("line"), flight.alias("flight")).select(
        "partition", "key", "line", "flight.*"
    )


def count_by_day(spark: "SparkSession", options: Mapping[str, str], topic: str) -> "DataFrame":
    """How many flights left each airport on each day: windowed counts, as a stream.

    A day is counted once its end is a day older than the newest flight (the watermark); later flights of that day are
    left out. Rows of the same micro-batch are never late, so the trigger availableNow, without a limit for batches,
    counts every flight, although the services wrote at different speeds.
    """
    from pyspark.sql.functions import col, from_csv, window

    records = (
        spark.readStream.format("ottla")
        .options(**options)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    flight = from_csv(col("value").cast("string"), SCHEMA, {"nullValue": NOT_KNOWN})
    counts = (
        records.select(flight.alias("flight"))
        .select(col("flight.time_hour").cast("timestamp").alias("time"), "flight.origin")
        .withWatermark("time", "1 day")
        .groupBy(window("time", "1 day").alias("day"), "origin")
        .count()
    )
    query = counts.writeStream.format("memory").queryName("counts").trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table("counts")


def days(counts: "DataFrame") -> Days:
    """The counts by day and airport."""
    found: Days = defaultdict(dict)
    for row in counts.selectExpr("string(to_date(day.start)) AS day", "origin", "count").collect():
        found[row.day][row.origin] = row["count"]
    return found


def scatter(flights: "DataFrame") -> Scatter:
    """In how many partitions each aircraft is."""
    from pyspark.sql import functions as f

    homes = flights.where("key IS NOT NULL").groupBy("key").agg(f.countDistinct("partition").alias("homes"))
    aircraft = homes.agg(f.count("key"), f.coalesce(f.sum(f.expr("int(homes > 1)")), f.lit(0)), f.sum("homes")).first()
    total = flights.agg(f.count("*"), f.count_if(f.col("key").isNull())).first()
    assert aircraft is not None and total is not None, "an aggregate of everything is one row"
    return Scatter(
        records=total[0],
        without_key=total[1],
        aircraft=aircraft[0],
        scattered=aircraft[1],
        counted_apart=aircraft[2] or 0,
    )


def fleets(flights: "DataFrame", planes: "DataFrame") -> dict[str, Fleet]:
    """Each carrier's flights, aircraft, delays and seats: per aircraft, joined with the register of aircraft."""
    from pyspark.sql import functions as f

    per_aircraft = flights.groupBy("carrier", "tailnum").agg(
        f.count("*").alias("flights"), f.count("arr_delay").alias("arrived"), f.sum("arr_delay").alias("delay")
    )
    by_carrier = (
        per_aircraft.join(planes, "tailnum", "left")
        .groupBy("carrier")
        .agg(
            f.sum("flights").alias("flights"),
            f.count("tailnum").alias("aircraft"),
            f.sum("arrived").alias("arrived"),
            f.sum("delay").alias("delay"),
            f.sum(f.expr("flights * int(seats IS NOT NULL)")).alias("seated"),
            f.sum(f.expr("flights * seats")).alias("seats"),
        )
    )
    found = (row.asDict() for row in by_carrier.collect())
    return {row.pop("carrier"): Fleet(**{name: value or 0 for name, value in row.items()}) for row in found}


def rows(flights: "DataFrame") -> Counter[Row]:
    """The multiset of the rows, as they were sent, each with its key."""
    table = flights.select("key", "line").toArrow()
    return Counter(zip(table["key"].to_pylist(), table["line"].to_pylist(), strict=True))


def analyse(settings: str, file: Path, planes: Path, limit: int, topics: list[str]) -> None:
    """Wait for the go-ahead, then report on each topic."""
    from ottla.spark import session

    options = {f"kafka.{name}": value for name, value in read_settings(settings).items()}
    configuration = {"spark.driver.extraJavaOptions": _QUICK_JAVA, "spark.sql.session.timeZone": "UTC"}
    spark = session("ottla demo", **configuration)
    try:
        register = spark.read.csv(str(planes), header=True).selectExpr("tailnum", "int(seats) AS seats")
        sent = expected.rows(read(file, limit))
        report(ready=True)
        sys.stdin.readline()
        for topic in topics:
            flights = load(spark, options, topic).select(*_ASKED_FOR).cache()
            report(
                topic=topic,
                scatter=asdict(scatter(flights)),
                fleets={carrier: asdict(fleet) for carrier, fleet in fleets(flights, register).items()},
                difference=asdict(expected.difference(sent, rows(flights))),
            )
            flights.unpersist()
        report(days=days(count_by_day(spark, options, topics[-1])))
    finally:
        spark.stop()


def main(settings: str, file: str, planes: str, limit: str, *topics: str) -> None:
    try:
        analyse(settings, Path(file), Path(planes), int(limit), list(topics))
    except OttlaError as error:
        report(error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
