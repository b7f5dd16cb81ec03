"""The data source "ottla", as Spark finds it (through `pyspark_ottla`).

Rule: light to import, because Spark imports it wherever it looks for data sources: what reads (the codec, a client,
pyarrow) is imported when a query does.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ottla.errors import ConfigurationError, OttlaError
from ottla.spark.failures import one_sentence

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla.spark.columns import Layout
    from ottla.spark.reader import BatchReader
    from ottla.spark.stream import StreamReader
    from ottla.spark.writer import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """``spark.read.format("ottla")``, ``df.write.format("ottla")``; named as Spark looks for it."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> "StructType":
        """The columns, which the options decide (`includeHeaders`, `valueFormat`); called by ``load()``, so that what
        is wrong with options shows there.

        Raises:
            ConfigurationError: see `read_layout`.
        """
        from ottla.spark.columns import spark_schema
        from ottla.spark.options import read_layout

        with one_sentence():
            return spark_schema(read_layout(self.options))

    def reader(self, schema: "StructType") -> "BatchReader":
        """
        Raises:
            ConfigurationError: the user gave columns of their own, or see `ReadOptions.parse`.
        """
        from ottla.spark.options import ReadOptions
        from ottla.spark.reader import BatchReader

        with one_sentence():
            options = ReadOptions.parse(self.options)
            options = replace(options, layout=_declared(schema, options.layout))
            return BatchReader(options)

    def streamReader(self, schema: "StructType") -> "StreamReader | RefusedStream":
        """One that refuses, where the user gave columns of their own, where `StreamOptions.parse` would, or where no
        broker announces itself.
        """
        from ottla.spark.options import StreamOptions
        from ottla.spark.stream import StreamReader

        try:
            options = StreamOptions.parse(self.options)
            read = replace(options.read, layout=_declared(schema, options.read.layout))
            return StreamReader(replace(options, read=read))
        except OttlaError as error:
            return RefusedStream(error)

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchWriter":
        """
        Raises:
            ConfigurationError: see `WriteOptions.parse` and `ottla.spark.writer.check_schema`; or what is there already
                was to be overwritten.
        """
        from ottla.spark.write_options import WriteOptions
        from ottla.spark.writer import BatchWriter

        with one_sentence():
            if overwrite:
                raise ConfigurationError("a topic is never overwritten: say mode('append')")
            return BatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamWriter":
        """
        Args:
            overwrite: the output mode is complete: as in Spark's own connector, the whole result is appended each time.

        Raises:
            ConfigurationError: see `WriteOptions.parse` and `ottla.spark.writer.check_schema`.
        """
        from ottla.spark.write_options import WriteOptions
        from ottla.spark.writer import StreamWriter

        with one_sentence():
            return StreamWriter(WriteOptions.parse(self.options), schema)


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be: each question is answered with the error.

    What is raised where a reader is made Spark hides behind an error of its own.
    """

    def __init__(self, error: OttlaError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        with one_sentence():
            raise self._error

    def latestOffset(self, *_: object) -> dict[str, Any]:
        with one_sentence():
            raise self._error

    def partitions(self, *_: object) -> list[InputPartition]:
        with one_sentence():
            raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with one_sentence():
            raise self._error


def _declared(schema: "StructType", layout: "Layout") -> "Layout":
    """The layout with the columns that Spark asks for: of `DefaultSource.schema`, a table, or a user's own."""
    from ottla.spark.columns import spark_schema

    declared = layout.declared_as(schema)
    if declared is None:
        fixed = spark_schema(layout)
        never = ", ".join(each.name for each in fixed.fields if not each.nullable)
        raise ConfigurationError(
            f"format ottla has fixed columns ({fixed.simpleString()}), of which only {never} can be NOT NULL: "
            "leave out .schema(…), or the columns of the table"
        )
    return declared
