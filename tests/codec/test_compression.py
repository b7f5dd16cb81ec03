"""The four compressions: what they make, what they read, and what they refuse before it costs memory."""

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.compression import Compression, compress, decompress
from ottla.errors import DecodeError

REAL = [each for each in Compression if each is not Compression.NONE]
TEXT = b"Kafka's little sister. " * 5000


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(data=st.binary(max_size=2000) | st.binary(max_size=20).map(lambda piece: piece * 10_000))
@settings(max_examples=20, deadline=None)
def test_what_was_compressed_comes_back(compression: Compression, data: bytes) -> None:
    assert decompress(compression, compress(compression, data)) == data
    assert decompress(compression, memoryview(compress(compression, bytearray(data)))) == data


@pytest.mark.parametrize("compression", REAL, ids=lambda each: each.name)
def test_repetition_shrinks(compression: Compression) -> None:
    assert len(compress(compression, TEXT)) < len(TEXT) / 10


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD], ids=lambda c: c.name)
def test_a_level_is_taken(compression: Compression) -> None:
    assert decompress(compression, compress(compression, TEXT, level=1)) == TEXT
    assert decompress(compression, compress(compression, TEXT, level=9)) == TEXT


@pytest.mark.parametrize("compression", REAL, ids=lambda each: each.name)
def test_data_cut_at_any_byte_is_refused(compression: Compression) -> None:
    whole = compress(compression, bytes(range(256)) * 300)
    for size in {*range(60), *range(60, len(whole), max(1, len(whole) // 200)), len(whole) - 1} - {len(whole)}:
        try:
            got = decompress(compression, whole[:size])
        except DecodeError:
            continue
        assert compression is Compression.SNAPPY, size  # xerial's framing may end after any block
        assert (bytes(range(256)) * 300).startswith(got)


@pytest.mark.parametrize("compression", REAL, ids=lambda each: each.name)
@given(data=st.binary(max_size=100))
@settings(max_examples=100, deadline=None)
def test_garbage_is_refused_or_read_never_anything_else(compression: Compression, data: bytes) -> None:
    with suppress(DecodeError):
        assert len(decompress(compression, data, limit=1 << 16)) <= 1 << 16


@pytest.mark.parametrize("number", [5, 6, 7, 8, -1])
def test_an_unknown_compression_is_named(number: int) -> None:
    with pytest.raises(DecodeError, match=f"compression {number} is not known"):
        decompress(number, b"")


@pytest.mark.parametrize("compression", REAL, ids=lambda each: each.name)
def test_a_bomb_costs_no_more_than_the_limit_allows(compression: Compression) -> None:
    bomb = compress(compression, bytes(64 * 2**20))
    limit = 4 * len(bomb) + 2**20
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=f"{compression.name.lower()} data would grow over the limit of {limit}"):
            decompress(compression, bomb, limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", REAL, ids=lambda each: each.name)
def test_the_limit_is_exact(compression: Compression) -> None:
    data = compress(compression, TEXT)
    assert decompress(compression, data, limit=len(TEXT)) == TEXT
    with pytest.raises(DecodeError, match="over the limit"):
        decompress(compression, data, limit=len(TEXT) - 1)


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_is_written_in_the_framing_of_xerial() -> None:
    data = compress(Compression.SNAPPY, TEXT)
    assert data[:16] == b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2
    first = int.from_bytes(data[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(data[20 : 20 + first])) == TEXT[: 32 * 1024]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\x82SNAPPY\0",
        b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)),
        b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2 + b"\0",
        b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2 + b"\0\0\0\x09ab",
        b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2 + b"\x7f\xff\xff\xff",
        b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2 + b"\0\0\0\0",
    ],
)
def test_a_damaged_framing_of_xerial_is_refused(damaged: bytes) -> None:
    with pytest.raises(DecodeError, match="snappy data is damaged"):
        decompress(Compression.SNAPPY, damaged)


def test_a_snappy_block_that_lies_about_its_size_is_refused() -> None:
    block = bytearray(cramjam.snappy.compress_raw(b"x" * 100))
    block[0] = 101
    with pytest.raises(DecodeError, match="snappy data is damaged"):
        decompress(Compression.SNAPPY, block)


def test_what_other_libraries_write_is_read() -> None:
    assert decompress(Compression.GZIP, gzip.compress(TEXT)) == TEXT
    assert decompress(Compression.GZIP, gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:])) == TEXT
    linked = cramjam.lz4.Compressor(level=9, content_checksum=True, block_linked=True)
    linked.compress(TEXT)
    assert decompress(Compression.LZ4, bytes(linked.finish())) == TEXT


def test_gzip_is_written_for_other_libraries() -> None:
    assert zlib.decompress(compress(Compression.GZIP, TEXT), wbits=31) == TEXT


def test_lz4_blocks_are_independent_because_java_refuses_linked_ones() -> None:
    assert compress(Compression.LZ4, TEXT * 10)[4] & 0x20, "the flag of independent blocks"


def test_compressions_have_names() -> None:
    assert Compression.named("zstd") is Compression.ZSTD
    assert Compression.named("none") is Compression.NONE
    with pytest.raises(ValueError, match="'brotli' is not one of none, gzip, snappy, lz4, zstd"):
        Compression.named("brotli")
