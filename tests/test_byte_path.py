"""How the listener moves bytes: read into their place, written from theirs, and let go of."""

import math
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from ottla.codec.frames import framed
from ottla.codec.inbox import LARGE
from ottla.codec.wire import Buffer
from ottla.serve import Answer, Connection, bare
from ottla.serve.memory import Memory
from tests.serving import LIMITS, LOCAL, Desk, closed, echo, listening, peer, received, until
from tests.steps import no_step_holds_the_loop  # noqa: F401 # it watches each test here

MIB = 2**20
ROOMY = replace(LIMITS, max_frame=100 * MIB)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.02)


class Keeper(Desk):
    """Keeps the frames as they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Buffer] = []
        self.answers: list[Answer] = []

    def request(self, connection: Connection, frame: Buffer, answer: Answer) -> None:
        self.frames.append(frame)
        self.answers.append(answer)


def has(desk: Keeper, requests: int) -> bool:
    return len(desk.frames) >= requests


def is_free(memory: bytearray) -> bool:
    """Nobody has a view of it."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True


# -- requests


async def test_a_large_request_is_a_view_whose_memory_is_used_again_when_it_is_let_go_of(clock: MockClock) -> None:
    desk = Keeper()
    async with listening(desk, ROOMY) as (_, port), peer(port) as stream:
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
    async with listening(desk, ROOMY) as (_, port), peer(port) as first, peer(port) as second:
        for number, stream in enumerate((first, second, first)):
            await stream.send_all(framed(bytes([number]) * MIB))
            await until(partial(has, desk, number + 1))
        assert [bytes(each) for each in desk.frames] == [bytes([number]) * MIB for number in range(3)]


async def test_requests_of_many_connections_do_not_mix_however_they_are_torn(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, max_connections=20, pipeline=1)
    async with listening(desk, limits) as (_, port), trio.open_nursery() as nursery:

        async def send(number: int) -> None:
            stream = await trio.open_tcp_stream(LOCAL, port)
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
    def work(frame: bytes, answer: Answer) -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass
        answer.nothing()

    desk = Desk(work)
    async with listening(desk) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"x") * 200)  # the watch over steps fails this test if they are one
        await until(lambda: len(desk.asked) == 200)


# -- answers


async def test_the_parts_of_an_answer_are_written_from_where_they_lie_and_then_let_go_of(clock: MockClock) -> None:
    memory = bytearray(b"x" * (8 * MIB))
    desk = Desk(lambda frame, answer: answer.send(len(memory).to_bytes(4, "big"), memoryview(memory)))
    async with listening(desk, ROOMY) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"much"))
        await until(lambda: desk.places)
        assert not is_free(memory), "it is not copied"
        assert await received(stream, 4 + 8 * MIB) == framed(bytes(memory))
        await until(lambda: is_free(memory))
        assert desk.places, "the service may keep the place, but it holds nothing any more"


async def test_an_answer_may_have_more_parts_than_the_system_takes_at_once(clock: MockClock) -> None:
    parts = [bytes([number % 251]) for number in range(5000)]
    desk = Desk(lambda frame, answer: answer.send((5000).to_bytes(4, "big"), b"", *parts, b""))
    async with listening(desk) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"many"))
        assert await received(stream, 5004) == framed(b"".join(parts))


async def test_what_was_not_taken_at_once_goes_on_where_it_stopped(clock: MockClock) -> None:
    whole = b"".join(number.to_bytes(4, "big") for number in range(2 * MIB))
    desk = Desk(lambda frame, answer: answer.send(*(whole[at : at + 100_003] for at in range(0, len(whole), 100_003))))
    async with listening(desk) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        assert await received(stream, 2 * len(whole)) == 2 * whole


async def test_a_peer_that_reads_slowly_but_steadily_is_never_cut_off(clock: MockClock) -> None:
    size = 16 * MIB
    desk = Desk(lambda frame, answer: answer.send(bytes(size)))
    async with listening(desk) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"much"))
        start = trio.current_time()
        for _ in range(32):
            await trio.sleep(LIMITS.write / 2)
            await received(stream, MIB // 2)  # TCP says in steps of some 100 kB what a reader has taken
        assert trio.current_time() - start > 10 * LIMITS.write


async def test_a_peer_that_stops_reading_in_the_middle_is_cut_off(clock: MockClock) -> None:
    desk = Desk(lambda frame, answer: answer.send(bytes(50_000_000)))
    async with listening(desk) as (_, port), peer(port) as stream:
        await stream.send_all(framed(b"much"))
        await received(stream, 5_000_000)
        start = trio.current_time()
        await until_left(desk)
        assert LIMITS.write <= trio.current_time() - start < 1.5 * LIMITS.write


async def until_left(desk: Desk) -> None:
    with trio.fail_after(10 * LIMITS.write):
        while not desk.left:
            await trio.sleep(0.5)


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such option")
async def test_the_system_takes_of_answers_as_much_as_it_sees_fit(clock: MockClock) -> None:
    desk = Desk(echo)
    async with listening(desk) as (_, port), peer(port):
        await until(lambda: desk.connections)
        its = desk.connections[0]._socket
        assert its.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 0
        assert its.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_answer_to_a_peer_that_is_gone_is_let_go_of_and_counts_for_nothing(clock: MockClock) -> None:
    desk = Keeper()
    async with listening(desk) as (_, port):
        async with peer(port) as stream:
            await stream.send_all(framed(b"a") + framed(b"b"))
            await until(partial(has, desk, 2))
            desk.answers[1].send(bytes(MIB))
        await until(lambda: desk.left)
        memory = bytearray(MIB)
        desk.answers[0].send(memoryview(memory))
        assert is_free(memory)
        assert desk.left[0]._shared.unsent == 0


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such option")
async def test_a_stream_of_trios_is_taken_over_without_its_bound(clock: MockClock) -> None:
    async with listening(Desk(echo)) as (_, port):
        stream = await trio.open_tcp_stream(LOCAL, port)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 16384
        with bare(stream.socket) as ours:
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 0
            assert not ours.getblocking()


# -- bounds of all connections together


async def test_memory_is_given_in_the_order_of_asking_and_who_gives_up_is_left_out(clock: MockClock) -> None:
    memory, order = Memory(10), list[str]()

    async def ask(name: str, size: int, patience: float = math.inf) -> None:
        with trio.move_on_after(patience):
            await memory.take(size)
            order.append(name)

    async with trio.open_nursery() as nursery:
        for name, size, patience in (("a", 15, 9.0), ("b", 8, 1.0), ("c", 12, 9.0), ("d", 5, 9.0)):
            nursery.start_soon(ask, name, size, patience)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["a"] and memory.is_wanted
        await trio.sleep(2)
        memory.give(15)
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["a", "c"] and memory.used == 12
        memory.give(12)
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["a", "c", "d"] and memory.used == 5 and not memory.is_wanted


async def test_memory_that_is_free_when_its_taker_is_cancelled_is_given_back(clock: MockClock) -> None:
    memory = Memory(10)
    with trio.CancelScope() as scope:
        scope.cancel()
        await memory.take(10)
    assert scope.cancelled_caught and memory.used == 0


async def test_answers_that_others_do_not_take_hold_up_only_those_with_more_than_their_share(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_unsent=20 * MIB, unsent=1000 * MIB, write=10_000.0)
    async with listening(desk, limits) as (_, port), peer(port) as greedy, peer(port) as modest:
        await until(lambda: len(desk.connections) == 2)
        await greedy.send_all(framed(b"1"))
        await until(lambda: desk.answers)
        desk.answers.pop().send(bytes(30 * MIB))
        await greedy.send_all(framed(b"2"))
        await modest.send_all(framed(b"3"))
        await until(lambda: desk.answers)
        await trio.sleep(1)
        assert [bytes(each) for each in desk.frames] == [b"1", b"3"], "the greedy one is not read"
        desk.answers.pop().send(framed(b"taken"))
        assert await received(modest, 9) == framed(b"taken")
        await received(greedy, 30 * MIB)
        await until(lambda: len(desk.frames) == 3)


async def test_no_large_request_is_begun_while_those_under_way_are_too_large_together(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB, max_connections=5)
    async with listening(desk, limits) as (_, port), peer(port) as first, peer(port) as second, peer(port) as small:
        large = framed(bytes(2 * MIB))
        await first.send_all(large[:-1])
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.send_all, large)
            await trio.sleep(1)
            assert desk.frames == [], "one is under way, the other waits for it"
            await small.send_all(framed(b"small"))
            await until(lambda: desk.frames == [b"small"])
            await first.send_all(large[-1:])
            await until(lambda: len(desk.frames) == 3)


async def test_a_large_request_that_does_not_go_on_is_given_up_for_one_that_waits(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB, idle=1000.0)
    async with listening(desk, limits) as (_, port), peer(port) as stuck, peer(port) as other:
        large = framed(bytes(2 * MIB))
        await stuck.send_all(large[:-1])
        await trio.sleep(5 * limits.write)
        assert not desk.left, "it may take its time while nobody waits"
        await trio.sleep(limits.write / 4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.send_all, large)
            assert await closed(stuck, 3 * limits.write) <= limits.write
            await until(lambda: len(desk.frames) == 1)


async def test_who_goes_while_it_waits_for_memory_leaves_it_to_the_next(clock: MockClock) -> None:
    desk = Keeper()
    limits = replace(ROOMY, all_frames=MIB, max_connections=5)
    large = framed(bytes(2 * MIB))
    async with listening(desk, limits) as (_, port), peer(port) as first, peer(port) as third:
        await first.send_all(large[:-1])
        async with peer(port) as second:
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
    async with listening(desk, limits) as (_, port), AsyncExitStack() as stack, trio.open_nursery() as nursery:
        for number in range(10):
            stream = await stack.enter_async_context(peer(port))
            nursery.start_soon(stream.send_all, framed(bytes([number]) * (MIB + number)))
        await until(lambda: len(desk.frames) == 10)
        assert sorted(len(each) - MIB for each in desk.frames) == list(range(10))
