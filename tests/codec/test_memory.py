"""A few kilobytes that would become gigabytes: one limit bounds the memory of a batch, whatever its size on the wire.

The limit counts decompressed bytes, and the objects of records, headers and messages. A refused batch must not take
more memory before its refusal.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ottla.codec import kafka07, message_sets
from ottla.codec.compression import DECOMPRESSED_LIMIT, Compression, compress
from ottla.errors import DecodeError
from tests.codec.record_engines import RECORDS
from tests.codec.test_records import record_bytes, zigzag

LIMIT = 2**20
TWO = zigzag(2) + b"ab"
"""Bytes that exist in Python only as new objects."""
LEAST = record_bytes(key=zigzag(-1), value=zigzag(-1), headers=zigzag(0))
PAIR = record_bytes(key=TWO, value=TWO, headers=zigzag(0))


@pytest.fixture(params=list(RECORDS))
def module(request: pytest.FixtureRequest) -> Any:
    """`ottla.codec.records` in each engine."""
    return RECORDS[request.param]


def batch_in(module: Any, body: bytes, count: int, compression: Compression = Compression.NONE) -> Any:
    batch = module.parse_batch(module.BatchBuilder().build())
    batch.attributes, batch.count = compression, count
    batch.data = memoryview(bytes(module.HEADER_SIZE) + compress(compression, body))
    return batch


def with_headers(count: int, header: bytes) -> bytes:
    return record_bytes(key=zigzag(-1), value=zigzag(-1), headers=zigzag(count) + header * count)


def taken(work: Callable[[], Any]) -> tuple[int, int]:
    """The bytes that the result of ``work`` takes, and the peak during it.

    Memory of other threads and objects that are created once and kept count as well; so the smaller of two
    measurements counts.
    """

    def once() -> tuple[int, int]:
        tracemalloc.start()
        try:
            result = work()
            held = tracemalloc.get_traced_memory()
            del result
            return held
        finally:
            tracemalloc.stop()

    held, most = zip(*(once() for _ in range(2)), strict=True)
    return min(held), min(most)


def refused(work: Callable[[], Any]) -> DecodeError:
    with pytest.raises(DecodeError, match=f"would take more memory than the limit of {LIMIT} bytes") as caught:
        work()
    return caught.value


SHAPES: dict[str, Callable[[int], tuple[bytes, int]]] = {
    "records": lambda n: (LEAST * n, n),
    "records with keys and values": lambda n: (PAIR * n, n),
    "headers of one record": lambda n: (with_headers(n, b"\0\1"), 1),
    "headers with names and values": lambda n: (with_headers(n, TWO + TWO), 1),
    "records with headers": lambda n: (with_headers(1, TWO + TWO) * n, n),
    "a long name of wide characters": lambda n: (
        with_headers(1, zigzag(n + 4) + b"n" * n + "\U0001f9a6".encode() + zigzag(0)),
        1,
    ),
}


COMPRESSIONS = pytest.mark.parametrize(
    "compression", [Compression.NONE, pytest.param(Compression.ZSTD, marks=pytest.mark.deep)], ids=["none", "zstd"]
)


def most(fits: Callable[[int], bool]) -> int:
    """The largest number that fits."""
    low, high = 1, LIMIT
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@pytest.mark.slow
@COMPRESSIONS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_what_is_held_of_a_batch_is_no_more_than_its_limit(
    module: Any, shape: Callable[[int], tuple[bytes, int]], compression: Compression
) -> None:
    def opened(n: int) -> Any:
        return batch_in(module, *shape(n), compression)

    def fits(n: int) -> bool:
        try:
            opened(n).records(LIMIT)
        except DecodeError:
            return False
        return True

    largest, larger = opened(n := most(fits)), opened(n + 1)
    content = 0 if compression else len(largest.data)
    held, _ = taken(lambda: [(each, each.headers) for each in largest.records(LIMIT)])
    assert 0.2 * LIMIT < held < 2.1 * LIMIT + content  # a little more in Python than in C
    errors = [refused(lambda: larger.records(LIMIT)), refused(lambda: larger.columns(LIMIT))]
    assert {each.path for each in errors} == {"RecordBatch.records"}
    assert taken(lambda: refused(lambda: larger.records(LIMIT)))[1] < 4 * LIMIT + content


@COMPRESSIONS
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_what_a_batch_may_take_is_known_beforehand(
    module: Any, shape: Callable[[int], tuple[bytes, int]], compression: Compression
) -> None:
    """Opened as objects and as columns, all at the same time."""
    batch = batch_in(module, *shape(2_000 if module is RECORDS["python"] else 50_000), compression)

    def everything() -> object:
        records = batch.records()
        return records, list(records), module.read_columns([batch])

    held, _ = taken(everything)
    assert held < 2 * batch.memory_bound  # the memory of columns comes in powers of two, or is reused


def test_a_count_that_cannot_be_does_not_change_what_a_batch_may_take(module: Any) -> None:
    for count in (-1, -(2**31), 2**31 - 1):
        batch = batch_in(module, LEAST * 100, count, Compression.ZSTD)
        assert 700 < batch.memory_bound < 200_000
        with pytest.raises(DecodeError):
            batch.records()


@pytest.mark.parametrize("compression", message_sets.COMPRESSIONS)
def test_what_a_message_may_take_is_known_beforehand(compression: Compression) -> None:
    one = message_sets.Message(offset=0, magic=0, key=b"", value=b"")
    wrapped = message_sets.wrapper([one] * 1000, compression)

    def everything() -> object:
        records = wrapped.records()
        return records, list(records), wrapped.columns()

    held, _ = taken(everything)
    assert held < wrapped.memory_bound
    assert 26 <= one.memory_bound < 10_000


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_the_engines_have_the_same_limit(shape: Callable[[int], tuple[bytes, int]]) -> None:
    bounds = set()
    for module in RECORDS.values():

        def fits(n: int, module: Any = module) -> bool:
            try:
                batch_in(module, *shape(n), Compression.ZSTD).records(LIMIT)
            except DecodeError:
                return False
            return True

        bounds.add(most(fits))
    assert len(bounds) == 1


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(lambda: LEAST * (10 * LIMIT // 7), 10 * LIMIT // 7, id="records"),
        pytest.param(lambda: with_headers(5 * LIMIT, b"\0\1"), 1, id="headers"),
    ],
)
def test_a_bomb_of_a_few_kilobytes_takes_no_more_than_it_decompresses_to(
    module: Any, body: Callable[[], bytes], count: int
) -> None:
    limit = 20 * LIMIT
    bomb = batch_in(module, body(), count, Compression.ZSTD)
    assert len(bomb.data) < 4096

    def read() -> None:
        with pytest.raises(DecodeError, match="would take more memory than the limit"):
            bomb.records(limit)

    assert taken(read)[1] < 3 * limit


def test_a_batch_as_large_as_any_producer_makes_is_read(module: Any) -> None:
    count = 100_000
    batch = batch_in(module, with_headers(2, TWO + TWO) * count, count, Compression.LZ4)
    assert len(batch.records()) == count
    assert count * (96 + 2 * 176) < DECOMPRESSED_LIMIT / 2


def wrapper(count: int) -> message_sets.Message:
    one = message_sets.build_message(
        message_sets.Message(offset=300, magic=1, key=b"ab", value=b"cd", timestamp=10**12)
    )
    value = compress(Compression.GZIP, one * count)
    return message_sets.Message(offset=0, magic=1, attributes=Compression.GZIP, key=None, value=value)


def test_what_is_held_of_a_message_set_is_no_more_than_its_limit() -> None:
    count = LIMIT // (38 + message_sets.MESSAGE_MEMORY)
    whole, larger = wrapper(count), wrapper(count + 1)
    assert 0.3 * LIMIT < taken(lambda: (whole.unwrapped(LIMIT), list(whole.records(LIMIT))))[0] < LIMIT
    assert refused(lambda: larger.records(LIMIT)).path == f"Message.value[{count}]"


def test_what_is_held_of_messages_of_kafka_07_is_no_more_than_their_limit() -> None:
    def wrapped(count: int) -> kafka07.Message:
        inner = kafka07.build_messages([b"ab"] * count)
        data = kafka07.build_message(compress(Compression.GZIP, inner), attributes=Compression.GZIP)
        [message] = kafka07.read_messages(data)
        return message

    count = LIMIT // (len(kafka07.build_messages([b"ab"])) + kafka07.MESSAGE_MEMORY)
    held, _ = taken(lambda: wrapped(count).records(LIMIT))
    assert 0.3 * LIMIT < held < LIMIT
    assert refused(lambda: wrapped(count + 1).records(LIMIT)).path == f"Message.payload[{count}]"


def test_a_batch_that_is_expected_to_be_full_takes_what_it_may_have(module: Any) -> None:
    """Memory comes in powers of two: together with the header it must fit into the next one."""

    def expecting() -> Any:
        builder = module.BatchBuilder()
        builder.expect(2**19 - module.HEADER_SIZE)
        builder.append(1, b"k", b"v")
        return builder

    held, _ = taken(expecting)
    assert held < 2**19 + 2**12
    for odd in (-1, 0, 2**62):
        module.BatchBuilder().expect(odd)
