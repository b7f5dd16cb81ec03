"""SASL on the side of a listener: the machine alone, without a socket, a thread or a clock."""

import base64
import hashlib
import hmac
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.errors import RemoteProtocolError, SaslAuthenticationFailed
from ottla.sasl import Plain, SaslExchange, ScramSha256, ScramSha512
from ottla.sasl_server.exchanges import Check, Refused, bearer
from ottla.sasl_server.scram import HASHES, ScramCredential, credential_for, credential_of, salted_password
from ottla.sasl_server.server import SaslServer
from ottla.sasl_server.session import PassOn, SaslAnswer, SaslEnd, SaslSession, Step
from ottla.sasl_server.settings import SaslSettings
from ottla.sasl_server.users import UserTable

ALICE, SECRET = "alice", "correct horse"
SETTINGS = SaslSettings(mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"))
USERS = UserTable(
    b"s" * 32,
    {
        user: {name: credential_for(name, password, user.encode() * 4, 4096) for name in HASHES}
        for user, password in ((ALICE, SECRET), ("bob", "bob's"))
    },
)
CLIENTS = {"PLAIN": Plain, "SCRAM-SHA-256": ScramSha256, "SCRAM-SHA-512": ScramSha512}


class Peer:
    """A client of a `SaslSession`, which does the work of its checks at once.

    Attributes:
        now: the time of both clocks; the test sets it.
    """

    def __init__(self, settings: SaslSettings = SETTINGS, users: UserTable = USERS) -> None:
        self.session: SaslSession = SaslServer(settings, users, os.urandom).session()
        self.now = 1000.0
        self._numbers = itertools.count(1)

    def send(self, message: Any, version: int) -> Step:
        return self.give(frames.build_request(message, version, next(self._numbers), "me")[4:])

    def give(self, frame: bytes) -> Step:
        step = self.session.take(frame, self.now, self.now)
        while isinstance(step, Check):
            step = self.session.checked(step.work(), self.now, self.now)
        return step

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        step = self.send(SaslHandshakeRequest(mechanism=mechanism), version)
        answer: SaslHandshakeResponse = parsed(step, SaslHandshakeResponse, version)
        return answer

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        step = self.send(SaslAuthenticateRequest(auth_bytes=token), version)
        answer: SaslAuthenticateResponse = parsed(step, SaslAuthenticateResponse, version)
        return answer

    def log_in(self, mechanism: str, user: str = ALICE, password: str = SECRET) -> SaslAuthenticateResponse:
        """Run a whole exchange of our client; return its last response."""
        assert self.handshake(mechanism).error_code == 0
        exchange: SaslExchange = CLIENTS[mechanism](user, password).exchange()
        token: bytes | None = exchange.begin()
        while token is not None:
            answer = self.authenticate(token)
            if answer.error_code:
                return answer
            token = exchange.answered(answer.auth_bytes)
        return answer


def parsed(step: Step, kind: Any, version: int) -> Any:
    if isinstance(step, SaslEnd):
        assert step.answer is not None
        step = step.answer
    assert isinstance(step, SaslAnswer)
    return frames.parse_response(kind, version, step.frame[4:])[1]


# -- from the first request to the end of a session


@pytest.mark.parametrize("mechanism", SETTINGS.mechanisms)
def test_a_client_with_the_right_password_gets_in(mechanism: str) -> None:
    peer = Peer()
    assert isinstance(peer.send(ApiVersionsRequest(), 0), PassOn)
    answer = peer.log_in(mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert peer.session.principal == "User:alice"
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn)


@pytest.mark.parametrize("mechanism", SETTINGS.mechanisms)
@pytest.mark.parametrize("user", [ALICE, "nobody"])
def test_a_wrong_password_and_an_unknown_user_hear_the_same(mechanism: str, user: str) -> None:
    peer = Peer()
    answer = peer.log_in(mechanism, user, "wrong horse")
    assert answer.error_code == 58
    if mechanism == "PLAIN":
        assert answer.error_message == "Authentication failed: Invalid username or password"
    else:
        due = "invalid credentials with SASL mechanism"
        assert answer.error_message == f"Authentication failed during authentication due to {due} {mechanism}"
    assert peer.session.login is None


@pytest.mark.parametrize("mechanism", HASHES)
def test_an_unknown_user_gets_a_salt_of_the_usual_kind_that_never_changes(mechanism: str) -> None:
    def challenge(user: str, users: UserTable = USERS) -> tuple[int, int, str]:
        peer = Peer(users=users)
        peer.handshake(mechanism)
        first = peer.authenticate(f"n,,n={user},r=abc".encode()).auth_bytes.decode()
        nonce, salt, iterations = first.split(",")
        return len(nonce), len(base64.b64decode(salt[2:])), salt + iterations

    assert challenge("nobody")[:2] == challenge(ALICE)[:2]
    assert challenge("nobody") == challenge("nobody")
    assert challenge("nobody")[2] != challenge("somebody")[2]
    other = UserTable(b"t" * 32, {name: USERS.credentials(name) for name in USERS})
    assert challenge("nobody", other)[2] != challenge("nobody")[2], "otherwise anyone could compute it"


def made_by_kafkas_tools(number: int) -> bytes:
    """A salt as SecureRandom's number in base 36."""
    return b"1" + bytes(b"0123456789abcdefghijklmnopqrstuvwxyz"[each % 36] for each in os.urandom(25))


KINDS: tuple[tuple[str, int, Callable[[int], bytes], str], ...] = (
    ("SCRAM-SHA-512", 4096, lambda number: os.urandom(20), r"(?s).{20}"),
    ("SCRAM-SHA-512", 8192, made_by_kafkas_tools, "1[0-9a-z]{25}"),
    ("SCRAM-SHA-256", 16384, lambda number: os.urandom(16).hex().encode(), "[0-9a-f]{32}"),
    ("SCRAM-SHA-256", 4096, lambda number: os.urandom(100), r"(?s).{100}"),
)
"""Mechanism, iterations, salts, and a pattern that they fit."""
MANY = {
    f"user-{kind}-{number}": {name: credential_of(name, b"x" * 32, salt(number), iterations)}
    for kind, (name, iterations, salt, _) in enumerate(KINDS)
    for number in range(20)
}


def kind_of(credential: ScramCredential) -> int:
    found = [
        number
        for number, (name, iterations, _, pattern) in enumerate(KINDS)
        if (credential.mechanism, credential.iterations) == (name, iterations)
        and re.fullmatch(pattern, credential.salt.decode("latin-1"))
    ]
    assert len(found) == 1, credential.salt
    return found[0]


def test_names_without_a_user_look_like_users_of_each_kind() -> None:
    users = UserTable(b"s" * 32, MANY)
    names = [f"nobody-{number}" for number in range(400)]
    assert {kind_of(users.any_credential(each)) for each in (*MANY, *names)} == {0, 1, 2, 3}
    assert {kind_of(users.credential("SCRAM-SHA-512", each)) for each in names} == {0, 1}
    assert {kind_of(users.credential("SCRAM-SHA-256", each)) for each in names} == {2, 3}
    salts = [users.any_credential(each).salt for each in names]
    assert len(set(salts)) == len(salts)
    assert len(set(users.any_credential("x").salt[1:])) > 5, "no pattern"
    lacking = {kind_of(users.credential("SCRAM-SHA-256", each)) for each in MANY if each < "user-2"}
    assert lacking == {2, 3}, "users without this mechanism look like names without a user"


def test_a_change_of_users_changes_few_names_without_one() -> None:
    names = [f"nobody-{number}" for number in range(400)]
    before = UserTable(b"s" * 32, MANY)
    after = before.changed("another", "SCRAM-SHA-512", credential_of("SCRAM-SHA-512", b"x" * 32, b"1" * 9, 5000))
    changed = [each for each in names if before.any_credential(each) != after.any_credential(each)]
    assert 0 < len(changed) < 40
    assert {after.any_credential(each).iterations for each in changed} == {5000}
    same = UserTable(b"s" * 32, {each: after.credentials(each) for each in after})
    assert all(same.any_credential(each) == after.any_credential(each) for each in names)
    gone = after.changed("another", "SCRAM-SHA-512", None)
    assert all(gone.any_credential(each) == before.any_credential(each) for each in names)


def test_before_the_handshake_of_version_0_tokens_have_no_header() -> None:
    peer = Peer()
    assert peer.handshake("SCRAM-SHA-256", 0).error_code == 0
    exchange = ScramSha256(ALICE, SECRET).exchange()
    token: bytes | None = exchange.begin()
    while token is not None:
        assert peer.session.expects_token
        step = peer.give(token)
        assert isinstance(step, SaslAnswer)
        token = exchange.answered(step.frame[4:])
    assert peer.session.principal == "User:alice"
    assert not peer.session.expects_token
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn)


def test_a_wrong_token_of_version_0_is_answered_by_silence() -> None:
    peer = Peer()
    peer.handshake("PLAIN", 0)
    step = peer.give(b"\0alice\0wrong")
    assert isinstance(step, SaslEnd) and step.answer == SaslAnswer(b"", (58,))
    assert (step.why, step.who) == ("user 'alice' is refused by PLAIN", "alice")


def test_an_unknown_mechanism_is_refused_with_the_list() -> None:
    peer = Peer()
    step = peer.send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert isinstance(step, SaslEnd)
    answer = parsed(step, SaslHandshakeResponse, 1)
    assert (answer.error_code, answer.mechanisms) == (33, SETTINGS.mechanisms)


@pytest.mark.parametrize(
    ("first", "message", "version", "says"),
    [
        ([], MetadataRequest(topics=None), 12, "Metadata came before SaslHandshake: this listener requires SASL"),
        ([], SaslAuthenticateRequest(auth_bytes=b"\0alice\0correct horse"), 2, "SaslAuthenticate came before"),
        (["PLAIN"], MetadataRequest(topics=None), 12, "Metadata came before SaslAuthenticate"),
        (["PLAIN"], SaslHandshakeRequest(mechanism="PLAIN"), 1, "SaslHandshake came before SaslAuthenticate"),
        (["PLAIN"], ApiVersionsRequest(), 0, "ApiVersions came before SaslAuthenticate"),
    ],
)
def test_other_requests_close_the_connection(first: list[str], message: Any, version: int, says: str) -> None:
    peer = Peer()
    for mechanism in first:
        peer.handshake(mechanism)
    with pytest.raises(RemoteProtocolError, match=says):
        peer.send(message, version)


@pytest.mark.parametrize("key", [17, 36])
def test_a_request_that_cannot_be_read_does_not_show_its_bytes(key: int) -> None:
    peer = Peer()
    if key == 36:
        peer.handshake("PLAIN")
    header = bytes((0, key, 0, 1, 0, 0, 0, 1, 255, 255))
    with pytest.raises(RemoteProtocolError) as raised:
        peer.give(header + b"\x7f\xff" + b"secret")
    assert "cannot be read" in str(raised.value) and "secret" not in str(raised.value)


@pytest.mark.parametrize("message", [ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")])
def test_before_the_login_only_tokens_may_be_long(message: Any) -> None:
    peer = Peer()
    frame = frames.build_request(message, 0, 1, "me")[4:]
    with pytest.raises(RemoteProtocolError, match="a request of 65537 bytes before the login; it may have 65536"):
        peer.give(frame + bytes(2**16 + 1 - len(frame)))
    again = Peer()
    again.handshake("PLAIN")
    assert again.authenticate(b"\0alice\0" + b"x" * 2**17).error_code == 58


def test_a_request_for_a_login_has_a_limit_after_the_login_too() -> None:
    peer = Peer()
    peer.log_in("PLAIN")
    peer.handshake("PLAIN")
    with pytest.raises(RemoteProtocolError, match="it may have 524288"):
        peer.authenticate(bytes(2**19))


class ChangingUsers(UserTable):
    """Alice's password changes between two questions about it."""

    def __init__(self) -> None:
        super().__init__(USERS.secret, dict(USERS._users))
        self._asked = 0

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        self._asked += 1
        return USERS.credential(mechanism, user if self._asked == 1 else "bob")


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_password_that_changes_during_a_login_is_refused(mechanism: str) -> None:
    answer = Peer(users=ChangingUsers()).log_in(mechanism)
    assert answer.error_code == SaslAuthenticationFailed.code


# -- sessions that end (KIP-368)

SHORT = replace(SETTINGS, max_reauth={"PLAIN": 10.0, "SCRAM-SHA-256": 10.0})


def test_a_session_ends_unless_it_is_renewed() -> None:
    peer = Peer(SHORT)
    assert peer.log_in("PLAIN").session_lifetime_ms == 10_000
    peer.now += 9.9
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn)
    assert peer.log_in("PLAIN").error_code == 0
    peer.now += 9.9
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn)
    peer.now += 0.2
    with pytest.raises(RemoteProtocolError, match="the session of 'User:alice' has ended"):
        peer.send(MetadataRequest(topics=None), 12)


def test_a_session_that_has_ended_may_still_be_renewed() -> None:
    peer = Peer(SHORT)
    peer.log_in("PLAIN")
    peer.now += 60
    assert peer.log_in("PLAIN").error_code == 0
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn)


def test_another_principal_or_mechanism_cannot_take_over_a_session() -> None:
    peer = Peer(SHORT)
    peer.log_in("PLAIN")
    peer.now += 2
    answer = peer.log_in("PLAIN", "bob", "bob's")
    assert answer.error_code == 58
    assert answer.error_message == ("Cannot change principals during re-authentication from User:alice to User:bob")
    peer = Peer(SHORT)
    peer.log_in("PLAIN")
    peer.now += 2
    step = peer.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    assert isinstance(step, SaslEnd) and "wants to authenticate again by SCRAM-SHA-256" in step.why


def test_a_client_authenticates_once_a_second_at_most() -> None:
    peer = Peer(SHORT)
    peer.log_in("PLAIN")
    peer.now += 0.9
    assert peer.handshake("PLAIN").error_code == 34
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn), "the session goes on"
    peer.now += 0.2
    assert peer.log_in("PLAIN").error_code == 0


def test_during_an_exchange_no_other_request_gets_in() -> None:
    peer = Peer(SHORT)
    peer.log_in("SCRAM-SHA-256")
    peer.now += 2
    peer.handshake("SCRAM-SHA-256")
    with pytest.raises(RemoteProtocolError, match="while it authenticates again"):
        peer.send(MetadataRequest(topics=None), 12)


def test_a_request_while_a_password_is_checked_does_not_pass_for_the_result() -> None:
    peer = Peer()
    peer.handshake("PLAIN")
    token = frames.build_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2, 1, None)[4:]
    check = peer.session.take(token, peer.now, peer.now)
    assert isinstance(check, Check)
    with pytest.raises(RemoteProtocolError, match="while the one before is still checked"):
        peer.session.take(token, peer.now, peer.now)
    assert isinstance(peer.session.checked("not True", peer.now, peer.now), SaslEnd)
    assert peer.session.login is None


def test_a_token_after_the_login_is_refused_and_the_session_goes_on() -> None:
    peer = Peer()
    peer.log_in("PLAIN")
    assert peer.authenticate(b"\0alice\0guess").error_code == 34
    assert isinstance(peer.send(MetadataRequest(topics=None), 12), PassOn)


# -- hostile clients


def exchanged(mechanism: str) -> Iterator[tuple[SaslAuthenticateResponse, bytes]]:
    """The messages of a client that logs in, with its tokens."""
    peer = Peer()
    peer.handshake(mechanism)
    exchange = CLIENTS[mechanism](ALICE, SECRET).exchange()
    token: bytes | None = exchange.begin()
    while token is not None:
        answer = peer.authenticate(token)
        yield answer, token
        token = exchange.answered(answer.auth_bytes)


@pytest.mark.parametrize("mechanism", HASHES)
def test_recorded_messages_of_scram_are_worth_nothing(mechanism: str) -> None:
    recorded = [token for _, token in exchanged(mechanism)]
    peer = Peer()
    peer.handshake(mechanism)
    assert peer.authenticate(recorded[0]).error_code == 0
    assert peer.authenticate(recorded[1]).error_code == 58


@pytest.mark.parametrize("change", ["c=", "r=", "p="])
def test_a_changed_final_message_of_scram_is_refused(change: str) -> None:
    peer = Peer()
    peer.handshake("SCRAM-SHA-256")
    client = ScramClient(["SCRAM-SHA-256"], ALICE, SECRET)
    client.set_server_first(peer.authenticate(client.get_client_first().encode()).auth_bytes.decode())
    parts = client.get_client_final().split(",")
    other = {"c=": "c=eSws", "r=": "r=abc", "p=": "p=" + base64.b64encode(bytes(32)).decode()}[change]
    changed = ",".join(other if each.startswith(change) else each for each in parts)
    assert changed != ",".join(parts)
    assert peer.authenticate(changed.encode()).error_code == 58
    assert peer.session.login is None


def final_of(peer: Peer, mechanism: str, nonce: Callable[[str], str]) -> SaslAuthenticateResponse:
    """Log in with a final message whose proof is right, and whose nonce is made of the full one."""
    peer.handshake(mechanism)
    bare = f"n={ALICE},r=abc"
    challenge = peer.authenticate(f"n,,{bare}".encode()).auth_bytes.decode()
    both, salt, iterations = (each[2:] for each in challenge.split(","))
    salted = salted_password(mechanism, SECRET, base64.b64decode(salt), int(iterations))
    without_proof = f"c=biws,r={nonce(both)}"
    key = hmac.digest(salted, b"Client Key", HASHES[mechanism])
    stored = hashlib.new(HASHES[mechanism], key).digest()
    signature = hmac.digest(stored, f"{bare},{challenge},{without_proof}".encode(), HASHES[mechanism])
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return peer.authenticate(f"{without_proof},p={base64.b64encode(proof).decode()}".encode())


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_accepts_the_doubled_nonce_of_librdkafka_before_2_6_1(mechanism: str) -> None:
    peer = Peer()
    assert final_of(peer, mechanism, lambda both: "abc" + both).error_code == 0
    assert peer.session.principal == "User:alice"
    for other in (lambda both: both + "a", lambda both: both[:-1], lambda both: "abc"):
        assert final_of(Peer(), mechanism, other).error_code == 58


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=a",
        b"n,,n=al=ice,r=a",
        b"n,,m=x,n=alice,r=a",
        b"n,,n=,r=a",
    ],
)
def test_a_first_message_of_scram_that_is_none_is_refused(token: bytes) -> None:
    peer = Peer()
    peer.handshake("SCRAM-SHA-256")
    assert peer.authenticate(token).error_code == 58


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0correct horse\0", "expected 3 tokens, got 4"),
        (b"\0\0correct horse", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0\xff", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0correct horse", "Client requested an authorization id that is different from username"),
    ],
)
def test_plain_says_what_kafka_says(token: bytes, says: str) -> None:
    peer = Peer()
    peer.handshake("PLAIN")
    answer = peer.authenticate(token)
    assert answer.error_code == 58 and says in (answer.error_message or "")
    assert peer.session.login is None


class AnyToken:
    """Takes every token, and keeps the last one."""

    token: str | None = None

    def check(self, token: str) -> tuple[str, float]:
        self.token = token
        return ALICE, 2000.0


def checked_by(message: bytes) -> str | None:
    """The token that gets as far as its check, if one does."""
    exchange = bearer(tokens := AnyToken(), message)
    try:
        step = next(exchange)
    except Refused:
        return None
    assert isinstance(step, Check)
    step.work()
    return tokens.token


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer abc\x01\x01",
        b"n,a=alice,\x01auth=bearer   abc\x01\x01",
        b"n,,\x01host=a\x01auth=Bearer abc\x01port=\x01\x01",
    ],
)
def test_a_message_of_oauthbearer_has_its_token_checked(message: bytes) -> None:
    assert checked_by(message) == "abc"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,b=alice,\x01auth=Bearer abc\x01\x01",
        b"n,,x\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer abd\x01\x01",
        b"n,,\x01ho-st=a\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 2**16 + b"\x01\x01",
        b"n,,\x01" + b"auth=Bearer a\x01" * 2**14 + b"\x01" * 2**18 + b"x",  # once read in 34 seconds
    ],
    ids=lambda message: repr(message[:40]),
)
def test_another_message_is_refused_before_a_token_is_checked(message: bytes) -> None:
    assert checked_by(message) is None


@given(st.binary(max_size=200), st.sampled_from(SETTINGS.mechanisms), st.booleans())
def test_no_token_gets_in_or_breaks_the_machine(token: bytes, mechanism: str, bare: bool) -> None:
    peer = Peer()
    peer.handshake(mechanism, 0 if bare else 1)
    step = peer.give(token) if bare else peer.send(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert isinstance(step, SaslEnd | SaslAnswer)
    assert peer.session.login is None


@given(st.binary(max_size=60), st.integers(0, 3))
def test_no_frame_gets_in_or_breaks_the_machine(frame: bytes, known: int) -> None:
    peer = Peer()
    prefix = [b"", b"\0\x11\0\1\0\0\0\1\xff\xff", b"\0\x24\0\2\0\0\0\1\xff\xff\0", b"\0\x12"][known]
    try:
        step = peer.give(prefix + frame)
    except RemoteProtocolError:
        return
    assert isinstance(step, PassOn | SaslAnswer | SaslEnd)
    assert peer.session.login is None
    if isinstance(step, PassOn):
        assert frames.asked(prefix + frame)[0] == frames.API_VERSIONS


def test_a_password_is_hashed_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SaslServer(SETTINGS, USERS, os.urandom)

    def checks(password: str) -> int:
        session = server.session()
        token = frames.build_request(SaslHandshakeRequest(mechanism="PLAIN"), 0, 1, None)[4:]
        session.take(token, 0.0, 0.0)
        step = session.take(b"\0alice\0" + password.encode(), 0.0, 0.0)
        if isinstance(step, Check):
            session.checked(step.work(), 0.0, 0.0)
            return 1
        assert session.login is not None
        return 0

    assert [checks("wrong"), checks(SECRET), checks(SECRET), checks("wrong"), checks(SECRET)] == [1, 1, 0, 1, 0]


def test_nothing_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        peer = Peer()
        peer.handshake("PLAIN")
        step = peer.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"), 2)
    shown = f"{step} {caplog.text} {USERS.credentials(ALICE)} {USERS} {peer.session}"
    assert "hunter2" not in shown
    assert "credential>" in shown
