"""Columns: Arrow takes them without a copy, and their memory is reused only once it has no more references."""

import random
from array import array
from collections import deque
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import _loops
from ottla.codec._engine import ENGINE
from ottla.codec.columns import BinaryColumn, Columns, HeaderColumn
from ottla.codec.compression import Compression
from ottla.codec.partitioners import partition_column
from ottla.codec.records import BatchBuilder, Headers, Record, build_batch, parse_batch, read_batches, rebased
from ottla.errors import EncodeError, LocalProtocolError
from tests.codec.test_records import NOW, batch_of, ints, numbered, record_bytes, record_lists, zigzag

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def numbers(column: memoryview) -> pa.Array:
    kind = pa.int64() if column.format == "q" else pa.int32()
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def binary(column: BinaryColumn, kind: pa.DataType = None) -> pa.Array:
    buffers = [None if each is None else pa.py_buffer(each) for each in column.buffers]
    return pa.Array.from_buffers(kind or pa.binary(), len(column), buffers)


def headers(column: HeaderColumn) -> pa.Array:
    pairs = pa.StructArray.from_arrays([binary(column.names, pa.string()), binary(column.values)], ["name", "value"])
    return pa.ListArray.from_arrays(numbers(column.offsets), pairs)


def table(found: Columns) -> pa.Table:
    return pa.table(
        {
            "offset": numbers(found.offsets),
            "timestamp": numbers(found.timestamps),
            "key": binary(found.keys),
            "value": binary(found.values),
            "headers": headers(found.headers),
        }
    )


def rows(records: Any) -> list[dict[str, Any]]:
    return [
        {
            "offset": each.offset,
            "timestamp": each.timestamp,
            "key": each.key,
            "value": each.value,
            "headers": [{"name": name, "value": value} for name, value in each.headers],
        }
        for each in records
    ]


@given(record_lists)
def test_arrow_finds_the_records_in_the_buffers(items: list[tuple[int, Any, Any, Headers]]) -> None:
    found = table(parse_batch(build_batch(numbered(items))).columns())
    found.validate(full=True)
    assert found.to_pylist() == rows(numbered(items))


@given(record_lists)
def test_lists_of_the_columns_are_the_records_by_field(items: list[tuple[int, Any, Any, Headers]]) -> None:
    found = parse_batch(build_batch(numbered(items))).columns()
    assert found.offsets.tolist() == list(range(len(items)))
    assert found.timestamps.tolist() == [each[0] for each in items]
    assert found.keys.tolist() == list(found.keys) == [each[1] for each in items]
    assert found.values.tolist() == [found.values[row] for row in range(len(items))] == [each[2] for each in items]
    assert found.headers.tolist() == list(found.headers) == [each[3] for each in items]
    assert [found.headers[row] for row in range(len(items))] == [each[3] for each in items]
    assert len(found) == len(found.keys) == len(found.values) == len(found.headers) == len(items)
    for column in (found.keys, found.values, found.headers):
        for row in (-1, len(items)):
            with pytest.raises(IndexError, match=f"row {row} does not exist, there are {len(items)}"):
                column[row]


def test_a_bitmap_is_there_only_where_a_row_is_null_and_has_no_bits_too_many() -> None:
    values = [b"a", None, *[b"b"] * 6, None]
    found = parse_batch(build_batch([Record(0, NOW, b"k", value) for value in values])).columns()
    assert found.keys.validity is None
    assert found.values.validity is not None
    assert found.values.validity.tolist() == [0b11111101, 0b00000000]
    assert bytes(found.values.data) == b"abbbbbb"
    assert found.values.offsets.tolist() == [0, 1, 1, 2, 3, 4, 5, 6, 7, 7]


def test_a_fetch_becomes_one_of_columns() -> None:
    records = [Record(n, NOW + n, b"%d" % n if n % 3 else None, b"v" * n, (("h", None),) * (n % 2)) for n in range(40)]
    batches = [build_batch(records[n : n + 10], compression=Compression(n // 10)) for n in range(0, 40, 10)]
    data = b"".join(rebased(each, 10 * number, 0) for number, each in enumerate(batches))
    marker = BatchBuilder()
    marker.append(NOW, b"\0\0\0\1", b"")
    data += marker.build(base_offset=40, control=True, transactional=True)
    found = Columns.of(each.records().between(13, 35) for each in read_batches(data) if not each.control)
    assert table(found).to_pylist() == rows(records[13:35])


def test_no_records_are_columns_too() -> None:
    for found in (Columns.of([]), batch_of(b"", 0).columns(), Columns.of([batch_of(b"", 0).records()])):
        assert len(found) == 0
        assert table(found).to_pylist() == []
        assert (found.keys.tolist(), found.headers.tolist(), found.offsets.tolist()) == ([], [], [])


def test_nothing_can_be_written_into_columns() -> None:
    found = parse_batch(build_batch([Record(0, NOW, None, b"v", (("h", None),))])).columns()
    buffers = [found.offsets, found.timestamps, *found.keys.buffers, *found.values.buffers, found.headers.offsets]
    for buffer in (*buffers, *found.headers.names.buffers, *found.headers.values.buffers):
        if buffer is not None:
            assert buffer.readonly
            assert not pa.py_buffer(buffer).is_mutable
            with pytest.raises(TypeError):
                buffer[0] = 0


def test_buffers_begin_where_arrow_likes_it() -> None:
    wanted = 64 if ENGINE == "c" else 8
    for count in (1, 7, 999, 5000):
        records = [
            Record(0, NOW, b"k" * (n % 3), None if n % 2 else b"v", (("n", None), ("m", b"h"))) for n in range(count)
        ]
        batch = parse_batch(build_batch(records))
        found = Columns.of([batch.records(), batch.records()[1:]])
        buffers = [found.offsets, found.timestamps, *found.keys.buffers, *found.values.buffers, found.headers.offsets]
        buffers += [*found.headers.names.buffers, *found.headers.values.buffers]
        buffers.append(partition_column("murmur2", found.keys, 3))
        for buffer in buffers:
            assert buffer is None or pa.py_buffer(buffer).address % wanted == 0


@pytest.mark.parametrize("part", [None, 5, b"", [], parse_batch(build_batch([]))], ids=lambda part: type(part).__name__)
def test_columns_are_made_of_records_only(part: Any) -> None:
    good = parse_batch(build_batch([Record(0, NOW, b"k", b"v")])).records()
    for parts in ([part], [good, part]):
        with pytest.raises(TypeError, match=f"columns are made of Records, not of {type(part).__name__}"):
            Columns.of(parts)


def test_a_column_of_arrow_that_is_empty_may_have_no_offsets() -> None:
    nothing = BinaryColumn(b"", b"")
    assert (len(nothing), nothing.tolist()) == (0, [])
    places = partition_column("murmur2", nothing, 3)
    assert (places.nbytes, places.tolist()) == (0, [])
    builder = BatchBuilder()
    assert builder.extend_columns(b"", nothing, nothing) == 0
    assert builder.extend_columns(b"", nothing, nothing, HeaderColumn(b"", nothing, nothing)) == 0
    assert builder.count == 0
    with pytest.raises(EncodeError, match="1 timestamps, 0 keys and 0 values"):
        builder.extend_columns(bytes(8), nothing, nothing)


def test_more_than_two_gib_of_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = parse_batch(build_batch([Record(0, NOW, None, bytes(2**20))]))
    monkeypatch.setattr(_loops, "_INT32_MAX", 2**25)
    many = 2**11 if ENGINE == "c" else 2**5 + 1  # of the same records, so that the test takes little memory
    with pytest.raises(LocalProtocolError, match="take fewer batches at a time"):
        Columns.of([batch.records()] * many)


@given(st.integers(0, 50), st.integers(1, 2000))
def test_timestamps_of_the_broker_fill_their_column(stamp: int, count: int) -> None:
    batch = batch_of(record_bytes(timestamp_delta=zigzag(2**62)) * count, count, attributes=8, base_timestamp=2**62)
    batch.max_timestamp = stamp
    assert batch.columns().timestamps.tolist() == [stamp] * count


def kept_across(fetches: int) -> None:
    """Keep some records and arrays of many fetches for a while, and check at the end that they are unchanged."""
    rng, kept = random.Random(1), deque[tuple[Any, list[dict[str, Any]]]]()
    shapes = []
    for count, size in ((1, 10), (40, 30), (500, 100), (300, 1000)):
        data = build_batch(
            [Record(n, NOW + n, b"%d" % n, bytes([n % 256]) * size, (("h", b"x"),)) for n in range(count)]
        )
        shapes.append((data, rows(parse_batch(data).records())))
    for _ in range(fetches):
        data, expected = rng.choice(shapes if rng.random() < 0.2 else shapes[:2])
        batch = parse_batch(bytearray(data))
        found: Any = table(batch.columns()) if rng.random() < 0.5 else batch.records()
        if rng.random() < 0.02:
            kept.append((found, expected))
        if len(kept) > 60:
            check(*kept.popleft())
    while kept:
        check(*kept.popleft())


def check(found: Any, expected: list[dict[str, Any]]) -> None:
    assert (found.to_pylist() if isinstance(found, pa.Table) else rows(found)) == expected


def test_what_is_kept_is_not_overwritten_by_what_is_fetched() -> None:
    kept_across(3_000)


@pytest.mark.deep
def test_what_is_kept_is_not_overwritten_by_a_hundred_thousand_fetches() -> None:
    kept_across(100_000)


def test_columns_are_made_of_anybodys_buffers() -> None:
    builder = BatchBuilder()
    keys = pa.array([b"a", None, b"ccc"], pa.binary())
    validity, offsets, data = keys.buffers()
    column = BinaryColumn(memoryview(offsets), memoryview(data), memoryview(validity))
    builder.extend_columns(memoryview(array("q", [NOW, NOW + 1, NOW + 2])), column, BinaryColumn(ints(0, 0, 0, 0), b""))
    assert [(each.timestamp, each.key, each.value) for each in parse_batch(builder.build()).records()] == [
        (NOW, b"a", b""),
        (NOW + 1, None, b""),
        (NOW + 2, b"ccc", b""),
    ]
