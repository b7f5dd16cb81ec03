"""Large requests that the listener passes on piece by piece, and answers that it gets in pieces."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from ottla.codec.frames import framed
from ottla.codec.inbox import LARGE
from ottla.serve import AcceptedConnection, PendingAnswer
from tests.pairs import listening, peer
from tests.serving import LIMITS, Desk, closed, received, until

MIB = 2**20
ROOMY = replace(LIMITS, max_frame=100 * MIB, write=30.0)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


class Passing(Desk):
    """Takes large requests in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.answers: list[PendingAnswer] = []

    def request(self, connection: AcceptedConnection, frame: object, answer: PendingAnswer) -> None:
        self.asked.append(bytes(frame))  # type: ignore[call-overload] # a buffer
        self.answers.append(answer)

    def begins_passage(self, connection: AcceptedConnection, size: int, start: bytes) -> bool:
        return True

    def begin(self, connection: AcceptedConnection, size: int, start: bytes, answer: PendingAnswer) -> None:
        self.pieces.append(start)
        self.answers.append(answer)

    def go_on(self, connection: AcceptedConnection, data: bytes) -> None:
        self.pieces.append(data)


async def test_a_request_is_passed_on_in_pieces_and_the_next_one_is_whole(clock: MockClock) -> None:
    desk, frame = Passing(), bytes(range(256)) * 4 * LARGE
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream:
        for _ in range(2):
            await stream.send_all(framed(frame) + framed(b"short"))
            await until(lambda: desk.asked)
            assert b"".join(desk.pieces) == frame and len(desk.pieces) > 2
            assert desk.asked == [b"short"]
            desk.pieces.clear()
            desk.asked.clear()


async def test_a_request_is_read_no_further_while_it_is_paused(clock: MockClock) -> None:
    desk, frame = Passing(), bytes(64 * LARGE)
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, framed(frame)[: LARGE + 1000])
        await until(lambda: sum(map(len, desk.pieces)) == LARGE + 996)
        [connection] = desk.connections
        connection.pause(True)
        nursery.start_soon(stream.send_all, framed(frame)[LARGE + 1000 :])
        await trio.sleep(100 * ROOMY.write)
        assert sum(map(len, desk.pieces)) <= 2 * LARGE + 256 * 2**10 and not desk.left, "the service may take its time"
        connection.pause(False)
        await until(lambda: sum(map(len, desk.pieces)) == len(frame))


async def test_a_client_that_stops_within_a_request_is_closed_and_a_slow_one_is_not(clock: MockClock) -> None:
    desk, frame = Passing(), framed(bytes(2 * LARGE))
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream:
        await stream.send_all(frame[:LARGE])
        await until(lambda: desk.pieces)
        for at in range(20):
            await stream.send_all(frame[LARGE + at : LARGE + at + 1])
            await trio.sleep(ROOMY.write * 0.8)
        assert not desk.left
        await closed(stream)
        assert desk.left


async def test_a_client_that_leaves_within_a_request_is_told_of_once(clock: MockClock) -> None:
    desk = Passing()
    async with listening(desk, ROOMY) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(framed(bytes(2 * LARGE))[:LARGE])
            await until(lambda: desk.pieces)
        await until(lambda: desk.left)
        assert len(desk.left) == 1


async def test_the_pieces_of_an_answer_wait_for_the_answers_before_it(clock: MockClock) -> None:
    desk = Passing()
    async with listening(desk, ROOMY) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"one") + framed(b"two") + framed(b"three"))
        await until(lambda: len(desk.answers) == 3)
        first, second, third = desk.answers
        second.send(b"\0\0\0\6ab", left=4)
        third.send(framed(b"last"))
        second.send(b"cd", left=2)
        first.send(framed(b"first"))
        assert await received(stream, 9 + 8) == framed(b"first") + b"\0\0\0\6abcd"
        second.send(b"ef")
        assert await received(stream, 2 + 8) == b"ef" + framed(b"last")
