"""Queries that write, from end to end: batches and streams of Spark, on brokerlite and on Apache Kafka, new and old."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from ottla.spark.source import DefaultSource
from ottla.spark.writing.row_writer import BatchWriter, WrittenRows
from ottla.spark.writing.write_options import WriteOptions
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import JAVA, LIBRDKAFKA, create_topic
from tests.patience import PROGRAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


def options(bootstrap: str, topic: str, **others: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "topic": topic, **others}


def write(frame: "DataFrame", bootstrap: str, topic: str, **others: str) -> None:
    frame.write.format("ottla").mode("append").options(**options(bootstrap, topic, **others)).save()


def failure(frame: "DataFrame", bootstrap: str, topic: str, mode: str = "append", **others: str) -> str:
    with pytest.raises(PySparkException) as raised:
        frame.write.format("ottla").mode(mode).options(**options(bootstrap, topic, **others)).save()
    return str(raised.value)


def test_rows_of_a_query_are_stored_where_java_sends_their_keys(
    spark: "SparkSession", bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, partitions=7)
    frame = spark.range(0, 3000, numPartitions=3).selectExpr(
        "IF(id % 10 = 0, NULL, concat('key-', id % 500)) AS key",
        "IF(id % 11 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS value",
        "IF(id % 2 = 0, NULL, array(named_struct('key', 'n', 'value', CAST('x' AS BINARY)))) AS headers",
        "id AS other",
    )
    write(frame, bootstrap, topic)
    found = LIBRDKAFKA.consume(bootstrap, topic)
    wanted = Counter(
        (
            None if n % 10 == 0 else b"key-%d" % (n % 500),
            None if n % 11 == 0 else b"%d" % n,
            () if n % 2 == 0 else (("n", b"x"),),
        )
        for n in range(3000)
    )
    assert Counter((each.key, each.value, each.headers) for each in found) == wanted
    java, keys = f"{topic}.java", sorted({each.key for each in found if each.key is not None})
    create_topic(bootstrap, java, partitions=7)
    outcomes = JAVA.produce(bootstrap, [Message(java, key, b"") for key in keys])
    places = {key: outcome.partition for key, outcome in zip(keys, outcomes, strict=True)}
    assert all(each.partition == places[each.key] for each in found if each.key is not None)


def test_written_rows_are_read_again(spark: "SparkSession", bootstrap: str, topic: str) -> None:
    names = [f"{topic}.{name}" for name in "ab"]
    for name in names:
        create_topic(bootstrap, name, partitions=2)
    frame = spark.range(500).selectExpr(
        f"IF(id % 3 = 0, '{names[0]}', '{names[1]}') AS topic",
        "CAST(id % 2 AS INT) AS partition",
        "repeat('v', 100) AS value",
    )
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.compression.type": "lz4"}
    frame.write.format("ottla").mode("append").options(**given).save()
    read = spark.read.format("ottla").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(names)})
    counts = {
        (row.topic, row.partition): row["count"] for row in read.load().groupBy("topic", "partition").count().collect()
    }
    assert counts == {(names[0], 0): 84, (names[0], 1): 83, (names[1], 0): 166, (names[1], 1): 167}


def test_a_stream_goes_on_where_it_was_after_a_restart(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, partitions=3)
    source = str(tmp_path / "source")
    for run in range(2):
        spark.range(run * 1000, run * 1000 + 1000).write.mode("append").parquet(source)
        stream = spark.readStream.schema("id LONG").parquet(source)
        query = (
            stream.selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
            .writeStream.format("ottla")
            .queryName("twice")
            .options(**options(bootstrap, topic), checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PROGRAM)
    values = [int(each.value or b"") for each in LIBRDKAFKA.consume(bootstrap, topic)]
    assert sorted(values) == list(range(2000))


class TestWithOneBroker:
    """Behaviour that does not depend on the broker."""

    @pytest.fixture
    def bootstrap(self, ottla_broker: Broker) -> str:
        return ottla_broker.bootstrap

    def test_a_complete_result_is_written_each_time(
        self, spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
    ) -> None:
        create_topic(bootstrap, topic)
        source = str(tmp_path / "source")
        for run in range(2):
            spark.range(10).write.mode("append").parquet(source)
            query = (
                spark.readStream.schema("id LONG").parquet(source).groupBy("id").count()
                .selectExpr("CAST(id AS STRING) AS key", "CAST(count AS STRING) AS value")
                .writeStream.format("ottla").outputMode("complete")
                .options(**options(bootstrap, topic), checkpointLocation=str(tmp_path / "checkpoint"))
                .trigger(availableNow=True).start()
            )  # fmt: skip
            assert query.awaitTermination(PROGRAM), run
        assert Counter(each.value for each in LIBRDKAFKA.consume(bootstrap, topic)) == {b"1": 10, b"2": 10}

    def test_refusals_are_given_in_a_sentence(
        self, spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
    ) -> None:
        create_topic(bootstrap, topic, partitions=2)
        frame = spark.range(10).selectExpr("CAST(id AS STRING) AS value", "CAST(id AS INT) AS partition")
        overwriting = failure(frame, bootstrap, topic, "overwrite")
        assert "format ottla cannot overwrite a topic: use mode('append')" in overwriting
        for mode in ("ignore", "errorifexists"):  # Spark refuses these itself, for any source in Python
            assert "cannot be written in the" in failure(frame, bootstrap, topic, mode)
        assert "exactlyOnce=true is not supported" in failure(frame, bootstrap, topic, exactlyOnce="true")
        assert "has partitions 0 to 1: correct the column" in failure(frame, bootstrap, topic)
        unnamed = frame.withColumnRenamed("value", "text")
        assert "column value is missing, the columns are text, partition" in failure(unnamed, bootstrap, topic)
        stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
        query = stream.writeStream.format("ottla").options(**options(bootstrap, topic, exactlyOnce="true"))
        with pytest.raises(PySparkException, match="exactlyOnce=true is not supported"):
            query.option("checkpointLocation", str(tmp_path)).trigger(once=True).start().awaitTermination(PROGRAM)

    def test_the_death_of_a_worker_loses_no_row(self, spark: "SparkSession", bootstrap: str, topic: str) -> None:
        create_topic(bootstrap, topic, partitions=3)
        spark.dataSource.register(KilledOnce)
        rows = spark.range(0, 50_000, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
        with pytest.raises(Exception, match="worker exited unexpectedly"):  # a local Spark runs a task only once
            rows.write.format("killed").mode("append").options(**options(bootstrap, topic)).save()
        write(rows, bootstrap, topic)
        values = Counter(each.value for each in LIBRDKAFKA.consume(bootstrap, topic))
        assert set(values) == {b"%d" % n for n in range(50_000)}


class KilledOnce(DefaultSource):
    """Its worker is killed in the midst of writing, the first time."""

    @classmethod
    def name(cls) -> str:
        return "killed"

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchWriter":
        return Killed(WriteOptions.parse(self.options), schema)


class Killed(BatchWriter):
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRows:
        def until_killed() -> "Iterator[pa.RecordBatch]":
            yield next(iterator)
            yield next(iterator)
            os.kill(os.getpid(), signal.SIGKILL)

        return super().write(until_killed())
