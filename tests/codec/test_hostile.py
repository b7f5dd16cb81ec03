"""Hostile bytes: they cost little memory and little time, and raise only the documented errors.

Rules:
- A parsed message takes less than 100 times the memory of its bytes, plus 1 MiB. These tests do not grant the MiB:
  inputs are small, so that a test of all messages takes seconds, and such an allowance would hide everything.
- No operation takes more than linear time: four times the input takes about four times as long. Time is processor time,
  the best of several attempts, and the threshold is far from both linear and quadratic.
- `test_engines.py` has false lengths, truncations and noise for every message; the fuzzer covers the rest.
"""

import functools
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from construct import Construct

from ottla.codec import kafka07, machine, message_sets, reference, trees
from ottla.codec.columns import Columns
from ottla.codec.compression import Compression, compress, decompress
from ottla.codec.frames import FrameReader
from ottla.codec.pieces import Pieces
from ottla.codec.records import BatchBuilder, RecordBatch, parse_batch, read_batches
from ottla.codec.stored import checkpoints
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError
from tests.codec import strategies
from tests.codec.engines import ENGINES

RATIO = 100
"""Bytes of memory for a byte of input."""
SLACK = 1 << 12
"""Bytes that a short input may take in addition."""
COLLECTED = 16
"""Bytes in front of an object that the garbage collector tracks."""
ELEMENTS = 300


def peak(work: Callable[[], Any]) -> int:
    """The peak memory of ``work`` and its result."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(work: Callable[[], Any]) -> float:
    """The shortest time of ``work``."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def assert_linear(work: Callable[[bytes], Any], piece: bytes, count: int) -> None:
    """Eight times as many pieces may not take thirty times as long (which would be 64 times, if it were quadratic)."""
    few, many = piece * count, piece * count * 8
    assert seconds(lambda: work(many)) < 30 * max(seconds(lambda: work(few)), 1e-4)


def refused(work: Callable[[], Any]) -> Callable[[], None]:
    """``work``, which must raise a `DecodeError`."""

    def wanted() -> None:
        with pytest.raises(DecodeError):
            work()

    return wanted


# --- memory of messages


def structs(node: trees.Structure) -> Iterator[trees.Structure]:
    """``node`` and all structs within."""
    yield node
    for inner in (*(each for _, each in node.members), *(each.node for each in node.tagged or ())):
        item = inner.item if isinstance(inner, trees.Sequence) else inner
        if isinstance(item, trees.Structure):
            yield from structs(item)


def test_no_struct_is_much_larger_than_its_least_bytes() -> None:
    """The costliest fill for an array: an object, its place in the array, and a dict for one unknown tag."""
    tags = sys.getsizeof({100: b""}) + COLLECTED
    for cls, version in strategies.EVERY_VERSION:
        _, *within = structs(strategies.tree(cls, version))  # a message has only one root
        for node in within:
            least = sum(trees.least_size(each) for _, each in node.members) + (node.tagged is not None) + node.null
            size = node.cls.__basicsize__ + COLLECTED + 2 * 8
            assert size < RATIO * max(1, least), node.cls
            assert node.tagged is None or size + tags < RATIO * (least + 2), node.cls


def crowded(node: trees.Structure) -> Iterator[Any]:
    """Values of ``node`` with as many elements as possible in one of the arrays that it holds, directly or not."""
    for name, member in (*node.members, *((each.name, each.node) for each in node.tagged or ())):
        for value in _crowds(member):
            made = present(node)
            setattr(made, name, value)
            yield made


def _crowds(member: Construct) -> Iterator[Any]:
    match member:
        case trees.Sequence(item=trees.Structure() as item):
            yield (present(item),) * ELEMENTS
            if item.tagged is not None:
                tagged = present(item)
                tagged.unknown_tags = {100: b""}
                yield (tagged,) * ELEMENTS
            yield from ((inner,) for inner in crowded(item))
        case trees.Sequence(item=item):
            yield (strategies.least(item),) * ELEMENTS
            yield (LARGER[type(item)],) * ELEMENTS
        case trees.Structure():
            yield from crowded(member)


LARGER: dict[type[Construct], Any] = {
    trees.Text: "é漢",
    trees.Blob: b"xy",
    trees.Integer: -100,
    trees.Id: strategies.example(trees.Id()),
    trees.Bool: True,
    trees.Float: 0.5,
}
"""Values that are short on the wire, and of which Python has no object ready."""


def present(node: trees.Structure) -> Any:
    """The smallest value that is not null."""
    return node.cls(**{name: strategies.least(each) for name, each in node.members})


QUICK = strategies.ENDS[::9]
CASES = [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.deep]) for case in strategies.ENDS]


@pytest.mark.parametrize(("cls", "version"), CASES, ids=strategies.named)
def test_a_message_takes_little_memory(cls: type[Any], version: int) -> None:
    node = strategies.tree(cls, version)
    written = machine.parser(cast(Any, cls), version)
    written.__code__ = written.__code__.replace(co_linetable=b"")  # otherwise `tracemalloc` takes long to find lines
    for name, engine in ENGINES.items():
        if name == "construct":
            continue
        engine.parse(cls, version, engine.build(strategies.least(node), version))  # prepares all that is kept
        for value in crowded(node):
            whole = engine.build(value, version)
            taken = peak(functools.partial(engine.parse, cls, version, whole))
            assert taken < RATIO * len(whole) + SLACK, f"{name} takes {taken} bytes for {len(whole)}"
            # To find the error, the machine in Python calls the reference, which reads all of it, too.
            taken = peak(refused(functools.partial(engine.parse, cls, version, whole[:-1])))
            assert taken < RATIO * len(whole) + SLACK, f"{name} takes {taken} bytes to refuse {len(whole)}"


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_a_message_takes_linear_time(engine: Any) -> None:
    cls, version = next(case for case in strategies.EVERY_VERSION if case[0].__name__ == "MetadataResponse")[0], 12

    def parse(tags: bytes) -> Any:
        count = len(tags) // 4
        head = reference.build(strategies.least(strategies.tree(cls, version)), version)[:-1]
        coded = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14))
        numbered = (bytes((n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, 1 + (n >> 14), 0)) for n in range(count))
        return engine.parse(cls, version, head + coded + b"".join(numbered))

    message, _ = parse(bytes(4 * 1000))
    assert len(message.unknown_tags) == 1000
    assert_linear(parse, bytes(4), 1000)


# --- record batches


def batch_of(body: bytes, count: int, attributes: int = 0) -> RecordBatch:
    """A batch around ``body``, which may be anything."""
    batch = bytearray(BatchBuilder().build() + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = attributes.to_bytes(2, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return parse_batch(batch)


LEAST_RECORD = bytes.fromhex("0c 00 00 00 01 01 00")
LEAST_HEADERS = bytes.fromhex("00 00 00 01 01") + b"\xd0\x0f" + bytes.fromhex("00 00") * 1000
MANY_HEADERS = bytes((len(LEAST_HEADERS) << 1 & 0x7F | 0x80, len(LEAST_HEADERS) >> 6)) + LEAST_HEADERS


@pytest.mark.parametrize("body", [LEAST_RECORD * 3000, MANY_HEADERS * 5], ids=["tiny records", "tiny headers"])
def test_records_take_little_memory(body: bytes) -> None:
    batch = batch_of(body, 3000 if body.startswith(LEAST_RECORD) else 5)
    assert peak(batch.records) < RATIO * len(body)
    assert peak(lambda: list(batch.records())) < RATIO * len(body)
    assert peak(lambda: [each.headers for each in batch.records()]) < RATIO * len(body)
    assert peak(batch.columns) < RATIO * len(body)
    damaged = batch_of(body + b"\1", batch.count)
    assert peak(refused(damaged.records)) < RATIO * len(body)


def test_records_take_linear_time() -> None:
    assert_linear(lambda body: batch_of(body, len(body) // 7).records(), LEAST_RECORD, 3000)
    assert_linear(lambda body: list(batch_of(body, len(body) // 7).records()), LEAST_RECORD, 3000)
    assert_linear(lambda body: Columns.of([batch_of(body, len(body) // 7).records()] * 2), LEAST_RECORD, 3000)
    assert_linear(lambda body: refused(batch_of(body + b"\1", len(body) // 7).records)(), LEAST_RECORD, 1000)
    assert_linear(lambda body: refused(batch_of(body + b"\1" * 7, len(body) // 7 + 1).records)(), LEAST_RECORD, 1000)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("80 80 80 80 80 00", id="a length of six bytes"),
        pytest.param("0e 00 ff ff ff ff ff ff ff ff ff 02", id="a timestamp of more than 64 bits"),
        pytest.param("16 00 00 80 80 80 80 10 01 01 00", id="an offset of more than 32 bits"),
        pytest.param("0c 00 00 00 ff ff ff ff 0f 01 00", id="a key of -2147483648 bytes"),
        pytest.param("0c 00 00 00 fe ff ff ff 0f 01 00", id="a key of 2147483647 bytes"),
        pytest.param("0c 00 00 00 03 01 00", id="a key of -2 bytes"),
        pytest.param("0c 00 00 00 01 01 01", id="headers of -1"),
        pytest.param("14 00 00 00 01 01 02 02 ff 01", id="a header's name that is not UTF-8"),
        pytest.param("01", id="a length of -1"),
        pytest.param("00", id="a length of 0"),
    ],
)
def test_records_that_lie(record: str) -> None:
    body = bytes.fromhex(record)
    with pytest.raises(DecodeError, match=r"records\[0\]"):
        batch_of(body.ljust(20, b"\0"), 1).records()


def test_a_batch_whose_crc_is_wrong() -> None:
    builder = BatchBuilder()
    builder.append(0, b"k", b"v")
    data = bytearray(builder.build())
    for at in range(17, len(data)):
        data[at] ^= 1
        with pytest.raises(ChecksumMismatch):
            list(read_batches(data))
        with pytest.raises(ChecksumMismatch):
            list(message_sets.read_record_set(data))
        data[at] ^= 1


# --- compressions


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_a_bomb_stops_at_the_limit(compression: Compression) -> None:
    bomb = compress(compression, bytes(20 << 20))
    limit = 1 << 20
    assert peak(refused(lambda: decompress(compression, bomb, limit))) < 3 * limit + len(bomb)
    assert peak(refused(lambda: batch_of(bomb, 5, compression).records(limit))) < 3 * limit + 3 * len(bomb)
    with pytest.raises(DecodeError, match="limit"):
        decompress(compression, bomb, limit)


@pytest.mark.parametrize("compression", message_sets.COMPRESSIONS)
def test_a_wrapper_within_a_wrapper_is_not_opened(compression: Compression) -> None:
    inner = message_sets.Message(offset=0, magic=1, key=None, value=b"v")
    for _ in range(3):
        inner = message_sets.wrapper([inner], compression)
    with pytest.raises(DecodeError, match="a wrapper within a wrapper"):
        inner.unwrapped()


def test_a_wrapper_of_kafka_07_within_a_wrapper_is_not_opened() -> None:
    data = kafka07.build_messages([b"v"])
    for _ in range(2):
        data = kafka07.build_message(compress(Compression.GZIP, data), attributes=Compression.GZIP)
    [wrapper] = kafka07.read_messages(data)
    with pytest.raises(DecodeError, match="a wrapper within a wrapper"):
        wrapper.records()


# --- message sets


def old_message(value: bytes) -> bytes:
    return message_sets.build_message(message_sets.Message(offset=0, magic=1, key=None, value=value))


def test_message_sets_take_linear_time() -> None:
    assert_linear(lambda data: list(message_sets.read_record_set(data)), old_message(b""), 500)
    assert_linear(lambda data: list(kafka07.read_messages(data)), kafka07.build_message(b""), 500)

    def unwrap(data: bytes) -> None:
        outer = message_sets.Message(
            offset=0, magic=1, attributes=Compression.GZIP, key=None, value=compress(Compression.GZIP, data)
        )
        outer.records()

    assert_linear(unwrap, old_message(b""), 300)


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 4, 9, 13, (1 << 31) - 1])
def test_message_sizes_that_lie(size: int) -> None:
    data = old_message(b"value")
    lie = data[:8] + size.to_bytes(4, "big", signed=True) + data[12:]
    for verify in (True, False):
        try:
            assert list(message_sets.read_record_set(lie, verify=verify)) == []  # torn: it ends too soon
        except DecodeError:
            assert size < len(data)
    sealed = lie[:12] + zlib.crc32(lie[16:]).to_bytes(4, "big") + lie[16:]
    with pytest.raises(DecodeError):
        message_sets.Message(
            offset=0, magic=1, attributes=Compression.GZIP, key=None, value=compress(Compression.GZIP, sealed)
        ).unwrapped()


# --- streams and files


def test_a_stream_of_tiny_frames_takes_linear_time() -> None:
    assert_linear(lambda data: list(FrameReader().feed(data)), b"\0\0\0\1x", 5000)


def test_a_large_part_of_a_file_in_many_pieces_takes_linear_time() -> None:
    def take(data: bytes) -> None:
        assert len(Pieces(data[at : at + 10] for at in range(0, len(data), 10)).take(len(data))) == len(data)

    assert_linear(take, bytes(10), 5000)


def test_a_checkpoint_with_a_count_that_python_would_not_read() -> None:
    for count in ("9" * 5000, "٣", "-1", "", "99999999999"):
        with pytest.raises(DecodeError, match="count"):
            list(checkpoints.parse_offsets(f"0\n{count}\nflights 0 4711\n".encode()))


# --- building


def test_what_is_built_of_hostile_values_is_refused() -> None:
    builder = BatchBuilder()
    for headers in ((("\ud800", b""),), ((b"name", b""),), (("name",),), 5):
        with pytest.raises(EncodeError):
            builder.append(0, b"", b"", headers)  # type: ignore[arg-type] # on purpose
    assert builder.count == 0
