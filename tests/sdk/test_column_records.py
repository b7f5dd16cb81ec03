"""Records in columns: their sizes and slices, and how they enter the batches of a producer."""

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec.columns import BinaryColumn, HeaderColumn
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import BatchBuilder, Headers, parse_batch
from ottla.sdk.produce.append import AppendFastPath, OpenBatch, PartitionBuffer, TopicBuffer
from ottla.sdk.produce.column_records import ColumnRecords, append

Row = tuple[bytes | None, bytes | None, Headers]
DATA = st.none() | st.binary(max_size=20)
ROWS = st.lists(st.tuples(DATA, DATA, st.lists(st.tuples(st.text(max_size=3), DATA), max_size=3)), max_size=40)


def column(items: list[bytes | None]) -> BinaryColumn:
    ends = array("i", [0])
    for item in items:
        ends.append(ends[-1] + len(item or b""))
    bits = sum(1 << row for row, item in enumerate(items) if item is not None)
    validity = bits.to_bytes((len(items) + 7) // 8, "little") if None in items else None
    return BinaryColumn(memoryview(ends), b"".join(item or b"" for item in items), validity)


def records(rows: list[Row]) -> ColumnRecords:
    ends = array("i", [0])
    for _, _, headers in rows:
        ends.append(ends[-1] + len(headers))
    pairs = [pair for _, _, headers in rows for pair in headers]
    column_of_headers = HeaderColumn(
        memoryview(ends), column([name.encode() for name, _ in pairs]), column([value for _, value in pairs])
    )
    return ColumnRecords(column([row[1] for row in rows]), column([row[0] for row in rows]), column_of_headers)


class Open(OpenBatch):
    """An open batch like the producer's own."""

    builder: BatchBuilder


def path(left: int, free: int = 10**6) -> tuple[AppendFastPath, Open]:
    """A fast path to one of two partitions, with an open batch there."""
    appends, batch, buffer = AppendFastPath(murmur2_partition, free), Open(BatchBuilder(), left), TopicBuffer(2)
    buffer.partitions[1] = PartitionBuffer(batch)
    appends.topics["t"] = buffer
    return appends, batch


@given(ROWS, st.data())
def test_a_slice_has_the_rows_that_it_is_of(rows: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    whole = records(rows)
    assert whole.headers is not None
    assert whole.values.slice(start, stop).tolist() == [row[1] for row in rows[start:stop]]
    assert whole.keys.slice(start, stop).tolist() == [row[0] for row in rows[start:stop]]
    assert whole.headers.slice(start, stop).tolist() == [tuple(row[2]) for row in rows[start:stop]]


@given(ROWS, st.integers(0, 3000))
def test_as_many_rows_go_into_a_batch_as_have_room(rows: list[Row], left: int) -> None:
    given, (appends, batch) = records(rows), path(left)
    taken = append(appends, "t", 1, given, 0, len(rows), 1000)
    assert taken == given.fitting(0, len(rows), left)
    assert given.size(0, taken) <= left
    assert taken == len(rows) or given.size(0, taken + 1) > left
    assert (batch.left, appends.free) == (left - given.size(0, taken), 10**6 - given.size(0, taken))
    assert batch.builder.size - 61 <= given.size(0, taken)  # the charged size is an upper bound
    if taken:
        built = parse_batch(batch.builder.build()).records()
        assert [(each.key, each.value, each.headers) for each in built] == [
            (key, value, tuple(headers)) for key, value, headers in rows[:taken]
        ]
        assert {each.timestamp for each in built} == {1000}


def test_what_is_out_of_the_ordinary_is_left_to_the_caller() -> None:
    given = records([(None, b"v", ())] * 10)
    appends, batch = path(10**5)
    assert append(appends, "other", 1, given, 0, 10, 0) == 0  # an unknown or hidden topic
    assert append(appends, "t", 0, given, 0, 10, 0) == 0  # a partition without an open batch
    assert append(appends, "t", 2, given, 0, 10, 0) == 0  # a partition that the topic no longer has
    assert append(appends, "t", None, given, 0, 10, 0) == 0  # no partition has been chosen for keyless records
    appends.topics["t"].sticky = appends.topics["t"].partitions[1]
    assert append(appends, "t", None, given, 0, 10, 0) == 10
    appends.free = 30
    assert append(appends, "t", 1, given, 0, 10, 0) == 0
    assert batch.builder.count == 10
    record = given.record(3, "t", 1, 7)
    assert (record.topic, record.key, record.value, record.partition, record.timestamp) == ("t", None, b"v", 1, 7)


def test_records_without_keys_have_null_ones() -> None:
    given = ColumnRecords(column([b"a", None, b""]))
    assert given.keys.tolist() == [None, None, None]
    assert [given.size(start, stop) for start, stop in pairwise(range(4))] == [33, 32, 32]
    assert given.record(0, "t", None, 0).headers == ()


@pytest.mark.parametrize("start", range(10))
def test_validity_is_shifted_to_where_a_slice_begins(start: int) -> None:
    items = [None if n % 3 else b"%d" % n for n in range(30)]
    assert column(items).slice(start, 27).slice(1, 9).tolist() == items[start:27][1:9]
