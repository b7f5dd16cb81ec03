"""A broker whose clients authenticate: real clients, and strangers that try to get in."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

import ottla
from ottla.brokerlite.config import BrokerConfig
from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError, InvalidTopic
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.sasl_server.settings import OAuthSettings, SaslSettings
from ottla.serve.traffic import REQUESTS
from ottla.subject_mapping import SubjectMapping
from ottla.testing import Broker
from ottla.tls import ServerTLS
from tests import oidc, tls
from tests.interop.peers import kcat_produce
from tests.patience import HUNG, longer_and_longer

USERS = {"alice": "correct horse", "bob, =1": "bob's"}
SECRET = USERS["alice"]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OURS = {"PLAIN": ottla.Plain, "SCRAM-SHA-256": ottla.ScramSha256, "SCRAM-SHA-512": ottla.ScramSha512}


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(users=USERS) as broker:
        broker.create_topic("t", 1)
        yield broker


@pytest.fixture(scope="module")
def secured(ca: trustme.CA) -> Iterator[Broker]:
    with Broker(users=USERS, tls=tls.serving(ca, "127.0.0.1")) as broker:
        broker.create_topic("t", 1)
        yield broker


# -- real clients


def by_ours(bootstrap: str, sasl: Any, secure: ottla.TLS | None = None) -> None:
    async def work() -> None:
        async with ottla.connect(bootstrap, sasl=sasl, tls=secure, connect_timeout=HUNG) as client:
            async with client.producer() as producer:
                await producer.send("t", b"value")
            assert await client.list_topics() == ["t"]

    trio.run(work)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in(broker: Broker, mechanism: str) -> None:
    by_ours(broker.bootstrap, OURS[mechanism]("alice", SECRET))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in_within_tls(secured: Broker, ca: trustme.CA, mechanism: str) -> None:
    by_ours(secured.bootstrap, OURS[mechanism]("bob, =1", "bob's"), tls.of_client(ca))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_hears_that_its_password_is_wrong(broker: Broker, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        by_ours(broker.bootstrap, OURS[mechanism]("alice", "wrong"))
    assert f"user 'alice' by {mechanism} is refused: Authentication failed" in str(raised.value)


def test_our_client_logs_in_with_a_token_and_renews_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider = oidc.Provider(lasts=3600)
    (tmp_path / "jwks.json").write_text(provider.keys())
    oauth = OAuthSettings(jwks=str(tmp_path / "jwks.json"), issuer="ottla-tests")
    sasl = SaslSettings(mechanisms=("OAUTHBEARER",), oauth=oauth)
    listener = ListenerConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, port=0, sasl=sasl)
    with Broker(BrokerConfig(listeners=(listener,))) as broker:
        broker.create_topic("t")
        by_ours(broker.bootstrap, ottla.OAuthBearer(provider.token))
        with pytest.raises(AuthenticationFailed, match=r'refused: \{"status":"invalid_token"\}'):
            by_ours(broker.bootstrap, ottla.OAuthBearer(lambda: provider.token(iss="another")))
    assert "a client is refused by OAUTHBEARER: its iss is not 'ottla-tests'" in caplog.text


def test_our_client_renews_its_session() -> None:
    sasl = SaslSettings(mechanisms=("SCRAM-SHA-256",), max_reauth={"SCRAM-SHA-256": 1.5})
    listener = ListenerConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, port=0, sasl=sasl)
    with Broker(BrokerConfig(listeners=(listener,))) as broker:
        broker._call(lambda running: running.set_password("alice", SECRET))
        broker.create_topic("t")

        running = broker._running
        assert running is not None

        def handshakes() -> int:
            wanted = (sample for sample in running._listener.samples() if sample.metric is REQUESTS)
            return next(int(sample.value) for sample in wanted if sample.labels == ("SaslHandshake",))

        async def work() -> None:
            sasl = ottla.ScramSha256("alice", SECRET)
            async with ottla.connect(broker.bootstrap, sasl=sasl) as client, client.producer() as producer:
                await producer.send("t", b"value")
                first = handshakes()
                with trio.fail_after(HUNG):
                    while handshakes() == first:
                        await producer.send("t", b"value")

        trio.run(work)


def test_our_client_hears_that_the_listener_has_no_sasl_and_that_it_needs_it(broker: Broker) -> None:
    with Broker() as plain, pytest.raises(AuthenticationFailed, match="the listener has no SASL"):
        by_ours(plain.bootstrap, ottla.Plain("alice", SECRET))


def librdkafka(broker: Broker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(broker: Broker, mechanism: str) -> None:
    producer = confluent_kafka.Producer(librdkafka(broker, mechanism, SECRET))
    reports: list[Any] = []
    producer.produce("t", b"value", on_delivery=lambda error, message: reports.append(error))
    assert producer.flush(HUNG) == 0
    assert reports == [None]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_logs_in(broker: Broker, mechanism: str) -> None:
    """Distributions ship it with an old librdkafka, which doubles its nonce."""
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": SECRET}
    options = ["-X", "security.protocol=SASL_PLAINTEXT", *(f"-X{name}={value}" for name, value in login.items())]
    kcat_produce(broker.bootstrap, "t", [("key", "of kcat")], *options)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_hears_that_its_password_is_wrong(broker: Broker, mechanism: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer(librdkafka(broker, mechanism, "wrong") | {"error_cb": errors.append})
    until = time.monotonic() + HUNG
    while not errors and time.monotonic() < until:
        producer.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "wrong" not in str(errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", [SECRET, "wrong"])
def test_aiokafka_logs_in_or_not(broker: Broker, mechanism: str, password: str) -> None:
    given = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }

    async def work() -> None:
        producer = AIOKafkaProducer(**given)
        try:
            await producer.start()
            sent = await producer.send_and_wait("t", b"mine")
        finally:
            await producer.stop()
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **given) as consumer:
            while (await consumer.getone()).offset < sent.offset:
                pass

    if password == SECRET:
        asyncio.run(asyncio.wait_for(work(), HUNG))
    else:
        with pytest.raises(KafkaError):
            asyncio.run(asyncio.wait_for(work(), HUNG))


# -- listeners


def test_each_listener_advertises_itself(ca: trustme.CA, tmp_path: Path) -> None:
    listeners = (
        ListenerConfig(port=0),
        ListenerConfig(protocol=SecurityProtocol.SSL, port=0, tls=tls.serving(ca, "127.0.0.1"), advertise="inside:7"),
        ListenerConfig(
            protocol=SecurityProtocol.SASL_PLAINTEXT,
            host="0.0.0.0",
            port=0,
            sasl=SaslSettings(mechanisms=("PLAIN",)),
        ),
    )
    with Broker(BrokerConfig(listeners=listeners, data=tmp_path)) as broker:
        running = broker._running
        assert running is not None
        addresses = dict(running.listeners)
        assert list(addresses) == ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"]
        assert broker.bootstrap == addresses["PLAINTEXT"]
        assert advertised(addresses["PLAINTEXT"]) == addresses["PLAINTEXT"]
        assert advertised(addresses["SSL"], tls.of_client(ca).context()) == "inside:7"


def advertised(address: str, context: ssl.SSLContext | None = None) -> str:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), HUNG) as sock:
        if context is None:
            return asked(Stranger(sock))
        with context.wrap_socket(sock, server_hostname=host) as secured:
            return asked(Stranger(secured))


def asked(stranger: "Stranger") -> str:
    """The address in a Metadata response."""
    stranger.send(MetadataRequest(topics=()), 1)
    [node] = frames.parse_response(MetadataResponse, 1, stranger.receive())[1].brokers
    return f"{node.host}:{node.port}"


def test_a_certificate_becomes_a_principal_and_none_without_a_rule_gets_in(
    ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    listener = ListenerConfig(
        protocol=SecurityProtocol.SSL,
        port=0,
        tls=tls.serving(ca, "127.0.0.1", "required"),
        subjects=SubjectMapping.parse("RULE:^CN=(app.*?),.*$/$1/"),
    )
    with Broker(BrokerConfig(listeners=(listener,))) as broker:
        broker.create_topic("t")
        app = ca.issue_cert("app.example.com", common_name="app.example.com")
        by_ours(broker.bootstrap, None, tls.of_client(ca, app))
        other = ca.issue_cert("other.example.com", common_name="\x1b[2Jother")
        told = "no rule of ssl.principal.mapping.rules fits the certificate of 'CN=\\x1b[2Jother"
        for seconds in longer_and_longer(1.0):
            with pytest.raises(BrokerUnreachable):
                connects(broker.bootstrap, tls.of_client(ca, other), seconds)
            if told in caplog.text:
                break
    assert told in caplog.text
    assert "\x1b" not in caplog.text


def connects(bootstrap: str, secure: ottla.TLS, seconds: float) -> None:
    async def work() -> None:
        async with ottla.connect(bootstrap, tls=secure, connect_timeout=seconds) as client:
            await client.list_topics()

    trio.run(work)


def test_a_listener_that_is_open_to_the_network_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(BrokerConfig(host="0.0.0.0", port=0)):
        pass
    [line] = [each for each in caplog.records if "listener without authentication" in each.getMessage()]
    assert vars(line)["listener"] == "PLAINTEXT"


# -- users


def test_users_survive_a_restart_and_nobody_can_read_their_log(tmp_path: Path) -> None:
    with Broker(BrokerConfig(port=0, data=tmp_path / "data"), users=USERS) as broker:
        broker.create_topic("t")
        broker.kill()
        broker._users.clear()
        broker.start()
        by_ours(broker.bootstrap, ottla.ScramSha512("alice", SECRET))

        async def work() -> None:
            async with ottla.connect(broker.bootstrap, sasl=ottla.Plain("alice", SECRET)) as client:
                assert await client.list_topics() == ["t"]
                with pytest.raises(InvalidTopic):
                    await client.create_topic("__user_credentials")

        trio.run(work)
    files = b"".join(each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file())
    assert b"alice" in files
    for password in USERS.values():
        assert password.encode() not in files


def test_users_are_for_a_broker_without_listeners() -> None:
    listener = ListenerConfig(port=0)
    with pytest.raises(ConfigurationError, match="users, certificates and tls are for a config without listeners"):
        Broker(BrokerConfig(listeners=(listener,)), users=USERS)


# -- strangers


class Stranger:
    """A connection that sends any bytes."""

    def __init__(self, sock: Any) -> None:
        self.socket = sock
        self.socket.settimeout(HUNG)

    @classmethod
    def to(cls, broker: Broker) -> "Stranger":
        return cls(socket.create_connection((broker.host, broker.port), HUNG))

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: Any, version: int) -> None:
        self.socket.sendall(frames.build_request(message, version, 1, "stranger"))

    def receive(self) -> bytes:
        [size] = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            data = self.socket.recv(size - len(got))
            assert data, "closed"
            got += data
        return got

    def is_closed(self) -> bool:
        """Wait until the other side closes; whether it sent nothing before."""
        try:
            return bool(self.socket.recv(1) == b"")
        except ConnectionResetError:
            return True


def test_a_stranger_learns_the_versions_and_nothing_else(broker: Broker) -> None:
    with Stranger.to(broker) as stranger:
        stranger.send(ApiVersionsRequest(), 0)
        assert stranger.receive()
        stranger.send(MetadataRequest(topics=None), 12)
        assert stranger.is_closed()


@pytest.mark.parametrize("size", [512 * 2**10 + 1, 99 * 2**20, 2**31 - 1])
def test_a_stranger_cannot_send_much(broker: Broker, size: int) -> None:
    with Stranger.to(broker) as stranger:
        stranger.socket.sendall(struct.pack(">i", size) + b"\0\x11\0\1" + bytes(100))
        assert stranger.is_closed()


def test_after_the_login_requests_may_be_large(broker: Broker) -> None:
    async def work() -> None:
        sasl = ottla.Plain("alice", SECRET)
        async with ottla.connect(broker.bootstrap, sasl=sasl) as client, client.producer() as producer:
            await producer.send("t", bytes(900_000))

    trio.run(work)


def test_a_handshake_may_come_byte_by_byte(broker: Broker) -> None:
    with Stranger.to(broker) as stranger:
        for message, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + SECRET.encode()), 2),
        ):
            for byte in frames.build_request(message, version, 1, None):
                stranger.socket.sendall(bytes((byte,)))
            answer = stranger.receive()
        assert frames.parse_response(SaslAuthenticateResponse, 2, answer)[1].error_code == 0
        stranger.send(MetadataRequest(topics=()), 1)
        assert stranger.receive()


def test_requests_behind_a_login_wait_for_it(broker: Broker) -> None:
    """They are in one packet with a password whose check takes a thread some milliseconds."""
    login = [
        frames.build_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, None),
        frames.build_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + SECRET.encode()), 2, 2, None),
        frames.build_request(MetadataRequest(topics=()), 1, 3, None),
    ]
    with Stranger.to(broker) as stranger:
        stranger.socket.sendall(b"".join(login))
        assert [int.from_bytes(stranger.receive()[:4], "big") for _ in login] == [1, 2, 3]
    wrong = [login[0], login[1].replace(SECRET.encode(), b"correct h0rse"), login[2]]
    with Stranger.to(broker) as stranger:
        stranger.socket.sendall(b"".join(wrong))
        assert [int.from_bytes(stranger.receive()[:4], "big") for _ in wrong[:2]] == [1, 2]
        assert stranger.is_closed()


def test_strangers_that_never_authenticate_keep_nobody_out() -> None:
    listener = ListenerConfig(
        protocol=SecurityProtocol.SASL_PLAINTEXT, port=0, sasl=SaslSettings(mechanisms=("PLAIN", "SCRAM-SHA-512"))
    )
    with Broker(BrokerConfig(listeners=(listener,), max_connections=40)) as broker:
        assert broker._running is not None
        broker._call(lambda running: running.set_password("alice", SECRET))
        broker.create_topic("t")
        strangers = [Stranger.to(broker) for _ in range(100)]
        try:
            by_ours(broker.bootstrap, ottla.ScramSha512("alice", SECRET))
            assert strangers[0].is_closed()
        finally:
            for each in strangers:
                each.socket.close()


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_key_that_every_user_of_the_machine_can_read_is_a_warning(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    path = tmp_path / "server.pem"
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    path.chmod(mode)
    with Broker(tls=ServerTLS(certificate=path)):
        pass
    lines = [each for each in caplog.records if "private key readable" in each.getMessage()]
    assert [each.__dict__["file"] for each in lines] == [str(path)] * warns


def test_failed_logins_are_logged_without_their_secrets(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with Stranger.to(broker) as stranger:
        stranger.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        stranger.receive()
        stranger.send(SaslAuthenticateRequest(auth_bytes=b"\0mallory\n\x1b\0hunter2"), 2)
        answer = frames.parse_response(SaslAuthenticateResponse, 2, stranger.receive())[1]
        assert stranger.is_closed()
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert "authentication failed: user 'mallory\\n\\x1b' is refused by PLAIN" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_bare_token_is_not_in_the_access_log(tmp_path: Path) -> None:
    to = tmp_path / "access.log"
    with Broker(BrokerConfig(port=0, access_log=str(to)), users=USERS) as broker, Stranger.to(broker) as stranger:
        stranger.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        stranger.receive()
        stranger.socket.sendall(frames.framed(b"\0alice\0" + SECRET.encode()))
        assert stranger.receive() == b""
        stranger.send(MetadataRequest(topics=()), 1)
        stranger.receive()
    text = to.read_text()
    assert "Metadata" in text and "correct" not in text and "horse" not in text


def test_a_listener_that_cannot_open_leaves_none_behind(tmp_path: Path) -> None:
    oauth = OAuthSettings(jwks=str(tmp_path / "no-such.json"))
    listeners = (
        ListenerConfig(port=0),
        ListenerConfig(
            protocol=SecurityProtocol.SASL_PLAINTEXT,
            port=0,
            sasl=SaslSettings(mechanisms=("OAUTHBEARER",), oauth=oauth),
        ),
    )
    with pytest.raises(ConfigurationError, match=r"sasl: the keys of .*no-such.json cannot be read"):
        Broker(BrokerConfig(listeners=listeners, data=tmp_path / "data"))
    assert not (tmp_path / "data").exists()
