"""Segment files, read in pieces: whole, torn, with zeros at the end, and of every age."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.codec import kafka07
from ottla.codec.message_sets import Message, build_message
from ottla.codec.pieces import Pieces
from ottla.codec.records import BatchBuilder, Record, RecordBatch, read_batches
from ottla.codec.stored import segments
from ottla.codec.stored.segments import Segment, Segment07, TornTail
from ottla.errors import DecodeError

WIRE = Path(__file__).parents[1] / "wire"
LOGS = sorted(path for part in ("segments", "stored", "message_sets") for path in WIRE.glob(f"{part}/**/*.log"))
FILES_07 = sorted(WIRE.glob("kafka07/*/*.jafka"))
PLAIN = (WIRE / "segments" / "plain-0" / "00000000000000000000.log").read_bytes()


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def a_batch(value: bytes = b"value") -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, value)
    return builder.build()


def old(magic: int) -> bytes:
    return build_message(Message(offset=7, magic=magic, key=b"k", value=b"v"))


@pytest.mark.parametrize("size", [1, 100, 2**20])
def test_pieces_of_any_size_give_the_same_batches(size: int) -> None:
    segment = Segment(cut(PLAIN, size))
    found = [(segment.position, bytes(segment.data)) for _ in segment]
    assert b"".join(data for _, data in found) == PLAIN
    assert [at for at, _ in found] == [sum(len(data) for _, data in found[:n]) for n in range(len(found))]
    assert len(found) == len(list(read_batches(PLAIN)))
    assert segment.unused == 0


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_a_recorded_segment_of_any_age_is_batches_and_nothing_else(path: Path) -> None:
    segment = Segment(cut(path.read_bytes(), 4096))
    size = 0
    for batch in segment:
        assert batch.crc_matches
        size += len(segment.data)
    assert size == path.stat().st_size


def test_a_segment_that_outlived_upgrades_holds_every_format() -> None:
    data = old(0) + old(1) + a_batch()
    assert [type(batch) for batch in Segment([data])] == [Message, Message, RecordBatch]


@pytest.mark.parametrize("path", FILES_07, ids=lambda path: path.parent.name)
def test_a_file_of_kafka_07_numbers_its_messages_by_their_places(path: Path) -> None:
    data = path.read_bytes()
    segment = Segment07(cut(data, 10), base_offset=1000)
    messages = [batch for batch in segment if isinstance(batch, kafka07.Message)]
    assert [each.offset for each in messages] == [each.offset + 1000 for each in kafka07.read_messages(data)]
    assert messages[-1].next_offset == 1000 + len(data)


def _zeros(data: bytes) -> int:
    """The number of bytes at the beginning that could also be unused space."""
    return len(data) - len(data.lstrip(b"\0"))


@pytest.mark.parametrize("last", [a_batch(), old(0), old(1)], ids=["batch", "magic 0", "magic 1"])
def test_a_segment_cut_anywhere_within_a_batch_has_a_torn_tail(last: bytes) -> None:
    first = a_batch()
    for size in range(_zeros(last) + 1, len(last)):
        segment = Segment(cut(first + last[:size], 7))
        found: list[object] = []
        with pytest.raises(TornTail) as caught:
            found.extend(segment)
        assert len(found) == 1
        assert segment.position == len(first)
        assert len(first) <= caught.value.offset < len(first) + len(last)


def test_a_file_of_kafka_07_cut_anywhere_within_a_message_has_a_torn_tail() -> None:
    message = kafka07.build_message(b"payload")
    for size in range(_zeros(message) + 1, len(message)):
        with pytest.raises(TornTail):
            list(Segment07([message, message[:size]]))


@pytest.mark.parametrize("zeros", [1, 16, 17, 100_000])
def test_zeros_at_the_end_are_unused_room(zeros: int) -> None:
    segment = Segment(cut(PLAIN + bytes(zeros), 1000))
    assert sum(1 for _ in segment) == len(list(read_batches(PLAIN)))
    assert segment.unused == zeros


def test_zeros_before_something_else_are_damage_where_they_begin() -> None:
    with pytest.raises(DecodeError, match=f"length at byte {len(PLAIN) + 8}: 0 is not the length of a batch"):
        list(Segment(cut(PLAIN + bytes(100_000) + b"x", 1000)))


@pytest.mark.parametrize(
    ("at", "damage", "path"),
    [
        (8, b"\xff\xff\xff\xfe", "length"),
        (8, b"\0\0\0\0", "length"),
        (8, b"\0\0\0\x30", "length"),
        (8, (segments.LARGEST - 11).to_bytes(4, "big"), "length"),
        (8, b"\x7f\xff\xff\xff", "length"),
        (16, b"\3", "magic"),
        (16, b"\xff", "magic"),
    ],
)
def test_a_length_or_format_that_cannot_be_is_told_with_its_place(at: int, damage: bytes, path: str) -> None:
    first, second = a_batch(), bytearray(a_batch())
    second[at : at + len(damage)] = damage
    segment = Segment(cut(first + second + bytes(100), 50))
    with pytest.raises(DecodeError) as caught:
        list(segment)
    assert not isinstance(caught.value, TornTail)
    assert (caught.value.path, caught.value.offset) == (path, len(first) + at)


def test_an_old_message_that_does_not_parse_is_told_with_its_place() -> None:
    message = bytearray(old(0))
    message[18:22] = b"\0\0\1\0"  # the length of the key
    with pytest.raises(DecodeError) as caught:
        list(Segment([a_batch(), bytes(message)]))
    assert len(a_batch()) + 18 <= caught.value.offset < len(a_batch()) + len(message)


def test_pieces_hold_what_was_peeked_at_and_nothing_more() -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(10)

    pieces = Pieces(endless())
    assert (pieces.peek(3), pieces.take(15), pieces.peek(4)) == (bytes(3), bytes(15), bytes(4))
    assert (pieces.position, taken) == (15, 2)
    short = Pieces([b"", b"ab", b"", b"c"])
    assert (short.take(2), short.peek(5), short.take(5), short.take(1)) == (b"ab", b"c", b"c", b"")


def test_a_segment_keeps_no_batch_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    segment = Segment(a_batch(bytes(1000)) for _ in range(1000))
    for batch in segment:
        assert list(batch.records()) == [Record(0, 0, None, bytes(1000))]
        longest = max(longest, len(segment._pieces._held))
    assert longest < 3000
