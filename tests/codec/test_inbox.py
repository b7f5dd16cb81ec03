"""The bytes that a connection receives become the same frames, whatever pieces they come in, wherever they are put."""

import sys
import tracemalloc
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.frames import framed
from ottla.codec.inbox import LARGE, Blocks, Inbox
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError

SIZES = st.sampled_from([0, 1, 100, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])


@settings(max_examples=50)
@given(st.lists(SIZES, max_size=5), st.lists(st.integers(200, LARGE), min_size=1), st.booleans())
def test_frames_come_out_whole_in_any_pieces_fed_or_read_into_their_place(
    sizes: list[int], pieces: list[int], reads_into: bool
) -> None:
    sent = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, sent))
    inbox, at, turn = Inbox(), 0, 0
    got: list[Buffer] = []
    while at < len(stream):
        piece = stream[at : at + pieces[turn % len(pieces)]]
        turn += 1
        room = inbox.room
        if reads_into and room is not None:
            piece = piece[: len(room)]
            room[: len(piece)] = piece
            got += inbox.filled(len(piece))
        else:
            got += inbox.feed(piece)
        at += len(piece)
    assert [bytes(each) for each in got] == sent
    assert inbox.room is None


def test_only_the_rest_of_a_large_frame_has_a_place() -> None:
    inbox = Inbox()
    assert inbox.room is None
    assert list(inbox.feed(framed(bytes(LARGE - 1))[:-1])) == [] and inbox.room is None
    inbox = Inbox()
    assert list(inbox.feed(framed(b"ab") + framed(bytes(LARGE))[:10])) == [b"ab"]
    assert inbox.room is not None and len(inbox.room) == LARGE - 6
    [whole] = inbox.filled(LARGE - 6)
    assert whole == bytes(LARGE) and isinstance(whole, memoryview) and whole.readonly


@pytest.mark.parametrize("start", [b"HTTP/1.1 400", b"\xff\xff\xff\xff", (2**31 - 1).to_bytes(4, "big")])
def test_nothing_is_allocated_for_what_cannot_be_a_length(start: bytes) -> None:
    inbox = Inbox()
    with pytest.raises(RemoteProtocolError):
        list(inbox.feed(start))
    assert inbox.room is None


def frame_of(inbox: Inbox, size: int, fill: int) -> Buffer:
    """A frame of so many bytes of this value, received into its room."""
    assert list(inbox.feed(framed(bytes([fill]) * size)[:100])) == []
    whole: list[Buffer] = []
    while (room := inbox.room) is not None:
        room[:] = bytes([fill]) * len(room)
        whole += inbox.filled(len(room))
        del room
    return whole.pop()


def home(frame: Buffer) -> object:
    """The object that holds a frame's bytes."""
    return memoryview(frame).obj


def test_the_memory_of_a_frame_is_used_again_once_nobody_looks_at_it() -> None:
    inbox = Inbox()
    first = frame_of(inbox, 4 * LARGE, 1)
    home_of_first, part = home(first), first[10:20]
    second = frame_of(inbox, 4 * LARGE - 1, 2)
    assert home(second) is not home_of_first and bytes(part) == b"\x01" * 10, "a view of a part of it is in use"
    del first, part
    third = frame_of(inbox, 4 * LARGE + 1, 3)
    assert home(third) is home_of_first and bytes(third) == b"\x03" * (4 * LARGE + 1)
    assert bytes(second) == b"\x02" * (4 * LARGE - 1)


@pytest.mark.parametrize("behind", [1, 3])
def test_reading_behind_what_comes_uses_the_same_blocks_over_and_over(behind: int) -> None:
    blocks = Blocks()
    inbox, homes = Inbox(blocks=blocks), set[int]()
    looked_at = deque[Buffer](maxlen=behind)
    for number in range(20):
        looked_at.append(frame_of(inbox, 4 * LARGE, number))
        homes.add(id(home(looked_at[-1])))
    assert homes == {id(each) for each in blocks} and len(homes) == behind + 1


def test_a_clients_memory_is_given_back_when_there_is_no_hurry() -> None:
    inbox = Inbox()
    kept = home(frame_of(inbox, LARGE, 1))
    assert home(frame_of(inbox, LARGE, 2)) is kept
    held = sys.getrefcount(kept)
    assert list(inbox.feed(framed(b"nothing new"))) == [b"nothing new"] and sys.getrefcount(kept) == held - 1


def test_what_a_client_has_already_is_taken_as_soon_as_a_frame_begins() -> None:
    inbox = Inbox()
    kept = home(frame_of(inbox, 40 * LARGE, 1))
    assert list(inbox.feed(framed(bytes([2]) * (40 * LARGE))[:100])) == []
    room = inbox.room
    assert room is not None and room.obj is kept and len(room) == 40 * LARGE - 96, "the block does not grow"


def test_what_a_server_has_is_not_taken_for_an_announcement() -> None:
    inbox = Inbox(blocks=Blocks())
    kept = home(frame_of(inbox, 40 * LARGE, 1))
    assert list(inbox.feed(framed(bytes([2]) * (40 * LARGE))[:100])) == []
    room = inbox.room
    assert room is not None and room.obj is not kept and len(room) < 2 * LARGE


def test_connections_share_blocks_and_a_frame_under_way_has_one_to_itself() -> None:
    blocks = Blocks()
    first, second = Inbox(blocks=blocks), Inbox(blocks=blocks)
    kept = home(frame_of(first, LARGE, 1))
    assert list(second.feed(framed(bytes([2]) * LARGE)[:100])) == []
    room = second.room
    assert room is not None and room.obj is kept
    del room
    assert home(frame_of(first, LARGE, 3)) is not kept
    [whole] = second.feed(bytes([2]) * (LARGE - 96))
    assert whole == bytes([2]) * LARGE and home(whole) is kept


def test_no_more_than_16_mib_are_kept_however_many_answers_are_looked_at() -> None:
    blocks = Blocks()
    inbox = Inbox(blocks=blocks)
    frames = [frame_of(inbox, 6 * 2**20, number) for number in range(5)]
    assert [id(home(each)) for each in frames[:2]] == [id(each) for each in blocks]
    del frames
    larger = frame_of(inbox, 15 * 2**20, 6)
    assert [id(each) for each in blocks] == [id(home(larger))], "free blocks that are too small are dropped"
    frame_of(inbox, 16 * 2**20, 7)
    assert [id(each) for each in blocks] == [id(home(larger))], "too large to be kept"


def test_an_announced_length_allocates_only_as_its_bytes_come() -> None:
    inbox, size = Inbox(), 100 * 2**20
    assert list(inbox.feed(size.to_bytes(4, "big") + b"0123456789")) == []
    tracemalloc.start()
    try:
        came, got, before = 10, list[Buffer](), 0
        while not got:
            room = inbox.room
            assert room is not None and len(room) > 0
            allowed = max(LARGE, 4 * came) * 9 // 8 + 10_000
            assert inbox.needs <= allowed and tracemalloc.get_traced_memory()[0] <= allowed
            assert inbox.needs == before or came >= before, "it grows when it is full"
            before = inbox.needs
            room[:1] = room[-1:] = b"x"
            came += len(room)
            got = list(inbox.filled(len(room)))
            del room
    finally:
        tracemalloc.stop()
    assert came == len(got[0]) == size and bytes(memoryview(got[0])[:10]) == b"0123456789"


def test_a_frame_grows_also_while_somebody_looks_at_what_its_room_was() -> None:
    inbox, size = Inbox(), 3 * 2**20
    assert list(inbox.feed(size.to_bytes(4, "big") + b"abcd")) == []
    rooms: list[memoryview] = []
    while (room := inbox.room) is not None:
        room[:] = bytes([len(rooms) + 1]) * len(room)
        rooms.append(room)
        whole = list(inbox.filled(len(room)))
    got = bytes(whole[0])
    assert len(rooms) > 1 and len(got) == size and got[:4] == b"abcd" and got[4] == 1 and got[-1] == len(rooms)


def test_a_large_frame_that_has_just_begun_can_be_taken_out() -> None:
    inbox, frame = Inbox(), b"ab" * LARGE
    data = b"\0\0\0\5short" + len(frame).to_bytes(4, "big") + frame
    assert list(inbox.feed(data[:11])) == [b"short"] and inbox.begun is None
    assert list(inbox.feed(data[11:40])) == [] and inbox.begun == frame[:27]
    assert inbox.take_begun() == (len(frame), frame[:27])
    assert inbox.begun is None and inbox.needs == 0
    assert list(inbox.feed(b"\0\0\0\4next")) == [b"next"]
