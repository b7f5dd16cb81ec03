"""Record batches: the loops equal the declaration, aiokafka agrees both ways, and no false batch is accepted."""

import copy
import dataclasses
import pickle
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec import build, kafka07, parse, trees
from ottla.codec._loops import LEAST_RECORD
from ottla.codec.compression import Compression, compress
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_SEQUENCE,
    BatchBuilder,
    BatchHeader,
    BinaryColumn,
    HeaderColumn,
    Headers,
    Record,
    RecordBatch,
    RecordBody,
    RecordHeader,
    Records,
    build_batch,
    check_bytes,
    parse_batch,
    read_batches,
    rebased,
)
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError
from tests.examples import examples

NOW = 1_700_000_000_000
MAGIC_AT, CRC_AT, ATTRIBUTES_AT = 16, 17, 21
LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 23, 27, 35
BASE_SEQUENCE_AT, COUNT_AT = 53, 57

data = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192])
headers = st.lists(st.tuples(st.text("aé漢", max_size=4), data), max_size=3).map(tuple)
timestamps = st.integers(0, 1 << 50) | st.integers(NOW - 100, NOW + 100) | st.just(-1)
record_lists = st.lists(st.tuples(timestamps, data, data, headers), min_size=1, max_size=8)


def numbered(items: list[tuple[int, bytes | None, bytes | None, Headers]]) -> list[Record]:
    return [Record(offset, *item) for offset, item in enumerate(items)]


def zigzag(value: int) -> bytes:
    """A varint by its definition, of any size."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def ints(*values: int) -> bytes:
    return array("i", values).tobytes()


NOTHING, ONE, TWO = BinaryColumn(ints(0), b""), BinaryColumn(ints(0, 1), b"n"), BinaryColumn(ints(0, 1, 2), b"ab")


def batch_of(body: bytes, count: int, **fields: int) -> RecordBatch:
    """A batch around ``body``, which may be any bytes."""
    names = ("attributes", "base_offset", "base_timestamp")
    attributes, base_offset, base_timestamp = (fields.get(name, 0) for name in names)
    batch = bytearray(BatchBuilder().build())
    batch += body
    batch[:8] = base_offset.to_bytes(8, "big", signed=True)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    batch[BASE_TIMESTAMP_AT : BASE_TIMESTAMP_AT + 8] = base_timestamp.to_bytes(8, "big", signed=True)
    batch[COUNT_AT:HEADER_SIZE] = count.to_bytes(4, "big", signed=True)
    return parse_batch(batch)


def record_bytes(**changed: bytes) -> bytes:
    """A record, part by part; ``length`` counts the others unless it is given."""
    pieces = {
        "attributes": b"\0",
        "timestamp_delta": b"\0",
        "offset_delta": b"\0",
        "key": zigzag(1) + b"k",
        "value": zigzag(1) + b"v",
        "headers": zigzag(1) + zigzag(1) + b"n" + zigzag(1) + b"h",
    } | {name: piece for name, piece in changed.items() if name != "length"}
    body = b"".join(pieces.values())
    return changed.get("length", zigzag(len(body))) + body


def sealed(batch: bytearray) -> bytes:
    """``batch`` with the CRC of its present bytes."""
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return bytes(batch)


# --- the loops equal the declaration


@given(items=record_lists)
def test_what_is_appended_is_what_the_declaration_builds(items: list[tuple[int, Any, Any, Headers]]) -> None:
    builder, declared = BatchBuilder(), b""
    for index, (timestamp, key, value, pairs) in enumerate(items):
        assert builder.append(timestamp, key, value, pairs) == index
        body = RecordBody(
            attributes=0,
            timestamp_delta=timestamp - items[0][0],
            offset_delta=index,
            key=key,
            value=value,
            headers=tuple(RecordHeader(key=name, value=each) for name, each in pairs),
        )
        record = build(body, 2)
        declared += zigzag(len(record)) + record
    assert builder.build()[HEADER_SIZE:] == declared
    assert builder.size == HEADER_SIZE + len(declared)


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 40), 1 << 40), st.integers(0, (1 << 31) - 1), data, data, headers), max_size=5
    )
)
def test_what_the_declaration_builds_is_what_the_loops_read(bodies: list[tuple[int, int, Any, Any, Headers]]) -> None:
    declared = b""
    for timestamp_delta, offset_delta, key, value, pairs in bodies:
        body = RecordBody(
            attributes=0,
            timestamp_delta=timestamp_delta,
            offset_delta=offset_delta,
            key=key,
            value=value,
            headers=tuple(RecordHeader(key=name, value=each) for name, each in pairs),
        )
        record = build(body, 2)
        declared += zigzag(len(record)) + record
    batch = batch_of(declared, len(bodies), base_offset=1 << 40, base_timestamp=NOW)
    assert list(batch.records()) == [
        Record((1 << 40) + offset_delta, NOW + timestamp_delta, key, value, pairs)
        for timestamp_delta, offset_delta, key, value, pairs in bodies
    ]


def by_declaration(body: bytes, count: int) -> list[Record]:
    """The records of ``body`` as `RecordBody` reads them."""
    records, at = [], 0
    for _ in range(count):
        length, start = read_varint(body, at)
        read, at = parse(RecordBody, 2, body, start)
        if at != start + length:
            raise DecodeError("the length of a record lies")
        pairs = tuple((each.key, each.value) for each in read.headers)
        records.append(Record(read.offset_delta, read.timestamp_delta, read.key, read.value, pairs))
    if at != len(body):
        raise DecodeError("bytes behind the last record")
    return records


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for end, byte in enumerate(body[at : at + 5], at + 1):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), end
    raise DecodeError("a length of more than five bytes, or cut")


@st.composite
def damaged_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """A body of a few records with some changed bytes, and a count that is about right."""
    count = draw(st.integers(1, 3))
    body = bytearray(record_bytes() * count)
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, 3))
    return bytes(body[: len(body) - cut]), count + draw(st.sampled_from([0, 0, 0, -1, 1]))


@given(damaged_bodies())
@examples(300)
def test_loops_and_declaration_agree_on_damage(damaged: tuple[bytes, int]) -> None:
    body, count = damaged
    assert outcome(lambda: list(batch_of(body, count).records())) == outcome(lambda: by_declaration(body, count))


def outcome(read: Callable[[], list[Record]]) -> list[Record] | None:
    try:
        return read()
    except DecodeError:
        return None


int64s, int32s, int16s = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (64, 32, 16))


@given(
    st.builds(
        BatchHeader,
        base_offset=int64s,
        length=st.just(HEADER_SIZE - LENGTH_END),
        partition_leader_epoch=int32s,
        magic=st.just(MAGIC),
        crc=st.integers(0, (1 << 32) - 1),
        attributes=int16s,
        last_offset_delta=int32s,
        base_timestamp=int64s,
        max_timestamp=int64s,
        producer_id=int64s,
        producer_epoch=int16s,
        base_sequence=int32s,
        count=int32s,
    )
)
def test_a_header_is_read_as_it_is_declared(declared: BatchHeader) -> None:
    batch = parse_batch(build(declared, 2))
    shown = ", ".join(f"{name}={value}" for name, value in fields(declared) if name not in ("length", "magic"))
    assert repr(batch) == f"RecordBatch({shown})"
    assert len(batch.data) == HEADER_SIZE


@given(int64s, int16s, st.integers(0, (1 << 31) - 1), int32s, st.booleans(), st.booleans())
def test_a_header_is_built_as_it_is_declared(
    producer_id: int, epoch: int, sequence: int, leader_epoch: int, transactional: bool, control: bool
) -> None:
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    builder.append(NOW - 5, None, None)
    built = builder.build(
        base_offset=7,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        partition_leader_epoch=leader_epoch,
        transactional=transactional,
        control=control,
    )
    declared, end = parse(BatchHeader, 2, built)
    assert end == HEADER_SIZE
    assert declared == BatchHeader(
        base_offset=7,
        length=len(built) - LENGTH_END,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=crc32c(built[ATTRIBUTES_AT:]),
        attributes=16 * transactional + 32 * control,
        last_offset_delta=1,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=2,
    )


def fields(declared: BatchHeader) -> list[tuple[str, int]]:
    return [(field.name, getattr(declared, field.name)) for field in dataclasses.fields(declared) if field.repr]


def test_the_shortest_record_is_as_short_as_it_is_declared() -> None:
    assert trees.least_size(trees.tree(RecordBody, 2, False)) + 1 == LEAST_RECORD == len(zigzag(6) + bytes(6))
    assert len(batch_of((zigzag(6) + bytes(6)) * 3, 3).records()) == 3


# --- round trips, and other people's batches


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(items=record_lists)
@settings(max_examples=20)
def test_records_come_back(compression: Compression, items: list[tuple[int, Any, Any, Headers]]) -> None:
    batch = parse_batch(build_batch(numbered(items), compression=compression))
    assert list(batch.records()) == numbered(items)
    assert batch.crc_matches
    assert batch.compression == compression
    assert (batch.base_timestamp, batch.max_timestamp) == (items[0][0], max(item[0] for item in items))
    assert (batch.count, batch.last_offset, batch.next_offset) == (len(items), len(items) - 1, len(items))


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(items=record_lists)
@settings(max_examples=20)
def test_aiokafka_reads_what_is_built(compression: Compression, items: list[tuple[int, Any, Any, Headers]]) -> None:
    theirs = DefaultRecordBatch(build_batch(numbered(items), compression=compression))
    assert theirs.validate_crc()
    assert [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs
    ] == numbered(items)


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(items=record_lists.filter(lambda items: items[0][0] >= 0))  # a first -1 is none at all to aiokafka
@settings(max_examples=20)
def test_what_aiokafka_builds_is_read(compression: Compression, items: list[tuple[int, Any, Any, Headers]]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=1,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for offset, (timestamp, key, value, pairs) in enumerate(items):
        assert builder.append(offset, timestamp, key, value, list(pairs)) is not None
    [batch] = read_batches(bytes(builder.build()))
    assert list(batch.records()) == numbered(items)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert batch.transactional
    assert not batch.control


def test_columns_are_the_records_by_field() -> None:
    records = [Record(0, NOW, b"a", None, (("h", b"1"),)), Record(1, NOW + 5, None, b"b")]
    columns = parse_batch(build_batch(records)).columns()
    assert len(columns) == 2
    assert columns.offsets.tolist() == [0, 1]
    assert columns.timestamps.tolist() == [NOW, NOW + 5]
    assert columns.keys.tolist() == list(columns.keys) == [b"a", None]
    assert columns.values.tolist() == [None, b"b"]
    assert columns.headers.tolist() == [(("h", b"1"),), ()]


def test_the_header_carries_what_it_was_given() -> None:
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    batch = parse_batch(
        builder.build(
            base_offset=5,
            producer_id=1 << 40,
            producer_epoch=2,
            base_sequence=9,
            partition_leader_epoch=4,
            transactional=True,
            control=True,
        )
    )
    assert (batch.base_offset, batch.partition_leader_epoch) == (5, 4)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (1 << 40, 2, 9, 9)
    assert batch.transactional
    assert batch.control
    assert not batch.log_append_time


def test_a_delete_horizon_is_told_and_timestamps_count_from_it() -> None:
    raw = bytearray(build_batch([Record(0, NOW, b"a", None), Record(1, NOW + 9, b"b", None)]))
    assert parse_batch(raw).delete_horizon is None
    raw[ATTRIBUTES_AT + 1] |= 0x40
    raw[BASE_TIMESTAMP_AT : BASE_TIMESTAMP_AT + 8] = (NOW + 1000).to_bytes(8, "big")
    batch = parse_batch(sealed(raw))
    assert batch.delete_horizon == NOW + 1000
    assert [record.timestamp for record in batch.records()] == [NOW + 1000, NOW + 1009]


def test_with_log_append_time_every_record_has_the_brokers_time() -> None:
    raw = bytearray(build_batch([Record(0, NOW, b"a", b""), Record(1, NOW + 9, b"b", b"")]))
    raw[ATTRIBUTES_AT + 1] |= 0x08
    raw[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = (NOW + 77).to_bytes(8, "big")
    batch = parse_batch(sealed(raw))
    assert batch.log_append_time
    assert [record.timestamp for record in batch.records()] == [NOW + 77] * 2


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    batch = batch_of(b"", 0)
    assert list(batch.records()) == []


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 4, 4), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 4, -1)],
)
def test_sequences_wrap_and_stay_absent(base: int, delta: int, last: int) -> None:
    raw = bytearray(build_batch([Record(0, NOW, None, b"v")]))
    raw[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = delta.to_bytes(4, "big")
    raw[BASE_SEQUENCE_AT:COUNT_AT] = base.to_bytes(4, "big", signed=True)
    assert parse_batch(raw).last_sequence == last


def test_a_rebased_batch_keeps_its_crc() -> None:
    raw = build_batch([Record(0, NOW, b"k", b"v")])
    batch = parse_batch(rebased(memoryview(raw), 1 << 40, 17))
    assert batch.crc_matches
    assert (batch.base_offset, batch.partition_leader_epoch) == (1 << 40, 17)
    assert list(batch.records()) == [Record(1 << 40, NOW, b"k", b"v")]
    assert parse_batch(rebased(raw, 0, -1)).partition_leader_epoch == -1
    assert parse_batch(rebased(raw, 2**63 - 1, 2**31 - 1)).base_offset == 2**63 - 1


def test_a_batch_is_stored_where_its_fields_say() -> None:
    raw = build_batch([Record(0, NOW, b"k", b"v")])
    batch = parse_batch(raw)
    batch.base_offset, batch.partition_leader_epoch = 1 << 40, 17
    assert b"".join(batch.parts) == rebased(raw, 1 << 40, 17)


@pytest.mark.parametrize(("offset", "epoch"), [(-1, 0), (2**63, 0), (2**64, 0), (0, -2), (0, 2**31), (0, 2**40)])
def test_a_batch_is_not_rebased_to_where_none_can_be(offset: int, epoch: int) -> None:
    with pytest.raises(EncodeError, match=str(epoch or offset)):
        rebased(build_batch([RECORD]), offset, epoch)


@pytest.mark.parametrize("outside", [-1, -100, 1000, 2**40])
def test_a_batch_is_not_looked_for_outside_of_the_bytes(outside: int) -> None:
    raw = build_batch([RECORD])
    with pytest.raises(ValueError, match=f"offset {outside} lies outside of the {len(raw)} bytes"):
        parse_batch(raw, outside)
    with pytest.raises(DecodeError, match="0 bytes are too few for a record batch"):
        parse_batch(raw, len(raw))


# --- a record, and records

RECORD = Record(7, NOW, b"k", None, (("h", b"1"), ("h", None)))


def some_records(count: int = 5) -> Records:
    """Offsets 10, 12, 14, …"""
    body = b"".join(record_bytes(offset_delta=zigzag(2 * row)) for row in range(count))
    return batch_of(body, count, base_offset=10).records()


def read_back() -> Record:
    """`RECORD`, out of a batch."""
    batch = parse_batch(rebased(build_batch([RECORD]), 7, 0))
    return batch.records()[0]


@pytest.mark.parametrize("record", [RECORD, read_back()], ids=["made", "read"])
def test_a_record_is_a_value(record: Record) -> None:
    assert record == RECORD == Record(offset=7, timestamp=NOW, key=b"k", value=None, headers=RECORD.headers)
    assert hash(record) == hash(RECORD)
    assert record != Record(7, NOW, b"k", b"", RECORD.headers)
    no_record: object = (7, NOW, b"k", None, RECORD.headers)
    assert record != no_record
    assert (
        repr(record) == f"Record(offset=7, timestamp={NOW}, key=b'k', value=None, headers=(('h', b'1'), ('h', None)))"
    )
    match record:
        case Record(offset, timestamp, key, value, headers):
            assert (offset, timestamp, key, value, headers) == (7, NOW, b"k", None, (("h", b"1"), ("h", None)))
    assert pickle.loads(pickle.dumps(record)) == copy.copy(record) == copy.deepcopy(record) == record
    for name in ("offset", "timestamp", "key", "value", "headers"):
        with pytest.raises(AttributeError):
            setattr(record, name, None)
    assert Record(0, 0, None, None).headers == ()
    assert dataclasses.replace(record, value=b"new") == Record(7, NOW, b"k", b"new", RECORD.headers)
    assert dataclasses.astuple(record) == (7, NOW, b"k", None, RECORD.headers)


def test_records_are_not_pickled() -> None:
    for records in (some_records(), some_records(0)):
        with pytest.raises(TypeError, match="pickle the bytes of their batch"):
            pickle.dumps(records)


def test_records_have_places() -> None:
    records = some_records()
    assert len(records) == len(list(records)) == 5
    assert records[0].offset == records[-5].offset == 10
    assert records[4] == records[-1] == list(records)[4]
    for index in (5, -6, 2**70, -(2**70)):
        with pytest.raises(IndexError):
            records[index]
    assert repr(records) == "<5 records from offset 10 on>"
    assert repr(records[:0]) == "<0 records>"
    assert records.size == 5 * 2


@given(st.slices(5))
def test_a_slice_is_records_again(part: slice) -> None:
    records = some_records()
    if part.step in (None, 1):
        assert list(records[part]) == list(records)[part]
    else:
        with pytest.raises(ValueError, match="steps"):
            records[part]


@given(st.integers(8, 22), st.integers(8, 22))
def test_records_between_two_offsets(start: int, stop: int) -> None:
    records = some_records()
    assert list(records.between(start, stop)) == [each for each in records if start <= each.offset < stop]
    assert len(records.between(-(2**70), 2**70)) == 5


def test_records_and_a_record_outlive_what_they_came_from() -> None:
    raw = build_batch([Record(n, NOW + n, b"key %d" % n, b"value" * n, (("h", b"%d" % n),)) for n in range(100)])
    expected = list(parse_batch(raw).records())
    kept = [parse_batch(bytes(bytearray(raw))).records()[row] for row in range(100)]
    iterator = iter(parse_batch(bytes(bytearray(raw))).records())
    assert kept == expected
    assert list(iterator) == expected


def test_a_bytearray_cannot_be_resized_under_its_records() -> None:
    raw = bytearray(build_batch([RECORD]))
    batch = parse_batch(raw)
    [record] = batch.records()
    with pytest.raises(BufferError):
        raw.clear()
    raw[HEADER_SIZE:] = bytes(len(raw) - HEADER_SIZE)  # a change in place must not crash the reader
    try:
        assert isinstance(record.key, bytes)
        assert isinstance(record.headers, tuple)
    except DecodeError as error:
        assert "changed" in error.reason


# --- record sets: several batches, torn ones, wrong ones


def two_batches() -> tuple[bytes, bytes]:
    first = build_batch([Record(0, NOW, b"a", b"1")])
    second = build_batch([Record(0, NOW, b"b", b"2"), Record(1, NOW, b"c", b"3")], compression=Compression.GZIP)
    return first, rebased(second, 1, 0)


def test_a_record_set_torn_at_any_byte_yields_its_whole_batches() -> None:
    first, second = two_batches()
    whole = first + second
    for size in range(len(whole)):
        batches = list(read_batches(whole[:size]))
        assert [batch.base_offset for batch in batches] == ([0] if size >= len(first) else [])
    assert [batch.base_offset for batch in read_batches(whole)] == [0, 1]


def test_a_torn_batch_is_refused_on_its_own() -> None:
    _, batch = two_batches()
    for size in range(len(batch)):
        with pytest.raises(DecodeError):
            parse_batch(batch[:size])
    assert parse_batch(b"x" * 9 + batch + b"y", 9).data == batch


def test_a_changed_byte_under_the_crc_is_corruption() -> None:
    first, second = two_batches()
    for at in range(ATTRIBUTES_AT, len(second)):
        damaged = bytearray(second)
        damaged[at] ^= 0x10
        with pytest.raises(ChecksumMismatch, match="batch at offset 1") as caught:
            list(read_batches(first + damaged))
        assert (caught.value.path, caught.value.offset) == ("RecordBatch.crc", len(first) + 17)
        assert (caught.value.stored, caught.value.computed) == (parse_batch(second).crc, crc32c(damaged[21:]))
        assert f"{caught.value.stored:#010x}" in str(caught.value) and f"{caught.value.computed:#010x}" in str(
            caught.value
        )
        assert not parse_batch(damaged).crc_matches
    assert [batch.base_offset for batch in read_batches(first + damaged, verify=False)] == [0, 1]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 48])
def test_a_batch_shorter_than_its_header_is_refused(length: int) -> None:
    raw = bytearray(build_batch([Record(0, NOW, b"k", b"v")]))
    raw[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(DecodeError, match=f"batch of {length + 12} bytes"):
        parse_batch(raw)
    with pytest.raises(DecodeError):
        list(read_batches(raw))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_refused_by_name(magic: int) -> None:
    # A whole message set may be shorter than the header of one batch.
    message = bytes((magic, 0)) + (bytes(8) if magic else b"") + b"\xff" * 4 + b"\0\0\0\x01v"
    message_set = bytes(8) + (len(message) + 4).to_bytes(4, "big") + bytes(4) + message
    assert len(message_set) < HEADER_SIZE
    for old in (message_set, message_set * 5, message_set[:-1]):
        with pytest.raises(DecodeError, match=rf"\(magic\) {magic} instead of 2; read message sets, from before"):
            list(read_batches(old))
        with pytest.raises(DecodeError, match="message sets"):
            parse_batch(old)


def test_a_format_of_the_future_is_refused() -> None:
    raw = bytearray(build_batch([Record(0, NOW, b"k", b"v")]))
    raw[MAGIC_AT] = 3
    with pytest.raises(DecodeError, match=r"\(magic\) 3 instead of 2$") as caught:
        list(read_batches(raw))
    assert caught.value.offset == MAGIC_AT


# --- hostile batches


@pytest.mark.parametrize("count", [0, 1, 3, -1, 100, 2**31 - 1, -(2**31)])
def test_a_count_that_lies_is_refused(count: int) -> None:
    with pytest.raises(DecodeError):
        batch_of(record_bytes() * 2, count).records()


@pytest.mark.parametrize(
    "changed",
    [
        {"length": zigzag(0)},
        {"length": zigzag(15)},
        {"length": zigzag(13)},
        {"length": zigzag(-1)},
        {"length": zigzag(2**31 - 1)},
        {"length": b"\xff" * 4 + b"\x7f"},
        {"length": b"\x80" * 5 + b"\x01"},
        {"timestamp_delta": b"\xff" * 9 + b"\x03"},
        {"timestamp_delta": b"\x80" * 10 + b"\x00"},
        {"offset_delta": b"\xff" * 5},
        {"offset_delta": zigzag(2**31)},
        {"key": zigzag(-2)},
        {"key": zigzag(2**31 - 1)},
        {"key": zigzag(200) + b"k"},
        {"value": zigzag(-2)},
        {"value": zigzag(-(2**31)) + b"v"},
        {"value": zigzag(9) + b"v"},
        {"headers": zigzag(-1)},
        {"headers": zigzag(2)},
        {"headers": zigzag(2) + zigzag(0) + zigzag(0)},
        {"headers": zigzag(2**31 - 1)},
        {"headers": zigzag(1) + zigzag(-1) + zigzag(0)},
        {"headers": zigzag(1) + zigzag(-2) + zigzag(0)},
        {"headers": zigzag(1) + zigzag(1) + b"\xff" + zigzag(0)},
        {"headers": zigzag(1) + zigzag(0) + zigzag(-2)},
        {"headers": zigzag(1) + zigzag(0) + zigzag(2**31 - 1)},
        {"headers": zigzag(1) + zigzag(0) + zigzag(5)},
    ],
)
def test_a_record_that_lies_is_refused_with_its_place(changed: dict[str, bytes]) -> None:
    # Once in the last record, where the length exceeds the batch, and once in a record in the middle.
    start = record_bytes() + record_bytes(**changed)
    for body, count in ((start, 2), (start + record_bytes(), 3)):
        with pytest.raises(DecodeError) as caught:
            batch_of(body, count).records()
        assert caught.value.path.startswith("RecordBatch.records[1]")
        assert caught.value.offset >= HEADER_SIZE + len(record_bytes())


@pytest.mark.parametrize(
    ("body", "count", "path", "offset"),
    [
        (record_bytes(length=b"\x80" * 5 + b"\x01"), 2, "records[1].length", 0),
        (b"\x80", 2, "records[1].length", 1),
        (zigzag(9), 2, "records[1]", 0),
        (record_bytes(timestamp_delta=b"\xff" * 10), 2, "records[1].timestamp_delta", 2),
        (record_bytes(key=zigzag(-2)), 2, "records[1].key", 4),
        (record_bytes(value=zigzag(99)), 2, "records[1].value", 8),
        (b"trailing", 1, "records", 0),
    ],
)
def test_an_error_has_a_path_and_an_offset(body: bytes, count: int, path: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        batch_of(record_bytes() + body, count).records()
    place = HEADER_SIZE + len(record_bytes()) + offset
    assert (caught.value.path, caught.value.offset) == (f"RecordBatch.{path}", place)
    assert caught.value.within == "batch at offset 0"


def test_an_error_in_a_record_says_which() -> None:
    with pytest.raises(DecodeError, match="not UTF-8") as caught:
        batch_of(record_bytes() + record_bytes(headers=zigzag(1) + zigzag(1) + b"\xff" + zigzag(0)), 2).records()
    assert caught.value.path == "RecordBatch.records[1].headers[0].key"
    assert caught.value.offset == HEADER_SIZE + len(record_bytes()) + 10


def test_names_of_headers_are_read_as_java_reads_them_where_they_may_be_anything() -> None:
    names = record_bytes(headers=zigzag(1) + zigzag(2) + b"a\xff" + zigzag(0))
    first, second = batch_of(record_bytes() + names, 2).records(any_names=True)
    assert (first.headers, second.headers) == ((("n", b"h"),), (("a\N{REPLACEMENT CHARACTER}", b""),))
    assert second.offset == batch_of(record_bytes() + record_bytes(), 2).records()[1].offset
    with pytest.raises(DecodeError, match=r"records\[1\]"):
        batch_of(record_bytes() + names[:-1], 2).records(any_names=True)
    with pytest.raises(DecodeError):
        batch_of(names + b"trailing", 1).records(any_names=True)
    with pytest.raises(DecodeError, match="more memory than the limit"):
        batch_of(names, 1).records(limit=len(names) + 200, any_names=True)


def test_a_header_that_runs_over_the_end_with_a_record_that_says_so_too_is_refused_in_place() -> None:
    honest = record_bytes(headers=zigzag(1) + zigzag(0) + zigzag(5) + b"hello")
    with pytest.raises(DecodeError, match="record of 15 bytes with 11 left") as caught:
        batch_of(honest[:-4], 1).records()
    assert caught.value.path == "RecordBatch.records[0]"


def test_many_headers_that_are_not_there_cost_nothing() -> None:
    body = record_bytes(headers=zigzag(2**31 - 1), length=zigzag(2**31 - 1))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            batch_of(body, 1).records()
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("fields", "changed", "what"),
    [
        ({"base_offset": 2**63 - 1}, {"offset_delta": zigzag(1)}, "offset"),
        ({"base_timestamp": 2**63 - 1}, {"timestamp_delta": zigzag(1)}, "timestamp"),
        ({"base_timestamp": -(2**63)}, {"timestamp_delta": zigzag(-1)}, "timestamp"),
    ],
)
def test_numbers_that_overflow_64_bits_are_refused(
    fields: dict[str, int], changed: dict[str, bytes], what: str
) -> None:
    with pytest.raises(DecodeError, match=f"the {what} does not fit 64 bits") as caught:
        batch_of(record_bytes(**changed), 1, **fields).records()
    assert caught.value.path == f"RecordBatch.records[0].{what}_delta"


@pytest.mark.parametrize("compression", [each for each in Compression if each], ids=lambda each: each.name)
def test_a_batch_that_grows_over_the_limit_is_refused(compression: Compression) -> None:
    batch = parse_batch(build_batch([Record(0, NOW, None, bytes(16 * 2**20))], compression=compression))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="over the limit of 1048576 bytes"):
            batch.records(limit=2**20)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [each for each in Compression if each], ids=lambda each: each.name)
def test_a_compressed_body_that_is_damaged_is_refused(compression: Compression) -> None:
    batch = batch_of(b"no such format", 1, attributes=compression)
    with pytest.raises(DecodeError, match=f"{compression.name.lower()} data is damaged"):
        batch.records()


@pytest.mark.parametrize("compression", [5, 6, 7])
def test_a_compression_that_means_nothing_is_refused(compression: int) -> None:
    batch = batch_of(record_bytes(), 1, attributes=compression)
    assert batch.compression == compression
    with pytest.raises(DecodeError, match=f"compression {compression} is unknown"):
        batch.records()


@pytest.mark.parametrize("compression", [each for each in Compression if each], ids=lambda each: each.name)
def test_an_error_in_compressed_records_counts_from_their_decompressed_bytes(compression: Compression) -> None:
    body = record_bytes() + record_bytes(key=zigzag(-2))
    with pytest.raises(DecodeError) as caught:
        batch_of(compress(compression, body), 2, attributes=compression, base_offset=17).records()
    assert (caught.value.path, caught.value.offset) == ("RecordBatch.records[1].key", len(record_bytes()) + 4)
    assert str(caught.value).startswith(
        "decompressed records of the batch at offset 17: RecordBatch.records[1].key at "
    )


@pytest.mark.parametrize(
    ("body", "count", "attributes", "said"),
    [
        (b"no such format", 1, 1, "RecordBatch.records at byte 61: gzip data is damaged"),
        (b"", 1, 7, "RecordBatch.attributes at byte 21: compression 7 is unknown"),
        (b"", 3, 0, "RecordBatch.count at byte 57: 3 records in 0 bytes"),
    ],
)
def test_what_is_wrong_with_a_batch_is_told_with_its_base_offset_and_the_byte(
    body: bytes, count: int, attributes: int, said: str
) -> None:
    for read in (RecordBatch.records, RecordBatch.columns):
        with pytest.raises(DecodeError) as caught:
            read(batch_of(body, count, attributes=attributes, base_offset=17))
        assert str(caught.value).startswith(f"batch at offset 17: {said}")


def test_memory_is_a_small_multiple_of_the_input_whatever_is_in_it() -> None:
    least = zigzag(6) + bytes(6)
    header = zigzag(1) + zigzag(0) + zigzag(-1)
    many_headers = record_bytes(headers=zigzag(20_000) + (zigzag(0) + zigzag(-1)) * 20_000)
    for body, count in ((least * 30_000, 30_000), (many_headers, 1), (record_bytes(headers=header) * 9000, 9000)):
        batch = batch_of(body, count)
        tracemalloc.start()
        try:
            columns = batch.columns()
            assert len(columns.headers.tolist()) == count
            assert len(list(batch.records())) == count
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 100 * len(body) + 2**20


def test_no_record_is_seen_of_a_batch_that_is_damaged_further_on() -> None:
    batch = batch_of(record_bytes() * 9 + record_bytes(key=zigzag(-2)), 10)
    with pytest.raises(DecodeError) as caught:
        iter(batch.records())
    assert caught.value.path == "RecordBatch.records[9].key"
    with pytest.raises(DecodeError) as again:
        batch.columns()
    assert str(again.value) == str(caught.value)


def test_columns_are_appended_as_they_are() -> None:
    records = [Record(7, NOW, b"a", None, (("h", b"1"),)), Record(8, NOW - 1, None, b"b")]
    for some in (records, records[1:]):
        [batch] = read_batches(build_batch(some))
        builder = BatchBuilder()
        assert builder.extend_columns(batch.columns()) == 0
        assert builder.build() == bytes(batch.data)
    with pytest.raises(TypeError, match="pass Columns alone"):
        builder.extend_columns(batch.columns(), batch.columns().keys)  # type: ignore[call-overload] # on purpose
    with pytest.raises(TypeError, match="pass keys and values too"):
        builder.extend_columns(batch.columns().timestamps)  # type: ignore[call-overload] # on purpose


# --- values that cannot be appended or built


def test_no_compression_has_no_level() -> None:
    builder = BatchBuilder()
    with pytest.raises(EncodeError, match="compression none has no levels: leave out 3"):
        builder.build(level=3)
    with pytest.raises(EncodeError, match="compression none has no levels"):
        build_message_set([Record(0, NOW, None, b"v")], magic=1, level=3)
    with pytest.raises(EncodeError, match="compression none has no levels"):
        kafka07.build_messages([b"v"], level=3)


NOT_BYTES: list[tuple[tuple[Any, ...], str]] = [
    ((NOW, "key", b"", ()), r"the key is a str: encode it first, as in 'key'\.encode\(\)"),
    ((NOW, b"", "value", ()), r"the value is a str: encode it first"),
    ((NOW, 5, b"", ()), "the key is int, and must be bytes or None"),
    ((NOW, b"", [1], ()), "the value is list, and must be bytes or None"),
    (
        (NOW, b"", b"", (("a", "b"),)),
        r"headers are pairs of a str and bytes or None, not \('a', 'b'\): encode the value$",
    ),
    ((NOW, b"", b"", ((b"a", b"b"),)), "headers are pairs"),
    ((NOW, b"", b"", (("a",),)), "headers are pairs"),
    ((NOW, b"", b"", (("a", b"b", b"c"),)), "headers are pairs"),
    ((NOW, b"", b"", ("ab",)), "headers are pairs"),
    ((NOW, b"", b"", (5,)), "headers are pairs"),
    ((NOW, b"", b"", {"a": b"b"}), r"of \(name, value\) pairs, not dict"),
    ((NOW, b"", b"", 5), r"of \(name, value\) pairs, not int"),
    ((NOW, b"", b"", (("\ud800", b""),)), "is not encodable"),
]


@pytest.mark.parametrize(("record", "complaint"), NOT_BYTES)
def test_what_is_not_bytes_is_refused_and_nothing_is_added(record: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        check_bytes(record[1], record[2], record[3])
    refused_and_unchanged(record, complaint)


@pytest.mark.parametrize(
    ("timestamp", "complaint"),
    [
        (None, "the timestamp is None, and must be an int of milliseconds"),
        (1.5, "the timestamp is 1.5"),
        (0.0, "the timestamp is 0.0"),
        ("now", "the timestamp is 'now'"),
        (1 << 63, "the timestamp 9223372036854775808 does not fit 64 bits"),
        (-(1 << 63) - 1, "does not fit 64 bits"),
        (-(1 << 63), "is more than 64 bits away from the first of the batch, 1700000000000"),
    ],
)
def test_a_timestamp_that_does_not_fit_is_refused_and_nothing_is_added(timestamp: Any, complaint: str) -> None:
    refused_and_unchanged((timestamp, b"k", b"v"), complaint)


def refused_and_unchanged(record: tuple[Any, ...], complaint: str) -> None:
    builder, other = BatchBuilder(), BatchBuilder()
    if record[0] != -(1 << 63):  # that timestamp is merely too far from the first
        with pytest.raises(EncodeError, match=complaint):
            builder.append(*record)
        assert (builder.count, builder.size) == (0, HEADER_SIZE)
    builder.append(NOW, b"k", b"v")
    with pytest.raises(EncodeError, match=complaint):
        builder.append(*record)
    builder.append(NOW - 1, None, None)
    other.append(NOW, b"k", b"v")
    other.append(NOW - 1, None, None)
    assert builder.build() == other.build()


def test_any_kind_of_bytes_is_taken() -> None:
    builder = BatchBuilder()
    append: Any = builder.append
    wide: Any = memoryview(b"12345678").cast("i")
    headers: Any = [("h", bytearray(b"x")), ("w", wide)]
    append(NOW, bytearray(b"k"), memoryview(b"value")[1:3], headers)
    append(NOW, wide, wide)
    assert list(parse_batch(builder.build()).records()) == [
        Record(0, NOW, b"k", b"al", (("h", b"x"), ("w", b"12345678"))),
        Record(1, NOW, b"12345678", b"12345678"),
    ]


@pytest.mark.parametrize(
    "field", [{"producer_id": 1 << 63}, {"producer_epoch": 1 << 15}, {"base_sequence": 1 << 31}, {"base_offset": None}]
)
def test_a_header_field_that_does_not_fit_is_refused(field: Any) -> None:
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    with pytest.raises(EncodeError, match="a field of the batch header does not fit"):
        builder.build(**field)


@pytest.mark.parametrize("compression", [5, 8, 9, -1, "gzip", None])
def test_a_compression_that_there_is_not_is_refused(compression: Any) -> None:
    with pytest.raises(EncodeError, match=r"is not one of 0 \(none\), 1 \(gzip\)"):
        BatchBuilder().build(compression=compression)


def test_no_records_have_no_sequence() -> None:
    with pytest.raises(EncodeError, match=r"a sequence \(5\) for a batch without records"):
        BatchBuilder().build(producer_id=1, producer_epoch=0, base_sequence=5)
    assert parse_batch(BatchBuilder().build(producer_id=1)).last_sequence == NO_SEQUENCE


# --- many at once

MANY: list[Any] = [
    (NOW, b"k", b"v"),
    (NOW + 1, None, b"", (("h", None),)),
    Record(99, NOW - 1, b"x", None),
    read_back(),
    (NOW, bytearray(b"k"), memoryview(b"v"), [("h", bytearray(b"1"))]),
]


def one_by_one(records: list[Any]) -> bytes:
    builder = BatchBuilder()
    for each in records:
        builder.append(*(each if isinstance(each, tuple) else (each.timestamp, each.key, each.value, each.headers)))
    return builder.build()


@pytest.mark.parametrize("kind", [list, tuple, iter], ids=lambda kind: kind.__name__)
def test_many_records_are_as_each_alone(kind: Callable[[Any], Any]) -> None:
    builder = BatchBuilder()
    assert builder.extend(kind(MANY[:2])) == 0
    assert builder.extend(kind(MANY[2:])) == 2
    assert builder.extend(kind([])) == 5
    assert builder.build() == one_by_one(MANY)
    assert (builder.count, builder.base_timestamp, builder.max_timestamp) == (5, NOW, NOW + 1)


def test_records_are_copied_as_they_are() -> None:
    records = parse_batch(one_by_one(MANY)).records()
    builder = BatchBuilder()
    assert builder.extend(records[:2]) == 0
    assert builder.extend(records[2:]) == 2
    assert builder.build() == one_by_one(MANY)


@given(record_lists)
def test_columns_are_copied_as_they_are(items: list[tuple[int, Any, Any, Headers]]) -> None:
    columns = parse_batch(build_batch(numbered(items))).columns()
    builder = BatchBuilder()
    assert builder.extend_columns(columns.timestamps, columns.keys, columns.values, columns.headers) == 0
    assert builder.build() == build_batch(numbered(items))
    without = BatchBuilder()
    without.extend_columns(columns.timestamps, columns.keys, columns.values)
    assert without.build() == build_batch([Record(0, each[0], each[1], each[2]) for each in items])


@pytest.mark.parametrize(
    "bad",
    [
        (NOW, "str", b""),
        (NOW, b"", b"", (("a", "b"),)),
        (None, b"", b""),
        (NOW, b""),
        (NOW, b"", b"", (), ()),
        [NOW, b"", b""],
        None,
        5,
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", [list, iter], ids=lambda kind: kind.__name__)
def test_many_records_are_added_all_or_none(kind: Callable[[Any], Any], bad: Any) -> None:
    for before in ([], MANY[:3]):
        builder = BatchBuilder()
        builder.extend(before)
        state = (builder.count, builder.size, builder.base_timestamp, builder.max_timestamp)
        with pytest.raises(EncodeError):
            builder.extend(kind([(NOW + 50, b"new", b"new"), bad]))
        assert (builder.count, builder.size, builder.base_timestamp, builder.max_timestamp) == state
        builder.extend(MANY[3:])
        assert builder.build() == one_by_one([*before, *MANY[3:]])


def test_an_iterator_that_fails_adds_nothing() -> None:
    def failing() -> Iterator[tuple[Any, ...]]:
        yield (NOW, b"k", b"v")
        raise ZeroDivisionError

    builder = BatchBuilder()
    with pytest.raises(ZeroDivisionError):
        builder.extend(failing())
    assert (builder.count, builder.size) == (0, HEADER_SIZE)


def test_a_list_that_changes_while_it_is_added_cannot_crash() -> None:
    class Fickle(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            records.clear()
            return super().__iter__()

    records: list[Any] = [(NOW, b"k", b"v"), (NOW, b"x", b"v", Fickle([("h", b"1")])), *[(NOW, b"k", b"v")] * 50]
    builder = BatchBuilder()
    builder.extend(records)
    assert [each.key for each in parse_batch(builder.build()).records()] == [b"k", b"x"]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes_are_what_their_buffer_holds(kind: Any) -> None:
    class Odd(kind):  # type: ignore[misc] # whichever
        def __bytes__(self) -> bytes:
            return b"something else"

    builder = BatchBuilder()
    builder.append(NOW, Odd(b"k"), Odd(b"v"), (("h", Odd(b"x")),))
    assert list(parse_batch(builder.build()).records()) == [Record(0, NOW, b"k", b"v", (("h", b"x"),))]


LONG_ONE = b"\x82\0"
"""1 as a varint with one byte more than necessary."""


@pytest.mark.parametrize(
    "headers",
    [
        LONG_ONE + zigzag(1) + b"n" + zigzag(1) + b"v",
        zigzag(1) + LONG_ONE + b"n" + zigzag(1) + b"v",
        zigzag(1) + zigzag(1) + b"n" + LONG_ONE + b"v",
        zigzag(1) + zigzag(1) + b"n" + b"\x81\0",
        b"\x80\0",
    ],
    ids=["count", "name", "value", "null", "none"],
)
def test_numbers_longer_than_they_need_to_be_are_not_copied(headers: bytes) -> None:
    records = batch_of(record_bytes(headers=headers), 1, base_timestamp=NOW).records()
    [record] = records
    expected = one_by_one([record])
    for kind in (records, [record], iter(records)):
        builder = BatchBuilder()
        builder.extend(kind)
        assert builder.build() == expected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"timestamps": bytes(15)}, "1 timestamps"),
        ({"timestamps": bytes(24)}, "3 timestamps, 2 keys and 2 values"),
        ({"values": BinaryColumn(bytes(4), b"")}, "2 timestamps, 2 keys and 0 values"),
        ({"keys": BinaryColumn(ints(0, 1, 9), b"ab")}, "offsets of the keys"),
        ({"keys": BinaryColumn(ints(0, 2, 1), b"ab")}, "offsets of the keys"),
        ({"keys": BinaryColumn(ints(-1, 1, 2), b"ab")}, "offsets of the keys"),
        ({"values": BinaryColumn(ints(0, 1, 2), b"ab", b"")}, "validity of the values has 0 bits for 2 rows"),
        ({"headers": HeaderColumn(ints(0, 0, 0, 0), NOTHING, NOTHING)}, "headers of 3 rows for 2"),
        ({"headers": HeaderColumn(ints(0, 0, 1), NOTHING, NOTHING)}, "offsets of the headers"),
        ({"headers": HeaderColumn(ints(0, 0, 1), BinaryColumn(ints(0, 1), b"\xff"), ONE)}, "not UTF-8"),
        ({"headers": HeaderColumn(ints(0, 0, 1), BinaryColumn(ints(0, 0), b"", b"\0"), ONE)}, "without a name"),
        ({"headers": HeaderColumn(ints(0, 0, 1), ONE, NOTHING)}, "1 names, 0 values"),
    ],
    ids=lambda case: "" if isinstance(case, dict) else case,
)
def test_columns_that_do_not_fit_together_are_refused(change: dict[str, Any], complaint: str) -> None:
    columns: dict[str, Any] = {"timestamps": bytes(16), "keys": TWO, "values": TWO}
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    with pytest.raises(EncodeError, match=complaint):
        builder.extend_columns(**(columns | change))
    assert builder.count == 1
    assert builder.extend_columns(**columns) == 1


def test_nothing_is_appended_while_somebody_reads_what_there_is() -> None:
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    with builder.body as body:
        with pytest.raises(BufferError):
            builder.append(NOW, b"k", b"v")
        with pytest.raises(BufferError):
            builder.extend([(NOW, b"k", b"v")])
        assert len(body) == builder.size - HEADER_SIZE
    assert builder.append(NOW, b"k", b"v") == 1


def test_nothing_is_added_if_somebody_begins_to_read_meanwhile() -> None:
    def reading() -> Iterator[tuple[Any, ...]]:
        yield (NOW, b"new", b"v")
        bodies.append(builder.body)
        yield (NOW, b"new", b"v")

    bodies: list[memoryview] = []
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    before = builder.build()
    with pytest.raises(BufferError, match="the records are being read"):
        builder.extend(reading())
    assert builder.count == 1
    assert builder.build() == before
    bodies.pop().release()
    assert builder.append(NOW, b"k", b"v") == 1
