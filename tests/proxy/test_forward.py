"""Clients that log in to upstream, and as whose users the proxy sends their records: mode `forward`."""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
import trustme

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.frames import build_request, build_response, parse_request
from ottla.errors import (
    InvalidProducerEpoch,
    ProducerFenced,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.proxy.clients.carried import INIT_PRODUCER_ID
from ottla.proxy.clients.offering import AUTHENTICATE, HANDSHAKE
from ottla.proxy.events import Left
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.proxy.upstream.principals import _LATE_REFUSAL
from ottla.proxy.upstream.recognition import HOLDS
from ottla.sasl import Plain
from ottla.sasl_server.settings import SaslSettings
from tests import tls
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, PROXY_PORT, UNIX_TIME, Reply, Upstream, World, batch

METADATA = MetadataRequest(topics=None)
PASSWORDS = {"alice": "secret-of-alice", "bob": "secret-of-bob", "proxy": "secret-of-the-proxy"}
CA = trustme.CA()


def jwt(**claims: Any) -> str:
    """A token without a signature; upstream is a model that accepts it."""
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({}, claims, 0)
    )


class Guarded(Upstream):
    """Knows users by `PASSWORDS`, and any token.

    Attributes:
        lifetime: seconds of a session; 0: it ends with its connection.
        passwords: the current ones.
        may_write: who may write; ``None``: everyone.
    """

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.cluster.release |= {17: (0, 1), 36: (0, 1)}
        self.lifetime = 0.0
        self.passwords = dict(PASSWORDS)
        self.may_write: set[str] | None = None

    def _answer(self, node: int, version: int, message: Any) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN", "OAUTHBEARER"))
        if not isinstance(message, SaslAuthenticateRequest):
            return super()._answer(node, version, message)
        token = bytes(message.auth_bytes)
        bearer = token.startswith(b"n,")
        right = bearer or any(token == plain(*each) for each in self.passwords.items())
        code, said = (0, None) if right else (SaslAuthenticationFailed.code, "Authentication failed: said by upstream")
        lifetime = int(self.lifetime * 1000)
        return SaslAuthenticateResponse(
            error_code=code, error_message=said, auth_bytes=b"", session_lifetime_ms=lifetime
        )


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


class Forwarding(World):
    """Keeps who has logged in on each upstream connection, and as whom records came."""

    upstream: Guarded

    def __init__(self, *rules: str, claim: str = "sub", **options: Any) -> None:
        self.tokens: dict[int, bytes] = {}
        self.asked: dict[int, list[int]] = defaultdict(list)
        self.writers: list[str] = []
        """The user of each Produce request."""
        listener = ProxyListener(
            protocol="SASL_SSL",  # type: ignore[arg-type]
            host="proxy",
            port=PROXY_PORT,
            mode=ClientMode.FORWARD,
            tls=tls.serving(CA, "proxy"),
            sasl=SaslSettings(mechanisms=("PLAIN", "OAUTHBEARER"), relayed=True, claim=claim),
        )
        options = {"listeners": (listener,), "upstream_config": "upstream.properties"} | options
        super().__init__(Guarded({"t": 2}), *rules, sasl=Plain("proxy", PASSWORDS["proxy"]), **options)

    def _send(self, link: int, frame: bytes) -> None:
        request = parse_request(frame)
        key, message = request.header.api_key, request.message
        self.asked[link].append(key)
        if isinstance(message, SaslAuthenticateRequest):
            self.tokens[link] = bytes(message.auth_bytes)
        elif not isinstance(message, ApiVersionsRequest | SaslHandshakeRequest):
            assert link in self.tokens, "a request before the login"
        if isinstance(message, ProduceRequest):
            user = self.user(link)
            self.writers.append(user)
            may = self.upstream.may_write
            if may is not None and user not in may:
                for topic in message.topic_data:
                    for each in topic.partition_data:
                        name = self.upstream.cluster.name(topic)
                        self.upstream.errors[name, each.index].append(TopicAuthorizationFailed.code)
        super()._send(link, frame)

    def user(self, link: int) -> str:
        return self.tokens[link].split(b"\0")[1].decode() if b"\0" in self.tokens[link] else "a token"

    def links_of(self, user: str) -> list[int]:
        return [link for link in self.tokens if self.user(link) == user and link in self._links]

    def shake(self, client: int, mechanism: str, token: bytes, version: int = 1) -> Reply:
        shaken = self.request(client, SaslHandshakeRequest(mechanism=mechanism), 1).parsed(SaslHandshakeResponse)
        assert shaken.error_code == 0
        return self.request(client, SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, client: int, user: str, password: str | None = None) -> SaslAuthenticateResponse:
        reply = self.shake(client, "PLAIN", plain(user, password or self.upstream.passwords[user]))
        answer: SaslAuthenticateResponse = reply.parsed(SaslAuthenticateResponse)
        return answer

    def send_value(self, client: int, value: bytes, **identity: Any) -> Reply:
        reply = self.produce(client, {("t", 0): batch([(b"key", value)], **identity)})
        self.settle(1)
        return reply


def stored(world: World) -> list[bytes | None]:
    return sorted(world.upstream.values("t"), key=lambda each: each or b"")


# -- as whom records come


@pytest.mark.parametrize("rules", [(), ("t=rewrite",), ("t=fan-out",)])
def test_records_come_as_the_user_of_their_client_and_metadata_as_the_proxy(rules: tuple[str, ...]) -> None:
    world = Forwarding(*rules)
    for client, user in ((1, "alice"), (2, "bob")):
        assert world.log_in(client, user).error_code == 0
        assert world.send_value(client, user.encode()).code == 0
    assert world.writers == ["alice", "bob"] and stored(world) == [b"alice", b"bob"]
    assert 0 not in world.asked[world.links_of("proxy")[0]]
    answer = world.request(1, METADATA, 9).parsed(MetadataResponse)
    assert [each.host for each in answer.brokers] == ["proxy"]


def test_a_wrong_password_is_answered_with_upstreams_error() -> None:
    world = Forwarding("t=rewrite")
    answer = world.log_in(1, "alice", "wrong")
    assert answer.error_code == SaslAuthenticationFailed.code
    assert answer.error_message == "Authentication failed: said by upstream"
    world.send_value(1, b"v")
    assert "before SaslHandshake" in world.closed[1] and not world.writers


def test_a_wrong_password_is_the_clients_fault_in_the_log_too() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice", "wrong")
    assert world.refused == {1: "upstream refuses user 'alice' by PLAIN"}
    [link] = world.links_of("alice")
    world.lose(link)
    world.settle()
    assert world.closed.keys() == {1} and not world.logged, "a second line would blame upstream"


def test_a_login_that_succeeds_later_ends_the_refusal() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice", "wrong")
    world.log_in(1, "alice")
    world.lose(world.links_of("alice")[0])
    world.settle()
    assert world.logged.keys() == {1}


@pytest.mark.parametrize(
    ("token", "who"),
    [
        (plain("mallory\n\x1b", "x"), "user 'mallory\\n\\x1b'"),
        (plain("a" * 1000, "x"), f"user '{'a' * 199}"),
        (b"no such thing", "a client"),
        (b"\0\xff\0x", "a client"),
    ],
)
def test_the_name_in_the_line_is_escaped_and_cut_off(token: bytes, who: str) -> None:
    world = Forwarding()
    world.shake(1, "PLAIN", token)
    assert world.refused == {1: f"upstream refuses {who} by PLAIN"}


def test_upstreams_rights_apply_to_the_user_also_where_records_are_rewritten() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.may_write = {"bob", "proxy"}
    for client, user in ((1, "alice"), (2, "bob")):
        world.log_in(client, user)
    assert world.send_value(1, b"of alice").code == TopicAuthorizationFailed.code
    assert world.send_value(2, b"of bob").code == 0
    assert stored(world) == [b"of bob"]


def test_a_client_without_rights_that_awaits_no_answer_is_disconnected() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.may_write = set()
    world.log_in(1, "alice")
    world.produce(1, {("t", 0): batch([(b"key", b"v")])}, acks=0)
    world.settle(1)
    assert 1 in world.closed and not stored(world)


def test_records_and_credentials_wait_while_another_cluster_has_the_address_of_upstream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    assert world.send_value(1, b"0").code == 0
    world.settle(HOLDS)
    seen = set(world.tokens)
    world.upstream.cluster.cluster_id = "other"
    for link in world.links_of("proxy"):
        world.lose(link)
    cut(world, "alice")
    world.send_value(1, b"1")
    world.settle(10)
    assert {world.user(link) for link in world.tokens.keys() - seen} == {"proxy"} and stored(world) == [b"0"]
    assert [each for each in caplog.messages if "wait" in each or "refuses" in each][1:] == []
    assert "broker does not answer, its records wait: upstream broker:9000 is not recognized: " in caplog.text
    world.upstream.cluster.cluster_id = "cluster"
    world.settle(20)
    assert stored(world) == [b"0", b"1"]


def test_a_producer_of_the_proxy_that_is_lent_serves_the_clients_of_one_user() -> None:
    world = Forwarding("t=rewrite")
    ids = {}
    for client, user in ((1, "alice"), (2, "bob"), (3, "alice")):
        world.log_in(client, user)
        assert world.send_value(client, b"v").code == 0
        ids[client] = world.core.delivery.lent.to(client).producer_id
        world.leave(client)
    assert world.writers == ["alice", "bob", "alice"]
    assert ids[1] == ids[3] != ids[2]


def test_the_producer_id_of_another_user_is_no_way_to_its_rights() -> None:
    """Rewritten records are sent as the user of their producer."""
    world = Forwarding("t=rewrite")
    for client, user in ((1, "alice"), (2, "bob")):
        world.log_in(client, user)
    producer_id = world.producer_id(1)
    assert world.send_value(1, b"1", producer_id=producer_id, epoch=0, sequence=0).code == 0
    for sequence in (0, 1):  # a retry of alice's batch, and one more
        stolen = world.send_value(2, b"1", producer_id=producer_id, epoch=0, sequence=sequence)
        assert stolen.code == ProducerFenced.code
    assert world.writers == ["alice"] and stored(world) == [b"1"]


# -- transactions


def begun(world: Forwarding, client: int) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    reply = world.request(client, request, 4)
    world.settle(1)  # until the coordinator has aborted the transaction before
    answer = reply.parsed(InitProducerIdResponse)
    return answer.producer_id, answer.producer_epoch


def in_transaction(world: Forwarding, client: int, identity: tuple[int, int], value: bytes, sequence: int = 0) -> Reply:
    data = batch([(b"key", value)], *identity, sequence, transactional=True)
    reply = world.produce(client, {("t", 0): data}, version=12, transactional_id="tx")
    world.settle(1)
    return reply


def ended(world: Forwarding, client: int, identity: tuple[int, int], *, committed: bool) -> Reply:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=identity[0], producer_epoch=identity[1], committed=committed
    )
    return world.request(client, request, 4)


def test_another_user_can_neither_write_to_a_transaction_nor_end_it() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.cluster.transaction_version = 2
    for client, user in ((1, "alice"), (2, "bob")):
        world.log_in(client, user)
    identity = begun(world, 1)
    assert in_transaction(world, 1, identity, b"1").code == 0
    assert in_transaction(world, 2, identity, b"2", 1).code == TransactionalIdAuthorizationFailed.code
    refused = ended(world, 2, identity, committed=False).parsed(EndTxnResponse)
    assert refused.error_code == TransactionalIdAuthorizationFailed.code
    assert in_transaction(world, 1, identity, b"3", 1).code == 0
    assert ended(world, 1, identity, committed=True).parsed(EndTxnResponse).error_code == 0
    assert world.writers == ["alice", "alice"]


def test_a_transactional_id_goes_to_the_user_who_has_initialized_it_last() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.cluster.transaction_version = 2
    for client, user in ((1, "alice"), (2, "bob")):
        world.log_in(client, user)
    first = begun(world, 1)
    assert in_transaction(world, 1, first, b"1").code == 0
    assert ended(world, 1, first, committed=True).parsed(EndTxnResponse).error_code == 0
    second = begun(world, 2)
    assert in_transaction(world, 2, second, b"2").code == 0
    assert in_transaction(world, 1, first, b"3", 1).code == InvalidProducerEpoch.code
    assert world.writers == ["alice", "bob"], "the connection of alice is closed"


def test_no_record_goes_on_the_connection_of_the_user_before_while_that_is_busy() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.cluster.transaction_version = 2
    for client, user in ((1, "alice"), (2, "bob")):
        world.log_in(client, user)
    first = begun(world, 1)
    world.slow = True
    in_transaction(world, 1, first, b"1")
    second = begun(world, 2)
    reply = in_transaction(world, 2, second, b"2")
    assert world.writers == ["alice"] and reply.frame is None
    world.slow = False
    world.release()
    world.settle(1)
    assert world.writers == ["alice", "bob"] and reply.code == 0


# -- tokens


def test_the_user_of_a_token_is_a_claim_of_it() -> None:
    world = Forwarding("t=rewrite", claim="azp")
    for client, claims in ((1, {"sub": "x", "azp": "alice"}), (2, {"sub": "x", "azp": "bob"})):
        answer = world.shake(client, "OAUTHBEARER", bearer(jwt(**claims))).parsed(SaslAuthenticateResponse)
        assert answer.error_code == 0
        assert world.send_value(client, b"v").code == 0
    assert {bytes(each) for each in world.tokens.values()} >= {
        bearer(jwt(sub="x", azp=who)) for who in ("alice", "bob")
    }
    assert [session.principal for session in world.core._sessions.values()] == ["User:alice", "User:bob"]


@pytest.mark.parametrize("token", [bearer("opaque"), bearer(jwt(azp="alice")), bearer(jwt(sub=7)), b"n,,\x01x\x01\x01"])
def test_a_token_without_a_name_that_the_proxy_can_read_closes_the_connection(token: bytes) -> None:
    world = Forwarding("t=rewrite")
    world.shake(1, "OAUTHBEARER", token)
    assert world.closed[1] == "the claim sub cannot be read from the client's token, though upstream accepts it"


def test_a_token_that_upstream_refuses_is_not_kept() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.bend = lambda request, answer: (
        SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b'{"status":"invalid_token"}')
        if isinstance(request, SaslAuthenticateRequest)
        else answer
    )
    world.shake(1, "OAUTHBEARER", bearer(jwt(sub="alice")))
    world.request(1, METADATA, 9)
    assert "before SaslHandshake" in world.closed[1]
    assert world.core.principals.named("User:alice").sasl is None


class Trusting(Forwarding):
    """Upstream refuses tokens without a signature by a message, as Kafka does, and then takes another one."""

    def __init__(self) -> None:
        super().__init__("t=rewrite")
        self.upstream.bend = lambda request, answer: (
            SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b'{"status":"invalid_token"}')
            if isinstance(request, SaslAuthenticateRequest) and bytes(request.auth_bytes) == FORGED
            else answer
        )


FORGED = bearer(jwt(sub="alice"))


def test_the_user_is_that_of_the_token_which_upstream_has_accepted() -> None:
    world = Trusting()
    world.shake(2, "OAUTHBEARER", FORGED)
    again = world.request(2, SaslAuthenticateRequest(auth_bytes=bearer(jwt(sub="mallory"))), 1)
    assert again.parsed(SaslAuthenticateResponse).error_code == 0
    assert world.core._sessions[2].principal == "User:mallory"
    assert world.core.principals.named("User:alice").sasl is None


def test_requests_of_a_login_come_one_at_a_time() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.bend = lambda request, answer: None if isinstance(request, SaslHandshakeRequest) else answer
    world.request(2, SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    world.request(2, SaslAuthenticateRequest(auth_bytes=FORGED), 1)
    assert world.closed[2] == "a request of SASL came before the answer to the previous one"


def test_a_request_of_a_login_has_a_limit() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.request(1, SaslAuthenticateRequest(auth_bytes=bytes(2**19)), 1)
    assert "it may have 524288" in world.closed[1]


@pytest.mark.parametrize("name", ["\ud800", "x" * 1001])
def test_a_user_whose_name_the_journal_cannot_store_is_disconnected(name: str) -> None:
    world = Forwarding("t=rewrite")
    world.shake(1, "OAUTHBEARER", bearer(jwt(sub=name)))
    assert "cannot be read from the client's token" in world.closed[1]


def test_credentials_that_upstream_refuses_are_dropped_however_often_their_user_logs_in() -> None:
    world, bad = Forwarding("t=rewrite"), bearer(jwt(sub="alice", jti=0))
    world.shake(1, "OAUTHBEARER", bad)  # its session never ends
    world.leave(1)
    world.upstream.bend = lambda request, answer: (
        SaslAuthenticateResponse(error_code=SaslAuthenticationFailed.code, error_message="x", auth_bytes=b"")
        if isinstance(request, SaslAuthenticateRequest) and bytes(request.auth_bytes) == bad
        else answer
    )
    world.upstream.lifetime = 300.0
    for number in range(2, 22):
        world.shake(number, "OAUTHBEARER", bearer(jwt(sub="alice", jti=number)))
        world.send_value(number, b"%d" % number)
        world.settle(4)
    assert len(stored(world)) == 20


def test_another_user_on_the_same_connection_closes_it() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    world.shake(1, "PLAIN", plain("bob", PASSWORDS["bob"]))
    assert world.closed[1] == "another user has logged in on the connection"


# -- sessions


@pytest.mark.parametrize("version", [0, 1])
def test_a_session_lives_no_longer_than_upstreams(version: int) -> None:
    """Records for rewritten topics never reach the connection on which upstream would notice it."""
    world = Forwarding("t=rewrite")
    world.upstream.lifetime = 60.0
    answer = world.shake(1, "PLAIN", plain("alice", PASSWORDS["alice"]), version).parsed(SaslAuthenticateResponse)
    assert answer.session_lifetime_ms == 60_000 * version
    world.settle(59)
    assert world.send_value(1, b"1").code == 0
    world.settle(2)
    assert world.send_value(1, b"2").frame is None
    assert world.closed[1] == "the session of the client has ended, and was not renewed"
    assert stored(world) == [b"1"]


def test_a_client_renews_its_session_and_the_proxy_its_own_with_the_new_token() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.lifetime = 60.0
    tokens = [bearer(jwt(sub="alice", jti=number)) for number in range(3)]
    for number, token in enumerate(tokens):
        world.shake(1, "OAUTHBEARER", token)
        assert world.send_value(1, b"%d" % number).code == 0
        world.settle(55)
    assert stored(world) == [b"0", b"1", b"2"] and not world.closed
    producing = [link for link, asked in world.asked.items() if 0 in asked]
    assert [world.tokens[link] for link in producing] == [tokens[2]]


def test_the_credentials_with_the_longest_session_count() -> None:
    world = Forwarding("t=rewrite")
    for client, lifetime in ((1, 300.0), (2, 60.0)):
        world.upstream.lifetime = lifetime
        world.shake(client, "OAUTHBEARER", bearer(jwt(sub="alice", jti=client)))
    world.settle(100)
    assert world.send_value(1, b"v").code == 0
    assert [*world.tokens.values()][-1] == bearer(jwt(sub="alice", jti=1))


def test_a_session_without_a_length_ends_with_its_token() -> None:
    world = Forwarding("t=rewrite")
    world.shake(1, "OAUTHBEARER", bearer(jwt(sub="alice", exp=UNIX_TIME + 50)))
    assert world.send_value(1, b"1").code == 0
    world.settle(60)
    assert world.send_value(1, b"2").frame is None
    assert world.closed[1] == "the session of the client has ended, and was not renewed"
    assert stored(world) == [b"1"]


def test_the_end_of_a_token_is_told_by_the_time_of_day_at_its_login() -> None:
    world = Forwarding("t=rewrite")
    world.slept = 970.0  # meanwhile the clock of the events stands still
    world.shake(1, "OAUTHBEARER", bearer(jwt(sub="alice", exp=UNIX_TIME + 1000)))
    assert world.send_value(1, b"1").code == 0
    world.settle(40)
    assert world.send_value(1, b"2").frame is None and "has ended" in world.closed[1]


@pytest.mark.parametrize("renewing", [False, True])
def test_a_token_that_is_over_but_within_upstreams_clock_skew_harms_no_other_client(renewing: bool) -> None:
    """Apache Kafka lets it in, with a session of no length, and closes the connection at the next request."""
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    assert world.send_value(1, b"1").code == 0
    if renewing:
        world.shake(2, "OAUTHBEARER", bearer(jwt(sub="alice", exp=UNIX_TIME + 50)))
        assert world.send_value(2, b"2").code == 0
    over = bearer(jwt(sub="alice", exp=UNIX_TIME - 20))
    assert world.shake(2, "OAUTHBEARER", over).parsed(SaslAuthenticateResponse).error_code == 0
    assert world.send_value(2, b"3").frame is None
    assert world.closed == {2: "the session of the client has ended, and was not renewed"}
    cut(world, "alice")
    assert world.send_value(1, b"4").code == 0
    assert over not in [world.tokens[link] for link, asked in world.asked.items() if 0 in asked]


@pytest.mark.parametrize("authenticates", [False, True])
def test_no_record_is_accepted_while_a_client_authenticates_again(authenticates: bool) -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    if authenticates:
        again = SaslAuthenticateRequest(auth_bytes=plain("alice", "a guess"))
        world.arrive(1, build_request(again, 1, 1, "client")[4:], 1)
    assert world.produce(1, {("t", 0): batch([(b"key", b"value")])}).frame is None
    assert "Produce came before the client had authenticated again" in world.closed[1]
    assert not stored(world)


# -- credentials that upstream does not accept any more


def cut(world: Forwarding, user: str) -> None:
    for link in world.links_of(user):
        if 0 in world.asked[link] and 3 not in world.asked[link][4:]:
            world.lose(link)
    world.settle()


def test_a_client_that_authenticates_again_has_its_earlier_requests_answered_first() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    (link,) = world.links_of("alice")
    world.upstream.busy = 2  # the proxy repeats InitProducerId
    initialize = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    initialized = world.request(1, initialize, 4)
    shaken = world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert initialized.frame is None and shaken.frame is None and HANDSHAKE not in world.asked[link][4:]
    world.settle(1)
    assert initialized.parsed(InitProducerIdResponse).error_code == 0
    assert shaken.parsed(SaslHandshakeResponse).error_code == 0
    proven = world.request(1, SaslAuthenticateRequest(auth_bytes=plain("alice", PASSWORDS["alice"])), 1)
    assert proven.parsed(SaslAuthenticateResponse).error_code == 0
    assert world.asked[link][4:] == [INIT_PRODUCER_ID] * 3 + [HANDSHAKE, AUTHENTICATE, 3]


def test_a_handshake_that_waits_for_records_that_wait_for_a_login_ends_the_connection() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.lifetime = 60.0
    world.log_in(1, "alice")
    world.settle(50)
    world.upstream.fate = lambda request: CUT_BEFORE
    sent = world.produce(1, {("t", 0): batch([(b"key", b"v")])})
    world.settle(5)
    shaken = world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.settle(4)
    assert sent.frame is None and shaken.frame is None and 1 not in world.closed
    world.settle(2)
    assert world.closed[1] == "records of its user wait for a new login"
    world.upstream.fate = lambda request: ANSWERED
    world.log_in(2, "alice")
    world.settle(5)
    assert stored(world) == [b"v"]


def test_a_handshake_waits_for_a_slow_request_even_if_the_session_ends_meanwhile() -> None:
    world = Forwarding("t=rewrite")
    world.upstream.lifetime = 60.0
    world.log_in(1, "alice")
    world.upstream.bend = lambda request, answer: None if isinstance(request, MetadataRequest) else answer
    (link,) = world.links_of("alice")
    slow = world.request(1, METADATA, 9)
    shaken = world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.settle(80)
    assert slow.frame is None and shaken.frame is None and not world.closed
    number = world.core.links._live[link]._expected[0].correlation_id
    late = MetadataResponse(brokers=(), cluster_id="cluster", controller_id=0, topics=())
    world.receive(link, build_response(late, 9, number))
    assert slow.frame is not None and shaken.frame is not None


def test_a_client_that_leaves_while_its_handshake_waits_has_its_requests_carried_out() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    (link,) = world.links_of("alice")
    world.upstream.busy = 1
    world.request(1, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 4)
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.core.handle(Left(1), world.now)
    world.settle(1)
    assert link in world.finished and world.core.idle and not world.core.buffered.total


def test_a_client_that_loses_its_connection_while_its_handshake_waits_leaves_nothing() -> None:
    world = Forwarding("t=rewrite")
    world.log_in(1, "alice")
    (link,) = world.links_of("alice")
    world.upstream.busy = 9
    world.request(1, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 4)
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    world.lose(link)
    world.settle(10)
    assert 1 in world.closed and world.core.idle and not world.core.buffered.total


def test_a_changed_password_has_clients_log_in_again_and_their_records_wait_for_that() -> None:
    world = Forwarding("t=rewrite", journal=True)
    world.log_in(1, "alice")
    producer_id = world.producer_id(1)
    assert world.send_value(1, b"0", producer_id=producer_id, epoch=0, sequence=0).code == 0
    world.settle(_LATE_REFUSAL)
    cut(world, "alice")
    world.upstream.passwords["alice"] = "another secret"
    world.send_value(1, b"1", producer_id=producer_id, epoch=0, sequence=1)
    assert world.closed[1] == "upstream refuses the password or the token with which its user has logged in"
    world.settle(30)
    assert world.log_in(2, "alice", PASSWORDS["alice"]).error_code == SaslAuthenticationFailed.code
    assert stored(world) == [b"0"]
    assert world.log_in(3, "alice").error_code == 0
    assert stored(world) == [b"0", b"1"]
    assert world.send_value(3, b"1", producer_id=producer_id, epoch=0, sequence=1).code == 0
    assert stored(world) == [b"0", b"1"]


def test_a_client_that_left_within_its_login_leaves_no_credentials_behind() -> None:
    world = Forwarding("t=rewrite", delivery_timeout=30.0)
    world.request(1, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = SaslAuthenticateRequest(auth_bytes=plain("alice", PASSWORDS["alice"]))
    alice = world.core.principals.named("User:alice")
    world.arrive(1, build_request(token, 1, 7, None)[4:], 1)
    world.core.handle(Left(1), world.now)
    world.settle(1)
    assert alice.sasl is None


def test_credentials_are_dropped_once_no_record_may_need_them() -> None:
    world = Forwarding("t=rewrite", delivery_timeout=30.0)
    world.log_in(1, "alice")
    assert world.send_value(1, b"v").code == 0
    alice = world.core.principals.named("User:alice")
    world.leave(1)
    world.settle(29)
    assert alice.sasl is not None
    world.log_in(2, "alice")
    world.settle(60)
    assert alice.sasl is not None and alice.usable(world.now)
    world.leave(2)
    world.settle(31)
    assert alice.sasl is None and not alice.usable(world.now)


# -- restarts


def unsettled(world: Forwarding, fate: str) -> dict[str, int]:
    """Have a batch of an idempotent producer of alice under way, whose response never comes; restart the proxy."""
    world.log_in(1, "alice")
    producer_id = world.producer_id(1)
    world.upstream.fate = lambda request: fate
    world.send_value(1, b"1", producer_id=producer_id, epoch=0, sequence=0)
    world.upstream.fate = lambda request: "answered"
    world.writers.clear()
    world.closed.clear()
    world.restart()
    return {"producer_id": producer_id, "epoch": 0, "sequence": 0}


@pytest.mark.parametrize("fate", [CUT_BEFORE, CUT_AFTER])
def test_after_a_restart_unsettled_records_wait_for_their_user(fate: str) -> None:
    world = Forwarding("t=rewrite", journal=True, delivery_timeout=120.0)
    identity = unsettled(world, fate)
    world.settle(60)
    assert not world.writers
    world.log_in(2, "bob")
    world.settle(50)
    assert not world.writers, "another user is not enough"
    world.log_in(3, "alice")
    world.settle()
    assert world.writers == ["alice"] and stored(world) == [b"1"]
    assert world.send_value(3, b"1", **identity).code == 0
    assert world.send_value(3, b"2", **(identity | {"sequence": 1})).code == 0
    assert stored(world) == [b"1", b"2"]


@pytest.mark.parametrize("fate", [CUT_BEFORE, CUT_AFTER])
def test_producers_of_a_user_who_does_not_come_back_in_time_are_fenced(fate: str) -> None:
    world = Forwarding("t=rewrite", journal=True, delivery_timeout=120.0)
    identity = unsettled(world, fate)
    world.settle(122)
    assert not world.writers and world.core.delivery.idle
    world.log_in(3, "alice")
    assert world.send_value(3, b"1", **identity).code == ProducerFenced.code
    assert world.send_value(3, b"2", **(identity | {"sequence": 1})).code == ProducerFenced.code
    assert not world.writers and len(stored(world)) == (fate == CUT_AFTER)
    fresh = {"producer_id": world.producer_id(3), "epoch": 0, "sequence": 0}
    assert world.send_value(3, b"3", **fresh).code == 0


def test_a_producer_id_belongs_to_its_user_after_a_restart_too() -> None:
    world = Forwarding("t=rewrite", journal=True)
    world.log_in(1, "alice")
    producer_id = world.producer_id(1)
    assert world.send_value(1, b"1", producer_id=producer_id, epoch=0, sequence=0).code == 0
    world.restart()
    world.log_in(2, "bob")
    world.log_in(3, "alice")
    assert world.send_value(2, b"2", producer_id=producer_id, epoch=0, sequence=1).code == ProducerFenced.code
    assert world.send_value(3, b"2", producer_id=producer_id, epoch=0, sequence=1).code == 0
    assert world.writers == ["alice", "alice"]


# -- secrets


def test_no_secret_reaches_the_journal_a_log_line_a_message_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    world = Forwarding("t=rewrite", journal=True, delivery_timeout=30.0)
    unsettled(world, CUT_BEFORE)
    world.log_in(2, "alice")
    world.shake(3, "OAUTHBEARER", bearer(jwt(sub="secret-of-a-token")))
    world.send_value(3, b"v")
    world.shake(4, "OAUTHBEARER", bearer("opaque-secret-of-a-token"))
    world.settle(_LATE_REFUSAL)
    world.upstream.passwords["alice"] = "another secret"
    cut(world, "alice")
    world.send_value(2, b"v")
    world.settle(40)
    written = b"".join(each.data for each in world.stored)
    assert b"User:alice" in written
    users = [session._user for session in world.core._sessions.values()]
    said: list[object] = [*world.closed.values(), *caplog.records, users, [user.sasl for user in users if user]]
    texts = [*map(str, said), *map(repr, said), *(record.getMessage() for record in caplog.records)]
    secrets: Iterable[str] = (*PASSWORDS.values(), jwt(sub="secret-of-a-token"), "opaque-secret-of-a-token")
    for secret in secrets:
        assert secret.encode() not in written
        assert not any(secret in text for text in texts)
