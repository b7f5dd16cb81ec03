"""Record batches to Arrow: in the schema of Spark's own connector, with every value, and small batches together."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.codec.compression import Compression
from ottla.codec.records import BatchBuilder, Record, RecordBatch, parse_batch
from ottla.errors import DecodeError
from ottla.sdk.consume.reading.range_reader import OffsetRange
from ottla.spark.columns import arrow
from ottla.spark.columns.arrow import MAX_BYTES, MAX_ROWS, arrow_batches, arrow_schema
from ottla.spark.columns.columns import JsonFormat, Layout, spark_schema
from ottla.spark.columns.value_schema import parse_value_schema

COLUMNS = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
"""The columns of Spark's own Kafka connector."""
EVERYTHING = OffsetRange("t", 3, 0, 2**62)


def batch(*records: Record, base_offset: int = 0, **more: Any) -> RecordBatch:
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return parse_batch(builder.build(base_offset=base_offset, **more))


def many(count: int, base_offset: int = 0, value: bytes = b"v") -> RecordBatch:
    return batch(*(Record(0, 1000 + n, b"k", value) for n in range(count)), base_offset=base_offset)


def rows(*batches: RecordBatch, wanted: OffsetRange = EVERYTHING, headers: bool = False) -> list[dict[str, Any]]:
    found = arrow_batches([(wanted, each) for each in batches], Layout(headers))
    return [row for each in found for row in each.to_pylist()]


@pytest.mark.parametrize("headers", [False, True])
def test_the_schema_equals_the_schema_of_sparks_own_connector(headers: bool) -> None:
    more = ",headers:array<struct<key:string,value:binary>>" if headers else ""
    schema = spark_schema(Layout(headers))
    assert schema.simpleString() == f"struct<{COLUMNS}{more}>"
    assert {column.name for column in schema.fields if column.nullable} == {"key", "value", *(["headers"] * headers)}
    [found] = arrow_batches([(EVERYTHING, many(2))], Layout(headers))
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)


def test_values_are_kept_nulls_and_empty_bytes_among_them() -> None:
    stamp = 1_700_000_000_123
    found = rows(batch(Record(0, stamp, None, b""), Record(0, stamp + 5, b"", None), base_offset=7))
    assert [(row["key"], row["value"], row["offset"]) for row in found] == [(None, b"", 7), (b"", None, 8)]
    assert found[0]["topic"] == "t"
    assert found[0]["partition"] == 3
    assert found[0]["timestampType"] == 0
    assert found[1]["timestamp"] == datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=128_000)


def test_headers_are_pairs_in_order_and_null_where_there_are_none() -> None:
    pairs = (("trace", b"1"), ("trace", None), ("ключ", b""))
    found = rows(batch(Record(0, 1, b"a", b"", pairs), Record(0, 1, b"b", b"")), headers=True)
    assert found[0]["headers"] == [{"key": key, "value": value} for key, value in pairs]
    assert found[1]["headers"] is None
    assert rows(many(2), headers=True)[0]["headers"] is None


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_is_read(compression: Compression) -> None:
    records = [Record(n, n, b"%d" % n, b"value " * n) for n in range(50)]
    found = rows(batch(*records, compression=compression))
    assert [(row["key"], row["value"]) for row in found] == [(each.key, each.value) for each in records]


def test_with_log_append_time_rows_have_the_brokers_time_and_type_1() -> None:
    stamped = many(2)
    stamped.attributes |= 8
    stamped.max_timestamp = 5_000
    assert [(row["timestamp"].timestamp(), row["timestampType"]) for row in rows(stamped)] == [(5.0, 1)] * 2


def test_only_offsets_of_the_range_become_rows() -> None:
    found = rows(many(10), many(10, base_offset=10), wanted=OffsetRange("t", 0, 4, 13))
    assert [row["offset"] for row in found] == list(range(4, 13))
    assert rows(many(10), wanted=OffsetRange("t", 0, 50, 60)) == []


def test_rows_keep_their_origin_however_batches_alternate() -> None:
    stamped = [many(2, 0), many(1, 2), many(3, 3), many(2, 6)]
    stamped[2].attributes |= 8
    sources = [(OffsetRange("t", 0, 1, 9), stamped[0]), (OffsetRange("u", 7, 0, 9), stamped[1])]
    sources += [(OffsetRange("t", 0, 1, 9), each) for each in stamped[2:]]
    [found] = arrow_batches(sources, Layout())
    names = ["topic", "partition", "offset", "timestampType"]
    rows = zip(*(found[name].to_pylist() for name in names), strict=True)
    assert list(rows) == [
        ("t", 0, 1, 0),
        ("u", 7, 2, 0),
        *(("t", 0, offset, 1) for offset in (3, 4, 5)),
        *(("t", 0, offset, 0) for offset in (6, 7)),
    ]


def test_many_batches_of_one_record_cost_no_column_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a column for each batch, building them took forty times as long as reading the batches."""
    made: list[int] = []
    repeat = pa.repeat

    def counted(value: pa.Scalar, count: int) -> pa.Array:
        made.append(count)
        return repeat(value, count)

    monkeypatch.setattr(pa, "repeat", counted)
    batches = [(EVERYTHING, batch(Record(0, 1, b"k", b"v"), base_offset=n)) for n in range(100)]
    [found] = arrow_batches(batches, Layout())
    assert found.num_rows == 100
    assert len(made) <= 3, "topic, partition and timestamp type"


@pytest.mark.parametrize("include_headers", [False, True])
def test_headers_count_towards_the_bytes_that_are_put_together(include_headers: bool) -> None:
    taken = 0

    def batches() -> Iterator[tuple[OffsetRange, RecordBatch]]:
        nonlocal taken
        for offset in range(100):
            taken += 1
            yield EVERYTHING, batch(Record(0, 1, b"k", b"v", (("h", bytes(2**20)),)), base_offset=offset)

    next(arrow_batches(batches(), Layout(include_headers)))
    assert taken == MAX_BYTES // 2**20


def test_a_headers_name_that_is_not_utf_8_is_read_as_java_reads_it() -> None:
    records = [Record(0, n, b"k%d" % n, b"v", (("QQ", b"x"), ("größe", None)) if n == 1 else ()) for n in range(3)]
    data = bytearray(batch(*records).data)
    at = data.index(b"QQ")
    data[at : at + 2] = b"\xff\xfe"
    [plain] = arrow_batches([(EVERYTHING, parse_batch(bytes(data)))], Layout())
    assert plain["key"].to_pylist() == [b"k0", b"k1", b"k2"]
    found = rows(parse_batch(bytes(data)), headers=True)
    names = [{"key": "\N{REPLACEMENT CHARACTER}" * 2, "value": b"x"}, {"key": "größe", "value": None}]
    assert [row["headers"] for row in found] == [None, names, None]
    data[at + 2] = 0x7F  # the size of the header's value: larger than the rest of the record
    with pytest.raises(DecodeError, match="t-3, batch at offset 0"):
        rows(parse_batch(bytes(data)), headers=True)


def test_control_records_are_left_out() -> None:
    assert rows(batch(Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0"), control=True, transactional=True)) == []


def test_small_batches_are_put_together_over_partitions_too() -> None:
    sources = [(OffsetRange("t", number % 7, 0, 2**40), many(100, number * 100)) for number in range(250)]
    found = list(arrow_batches(sources, Layout()))
    assert [each.num_rows for each in found] == [MAX_ROWS, MAX_ROWS, 5_000]
    assert [each.schema for each in found] == [arrow_schema(Layout())] * 3


def test_a_large_batch_is_handed_over_in_parts() -> None:
    found = list(arrow_batches([(EVERYTHING, many(2 * MAX_ROWS + 1))], Layout()))
    assert [each.num_rows for each in found] == [MAX_ROWS, MAX_ROWS, 1]
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(2 * MAX_ROWS + 1))


def test_a_batch_that_becomes_large_is_handed_over_in_parts_of_some_megabytes() -> None:
    large = batch(*(Record(0, n, None, bytes(2**20)) for n in range(140)), compression=Compression.ZSTD)
    assert len(large.data) < 2**17, "few bytes hold more than 128 MiB"
    found = list(arrow_batches([(OffsetRange("t", 0, 3, 140), large)], Layout()))
    assert max(each.nbytes for each in found) < 2 * MAX_BYTES
    assert [offset for each in found for offset in each["offset"].to_pylist()] == list(range(3, 140))


def test_a_batch_that_takes_more_than_the_limit_is_an_error_or_left_out() -> None:
    large = batch(*(Record(0, n, None, bytes(1000)) for n in range(100)), compression=Compression.ZSTD)
    batches = [(EVERYTHING, each) for each in (many(2), large, many(2, base_offset=102))]
    with pytest.raises(DecodeError, match=r"t-3, batch at offset 0.*limit of 99999 bytes"):
        list(arrow_batches(batches, Layout(), 99_999))
    skipped: list[int] = []
    found = arrow_batches(batches, Layout(), 99_999, lambda wanted, batch, error: skipped.append(batch.next_offset))
    assert [offset for each in found for offset in each["offset"].to_pylist()] == [0, 1, 102, 103]
    assert skipped == [100]


def test_large_values_are_not_gathered_beyond_a_bound() -> None:
    big = many(3, value=bytes(MAX_BYTES // 4))
    found = list(arrow_batches([(EVERYTHING, big)] * 4, Layout()))
    assert [each.num_rows for each in found] == [6, 6]


def test_batches_with_many_bytes_are_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers count as well, although the sizes of keys and values do not include them."""
    monkeypatch.setattr(arrow, "MEMORY_LIMIT", 2**20)
    headers = tuple(("", None) for _ in range(40_000))
    bombs = [batch(Record(0, 1, b"", b"", headers), base_offset=n, compression=Compression.ZSTD) for n in range(5)]
    small = [many(2, base_offset=5 + 2 * n) for n in range(20)]
    found = list(arrow_batches([(EVERYTHING, each) for each in bombs + small], Layout(include_headers=True)))
    assert len(found[0]) == 2, "batches within the bound are put together"
    assert [each.num_rows for each in found] == [2, 2, 41]
    assert [offset for each in found for offset in each["offset"].to_pylist()] == list(range(45))


def test_an_error_about_damage_names_the_batch() -> None:
    torn = many(3)
    torn.count = 4
    with pytest.raises(DecodeError, match=r"t-3, batch at offset 0"):
        rows(torn)


def test_a_timestamp_that_spark_cannot_hold_is_an_error_that_shows_it() -> None:
    with pytest.raises(DecodeError, match="9000000000000000000 ms since 1970 is out of the range of Spark"):
        rows(batch(Record(0, 9_000_000_000_000_000_000, b"", b"")))


def test_a_record_without_a_timestamp_has_the_value_of_the_jvm_connector() -> None:
    [row] = rows(batch(Record(0, -1, b"", b"")))
    assert row["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)


@pytest.mark.parametrize("headers", [False, True])
def test_json_values_are_a_struct_and_values_that_do_not_fit_are_in_the_last_column(headers: bool) -> None:
    fields = parse_value_schema("id BIGINT, tags ARRAY<STRING>, sizes MAP<STRING, INT>, at TIMESTAMP, on DATE")
    layout = Layout(headers, JsonFormat(fields, "bad"))
    values = [b'{"id": 1, "tags": ["a"]}', None, b"no"]
    [found] = arrow_batches([(EVERYTHING, batch(*(Record(0, n, b"k", each) for n, each in enumerate(values))))], layout)
    assert found.schema.equals(to_arrow_schema(spark_schema(layout), timezone="UTC"), check_metadata=True)
    assert found.schema.names[-1] == "bad"
    rows = found.to_pylist()
    assert [row["bad"] for row in rows] == [None, None, b"no"]
    assert rows[0]["value"] == {"id": 1, "tags": ["a"], "sizes": None, "at": None, "on": None}
    assert rows[1]["value"] is None
    assert set(rows[2]["value"].values()) == {None}
    assert [row["offset"] for row in rows] == [0, 1, 2]
