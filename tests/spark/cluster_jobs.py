"""The drivers of test_cluster.py, each a program of its own:

    python cluster_jobs.py JOB '{"master": "spark://…", "confs": {…}, …}'

They report in lines of JSON, and import nothing from the repository: driver and executors have ottla from the Python
that the test has set up for them.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def report(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def wheels(spark: SparkSession) -> list[str]:
    """The paths from which the executors import ottla."""

    def of_task(_: int) -> str:
        import ottla

        return str(ottla.__file__)

    return spark.sparkContext.parallelize(range(8), 8).map(of_task).distinct().collect()


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()


def write(frame: DataFrame, bootstrap: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    frame.write.format("ottla").mode("append").options(**options).save()


def copying(spark: SparkSession, given: dict[str, Any]) -> StreamingQuery:
    """A query that copies one topic to another."""
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given["most"])
        .option("minPartitions", 4)
        .load()
        .where(given["where"])
        .select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("topic", given["target"])
        .option("checkpointLocation", given["checkpoint"])
        .start()
    )


def batch(spark: SparkSession, given: dict[str, Any]) -> None:
    """On each broker, read a topic and write its rows to another."""
    import ottla

    for bootstrap in given["brokers"]:
        frame = read(spark, bootstrap, given["source"])
        rows = [(row.key.decode(), row.value.decode(), row.partition, row.offset) for row in frame.collect()]
        write(frame.select("key", "value"), bootstrap, given["target"])
        report(rows=rows)
    report(driver=ottla.__file__, executors=wheels(spark))


def follow(spark: SparkSession, given: dict[str, Any]) -> None:
    """Copy a topic as it grows, and restart a failed query, until the file `end` exists and everything is copied."""
    end = Path(given["end"])
    while True:
        query = copying(spark, given)
        try:
            batches = -1
            while not end.exists():
                query.awaitTermination(0.1)  # type: ignore[arg-type]
                if (last := query.lastProgress) is not None and last["batchId"] != batches:
                    batches = last["batchId"]
                    report(batch=batches)
            query.processAllAvailable()
            query.stop()
            report(done=True)
            return
        except StreamingQueryException as error:
            report(failed=str(error)[:300])


def elastic(spark: SparkSession, given: dict[str, Any]) -> None:
    """Write in rounds and copy each; all executors leave between two rounds."""
    query = copying(spark, given)
    for each in range(given["rounds"]):
        first, count = each * given["count"], given["count"]
        rows = spark.range(first, first + count, numPartitions=4).selectExpr("CAST(id AS STRING) AS value")
        write(rows, given["bootstrap"], given["source"])
        while True:
            try:
                query.processAllAvailable()
                break
            except StreamingQueryException as error:
                # Spark gives each Python worker 10 s to start, however busy the machine is (PythonWorkerFactory.scala).
                if "Python worker failed to connect back" not in str(error):
                    raise
                query = copying(spark, given)
        until(lambda: executors(spark) == 0)  # so the next round needs new ones: the driver runs no task
        report(rounds=each + 1)
    query.stop()


def executors(spark: SparkSession) -> int:
    """The number of executors; the driver does not count."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)


def main(job: str, text: str) -> None:
    given = json.loads(text)
    builder = SparkSession.builder.master(given["master"]).appName(job)
    for name, value in given["confs"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    {"batch": batch, "follow": follow, "elastic": elastic}[job](spark, given)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
