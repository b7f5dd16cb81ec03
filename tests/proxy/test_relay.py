"""Clients that log in to upstream itself, through the proxy: mode `relay`."""

from collections import defaultdict
from typing import Any

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.frames import parse_request
from ottla.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from ottla.proxy.config import ProxyConfig
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.proxy.upstream.recognition import HOLDS, PAUSE
from ottla.sasl import Plain
from ottla.sasl_server.settings import SaslSettings
from tests.proxy.simulated import PROXY_PORT, Reply, World, batch
from tests.proxy.test_upstream_security import AUTHENTICATE, HANDSHAKE, SECRET, VERSIONS, Guarded

METADATA = MetadataRequest(topics=None)


class Relaying(World):
    """Keeps the requests of each upstream connection, and the tokens in them."""

    def __init__(self, *mechanisms: str) -> None:
        self.asked: dict[int, list[int]] = defaultdict(list)
        self.tokens: dict[int, list[bytes]] = defaultdict(list)
        listener = ProxyListener(
            protocol="SASL_PLAINTEXT",  # type: ignore[arg-type]
            host="proxy",
            port=PROXY_PORT,
            mode=ClientMode.RELAY,
            sasl=SaslSettings(mechanisms=mechanisms or ("PLAIN",), relayed=True),
        )
        super().__init__(Guarded({"t": 1}), listeners=(listener,), sasl=Plain("proxy", SECRET))

    def _send(self, link: int, frame: bytes) -> None:
        request = parse_request(frame)
        self.asked[link].append(request.header.api_key)
        if isinstance(request.message, SaslAuthenticateRequest):
            self.tokens[link].append(bytes(request.message.auth_bytes))
        super()._send(link, frame)

    def log_in(self, client: int, password: str = SECRET, user: str = "alice") -> Reply:
        shaken = self.request(client, SaslHandshakeRequest(mechanism="PLAIN"), 1).parsed(SaslHandshakeResponse)
        assert shaken.error_code == 0 and shaken.mechanisms == ("PLAIN",)
        return self.request(client, SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)

    def link_of(self, user: str) -> list[int]:
        return [link for link, tokens in self.tokens.items() if any(user.encode() in each for each in tokens)]


def test_a_client_logs_in_to_upstream_on_a_connection_of_its_own() -> None:
    world = Relaying()
    for client, user in ((1, "alice"), (2, "bob")):
        versions = world.request(client, ApiVersionsRequest(), 3).parsed(ApiVersionsResponse)
        offered = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
        assert offered[HANDSHAKE] == (1, 1) and offered[AUTHENTICATE] == (0, 1)
        assert world.log_in(client, user=user).parsed(SaslAuthenticateResponse).error_code == 0
        answer = world.request(client, METADATA, 9).parsed(MetadataResponse)
        assert [each.host for each in answer.brokers] == ["proxy"]
    for user in ("alice", "bob"):
        (link,) = world.link_of(user)
        assert world.asked[link] == [VERSIONS, HANDSHAKE, AUTHENTICATE, 3, 3], "the proxy checks the cluster first"
    assert len(world.link_of("proxy")) == 2, "one for metadata, one to recognize the broker for both clients"


def test_no_client_logs_in_to_another_cluster() -> None:
    world = Relaying()
    world.log_in(1)
    world.upstream.cluster.cluster_id = "other"
    world.kill(0)
    world.upstream.down.clear()
    world.settle(HOLDS)
    seen = dict(world.tokens)
    world.request(2, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert "is cluster other, but this proxy's records are for cluster cluster" in world.closed[2]
    new = [token for link, tokens in world.tokens.items() if link not in seen for token in tokens]
    assert new and all(token.startswith(b"\0proxy\0") for token in new)
    world.upstream.cluster.cluster_id = "cluster"
    world.settle(PAUSE)
    assert world.log_in(3).parsed(SaslAuthenticateResponse).error_code == 0, "upstream has its address again"


def test_a_cluster_that_has_just_taken_the_address_gets_no_request_behind_the_login() -> None:
    world = Relaying()
    world.log_in(1)
    world.upstream.cluster.cluster_id = "other"
    answer = world.log_in(2, user="bob")
    assert answer.frame is None and "is cluster other" in world.closed[2] and not world.welcomed[1:]
    (link,) = world.link_of("bob")
    assert world.asked[link] == [VERSIONS, HANDSHAKE, AUTHENTICATE, 3]


def test_a_connection_that_takes_long_to_open_carries_no_login() -> None:
    world = Relaying()
    world.log_in(1)
    connect, late = world._connect, list[tuple[int, Any]]()
    world._connect = lambda link, address: late.append((link, address))  # type: ignore[method-assign]
    world.request(2, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.settle(HOLDS + 0.1)
    for each in late:
        connect(*each)
    world.settle()
    assert "it took too long to connect" in world.closed[2]


def test_a_broker_that_has_shown_another_cluster_gets_no_further_login() -> None:
    world = Relaying()
    world.log_in(1)
    world.upstream.cluster.cluster_id = "other"
    for client in range(2, 30):
        world.request(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if client not in world.closed:
            world.request(client, SaslAuthenticateRequest(auth_bytes=b"\0bob\0tell-nobody"), 2)
        world.settle(0.1)
    assert len(world.link_of("bob")) == 1 and len(world.closed) == 28


def test_a_connection_that_is_lost_on_the_way_holds_up_no_login() -> None:
    world = Relaying()
    connect, swallowed = world._connect, list[int]()
    world._connect = lambda link, address: swallowed.append(link)  # type: ignore[method-assign]
    shaken = world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert len(swallowed) == 1
    world._connect = connect  # type: ignore[method-assign]
    world.settle(2.1)
    assert shaken.parsed(SaslHandshakeResponse).error_code == 0
    assert not world.core.links._recognition._probes, "the swallowed one is closed"


def test_clients_that_come_in_any_number_cause_one_login_of_the_proxy_a_second() -> None:
    world = Relaying()
    world.upstream.bend = lambda request, answer: (
        SaslAuthenticateResponse(error_code=SaslAuthenticationFailed.code, error_message="no", auth_bytes=b"")
        if isinstance(request, SaslAuthenticateRequest)
        else answer
    )
    seen = len(world.link_of("proxy"))
    for client in range(100):
        world.request(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        world.settle(0.05)
    assert 4 <= len(world.link_of("proxy")) - seen <= 6
    world.settle(2 * PAUSE)
    assert len(world.closed) == 100
    assert all("upstream broker:9000 is not recognized: " in why for why in world.closed.values())


def test_a_broker_that_does_not_let_the_proxy_in_gets_no_password_of_a_client() -> None:
    world = Relaying()
    world.upstream.bend = lambda request, answer: (
        SaslAuthenticateResponse(error_code=SaslAuthenticationFailed.code, error_message="no", auth_bytes=b"")
        if isinstance(request, SaslAuthenticateRequest)
        else answer
    )
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert "upstream broker:9000" in world.closed[1] and not world.link_of("alice")


def test_clients_that_wait_for_a_silent_broker_are_closed_in_time() -> None:
    world = Relaying()
    world.upstream.bend = lambda request, answer: None if isinstance(request, SaslAuthenticateRequest) else answer
    for client in (1, 2):
        world.request(client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.settle(world.core.config.connect_timeout + 1)
    assert all("the broker was not recognized in time" in world.closed[client] for client in (1, 2))


def test_records_and_producer_ids_pass_as_they_are() -> None:
    world = Relaying()
    world.log_in(1)
    assert world.produce(1, {("t", 0): batch([(None, b"v")])}).code == 0
    world.request(1, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1), 4)
    (link,) = world.link_of("alice")
    assert world.asked[link][-2:] == [0, 22] and world.upstream.values("t") == [b"v"]


def test_a_wrong_password_is_upstreams_to_refuse() -> None:
    world = Relaying()
    answer = world.log_in(1, "wrong").parsed(SaslAuthenticateResponse)
    assert answer.error_code == SaslAuthenticationFailed.code and answer.error_message == "Authentication failed"
    assert world.refused == {1: "upstream refuses user 'alice' by PLAIN"}
    world.request(1, METADATA, 9)
    assert "Metadata came before SaslHandshake" in world.closed[1]


def test_the_log_names_a_user_of_scram_whom_upstream_refuses() -> None:
    world = Relaying("SCRAM-SHA-512")
    answers = iter((0, SaslAuthenticationFailed.code))
    world.upstream.bend = lambda request, answer: (
        SaslHandshakeResponse(error_code=0, mechanisms=("SCRAM-SHA-512",))
        if isinstance(request, SaslHandshakeRequest)
        else SaslAuthenticateResponse(error_code=next(answers), error_message=None, auth_bytes=b"r=1")
        if isinstance(request, SaslAuthenticateRequest)
        else answer
    )
    world.request(1, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
    for token in (b"n,,n=al=2Cice,r=1", b"c=biws,r=1,p=x"):
        world.request(1, SaslAuthenticateRequest(auth_bytes=token), 2)
    assert world.refused == {1: "upstream refuses user 'al,ice' by SCRAM-SHA-512"}


def test_the_log_says_that_upstream_lacks_the_mechanism() -> None:
    world = Relaying("PLAIN")
    world.upstream.bend = lambda request, answer: (
        SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=("SCRAM-SHA-512", "GSSAPI"))
        if isinstance(request, SaslHandshakeRequest) and len(world.asked) > 2
        else answer
    )
    world.request(1, METADATA, 9)
    world.request(2, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert world.refused == {2: "upstream does not accept PLAIN, but SCRAM-SHA-512, GSSAPI"}


def test_the_log_says_that_upstream_refuses_a_handshake_that_comes_too_soon() -> None:
    world = Relaying()
    world.log_in(1)
    world.upstream.bend = lambda request, answer: (
        SaslHandshakeResponse(error_code=IllegalSaslState.code, mechanisms=("PLAIN",))
        if isinstance(request, SaslHandshakeRequest)
        else answer
    )
    answer = world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1).parsed(SaslHandshakeResponse)
    assert answer.error_code == IllegalSaslState.code
    assert world.refused[1].startswith("upstream refuses SaslHandshake: ILLEGAL_SASL_STATE")


@pytest.mark.parametrize(
    ("message", "version", "says"),
    [
        (METADATA, 9, "Metadata came before SaslHandshake: this listener requires SASL"),
        (SaslAuthenticateRequest(auth_bytes=b"x"), 2, "SaslAuthenticate came before SaslHandshake"),
        (SaslHandshakeRequest(mechanism="PLAIN"), 0, "SaslHandshake version 0 was not offered"),
    ],
)
def test_a_stranger_reaches_nothing(message: Any, version: int, says: str) -> None:
    world = Relaying()
    links = len(world.asked)
    world.request(1, message, version)
    assert says in world.closed[1]
    assert len(world.asked) == links, "no connection to upstream"


def test_a_mechanism_that_the_listener_does_not_relay_is_refused_here() -> None:
    world = Relaying("SCRAM-SHA-512")
    for mechanism in ("GSSAPI", "PLAIN"):
        answer = world.request(1, SaslHandshakeRequest(mechanism=mechanism), 1).parsed(SaslHandshakeResponse)
        assert answer.error_code == UnsupportedSaslMechanism.code and answer.mechanisms == ("SCRAM-SHA-512",)
    assert not world.link_of("alice")


def test_scram_is_done_after_its_second_answer() -> None:
    world = Relaying("SCRAM-SHA-512")
    world.upstream.bend = lambda request, answer: (
        SaslHandshakeResponse(error_code=0, mechanisms=("SCRAM-SHA-512", "GSSAPI"))
        if isinstance(request, SaslHandshakeRequest)
        else SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"r=1")
        if isinstance(request, SaslAuthenticateRequest)
        else answer
    )
    world.request(1, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
    world.request(1, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=1"), 2)
    early = world.request(1, METADATA, 9)
    assert early.frame is None and "before SaslHandshake" in world.closed.pop(1)
    world.request(2, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
    for _ in range(2):
        world.request(2, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=1"), 2)
    assert world.request(2, METADATA, 9).frame is not None


def test_a_refused_token_is_no_login_and_its_client_gets_the_error() -> None:
    world, refused = Relaying("OAUTHBEARER"), SaslAuthenticationFailed.code
    world.upstream.bend = lambda request, answer: (
        SaslAuthenticateResponse(error_code=refused, error_message="no", auth_bytes=b"")
        if isinstance(request, SaslAuthenticateRequest) and request.auth_bytes == b"\x01"
        else SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b'{"status":"invalid_token"}')
        if isinstance(request, SaslAuthenticateRequest)
        else answer
    )
    for client in (1, 2):
        world.request(client, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        world.request(client, SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer x\x01\x01"), 2)
    assert world.request(1, METADATA, 9).frame is None and "before SaslHandshake" in world.closed[1]
    answer = world.request(2, SaslAuthenticateRequest(auth_bytes=b"\x01"), 2).parsed(SaslAuthenticateResponse)
    assert answer.error_code == refused
    assert world.request(2, METADATA, 9).frame is None and "before SaslHandshake" in world.closed[2]


def test_no_exchange_begins_within_another() -> None:
    world = Relaying("SCRAM-SHA-512", "PLAIN")
    world.request(1, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
    assert world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1).frame is None
    assert "before the exchange under way has ended" in world.closed[1]


def test_the_listener_learns_which_clients_have_logged_in() -> None:
    world = Relaying()
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert not world.welcomed
    world.log_in(2)
    assert world.welcomed == [2]


def test_a_client_ends_with_its_upstream_connection() -> None:
    world = Relaying()
    world.log_in(1)
    (link,) = world.link_of("alice")
    world.lose(link)
    world.settle()
    assert 1 in world.closed
    assert len(world.link_of("alice")) == 1, "what came after it would be nobody's"


def test_a_relay_has_no_credentials_in_its_configuration() -> None:
    world = Relaying()
    config = world.core.config
    assert isinstance(config, ProxyConfig) and config.users is None and config.acls is None
    assert SECRET not in repr(config)
