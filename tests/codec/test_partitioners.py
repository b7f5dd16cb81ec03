"""The partitions of keys: golden vectors, and other implementations as oracles."""

import zlib

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec.partitioners import PARTITIONERS, Partitioner, fnv1a, murmur2

KEYS = [b"my_key_1", b"my_key_2", b"my_key_3", b"my_key_4"]


@pytest.mark.parametrize(
    ("name", "key", "partitions", "partition"),
    [
        ("murmur2", b"TT0124", 15, 10),
        ("crc32", b"TT0124", 15, 9),
        ("murmur2", b"100:48069", 12, 9),
        ("murmur2", b"mk-123456", 25, 5),
        ("crc32", b"mk-123456", 25, 3),
        ("murmur2", b"wu", 10, 0),
    ],
)
def test_golden_vectors(name: str, key: bytes, partitions: int, partition: int) -> None:
    assert PARTITIONERS[name](key, partitions) == partition


@pytest.mark.parametrize(
    ("name", "expected"), [("murmur2", [0, 4, 5, 2]), ("fnv1a", [1, 2, 3, 2]), ("fnv1a_reference", [1, 0, 5, 0])]
)
def test_the_same_keys_by_each_hash(name: str, expected: list[int]) -> None:
    assert [PARTITIONERS[name](key, 6) for key in KEYS] == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    # From UtilsTest.java.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_murmur2_of_kafka() -> None:
    assert murmur2(b"kafka") == 0xD067CF64


@given(st.binary(max_size=64))
def test_murmur2_is_aiokafkas(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) % 2**32


# From the FNV reference code.
@pytest.mark.parametrize(
    ("key", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"b", 0xE70C2DE5), (b"foobar", 0xBF9CF968)]
)
def test_fnv1a_is_the_references(key: bytes, expected: int) -> None:
    assert fnv1a(key) == expected


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_fnv1a_takes_the_remainder_as_go_does(key: bytes, partitions: int) -> None:
    signed = fnv1a(key) - (1 << 32 if fnv1a(key) >= 1 << 31 else 0)
    truncated = int(signed / partitions) * partitions  # exact: a float holds 32 bits
    assert PARTITIONERS["fnv1a"](key, partitions) == abs(signed - truncated)


def test_an_fnv1a_above_31_bits_counts_as_negative() -> None:
    assert fnv1a(b"a") >> 31
    assert PARTITIONERS["fnv1a"](b"a", 10) == (2**32 - 0xE40C292C) % 10 == 6
    assert PARTITIONERS["fnv1a_reference"](b"a", 10) == (0xE40C292C - 2**31) % 10 == 2


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_crc32_is_unsigned(key: bytes, partitions: int) -> None:
    assert PARTITIONERS["crc32"](key, partitions) == (zlib.crc32(key) & 0xFFFFFFFF) % partitions


@pytest.mark.parametrize("partitioner", PARTITIONERS.values(), ids=PARTITIONERS)
@given(key=st.binary(max_size=40), partitions=st.integers(1, 2**31 - 1))
def test_every_partition_exists(partitioner: Partitioner, key: bytes, partitions: int) -> None:
    assert 0 <= partitioner(key, partitions) < partitions


@pytest.mark.parametrize("partitioner", PARTITIONERS.values(), ids=PARTITIONERS)
@given(key=st.binary(max_size=40))
def test_any_kind_of_bytes_goes_where_bytes_go(partitioner: Partitioner, key: bytes) -> None:
    assert partitioner(bytearray(key), 7) == partitioner(memoryview(key), 7) == partitioner(key, 7)  # type: ignore[arg-type] # the proxy has views
