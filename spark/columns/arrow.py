"""Converts Kafka record batches to Arrow record batches.

Rules:
- The columns are those of `ottla.spark.columns.columns`, including a null if a record has no headers.
- Spark compares the Arrow schema with its own conversion of the columns' types, so we use that conversion as schema.
- Rows of several Kafka batches are combined, also across partitions: Arrow batches of a few rows are a hundred times
  slower.
- Kafka limits a batch by its compressed size. If a batch grows large, it is decompressed as a whole but split into
  several Arrow batches, so that it takes little more memory than its records.

Source: KafkaRecordToRowConverter.scala.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.codec.columns import BinaryColumn, Columns, HeaderColumn
from ottla.codec.compression import DECOMPRESSED_LIMIT
from ottla.codec.records import RecordBatch, Records
from ottla.errors import DecodeError
from ottla.sdk.consume.partitions.record_sets import AnyBatch
from ottla.sdk.consume.reading.range_reader import OffsetRange
from ottla.spark.columns.columns import Layout, spark_schema
from ottla.spark.columns.json_values import parse_values

MAX_ROWS = 10_000
"""Rows of an Arrow batch, as Spark's own default. The last batch of a task has fewer, as do batches of `MAX_BYTES`."""
MAX_BYTES = 16 * 2**20
"""An Arrow batch is complete with this many bytes of records, headers included."""
MAX_BATCH_BYTES = 2**30
"""Bytes that one Kafka batch may take, decompressed, unless the user says otherwise (`maxBatchBytes`)."""
MEMORY_LIMIT = 2 * DECOMPRESSED_LIMIT
"""Bytes that combined batches may take, by their `memory_bound`. That bound assumes small headers everywhere, which few
records have. So this limit is higher than that of one batch, and in most cases `MAX_BYTES` is reached first."""
_MICROSECONDS = pa.scalar(1000, pa.int64())
"""Microseconds in a millisecond, as an Arrow scalar: converting a Python int costs Arrow 0.1 ms each time."""


@cache
def arrow_schema(layout: Layout) -> pa.Schema:
    """Return `spark_schema` in the form that Spark expects from a data source."""
    return to_arrow_schema(spark_schema(layout), timezone="UTC")


Unreadable = Callable[[OffsetRange, AnyBatch, DecodeError], None]
"""Called with a batch that cannot be decoded. If it does not raise, the batch is skipped."""


def _raise(wanted: OffsetRange, batch: AnyBatch, error: DecodeError) -> NoReturn:
    raise error


def arrow_batches(
    fetched: Iterable[tuple[OffsetRange, AnyBatch]],
    layout: Layout,
    limit: int = MAX_BATCH_BYTES,
    on_unreadable: Unreadable = _raise,
) -> Iterator[pa.RecordBatch]:
    """Yield those records of ``fetched`` that are in their range; control records are left out.

    Args:
        limit: bytes that the records of one Kafka batch may take, decompressed and as objects.

    Raises:
        DecodeError: a batch is damaged or takes more than ``limit``, and ``on_unreadable`` does not skip it; or a
            timestamp is out of the range of Spark (the year 294247).
    """
    rows = _Rows()
    for wanted, batch in fetched:
        if batch.control:
            continue
        memory = batch.memory_bound
        if rows.count and rows.memory + memory > MEMORY_LIMIT:
            yield rows.to_arrow(layout)
            rows = _Rows()
        try:
            records = _opened(batch, limit).between(wanted.start, wanted.end)
        except DecodeError as error:
            error.within = f"{wanted.topic}-{wanted.partition}, {error.within}"
            on_unreadable(wanted, batch, error)
            continue
        for part in _parts(records):
            rows.add(wanted, int(batch.log_append_time), part, memory)
            if rows.count >= MAX_ROWS or rows.bytes >= MAX_BYTES:
                whole = rows.to_arrow(layout)
                yield from (whole.slice(start, MAX_ROWS) for start in range(0, whole.num_rows, MAX_ROWS))
                rows = _Rows()
    if rows.count:
        yield rows.to_arrow(layout)


def _parts(records: Records) -> Iterator[Records]:
    """Split ``records`` into parts of about `MAX_BYTES`; no part if there are no records."""
    if not records:
        return
    if (size := records.memory) <= MAX_BYTES:  # nearly always
        yield records
        return
    rows = max(1, len(records) * MAX_BYTES // size)
    for start in range(0, len(records), rows):
        yield records[start : start + rows]


class _Rows:
    """Collects records of several Kafka batches into one Arrow batch."""

    def __init__(self) -> None:
        self.count = self.bytes = self.memory = 0
        self.parts: list[Records] = []
        self.origins: list[tuple[str, int, int]] = []
        """Topic, partition and timestamp type, once for each run of rows that share them."""
        self.run_ends: list[int] = []

    def add(self, wanted: OffsetRange, timestamp_type: int, records: Records, memory: int) -> None:
        """Add records. They keep a batch of at most ``memory`` bytes in memory."""
        self.count += len(records)
        self.bytes += records.memory
        self.memory += memory
        self.parts.append(records)
        origin = (wanted.topic, wanted.partition, timestamp_type)
        if self.origins and self.origins[-1] == origin:
            self.run_ends[-1] = self.count
        else:
            self.origins.append(origin)
            self.run_ends.append(self.count)

    def to_arrow(self, layout: Layout) -> pa.RecordBatch:
        schema = arrow_schema(layout)
        columns = Columns.of(self.parts)
        topics, partitions, timestamp_types = zip(*self.origins, strict=True)
        values, corrupt = _binary(columns.values, pa.binary()), None
        if layout.json is not None:
            values, corrupt = parse_values(values, schema.field("value").type)
        arrays = [
            _binary(columns.keys, pa.binary()),
            values,
            self._repeated(topics, pa.string()),
            self._repeated(partitions, pa.int32()),
            _numbers(columns.offsets, pa.int64()),
            self._microseconds(columns).view(schema.field("timestamp").type),
            self._repeated(timestamp_types, pa.int32()),
        ]
        if layout.include_headers:
            arrays.append(_headers(columns.headers, schema.field("headers").type))
        if corrupt is not None:
            arrays.append(corrupt)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _repeated(self, values: Sequence[str | int], kind: pa.DataType) -> pa.Array:
        """Repeat each value for the rows of its run."""
        if len(values) == 1:
            return pa.repeat(pa.scalar(values[0], kind), self.count)
        runs = pa.RunEndEncodedArray.from_arrays(pa.array(self.run_ends, pa.int32()), pa.array(values, kind))
        return pc.run_end_decode(runs)

    def _microseconds(self, columns: Columns) -> pa.Int64Array:
        try:
            return pc.multiply_checked(_numbers(columns.timestamps, pa.int64()), _MICROSECONDS)
        except pa.ArrowInvalid as error:
            topic, partition, *_ = self.origins[0]
            raise DecodeError(
                f"{topic}-{partition}, offsets from {columns.offsets[0]} on: "
                f"a timestamp of {max(columns.timestamps, key=abs)} ms since 1970 is out of the range of Spark"
            ) from error


def _opened(batch: AnyBatch, limit: int) -> Records:
    return batch.records(limit, any_names=True) if isinstance(batch, RecordBatch) else batch.records(limit)


def _numbers(column: memoryview, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _binary(column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    buffers = [None if each is None else pa.py_buffer(each) for each in column.buffers]
    return pa.Array.from_buffers(kind, len(column), buffers)


def _headers(column: HeaderColumn, kind: pa.ListType) -> pa.ListArray:
    """Return a list of (key, value) for each row; null if a row has no headers."""
    offsets = _numbers(column.offsets, pa.int32())
    items = pa.StructArray.from_arrays(
        [_binary(column.names, pa.string()), _binary(column.values, pa.binary())], fields=list(kind.value_type)
    )
    nothing = pc.equal(offsets[:-1], offsets[1:])
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nothing)
