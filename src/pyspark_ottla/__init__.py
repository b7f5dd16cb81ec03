"""Where Spark looks for data sources: it imports modules named ``pyspark_*`` and takes their `DefaultSource`."""

from ottla.spark.source import DefaultSource

__all__ = ["DefaultSource"]
