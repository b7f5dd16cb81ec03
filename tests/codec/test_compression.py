"""The four compressions: their output, their input, and bytes that they refuse before these cost memory."""

import gzip
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.compression import (
    DEFAULT_LEVELS,
    LEVELS,
    Compression,
    compress,
    decompress,
    decompressed_bound,
    lz4_rechecked,
)
from ottla.errors import DecodeError, EncodeError
from tests.examples import examples

REAL = [each for each in Compression if each is not Compression.NONE]
TEXT = b"Kafka's little sister. " * 5000
PROSE = b" ".join(b"%x" % (number * number % 65_521) for number in range(30_000))
"""Data that compress as well as records do."""


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(data=st.binary(max_size=2000) | st.binary(max_size=20).map(lambda piece: piece * 10_000))
@settings(max_examples=20)
def test_what_was_compressed_comes_back(compression: Compression, data: bytes) -> None:
    assert decompress(compression, compress(compression, data)) == data
    assert decompress(compression, memoryview(compress(compression, bytearray(data)))) == data


@pytest.mark.parametrize("compression", [each for each in Compression if each])
def test_what_is_large_is_the_same_and_cannot_be_changed(compression: Compression) -> None:
    data = bytes(range(256)) * 80_000
    made = decompress(compression, compress(compression, data))
    assert made == data and memoryview(made).readonly


@pytest.mark.parametrize("compression", REAL, ids=lambda each: each.name)
def test_repetition_shrinks(compression: Compression) -> None:
    assert len(compress(compression, TEXT)) < len(TEXT) / 10


@pytest.mark.parametrize("compression", LEVELS, ids=lambda each: each.name)
def test_every_level_is_taken_and_a_higher_one_makes_it_smaller(compression: Compression) -> None:
    lowest, highest = LEVELS[compression]
    sizes = []
    for level in (lowest, DEFAULT_LEVELS[compression], highest):
        data = compress(compression, PROSE, level)
        assert decompress(compression, data) == PROSE
        sizes.append(len(data))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    assert compress(compression, PROSE) == compress(compression, PROSE, DEFAULT_LEVELS[compression])


@pytest.mark.parametrize(
    ("compression", "level", "complaint"),
    [
        (Compression.GZIP, -1, "gzip has levels 0 to 9, not -1"),
        (Compression.GZIP, 10, "gzip has levels 0 to 9, not 10"),
        (Compression.LZ4, 13, "lz4 has levels 0 to 12, not 13"),
        (Compression.LZ4, -(2**40), f"lz4 has levels 0 to 12, not {-(2**40)}"),
        (Compression.ZSTD, -131073, "zstd has levels -131072 to 22, not -131073"),
        (Compression.ZSTD, 2**40, f"zstd has levels -131072 to 22, not {2**40}"),
        (Compression.ZSTD, "3", "zstd has levels -131072 to 22, not '3'"),
        (Compression.GZIP, 1.5, "gzip has levels 0 to 9, not 1.5"),
        (Compression.SNAPPY, 1, "compression snappy has no levels: leave out 1"),
        (Compression.NONE, 0, "compression none has no levels: leave out 0"),
    ],
)
def test_a_level_that_does_not_exist_is_refused_with_those_that_do(
    compression: Compression, level: int, complaint: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        compress(compression, TEXT, level)
    assert str(caught.value) == complaint


def work() -> Iterator[tuple[str, Callable[[], object]]]:
    """Every slow operation: a name, and a call of some milliseconds."""
    data = PROSE * 16
    for each in REAL:
        made = compress(each, data)
        yield f"compress {each.name}", partial(compress, each, data)
        yield f"decompress {each.name}", partial(decompress, each, made)
    yield "compress LZ4, level 9", lambda: compress(Compression.LZ4, data, 9)


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in work()])
def test_another_thread_runs_meanwhile(call: Callable[[], object]) -> None:
    # On a busy machine, a free core is a matter of luck: one success is proof enough.
    assert any(lets_go(call) for _ in range(500)), "the GIL was held, or no core was free five hundred times"


def lets_go(call: Callable[[], object]) -> bool:
    """Whether another thread ran during ``call``, although the interpreter never asks threads to release the GIL."""
    turn, taken = threading.Lock(), threading.Event()
    turn.acquire()

    def take() -> None:
        turn.acquire()
        taken.set()

    with turn_taking_off():
        other = threading.Thread(target=take)
        other.start()
        turn.release()
        call()
        result = taken.is_set()
    other.join()
    return result


@contextmanager
def turn_taking_off() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


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
@examples(100)
def test_garbage_is_refused_or_read_never_anything_else(compression: Compression, data: bytes) -> None:
    with suppress(DecodeError):
        assert len(decompress(compression, data, limit=1 << 16)) <= 1 << 16


@pytest.mark.parametrize("number", [5, 6, 7, 8, -1])
def test_an_unknown_compression_is_named(number: int) -> None:
    with pytest.raises(DecodeError, match=f"compression {number} is unknown"):
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


# --- how large it becomes, before it does


SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"\x28\xb5\x2f\xfd\x20"
"""A frame without data, for zstd as well as for LZ4."""
CONTENTS = st.binary(max_size=2000) | st.builds(
    lambda piece, times, rest: piece * times + rest, st.binary(max_size=20), st.integers(0, 30_000), st.binary()
)


def streamed_zstd(data: bytes) -> bytes:
    """zstd as Java writes it: without the content size, which is unknown at the beginning, and flushed once."""
    made = cramjam.zstd.Compressor()
    made.compress(data[: len(data) // 3])
    flushed = bytes(made.flush())
    made.compress(data[len(data) // 3 :])
    return flushed + bytes(made.finish())


def zstd_frame(blocks: list[tuple[int, int, bytes]], content: int | None = None, checksum: bytes = b"") -> bytes:
    """A frame of blocks: their type, the size in their header, and their content."""
    frame = b"\x28\xb5\x2f\xfd" + (b"\0\x58" if content is None else b"\xa0" + content.to_bytes(4, "little"))
    for number, (kind, size, held) in enumerate(blocks, 1):
        frame += (size << 3 | kind << 1 | (number == len(blocks))).to_bytes(3, "little") + held
    return frame + checksum


WRITERS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    **{each.name.lower(): (each, partial(compress, each)) for each in Compression},
    "gzip, not compressed": (Compression.GZIP, partial(compress, Compression.GZIP, level=0)),
    "gzip of the standard library": (Compression.GZIP, gzip.compress),
    "snappy, raw": (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4 with all checksums, and its size": (
        Compression.LZ4,
        partial(lz4.frame.compress, content_checksum=True, block_checksum=True, store_size=True),
    ),
    "lz4, linked, in blocks of 4 MiB": (Compression.LZ4, partial(lz4.frame.compress, block_size=7, store_size=False)),
    "lz4 of cramjam": (Compression.LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd, level 19": (Compression.ZSTD, partial(compress, Compression.ZSTD, level=19)),
    "zstd, streamed": (Compression.ZSTD, streamed_zstd),
    "zstd, repeated": (
        Compression.ZSTD,
        lambda data: zstd_frame([(1, min(len(data), 2**17), data[:1] or b"x"), (0, 3, b"abc")]),
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
@given(data=CONTENTS, again=st.booleans(), between=st.booleans())
@settings(max_examples=40)
def test_a_bound_is_never_less_than_what_is_made(writer: str, data: bytes, again: bool, between: bool) -> None:
    compression, written = WRITERS[writer]
    whole = written(data)
    if again and "snappy" not in writer:
        skip = SKIPPABLE if between and compression in (Compression.LZ4, Compression.ZSTD) else b""
        whole = skip + whole + skip + written(data[::-1])
    made = decompress(compression, whole)
    assert len(made) <= decompressed_bound(compression, whole) == decompressed_bound(compression, memoryview(whole))


@pytest.mark.parametrize(
    ("writer", "most"),
    [("none", 1.0), ("gzip", 1.0), ("snappy", 1.05), ("zstd", 1.05), ("lz4", 1.4), ("zstd, streamed", 2.0)],
)
def test_of_ordinary_data_the_bound_is_close(writer: str, most: float) -> None:
    compression, written = WRITERS[writer]
    assert decompressed_bound(compression, written(PROSE)) <= most * len(PROSE)


def test_an_lz4_block_makes_no_more_than_its_ratio_allows() -> None:
    tiny = lz4.frame.compress(b"abc" * 1000, block_size=7, store_size=False)
    assert 3000 <= decompressed_bound(Compression.LZ4, tiny) < 255 * len(tiny)


@pytest.mark.parametrize("compression", Compression, ids=lambda each: each.name)
@given(data=CONTENTS, cut=st.integers(0, 3000), change=st.tuples(st.integers(0, 3000), st.integers(1, 255)))
@examples(100)
def test_damaged_data_have_some_bound_and_what_is_read_all_the_same_has_a_right_one(
    compression: Compression, data: bytes, cut: int, change: tuple[int, int]
) -> None:
    damaged = bytearray(compress(compression, data))
    at, flip = change
    if damaged:
        damaged[at % len(damaged)] ^= flip
    for each in (damaged, damaged[:cut], damaged[cut:], damaged + damaged[:cut], data):
        bound = decompressed_bound(compression, each)
        assert bound >= 0
        with suppress(DecodeError):
            assert len(decompress(compression, each, limit=2**21)) <= bound


@pytest.mark.parametrize("number", [5, 6, 7, 8, -1])
def test_an_unknown_compression_makes_nothing(number: int) -> None:
    assert decompressed_bound(number, b"abc") == 0


@pytest.mark.parametrize("content", [0, 1, 1000, 2**17 - 1, 2**17 + 1, 2**32 - 1])
def test_a_content_size_that_lies_is_no_way_around_the_bound(content: int) -> None:
    """The bound trusts a content size, because data of another size are refused."""
    blocks = [(1, 2**17, b"x")]
    assert len(decompress(Compression.ZSTD, zstd_frame(blocks, 2**17))) == 2**17
    assert 2**17 <= decompressed_bound(Compression.ZSTD, zstd_frame(blocks, 2**17)) < 2**17 + 4096
    with pytest.raises(DecodeError, match="zstd data is damaged"):
        decompress(Compression.ZSTD, zstd_frame(blocks, content))
    unfinished = zstd_frame([*blocks, (0, 0, b"")], content)[:-3]
    with pytest.raises(DecodeError, match="zstd data is damaged"):
        decompress(Compression.ZSTD, unfinished)

    frame = lz4.frame.compress(bytes(2**17), store_size=True)
    lying = lz4_rechecked(frame[:6] + content.to_bytes(8, "little") + frame[14:], old=False)
    if content:
        with pytest.raises(DecodeError, match="lz4 data is damaged"):
            decompress(Compression.LZ4, lying)
    else:  # 0 stands for an unknown size
        assert len(decompress(Compression.LZ4, lying)) == 2**17 <= decompressed_bound(Compression.LZ4, lying)

    zipped = compress(Compression.GZIP, bytes(2**17))
    for lying in (zipped[:-4] + content.to_bytes(4, "little"), zipped + content.to_bytes(4, "little")):
        with pytest.raises(DecodeError, match="gzip data is damaged"):
            decompress(Compression.GZIP, lying)


@pytest.mark.parametrize(
    ("compression", "least", "ratio"),
    [
        (Compression.ZSTD, zstd_frame([(0, 0, b"")] * 2)[6:9], 2**17 / 3),
        (Compression.ZSTD, zstd_frame([(0, 0, b"")]), 2**17 / 3),
        (Compression.ZSTD, b"\x50\x2a\x4d\x18\0\0\0\0", 2**17 / 3),
        (Compression.LZ4, b"\1\0\0\x80x", 255),
        (Compression.LZ4, lz4.frame.compress(b"", store_size=False), 255),
        (Compression.LZ4, b"\x50\x2a\x4d\x18\0\0\0\0", 255),
        (Compression.SNAPPY, b"\0\0\0\3" + cramjam.snappy.compress_raw(b"x"), 22),
    ],
    ids=["zstd blocks", "zstd frames", "nothing", "lz4 blocks", "lz4 frames", "nothing of lz4", "snappy blocks"],
)
def test_of_very_many_blocks_only_the_first_are_looked_at(compression: Compression, least: bytes, ratio: float) -> None:
    begins = {
        Compression.ZSTD: zstd_frame([]),
        Compression.LZ4: lz4.frame.compress(b"", store_size=False)[:7],
        Compression.SNAPPY: compress(Compression.SNAPPY, b""),
    }[compression]
    if len(least) >= 8 and compression is not Compression.SNAPPY:
        begins = b""  # these are whole frames
    many = begins + least * 500_000
    bound = decompressed_bound(compression, many)
    assert bound == pytest.approx(ratio * len(many), rel=1e-5)


def test_blocks_without_content_count_for_the_time_that_they_take() -> None:
    for blocks in (0, 1, 1000):
        bound = decompressed_bound(Compression.ZSTD, zstd_frame([(0, 0, b"")] * blocks, 0))
        assert 1024 * blocks <= bound <= 1024 * (blocks + 2)


# --- the formats of other libraries


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_is_written_in_the_framing_of_xerial() -> None:
    data = compress(Compression.SNAPPY, TEXT)
    assert data[:16] == b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2
    assert int.from_bytes(data[16:20], "big") == len(data) - 20
    assert bytes(cramjam.snappy.decompress_raw(data[20:])) == TEXT


def test_snappy_as_java_writes_it_is_read() -> None:
    data = b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2
    for start in range(0, len(TEXT), 32 * 1024):
        block = bytes(cramjam.snappy.compress_raw(TEXT[start : start + 32 * 1024]))
        data += len(block).to_bytes(4, "big") + block
    assert decompress(Compression.SNAPPY, data) == TEXT
    with pytest.raises(DecodeError, match="over the limit"):
        decompress(Compression.SNAPPY, data, limit=len(TEXT) - 1)


def test_large_data_takes_several_blocks_of_snappy() -> None:
    data = TEXT * 30
    assert decompress(Compression.SNAPPY, compress(Compression.SNAPPY, data)) == data


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


@pytest.mark.parametrize("store_size", [False, True])
def test_the_header_checksum_of_lz4_is_made_wrong_and_right(store_size: bool) -> None:
    frame = lz4.frame.compress(TEXT, store_size=store_size)
    old = lz4_rechecked(frame, old=True)
    assert sum(a != b for a, b in zip(frame, old, strict=True)) == 1, "only the checksum differs"
    with pytest.raises(DecodeError, match="lz4 data is damaged"):
        decompress(Compression.LZ4, old)
    assert lz4_rechecked(old, old=False) == lz4_rechecked(frame, old=False) == frame


def test_the_old_header_checksum_is_that_of_kafkas_first_format() -> None:
    # The header of every frame that Kafka 0.8.2 and 0.9 wrote: independent blocks of 64 kB.
    frame = bytes.fromhex("04224d18 6040 82") + b"\0\0\0\0"
    assert lz4_rechecked(frame, old=True)[6] == 0x1A
    assert lz4_rechecked(lz4_rechecked(frame, old=True), old=False) == frame


@pytest.mark.parametrize("size", range(7))
def test_what_is_no_lz4_header_stays_as_it_is(size: int) -> None:
    header = lz4.frame.compress(TEXT)[:6]
    assert lz4_rechecked(header[:size], old=False) == header[:size]
    with pytest.raises(DecodeError):
        decompress(Compression.LZ4, lz4_rechecked(header[:size], old=False))


def test_compressions_have_names() -> None:
    assert Compression.named("zstd") is Compression.ZSTD
    assert Compression.named("none") is Compression.NONE
    with pytest.raises(ValueError, match="'brotli' is not one of none, gzip, snappy, lz4, zstd"):
        Compression.named("brotli")
