"""Record batches from real clients and brokers: as produced, as fetched, and as stored on disk.

tests/wire/README.md describes their origin; `test_recorded_frames.py` tests the frames around them.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from ottla.codec import frames
from ottla.codec.apis import APIS
from ottla.codec.compression import Compression
from ottla.codec.records import MAGIC, BatchBuilder, RecordBatch, read_batches
from tests.codec.recorded import WIRE, exchanges

DAMAGED = ("unsupported api key 0 version 2",)
"""Scenarios with truncated requests."""


def record_sets() -> Iterator[tuple[str, bytes]]:
    """The writer, and a record set that begins with a batch of magic 2."""
    for exchange in exchanges("Produce"):
        if exchange.scenario not in DAMAGED:
            for topic in frames.parse_request(exchange.request).message.topic_data:
                yield from ((str(exchange), p.records) for p in topic.partition_data if _is_magic_2(p.records))
    for exchange in exchanges("Fetch"):
        if exchange.response is not None:
            _, answer = frames.parse_response(APIS[exchange.key].response, exchange.version, exchange.response)
            for topic in answer.responses:
                yield from ((str(exchange), p.records) for p in topic.partitions if _is_magic_2(p.records))
    for log in sorted((WIRE / "segments").glob("*/*.log")):
        yield str(log), log.read_bytes()


def _is_magic_2(records: bytes | None) -> bool:
    return records is not None and len(records) > 16 and records[16] == MAGIC


@cache
def batches() -> list[tuple[str, RecordBatch]]:
    return [(who, batch) for who, records in record_sets() for batch in read_batches(records)]


def rebuilt(batch: RecordBatch) -> bytes:
    builder = BatchBuilder()
    for record in batch.records():
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build(
        base_offset=batch.base_offset,
        compression=Compression(batch.compression),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        transactional=batch.transactional,
        control=batch.control,
    )


def test_an_uncompressed_batch_builds_the_same_bytes() -> None:
    same = 0
    for who, batch in batches():
        # A builder writes batches like a producer: timestamps count from the first record's, and are not the broker's.
        ours = not batch.log_append_time and batch.records()[0].timestamp == batch.base_timestamp
        if batch.compression == Compression.NONE and ours:
            assert rebuilt(batch) == bytes(batch.data), who
            same += 1
    assert same > 1000


@pytest.mark.parametrize("compression", [each for each in Compression if each is not Compression.NONE])
def test_a_compressed_batch_builds_the_same_records(compression: Compression) -> None:
    writers: dict[str, int] = defaultdict(int)
    for who, batch in batches():
        if batch.compression == compression:
            [again] = read_batches(rebuilt(batch))
            assert list(again.records()) == list(batch.records()), who
            writers[who.partition("(")[2].partition(",")[0]] += 1
    assert len(writers) >= 4, "batches of too few clients"


def test_log_append_time_is_the_time_of_every_record() -> None:
    stamped = [batch for _, batch in batches() if batch.log_append_time]
    assert stamped
    for batch in stamped:
        assert {record.timestamp for record in batch.records()} == {batch.max_timestamp}


def test_a_segment_holds_every_offset_once_and_in_order() -> None:
    for log in (WIRE / "segments").glob("*/*.log"):
        data = log.read_bytes()
        segment = list(read_batches(data))
        assert sum(len(batch.data) for batch in segment) == len(data)
        offsets = [record.offset for batch in segment for record in batch.records()]
        assert offsets == list(range(len(offsets))), log
