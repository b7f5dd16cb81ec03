"""Message sets: recorded ones are read whole, three other clients agree both ways, and no false message is accepted."""

import time
import tracemalloc
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AioBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec import frames
from ottla.codec.apis import APIS
from ottla.codec.compression import Compression, compress, decompress, lz4_rechecked
from ottla.codec.message_sets import (
    COMPRESSIONS,
    Message,
    build_message,
    build_message_set,
    parse_message,
    read_record_set,
    wrapper,
)
from ottla.codec.records import LENGTH_END, Columns, Record, RecordBatch, build_batch, rebased
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError
from tests.codec.recorded import WIRE, exchanges
from tests.examples import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's own warnings, which kafka-python causes
    from kafka.record.legacy_records import (
        LegacyRecordBatch as PythonBatch,
    )
    from kafka.record.legacy_records import (
        LegacyRecordBatchBuilder as PythonBuilder,
    )

NOW = 1_700_000_000_000
SIZE_AT, CRC_AT, MAGIC_AT = 8, 12, 16
KEY_AT = {0: 18, 1: 26}
LARGEST = 2**31 - 1

REFUSED = {("Produce", 2, "unsupported api key 0 version 2"), ("Fetch", 3, "unsupported api key 1 version 3")}
"""Requests that were truncated on purpose: (API, version, scenario)."""

FORMATS = [(magic, compression) for magic in (0, 1) for compression in (Compression.NONE, *COMPRESSIONS)]
every_format = pytest.mark.parametrize(("magic", "compression"), FORMATS)
every_wrapper = pytest.mark.parametrize(("magic", "compression"), [each for each in FORMATS if each[1]])

data = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 127, b"y" * 40_000])
timestamps = st.integers(0, 1 << 50) | st.integers(NOW - 100, NOW + 100)
items = st.lists(st.tuples(timestamps, data, data), min_size=1, max_size=8)


def numbered(given: list[tuple[int, Any, Any]], magic: int, first: int = 0) -> list[Record]:
    """Records as a consumer sees them; magic 0 has no timestamps."""
    return [Record(first + at, stamp if magic else -1, key, value) for at, (stamp, key, value) in enumerate(given)]


def read(record_set: bytes) -> list[Record]:
    return [record for batch in read_record_set(record_set) for record in batch.records()]


THREE = [Record(5, NOW, b"k", b"v" * 30), Record(6, NOW + 5, None, b""), Record(9, NOW - 99, b"", None)]
"""Offsets with a gap, as compaction leaves them; timestamps out of order."""


# --- recorded message sets


@cache
def recorded() -> list[tuple[str, bytes]]:
    """The writer and the record set: from old requests, old responses, and old segments."""
    logs = sorted((WIRE / "message_sets").glob("*/*/*.log"))
    return [*produced(), *fetched(), *((str(log), log.read_bytes()) for log in logs)]


def produced() -> Iterator[tuple[str, bytes]]:
    for each in exchanges("Produce"):
        if each.version <= 2 and (each.api, each.version, each.scenario) not in REFUSED:
            for topic in frames.parse_request(each.request).message.topic_data:
                yield from ((str(each), bytes(part.records)) for part in topic.partition_data)


def fetched() -> Iterator[tuple[str, bytes]]:
    for each in exchanges("Fetch"):
        if each.version <= 3 and each.response is not None:
            for topic in frames.parse_response(APIS[1].response, each.version, each.response)[1].responses:
                yield from ((str(each), bytes(part.records)) for part in topic.partitions)


def whole(record_set: bytes) -> bytes:
    """The set without a torn message at the end."""
    return b"".join(map(build_message, messages(record_set)))


def messages(record_set: bytes) -> list[Message]:
    return [each for each in read_record_set(record_set) if isinstance(each, Message)]


def test_enough_was_recorded() -> None:
    kinds = Counter((each.magic, each.compression) for _, record_set in recorded() for each in messages(record_set))
    assert all(kinds[each] >= 2 for each in FORMATS)
    assert sum(kinds.values()) > 900


def test_every_recorded_message_builds_again_to_the_same_bytes() -> None:
    for who, record_set in recorded():
        assert whole(record_set) == record_set, who
        assert all(each.crc_matches for each in messages(record_set)), who


def test_every_recorded_message_is_read_as_others_read_it() -> None:
    compared = 0
    for who, record_set in recorded():
        for each in messages(record_set):
            for reader in peers(each.magic, each.compression, PythonBatch, AioBatch):
                theirs = reader(build_message(each), each.magic)
                assert theirs.validate_crc()
                assert list(each.records()) == [as_record(record) for record in theirs], who
                compared += 1
    assert compared > 1800


def peers(magic: int, compression: int, kafka_python: Any, aiokafka: Any) -> list[Any]:
    """The peers that have the compression without more libraries; only Kafka itself has the first LZ4 format."""
    if compression == Compression.SNAPPY:
        return [aiokafka]
    return [] if magic == 0 and compression == Compression.LZ4 else [kafka_python, aiokafka]


def as_record(theirs: Any) -> Record:
    timestamp = -1 if theirs.timestamp is None else theirs.timestamp
    return Record(theirs.offset, timestamp, theirs.key, theirs.value)


def test_every_recorded_wrapper_wraps_again_to_the_same_records() -> None:
    wrapped = 0
    for who, record_set in recorded():
        for each in messages(record_set):
            offsets = [record.offset for record in each.records()]
            if each.compression and offsets[-1] == each.offset:
                again = wrapper(each.unwrapped(), Compression(each.compression))
                assert list(again.records()) == list(each.records()), who
                wrapped += 1
    assert wrapped > 40


def test_a_recorded_segment_holds_every_offset_once_and_in_order() -> None:
    for log in (WIRE / "message_sets").glob("*/*/*.log"):
        offsets = [record.offset for record in read(log.read_bytes())]
        assert offsets == list(range(int(log.stem), int(log.stem) + len(offsets))), log


def test_a_recorded_record_set_torn_at_any_byte_yields_its_whole_messages() -> None:
    log = WIRE / "message_sets" / "apache-kafka-2.8.2" / "m1-snappy-0" / "00000000000000000000.log"
    record_set = log.read_bytes()
    ends = [0]
    for each in messages(record_set):
        ends.append(ends[-1] + len(build_message(each)))
    for size in range(len(record_set)):
        assert len(messages(record_set[:size])) == sum(end <= size for end in ends) - 1


# --- other people's readers and builders


@every_format
@given(given=items)
@settings(max_examples=15)
def test_records_come_back(magic: int, compression: Compression, given: list[tuple[int, Any, Any]]) -> None:
    records = numbered(given, magic, first=7)
    built = build_message_set(records, magic=magic, compression=compression)
    assert read(built) == records
    assert whole(built) == built


@every_format
@given(given=items)
@settings(max_examples=15)
def test_kafka_python_and_aiokafka_read_what_is_built(
    magic: int, compression: Compression, given: list[tuple[int, Any, Any]]
) -> None:
    records = numbered(given, magic)
    built = messages(build_message_set(records, magic=magic, compression=compression))
    for reader in peers(magic, compression, PythonBatch, AioBatch):
        batches = [reader(build_message(each), magic) for each in built]
        assert all(batch.validate_crc() for batch in batches)
        assert [as_record(theirs) for batch in batches for theirs in batch] == records


@every_format
@given(given=items)
@settings(max_examples=15)
def test_what_kafka_python_and_aiokafka_build_is_read(
    magic: int, compression: Compression, given: list[tuple[int, Any, Any]]
) -> None:
    records = numbered(given, magic)
    for peer in peers(magic, compression, PythonBuilder, AioBuilder):
        builder = peer(magic, compression, 1 << 30)
        for offset, (timestamp, key, value) in enumerate(given):
            builder.append(offset, timestamp, key, value)
        theirs = bytes(builder.build())
        assert read(theirs) == records
        if compression == Compression.NONE:
            assert build_message_set(records, magic=magic) == theirs


# --- the forms of a wrapper


def test_offsets_within_are_the_real_ones_in_magic_0_and_count_from_the_first_in_magic_1() -> None:
    for magic, expected in ((0, [5, 6, 9]), (1, [0, 1, 4])):
        [each] = messages(build_message_set(THREE, magic=magic, compression=Compression.GZIP))
        assert each.offset == 9
        within = messages(bytes(decompress(each.compression, each.value or b"")))
        assert [inner.offset for inner in within] == expected
        assert [inner.offset for inner in each.unwrapped()] == [5, 6, 9]
        assert (each.base_offset, each.last_offset, each.next_offset) == (5, 9, 10)


def test_a_wrapper_that_the_broker_has_not_numbered_yet_counts_from_0() -> None:
    [each] = messages(build_message_set(numbered([(NOW, None, b"v")] * 3, 1), magic=1, compression=Compression.LZ4))
    assert [record.offset for record in replace(each, offset=0).records()] == [0, 1, 2]
    assert [record.offset for record in replace(each, offset=12).records()] == [10, 11, 12]


def test_with_log_append_time_a_wrappers_time_is_that_of_every_record() -> None:
    for compression in (Compression.NONE, *COMPRESSIONS):
        built = build_message_set(THREE, magic=1, compression=compression, log_append_time=NOW + 77)
        assert all(each.log_append_time for each in read_record_set(built))
        assert read(built) == [Record(each.offset, NOW + 77, each.key, each.value) for each in THREE]


def test_with_create_time_every_record_has_its_own() -> None:
    [each] = messages(build_message_set(THREE, magic=1, compression=Compression.GZIP))
    assert not each.log_append_time
    assert each.timestamp == NOW + 5, "the latest timestamp"
    assert [record.timestamp for record in each.records()] == [NOW, NOW + 5, NOW - 99]


def test_messages_of_magic_0_have_no_timestamps_even_in_a_wrapper_of_magic_1() -> None:
    inner = build_message_set(numbered([(NOW, b"k", b"v")] * 2, 0), magic=0)
    each = Message(offset=8, magic=1, attributes=0x09, timestamp=NOW, key=None, value=compress(Compression.GZIP, inner))
    assert list(each.records()) == [Record(7, -1, b"k", b"v"), Record(8, -1, b"k", b"v")]


def test_the_lz4_of_magic_0_has_the_checksum_of_its_time() -> None:
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        [each] = messages(build_message_set(THREE, magic=magic, compression=Compression.LZ4))
        assert each.value is not None
        assert each.value[6] == lz4_rechecked(each.value, old=magic == 0)[6]
        header = each.value[:4] + b"\x60\x40\x00"  # as Kafka writes it
        assert lz4_rechecked(header, old=magic == 0)[6] == checksum
        assert list(each.records()) == [replace_timestamp(record, magic) for record in THREE]
    # Brokers check this checksum in magic 1 only, and so does ottla.
    [each] = messages(build_message_set(THREE, magic=1, compression=Compression.LZ4))
    assert each.value is not None
    with pytest.raises(DecodeError, match="lz4 data is damaged"):
        replace(each, value=lz4_rechecked(each.value, old=True)).records()


def replace_timestamp(record: Record, magic: int) -> Record:
    return Record(record.offset, record.timestamp if magic else -1, record.key, record.value)


def test_columns_are_the_records_by_field() -> None:
    for compression in (Compression.NONE, Compression.SNAPPY):
        parts = list(read_record_set(build_message_set(THREE, magic=1, compression=compression)))
        columns = [part.columns() for part in parts]
        assert [offset for part in columns for offset in part.offsets] == [5, 6, 9]
        assert [key for part in columns for key in part.keys] == [b"k", None, b""]
        assert [value for part in columns for value in part.values] == [b"v" * 30, b"", None]


# --- record sets of several formats


def upgraded_log() -> bytes:
    """The log of a broker that was upgraded twice."""
    old = build_message_set(numbered([(NOW, b"0", b"a"), (NOW, b"0", b"b")], 0), magic=0)
    wrapped = build_message_set(
        numbered([(NOW, b"1", b"c"), (NOW, b"1", b"d")], 1, 2), magic=1, compression=Compression.LZ4
    )
    batch = build_batch([Record(0, NOW, b"2", b"e", (("h", b"x"),)), Record(1, NOW, b"2", None)])
    newer = build_message_set(numbered([(NOW, b"1", b"f")], 1, 6), magic=1)
    return old + wrapped + rebased(batch, 4, 0) + newer


def test_a_record_set_of_all_formats_is_read_in_order() -> None:
    parts = list(read_record_set(upgraded_log()))
    assert [type(part) for part in parts] == [Message, Message, Message, RecordBatch, Message]
    assert [part.base_offset for part in parts] == [0, 1, 2, 4, 6]
    assert [part.last_offset for part in parts] == [0, 1, 3, 5, 6]
    assert [part.next_offset for part in parts] == [1, 2, 4, 6, 7]
    assert [part.compression for part in parts] == [0, 0, 3, 0, 0]
    assert not any(part.control or part.transactional or part.log_append_time for part in parts)
    assert {part.producer_id for part in parts} == {-1}
    assert all(part.crc_matches for part in parts)
    assert b"".join(part.data for part in parts) == upgraded_log()
    records = [record for part in parts for record in part.records()]
    assert [record.offset for record in records] == list(range(7))
    assert [record.value for record in records] == [b"a", b"b", b"c", b"d", b"e", None, b"f"]
    columns = Columns.of(part.records() for part in parts)
    assert list(columns.offsets) == list(range(7))
    assert columns.values.tolist() == [b"a", b"b", b"c", b"d", b"e", None, b"f"]


def test_a_record_set_torn_at_any_byte_yields_what_is_whole() -> None:
    data = upgraded_log()
    ends = [0, *accumulate(LENGTH_END + size for size in sizes(data))]
    assert ends[-1] == len(data)
    for size in range(len(data)):
        assert len(list(read_record_set(data[:size]))) == sum(end <= size for end in ends) - 1


def sizes(record_set: bytes) -> Iterator[int]:
    at = 0
    while at < len(record_set):
        size = int.from_bytes(record_set[at + SIZE_AT : at + CRC_AT], "big")
        yield size
        at += LENGTH_END + size


def test_a_changed_byte_under_a_crc_is_corruption_and_says_where() -> None:
    data = upgraded_log()
    ends = [0, *accumulate(LENGTH_END + size for size in sizes(data))]
    for number, (start, end) in enumerate(pairwise(ends)):
        for at in range(start + (21 if number == 3 else MAGIC_AT + 1), end):
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            parts = []
            with pytest.raises(ChecksumMismatch, match=f"at offset {[0, 1, 3, 4, 6][number]}") as caught:
                for part in read_record_set(damaged):
                    parts.append(part)
            path, crc_at = ("RecordBatch.crc", 17) if number == 3 else ("Message.crc", 12)
            assert (caught.value.path, caught.value.offset) == (path, start + crc_at)
            assert caught.value.stored != caught.value.computed
            assert len(parts) == number, "the messages before it are read"


def test_crcs_are_not_looked_at_unless_asked() -> None:
    data = bytearray(build_message_set(THREE, magic=1))
    data[data.index(b"vvv")] ^= 1
    parts = list(read_record_set(data, verify=False))
    assert [part.crc_matches for part in parts] == [False, True, True]


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_a_format_of_the_future_is_refused(magic: int) -> None:
    data = bytearray(build_message_set(THREE, magic=1))
    data[MAGIC_AT] = magic
    for record_set in (data, data[:-1], data[:20]):
        with pytest.raises(DecodeError, match=rf"\(magic\) {magic}"):
            list(read_record_set(record_set))
    with pytest.raises(DecodeError, match=rf"\(magic\) {magic}") as caught:
        parse_message(data)
    assert caught.value.offset == MAGIC_AT


# --- hostile messages


def sealed(message: bytes | bytearray) -> bytes:
    """``message`` with the size and CRC of its present bytes."""
    data = bytearray(message)
    data[SIZE_AT:CRC_AT] = (len(data) - LENGTH_END).to_bytes(4, "big")
    data[CRC_AT:MAGIC_AT] = zlib.crc32(data[MAGIC_AT:]).to_bytes(4, "big")
    return bytes(data)


@every_format
def test_lengths_that_lie_are_refused_or_torn(magic: int, compression: Compression) -> None:
    record = [Record(0, NOW, b"key", b"value")]
    whole = build_message_set(record, magic=magic, compression=compression)
    for at in (SIZE_AT, KEY_AT[magic], len(whole) - 4 - len(messages(whole)[0].value or b"")):
        for length in (-2, -(2**31), 1, LARGEST, len(whole) - LENGTH_END + 1):
            damaged = bytearray(whole)
            damaged[at : at + 4] = length.to_bytes(4, "big", signed=True)
            if at != SIZE_AT:
                damaged = bytearray(sealed(damaged))
            torn = at == SIZE_AT and length > len(whole) - LENGTH_END
            with nullcontext() if torn else pytest.raises(DecodeError):
                assert read(bytes(damaged)) == []


@every_wrapper
@given(data=st.data())
@settings(max_examples=40)
def test_damage_within_a_wrapper_is_refused_or_read_never_anything_else(
    magic: int, compression: Compression, data: st.DataObject
) -> None:
    inner = bytearray(build_message_set(THREE, magic=magic))
    for _ in range(data.draw(st.integers(1, 3))):
        inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 1, 20]))
    value = compress(compression, bytes(inner[: len(inner) - cut]))
    if (magic, compression) == (0, Compression.LZ4):
        value = lz4_rechecked(value, old=True)
    each = Message(offset=9, magic=magic, attributes=compression, key=None, value=value)
    with suppress(DecodeError):
        list(each.records())


@given(data=st.binary(max_size=120), magic=st.integers(0, 3), size=st.integers(-2, 130))
@examples(200)
def test_garbage_is_refused_or_read_never_anything_else(data: bytes, magic: int, size: int) -> None:
    garbage = bytearray(data)
    garbage[SIZE_AT:CRC_AT] = size.to_bytes(4, "big", signed=True)
    garbage[MAGIC_AT : MAGIC_AT + 1] = bytes((magic,))
    for verify in (True, False):
        with suppress(DecodeError):
            for part in read_record_set(garbage, verify=verify):
                list(part.records(limit=1 << 16))


def wrap(inner: bytes, magic: int = 1, compression: int = Compression.GZIP, offset: int = 9) -> Message:
    """A wrapper of any bytes."""
    value = compress(Compression(compression), inner) if compression in COMPRESSIONS else inner
    return Message(offset=offset, magic=magic, attributes=compression, key=None, value=value)


INNER = build_message_set(THREE, magic=1)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (wrap(b""), "message at offset 9: Message.value at byte 34: a wrapper without messages"),
        (replace(wrap(b""), value=None), "Message.value at byte 34: a wrapper without a value"),
        (wrap(INNER[:-1]), r"Message.value\[2\].message_size at byte \d+: message of 34 bytes with 33 left"),
        (wrap(INNER + b"\0" * 5), r"Message.value\[3\] at byte \d+: 5 bytes are too few for a message"),
        (wrap(build_message(wrap(INNER))), r"Message.value\[0\].attributes at byte 17: a wrapper within a wrapper"),
        (wrap(build_batch(THREE)), r"Message.value\[0\].magic at byte 16: format \(magic\) 2, a message has 0 or 1"),
        (wrap(INNER, offset=3), "Message.offset at byte 0: offset 3 is less than the last one within, 9"),
        (wrap(INNER, compression=4), "Message.attributes at byte 17: compression 4 is not known in message sets"),
        (wrap(INNER, compression=7), "Message.attributes at byte 17: compression 7 is not known in message sets"),
        (replace(wrap(INNER), value=b"abc"), "Message.value at byte 34: gzip data is damaged"),
    ],
)
def test_a_wrapper_that_is_none_is_refused_and_says_why(wrong: Message, complaint: str) -> None:
    for method in (wrong.unwrapped, wrong.records, wrong.columns):
        with pytest.raises(DecodeError, match=complaint):
            method()
    with pytest.raises(DecodeError, match=complaint):
        assert wrong.base_offset


def test_a_crc_within_a_wrapper_is_compared_too() -> None:
    inner = bytearray(INNER)
    inner[INNER.index(b"vvv")] ^= 1
    with pytest.raises(ChecksumMismatch, match="decompressed value of the message at offset 9") as caught:
        wrap(bytes(inner)).records()
    assert (caught.value.path, caught.value.offset) == ("Message.value[0].crc", 12)


@pytest.mark.parametrize("offsets", [(-(2**63), 2**63 - 1), (0, 2**31), (2**62, -(2**62))])
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_that_no_wrapper_can_hold_are_refused(magic: int, offsets: tuple[int, int]) -> None:
    inner = b"".join(build_message(Message(offset=each, magic=magic, key=None, value=b"")) for each in offsets)
    with pytest.raises(DecodeError, match="too large, or too far apart"):
        wrap(inner, magic, offset=2**63 - 1).records()


@every_wrapper
def test_a_bomb_is_bounded_by_the_callers_limit(magic: int, compression: Compression) -> None:
    record = [Record(0, NOW, None, bytes(16 * 2**20))]
    [each] = messages(build_message_set(record, magic=magic, compression=compression))
    limit = 4 * len(each.value or b"") + 2**20
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=f"over the limit of {limit} bytes"):
            each.records(limit)
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
    finally:
        tracemalloc.stop()
    assert len(each.records(limit=17 * 2**20)) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_memory_and_time_grow_with_the_messages_only(magic: int) -> None:
    few, many = ([Record(at, NOW, None, None) for at in range(count)] for count in (250, 1000))
    plain = build_message_set(many, magic=magic)
    tracemalloc.start()
    try:
        read(plain)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(plain) + 2**20
    finally:
        tracemalloc.stop()
    for compression in (Compression.NONE, Compression.SNAPPY):
        short, long = (build_message_set(each, magic=magic, compression=compression) for each in (few, many))
        assert seconds(long) < 12 * seconds(short), "linear would be 4"


def seconds(record_set: bytes) -> float:
    """The shortest time to read it."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        read(record_set)
        taken.append(time.process_time() - start)
    return min(taken)


# --- values that cannot be built


class Unchecked(SimpleNamespace):
    """A record without checks."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**({"offset": 0, "timestamp": NOW, "key": None, "value": None, "headers": ()} | fields))


@pytest.mark.parametrize(
    ("records", "options", "complaint"),
    [
        ([Record(0, NOW, None, b"", (("h", b""),))], {"magic": 1}, "a message cannot carry headers"),
        (THREE[::-1], {"magic": 1}, "offset 6 after 9: offsets in a message set must ascend"),
        (THREE, {"magic": 1, "compression": Compression.ZSTD}, "compressed with zstd, only with gzip, snappy, lz4"),
        (THREE, {"magic": 1, "compression": 5}, "compressed with 5, only with gzip, snappy, lz4"),
        (THREE, {"magic": 1, "compression": Compression.GZIP, "level": 10}, "gzip has levels 0 to 9, not 10"),
        (THREE, {"magic": 2}, "Message.magic: 2 is not the magic of a message: 0 or 1"),
        (THREE, {"magic": 0, "log_append_time": NOW}, "magic 0 have no timestamps"),
        (THREE, {"magic": 1, "log_append_time": 2**63}, "Message.timestamp: .* does not fit"),
        ([Record(2**63, NOW, None, None)], {"magic": 0}, "Message.offset: .* does not fit"),
        (
            [SimpleNamespace(offset=0, timestamp=NOW, key="k", value=None, headers=())],
            {"magic": 0},
            "Message.key: bytes",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_says_why(records: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        build_message_set(records, **options)


def test_a_wrapper_of_nothing_is_refused() -> None:
    with pytest.raises(EncodeError, match="a wrapper needs messages"):
        wrapper([], Compression.GZIP)


@every_format
def test_no_records_make_no_messages(magic: int, compression: Compression) -> None:
    assert build_message_set([], magic=magic, compression=compression) == b""
    assert list(read_record_set(b"")) == []


def test_a_batch_that_is_refused_is_never_taken_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordBatch, "read", lambda *_: False)
    monkeypatch.setattr("ottla.codec.message_sets.parse_batch", lambda *_: RecordBatch())
    with pytest.raises(DecodeError, match="a batch that cannot be read"):
        list(read_record_set(build_batch(THREE)))


def test_who_verifies_batches_later_still_has_messages_verified_at_once() -> None:
    batch = bytearray(build_batch([Record(0, 1, None, b"v")]))
    batch[-2] ^= 1
    [found] = read_record_set(bytes(batch), verify=lambda batch: False)
    assert not found.crc_matches
    with pytest.raises(ChecksumMismatch):
        list(read_record_set(bytes(batch), verify=lambda batch: True))
    message = bytearray(build_message_set([Record(0, 1, None, b"v")], magic=1))
    message[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        list(read_record_set(bytes(message), verify=lambda batch: False))
    assert len(list(read_record_set(bytes(message), verify=False))) == 1
