"""Kafka topics in PySpark: `spark.read.format("ottla")`, without a connector jar.

    spark = ottla.spark.session()
    flights = spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "flights").load()

Rule: importing this module imports neither pyspark nor a client. Spark imports `pyspark_ottla` in every Python worker
that searches for data sources, also for users who do not use ottla.
"""

from ottla.spark.java import ensure_java
from ottla.spark.local import session
from ottla.spark.logs import in_a_worker, set_up_logging

__all__ = ["ensure_java", "session"]

if in_a_worker():
    set_up_logging()
