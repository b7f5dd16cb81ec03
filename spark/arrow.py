"""Batches of the wire to record batches of Arrow.

Rules:
- The columns and their types are those of Spark's own Kafka connector, down to a null where a record has no headers.
- Spark compares the Arrow schema with its own conversion of the columns' types: that conversion is the schema here.
- Rows of several batches, partitions too, are put together: Arrow batches of a few rows are a hundred times slower.

Source: KafkaRecordToRowConverter.scala.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain

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

from ottla.codec.records import Headers, RecordBatch
from ottla.errors import DecodeError
from ottla.spark.offsets import OffsetRange

MAX_ROWS = 10_000
"""Rows of an Arrow batch, as Spark's own default; fewer only at the end of a task, or because of `MAX_BYTES`."""
MAX_BYTES = 16 * 2**20
"""Bytes of keys and values after which an Arrow batch is complete."""

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
    fetched: Iterable[tuple[OffsetRange, RecordBatch]], *, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The records of ``fetched`` that lie in their range, control records left out.

    Raises:
        DecodeError: a batch is damaged, or a timestamp lies beyond what Spark can hold (the year 294247).
    """
    rows = _Rows()
    for wanted, batch in fetched:
        if batch.control:
            continue
        rows.add(wanted, batch, include_headers)
        if len(rows.values) >= MAX_ROWS or rows.bytes >= MAX_BYTES:
            whole = rows.to_arrow(include_headers)
            yield from (whole.slice(start, MAX_ROWS) for start in range(0, whole.num_rows, MAX_ROWS))
            rows = _Rows()
    if rows.values:
        yield rows.to_arrow(include_headers)


class _Rows:
    """Columns that grow batch by batch."""

    def __init__(self) -> None:
        self.bytes = 0
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.topics: list[str] = []
        self.partitions: list[int] = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.timestamp_types: list[int] = []
        self.headers: list[Headers] = []

    def add(self, wanted: OffsetRange, batch: RecordBatch, include_headers: bool) -> None:
        """Append the records of ``batch`` with an offset in ``wanted``."""
        try:
            columns = batch.columns()
        except DecodeError as error:
            error.path = f"{wanted.topic}-{wanted.partition}, batch at offset {batch.base_offset}: {error.path}"
            raise
        inside = slice(bisect_left(columns.offsets, wanted.start), bisect_left(columns.offsets, wanted.end))
        keys, values = columns.keys[inside], columns.values[inside]
        count = len(values)
        self.bytes += sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
        self.keys += keys
        self.values += values
        self.topics += [wanted.topic] * count
        self.partitions += [wanted.partition] * count
        self.offsets += columns.offsets[inside]
        self.timestamps += columns.timestamps[inside]
        self.timestamp_types += [int(batch.log_append_time)] * count
        if include_headers:
            self.headers += columns.headers[inside]

    def to_arrow(self, include_headers: bool) -> pa.RecordBatch:
        schema = arrow_schema(include_headers)
        try:
            timestamps = pc.multiply_checked(pa.array(self.timestamps, pa.int64()), 1000)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise DecodeError(
                f"{self.topics[0]}-{self.partitions[0]}, offsets from {self.offsets[0]} on: "
                f"a timestamp of {max(self.timestamps, key=abs)} ms since 1970 is more than Spark can hold"
            ) from error
        columns = [
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.topics, pa.string()),
            pa.array(self.partitions, pa.int32()),
            pa.array(self.offsets, pa.int64()),
            timestamps.view(schema.field("timestamp").type),
            pa.array(self.timestamp_types, pa.int32()),
        ]
        if include_headers:
            columns.append(_header_column(self.headers, schema.field("headers").type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _header_column(rows: list[Headers], list_type: pa.ListType) -> pa.ListArray:
    """A list of (key, value) for each row; null for a row without headers."""
    starts: list[int | None] = []
    count = 0
    for headers in rows:
        starts.append(count if headers else None)
        count += len(headers)
    pairs = list(chain.from_iterable(rows))
    items = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in pairs], pa.string()), pa.array([value for _, value in pairs], pa.binary())],
        fields=list(list_type.value_type),
    )
    return pa.ListArray.from_arrays(pa.array([*starts, count], pa.int32()), items, type=list_type)
