"""SASL at a listener: its deadlines, its delays and its limits, with a mocked clock."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.codec import frames
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.sasl import ScramSha256
from ottla.sasl_server.passwords import PasswordCheck
from ottla.sasl_server.server import SaslServer
from ottla.sasl_server.settings import SaslSettings
from ottla.serve import Listener, ListenerLimits, spare
from ottla.serve.sasl_service import SaslService
from ottla.serve.traffic import REFUSED
from ottla.server_metrics import Sample
from tests.pairs import Place, listening, peer
from tests.serving import LIMITS, Desk, closed, echo, received, until
from tests.steps import no_step_holds_the_loop  # noqa: F401 # applies to each test here
from tests.test_sasl_server import ALICE, SECRET, USERS

SETTINGS = SaslSettings(
    mechanisms=("SCRAM-SHA-256", "PLAIN"), max_reauth={"SCRAM-SHA-256": 100.0}, failure_delay=2.0, max_receive=600
)
ROOMY = replace(LIMITS, max_connections=20, max_frame=100_000)
REQUEST = b"\0\3" + b"request that is no SASL"


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@asynccontextmanager
async def guarded(desk: Desk, limits: ListenerLimits = ROOMY) -> AsyncIterator[tuple[Listener, Place]]:
    async with behind_sasl(desk, limits) as (listener, service):
        yield listener, Place(listener, service)


@asynccontextmanager
async def behind_sasl(desk: Desk, limits: ListenerLimits = ROOMY) -> AsyncIterator[tuple[Listener, SaslService]]:
    async with listening(desk, limits) as (listener, _), trio.open_nursery() as nursery:
        service = SaslService(desk, SaslServer(SETTINGS, USERS, os.urandom), listener.newcomers)
        nursery.start_soon(service.run)
        yield listener, service
        nursery.cancel_scope.cancel()


async def ask(stream: trio.SocketStream, message: Any, version: int) -> bytes:
    await stream.send_all(frames.build_request(message, version, 1, None))
    return await received(stream, int.from_bytes(await received(stream, 4), "big"))


async def log_in(stream: trio.SocketStream, password: str, user: str = ALICE) -> int:
    """Log in; return the error code."""
    await ask(stream, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    exchange = ScramSha256(user, password).exchange()
    token: bytes | None = exchange.begin()
    while token is not None:
        frame = await ask(stream, SaslAuthenticateRequest(auth_bytes=token), 2)
        answer = frames.parse_response(SaslAuthenticateResponse, 2, frame)[1]
        if answer.error_code:
            return answer.error_code
        token = exchange.answered(answer.auth_bytes)
    return 0


async def begin_plain(stream: trio.SocketStream, user: bytes) -> None:
    await ask(stream, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = SaslAuthenticateRequest(auth_bytes=b"\0" + user + b"\0x")
    await stream.send_all(frames.build_request(token, 2, 1, None))


async def test_the_service_gets_requests_of_authenticated_clients_only(clock: MockClock) -> None:
    desk = Desk(echo)
    async with guarded(desk) as (_, place), peer(place) as stream, peer(place) as stranger:
        began = trio.current_time()
        assert await log_in(stream, SECRET) == 0
        await stranger.send_all(frames.framed(REQUEST))
        await closed(stranger)
        assert desk.asked == []
        large = REQUEST + bytes(50_000)
        await stream.send_all(frames.framed(REQUEST) + frames.framed(large))
        await received(stream, 8 + len(REQUEST) + len(large))
        assert desk.asked == [REQUEST, large]
        assert [each.session.principal for each in desk.connections] == ["User:alice", "User:ANONYMOUS"]
        assert desk.connections[0].session.session_ends_at == began + 100.0


async def test_a_failure_is_answered_late(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(Desk(echo)) as (listener, place), peer(place) as stream:
        began = trio.current_time()
        assert await log_in(stream, "wrong") == 58
        assert trio.current_time() - began >= SETTINGS.failure_delay
        await closed(stream)
        assert Sample(REFUSED, 1, ("sasl",)) in list(listener.samples())
    assert caplog.messages == ["authentication failed: user 'alice' is refused by SCRAM-SHA-256"]


async def test_a_request_behind_a_failure_is_never_handled(clock: MockClock) -> None:
    desk = Desk(echo)
    async with guarded(desk) as (_, place), peer(place) as stream:
        await ask(stream, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        wrong = frames.build_request(SaslAuthenticateRequest(auth_bytes=b"n,,n=x"), 2, 1, None)
        await stream.send_all(wrong + frames.framed(REQUEST))
        size = int.from_bytes(await received(stream, 4), "big")
        frame = await received(stream, size)
        assert frames.parse_response(SaslAuthenticateResponse, 2, frame)[1].error_code == 58
        await closed(stream)
    assert desk.asked == []


async def test_a_client_that_does_not_authenticate_is_disconnected(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(Desk(echo)) as (_, place), peer(place) as silent, peer(place) as slow, peer(place) as good:
        began = trio.current_time()
        assert await log_in(good, SECRET) == 0
        for byte in frames.build_request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1, 1, None)[:9]:
            await slow.send_all(bytes((byte,)))
            await trio.sleep(1)
        await closed(silent)
        await closed(slow)
        assert ROOMY.handshake <= trio.current_time() - began < ROOMY.handshake + 2
        await good.send_all(frames.framed(REQUEST))
        await received(good, 4 + len(REQUEST))
    assert caplog.messages[0] == "authentication failed: no authentication within 10 s"


async def test_a_stranger_cannot_send_much(clock: MockClock) -> None:
    async with guarded(Desk(echo)) as (_, place), peer(place) as stream:
        began = trio.current_time()
        await stream.send_all((601).to_bytes(4, "big") + b"\0\x11")
        await closed(stream)
        assert trio.current_time() - began < ROOMY.handshake, "not only once its time is up"


async def test_the_oldest_stranger_makes_room_for_the_next(clock: MockClock) -> None:
    desk = Desk(echo)
    async with guarded(desk) as (_, place):
        strangers: list[trio.SocketStream] = []
        while len(strangers) < ROOMY.max_connections // 4:
            strangers.append(place.connect())
            await until(lambda: len(desk.connections) == len(strangers))
        oldest, *others = desk.connections
        async with peer(place) as stream:
            await closed(strangers[0])
            assert oldest in desk.left and not set(others) & set(desk.left)
            assert await log_in(stream, SECRET) == 0
        for each in strangers:
            await each.aclose()


@pytest.mark.parametrize(
    "hosts",
    [["192.0.2.1"], [f"2001:db8:0:1::{number:x}" for number in range(1, 30)]],
    ids=["one address", "a network of addresses"],
)
async def test_a_host_of_many_strangers_makes_room_for_the_only_one_of_another(
    clock: MockClock, hosts: list[str]
) -> None:
    desk = Desk(echo)
    async with guarded(desk) as (_, place), peer(place, "192.0.2.77") as oldest:
        addresses, strangers = itertools.cycle(hosts), []
        for _ in range(2 * ROOMY.max_connections):
            strangers.append(place.connect(next(addresses)))
            await trio.testing.wait_all_tasks_blocked()
        assert place.open == ROOMY.max_connections // 4
        assert await log_in(oldest, SECRET) == 0
        for each in strangers:
            await each.aclose()


async def taken_by_alice(place: Place, stack: AsyncExitStack) -> list[trio.SocketStream]:
    """Take all connections; the first has been idle for longest."""
    streams = []
    for _ in range(ROOMY.max_connections):
        streams.append(await stack.enter_async_context(peer(place)))
        assert await log_in(streams[-1], SECRET) == 0
        await trio.sleep(2)
    return streams


async def test_when_all_connections_are_taken_a_user_with_fewer_gets_one_of_the_user_with_the_most(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(echo)
    async with guarded(desk) as (_, place), AsyncExitStack() as stack:
        greedy = await taken_by_alice(place, stack)
        other = await stack.enter_async_context(peer(place))
        assert await log_in(other, "bob's", "bob") == 0
        await closed(greedy[0])
        assert place.open == ROOMY.max_connections
        surplus = await stack.enter_async_context(peer(place))
        with pytest.raises(AssertionError, match="closed after 0 bytes"):
            await log_in(surplus, SECRET)
        await other.send_all(frames.framed(REQUEST))
        assert await received(other, 4 + len(REQUEST)) == frames.framed(REQUEST)
    assert [each for each in caplog.messages if "20 are open" in each] == [
        "connection closed, to make room for User:bob: 20 are open",
        "connection refused: 20 are open",
    ]


async def test_a_connection_that_waits_for_an_answer_is_not_the_idlest(clock: MockClock) -> None:
    desk = Desk(echo)
    async with guarded(desk) as (_, place), AsyncExitStack() as stack:
        greedy = await taken_by_alice(place, stack)
        desk.answering = None
        await greedy[0].send_all(frames.framed(REQUEST))
        await until(lambda: REQUEST in desk.places)
        await trio.sleep(20)
        other = await stack.enter_async_context(peer(place))
        assert await log_in(other, "bob's", "bob") == 0
        await closed(greedy[1])
        desk.places[REQUEST].send(frames.framed(REQUEST))
        assert await received(greedy[0], 4 + len(REQUEST)) == frames.framed(REQUEST)


async def test_silent_connections_of_a_host_do_not_keep_another_host_from_logging_in(clock: MockClock) -> None:
    async with guarded(Desk(echo)) as (_, place), AsyncExitStack() as stack:
        for _ in range(ROOMY.max_connections):
            assert await log_in(await stack.enter_async_context(peer(place, "192.0.2.1")), SECRET) == 0
        other = await stack.enter_async_context(peer(place, "192.0.2.77"))
        for _ in range(3 * spare(ROOMY.max_connections)):
            await stack.enter_async_context(peer(place, "192.0.2.1"))
        assert await log_in(other, "bob's", "bob") == 0


async def test_silent_connections_of_many_hosts_do_not_keep_another_one_from_logging_in(clock: MockClock) -> None:
    async with guarded(Desk(echo), replace(ROOMY, max_connections=40)) as (_, place), AsyncExitStack() as stack:
        for _ in range(40):
            assert await log_in(await stack.enter_async_context(peer(place, "192.0.2.1")), SECRET) == 0
        for number in range(20):
            await stack.enter_async_context(peer(place, f"198.51.100.{number}"))
        await trio.sleep(2.5)
        assert await log_in(await stack.enter_async_context(peer(place, "192.0.2.77")), "bob's", "bob") == 0


async def test_a_user_keeps_a_quarter_of_all_connections(clock: MockClock) -> None:
    desk = Desk(echo)
    async with listening(desk, ROOMY) as (_, place), AsyncExitStack() as stack:
        most = ROOMY.max_connections
        ours = [await stack.enter_async_context(peer(place, "192.0.2.1")) for _ in range(most)]
        for number in range(2 * most):
            await stack.enter_async_context(peer(place, f"198.51.100.{number}"))
        assert place.open == most
        assert sum(each in desk.left for each in desk.connections[: len(ours)]) == most - most // 4


async def test_hosts_take_turns_while_passwords_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def check(self: PasswordCheck, user: str, password: str) -> bool:
        checked.append(user)
        return True

    monkeypatch.setattr(PasswordCheck, "check", check)
    async with behind_sasl(Desk(echo)) as (listener, service):
        place = Place(listener, service)
        asked = [("192.0.2.1", b"bob"), ("192.0.2.1", b"bob"), ("192.0.2.1", b"bob"), ("192.0.2.2", b"alice")]
        streams = []
        async with service._one.turn("192.0.2.3"):  # another check takes its time
            for number, (host, user) in enumerate(asked, 1):
                streams.append(stream := place.connect(host))
                await begin_plain(stream, user)
                await until(lambda number=number: service._one.waiting == number)  # type: ignore[misc]
        for stream in streams:
            await received(stream, 4)
            await stream.aclose()
    assert checked == ["bob", "alice", "bob", "bob"]


async def test_many_odd_logins_do_not_hide_guesses_of_a_users_password(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(Desk(echo)) as (_, place):
        for number in range(30):
            odd = "x" * (number + 1)
            async with peer(place) as stream:
                await ask(stream, SaslHandshakeRequest(mechanism=odd), 1)
            async with peer(place) as stream:
                assert await log_in(stream, "wrong", odd) == 58
        async with peer(place) as stream:
            assert await log_in(stream, "wrong") == 58
    assert [each for each in caplog.messages if " more from " not in each] == [
        "authentication failed: a client wants 'x', and the listener has SCRAM-SHA-256, PLAIN",
        "authentication failed: user 'x' is refused by SCRAM-SHA-256",
        "authentication failed: user 'alice' is refused by SCRAM-SHA-256",
    ]


async def test_nobody_waits_for_the_passwords_of_strangers_that_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def check(self: PasswordCheck, user: str, password: str) -> bool:
        checked.append(user)
        return True

    async def waiting(number: int) -> None:
        await until(lambda: service._one.waiting == number)

    monkeypatch.setattr(PasswordCheck, "check", check)
    desk = Desk(echo)
    async with behind_sasl(desk) as (listener, service):
        place = Place(listener, service)
        async with service._one.turn("another host"):  # another check takes its time
            for number in range(1, 4):
                async with peer(place) as stranger:
                    await begin_plain(stranger, b"bob")
                    await waiting(number)
            await until(lambda: len(desk.left) == 3)
        async with peer(place) as stream:
            await begin_plain(stream, b"alice")
            await received(stream, 4)
    assert checked == ["alice"]
