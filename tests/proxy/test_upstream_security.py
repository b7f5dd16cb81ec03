"""The proxy's connections to an upstream that requires authentication: passwords, tokens, sessions that expire."""

import ssl
import time
from collections import defaultdict
from random import Random
from typing import Any

import pytest
import trustme

from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.frames import FrameReader, parse_request
from ottla.errors import AuthenticationFailed, ConnectionLost, SaslAuthenticationFailed
from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import (
    ConnectUpstream,
    DisconnectUpstream,
    SendUpstream,
    UpstreamConnected,
    UpstreamLost,
    UpstreamReceived,
)
from ottla.sasl import OAuthBearer, Plain, Token
from ottla.sdk.events import RunInThread, TokenFetched
from ottla.tls import TLS, TlsConnection
from tests.proxy.simulated import Upstream, World, batch
from tests.tls import text

SECRET = "tell-nobody"
SESSION = 10.0
VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, PRODUCE = 18, 17, 36, 3, 0


class Guarded(Upstream):
    """Accepts one password, or any token; sessions last for `SESSION` seconds."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.cluster.release |= {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 1)}

    def _answer(self, node: int, version: int, message: Any) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=(message.mechanism,))
        if not isinstance(message, SaslAuthenticateRequest):
            return super()._answer(node, version, message)
        right = bytes(message.auth_bytes).endswith((b"\0" + SECRET.encode(), b"\x01\x01"))
        code, said = (0, None) if right else (SaslAuthenticationFailed.code, "Authentication failed")
        lifetime = int(SESSION * 1000)
        return SaslAuthenticateResponse(
            error_code=code, error_message=said, auth_bytes=b"", session_lifetime_ms=lifetime
        )


class GuardedWorld(World):
    """Keeps the requests on each connection, and refuses requests outside of an authenticated session."""

    def __init__(self, *rules: str, **options: Any) -> None:
        self.asked: dict[int, list[int]] = defaultdict(list)
        self.proved: dict[int, float] = {}
        self.fetches = 0
        self.hesitates = False
        """Whether responses to SaslHandshake wait for `release`."""
        super().__init__(Guarded({"t": 1}), *rules, **options)

    def _act(self, action: Any) -> None:
        if isinstance(action, RunInThread):
            self.fetches += 1
            event = action.call()
            assert isinstance(event, TokenFetched)
            self.core.handle(event, self.now)
        else:
            super()._act(action)

    def _send(self, link: int, frame: bytes) -> None:
        key = parse_request(frame).header.api_key
        if key == AUTHENTICATE:
            self.proved[link] = self.now
        elif key not in (VERSIONS, HANDSHAKE):
            assert self.asked[link][-1] != HANDSHAKE, "a request within the handshake"
            assert self.now < self.proved[link] + SESSION, "a request after the end of the session"
        self.asked[link].append(key)
        super()._send(link, frame)

    def _is_late(self, frame: bytes) -> bool:
        return super()._is_late(frame) or (self.hesitates and frame[1] == HANDSHAKE)


def serving_side(ca: trustme.CA) -> TlsConnection:
    """The side of a broker whose certificate this CA has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("broker").configure_cert(context)
    return TlsConnection(context, server_side=True)


def values(count: int, first: int = 0) -> dict[tuple[str, int], bytes]:
    return {("t", 0): batch([(None, b"%d" % (first + number)) for number in range(count)])}


@pytest.mark.parametrize("rules", [(), ("t=rewrite",)])
def test_who_the_proxy_is_goes_before_everything(rules: tuple[str, ...]) -> None:
    world = GuardedWorld(*rules, sasl=Plain("alice", SECRET))
    reply = world.produce(1, values(1))
    world.settle(1)
    assert reply.code == 0 and len(world.asked) > 1
    assert all(each[:3] == [VERSIONS, HANDSHAKE, AUTHENTICATE] for each in world.asked.values())


def test_a_session_is_renewed_before_it_ends_with_what_is_sent_next() -> None:
    world = GuardedWorld(sasl=Plain("alice", SECRET))
    assert world.produce(1, values(1)).code == 0
    mine = next(link for link, asked in world.asked.items() if PRODUCE in asked)
    world.settle(SESSION - 1)
    assert world.asked[mine][3:] == [METADATA, PRODUCE], "the connection sends no request only to stay alive"
    assert [world.produce(1, values(1, number)).code for number in (1, 2)] == [0, 0]
    assert world.asked[mine][4:] == [PRODUCE, HANDSHAKE, AUTHENTICATE, PRODUCE, PRODUCE]
    assert world.upstream.values("t") == [b"0", b"1", b"2"]


def test_an_ended_session_is_renewed_with_any_token() -> None:
    world = GuardedWorld(sasl=OAuthBearer(lambda: Token("short", time.time() + 0.4 * SESSION)))
    assert world.produce(1, values(1)).code == 0
    mine = next(link for link, asked in world.asked.items() if PRODUCE in asked)
    world.settle(SESSION - 1)
    assert world.produce(1, values(1, 1)).code == 0
    world.settle(2)
    assert world.produce(1, values(1, 2)).code == 0
    assert world.asked[mine][4:] == [PRODUCE, PRODUCE, HANDSHAKE, AUTHENTICATE, PRODUCE]


def test_what_comes_while_a_session_is_renewed_waits_and_is_answered_in_order() -> None:
    world = GuardedWorld(sasl=Plain("alice", SECRET))
    world.produce(1, values(1))
    world.settle(SESSION - 1)
    world.hesitates = True
    replies = [world.produce(1, values(1, number)) for number in (1, 2, 3)]
    assert [each.frame for each in replies] == [None] * 3 and world.upstream.values("t") == [b"0"]
    world.release()
    assert [each.code for each in replies] == [0, 0, 0]
    assert world.upstream.values("t") == [b"0", b"1", b"2", b"3"]


def test_what_waits_for_a_renewal_is_counted_and_its_client_is_held() -> None:
    world = GuardedWorld(sasl=Plain("alice", SECRET), max_buffered=10_000)
    world.produce(1, values(1))
    world.settle(SESSION - 1)
    world.hesitates = True
    for number in range(1, 200):
        world.produce(1, values(1, number), acks=0)
    assert world.core.buffered.of[1] > 10_000 and 1 in world.held
    link = next(each for each in world.core.links._live.values() if each._held)
    assert len(link._held or ()) == 1, "only the request that started the renewal waits in the connection"
    world.leave(1)
    world.release()
    world.settle(1)
    assert world.upstream.values("t") == [b"%d" % number for number in range(200)]
    assert not world.core.buffered.total


def test_a_request_that_waits_in_a_renewed_connection_is_not_dropped_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = GuardedWorld(sasl=Plain("alice", SECRET))
    world.produce(1, values(1))
    world.settle(SESSION - 1)
    world.hesitates = True
    world.produce(1, values(1, 1), acks=0)
    [held] = [each for each in world.core.links._live.values() if each._held]
    world.leave(1)
    world.core.handle(UpstreamLost(held.number, "closed by upstream"), world.now)
    [line] = [each.getMessage() for each in caplog.records if "client dropped" in each.getMessage()]
    assert "closed by upstream" in line


def test_a_renewal_behind_an_answer_that_takes_long_has_its_time_once_that_is_there() -> None:
    world = GuardedWorld(sasl=Plain("alice", SECRET), connect_timeout=2.0)
    world.produce(1, values(1))
    world.settle(SESSION - 1)
    world.slow = True
    first = world.produce(1, values(1, 1))  # the next session begins behind it
    world.settle(SESSION - 1)
    second = world.produce(1, values(1, 2))
    world.settle(15)
    handshake = world._late.pop()
    world.slow = False
    world.release()
    world._late.append(handshake)
    world.settle(1.5)
    world.release()
    assert (first.code, second.code) == (0, 0)


def test_a_connection_that_is_lost_while_its_session_is_renewed_loses_its_client_alone() -> None:
    world = GuardedWorld(sasl=Plain("alice", SECRET))
    world.produce(1, values(1))
    mine = next(link for link, asked in world.asked.items() if PRODUCE in asked)
    world.settle(SESSION - 1)
    world.hesitates = True
    reply = world.produce(1, values(1, 1))
    world.hesitates = False
    world.lose(mine)
    world.settle(1)
    assert reply.frame is None and list(world.closed) == [1]
    assert world.produce(2, values(1, 2)).code == 0


def test_a_wrong_password_is_told_with_the_user_and_never_with_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    world = GuardedWorld(sasl=Plain("alice", "wrong-secret"))
    world.settle(60)
    assert isinstance(world.core.refused, AuthenticationFailed)
    assert str(world.core.refused).endswith("user 'alice' by PLAIN is refused: Authentication failed")
    assert "authentication with" not in caplog.text, "the error of the start says it"
    assert "wrong-secret" not in caplog.text + repr(world.core.config)


def test_one_address_that_refuses_the_proxy_is_not_all_of_upstream() -> None:
    config = ProxyConfig(upstream="one:1,two:2", listen="proxy:9092", tls=TLS(ca=text(trustme.CA().cert_pem)))
    core = ProxyCore(config, (("one", 1), ("two", 2)), Random(1))
    now = 1.0
    for refused in (False, True):
        [wanted] = [each for each in core.poll(now) if isinstance(each, ConnectUpstream)]
        server = serving_side(trustme.CA())
        core.handle(UpstreamConnected(wanted.link), now)
        [hello] = [each for each in core.poll(now) if isinstance(each, SendUpstream)]
        core.handle(UpstreamReceived(wanted.link, server.feed(b"".join(hello.parts))), now)
        core.poll(now)
        assert (core.refused is not None) is refused
        now += 5.0


def test_connections_wait_for_a_token_which_is_fetched_again_until_there_is_one() -> None:
    failures = 3

    def token() -> Token:
        nonlocal failures
        if failures:
            failures -= 1
            raise ConnectionLost("the endpoint cannot be reached")
        return Token("tok", time.time() + 3600)

    world = GuardedWorld(sasl=OAuthBearer(token))
    assert not world.asked and world.fetches == 1
    assert "token refresh failed: the endpoint cannot be reached" in str(world.core.unreachable())
    world.settle(8)
    assert world.fetches == 4
    assert world.produce(1, values(1)).code == 0


def test_a_token_that_is_refused_for_good_ends_the_attempt() -> None:
    def token() -> Token:
        raise AuthenticationFailed("the endpoint gives client 'billing' no token")

    world = GuardedWorld(sasl=OAuthBearer(token))
    assert "gives client 'billing' no token" in str(world.core.refused)


def test_what_passes_within_tls_is_what_passes_without() -> None:
    ca = trustme.CA()
    config = ProxyConfig(upstream="broker:9000", listen="proxy:9092", tls=TLS(ca=text(ca.cert_pem)))
    core = ProxyCore(config, (("broker", 9000),), Random(1))
    [wanted] = core.poll(1.0)
    assert isinstance(wanted, ConnectUpstream)
    server, reader = serving_side(ca), FrameReader()
    upstream = Upstream({"t": 1})
    asked: list[int] = []
    core.handle(UpstreamConnected(wanted.link), 1.0)
    while sends := [each for each in core.poll(1.0) if isinstance(each, SendUpstream)]:
        for each in sends:
            back = [server.feed(b"".join(each.parts))]
            for frame in reader.feed(b"".join(iter(lambda: server.read(2**20), b""))):
                request = parse_request(frame)
                asked.append(request.header.api_key)
                answer, _ = upstream.answer(0, bytes(frame))
                assert answer is not None
                back += server.seal((len(answer).to_bytes(4, "big") + answer,))
            for data in filter(None, back):
                core.handle(UpstreamReceived(wanted.link, data), 1.0)
    assert asked[:2] == [VERSIONS, 3]


def test_upstream_that_ends_tls_has_closed_the_connection() -> None:
    ca = trustme.CA()
    config = ProxyConfig(upstream="broker:9000", listen="proxy:9092", tls=TLS(ca=text(ca.cert_pem)))
    core = ProxyCore(config, (("broker", 9000),), Random(1))
    [wanted] = core.poll(1.0)
    assert isinstance(wanted, ConnectUpstream)
    server = serving_side(ca)
    core.handle(UpstreamConnected(wanted.link), 1.0)
    while not server.agreed:
        for each in core.poll(1.0):
            if isinstance(each, SendUpstream):
                core.handle(UpstreamReceived(wanted.link, server.feed(b"".join(each.parts))), 1.0)
    core.poll(1.0)
    core.handle(UpstreamReceived(wanted.link, server.finish()), 1.0)
    assert DisconnectUpstream(wanted.link) in core.poll(1.0)
    assert "closed by upstream" in str(core.unreachable())


def test_a_certificate_that_is_not_trusted_is_told(caplog: pytest.LogCaptureFixture) -> None:
    config = ProxyConfig(upstream="broker:9000", listen="proxy:9092", tls=TLS(ca=text(trustme.CA().cert_pem)))
    core = ProxyCore(config, (("broker", 9000),), Random(1))
    [wanted] = core.poll(1.0)
    assert isinstance(wanted, ConnectUpstream)
    server = serving_side(trustme.CA())
    core.handle(UpstreamConnected(wanted.link), 1.0)
    [hello] = [each for each in core.poll(1.0) if isinstance(each, SendUpstream)]
    core.handle(UpstreamReceived(wanted.link, server.feed(b"".join(hello.parts))), 1.0)
    assert "the broker's certificate is not trusted" in str(core.refused)
    assert "upstream broker:9000" in str(core.refused)


def test_a_listener_that_wants_tls_is_recognised() -> None:
    core = ProxyCore(ProxyConfig(upstream="broker:9000", listen="proxy:9092"), (("broker", 9000),), Random(1))
    [wanted] = core.poll(1.0)
    assert isinstance(wanted, ConnectUpstream)
    core.handle(UpstreamConnected(wanted.link), 1.0)
    core.handle(UpstreamLost(wanted.link, "closed by upstream"), 1.0)
    assert "listeners with TLS" in str(core.unreachable())
