"""Kafka topics in PySpark: `spark.read.format("ottla")`, without a connector jar.

    spark = ottla.spark.session()
    flights = spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "flights").load()

source.py        `DefaultSource`, which Spark finds through `pyspark_ottla` and asks for a reader or a writer
reader.py        `BatchReader`: the driver plans a query, its tasks read
stream.py        `StreamReader`: decides what each micro-batch reads; stream_offsets.py is its end in the checkpoint
writer.py        `RowWriter`: the tasks of a query that writes
offsets.py       the offsets that a query reads
arrow.py         record batches to rows; columns.py, json_values.py, value_schema.py have the columns
options.py       the options for reading; write_options.py, kafka_options.py the others
client_cache.py  clients that a Python worker keeps open
progress.py      lag and rate of a streaming query; group_commits.py shows them to Kafka's tools
local.py         `session`: Spark on this machine; java.py, shims.py find and start its programs

Rule: importing this module imports neither pyspark nor a client. Spark imports `pyspark_ottla` in every Python worker
that searches for data sources, also for users who do not use ottla.
"""

from ottla.spark.java import ensure_java
from ottla.spark.local import session
from ottla.spark.logs import in_a_worker, set_up_logging

__all__ = ["ensure_java", "session"]

if in_a_worker():
    set_up_logging()
