"""The loops over records in C and in Python agree: same values, same buffers, same bytes, same errors, and no leaks."""

import ctypes
import gc
import inspect
import os
import pickle
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.codec._loops import DamagedRecord
from ottla.codec.compression import Compression
from ottla.codec.partitioners import PARTITIONERS
from ottla.codec.records import HEADER_SIZE
from ottla.errors import DecodeError, EncodeError
from tests.codec.record_engines import LOOPS, RECORDS
from tests.codec.test_records import NOW, ONE, TWO, damaged_bodies, ints, record_bytes, record_lists, zigzag
from tests.examples import examples

if "c" not in LOOPS:
    pytest.skip("the extension is not built", allow_module_level=True)

C, PYTHON = LOOPS["c"], LOOPS["python"]


def outcome(work: Callable[[], Any]) -> Any:
    """The result of ``work``, or its error."""
    try:
        return work()
    except (DecodeError, EncodeError, ValueError, TypeError, IndexError, BufferError) as error:
        where = (getattr(error, "path", ""), getattr(error, "offset", -1))
        return type(error), str(error), *where


def same(work: Callable[[Any], Any]) -> Any:
    """The common result of both engines; ``work`` gets `ottla.codec.records` with each."""
    c, python = (outcome(partial(work, RECORDS[engine])) for engine in ("c", "python"))
    assert c == python
    return c


def values(records: Any) -> list[tuple[Any, ...]]:
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records]


def buffers(columns: Any) -> list[Any]:
    parts = [columns.offsets, columns.timestamps, *columns.keys.buffers, *columns.values.buffers]
    parts += [columns.headers.offsets, *columns.headers.names.buffers, *columns.headers.values.buffers]
    return [part if part is None else (part.format, part.readonly, part.tobytes()) for part in parts]


def batch_in(module: Any, body: bytes, count: int, changed: dict[str, int]) -> Any:
    batch = module.parse_batch(module.BatchBuilder().build())
    batch.data = memoryview(bytes(module.HEADER_SIZE) + body)
    batch.count = count
    for name, value in changed.items():
        setattr(batch, name, value)
    return batch


def parsed(module: Any, body: bytes, count: int) -> list[tuple[Any, ...]]:
    return values(batch_in(module, body, count, {}).records())


int64s = st.sampled_from([0, NOW, 2**63 - 1, -(2**63)])
changes = st.fixed_dictionaries(
    {"base_offset": int64s, "base_timestamp": int64s, "max_timestamp": int64s, "attributes": st.sampled_from([0, 8])}
)


@given(record_lists, changes)
def test_the_same_records_are_read(items: list[Any], changed: dict[str, int]) -> None:
    def read(module: Any) -> Any:
        builder = module.BatchBuilder()
        builder.extend(items)
        batch = batch_in(module, bytes(builder.body), len(items), changed)
        records = batch.records()
        middle = records[1:4]
        return (
            values(records),
            values(middle),
            values(records.between(changed["base_offset"] + 1, changed["base_offset"] + 3)),
            records.size,
            buffers(batch.columns()),
            buffers(module.Columns.of([middle, records, records[:0]])),
        )

    same(read)


LARGE = (NOW, None, bytes(40_000), ())
"""With this record a batch is so large that C releases the GIL."""


@given(
    st.lists(st.tuples(record_lists, st.sampled_from(Compression), st.booleans()), max_size=4),
    st.integers(-2, 40),
    st.booleans(),
)
def test_columns_that_are_read_in_one_pass_are_those_of_the_records(
    sets: list[tuple[list[Any], Compression, bool]], start: int, large: bool
) -> None:
    def read(module: Any) -> Any:
        batches, base = [], 0
        for items, compression, stamped in sets:
            builder = module.BatchBuilder()
            builder.extend([*items * 40, LARGE] if large else items)
            if builder.count:
                batch = module.parse_batch(builder.build(base_offset=base, compression=compression))
                batch.attributes |= 8 if stamped else 0
                base = batch.next_offset
                batches.append(batch)
        found = buffers(module.read_columns(batches, start))
        assert found == buffers(module.Columns.of([each.records().between(start, base) for each in batches]))
        return found

    same(read)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 5, 9, -1, 2**63 - 1, 2**63 - 2**33]) | st.integers(-3, 30),
            st.sampled_from([0, 3, -1, -(2**31), 2**31 - 1]),
            st.sampled_from([0, 0x10, 0x20, 0x08]),
            st.sampled_from([2, 2, 2, 1]),
        ),
        max_size=5,
    ),
    st.integers(-2, 20),
    st.booleans(),
    st.integers(0, 70),
)
@examples(300)
def test_the_same_batches_are_plain(
    heads: list[tuple[int, int, int, int]], offset: int, transactional: bool, missing: int
) -> None:
    def read(module: Any) -> Any:
        data = bytearray()
        for base, delta, attributes, magic in heads:
            batch = bytearray(module.build_batch([module.Record(0, NOW, None, b"v")]))
            batch[:8], batch[16], batch[22] = base.to_bytes(8, "big", signed=True), magic, attributes
            batch[23:27] = delta.to_bytes(4, "big", signed=True)
            data += batch
        found, end = module.read_plain(bytes(data[: len(data) - missing]), offset, transactional=transactional)
        return [(each.base_offset, each.next_offset, each.attributes, bytes(each.data)) for each in found], end

    same(read)


@given(damaged_bodies(), changes)
@examples(500)
@example((b"", 0), {})
@example((b"", 1), {})
@example((b"\0" * 7, 1), {})
@example((record_bytes() + b"\0", 1), {})
@example((record_bytes(timestamp_delta=zigzag(-1)) + record_bytes(key=zigzag(-2)), 2), {"base_timestamp": -(2**63)})
@example((record_bytes(key=zigzag(-2)) + record_bytes(offset_delta=zigzag(1)), 2), {"base_offset": 2**63 - 1})
def test_damage_is_told_in_the_same_words(damaged: tuple[bytes, int], changed: dict[str, int]) -> None:
    same(lambda module: values(batch_in(module, *damaged, changed).records()))
    same(lambda module: buffers(batch_in(module, *damaged, changed).columns()))


@given(damaged_bodies(), changes, st.integers(0, 2000))
@examples(500)
@example((record_bytes(offset_delta=zigzag(1)), 1), {"base_offset": 2**63 - 1}, 96)
@example((record_bytes(headers=zigzag(1) + zigzag(2) + "é".encode() + zigzag(-1)), 1), {}, 96 + 176 + 5)
@example((record_bytes(headers=zigzag(1) + zigzag(2) + "é".encode() + zigzag(-1)), 1), {}, 96 + 176 + 6)
@example((record_bytes(headers=zigzag(1) + zigzag(2) + "é".encode() + zigzag(-2)), 1), {}, 96 + 176 + 5)
def test_what_takes_too_much_memory_is_told_in_the_same_words(
    damaged: tuple[bytes, int], changed: dict[str, int], limit: int
) -> None:
    same(lambda module: values(batch_in(module, *damaged, changed).records(limit)))
    same(lambda module: buffers(batch_in(module, *damaged, changed).columns(limit)))


@given(st.binary(max_size=60), st.integers(-1, 9))
@examples(500)
def test_any_bytes_are_told_in_the_same_words(body: bytes, count: int) -> None:
    same(partial(parsed, body=body, count=count))


@given(damaged_bodies() | st.tuples(st.binary(max_size=20), st.integers(-1, 9)))
@examples(500)
@example((record_bytes() * 3, 2))
@example((b"\xfe\xff\xff\xff\x0f" + bytes(9), 1))
@example((b"\x80\x80\x80\x80\x80\x00", 1))
@example((b"\x80\x80\x80\x80\x10", 1))
@example((b"\x80\x80\x80\x80", 1))
@example((b"\x80\x00" * 3, 3))
@example((b"\x01", 1))
@example((b"\x02\x00", 1))
@example((b"\x04\x00\x80", 1))
@example((b"\x06\x00\x00\x80\x01", 1))
@example((b"\x1a\x00" + b"\xff" * 9 + b"\x01\x00\x01", 1))
def test_records_are_scanned_alike(damaged: tuple[bytes, int]) -> None:
    body, count = damaged
    for base in (0, 1_700_000_000_000, -1, 2**63 - 1, -(2**63)):
        found = same(partial(scanned, body=body, count=count, base=base))
        try:
            records = list(C.parse_records(body, count, 0, base))
        except (DamagedRecord, OverflowError):
            continue
        if [record.offset for record in records] != list(range(count)):
            assert found[0] == -1
            continue
        stamps = [record.timestamp for record in records]
        smallest = min((each for each in stamps if each != -1), default=-1)
        assert found == (len(body), smallest, max(-1, *stamps, -1), sum(record.key is None for record in records))


@given(damaged_bodies())
@example((b"\x01", 1))
@example((b"\x0c\x00\x00\x00\x08ab", 1))
def test_keys_are_scanned_alike(damaged: tuple[bytes, int]) -> None:
    body, count = damaged
    for partitioner in PARTITIONERS:
        for own, most, stride in ((0, 0, 1), (1, 3, 1), (-1, 2, 2), (2, 100, 0)):
            scan = partial(scanned_keys, body=body, count=count, given=(partitioner, 3, own, most, stride))
            end, keyless, misplaced, found = same(scan)
            try:
                records = list(C.parse_records(body, count, 0, 0))
            except (DamagedRecord, OverflowError):
                continue
            keys = [(row, each.key) for row, each in enumerate(records) if each.key is not None]
            places = [(row, key, PARTITIONERS[partitioner](key, 3)) for row, key in keys]
            elsewhere = [each for each in places if each[2] != own]
            assert (end, keyless, misplaced) == (len(body), len(records) - len(keys), len(elsewhere))
            assert found == elsewhere[:: max(stride, 1)][:most]


def scanned_keys(module: Any, body: bytes, count: int, given: tuple[Any, ...]) -> Any:
    return module.scan_keys(body, 0, count, *given)


@given(st.lists(st.tuples(st.integers(-1, 3), damaged_bodies()), max_size=4))
@example([(1, (b"", 0)), (1, (b"", -1)), (0, (record_bytes() + b"x", 1)), (1, (record_bytes() * 2, 2))])
def test_keys_of_several_batches_are_counted_as_those_of_each(several: list[tuple[int, tuple[bytes, int]]]) -> None:
    batches = [(own, uncompressed(count) + body) for own, (body, count) in several]
    for partitioner in PARTITIONERS:
        counted = same(partial(counted_keys, batches=[(0, b"too short"), *batches], given=(partitioner, 3)))
        scans = [(count, C.scan_keys(body, 0, count, partitioner, 3, own), body) for own, (body, count) in several]
        intact = [(count, *found[1:3]) for count, found, body in scans if found[0] == len(body)]
        assert counted == tuple(sum(each[figure] for each in intact) for figure in range(3))


def uncompressed(count: int) -> bytes:
    """The header of a batch with so many records; the other fields do not matter."""
    return bytes(57) + count.to_bytes(4, "big", signed=True)


def counted_keys(module: Any, batches: list[tuple[int, bytes]], given: tuple[Any, ...]) -> Any:
    return module.count_keys(batches, *given)


def scanned(module: Any, body: bytes, count: int, base: int) -> tuple[int, int, int, int]:
    found: tuple[int, int, int, int] = module.scan_records(body, count, base)
    return found


@pytest.mark.parametrize("engine", LOOPS)
def test_records_end_where_the_last_one_does(engine: str) -> None:
    records, scan = [record_bytes(offset_delta=zigzag(i)) for i in range(20_000)], LOOPS[engine].scan_records
    body = b"".join(records)
    assert scan(body, 20_000, 5)[0] == len(body)
    assert scan(body, 19_999, 5)[0] == len(body) - len(records[-1])
    assert scan(body[:-1], 20_000, 5) == (-1, -1, -1, 0)
    assert scan(memoryview(body), 0, 5) == (0, -1, -1, 0)


@pytest.mark.parametrize("engine", LOOPS)
@pytest.mark.parametrize(
    "damage",
    [
        {"value": zigzag(1000) + b"x"},
        {"value": zigzag(-2)},
        {"key": zigzag(-2)},
        {"headers": zigzag(-1)},
        {"headers": zigzag(1_000_000)},
        {"headers": zigzag(1) + zigzag(-1) + zigzag(-1)},
        {"headers": zigzag(1) + zigzag(1) + b"n" + zigzag(5) + b"v"},
        {"headers": zigzag(0) + b"junk"},
        {"offset_delta": zigzag(1)},
        {"offset_delta": zigzag(-1)},
    ],
    ids=str,
)
def test_a_record_that_is_damaged_inside_is_found_by_a_scan(engine: str, damage: dict[str, bytes]) -> None:
    scan = LOOPS[engine].scan_records
    behind = record_bytes(offset_delta=zigzag(1))
    assert scan(record_bytes() + behind, 2, 5)[0] > 0
    assert scan(record_bytes(**damage) + behind, 2, 5) == (-1, -1, -1, 0)


@pytest.mark.parametrize("field", ["length", "timestamp_delta", "offset_delta", "key", "value", "headers"])
@pytest.mark.parametrize(
    "number", [-(2**31), -2, -1, 0, 1, 2, 63, 64, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**64], ids=str
)
def test_any_number_anywhere_is_told_in_the_same_words(field: str, number: int) -> None:
    for body in (
        record_bytes(**{field: zigzag(number)}),
        record_bytes() + record_bytes(**{field: zigzag(number)}) + record_bytes(),
        record_bytes(**{field: zigzag(number) + b"k"}),
        record_bytes(headers=zigzag(1) + zigzag(number)),
        record_bytes(headers=zigzag(1) + zigzag(1) + b"n" + zigzag(number)),
        record_bytes(**{field: b"\x80" * 9 + b"\0"}),
        record_bytes(**{field: b"\x80" * 4 + b"\0"}),
    ):
        for count in (1, 3):
            same(partial(parsed, body=body, count=count))


@given(st.binary(max_size=8) | st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xe0\x9f\xbf")
@example(b"\xf0\x8f\xbf\xbf")
@example(b"\xc1\xbf")
@example(b"\xc2")
@example(b"\xf5\x80\x80\x80")
@examples(1000)
def test_the_same_names_are_utf_8(name: bytes) -> None:
    body = record_bytes(headers=zigzag(1) + zigzag(len(name)) + name + zigzag(-1))
    told = same(partial(parsed, body=body, count=1))
    assert (told[0] is DecodeError) == (not decodes(name))


def decodes(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.deep
def test_the_same_names_of_every_first_two_bytes_are_utf_8() -> None:
    for first in range(256):
        for second in range(256):
            for rest in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf", b"a"):
                name = bytes((first, second)) + rest
                body = record_bytes(headers=zigzag(1) + zigzag(len(name)) + name + zigzag(-1))
                try:
                    C.parse_records(body, 1, 0, 0)
                except DamagedRecord:
                    assert not decodes(name)
                else:
                    assert decodes(name)


anything = st.one_of(
    st.none(),
    st.binary(max_size=3),
    st.binary(max_size=3).map(bytearray),
    st.binary(max_size=3).map(lambda data: memoryview(data)),
    st.text(max_size=2),
    st.integers(-1, 3),
)
stamps = st.sampled_from([NOW, 0, -1, 2**63 - 1, -(2**63), 2**63, True, None, 1.0, "now"])
pairs = st.one_of(
    st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)),
    st.tuples(anything, anything),
    st.lists(anything, max_size=3),
    anything,
)
any_headers = st.one_of(st.lists(pairs, max_size=2), st.lists(pairs, max_size=2).map(tuple), anything, st.just({}))
any_records = st.one_of(
    st.tuples(stamps, anything, anything), st.tuples(stamps, anything, anything, any_headers), anything
)


@given(st.lists(any_records, max_size=4))
@example([(-(2**63), None, None), (True, None, None)])
@examples(500)
def test_the_same_is_appended_and_refused_in_the_same_words(records: list[Any]) -> None:
    def appended(module: Any) -> Any:
        builder = module.BatchBuilder()
        told = [outcome(partial(builder.append, *each)) for each in records if isinstance(each, tuple)]
        told += [outcome(lambda: builder.extend(records)), outcome(lambda: builder.extend(iter(records)))]
        told += [outcome(partial(builder.extend, [each])) for each in records]
        return told, builder.count, builder.base_timestamp, builder.max_timestamp, builder.build()

    same(appended)


@pytest.mark.parametrize("size", [0, 1, 50, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 8180, 8190, 8200, 2**20])
@pytest.mark.parametrize("far", [0, 1, 2**40, -(2**62)])
def test_a_record_of_any_size_is_appended_alike(size: int, far: int) -> None:
    def appended(module: Any) -> bytes:
        builder = module.BatchBuilder()
        builder.append(NOW, None, None)
        builder.append(NOW + far, b"k" * size, None)
        builder.append(NOW, None, b"v" * size)
        builder.append(NOW, b"k" * (size // 2), b"v" * (size // 2), (("n" * size, b"h" * size),))
        return bytes(builder.build())

    same(appended)


columns_of_keys = st.lists(st.none() | st.binary(max_size=9), max_size=20)


@given(columns_of_keys, st.integers(1, 100))
def test_a_column_of_keys_goes_where_each_key_goes(keys: list[bytes | None], partitions: int) -> None:
    for module in RECORDS.values():
        builder = module.BatchBuilder()
        builder.extend([(NOW, key, None) for key in keys])
        column = module.parse_batch(builder.build()).columns().keys
        for name, place in PARTITIONERS.items():
            expected = [-1 if key is None else place(key, partitions) for key in keys]
            for loops in LOOPS.values():
                places = loops.partition_column(name, column, partitions)
                assert (places.format, places.readonly, places.tolist()) == ("i", True, expected)


@given(st.binary(max_size=64), st.integers(1, 2**31 - 1))
def test_keys_are_hashed_alike(key: bytes, partitions: int) -> None:
    for name in ("murmur2", "fnv1a"):
        assert getattr(C, name)(key) == getattr(PYTHON, name)(key)
    for name in ("murmur2_partition", "crc32_partition", "fnv1a_partition", "fnv1a_reference_partition"):
        assert getattr(C, name)(key, partitions) == getattr(PYTHON, name)(key, partitions)


@pytest.mark.parametrize("partitions", [0, -1, 2**31, 2**70])
def test_partitions_that_cannot_be_are_refused(partitions: int) -> None:
    for loops in LOOPS.values():
        for name in ("murmur2_partition", "crc32_partition", "fnv1a_partition", "fnv1a_reference_partition"):
            with pytest.raises(ValueError, match=f"{partitions} partitions"):
                getattr(loops, name)(b"key", partitions)
        with pytest.raises(ValueError, match=f"{partitions} partitions"):
            loops.partition_column("murmur2", ONE, partitions)
        with pytest.raises(ValueError, match="'md5' is not one of murmur2, crc32"):
            loops.partition_column("md5", ONE, 3)
        with pytest.raises(EncodeError, match="offsets of the keys"):
            loops.partition_column("murmur2", type(ONE)(ints(0, 9), b"x"), 3)


@pytest.mark.parametrize(
    "odd", [None, (NOW, b"k"), (NOW, "k", b"v"), (2**63, b"", b""), (NOW, b"k", b"v", (("h", b""),))]
)
@pytest.mark.parametrize("at", [0, 1, 500, 998])
def test_a_list_of_plain_tuples_with_another_item_among_them_is_appended_alike(odd: Any, at: int) -> None:
    rows: list[Any] = [(NOW - size, b"k" * (size % 70), None if size % 3 else bytes(size)) for size in range(999)]
    rows[at] = odd if odd is not None else RECORDS["python"].Record(5, NOW, b"k", b"v", ())

    def appended(module: Any) -> Any:
        builder = module.BatchBuilder()
        builder.append(NOW, b"", b"")
        given = [module.Record(5, NOW, b"k", b"v", ()) if odd is None and row is rows[at] else row for row in rows]
        try:
            builder.extend(given)
        except EncodeError as error:
            return str(error), builder.count, builder.build()
        return builder.count, builder.max_timestamp, builder.build()

    same(appended)


def test_the_methods_in_c_tell_what_they_take() -> None:
    for c, python in ((C.Appender, PYTHON.Appender), (C.Records, PYTHON.Records), (C.Record, None)):
        names = [name for name in vars(python) if name[0] != "_" and callable(vars(python)[name])] if python else []
        for name in names:
            ours, theirs = inspect.signature(getattr(c, name)), inspect.signature(getattr(python, name))
            assert list(ours.parameters) == list(theirs.parameters), name
            assert getattr(c, name).__doc__
    assert list(inspect.signature(C.Record).parameters) == ["offset", "timestamp", "key", "value", "headers"]
    assert list(inspect.signature(C.parse_records).parameters) == list(
        inspect.signature(PYTHON.parse_records).parameters
    )


@pytest.mark.parametrize("engine", ["c", "python"])
def test_a_record_pickled_by_one_engine_is_read_by_the_other(engine: str) -> None:
    other = {"c": "python", "python": "c"}[engine]
    fields = (7, NOW, b"k", None, (("h", b"1"),))
    pickled = pickle.dumps(RECORDS[engine].Record(*fields))
    script = (
        "import pickle, sys; from ottla.codec.records import Record;"
        f"assert pickle.loads(sys.stdin.buffer.read()) == Record(*{fields})"
    )
    subprocess.run([sys.executable, "-c", script], input=pickled, env=os.environ | {"OTTLA_ENGINE": other}, check=True)


# --- no reference too many or too few


def test_tracemalloc_sees_what_c_allocates() -> None:
    records, kept = C.parse_records(record_bytes() * 20_000, 20_000, 0, 0), []
    tracemalloc.start()
    try:
        for _ in range(3):  # the memory may be new, or reused
            before = tracemalloc.get_traced_memory()[0]
            kept.append(C.gather([records]))
            grown = tracemalloc.get_traced_memory()[0] - before
            assert 20_000 * (8 + 8 + 4 + 4) < grown < 5 * 20_000 * (8 + 8 + 4 + 4)
            kept.clear()
            assert tracemalloc.get_traced_memory()[0] - before < 1000
    finally:
        tracemalloc.stop()


def everything(module: Any) -> None:
    """Run every path once, errors included, and keep no results."""
    builder = module.BatchBuilder()
    builder.extend([(NOW, b"k", b"v"), (NOW, None, None, (("n", b"h"), ("m", None)))])
    builder.append(NOW, bytearray(b"k"), memoryview(b"v"), [("n", bytearray(b"h"))])
    builder.extend_columns(array("q", [NOW, NOW]), TWO, TWO)
    for refused in ((NOW, 5, b""), (None, b"", b""), (NOW, b"", b"", 5), (NOW, b"", b"", (("\ud800", b""),)), (1,), 7):
        outcome(partial(builder.extend, [(NOW, b"k", b"v"), refused]))
    outcome(lambda: builder.extend_columns(b"", TWO, ONE))
    with builder.body:
        outcome(lambda: builder.append(NOW, b"", b""))
        builder.build_in_place()
    builder.build_in_place()
    [batch] = module.read_batches(builder.build())
    records, columns = batch.records(), batch.columns()
    again = module.BatchBuilder()
    again.extend(records)
    again.extend(list(records))
    again.extend([module.Record(0, NOW, b"", b"")])
    again.extend_columns(columns.timestamps, columns.keys, columns.values, columns.headers)
    outcome(lambda: records[99])
    outcome(lambda: records[::2])
    hash(records[0]), repr(records[1]), records[0] == records[1], records[0] == 5, values(records[1:].between(0, 9))
    buffers(columns)
    outcome(lambda: memoryview(columns.offsets).cast("B").cast("q")[99:])
    for body in (b"\0" * 7, record_bytes(key=zigzag(9)), record_bytes(headers=zigzag(1) + zigzag(1) + b"\xff\1")):
        outcome(partial(parsed, module, body, 1))
    outcome(lambda: module.parse_batch(b"short"))


@pytest.mark.parametrize("engine", RECORDS)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_whole_batch_is_what_build_makes_and_stays_what_it_is(engine: str, compression: Compression) -> None:
    def whole(sequence: int) -> Any:
        return builder.build_in_place(compression=compression, producer_id=7, producer_epoch=1, base_sequence=sequence)

    def built(sequence: int) -> bytes:
        return bytes(builder.build(compression=compression, producer_id=7, producer_epoch=1, base_sequence=sequence))

    builder = RECORDS[engine].BatchBuilder()
    builder.expect(100_000)
    builder.extend([(NOW, b"k", b"v" * 1000)] * 3)
    first = whole(0)
    second = whole(3)  # like another attempt, while the first is still being written
    assert (first, second) == (built(0), built(3))
    if compression == Compression.NONE:
        with pytest.raises(BufferError):
            builder.append(NOW, b"k", b"v")
    del first, second
    assert builder.append(NOW, b"k", b"v") == 3
    assert whole(4) == built(4)


@pytest.mark.parametrize("engine", RECORDS)
def test_a_whole_batch_without_records_is_its_header(engine: str) -> None:
    make = RECORDS[engine].BatchBuilder
    assert make().build_in_place() == make().build()
    assert make()._seal(bytes(HEADER_SIZE)) == bytes(HEADER_SIZE)
    with pytest.raises(ValueError, match="61 bytes, not 3"):
        make()._seal(b"abc")


@pytest.mark.parametrize("engine", RECORDS)
def test_nothing_is_kept_of_what_nobody_keeps(engine: str) -> None:
    times, shared = 500, (None, (), b"", b"k", "n", True, NOW)
    counts = []
    for _ in range(3):  # the first time fills caches
        for _ in range(times):
            everything(RECORDS[engine])
        gc.collect()
        counts.append([sys.getallocatedblocks(), *map(sys.getrefcount, shared)])
    for before, after in zip(counts[1], counts[2], strict=True):
        assert abs(after - before) < times / 2


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 tells what malloc has given out")
def test_nothing_is_kept_over_millions_of_records() -> None:
    times = 10_000
    for _ in range(100):  # fills caches
        everything(RECORDS["c"])
    before = in_use()
    for _ in range(times):
        everything(RECORDS["c"])
    after = in_use()
    assert after[0] - before[0] < times / 10 and after[1] - before[1] < times


class Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
    ]


def in_use() -> tuple[int, int]:
    """Python's blocks, and the bytes in use by `malloc`. Resident pages include memory that the allocator keeps."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    told = mallinfo()
    return sys.getallocatedblocks(), told.hblkhd + told.uordblks
