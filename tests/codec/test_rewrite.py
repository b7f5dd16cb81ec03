"""Batches made from other batches: kept records are unchanged, and the header is the one that Kafka would write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import rewrite
from ottla.codec.compression import Compression
from ottla.codec.records import (
    BatchBuilder,
    Headers,
    Record,
    RecordBatch,
    parse_batch,
    rebased,
)
from ottla.codec.rewrite import emptied, recompressed, retained, stamped
from ottla.errors import DecodeError, EncodeError

NOW = 1_700_000_000_000
HORIZON = NOW + 24 * 3600 * 1000

data = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191])
headers = st.lists(st.tuples(st.text("aé漢", max_size=4), data), max_size=3).map(tuple)
timestamps = st.integers(0, 1 << 50) | st.integers(NOW - 100, NOW + 100) | st.just(-1)
record_lists = st.lists(st.tuples(timestamps, data, data, headers), min_size=1, max_size=8)
compressions = st.sampled_from(Compression)


def a_batch(
    items: list[tuple[int, bytes | None, bytes | None, Headers]], compression: Compression = Compression.NONE
) -> RecordBatch:
    """A batch as in a log: of a transactional producer, at offset 1000."""
    builder = BatchBuilder()
    builder.extend(items)
    built = builder.build(
        compression=compression, producer_id=7, producer_epoch=2, base_sequence=30, transactional=True
    )
    return parse_batch(rebased(built, 1000, 5))


def numbered(count: int, compression: Compression = Compression.NONE) -> RecordBatch:
    return a_batch([(NOW + i, b"k%d" % i, b"v%d" % i, ()) for i in range(count)], compression)


def header_of(batch: RecordBatch, *left_out: str) -> dict[str, int]:
    names = ("base_offset", "partition_leader_epoch", "attributes", "last_offset_delta", "base_timestamp",
             "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count")  # fmt: skip
    return {name: getattr(batch, name) for name in names if name not in left_out}


@given(record_lists, compressions, compressions)
def test_recompressing_changes_nothing_but_the_compression(
    items: list[tuple[int, bytes | None, bytes | None, Headers]], before: Compression, after: Compression
) -> None:
    batch = a_batch(items, before)
    changed = parse_batch(recompressed(batch, after))
    assert changed.crc_matches and changed.compression == after
    assert header_of(changed, "attributes") == header_of(batch, "attributes")
    assert changed.attributes & ~7 == batch.attributes & ~7
    assert list(changed.records()) == list(batch.records())


def test_a_level_is_that_of_the_new_compression() -> None:
    batch = numbered(500)
    fast, small = (recompressed(batch, Compression.ZSTD, level) for level in (-100, 19))
    assert len(small) < len(fast)
    with pytest.raises(EncodeError, match="levels"):
        recompressed(batch, Compression.ZSTD, 23)


def test_records_that_would_grow_over_the_limit_are_not_recompressed() -> None:
    batch = numbered(500, Compression.GZIP)
    with pytest.raises(DecodeError, match="limit of 100 bytes"):
        recompressed(batch, Compression.NONE, limit=100)


@given(record_lists, compressions, st.data(), st.none() | st.just(HORIZON))
def test_the_records_that_are_kept_have_the_offsets_and_timestamps_they_had(
    items: list[tuple[int, bytes | None, bytes | None, Headers]],
    compression: Compression,
    draw: st.DataObject,
    horizon: int | None,
) -> None:
    batch = a_batch(items, compression)
    keep = draw.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)).filter(any))
    left = parse_batch(retained(batch, keep, horizon))
    expected = [record for record, stays in zip(batch.records(), keep, strict=True) if stays]
    assert left.crc_matches and list(left.records()) == expected
    assert left.count == len(expected) and left.delete_horizon == horizon
    assert left.max_timestamp == max(record.timestamp for record in expected)
    same = ("count", "max_timestamp", "base_timestamp", "attributes")
    assert header_of(left, *same) == header_of(batch, *same)
    assert left.attributes & ~64 == batch.attributes


def test_a_delete_horizon_stays_when_more_records_go() -> None:
    once = parse_batch(retained(numbered(4), [True, True, True, False], HORIZON))
    twice = parse_batch(retained(once, [False, True, True]))
    assert twice.delete_horizon == HORIZON
    assert [(record.offset, record.timestamp) for record in twice.records()] == [(1001, NOW + 1), (1002, NOW + 2)]


def test_the_time_of_the_broker_stays_the_time_of_every_record() -> None:
    batch = parse_batch(stamped(numbered(3), NOW + 5000))
    left = parse_batch(retained(batch, [True, False, True], HORIZON))
    assert left.log_append_time and left.max_timestamp == NOW + 5000
    assert [record.timestamp for record in left.records()] == [NOW + 5000] * 2


@pytest.mark.parametrize("compression", Compression)
def test_a_stamped_batch_has_the_same_records_at_another_time(compression: Compression) -> None:
    batch = numbered(3, compression)
    later = parse_batch(stamped(batch, NOW + 5000))
    assert later.crc_matches and later.log_append_time
    assert list(later.records()) == [
        Record(each.offset, NOW + 5000, each.key, each.value, each.headers) for each in batch.records()
    ]


@pytest.mark.parametrize("compression", Compression)
def test_an_emptied_batch_keeps_its_last_offset_and_sequence(compression: Compression) -> None:
    batch = parse_batch(retained(numbered(4, compression), [True] * 4, HORIZON))
    left = parse_batch(emptied(batch))
    assert left.crc_matches and left.count == 0 and list(left.records()) == []
    assert (left.last_offset, left.last_sequence) == (1003, 33)
    assert left.compression == Compression.NONE and left.delete_horizon is None and left.transactional
    changed = ("attributes", "base_timestamp", "count")
    assert header_of(left, *changed) == header_of(batch, *changed)
    assert emptied(left) == bytes(left.data)


def test_what_does_not_fit_the_batch_is_refused() -> None:
    batch = numbered(3)
    for keep in ([True], [False] * 3, [True] * 4):
        with pytest.raises(EncodeError, match="the batch has 3"):
            retained(batch, keep)


def test_a_timestamp_too_far_from_the_horizon_is_refused() -> None:
    batch = a_batch([(-(1 << 63), b"k", b"v", ())])
    with pytest.raises(EncodeError, match="too far from the delete horizon"):
        retained(batch, [True], 1)


@given(record_lists, compressions)
def test_a_batch_of_another_producer_has_the_same_bytes_of_records(
    items: list[tuple[int, bytes | None, bytes | None, Headers]], compression: Compression
) -> None:
    batch = a_batch(items, compression)
    changed = parse_batch(rewrite.numbered(batch, 8, 3, 99))
    assert changed.crc_matches and bytes(changed.data[61:]) == bytes(batch.data[61:])
    assert (changed.producer_id, changed.producer_epoch, changed.base_sequence) == (8, 3, 99)
    assert (changed.base_offset, changed.partition_leader_epoch) == (0, -1)
    others = "producer_id", "producer_epoch", "base_sequence", "base_offset", "partition_leader_epoch"
    assert header_of(changed, *others) == header_of(batch, *others)
