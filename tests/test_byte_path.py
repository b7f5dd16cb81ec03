"""How the listener moves bytes: it reads them into their place, writes them from theirs, and releases the memory."""

import errno
import os
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.brokerlite.storage.disk import FileSystem
from ottla.codec.frames import framed
from ottla.codec.inbox import LARGE
from ottla.codec.wire import Buffer
from ottla.serve import AcceptedConnection, PendingAnswer
from ottla.serve.memory import Memory
from tests.pairs import listening, peer
from tests.serving import LIMITS, Desk, closed, received, until
from tests.steps import no_step_holds_the_loop  # noqa: F401 # applies to each test here

MIB = 2**20
ROOMY = replace(LIMITS, max_frame=100 * MIB)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


class Keeper(Desk):
    """Keeps the frames as it gets them, without a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Buffer] = []
        self.answers: list[PendingAnswer] = []

    def request(self, connection: AcceptedConnection, frame: Buffer, answer: PendingAnswer) -> None:
        self.frames.append(frame)
        self.answers.append(answer)


def has(desk: Keeper, requests: int) -> bool:
    return len(desk.frames) >= requests


def is_free(memory: bytearray) -> bool:
    """Whether no view of the memory exists."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True


# -- requests


async def test_a_large_request_is_a_view_whose_memory_is_used_again_when_it_is_let_go_of(clock: MockClock) -> None:
    desk = Keeper()
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream:
        homes: list[int] = []
        for number in range(4):
            await stream.send_all(framed(bytes([number]) * MIB))
            await until(lambda: desk.frames)
            frame = desk.frames.pop()
            assert isinstance(frame, memoryview) and frame.readonly and frame == bytes([number]) * MIB
            homes.append(id(frame.obj))
            del frame
            desk.answers.pop().nothing()
        assert len(set(homes)) == 1


async def test_the_memory_of_a_request_that_is_looked_at_is_not_used_for_another(clock: MockClock) -> None:
    desk = Keeper()
    async with listening(desk, ROOMY) as (_, place), peer(place) as first, peer(place) as second:
        for number, stream in enumerate((first, second, first)):
            await stream.send_all(framed(bytes([number]) * MIB))
            await until(partial(has, desk, number + 1))
        assert [bytes(each) for each in desk.frames] == [bytes([number]) * MIB for number in range(3)]


async def test_requests_of_many_connections_do_not_mix_however_they_are_torn(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, max_connections=20, pipeline=1)
    async with listening(desk, limits) as (_, place), trio.open_nursery() as nursery:

        async def send(number: int) -> None:
            stream = place.connect()
            data = b"".join(framed(bytes([number]) * size) for size in (10, LARGE, 3, 3 * LARGE, 1000))
            for at in range(0, len(data), 50_000):
                await stream.send_all(data[at : at + 50_000])
                await trio.lowlevel.checkpoint()
            done.append(stream)

        done: list[trio.SocketStream] = []
        for number in range(10):
            nursery.start_soon(send, number)

        for answered in range(50):
            await until(partial(has, desk, answered + 1))
            desk.answers[answered].nothing()
        sizes: dict[int, list[int]] = {}
        for frame in desk.frames:
            data = bytes(frame)
            assert data == data[:1] * len(data)
            sizes.setdefault(data[0], []).append(len(data))
        assert sizes == {number: [10, LARGE, 3, 3 * LARGE, 1000] for number in range(10)}
        for stream in done:
            await stream.aclose()


async def test_a_flood_of_small_requests_leaves_others_their_turn(clock: MockClock) -> None:
    def work(frame: bytes, answer: PendingAnswer) -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass
        answer.nothing()

    desk = Desk(work)
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"x") * 200)  # fails by `no_step_holds_the_loop` in a single step
        await until(lambda: len(desk.asked) == 200)


# -- answers


async def test_the_parts_of_an_answer_are_written_from_where_they_lie_and_then_let_go_of(clock: MockClock) -> None:
    memory = bytearray(b"x" * (8 * MIB))
    desk = Desk(lambda frame, answer: answer.send(len(memory).to_bytes(4, "big"), memoryview(memory)))
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"much"))
        await until(lambda: desk.places)
        assert not is_free(memory), "the listener must not copy it"
        assert await received(stream, 4 + 8 * MIB) == framed(bytes(memory))
        await until(lambda: is_free(memory))
        assert desk.places, "the service may keep the `Answer`, which holds no memory any more"


async def test_an_answer_may_have_more_parts_than_the_system_takes_at_once(clock: MockClock) -> None:
    parts = [bytes([number % 251]) for number in range(5000)]
    desk = Desk(lambda frame, answer: answer.send((5000).to_bytes(4, "big"), b"", *parts, b""))
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"many"))
        assert await received(stream, 5004) == framed(b"".join(parts))


async def test_what_was_not_taken_at_once_goes_on_where_it_stopped(clock: MockClock) -> None:
    whole = b"".join(number.to_bytes(4, "big") for number in range(2 * MIB))
    desk = Desk(lambda frame, answer: answer.send(*(whole[at : at + 100_003] for at in range(0, len(whole), 100_003))))
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        assert await received(stream, 2 * len(whole)) == 2 * whole


async def test_what_lies_in_files_goes_from_there_between_what_lies_in_memory(clock: MockClock, tmp_path: Path) -> None:
    """An answer from several files, of which one is empty; it is more than the socket takes at once."""
    disk, sizes = FileSystem(), (3 * MIB, 1, 0, 2 * MIB + 7)
    contents = [os.urandom(size) for size in sizes]
    for i, content in enumerate(contents):
        disk.write_file(tmp_path / str(i), b"before" + content + b"behind")
    whole = b"".join(b"memory" + content for content in contents) + b"the end"

    def answer(frame: bytes, answer: PendingAnswer) -> None:
        ranges = [disk.range(tmp_path / str(i), size, 6) for i, size in enumerate(sizes)]
        answer.send(len(whole).to_bytes(4, "big"), *chain(*((b"mem", b"ory", each) for each in ranges)), b"the end")

    async with listening(Desk(answer), ROOMY) as (_, place), peer(place) as stream:
        for _ in range(3):
            await stream.send_all(framed(b"much"))
            assert await received(stream, 4 + len(whole)) == framed(whole)


async def test_a_file_that_cannot_be_sent_ends_its_connection_with_a_line_in_the_log(
    clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FileSystem()
    disk.write_file(tmp_path / "file", bytes(10))

    def answer(frame: bytes, answer: PendingAnswer) -> None:
        one = disk.range(tmp_path / "file", 10, 0)
        disk.truncate(tmp_path / "file", 5)
        answer.send((10).to_bytes(4, "big"), one)

    async with listening(Desk(answer)) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"what is not there"))
        assert await received(stream, 9) == (10).to_bytes(4, "big") + bytes(5)
        await closed(stream)
    assert "a response cannot be read: the file is shorter than it was" in caplog.text


async def test_a_file_system_that_sends_nothing_is_read_from(
    clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sends_nothing(*_: object) -> int:
        raise OSError(errno.EINVAL, "not on this file system")

    monkeypatch.setattr(os, "sendfile", sends_nothing)
    disk, content = FileSystem(), os.urandom(5 * MIB)
    disk.write_file(tmp_path / "file", content)
    desk = Desk(lambda frame, answer: answer.send(_size(content), disk.range(tmp_path / "file", len(content), 0)))
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"much"))
        assert await received(stream, 4 + len(content)) == framed(content)


async def test_a_connection_that_ended_holds_no_file(clock: MockClock, tmp_path: Path) -> None:
    disk = FileSystem()
    disk.write_file(tmp_path / "file", bytes(50 * MIB))
    desk = Desk(lambda frame, answer: answer.send(disk.range(tmp_path / "file", 50 * MIB, 0)))
    async with listening(desk, ROOMY) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(framed(b"much"))
            await until(lambda: desk.places)
            assert len(disk._ranges) == 1
        await until(lambda: desk.left)
        assert not disk._ranges


def _size(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big")


async def test_a_peer_that_reads_slowly_but_steadily_is_never_cut_off(clock: MockClock) -> None:
    size = 16 * MIB
    desk = Desk(lambda frame, answer: answer.send(bytes(size)))
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"much"))
        start = trio.current_time()
        for _ in range(32):
            await trio.sleep(LIMITS.write / 2)
            await received(stream, MIB // 2)
        assert trio.current_time() - start == 16 * LIMITS.write


async def test_a_peer_that_stops_reading_in_the_middle_is_cut_off(clock: MockClock) -> None:
    much = bytes(50_000_000)
    desk = Desk(lambda frame, answer: answer.send(much))
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"much"))
        await received(stream, 5_000_000)
        start = trio.current_time()
        await until(lambda: desk.left)
        # In that time the writer checks ten times whether the peer has taken any bytes.
        assert LIMITS.write <= trio.current_time() - start <= 1.2 * LIMITS.write


async def test_an_answer_to_a_peer_that_is_gone_is_let_go_of_and_counts_for_nothing(clock: MockClock) -> None:
    desk = Keeper()
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(framed(b"a") + framed(b"b"))
            await until(partial(has, desk, 2))
            desk.answers[1].send(bytes(MIB))
            place.reset(stream)
        await until(lambda: desk.left)
        memory = bytearray(MIB)
        desk.answers[0].send(memoryview(memory))
        assert is_free(memory)
        assert desk.left[0]._shared.unsent == 0


# -- bounds of all connections together


def test_a_frame_grows_as_long_as_as_much_again_is_left_for_others() -> None:
    memory, came = Memory(100), list[str]()
    for name, size in (("a", 40), ("a", 50), ("b", 25), ("c", 12)):
        memory.take(name, size, partial(came.append, name))
        assert memory.has(name) == size
    assert memory.used == 87 and came == [], "memory is available at once, so no callback is needed"
    memory.take("d", 7, partial(came.append, "d"))
    assert came == ["d"] and memory.used == 87, "the first to wait is served beyond the bound"
    memory.take("b", 26, partial(came.append, "b"))
    memory.take("e", 7, partial(came.append, "e"))
    memory.take("f", 6, partial(came.append, "f"))
    assert (memory.has("b"), memory.has("e"), memory.has("f")) == (25, 0, 6) and memory.is_wanted
    memory.give("c")
    assert came == ["d", "e"] and memory.has("b") == 25, "a smaller request may overtake"
    memory.give("d")
    assert came == ["d", "e", "b"] and memory.has("b") == 26 and not memory.is_wanted
    for name in "abef":
        memory.give(name)
    assert memory.used == 0


def test_one_that_gives_up_waits_no_more() -> None:
    memory, came = Memory(10), list[str]()
    for name in "abc":
        memory.take(name, 10, partial(came.append, name))
    assert came == ["a"]
    memory.give("b")
    memory.give("a")
    assert came == ["a", "c"] and memory.used == 0 and not memory.is_wanted
    memory.give("b")
    memory.give("c")
    assert memory.used == 0


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 60)), max_size=60))
def test_what_all_have_is_bounded_and_one_can_always_go_on(steps: list[tuple[int, int]]) -> None:
    memory, wanted = Memory(100), dict[int, int]()
    for holder, more in steps:
        if memory.has(holder) < wanted.get(holder, 0):
            continue  # it waits for memory
        if more:
            wanted[holder] = min(memory.has(holder) + more, 80)
            memory.take(holder, wanted[holder], lambda: None)
        else:
            wanted.pop(holder, None)
            memory.give(holder)
        assert sum(map(memory.has, wanted)) <= 100 + 80
        assert not wanted or any(memory.has(each) == size for each, size in wanted.items())
    for holder in wanted:
        memory.give(holder)
    assert memory.used == 0 and not memory.is_wanted


async def test_answers_that_others_do_not_take_hold_up_only_those_with_more_than_their_share(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_unsent=20 * MIB, unsent=1000 * MIB, write=10_000.0)
    large = bytes(30 * MIB)  # kept alive: Python's debug allocator would overwrite it, 30 ms in one step
    async with listening(desk, limits) as (_, place), peer(place) as greedy, peer(place) as modest:
        await until(lambda: len(desk.connections) == 2)
        await greedy.send_all(framed(b"1"))
        await until(lambda: desk.answers)
        desk.answers.pop().send(large)
        await greedy.send_all(framed(b"2"))
        await modest.send_all(framed(b"3"))
        await until(lambda: desk.answers)
        await trio.sleep(1)
        assert [bytes(each) for each in desk.frames] == [b"1", b"3"], "the greedy peer is not read"
        desk.answers.pop().send(framed(b"taken"))
        assert await received(modest, 9) == framed(b"taken")
        await received(greedy, len(large))
        await until(lambda: len(desk.frames) == 3)


def taken_up(desk: Desk) -> int:
    """The memory of all large requests that are still being read."""
    inboxes = [connection._receiver._inbox for connection in desk.connections if connection not in desk.left]
    return sum(len(inbox._memory or b"") for inbox in inboxes)


async def test_peers_that_announce_much_and_trickle_it_keep_nobody_waiting(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=16 * MIB, max_connections=101)
    async with listening(desk, limits) as (_, place), AsyncExitStack() as stack, peer(place) as honest:
        peers = [await stack.enter_async_context(peer(place)) for _ in range(100)]
        for each in peers:
            await each.send_all((100 * MIB).to_bytes(4, "big") + b"start")
        await until(lambda: desk.connections and desk.connections[0]._shared.frames.used >= 100 * LARGE)
        for number in range(5):
            for each in peers:
                await each.send_all(b"x")
            await trio.sleep(limits.write / 2)
            start = trio.current_time()
            await honest.send_all(framed(bytes(MIB)))
            await until(partial(has, desk, number + 1))
            assert trio.current_time() - start < 0.1
            desk.answers[number].nothing()
            assert taken_up(desk) <= 16 * MIB
        assert not desk.left, "slow peers that make progress stay connected"


async def test_large_requests_that_stop_half_way_leave_room_for_others_and_are_all_read_when_they_go_on(
    clock: MockClock,
) -> None:
    desk, go_on = Keeper(), trio.Event()
    limits = replace(ROOMY, all_frames=16 * MIB, max_connections=10, write=1000.0)
    large = framed(bytes(12 * MIB))

    async def send(stream: trio.SocketStream) -> None:
        await stream.send_all(large[:-1])
        await go_on.wait()
        await stream.send_all(large[-1:])

    async with listening(desk, limits) as (_, place), AsyncExitStack() as stack, peer(place) as honest:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(send, await stack.enter_async_context(peer(place)))
            await trio.sleep(1)
            assert 16 * MIB <= taken_up(desk) <= (16 + 13) * MIB
            await honest.send_all(framed(bytes(MIB // 4)))
            await until(partial(has, desk, 1))
            go_on.set()
            await until(partial(has, desk, 6))
        assert [len(each) for each in desk.frames] == [MIB // 4, *5 * [12 * MIB]]
        assert desk.connections[0]._shared.frames.used == 0


async def test_one_that_resets_while_it_waits_for_memory_is_noticed(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB)
    large = framed(bytes(4 * MIB))
    async with listening(desk, limits) as (_, place), peer(place) as first:
        await first.send_all(large[:-1])
        async with peer(place) as second, trio.open_nursery() as nursery:
            nursery.start_soon(second.send_all, large)
            await until(lambda: desk.connections[0]._shared.frames.is_wanted)
            nursery.cancel_scope.cancel()
            place.reset(second)
        await trio.sleep(1)
        await until(lambda: desk.left)
        assert not desk.connections[0]._shared.frames.is_wanted


async def test_a_large_request_that_does_not_go_on_is_given_up_for_one_that_waits(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB, idle=1000.0)
    async with listening(desk, limits) as (_, place), peer(place) as stuck, peer(place) as other:
        large = framed(bytes(2 * MIB))
        await stuck.send_all(large[:-1])
        await trio.sleep(5 * limits.write)
        assert not desk.left, "it may stay idle while no other request needs the memory"
        await trio.sleep(limits.write / 4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.send_all, large)
            assert await closed(stuck) <= limits.write
            await until(lambda: len(desk.frames) == 1)


@pytest.mark.parametrize(("piece", "stays"), [(1, False), (MIB // 8, True)])
async def test_a_large_request_that_goes_on_too_slowly_is_given_up_for_one_that_waits(
    piece: int, stays: bool, clock: MockClock
) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB)
    async with listening(desk, limits) as (_, place), peer(place) as slow, peer(place) as other:
        large = framed(bytes(2 * MIB))
        await slow.send_all(large[: MIB // 2])
        async with trio.open_nursery() as nursery:

            async def trickle() -> None:
                rest = large[MIB // 2 :]
                with suppress(trio.BrokenResourceError):
                    while rest:
                        await trio.sleep(limits.write / 2)
                        await slow.send_all(rest[:piece])
                        rest = rest[piece:]

            nursery.start_soon(other.send_all, large)
            nursery.start_soon(trickle)
            await trio.sleep(2 * limits.write)
            assert len(desk.left) == (not stays)
            await until(lambda: len(desk.frames) == 1 + stays)
            nursery.cancel_scope.cancel()


async def test_who_goes_while_it_waits_for_memory_leaves_it_to_the_next(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB, max_connections=5)
    large = framed(bytes(2 * MIB))
    async with listening(desk, limits) as (_, place), peer(place) as first, peer(place) as third:
        await first.send_all(large[:-1])
        async with peer(place) as second:
            await trio.sleep(1)
            await second.send_all(large[: MIB // 8])
            await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(third.send_all, large)
            await trio.sleep(1)
            await first.aclose()
            await until(lambda: len(desk.frames) == 1)


async def test_large_requests_that_come_at_once_are_all_read_in_the_end(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB, max_connections=20)
    async with listening(desk, limits) as (_, place), AsyncExitStack() as stack, trio.open_nursery() as nursery:
        for number in range(10):
            stream = await stack.enter_async_context(peer(place))
            nursery.start_soon(stream.send_all, framed(bytes([number]) * (MIB + number)))
        await until(lambda: len(desk.frames) == 10)
        assert sorted(len(each) - MIB for each in desk.frames) == list(range(10))
