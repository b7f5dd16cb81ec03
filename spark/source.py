"""The data source "ottla", as Spark finds it (through `pyspark_ottla`).

Rule: this module must be light to import, because Spark imports it wherever it searches for data sources. The codec, a
client and pyarrow are imported only when a query reads or writes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ottla.errors import ConfigurationError, OttlaError
from ottla.spark.failures import one_sentence

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla.spark.columns.columns import Layout
    from ottla.spark.reading.batch_reader import BatchReader
    from ottla.spark.streaming.stream_reader import StreamReader
    from ottla.spark.writing.row_writer import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """``spark.read.format("ottla")`` and ``df.write.format("ottla")``. Spark expects this class name."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> "StructType":
        """Return the columns, which depend on the options (`includeHeaders`, `valueFormat`). ``load()`` calls this, so
        invalid options raise here.

        Raises:
            ConfigurationError: see `read_layout`.
        """
        from ottla.spark.columns.columns import spark_schema
        from ottla.spark.reading.read_options import read_layout

        with one_sentence():
            return spark_schema(read_layout(self.options))

    def reader(self, schema: "StructType") -> "BatchReader":
        """
        Raises:
            ConfigurationError: the user declared other columns, or see `ReadOptions.parse`.
        """
        from ottla.spark.reading.batch_reader import BatchReader
        from ottla.spark.reading.read_options import ReadOptions

        with one_sentence():
            options = ReadOptions.parse(self.options)
            options = replace(options, layout=_declared(schema, options.layout))
            return BatchReader(options)

    def streamReader(self, schema: "StructType") -> "StreamReader | RefusedStream":
        """Return a reader; a `RefusedStream` if the user declared other columns, if `StreamOptions.parse` raises, or if
        no broker answers to ``zeroconf://``.
        """
        from ottla.spark.reading.read_options import StreamOptions
        from ottla.spark.streaming.stream_reader import StreamReader

        try:
            options = StreamOptions.parse(self.options)
            read = replace(options.read, layout=_declared(schema, options.read.layout))
            return StreamReader(replace(options, read=read))
        except OttlaError as error:
            return RefusedStream(error)

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchWriter":
        """
        Raises:
            ConfigurationError: see `WriteOptions.parse` and `ottla.spark.writing.row_schema.check_schema`; or the
                mode is overwrite.
        """
        from ottla.spark.writing.row_writer import BatchWriter
        from ottla.spark.writing.write_options import WriteOptions

        with one_sentence():
            if overwrite:
                raise ConfigurationError("format ottla cannot overwrite a topic: use mode('append')")
            return BatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamWriter":
        """
        Args:
            overwrite: the output mode is complete; as in Spark's own connector, the whole result is appended each time.

        Raises:
            ConfigurationError: see `WriteOptions.parse` and `ottla.spark.writing.row_schema.check_schema`.
        """
        from ottla.spark.writing.row_writer import StreamWriter
        from ottla.spark.writing.write_options import WriteOptions

        with one_sentence():
            return StreamWriter(WriteOptions.parse(self.options), schema)


class RefusedStream(DataSourceStreamReader):
    """Raises the error of a stream that cannot start, whatever Spark asks.

    Spark would replace an error that is raised where the reader is created with one of its own.
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
    """Return the layout with the columns that Spark asks for: ours, a table's, or the user's."""
    from ottla.spark.columns.columns import spark_schema

    declared = layout.declared_as(schema)
    if declared is None:
        fixed = spark_schema(layout)
        never = ", ".join(each.name for each in fixed.fields if not each.nullable)
        raise ConfigurationError(
            f"format ottla has fixed columns ({fixed.simpleString()}), of which only {never} can be NOT NULL: "
            "leave out .schema(…), or the columns of the table"
        )
    return declared
