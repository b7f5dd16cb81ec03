"""Records by the partitions of their keys, and by fingerprints: both engines give the same results."""

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import records
from ottla.codec.partitioners import PARTITIONERS
from tests.codec.record_engines import RECORDS
from tests.codec.test_record_engines import same, values
from tests.codec.test_records import NOW, record_lists

some_partitions = st.sampled_from([1, 2, 3, 12, 1000, 2**20])


def batch_of(module: Any, rows: list[Any]) -> Any:
    builder = module.BatchBuilder()
    builder.extend(rows)
    return module.parse_batch(builder.build()).records()


@pytest.mark.parametrize("engine", RECORDS)
@given(record_lists, st.sampled_from(list(PARTITIONERS)), some_partitions, st.integers(0, 2**20))
def test_every_record_is_with_those_whose_keys_go_where_its_own_does(
    engine: str, rows: list[Any], partitioner: str, partitions: int, keyless: int
) -> None:
    found = batch_of(RECORDS[engine], rows)
    place = PARTITIONERS[partitioner]
    expected: dict[int, list[Any]] = {}
    for record in values(found):
        expected.setdefault(keyless if record[2] is None else place(record[2], partitions), []).append(record)
    parts = found.split(partitioner, partitions, keyless)
    assert {partition: values(part) for partition, part in parts.items()} == expected
    assert list(parts) == sorted(expected)


@given(record_lists, st.integers(0, 300), st.integers(0, 3))
def test_records_are_found_by_what_may_be_wrong_with_them(rows: list[Any], size: int, most: int) -> None:
    def found(module: Any) -> list[list[int]]:
        records = batch_of(module, rows)
        return [records.without_key(most), records.outside(first, last, most), records.larger(size, most)]

    records = batch_of(RECORDS["python"], rows)
    times = sorted(each.timestamp for each in records) or [0]
    first, last = times[len(times) // 3], times[len(times) // 2]
    without, outside, larger = same(found)
    assert without == [n for n, each in enumerate(records) if each.key is None][:most]
    assert outside == [n for n, each in enumerate(records) if not first <= each.timestamp <= last][:most]
    plain = [n for n, each in enumerate(records) if len(each.key or b"") + len(each.value or b"") > size]
    assert set(plain) <= set(larger) or len(larger) == most


@given(record_lists, some_partitions)
def test_what_is_built_of_a_part_is_the_same_in_both_engines(rows: list[Any], partitions: int) -> None:
    def built(module: Any) -> list[Any]:
        parts = batch_of(module, rows).split("murmur2", partitions, 5)
        made = []
        for partition, part in parts.items():
            builder = module.BatchBuilder()
            builder.extend(part)
            again = module.parse_batch(builder.build())
            made.append((partition, bytes(again.data), values(part), values(part[1:]), part.size, len(part)))
        return made

    same(built)


@pytest.mark.parametrize("engine", RECORDS)
@pytest.mark.parametrize(
    ("partitioner", "partitions", "keyless", "what"),
    [
        ("md5", 3, 0, "partitioner 'md5' is not one of murmur2"),
        ("murmur2", 0, 0, "0 partitions"),
        ("murmur2", 2**31, 0, "2147483648 partitions"),
        ("murmur2", 3, -1, "0 partitions"),
        ("murmur2", 3, 2**31, "partitions"),
    ],
)
def test_what_cannot_be_is_refused(engine: str, partitioner: str, partitions: int, keyless: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        batch_of(RECORDS[engine], [(NOW, b"k", b"v", ())]).split(partitioner, partitions, keyless)


@pytest.mark.parametrize("engine", RECORDS)
def test_a_part_outlives_the_records_that_it_is_of(engine: str) -> None:
    parts = batch_of(RECORDS[engine], [(NOW, b"%d" % i, b"v" * i, ()) for i in range(100)]).split("crc32", 4, 0)
    again = {place: part.split("murmur2", 2, 0) for place, part in parts.items()}
    del parts
    gc.collect()
    held = sorted(int(each[2]) for part in again.values() for half in part.values() for each in values(half))
    assert held == list(range(100))


def test_an_empty_batch_has_no_parts() -> None:
    assert batch_of(records, []).split("murmur2", 3, 1) == {}


@given(record_lists, some_partitions)
def test_fingerprints_are_the_same_in_both_engines_and_in_every_part(rows: list[Any], partitions: int) -> None:
    def found(module: Any) -> list[Any]:
        whole = batch_of(module, rows)
        parts = whole.split("murmur2", partitions, 5).values()
        in_parts: dict[int, int] = {}
        for part in parts:
            in_parts.update(zip((record[0] for record in values(part)), part.fingerprints(), strict=True))
        fingerprints: list[int] = whole.fingerprints()
        assert fingerprints == [in_parts[offset] for offset in range(len(rows))]
        return fingerprints

    same(found)


@pytest.mark.parametrize("engine", RECORDS)
def test_records_that_differ_in_anything_have_other_fingerprints(engine: str) -> None:
    rows: list[Any] = [
        (NOW, b"key", b"value", ()),
        (NOW + 1, b"key", b"value", ()),
        (NOW, b"kez", b"value", ()),
        (NOW, b"keyv", b"alue", ()),
        (NOW, None, b"keyvalue", ()),
        (NOW, b"", b"keyvalue", ()),
        (NOW, b"keyvalue", None, ()),
        (NOW, b"key", b"value\0", ()),
        (NOW, b"key", b"12345678value", ()),
        (NOW, b"key", b"value12345678", ()),
        (NOW, b"key", b"value", (("n", None),)),
        (NOW, b"key", b"value", (("n", b""),)),
        (NOW, b"key", b"value", (("n", b"x"),)),
        (NOW, b"key", b"value", (("\u00e9", b"x"),)),
        (NOW, b"key", b"value", (("n", b"x"), ("n", b"x"))),
    ]
    assert len(set(batch_of(RECORDS[engine], rows).fingerprints())) == len(rows)
    many = batch_of(RECORDS[engine], [(NOW + at // 1000, None, b"%d" % (at % 1000), ()) for at in range(5_000)])
    assert len(set(many.fingerprints())) == 5_000
    assert len(set(batch_of(RECORDS[engine], rows[:1] * 2).fingerprints())) == 1, "the offset does not count"


@pytest.mark.parametrize("engine", RECORDS)
def test_other_stamps_count_instead_of_timestamps(engine: str) -> None:
    now, later = (batch_of(RECORDS[engine], [(at, b"key", b"value", ()) for at in (time, time)]) for time in (1, NOW))
    assert now.fingerprints() != later.fingerprints() == now.fingerprints([NOW, NOW])
    assert now.fingerprints([-1, 7]) == later.fingerprints([-1, 7])
    assert len(set(now.fingerprints([-(2**63), 2**63 - 1]))) == 2
