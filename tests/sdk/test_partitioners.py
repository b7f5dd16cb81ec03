"""The partitions of records: known values of other clients, and the choice for records without a key."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec.partitioners import fnv1a
from ottla.errors import ConfigurationError, EncodeError
from ottla.sdk.produce.partitioners import CHOOSERS, KEYED, Choice, Chooser, java_int, java_string, named

UNALIGNED, LONG, SHORT = b"23456", b"this is another string with more length to it perhaps", b"hejsan"


def choice(key: bytes | None = None, value: bytes | None = b"", led: tuple[int, ...] = (0, 1, 2)) -> Choice:
    return Choice("t", key, value, (0, 1, 2), led, lambda partition: 0)


@pytest.mark.parametrize(
    ("name", "hashes"),
    [  # expected values from librdkafka's own test
        ("consistent", {b"": 0, UNALIGNED: 0xB1B451D7, LONG: 0xB0150DF7, SHORT: 0xD077037E}),
        ("consistent_random", {UNALIGNED: 0xB1B451D7, LONG: 0xB0150DF7, SHORT: 0xD077037E}),
        ("murmur2_random", {b"": 0x106E08D9, UNALIGNED: 0x058D780F, LONG: 0x4F7703DA, SHORT: 0x5EC19395}),
    ],
)
@pytest.mark.parametrize("partitions", [7, 17])
def test_keys_go_where_librdkafka_sends_them(name: str, hashes: dict[bytes, int], partitions: int) -> None:
    assert {key: KEYED[name].hash(key, partitions) for key in hashes} == {k: h % partitions for k, h in hashes.items()}


@pytest.mark.parametrize(("key", "partitions", "partition"), [(b"blah", 2, 0), (b"blah", 3, 1), (b"boop", 3, 2)])
def test_keys_go_where_kafka_go_sends_them(key: bytes, partitions: int, partition: int) -> None:
    assert KEYED["fnv1a"].hash(key, partitions) == partition


@pytest.mark.parametrize(
    ("name", "null", "empty"),
    [
        ("murmur2", False, True),
        ("murmur2_random", False, True),
        ("consistent", True, True),
        ("consistent_random", False, False),
        ("crc32", False, False),
        ("fnv1a_random", False, True),
    ],
)
def test_null_and_empty_keys_are_hashed_where_the_other_client_does(name: str, null: bool, empty: bool) -> None:
    assert (KEYED[name].hash_null, KEYED[name].hash_empty) == (null, empty)


def test_the_unsigned_fnv1a_differs_from_saramas_above_31_bits() -> None:
    assert fnv1a(b"a") >> 31
    assert KEYED["fnv1a_unsigned"].hash(b"a", 10) == 0xE40C292C % 10 == 0
    assert KEYED["fnv1a"].hash(b"a", 10) == 6


@pytest.mark.parametrize(
    ("text", "hash_code"),
    # Values of the JDK; the last two are the string with the smallest int as its hash, and a surrogate pair.
    [("", 0), ("a", 97), ("hello", 99162322), ("kafka", 101807910), ("polygenelubricants", -(2**31)), ("😀", 1772899)],
)
def test_strings_are_hashed_as_java_hashes_them(text: str, hash_code: int) -> None:
    expected = 0 if hash_code == -(2**31) else abs(hash_code)
    assert java_string(text.encode(), 2**31 - 1) == expected % (2**31 - 1)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 1000))
def test_an_int_is_its_own_hash(number: int, partitions: int) -> None:
    expected = 0 if number == -(2**31) else abs(number) % partitions
    assert java_int(number.to_bytes(4, "big", signed=True), partitions) == expected


def test_keys_that_cannot_be_meant_are_refused_with_what_would_do() -> None:
    with pytest.raises(EncodeError, match=r"8 bytes, and an int has 4: .*to_bytes\(4, 'big'\)"):
        java_int(bytes(8), 3)
    with pytest.raises(EncodeError, match="not UTF-8"):
        java_string(b"\xff", 3)
    with pytest.raises(ConfigurationError, match=r"'md5' is not one of murmur2.*least_bytes"):
        named("md5", random.Random(1))
    with pytest.raises(ConfigurationError, match=r"an object with choose\(\), not 5"):
        named(5, random.Random(1))  # type: ignore[arg-type] # on purpose


def test_round_robin_takes_one_after_the_other_and_leaves_out_who_has_no_leader() -> None:
    chooser = CHOOSERS["round_robin"](random.Random(1))
    assert Counter(chooser.choose(choice()) for _ in range(30)) == {0: 10, 1: 10, 2: 10}
    assert {chooser.choose(choice(led=(0, 2))) for _ in range(10)} == {0, 2}
    assert {chooser.choose(choice(led=())) for _ in range(10)} == {0, 1, 2}


def test_random_spreads() -> None:
    chooser = CHOOSERS["random"](random.Random(1))
    assert min(Counter(chooser.choose(choice()) for _ in range(300)).values()) > 70


def test_least_bytes_evens_out_what_partitions_were_given() -> None:
    chooser = CHOOSERS["least_bytes"](random.Random(1))
    assert [chooser.choose(choice(value=bytes(n))) for n in (100, 10, 10, 10, 70, 1)] == [0, 1, 2, 1, 2, 1]


def test_what_has_choose_is_a_chooser_and_a_function_hashes() -> None:
    class First:
        def choose(self, choice: Choice) -> int:
            return 0

    first = First()
    assert named(first, random.Random(1)) is first and isinstance(first, Chooser)
    assert named(lambda key, partitions: 1, random.Random(1)).hash(b"k", 3) == 1  # type: ignore[union-attr] # it has one
