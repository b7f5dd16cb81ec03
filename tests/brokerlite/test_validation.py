"""Validation of a produced record set, without a log: the largest timestamp, and the estimate of the work."""

import gzip
from itertools import pairwise

import lz4.frame
import pytest

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.validation import MOST_INDEXES, InvalidRecords, validated, work
from ottla.codec.compression import Compression, compress, lz4_rechecked
from ottla.codec.records import HEADER_SIZE, BatchBuilder, RecordBatch
from ottla.errors import BrokerError, CorruptMessage, InvalidRecord, InvalidTimestamp
from tests.brokerlite.machine import TODAY, a_batch
from tests.brokerlite.test_log import changed

HOUR = 3600 * 1000
COMPRESSIONS = pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name.lower())


def valid(records: bytes, settings: LogSettings | None = None, limit: int = 2**26) -> RecordBatch:
    return validated(records, version=13, settings=settings or LogSettings(), timestamp=TODAY, name="t-0", limit=limit)


def claiming(batch: bytes, max_timestamp: int) -> bytes:
    return changed(batch, 35, max_timestamp.to_bytes(8, "big", signed=True))


def body_of(batch: RecordBatch) -> bytes:
    return bytes(batch.data[HEADER_SIZE:])


@COMPRESSIONS
@pytest.mark.parametrize("claimed", [TODAY + 100 * 365 * 24 * HOUR, TODAY + 1, 0, -1, -(2**63), 2**63 - 1])
def test_a_header_that_claims_another_largest_timestamp_is_corrected(compression: Compression, claimed: int) -> None:
    sent = a_batch(b"a", b"b", b"c", compression=compression, producer_id=7, producer_epoch=0, base_sequence=3)
    batch = valid(claiming(sent, claimed))
    assert batch.max_timestamp == TODAY + 2 and batch.crc_matches
    assert bytes(batch.data) == sent


@COMPRESSIONS
def test_an_honest_batch_is_the_very_bytes_that_came(compression: Compression) -> None:
    sent = a_batch(b"a", b"b", compression=compression)
    assert valid(sent).data.obj is sent


def test_the_largest_timestamp_may_be_that_of_any_record_or_none() -> None:
    builder = BatchBuilder()
    for stamp in (TODAY, TODAY + 500, TODAY - 500):
        builder.append(stamp, None, b"v")
    sent = builder.build()
    assert valid(claiming(sent, TODAY)).max_timestamp == TODAY + 500
    untimed = a_batch(b"v", timestamp=-1)
    assert valid(claiming(untimed, TODAY)).max_timestamp == -1


def test_a_claim_about_the_future_is_corrected_and_a_record_in_it_is_refused() -> None:
    late = TODAY + HOUR + 1
    assert valid(claiming(a_batch(), late)).max_timestamp == TODAY
    with pytest.raises(InvalidTimestamp, match=str(late)):
        valid(claiming(a_batch(timestamp=late), TODAY))


def test_a_record_of_long_ago_is_refused_among_others_and_one_without_a_timestamp_is_not() -> None:
    settings = LogSettings(timestamp_before_max_ms=HOUR)
    builder = BatchBuilder()
    builder.append(TODAY, None, b"v")
    builder.append(-1, None, b"v")
    valid(builder.build(), settings)
    builder.append(TODAY - HOUR - 1, None, b"v")
    with pytest.raises(InvalidTimestamp):
        valid(builder.build(), settings)


def test_a_timestamp_that_does_not_fit_64_bits_is_invalid() -> None:
    with pytest.raises(InvalidRecord):
        valid(changed(a_batch(b"a", b"b"), 27, (2**63 - 1).to_bytes(8, "big")))


def test_a_batch_is_corrected_when_it_is_compressed_again() -> None:
    sent = claiming(a_batch(*[b"words"] * 50, compression=Compression.GZIP), 5)
    again = valid(sent, LogSettings(compression=Compression.ZSTD))
    assert (again.compression, again.max_timestamp, again.crc_matches) == (Compression.ZSTD, TODAY + 49, True)


def test_of_many_records_without_a_key_the_first_are_named() -> None:
    settings = LogSettings(compacted=True)
    with pytest.raises(InvalidRecords) as refused:
        valid(a_batch(*[b"v"] * 500, key=None), settings)
    assert refused.value.indexes == tuple(range(MOST_INDEXES))


# -- the estimate of the work


@COMPRESSIONS
def test_no_more_is_decompressed_than_was_foreseen(compression: Compression) -> None:
    for size in (10, 1000, 100_000, 5_000_000):
        sent = a_batch(bytes(size), compression=compression)
        settings = LogSettings(max_message_bytes=2**23)
        much = work(sent, settings)
        assert much >= (size if compression else size // 8)
        assert valid(sent, settings, limit=much).count == 1


def test_small_batches_of_any_client_are_little_work_and_bombs_are_much() -> None:
    for compression in Compression:
        assert work(a_batch(*[b"a word or two"] * 100, compression=compression), LogSettings()) < 150_000
    for compression in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        bomb = a_batch(bytes(20 * 2**20), compression=compression)
        assert len(bomb) < 100_000 and work(bomb, LogSettings()) >= 20 * 2**20


def test_gzip_that_claims_too_little_is_invalid_before_it_is_decompressed() -> None:
    sent = a_batch(bytes(10 * 2**20), compression=Compression.GZIP)
    lying = changed(sent, len(sent) - 4, (100).to_bytes(4, "little"))
    much = work(lying, LogSettings())
    assert much < 1000
    with pytest.raises(InvalidRecord, match=f"limit of {much} bytes"):
        valid(lying, limit=much)


def test_compressing_again_is_more_work_and_most_with_a_high_level() -> None:
    sent = a_batch(bytes(100_000))
    settings = [
        LogSettings(),
        LogSettings(compression=Compression.ZSTD, compression_level=3),
        LogSettings(compression=Compression.ZSTD, compression_level=19),
    ]
    assert all(2 * less < more for less, more in pairwise(work(sent, each) for each in settings))
    assert work(sent, LogSettings(compression=Compression.NONE)) == work(sent, LogSettings())


def test_what_is_refused_at_a_glance_is_no_work() -> None:
    bomb = a_batch(bytes(2**20), compression=Compression.ZSTD)
    for records, settings in ((None, LogSettings()), (b"", LogSettings()), (bomb[:-1], LogSettings())):
        assert work(records, settings) == 0
    assert work(bomb, LogSettings(max_message_bytes=len(bomb) - 1)) == 0


# -- data that Java's client cannot read


PLAIN = a_batch(*[b"%d" % i * 1000 for i in range(200)])
RECORDS = PLAIN[HEADER_SIZE:]


def compressed_as(data: bytes, compression: Compression = Compression.LZ4) -> bytes:
    """The batch `PLAIN` with ``data`` as its records."""
    header = bytearray(PLAIN[:HEADER_SIZE])
    header[22] |= compression
    header[8:12] = (HEADER_SIZE - 12 + len(data)).to_bytes(4, "big")
    return changed(bytes(header) + data, 0, bytes(8))


def values(batch: RecordBatch) -> int:
    """The number of readable records."""
    return sum(1 for _ in batch.records())


def an_lz4_frame(data: bytes = RECORDS, **options: bool) -> bytes:
    frame: bytes = lz4.frame.compress(data, **({"block_linked": False, "store_size": False} | options))
    return frame


def with_lz4_header(frame: bytes, header: bytes) -> bytes:
    """The frame with other flags and another block size, and with their checksum."""
    return lz4_rechecked(frame[:4] + header + b"\0" + frame[7:], old=False)


SKIPPABLE = b"\x50\x2a\x4d\x18" + b"\4\0\0\0" + b"skip"
FRAME = an_lz4_frame()


LZ4_THAT_IS_READ = {
    "plain": FRAME,
    "content size": an_lz4_frame(store_size=True),
    "block checksums": an_lz4_frame(block_checksum=True),
    "content checksum": an_lz4_frame(content_checksum=True),
    "a skippable frame behind": FRAME + SKIPPABLE,
    "an empty frame behind": FRAME + an_lz4_frame(b""),
    "something behind": FRAME + b"x",
}
LZ4_THAT_IS_REFUSED = {
    "linked blocks": an_lz4_frame(block_linked=True),
    "two frames": an_lz4_frame(RECORDS[:1000]) + an_lz4_frame(RECORDS[1000:]),
    "an empty frame first": an_lz4_frame(b"") + FRAME,
    "a skippable frame first": SKIPPABLE + FRAME,
    "no end": FRAME[:-4],
    "half an end": FRAME[:-1],
    "an empty block": FRAME[:7] + (1 << 31).to_bytes(4, "little") + FRAME[7:],
    "version 0": with_lz4_header(FRAME, b"\x20" + FRAME[5:6]),
    "version 2": with_lz4_header(FRAME, b"\xa0" + FRAME[5:6]),
    "a reserved flag": with_lz4_header(FRAME, b"\x62" + FRAME[5:6]),
    "the checksum of magic 0": lz4_rechecked(FRAME, old=True),
    "nothing": b"",
    "a magic number": b"\x04\x22\x4d\x18",
}


@pytest.mark.parametrize("way", LZ4_THAT_IS_REFUSED)
def test_lz4_that_javas_client_refuses_is_invalid(way: str) -> None:
    with pytest.raises(InvalidRecord):
        valid(compressed_as(LZ4_THAT_IS_REFUSED[way]))


@pytest.mark.parametrize("way", LZ4_THAT_IS_READ)
def test_lz4_that_javas_client_reads_is_stored(way: str) -> None:
    assert values(valid(compressed_as(LZ4_THAT_IS_READ[way]))) == 200


@pytest.mark.parametrize(
    ("compression", "data"),
    [
        (Compression.GZIP, gzip.compress(RECORDS) + bytes(10)),
        (Compression.GZIP, gzip.compress(RECORDS[:1000]) + gzip.compress(RECORDS[1000:]) + b"something"),
        (Compression.SNAPPY, compress(Compression.SNAPPY, RECORDS) + b"xyz"),
    ],
    ids=["gzip", "two gzip members", "snappy"],
)
def test_what_javas_client_ignores_behind_the_data_is_cut_off(compression: Compression, data: bytes) -> None:
    batch = valid(compressed_as(data, compression))
    assert values(batch) == 200 and batch.crc_matches and len(batch.data) < HEADER_SIZE + len(data)


@pytest.mark.parametrize(
    ("compression", "data"),
    [
        (Compression.GZIP, gzip.compress(RECORDS) + gzip.compress(RECORDS)[:40]),
        (Compression.GZIP, gzip.compress(RECORDS) + gzip.compress(RECORDS) + b"x"),
        (Compression.SNAPPY, compress(Compression.SNAPPY, RECORDS) + b"xyzx"),
        (Compression.SNAPPY, b"xyzx" * 9),
        (Compression.ZSTD, compress(Compression.ZSTD, RECORDS) + b"x"),
    ],
    ids=["half a gzip member", "a gzip member too many", "a snappy block", "no snappy", "zstd"],
)
def test_what_javas_client_trips_over_behind_the_data_is_invalid(compression: Compression, data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        valid(compressed_as(data, compression))


def test_a_batch_that_is_compressed_again_loses_attributes_that_nobody_knows() -> None:
    odd = changed(a_batch(), 22, b"\x80")
    assert valid(odd).attributes == 0x80
    assert valid(odd, LogSettings(compression=Compression.GZIP)).attributes == Compression.GZIP


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (a_batch() + b"x" * 80, CorruptMessage),
        (changed(a_batch(), 16, b"\3"), CorruptMessage),
        (bytes(20), CorruptMessage),
        (a_batch() + b"x" * 11, None),
        (changed(a_batch(), 16, b"\1"), InvalidRecord),
        (a_batch() * 2, InvalidRecord),
    ],
    ids=["rubbish behind", "magic 3", "zeros", "too short for a header", "magic 1", "two batches"],
)
def test_what_is_no_batch_has_kafkas_error(records: bytes, error: type[BrokerError] | None) -> None:
    if error is None:
        assert valid(records).count == 1
    else:
        with pytest.raises(error):
            valid(records)
