"""Record batches: the loops equal the declaration, aiokafka agrees both ways, and no batch can lie its way through."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec import build, parse
from ottla.codec.compression import Compression
from ottla.codec.records import (
    HEADER_SIZE,
    BatchBuilder,
    Headers,
    Record,
    RecordBatch,
    RecordBody,
    RecordHeader,
    build_batch,
    check_bytes,
    parse_batch,
    read_batches,
    rebased,
)
from ottla.errors import CorruptMessage, DecodeError, EncodeError

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
    """A varint by the book, of any size."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def batch_of(body: bytes, count: int, **fields: int) -> RecordBatch:
    """A batch around ``body``, which may be anything."""
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
    """One record, piece by piece; ``length`` counts the others unless it is given."""
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
    """``batch`` with the CRC that its bytes have now."""
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
    """A body of a few records in which some bytes are others, and a count that is about right."""
    count = draw(st.integers(1, 3))
    body = bytearray(record_bytes() * count)
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, 3))
    return bytes(body[: len(body) - cut]), count + draw(st.sampled_from([0, 0, 0, -1, 1]))


@given(damaged_bodies())
@settings(max_examples=300, deadline=None)
def test_loops_and_declaration_agree_on_damage(damaged: tuple[bytes, int]) -> None:
    body, count = damaged
    assert outcome(lambda: list(batch_of(body, count).records())) == outcome(lambda: by_declaration(body, count))


def outcome(read: Callable[[], list[Record]]) -> list[Record] | None:
    try:
        return read()
    except DecodeError:
        return None


# --- round trips, and other people's batches


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(items=record_lists)
@settings(max_examples=20, deadline=None)
def test_records_come_back(compression: Compression, items: list[tuple[int, Any, Any, Headers]]) -> None:
    batch = parse_batch(build_batch(numbered(items), compression=compression))
    assert list(batch.records()) == numbered(items)
    assert batch.crc_matches
    assert batch.compression == compression
    assert (batch.base_timestamp, batch.max_timestamp) == (items[0][0], max(item[0] for item in items))
    assert (batch.count, batch.last_offset, batch.next_offset) == (len(items), len(items) - 1, len(items))


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(items=record_lists)
@settings(max_examples=20, deadline=None)
def test_aiokafka_reads_what_is_built(compression: Compression, items: list[tuple[int, Any, Any, Headers]]) -> None:
    theirs = DefaultRecordBatch(build_batch(numbered(items), compression=compression))
    assert theirs.validate_crc()
    assert [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs
    ] == numbered(items)


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(items=record_lists.filter(lambda items: items[0][0] >= 0))  # a first -1 is none at all to aiokafka
@settings(max_examples=20, deadline=None)
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
        with pytest.raises(CorruptMessage, match="batch at offset 1"):
            list(read_batches(first + damaged))
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
        with pytest.raises(DecodeError, match=rf"\(magic\) {magic} instead of 2; message sets, of Kafka before 0\.11"):
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
    # The lie is told of the last record, where it would run over the end, and of one in the middle.
    start = record_bytes() + record_bytes(**changed)
    for body, count in ((start, 2), (start + record_bytes(), 3)):
        with pytest.raises(DecodeError) as caught:
            batch_of(body, count).records()
        assert caught.value.path.startswith("records[1]")
        assert caught.value.offset >= len(record_bytes())


def test_an_error_in_a_record_says_which() -> None:
    with pytest.raises(DecodeError, match="not UTF-8") as caught:
        batch_of(record_bytes() + record_bytes(headers=zigzag(1) + zigzag(1) + b"\xff" + zigzag(0)), 2).records()
    assert caught.value.path == "records[1].headers[0].key"
    assert caught.value.offset == len(record_bytes()) + 10


def test_a_header_that_runs_over_the_end_with_a_record_that_says_so_too_is_refused_in_place() -> None:
    honest = record_bytes(headers=zigzag(1) + zigzag(0) + zigzag(5) + b"hello")
    with pytest.raises(DecodeError, match="record of 15 bytes with 11 left") as caught:
        batch_of(honest[:-4], 1).records()
    assert caught.value.path == "records[0]"


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
    assert caught.value.path == f"records[0].{what}_delta"


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
    with pytest.raises(DecodeError, match=f"compression {compression} is not known"):
        batch.records()


# --- what cannot be appended or built

NOT_BYTES: list[tuple[tuple[Any, ...], str]] = [
    ((NOW, "key", b"", ()), r"the key is a str: encode it first, as in 'key'\.encode\(\)"),
    ((NOW, b"", "value", ()), r"the value is a str: encode it first"),
    ((NOW, 5, b"", ()), "the key is int, and must be bytes or None"),
    ((NOW, b"", [1], ()), "the value is list, and must be bytes or None"),
    ((NOW, b"", b"", (("a", "b"),)), r"headers are pairs of a str and bytes or None, not \('a', 'b'\)"),
    ((NOW, b"", b"", ((b"a", b"b"),)), "headers are pairs"),
    ((NOW, b"", b"", (("a",),)), "headers are pairs"),
    ((NOW, b"", b"", (("a", b"b", b"c"),)), "headers are pairs"),
    ((NOW, b"", b"", ("ab",)), "headers are pairs"),
    ((NOW, b"", b"", (5,)), "headers are pairs"),
    ((NOW, b"", b"", {"a": b"b"}), "headers are a tuple of pairs, not dict"),
    ((NOW, b"", b"", 5), "headers are a tuple of pairs, not int"),
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
    if record[0] != -(1 << 63):  # that one is merely too far from the first
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
    with pytest.raises(EncodeError, match="a field of the batch's header does not fit"):
        builder.build(**field)
