"""The data source "ottla", as Spark finds it (through `pyspark_ottla`).

Rule: light to import, because Spark imports it wherever it looks for data sources: what reads (the codec, a client,
pyarrow) is imported when a query does.
"""

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource

from ottla.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla.spark.reader import BatchReader


class DefaultSource(DataSource):
    """``spark.read.format("ottla")``. The class bears the name by which Spark looks for it."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> "StructType":
        """The columns, which the options decide (`includeHeaders`); called by ``load()``, so mistakes show there.

        Raises:
            ConfigurationError: see `ReadOptions.parse`.
        """
        from ottla.spark.arrow import spark_schema
        from ottla.spark.options import ReadOptions

        return spark_schema(ReadOptions.parse(self.options).include_headers)

    def reader(self, schema: "StructType") -> "BatchReader":
        """
        Raises:
            ConfigurationError: the user gave columns of their own, or see `ReadOptions.parse`.
        """
        from ottla.spark.arrow import spark_schema
        from ottla.spark.options import ReadOptions
        from ottla.spark.reader import BatchReader

        options = ReadOptions.parse(self.options)
        fixed = spark_schema(options.include_headers)
        if schema != fixed:
            raise ConfigurationError(f"format ottla has fixed columns ({fixed.simpleString()}): leave out .schema(…)")
        return BatchReader(options)

    def streamReader(self, schema: "StructType") -> NoReturn:
        raise ConfigurationError("format ottla cannot read streams yet: use spark.read")

    def writer(self, schema: "StructType", overwrite: bool) -> NoReturn:
        raise ConfigurationError("format ottla cannot write yet")

    def streamWriter(self, schema: "StructType", overwrite: bool) -> NoReturn:
        raise ConfigurationError("format ottla cannot write yet")
