"""Batches of the wire to record batches of Arrow.

Rules:
- The columns and their types are those of Spark's own Kafka connector, down to a null where a record has no headers.
- Spark compares the Arrow schema with its own conversion of the columns' types: that conversion is the schema here.
- Rows of several batches, partitions too, are put together: Arrow batches of a few rows are a hundred times slower.

Source: KafkaRecordToRowConverter.scala.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.codec.columns import BinaryColumn, Columns, HeaderColumn
from ottla.codec.compression import DECOMPRESSED_LIMIT
from ottla.codec.message_sets import Message
from ottla.codec.records import RecordBatch, Records
from ottla.errors import DecodeError
from ottla.spark.offsets import OffsetRange

MAX_ROWS = 10_000
"""Rows of an Arrow batch, as Spark's own default; fewer only at the end of a task, or because of `MAX_BYTES`."""
MAX_BYTES = 16 * 2**20
"""Bytes of keys and values after which an Arrow batch is complete."""
MEMORY_LIMIT = 2 * DECOMPRESSED_LIMIT
"""Bytes that batches which are put together may take, by their `memory_bound`. That assumes small headers everywhere,
which few records have; so this is more than the limit of one batch, and `MAX_BYTES` is reached first in most cases.
"""

_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def spark_schema(include_headers: bool) -> StructType:
    """The columns of a row."""
    return StructType([*_COLUMNS.fields, _HEADERS]) if include_headers else StructType(_COLUMNS.fields)


@cache
def arrow_schema(include_headers: bool) -> pa.Schema:
    """`spark_schema` as Spark wants it from a data source."""
    return to_arrow_schema(spark_schema(include_headers), timezone="UTC")


def arrow_batches(
    fetched: Iterable[tuple[OffsetRange, RecordBatch | Message]], *, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The records of ``fetched`` that lie in their range, control records left out.

    Raises:
        DecodeError: a batch is damaged, or a timestamp lies beyond what Spark can hold (the year 294247).
    """
    rows = _Rows()
    for wanted, batch in fetched:
        if batch.control:
            continue
        if rows.count and rows.memory + batch.memory_bound > MEMORY_LIMIT:
            yield rows.to_arrow(include_headers)
            rows = _Rows()
        rows.add(wanted, batch)
        if rows.count >= MAX_ROWS or rows.bytes >= MAX_BYTES:
            whole = rows.to_arrow(include_headers)
            yield from (whole.slice(start, MAX_ROWS) for start in range(0, whole.num_rows, MAX_ROWS))
            rows = _Rows()
    if rows.count:
        yield rows.to_arrow(include_headers)


class _Rows:
    """Records of several batches that become one of Arrow."""

    def __init__(self) -> None:
        self.count = self.bytes = self.memory = 0
        self.parts: list[Records] = []
        self.origins: list[tuple[str, int, int, int]] = []
        """Topic, partition, timestamp type and count of each part."""

    def add(self, wanted: OffsetRange, batch: RecordBatch | Message) -> None:
        """Take the records of ``batch`` with an offset in ``wanted``."""
        try:
            records = batch.records().between(wanted.start, wanted.end)
        except DecodeError as error:
            error.within = f"{wanted.topic}-{wanted.partition}, {error.within}"
            raise
        self.count += len(records)
        self.bytes += records.size
        self.memory += batch.memory_bound
        self.parts.append(records)
        self.origins.append((wanted.topic, wanted.partition, int(batch.log_append_time), len(records)))

    def to_arrow(self, include_headers: bool) -> pa.RecordBatch:
        schema = arrow_schema(include_headers)
        columns = Columns.of(self.parts)
        topics, partitions, timestamp_types, counts = zip(*self.origins, strict=True)
        arrays = [
            _binary(columns.keys, pa.binary()),
            _binary(columns.values, pa.binary()),
            _repeated(topics, counts, pa.string()),
            _repeated(partitions, counts, pa.int32()),
            _numbers(columns.offsets, pa.int64()),
            self._microseconds(columns).view(schema.field("timestamp").type),
            _repeated(timestamp_types, counts, pa.int32()),
        ]
        if include_headers:
            arrays.append(_headers(columns.headers, schema.field("headers").type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _microseconds(self, columns: Columns) -> pa.Int64Array:
        try:
            return pc.multiply_checked(_numbers(columns.timestamps, pa.int64()), 1000)
        except pa.ArrowInvalid as error:
            topic, partition, *_ = self.origins[0]
            raise DecodeError(
                f"{topic}-{partition}, offsets from {columns.offsets[0]} on: "
                f"a timestamp of {max(columns.timestamps, key=abs)} ms since 1970 is more than Spark can hold"
            ) from error


def _numbers(column: memoryview, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _binary(column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    buffers = [None if each is None else pa.py_buffer(each) for each in column.buffers]
    return pa.Array.from_buffers(kind, len(column), buffers)


def _repeated(values: Iterable[str | int], counts: Iterable[int], kind: pa.DataType) -> pa.Array:
    """Each value so many times."""
    runs = (pa.repeat(pa.scalar(value, kind), count) for value, count in zip(values, counts, strict=True))
    return pa.concat_arrays(list(runs))


def _headers(column: HeaderColumn, kind: pa.ListType) -> pa.ListArray:
    """A list of (key, value) for each row; null for a row without headers."""
    offsets = _numbers(column.offsets, pa.int32())
    items = pa.StructArray.from_arrays(
        [_binary(column.names, pa.string()), _binary(column.values, pa.binary())], fields=list(kind.value_type)
    )
    nothing = pc.equal(offsets[:-1], offsets[1:])
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nothing)
