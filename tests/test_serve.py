"""The listener of both servers and its connections: order, limits, garbage, faults of the service, drain.

The clock is trio's `MockClock`, and `tests.pairs` makes the connections, so that no test waits. test_serve_tcp.py
tests the behaviour that needs a network.
"""

import errno
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from ottla.codec.frames import framed
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError
from ottla.serve import AcceptedConnection, PendingAnswer
from ottla.serve.health import HealthServer
from ottla.serve.http_exchange import Exchanges
from tests.pairs import listening, peer
from tests.patience import HUNG
from tests.serving import LIMITS, Desk, closed, echo, received, until
from tests.steps import no_step_holds_the_loop  # noqa: F401 # applies to each test here


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


# --- order


async def test_answers_leave_in_the_order_of_the_requests(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b") + framed(b"c"))
        await until(lambda: len(desk.asked) == 3)
        desk.places[b"c"].send(framed(b"C"))
        desk.places[b"b"].send(framed(b"B")[:3], framed(b"B")[3:])
        with trio.move_on_after(1) as nothing_yet:
            await stream.receive_some(1)
        assert nothing_yet.cancelled_caught
        desk.places[b"a"].send(framed(b"A"))
        assert await received(stream, 15) == framed(b"A") + framed(b"B") + framed(b"C")


async def test_a_request_without_an_answer_holds_nobody_up(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        await until(lambda: len(desk.asked) == 2)
        desk.places[b"b"].send(framed(b"B"))
        desk.places[b"a"].nothing()
        assert await received(stream, 5) == framed(b"B")


async def test_requests_without_answers_do_not_fill_the_pipeline(clock: MockClock) -> None:
    desk = Desk(lambda frame, answer: answer.nothing())
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"x") * (10 * LIMITS.pipeline))
        await until(lambda: len(desk.asked) == 10 * LIMITS.pipeline)


async def test_no_more_requests_are_read_than_the_pipeline_holds(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        frames = [bytes((n,)) for n in range(10)]
        await stream.send_all(b"".join(map(framed, frames)))
        await until(lambda: len(desk.asked) == LIMITS.pipeline)
        await trio.sleep(1)
        assert desk.asked == frames[: LIMITS.pipeline]
        desk.places[frames[1]].nothing()
        await trio.sleep(1)
        assert len(desk.asked) == LIMITS.pipeline, "the first answer is still missing"
        desk.places[frames[0]].send(framed(b"first"))
        await until(lambda: len(desk.asked) == LIMITS.pipeline + 2)


async def test_a_peer_whose_answers_take_up_too_many_bytes_is_read_no_further(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk, replace(LIMITS, unsent=4)) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        await until(lambda: len(desk.asked) == 2)
        desk.places[b"b"].send(framed(b"B"))  # five bytes, held until the first answer
        await stream.send_all(framed(b"c"))
        await trio.sleep(1)
        assert desk.asked == [b"a", b"b"]
        desk.places[b"a"].nothing()
        assert await received(stream, 5) == framed(b"B")
        await until(lambda: len(desk.asked) == 3)


async def test_a_frame_may_come_byte_by_byte(clock: MockClock) -> None:
    async with listening(Desk(echo)) as (_, place), peer(place) as stream:
        for byte in framed(b"slow"):
            await stream.send_all(bytes((byte,)))
            await trio.sleep(1)
        assert await received(stream, 8) == framed(b"slow")


async def test_a_service_is_told_when_all_that_came_together_is_handed_out(clock: MockClock) -> None:
    desk = Desk(echo)
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        await received(stream, 10)
        assert desk.together == [2]
        await stream.send_all(framed(b"c") + b"GET / HTTP/1.1")
        await until(lambda: desk.left)
        assert desk.asked == [b"a", b"b", b"c"]
        assert desk.together == [2, 3], "even if no valid frame follows"


async def test_a_service_is_told_of_what_it_has_before_its_peer_has_to_wait(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(b"".join(framed(bytes((n,))) for n in range(LIMITS.pipeline + 1)))
        await until(lambda: desk.asked)
        await trio.sleep(1)
        assert desk.together == [LIMITS.pipeline]


# --- holding


async def test_a_held_peer_is_read_no_further(clock: MockClock) -> None:
    desk = Desk(echo)
    async with listening(desk) as (_, place), peer(place) as stream:
        await until(lambda: desk.connections)
        desk.connections[0].hold(True)
        await stream.send_all(framed(b"a"))
        await trio.sleep(1)
        assert desk.asked == []
        desk.connections[0].hold(False)
        assert await received(stream, 5) == framed(b"a")


async def test_room_comes_when_the_peer_takes_its_answers(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        await until(lambda: len(desk.asked) == 2)
        [connection] = desk.connections
        desk.places[b"b"].send(framed(b"B"))
        assert connection.unsent == 5
        with trio.move_on_after(1) as no_room:
            await connection.room(4)
        assert no_room.cancelled_caught
        desk.places[b"a"].nothing()
        with trio.fail_after(HUNG):
            await connection.room(0)
        assert connection.unsent == 0


async def test_nobody_waits_for_room_with_a_peer_that_is_gone(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(framed(b"a") + framed(b"b"))
            await until(lambda: len(desk.asked) == 2)
            desk.places[b"b"].send(framed(b"B"))
            place.reset(stream)
        with trio.fail_after(HUNG):
            await desk.connections[0].room(0)


# --- lost peers


async def test_a_peer_that_resets_is_noticed_while_its_requests_wait(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(framed(b"long poll") * 2 * LIMITS.pipeline)
            await until(lambda: len(desk.asked) == LIMITS.pipeline)
            assert not desk.left
            place.reset(stream)
        await trio.sleep(1)
        await until(lambda: desk.left)


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_requests_of_a_peer_that_goes_while_it_is_held_are_carried_out_later(clock: MockClock, how: str) -> None:
    desk = Desk()
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await until(lambda: desk.connections)
            desk.connections[0].hold(True)
            await stream.send_all(framed(b"a") + framed(b"b"))
            await trio.sleep(1)
            if how == "resets":
                place.reset(stream)
        await trio.sleep(3)
        assert desk.asked == [] and not desk.left
        desk.connections[0].hold(False)
        await until(lambda: desk.left)
        assert desk.asked == [b"a", b"b"]


@pytest.mark.parametrize("unread", [0, 2], ids=["all is read", "some is unread"])
@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_a_service_learns_that_a_peer_is_gone_for_which_it_waits(clock: MockClock, how: str, unread: int) -> None:
    desk = Desk(lambda frame, answer: desk.connections[0].hold(True))
    frames = [bytes((n,)) for n in range(2)]
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(b"".join(map(framed, frames)))
            await until(lambda: desk.asked)
            for _ in range(unread):
                await stream.send_all(framed(b"unread"))
            if how == "resets":
                place.reset(stream)
            await trio.sleep(3)
            assert not desk.lost_ones
        await until(lambda: desk.lost_ones)
        desk.answering = None
        desk.connections[0].hold(False)
        await until(lambda: desk.left)
    assert desk.asked == [*frames, *[b"unread"] * unread]


async def test_a_peer_that_closes_only_its_side_gets_the_answers_of_full_pipelines(clock: MockClock) -> None:
    desk = Desk()
    frames = [bytes((n,)) for n in range(2 * LIMITS.pipeline)]
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(b"".join(map(framed, frames)))
        await stream.send_eof()
        await trio.sleep(3)
        for frame in frames[: LIMITS.pipeline]:
            desk.places[frame].send(framed(frame))
        answers = b"".join(map(framed, frames[: LIMITS.pipeline]))
        assert await received(stream, len(answers)) == answers
    assert not desk.lost_ones


async def test_a_peer_that_closes_only_its_side_may_still_take_large_answers(clock: MockClock) -> None:
    much = framed(bytes(1_000_000))

    def answer(frame: bytes, place: PendingAnswer) -> None:
        if frame == b"much":
            place.send(much)
        else:
            desk.connections[0].hold(True)

    desk = Desk(answer)
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"much") + framed(b"waits") + framed(b"behind"))
        await stream.send_eof()
        await trio.sleep(3)
        assert desk.asked == [b"much", b"waits"] and not desk.lost_ones
        assert await received(stream, len(much)) == much
        await until(lambda: desk.lost_ones)


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_all_requests_of_a_peer_that_goes_without_its_answers_are_carried_out(clock: MockClock, how: str) -> None:
    desk = Desk()
    frames = [bytes((n,)) for n in range(5 * LIMITS.pipeline)]
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(b"".join(map(framed, frames)))
            await until(lambda: len(desk.asked) == LIMITS.pipeline)
            desk.places[frames[1]].send(framed(b"an answer behind another"))
            if how == "resets":
                place.reset(stream)
        for frame in frames:
            await until(partial(desk.places.get, frame))
            desk.places[frame].nothing()
        await until(lambda: desk.left)
        assert desk.asked == frames


async def test_requests_behind_an_answer_that_its_peer_never_takes_are_carried_out(clock: MockClock) -> None:
    much = bytes(1_000_000)
    desk = Desk(lambda frame, answer: answer.send(much))
    frames = [bytes((n,)) for n in range(5 * LIMITS.pipeline)]
    async with listening(desk, replace(LIMITS, unsent=1)) as (_, place):
        async with peer(place) as stream:
            await stream.send_all(b"".join(map(framed, frames)))
            await until(lambda: desk.asked)
        await until(lambda: desk.left)
        assert desk.asked == frames
        assert desk.connections[0].unsent == 0


async def test_a_drain_hands_out_what_has_come(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (listener, place), peer(place) as stream, trio.open_nursery() as nursery:
        frames = [bytes((n,)) for n in range(3 * LIMITS.pipeline)]
        await stream.send_all(b"".join(map(framed, frames)))
        await until(lambda: len(desk.asked) == LIMITS.pipeline)
        nursery.start_soon(listener.drain)
        for frame in frames:
            await until(partial(desk.places.get, frame))
            desk.places[frame].send(framed(frame))
        assert await received(stream, 5 * len(frames)) == b"".join(map(framed, frames))
        await closed(stream)
    assert desk.asked == frames


async def test_requests_of_a_peer_that_has_gone_leave_others_their_turn(clock: MockClock) -> None:
    desk = Desk(echo)
    async with listening(desk) as (_, place):
        async with peer(place) as stream:
            await until(lambda: desk.connections)
            desk.connections[0].hold(True)
            await stream.send_all(framed(b"x") * 20 * LIMITS.pipeline)
            await trio.sleep(1)
            place.reset(stream)
        await trio.sleep(2)
        desk.connections[0].hold(False)
        await until(lambda: desk.left)
    assert len(desk.asked) == 20 * LIMITS.pipeline
    turns = [after - before for before, after in pairwise([0, *desk.together])]
    assert max(turns) <= LIMITS.pipeline


async def test_requests_that_take_long_leave_others_their_turn(clock: MockClock) -> None:
    def answering(frame: bytes, answer: PendingAnswer) -> None:
        time.sleep(0.002 if frame == b"slow" else 0.0)
        answer.send(framed(frame))

    desk = Desk(answering)
    async with listening(desk, replace(LIMITS, pipeline=1000)) as (_, place), peer(place) as busy, peer(place) as other:
        await busy.send_all(framed(b"slow") * 100)
        await other.send_all(framed(b"quick"))
        await received(other, len(framed(b"quick")))
        assert desk.asked.index(b"quick") < 20
        await received(busy, 100 * len(framed(b"slow")))


@pytest.mark.parametrize("order", ["it goes, then the drain", "the drain, then it goes"])
async def test_a_drain_hands_out_the_requests_of_a_peer_that_goes(clock: MockClock, order: str) -> None:
    desk = Desk(lambda frame, answer: answer.nothing())
    async with listening(desk) as (listener, place), trio.open_nursery() as nursery:
        async with peer(place) as stream:
            await until(lambda: desk.connections)
            desk.connections[0].hold(True)
            await stream.send_all(framed(b"acks=0") * 2 * LIMITS.pipeline)
            await trio.sleep(1)
            place.reset(stream)
            if order == "the drain, then it goes":
                nursery.start_soon(listener.drain)
                await trio.sleep(0.5)
        if order == "it goes, then the drain":
            await trio.sleep(2)
            nursery.start_soon(listener.drain)
        await trio.sleep(2)
        desk.connections[0].hold(False)
        await until(lambda: desk.left)
    assert len(desk.asked) == 2 * LIMITS.pipeline


# --- garbage, and faults of the service


@pytest.mark.parametrize(
    ("garbage", "complaint"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS hello"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (framed(b"x" * 1001), "a frame of 1001 bytes is over the limit of 1000"),
        (b"\xff" * 8, "a frame of -1 bytes"),
    ],
)
async def test_garbage_closes_its_connection_only_and_the_log_says_what_it_looks_like(
    clock: MockClock, caplog: pytest.LogCaptureFixture, garbage: bytes, complaint: str
) -> None:
    async with listening(Desk(echo)) as (_, place), peer(place) as good, peer(place) as bad:
        await bad.send_all(garbage)
        await closed(bad)
        await good.send_all(framed(b"still here"))
        assert await received(good, 14) == framed(b"still here")
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert complaint in record.getMessage()
    assert record.__dict__["peer"].startswith("127.0.0.1:")


async def test_a_request_that_breaks_the_protocol_closes_its_connection(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(frame: bytes, answer: PendingAnswer) -> None:
        raise RemoteProtocolError("nobody speaks so")

    desk = Desk(refuse)
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"a") + framed(b"b"))
        await closed(stream)
    assert desk.asked == [b"a"]
    assert [record.getMessage() for record in caplog.records] == ["connection refused: nobody speaks so"]


class Faulty(Desk):
    """Fails in one of its methods, for the first connection only."""

    def __init__(self, where: str, error: type[Exception] = ZeroDivisionError) -> None:
        super().__init__(echo)
        self._where, self._error = where, error

    def connected(self, connection: AcceptedConnection) -> None:
        super().connected(connection)
        self._fail("connected", connection)

    def request(self, connection: AcceptedConnection, frame: Buffer, answer: PendingAnswer) -> None:
        self._fail("request", connection)
        if self._where == "answer" and connection.id == 1:
            answer.send("not bytes")  # type: ignore[arg-type] # on purpose
        else:
            super().request(connection, frame, answer)

    def disconnected(self, connection: AcceptedConnection) -> None:
        super().disconnected(connection)
        self._fail("disconnected", connection)

    def _fail(self, here: str, connection: AcceptedConnection) -> None:
        if here == self._where and connection.id == 1:
            raise self._error(here)


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, OSError, RecursionError])
@pytest.mark.parametrize("where", ["connected", "request", "answer", "disconnected"])
async def test_a_fault_of_the_service_costs_one_connection_and_is_logged(
    clock: MockClock, caplog: pytest.LogCaptureFixture, where: str, error: type[Exception]
) -> None:
    desk = Faulty(where, error)
    async with listening(desk) as (_, place):
        async with peer(place) as bad, peer(place) as good:
            await until(lambda: len(desk.connections) == 2)
            if where != "connected":
                await bad.send_all(framed(b"a"))
            if where == "disconnected":
                await bad.aclose()
            else:
                await closed(bad)
            await good.send_all(framed(b"b"))
            assert await received(good, 5) == framed(b"b")
        await until(lambda: desk.connections[1] in desk.left)
        assert (desk.connections[0] in desk.left) is (where != "connected"), "`disconnected` only after `connected`"
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info


class NoDescriptor(OSError):
    def __init__(self, what: str) -> None:
        super().__init__(errno.EMFILE, what)


async def test_a_process_without_file_descriptors_is_not_reported_as_a_bug(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Faulty("request", NoDescriptor)) as (_, place), peer(place) as bad:
        await bad.send_all(framed(b"a"))
        await closed(bad)
    [record] = caplog.records
    assert record.getMessage().startswith("the process may open no more files: NoDescriptor(24")


@pytest.mark.parametrize("bad", ["no bytes", None], ids=["text", "nothing"])
async def test_an_answer_that_cannot_be_sent_costs_its_connection_and_not_the_one_that_fills_it(
    clock: MockClock, caplog: pytest.LogCaptureFixture, bad: object
) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as first, peer(place) as second:
        await first.send_all(framed(b"waits"))
        await until(lambda: desk.asked)

        def fill_both(frame: bytes, answer: PendingAnswer) -> None:
            with suppress(TypeError):  # None has no length: the caller's mistake
                desk.places[b"waits"].send(bad)  # type: ignore[arg-type] # on purpose
            answer.send(framed(frame))

        desk.answering = fill_both
        await second.send_all(framed(b"a"))
        assert await received(second, 5) == framed(b"a")
        if bad is not None:
            await closed(first)
            assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_flood_of_broken_connections_is_one_line_and_their_number(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Desk(echo)) as (_, place):
        for number in range(50):
            async with peer(place) as bad:
                await bad.send_all((2000 + number).to_bytes(4, "big"))
                await closed(bad)
        assert [record.getMessage() for record in caplog.records] == [
            "connection refused: a frame of 2000 bytes is over the limit of 1000"
        ]
        await trio.sleep(61)
        assert "2000 bytes is over the limit of 1000: 49 more from 127.0.0.1 in" in caplog.records[-1].getMessage()
        async with peer(place) as bad:
            await bad.send_all(b"GET / HTTP/1.1\r\n")
            await closed(bad)
        assert len(caplog.records) == 3, "a complaint of another kind has its own line"


async def test_what_was_counted_is_told_when_the_listener_ends(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Desk(echo)) as (_, place):
        for _ in range(3):
            async with peer(place) as bad:
                await bad.send_all(b"SSH-2.0-x")
                await closed(bad)
    assert len(caplog.records) == 2 and "2 more from 127.0.0.1" in caplog.records[-1].getMessage()


# --- bounds


async def test_an_idle_connection_is_closed(clock: MockClock) -> None:
    async with listening(Desk(echo)) as (_, place), peer(place) as stream:
        await trio.sleep(LIMITS.idle - 1)
        await stream.send_all(framed(b"a"))
        await received(stream, 5)
        assert await closed(stream) == pytest.approx(LIMITS.idle, abs=1)


async def test_a_peer_that_waits_for_an_answer_is_not_idle(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"long poll"))
        await trio.sleep(5 * LIMITS.idle)
        desk.places[b"long poll"].send(framed(b"at last"))
        assert await received(stream, 11) == framed(b"at last")


async def test_a_peer_that_does_not_take_its_answers_is_cut_off(clock: MockClock) -> None:
    much = bytes(50_000_000)
    desk = Desk(lambda frame, answer: answer.send(much))
    async with listening(desk) as (_, place), peer(place) as stream:
        await stream.send_all(framed(b"much"))
        start = trio.current_time()
        await until(lambda: desk.left)
        assert LIMITS.write <= trio.current_time() - start <= 1.2 * LIMITS.write


async def test_there_are_no_more_connections_than_allowed(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(echo)
    async with listening(desk) as (_, place), peer(place), peer(place), peer(place) as last:
        await until(lambda: len(desk.connections) == 3)
        async with peer(place) as surplus:
            await closed(surplus)
        assert [record.getMessage() for record in caplog.records] == ["connection refused: 3 are open"]
        await last.aclose()
        await until(lambda: len(desk.left) == 2)
        async with peer(place) as stream:
            await stream.send_all(framed(b"room again"))
            assert await received(stream, 14) == framed(b"room again")


# --- drain and the end


async def test_a_drain_answers_what_was_asked_and_reads_no_more(clock: MockClock) -> None:
    desk = Desk()
    async with (
        listening(desk) as (listener, place),
        trio.open_nursery() as nursery,
        peer(place) as busy,
        peer(place) as quiet,
    ):
        await busy.send_all(framed(b"asked"))
        await until(lambda: desk.asked and len(desk.connections) == 2)
        nursery.start_soon(listener.drain)
        assert await closed(quiet) < 1
        await busy.send_all(framed(b"too late"))
        await trio.sleep(1)
        desk.places[b"asked"].send(framed(b"answered"))
        assert await received(busy, 12) == framed(b"answered")
        assert await closed(busy) < 1
    assert desk.asked == [b"asked"]
    assert len(desk.left) == 2


async def test_a_drain_does_not_wait_for_an_answer_for_ever(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (listener, place), peer(place) as stream:
        await stream.send_all(framed(b"asked"))
        await until(lambda: desk.asked)
        start = trio.current_time()
        await listener.drain()
        assert trio.current_time() - start == pytest.approx(LIMITS.drain)
        await closed(stream)


async def test_what_was_answered_without_bytes_does_not_delay_a_drain(clock: MockClock) -> None:
    desk = Desk()
    async with listening(desk) as (listener, place), peer(place) as stream:
        await stream.send_all(framed(b"acks=0"))
        await until(lambda: desk.asked)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.drain)
            await trio.testing.wait_all_tasks_blocked()
            desk.places[b"acks=0"].nothing()
            assert await closed(stream) < 1


# --- unusable addresses


# --- health


async def asked(request: bytes, ready: bool = True) -> tuple[bytes, bytes]:
    """The status line and the body of the answer."""
    stream, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Exchanges(HealthServer(lambda: ready, lambda: iter(())).answer, 2).serve, theirs)
        await stream.send_all(request)
        answer = b"".join([data async for data in stream])
        await stream.aclose()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
    return head.split(b"\r\n")[0], body


async def test_health_is_ok_while_the_process_lives_and_ready_when_it_says_so(clock: MockClock) -> None:
    assert await asked(b"GET /health HTTP/1.1\r\n\r\n", ready=False) == (b"HTTP/1.1 200 OK", b"ok\n")
    status, body = await asked(b"GET /ready HTTP/1.1\r\n\r\n", ready=False)
    assert status == b"HTTP/1.1 503 Service Unavailable"
    assert body == b"not ready\n"
    assert await asked(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n") == (b"HTTP/1.1 200 OK", b"ok\n")
    status, body = await asked(b"GET / HTTP/1.1\r\n\r\n")
    assert status == b"HTTP/1.1 404 Not Found"
    assert body == b"ask /health, /ready or /metrics\n"
    assert (await asked(b"x" * 9000))[0] == b"HTTP/1.1 404 Not Found"


async def test_lines_of_a_request_may_end_without_a_carriage_return(clock: MockClock) -> None:
    assert await asked(b"GET /ready HTTP/1.0\n\n") == (b"HTTP/1.1 200 OK", b"ok\n")
    assert await asked(b"GET /ready HTTP/1.0\nHost: x\n\r\n") == (b"HTTP/1.1 200 OK", b"ok\n")


async def test_a_prober_that_does_not_close_its_connection_is_dropped_a_second_after_the_response(
    clock: MockClock,
) -> None:
    begun = trio.current_time()
    stream, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Exchanges(HealthServer(lambda: True, lambda: iter(())).answer, 2).serve, theirs)
        await stream.send_all(b"GET /ready HTTP/1.1\r\n\r\n")
    assert trio.current_time() - begun == 1


async def test_a_prober_that_says_nothing_is_dropped(clock: MockClock) -> None:
    stream, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Exchanges(HealthServer(lambda: True, lambda: iter(())).answer, 2).serve, theirs)
        assert await closed(stream) == 1, "silent connections keep probes waiting"


async def test_readers_that_take_no_metrics_are_dropped_after_ten_seconds(clock: MockClock) -> None:
    exchanges, begun = Exchanges(HealthServer(lambda: True, lambda: iter(())).answer, 20), trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            stream, theirs = lockstep_stream_pair()  # it takes no byte that is not read
            nursery.start_soon(exchanges.serve, theirs)
            await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert trio.current_time() - begun == 10
    reader, theirs_now = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchanges.serve, theirs_now)
        await reader.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.receive_some(15)) == b"HTTP/1.1 200 OK"
