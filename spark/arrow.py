"""Batches of the wire to record batches of Arrow.

Rules:
- The columns are those of `ottla.spark.columns`, down to a null where a record has no headers.
- Spark compares the Arrow schema with its own conversion of the columns' types: that conversion is the schema here.
- Rows of several batches, partitions too, are put together: Arrow batches of a few rows are a hundred times slower.
- Kafka limits a batch by its compressed size. One that becomes large is opened as a whole, but becomes several Arrow
  batches, so that it takes little more memory than its records.

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
from ottla.sdk.consume.ranges import OffsetRange
from ottla.sdk.consume.record_sets import AnyBatch
from ottla.spark.columns import Layout, spark_schema
from ottla.spark.json_values import parse_values

MAX_ROWS = 10_000
"""Rows of an Arrow batch, as Spark's own default; fewer only at the end of a task, or because of `MAX_BYTES`."""
MAX_BYTES = 16 * 2**20
"""Bytes of records, headers included, after which an Arrow batch is complete."""
MAX_BATCH_BYTES = 2**30
"""Bytes that one batch of the wire may take, opened, unless the user says otherwise (`maxBatchBytes`)."""
MEMORY_LIMIT = 2 * DECOMPRESSED_LIMIT
"""Bytes that batches which are put together may take, by their `memory_bound`. That assumes small headers everywhere,
which few records have; so this is more than the limit of one batch, and `MAX_BYTES` is reached first in most cases.
"""
_MICROSECONDS = pa.scalar(1000, pa.int64())
"""Of a millisecond; a number of Python's would take Arrow a tenth of a millisecond, each time."""


@cache
def arrow_schema(layout: Layout) -> pa.Schema:
    """`spark_schema` as Spark wants it from a data source."""
    return to_arrow_schema(spark_schema(layout), timezone="UTC")


Unreadable = Callable[[OffsetRange, AnyBatch, DecodeError], None]
"""Called with a batch that cannot be opened; the batch is skipped, unless this raises an error."""


def _raise(wanted: OffsetRange, batch: AnyBatch, error: DecodeError) -> NoReturn:
    raise error


def arrow_batches(
    fetched: Iterable[tuple[OffsetRange, AnyBatch]],
    layout: Layout,
    limit: int = MAX_BATCH_BYTES,
    on_unreadable: Unreadable = _raise,
) -> Iterator[pa.RecordBatch]:
    """The records of ``fetched`` that lie in their range, control records left out.

    Args:
        limit: bytes that the records of each batch may take, decompressed and as objects.

    Raises:
        DecodeError: a batch is damaged or takes more than ``limit``, unless ``on_unreadable`` accepts that; or a
            timestamp lies beyond what Spark can hold (the year 294247).
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
    """``records`` in parts of about `MAX_BYTES`; nothing if there are none."""
    if not records:
        return
    if (size := records.memory) <= MAX_BYTES:  # as of nearly every batch
        yield records
        return
    rows = max(1, len(records) * MAX_BYTES // size)
    for start in range(0, len(records), rows):
        yield records[start : start + rows]


class _Rows:
    """Records of several batches that become one of Arrow."""

    def __init__(self) -> None:
        self.count = self.bytes = self.memory = 0
        self.parts: list[Records] = []
        self.origins: list[tuple[str, int, int]] = []
        """Topic, partition and timestamp type of each run of rows that have them in common."""
        self.run_ends: list[int] = []

    def add(self, wanted: OffsetRange, timestamp_type: int, records: Records, memory: int) -> None:
        """Take records, which keep a batch in memory that takes ``memory`` bytes at most."""
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
        """Each value for the rows of its run."""
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
                f"a timestamp of {max(columns.timestamps, key=abs)} ms since 1970 is more than Spark can hold"
            ) from error


def _opened(batch: AnyBatch, limit: int) -> Records:
    return batch.records(limit, any_names=True) if isinstance(batch, RecordBatch) else batch.records(limit)


def _numbers(column: memoryview, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _binary(column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    buffers = [None if each is None else pa.py_buffer(each) for each in column.buffers]
    return pa.Array.from_buffers(kind, len(column), buffers)


def _headers(column: HeaderColumn, kind: pa.ListType) -> pa.ListArray:
    """A list of (key, value) for each row; null for a row without headers."""
    offsets = _numbers(column.offsets, pa.int32())
    items = pa.StructArray.from_arrays(
        [_binary(column.names, pa.string()), _binary(column.values, pa.binary())], fields=list(kind.value_type)
    )
    nothing = pc.equal(offsets[:-1], offsets[1:])
    return pa.ListArray.from_arrays(offsets, items, type=kind, mask=nothing)
