"""Writes rows as records: the tasks of a query that writes, in a batch or in a stream.

    Arrow batch ──► one part per topic ──► each row's partition, sorted by it ──► `BlockingProducer.send_columns`

Rules:
- At least once: a task returns when all its records are acknowledged. A task that fails may have written some of them;
  Spark runs it again, from its first row on.
- A worker process keeps its producer for the next task (`ottla.spark.client_cache`). Each task flushes it at its end,
  so the next task finds it empty.
- A row never becomes a Python object: Arrow sorts the columns, and the producer sends them as they lie in memory.
- The rows of a task keep their order in each partition, as they do with the Java producer, which takes rows one by one.
  Sorting keeps that order only if each row already has its final partition, including rows without a key.

Source: KafkaWriter.scala, KafkaWriteTask.scala.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.codec.columns import BinaryColumn, HeaderColumn
from ottla.codec.partitioners import PARTITIONERS, partition_column
from ottla.errors import ConfigurationError, EncodeError, UnknownTopicOrPartition
from ottla.late_dataclass import dataclass
from ottla.sdk.drivers.blocking_producer import BlockingProducer
from ottla.sdk.produce.column_records import ColumnRecords
from ottla.sdk.produce.partitioners import KEYED, Keyed
from ottla.spark.client_cache import ClientCache
from ottla.spark.failures import one_sentence
from ottla.spark.writing.row_schema import check_schema
from ottla.spark.writing.write_options import ProducerConfig, WriteOptions

MAX_BYTES = 4 * 2**20
"""How many bytes of an Arrow batch are sorted and sent at a time. Larger parts would be held in memory twice, and the
broker would be idle meanwhile."""
UNPLACED = -1
"""The partition of rows that have neither a key nor a value in the column partition."""

_KEYED_IN_C = {function: name for name, function in PARTITIONERS.items()}


def _connect(config: ProducerConfig) -> BlockingProducer:
    return BlockingProducer(config.client.bootstrap, config.options, **config.client.arguments)


# A producer cannot be used again after an exception: it holds records that no task would flush.
producers = ClientCache(_connect)


@dataclass()
class WrittenRows(WriterCommitMessage):
    """Reports how many rows a task has written."""

    rows: int


class RowWriter:
    """Writes the rows of a task. Created on the driver.

    Raises:
        ConfigurationError: the columns cannot be written.
        BrokerUnreachable: no broker answers to ``zeroconf://``.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        producer = replace(options.producer, client=options.producer.client.found())
        self.options = replace(options, producer=producer)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write all rows; return when they are stored.

        Raises:
            DeliveryFailed, DeliveryTimeout, RecordTooLarge, EncodeError: rows were not stored; says why.
            UnknownTopicOrPartition: the topic or the partition does not exist.
            BrokerUnreachable: the brokers do not answer.
        """
        with one_sentence():
            return self._write(each for each in iterator if each.num_rows)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
        batch, rows = next(batches, None), 0
        if batch is None:  # no rows, so connect to no broker
            return WrittenRows(0)
        with producers.use(self.options.producer) as producer:
            partitioner = dict(self.options.producer.arguments).get("partitioner", "murmur2")
            batch_size = self.options.producer.options.batch_size
            rows_of = _Sender(producer, KEYED.get(partitioner), self.options.topic, batch_size)
            while batch is not None:
                for part in _parts(batch):
                    rows_of.send(part)
                    producer.breathe()
                rows += batch.num_rows
                with producer.paused():
                    batch = next(batches, None)
            producer.flush()
        return WrittenRows(rows)


class BatchWriter(RowWriter, DataSourceArrowWriter):
    """``df.write.format("ottla")``."""


class StreamWriter(RowWriter, DataSourceStreamArrowWriter):
    """``df.writeStream.format("ottla")``: writes each micro-batch as a batch query does."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Check that the tasks have run. They report only rows that are stored, so there is no more to commit.

        Raises:
            ConfigurationError: no task ran. This happens with the trigger continuous: Spark does not run Python sinks
                for it, but would count all rows as written.
        """
        if not all(isinstance(each, WrittenRows) for each in messages):
            with one_sentence():
                raise ConfigurationError(
                    "no rows were written: Spark does not run Python sinks with trigger(continuous=…); "
                    "use trigger(processingTime=…)"
                )


def _parts(batch: pa.RecordBatch, size: int = MAX_BYTES) -> Iterator[pa.RecordBatch]:
    """Divide ``batch`` into parts of about ``size`` bytes."""
    rows = max(1, batch.num_rows * size // max(1, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


# -- where rows go ---------------------------------------------------------------------------------------------------


class _Sender:
    """Sends rows to their topics and partitions.

    Args:
        keyed: how keys decide the partition; ``None``: the producer asks the partitioner for each record.
        topic: the topic of all rows; ``None``: the column topic names it.
        batch_size: rows without a key may change to another partition after this many bytes.
    """

    def __init__(self, producer: BlockingProducer, keyed: Keyed | None, topic: str | None, batch_size: int) -> None:
        self._producer, self._keyed, self._topic, self._batch_size = producer, keyed, topic, batch_size

    def send(self, rows: pa.RecordBatch) -> None:
        if self._topic is not None:
            self._send_to(self._topic, rows)
            return
        names = rows.column("topic")
        if names.null_count:
            raise EncodeError(
                f"{names.null_count} of {len(names)} rows have no topic: filter them out, or set option topic"
            )
        coded = names.dictionary_encode()
        try:
            topics = coded.dictionary.to_pylist()
        except UnicodeDecodeError as error:
            raise EncodeError(f"a topic is not valid UTF-8: {error}") from None
        if len(topics) == 1:
            self._send_to(topics[0], rows)
            return
        self._producer.look_up(topics)
        for index, own in _groups(coded.indices):
            self._send_to(topics[index], rows.take(own))

    def _send_to(self, topic: str, rows: pa.RecordBatch) -> None:
        """Send rows of one topic; the rows of each partition keep their order."""
        names = rows.schema.names
        columns = rows.select([name for name in ("key", "value", "headers") if name in names])
        keys, partitions = (rows.column(name) if name in names else None for name in ("key", "partition"))
        places = self._places(topic, keys, partitions, rows.num_rows)
        if places is None:
            self._producer.send_columns(topic, None, _records(columns))
        elif pc.min(places).as_py() != UNPLACED:
            self._send_sorted(topic, columns, places)
        elif self._keyed is None:
            # The producer asks the partitioner row by row. Sorting would move these rows in front of earlier rows that
            # name the same partition.
            self._send_runs(topic, _records(columns), places)
        else:
            start = 0
            for part in _parts(columns, self._batch_size):
                own = places.slice(start, part.num_rows)
                keyless = pa.scalar(self._producer.keyless_partition(topic), pa.int32())
                self._send_sorted(topic, part, pc.if_else(pc.equal(own, UNPLACED), keyless, own))
                start += part.num_rows

    def _send_sorted(self, topic: str, columns: pa.RecordBatch, places: pa.Array) -> None:
        order = pc.array_sort_indices(places)  # a stable sort
        self._send_runs(topic, _records(columns.take(order)), places.take(order))

    def _send_runs(self, topic: str, records: ColumnRecords, places: pa.Array) -> None:
        """Send each run of rows of the same partition."""
        runs, start = pc.run_end_encode(places), 0
        for partition, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            self._producer.send_columns(topic, None if partition == UNPLACED else partition, records, start, stop)
            start = stop

    def _places(self, topic: str, keys: pa.Array | None, partitions: pa.Array | None, count: int) -> pa.Array | None:
        """Return the partition of each row, or `UNPLACED`; ``None`` if the producer is to choose all of them."""
        explicit = partitions is not None and partitions.null_count < count
        if keys is not None and self._keyed is not None and (self._keyed.hash_null or keys.null_count < count):
            places = _hashed(self._keyed, keys, self._producer.partition_count(topic))
        elif explicit:
            places = pa.repeat(pa.scalar(UNPLACED, pa.int32()), count)
        else:
            self._producer.partition_count(topic)  # if the topic is missing, fail here rather than at the first record
            return None
        if partitions is not None and explicit:
            self._check_partitions(topic, partitions)
            places = pc.coalesce(partitions.cast(pa.int32()), places)
        return places

    def _check_partitions(self, topic: str, partitions: pa.Array) -> None:
        """
        Raises:
            UnknownTopicOrPartition: a row names a partition that the topic does not have.
        """
        low, high = pc.min_max(partitions).as_py().values()
        count = self._producer.partition_count(topic)
        if high >= count:  # partitions may have been added
            count = self._producer.partition_count(topic, fresh=True)
        if low < 0 or high >= count:
            wrong = low if low < 0 else high
            raise UnknownTopicOrPartition(
                told=f"a row names partition {wrong}, but {topic!r} has partitions 0 to {count - 1}: correct the "
                "column partition, or make it null to let the key decide"
            )


def _groups(codes: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Return each code and the indices of its rows, in order."""
    order, start = pc.array_sort_indices(codes), 0
    runs = pc.run_end_encode(codes.take(order))
    for code, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield code, order[start:stop]
        start = stop


def _hashed(keyed: Keyed, keys: pa.Array, count: int) -> pa.Array:
    """Return the partition of each key, or `UNPLACED`."""
    column = _binary(keys)
    if name := _KEYED_IN_C.get(keyed.hash):
        places = pa.Array.from_buffers(
            pa.int32(), len(keys), [None, pa.py_buffer(partition_column(name, column, count))]
        )
    else:  # a partitioner of our own, in Python
        found = array("i", (UNPLACED if key is None else keyed.hash(key, count) for key in column))
        places = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(found)])
    if keyed.hash_null and keys.null_count:
        places = pc.if_else(keys.is_null(), pa.scalar(keyed.hash(b"", count), pa.int32()), places)
    if not keyed.hash_empty:
        places = pc.if_else(
            pc.equal(pc.binary_length(keys), 0).fill_null(False), pa.scalar(UNPLACED, pa.int32()), places
        )
    return places


# -- from Arrow ------------------------------------------------------------------------------------------------------


def _records(columns: pa.RecordBatch) -> ColumnRecords:
    keys, headers = (columns.column(name) if name in columns.schema.names else None for name in ("key", "headers"))
    return ColumnRecords(
        _binary(columns.column("value")),
        None if keys is None else _binary(keys),
        None if headers is None else _headers(headers),
    )


def _binary(array: pa.Array) -> BinaryColumn:
    """Convert a column to bytes; strings become UTF-8."""
    if array.type not in (pa.binary(), pa.string()):  # spark.sql.execution.arrow.useLargeVarTypes
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    end = array.offset + len(array)
    column = BinaryColumn(
        memoryview(offsets).cast("B")[: 4 * (end + 1)] if end else bytes(4),
        b"" if data is None else data,
        validity if array.null_count else None,
    )
    return column.slice(array.offset, end) if array.offset else column


def _headers(array: pa.ListArray) -> HeaderColumn | None:
    """Return the headers of each row; ``None`` if no row has any. A null row has no items, in Spark and in Arrow."""
    end = array.offset + len(array)
    offsets = memoryview(array.buffers()[1]).cast("B")[: 4 * (end + 1)].cast("i")[array.offset :]
    if offsets[0] == offsets[-1]:
        return None
    items = array.values
    names, values = items.field(0), items.field(1)
    if items.null_count or names.null_count:
        raise EncodeError("a header is null or has no key: leave it out of the array")
    return HeaderColumn(offsets, _binary(names), _binary(values))
