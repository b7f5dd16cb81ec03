"""The record sets that a partition accepts and refuses, driven directly."""

from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from ottla.brokerlite.machines.partitions import validation
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.partitions.validation import InvalidRecords, InvalidTimestamps
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.codec.compression import Compression
from ottla.codec.records import HEADER_SIZE, BatchBuilder, parse_batch
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from tests.brokerlite.machine import TODAY, Flushes, a_batch, idempotent, records_of, store, values_of, work_off

NEWEST = 13


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    segments = PartitionSegments(tmp_path / "t-0", 4096, Flushes())
    segments.create(NO_UUID)
    return PartitionLog("t-0", segments)


def append(log: PartitionLog, records: bytes | None, version: int = NEWEST, timestamp: int = TODAY) -> int:
    return store(log, records, version, timestamp=timestamp).base_offset


def changed(batch: bytes, position: int, data: bytes) -> bytes:
    """``batch`` with other bytes at ``position`` and a CRC that matches."""
    out = bytearray(batch)
    out[position : position + len(data)] = data
    out[17:21] = crc32c(memoryview(out)[21:]).to_bytes(4, "big")
    return bytes(out)


def test_batches_get_the_next_offsets_and_read_back(log: PartitionLog) -> None:
    assert append(log, a_batch(b"a", b"b")) == 0
    assert append(log, a_batch(b"c")) == 2
    assert (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (0, 3, 3, 3)
    records = records_of(log.read(0, 2**20))
    assert [(record.offset, record.value) for record in records] == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_is_stored_as_it_came_in_each_compression(log: PartitionLog, compression: Compression) -> None:
    batch = a_batch(*[b"the same words"] * 50, compression=compression)
    append(log, a_batch())
    append(log, batch)
    stored = bytes(log.read(1, 2**20))
    assert stored[21:] == batch[21:], "the part that the CRC covers"
    assert int.from_bytes(stored[:8], "big") == 1
    assert int.from_bytes(stored[12:16], "big") == 0, "the leader epoch"


def test_a_retry_is_stored_once_and_told_the_first_offset(log: PartitionLog) -> None:
    append(log, a_batch(b"somebody else's"))
    first = append(log, idempotent(0, 3))
    append(log, idempotent(3, 2))
    again = store(log, idempotent(0, 3))
    assert again == (first, TODAY + 2, 0) and log.end_offset == 6


def test_a_gap_is_refused_and_stores_nothing(log: PartitionLog) -> None:
    append(log, idempotent(0))
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, idempotent(2))
    assert log.end_offset == 1
    append(log, idempotent(1))


@pytest.mark.parametrize(
    ("what", "records"),
    [
        ("nothing", b""),
        ("null", None),
        ("two batches", a_batch() + a_batch()),
        ("a torn batch", a_batch()[:-1]),
        ("magic 1", changed(a_batch(), 16, b"\1")),
        ("a base offset", a_batch(base_offset=5)),
        ("fewer records than it says", changed(a_batch(b"a", b"b"), 57, (3).to_bytes(4, "big"))),
        ("another last offset", changed(a_batch(b"a", b"b"), 23, (2).to_bytes(4, "big"))),
        ("no records", changed(changed(a_batch(), 57, bytes(4)), 23, (2**32 - 1).to_bytes(4, "big"))),
        ("a negative count", changed(a_batch(), 57, (2**32 - 1).to_bytes(4, "big"))),
        ("a control batch", a_batch(control=True)),
        ("a producer without a sequence", a_batch(producer_id=7, producer_epoch=0, base_sequence=-1)),
        ("an unknown compression", changed(a_batch(), 21, b"\0\5")),
    ],
)
def test_a_record_set_that_breaks_a_rule_is_invalid(log: PartitionLog, what: str, records: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        append(log, records)
    assert log.end_offset == 0


@pytest.mark.parametrize("compression", [c for c in Compression if c])
def test_a_compressed_batch_that_lies_about_its_count_is_invalid(log: PartitionLog, compression: Compression) -> None:
    batch = a_batch(b"a", b"b", compression=compression)
    more = changed(changed(batch, 57, (3).to_bytes(4, "big")), 23, (2).to_bytes(4, "big"))
    fewer = changed(changed(batch, 57, (1).to_bytes(4, "big")), 23, bytes(4))
    damaged = changed(batch, HEADER_SIZE + 4, bytes(8))
    for each in (more, fewer, damaged):
        with pytest.raises(InvalidRecord):
            append(log, each)


@pytest.mark.parametrize("compression", [c for c in Compression if c])
def test_a_batch_that_would_grow_beyond_all_bounds_is_invalid(
    log: PartitionLog, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "DECOMPRESSED_LIMIT", 50_000)
    with pytest.raises(InvalidRecord, match="limit of 50000 bytes"):
        append(log, a_batch(bytes(60_000), compression=compression))
    append(log, a_batch(bytes(40_000), compression=compression))


@pytest.mark.parametrize("compression", list(Compression), ids=lambda each: each.name.lower())
def test_a_batch_of_so_many_records_that_no_reader_could_hold_them_is_invalid(
    log: PartitionLog, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "DECOMPRESSED_LIMIT", 50_000)
    with pytest.raises(InvalidRecord, match="would take more memory than the limit of 50000 bytes"):
        append(log, a_batch(*[b""] * 600, compression=compression))
    append(log, a_batch(*[b""] * 400, compression=compression))


def test_records_of_no_bytes_are_invalid(log: PartitionLog) -> None:
    batch = a_batch(*[b""] * 20)[:HEADER_SIZE] + bytes(20)
    with pytest.raises(InvalidRecord, match="20 records in 20 bytes"):
        append(log, changed(batch, 8, (len(batch) - 12).to_bytes(4, "big")))


def test_records_whose_lengths_do_not_end_where_the_batch_does_are_invalid(log: PartitionLog) -> None:
    batch = a_batch(b"value")
    for length in (b"\0", b"\x7e", b"\xff", b"\xff" * 5):
        with pytest.raises(InvalidRecord):
            append(log, changed(batch, HEADER_SIZE, length))


def test_a_wrong_crc_is_corrupt_wherever_the_byte_was_flipped(log: PartitionLog) -> None:
    batch = a_batch(b"value")
    for position in (17, 21, 30, HEADER_SIZE, len(batch) - 1):
        flipped = bytearray(batch)
        flipped[position] ^= 1
        with pytest.raises(CorruptMessage):
            append(log, bytes(flipped))


def test_no_single_flipped_bit_is_ever_stored_as_something_else(log: PartitionLog) -> None:
    batch = idempotent(0, 2)
    expected = values_of(batch)
    outside_the_crc = {*range(12, 16)}
    for position in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            if position in outside_the_crc:
                continue
            with pytest.raises((InvalidRecord, CorruptMessage)):
                append(log, bytes(flipped))
    append(log, batch)
    assert values_of(log.read(0, 2**20)) == expected


def test_bytes_that_are_no_whole_batch_behind_the_batch_are_left_out(log: PartitionLog) -> None:
    append(log, a_batch() + a_batch()[:40])
    assert log.end_offset == 1
    assert len(log.read(0, 2**20)) == len(a_batch())


def test_a_batch_larger_than_the_topic_takes_is_too_large_and_one_larger_than_a_segment_too(log: PartitionLog) -> None:
    batch = a_batch(bytes(3000))
    log.settings = LogSettings(max_message_bytes=len(batch) - 1)
    with pytest.raises(MessageTooLarge):
        append(log, batch)
    log.settings = LogSettings(segment_bytes=len(batch) - 1)
    with pytest.raises(RecordListTooLarge):
        append(log, batch)
    log.settings = LogSettings(max_message_bytes=len(batch), segment_bytes=len(batch))
    append(log, batch)


def test_zstd_needs_produce_version_7(log: PartitionLog) -> None:
    batch = a_batch(compression=Compression.ZSTD)
    with pytest.raises(UnsupportedCompressionType):
        append(log, batch, version=6)
    append(log, batch, version=7)


def test_a_compacted_topic_takes_no_record_without_a_key_and_says_which(log: PartitionLog) -> None:
    log.settings = LogSettings(compacted=True)
    builder = BatchBuilder()
    for key in (b"a", None, b"", None):
        builder.append(TODAY, key, b"v")
    with pytest.raises(InvalidRecords) as refused:
        append(log, builder.build(compression=Compression.LZ4))
    assert refused.value.indexes == (1, 3)
    append(log, a_batch(key=b""))


def test_timestamps_far_in_the_future_are_refused(log: PartitionLog) -> None:
    hour = 3600 * 1000
    append(log, a_batch(timestamp=TODAY + hour))
    with pytest.raises(InvalidTimestamp):
        append(log, a_batch(timestamp=TODAY + hour + 1))
    append(log, a_batch(timestamp=-1))
    log.settings = LogSettings(timestamp_before_max_ms=hour)
    append(log, a_batch(timestamp=TODAY - hour))
    with pytest.raises(InvalidTimestamp):
        append(log, a_batch(timestamp=TODAY - hour - 1))


def test_log_append_time_stamps_the_batch_and_only_the_broker_sets_it(log: PartitionLog) -> None:
    client_set = changed(a_batch(), 21, b"\0\x08")
    append(log, client_set)
    unstamped = parse_batch(bytes(log.read(0, 2**20)))
    assert unstamped.crc_matches and not unstamped.log_append_time, "the client's attribute is not stored"
    log.settings = LogSettings(log_append_time=True)
    with pytest.raises(InvalidTimestamps) as refused:
        append(log, client_set)
    assert refused.value.indexes == (0,)
    stored = store(log, a_batch(b"a", b"b", timestamp=5))
    assert stored.append_time == TODAY
    batch = parse_batch(bytes(log.read(1, 2**20)))
    assert batch.crc_matches and batch.log_append_time
    assert [record.timestamp for record in batch.records()] == [TODAY, TODAY]


def test_a_retry_on_a_topic_that_stamps_is_told_the_first_time(log: PartitionLog) -> None:
    log.settings = LogSettings(log_append_time=True)
    store(log, idempotent(0))
    assert store(log, idempotent(0), timestamp=TODAY + 999).append_time == TODAY


@pytest.mark.parametrize("produced", Compression)
@pytest.mark.parametrize("kept", Compression)
def test_a_topic_with_a_compression_of_its_own_stores_every_batch_in_it(
    log: PartitionLog, produced: Compression, kept: Compression
) -> None:
    log.settings = LogSettings(compression=kept)
    sent = a_batch(*([b"the same words"] * 50), compression=produced, producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, sent)
    stored = parse_batch(bytes(log.read(0, 2**20)))
    assert stored.crc_matches and stored.compression == kept
    assert (stored.producer_id, stored.base_sequence, stored.count, stored.last_offset) == (7, 0, 50, 49)
    assert list(stored.records()) == list(parse_batch(sent).records())
    if produced == kept:
        assert stored.data[61:] == sent[61:]


def test_a_batch_that_is_compressed_again_may_be_stamped_too(log: PartitionLog) -> None:
    log.settings = LogSettings(compression=Compression.ZSTD, compression_level=19, log_append_time=True)
    store(log, a_batch(b"a", b"b", timestamp=5))
    stored = parse_batch(bytes(log.read(0, 2**20)))
    assert stored.crc_matches and stored.compression == Compression.ZSTD
    assert [(record.timestamp, record.value) for record in stored.records()] == [(TODAY, b"a"), (TODAY, b"b")]


def test_a_batch_that_is_too_large_without_its_compression_is_refused_and_not_remembered(log: PartitionLog) -> None:
    sent = a_batch(*([b"x" * 1000] * 9), compression=Compression.GZIP, producer_id=7, producer_epoch=0, base_sequence=0)
    log.settings = LogSettings(compression=Compression.NONE, max_message_bytes=9000)
    with pytest.raises(MessageTooLarge, match="the topic's compression"):
        append(log, sent)
    log.settings = LogSettings(compression=Compression.NONE, segment_bytes=9000)
    with pytest.raises(RecordListTooLarge, match="the topic's compression"):
        append(log, sent)
    log.settings = LogSettings(compression=Compression.NONE)
    assert append(log, sent) == 0


def test_a_retry_is_recognised_in_a_topic_with_a_compression_of_its_own(log: PartitionLog) -> None:
    log.settings = LogSettings(compression=Compression.LZ4)
    assert [append(log, batch) for batch in (idempotent(0), idempotent(1), idempotent(0))] == [0, 1, 0]


def test_a_read_gives_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    append(log, a_batch(b"a", b"b", b"c"))
    append(log, a_batch(b"d", b"e"))
    assert values_of(log.read(1, 2**20))[0] == b"a"
    assert values_of(log.read(2, 2**20))[0] == b"a"
    assert values_of(log.read(3, 2**20)) == [b"d", b"e"]
    assert values_of(log.read(4, 2**20)) == [b"d", b"e"]
    assert not log.read(5, 2**20)


def test_a_read_outside_the_log_is_out_of_range(log: PartitionLog) -> None:
    append(log, a_batch())
    for offset in (-1, 2, 2**62):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 2**20)


def test_a_read_may_end_within_a_batch_but_begins_with_a_whole_one_if_asked(log: PartitionLog) -> None:
    first, second = a_batch(bytes(500)), a_batch(bytes(300))
    append(log, first)
    append(log, second)
    assert not log.read(0, 10), "without a whole batch, nothing"
    assert len(log.read(0, 10, at_least_one=True)) == len(first)
    assert len(log.read(1, 10, at_least_one=True)) == len(second)
    assert len(log.read(0, len(first) + 7)) == len(first) + 7
    assert not log.read(0, 0)


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_every_offset_of_a_log_of_many_segments_reads_back(log: PartitionLog, size: int) -> None:
    log.settings = LogSettings(segment_bytes=max(4096, size + 200))
    for i in range(60):
        append(log, a_batch(b"%d" % (2 * i), b"%d" % (2 * i + 1) + bytes(size)))
    for offset in range(120):
        for max_bytes in (1, 5000, 2**20):
            records = records_of(log.read(offset, max_bytes, at_least_one=True))
            assert records[0].offset == offset - offset % 2
            numbers = [record.offset for record in records]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_offsets_by_time_are_those_of_the_first_record_at_or_after_it(log: PartitionLog) -> None:
    log.settings = LogSettings(segment_bytes=6000)
    stamps = [TODAY + (i * 7919) % 1000 for i in range(300)]
    for i in range(0, 300, 3):
        builder = BatchBuilder()
        for j in range(i, i + 3):
            builder.append(stamps[j], None, bytes(60))
        append(log, builder.build())
    for target in range(TODAY - 5, TODAY + 1005, 5):
        record = work_off(log.first_at(target))
        expected = next((i for i, stamp in enumerate(stamps) if stamp >= target), None)
        assert (record and record.offset) == expected
        assert record is None or expected is None or record.timestamp == stamps[expected]
    newest = work_off(log.of_max_timestamp())
    assert newest is not None and (newest.offset, newest.timestamp) == (stamps.index(max(stamps)), max(stamps))


def test_an_empty_log_has_no_offset_by_time(log: PartitionLog) -> None:
    assert work_off(log.first_at(0)) is None and work_off(log.of_max_timestamp()) is None
    append(log, a_batch(timestamp=-1))
    assert work_off(log.of_max_timestamp()) is None


def test_every_refusal_is_a_kafka_error_with_a_text(log: PartitionLog) -> None:
    cases: list[tuple[Any, int]] = [(b"", 87), (idempotent(0)[:-3], 87), (b"\0" * 200, 2)]
    for records, code in cases:
        with pytest.raises(BrokerError) as refused:
            append(log, records)
        assert refused.value.code == code and refused.value.detail
