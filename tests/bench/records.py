"""Record batches: ottla's loops and interpreted construct against aiokafka's C extension and kafka-python, with CRCs.

confluent-kafka is missing: it cannot encode or decode without a broker.
"""

import functools
from collections.abc import Callable
from typing import Any

import kafka.partitioner.default
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.codec import reference
from ottla.codec.compression import Compression
from ottla.codec.records import BatchHeader, RecordBody, build_batch, parse_batch, rebased
from tests.bench.case import Case
from tests.codec.record_engines import LOOPS, RECORDS
from tests.codec.test_records import read_varint, zigzag

COUNT = 500
BATCHES = 16
"""The size of a fetch: 1 MB."""
NOW = 1_700_000_000_000
KEYS = [b"key-%012d" % number for number in range(COUNT)]
VALUE = b"v" * 100
ROWS = [(NOW, key, VALUE) for key in KEYS]
PARTITIONS = 12

Way = Callable[[], int]


def built(module: Any, rows: list[tuple[int, bytes, bytes]]) -> bytes:
    builder = module.BatchBuilder()
    builder.extend(rows)
    data: bytes = builder.build()
    return data


BATCH = built(RECORDS["python"], ROWS)
FETCH = b"".join(rebased(BATCH, COUNT * number, 0) for number in range(BATCHES))
COLUMNS = parse_batch(BATCH).columns()


# --- decode


def decode(module: Any) -> int:
    return sum(len(list(batch.records())) for batch in module.read_batches(BATCH))


def decode_theirs(batch: Any) -> int:
    batch = batch(BATCH)
    assert batch.validate_crc()
    return len(list(batch))


def read(module: Any) -> int:
    for batch in module.read_batches(BATCH):
        for record in batch.records():
            _key, _value = record.key, record.value
    return COUNT


def read_theirs(batch: Any) -> int:
    batch = batch(BATCH)
    assert batch.validate_crc()
    for record in batch:
        _key, _value = record.key, record.value
    return COUNT


def decode_construct() -> int:
    head, at = reference.parse(BatchHeader, 2, BATCH)
    assert crc32c(BATCH[21:]) == head.crc
    for _ in range(head.count):
        _, at = read_varint(BATCH, at)
        _, at = reference.parse(RecordBody, 2, BATCH, at)
    return head.count


def columns(module: Any) -> int:
    return sum(len(batch.columns()) for batch in module.read_batches(BATCH))


def columns_of_fetch(module: Any) -> int:
    return len(module.read_columns(module.read_batches(FETCH)))


def fetch_theirs(batch: Any) -> int:
    handled = 0
    for start in range(0, len(FETCH), len(BATCH)):
        each = batch(FETCH[start : start + len(BATCH)])
        assert each.validate_crc()
        handled += len(list(each))
    return handled


# --- encode


def append(module: Any) -> int:
    builder = module.BatchBuilder()
    for key in KEYS:
        builder.append(NOW, key, VALUE)
    builder.build()
    return COUNT


def extend(module: Any) -> int:
    built(module, ROWS)
    return COUNT


def extend_columns(module: Any) -> int:
    builder = module.BatchBuilder()
    builder.extend_columns(COLUMNS.timestamps, COLUMNS.keys, COLUMNS.values)
    builder.build()
    return COUNT


def their_builder(builder: Any, compression: int = 0) -> Any:
    return builder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )


def append_theirs(builder: Any) -> int:
    builder = their_builder(builder)
    for offset, key in enumerate(KEYS):
        builder.append(offset, NOW, key, VALUE, [])
    builder.build()
    return COUNT


def append_construct() -> int:
    parts: list[bytes] = []
    for index, key in enumerate(KEYS):
        body = RecordBody(attributes=0, timestamp_delta=0, offset_delta=index, key=key, value=VALUE, headers=())
        record = reference.build(body, 2)
        parts += (zigzag(len(record)), record)
    crc32c(b"".join(parts))
    return COUNT


# --- mixed shapes: some keys are null, some records have headers, and batches are compressed

MIXED = [
    (
        NOW + number,
        None if number % 4 == 0 else key,
        None if number % 50 == 0 else b'{"customer": "%s", "total": %d}' % (key, number * 7),
        (("trace-id", b"%032x" % number), ("source", None)) if number % 2 else (),
    )
    for number, key in enumerate(KEYS)
]
MIXED_THEIRS = [(*row[:3], list(row[3])) for row in MIXED]
"""The other libraries take headers in a list."""
GZIP = int(Compression.GZIP)
"""The only compression that all libraries have without further packages."""


def built_mixed(module: Any) -> bytes:
    builder = module.BatchBuilder()
    builder.extend(MIXED)
    data: bytes = builder.build(compression=module.Compression.GZIP)
    return data


def built_mixed_theirs(builder: Any) -> bytes:
    builder = their_builder(builder, GZIP)
    for offset, (timestamp, key, value, headers) in enumerate(MIXED_THEIRS):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


MIXED_BATCH = built_mixed(RECORDS["python"])


def read_mixed(module: Any) -> int:
    for batch in module.read_batches(MIXED_BATCH):
        for record in batch.records():
            _fields = record.key, record.value, record.headers
    return COUNT


def read_mixed_theirs(batch: Any) -> int:
    batch = batch(MIXED_BATCH)
    assert batch.validate_crc()
    for record in batch:
        _fields = record.key, record.value, record.headers
    return COUNT


def mixed_columns(module: Any) -> int:
    return sum(len(batch.columns().headers) for batch in module.read_batches(MIXED_BATCH))


def encode_mixed(module: Any) -> int:
    built_mixed(module)
    return COUNT


def encode_mixed_theirs(builder: Any) -> int:
    built_mixed_theirs(builder)
    return COUNT


# --- keys to partitions


def place(murmur2: Callable[[bytes], int]) -> int:
    for key in KEYS:
        (murmur2(key) & 0x7FFFFFFF) % PARTITIONS
    return COUNT


def place_ours(loops: Any) -> int:
    murmur2_partition = loops.murmur2_partition
    for key in KEYS:
        murmur2_partition(key, PARTITIONS)
    return COUNT


def place_column(loops: Any) -> int:
    return len(loops.partition_column("murmur2", COLUMNS.keys, PARTITIONS))


def ours(work: Callable[[Any], int], engines: dict[str, Any], **others: Way) -> dict[str, Way]:
    return {name: functools.partial(work, engines[name]) for name in sorted(engines)} | others


def theirs(work: Callable[[Any], int], aiokafka: Any, kafka_python: Any) -> dict[str, Way]:
    return {
        "aiokafka, C": functools.partial(work, aiokafka),
        "kafka-python": functools.partial(work, kafka_python),
    }


BATCH_TYPES = AiokafkaBatch, KafkaPythonBatch
BUILDERS = AiokafkaBuilder, KafkaPythonBuilder
assert build_batch(parse_batch(BATCH).records()) == BATCH
CASES = [
    Case(
        name="decode records of 16 + 100 bytes",
        unit="records",
        ours=ours(decode, RECORDS, construct=decode_construct),
        theirs=theirs(decode_theirs, *BATCH_TYPES),
    ),
    Case(
        name="decode them, read key and value",
        unit="records",
        ours=ours(read, RECORDS),
        theirs=theirs(read_theirs, *BATCH_TYPES),
    ),
    Case(
        name="decode a batch as columns",
        unit="records",
        ours=ours(columns, RECORDS),
        theirs=theirs(decode_theirs, *BATCH_TYPES),
    ),
    Case(
        name="decode a fetch of 1 MB as columns",
        unit="records",
        ours=ours(columns_of_fetch, RECORDS),
        theirs=theirs(fetch_theirs, *BATCH_TYPES),
    ),
    Case(
        name="encode records one by one",
        unit="records",
        ours=ours(append, RECORDS, construct=append_construct),
        theirs=theirs(append_theirs, *BUILDERS),
    ),
    Case(
        name="encode a list of records",
        unit="records",
        ours=ours(extend, RECORDS),
        theirs=theirs(append_theirs, *BUILDERS),
    ),
    Case(
        name="encode columns",
        unit="records",
        ours=ours(extend_columns, RECORDS),
        theirs=theirs(append_theirs, *BUILDERS),
    ),
    Case(
        name="decode mixed records, gzip, read all",
        unit="records",
        ours=ours(read_mixed, RECORDS),
        theirs=theirs(read_mixed_theirs, *BATCH_TYPES),
    ),
    Case(
        name="decode mixed records, gzip, as columns",
        unit="records",
        ours=ours(mixed_columns, RECORDS),
        theirs=theirs(read_mixed_theirs, *BATCH_TYPES),
    ),
    Case(
        name="encode a list of mixed records, gzip",
        unit="records",
        ours=ours(encode_mixed, RECORDS),
        theirs=theirs(encode_mixed_theirs, *BUILDERS),
    ),
    Case(
        name="place keys of 16 bytes by murmur2",
        unit="keys",
        ours=ours(place_ours, LOOPS),
        theirs=theirs(place, aiokafka_murmur2, kafka.partitioner.default.murmur2),
    ),
    Case(
        name="place a column of them",
        unit="keys",
        ours=ours(place_column, LOOPS),
        theirs=theirs(place, aiokafka_murmur2, kafka.partitioner.default.murmur2),
    ),
]
