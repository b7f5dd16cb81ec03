"""Kafka topics in PySpark: `spark.read.format("ottla")`, without a connector jar.

    spark = ottla.spark.session()
    flights = spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "flights").load()

source.py         `DefaultSource`, which Spark finds through `pyspark_ottla` and asks for a reader or a writer
reading/          a batch query that reads: options, offsets, tasks
streaming/        a streaming query that reads: micro-batches, checkpoint, progress
writing/          queries that write
columns/          the columns of the rows that a query reads, and their values
local/            `session`: Spark on this machine
kafka_options.py  `ClientConfig`: the options that reading and writing share, and Kafka's own names
client_cache.py   clients that a Python worker keeps open
failures.py       makes Spark show the message of an error alone
cores.py          how many tasks Spark can run at once
logs.py           logging in Spark's Python processes

Rule: importing this module imports neither pyspark nor a client. Spark imports `pyspark_ottla` in every Python worker
that searches for data sources, also for users who do not use ottla.
"""

from ottla.spark.local.java import ensure_java
from ottla.spark.local.session import session
from ottla.spark.logs import in_a_worker, set_up_logging

__all__ = ["ensure_java", "session"]

if in_a_worker():
    set_up_logging()
