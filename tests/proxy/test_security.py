"""Clients that authenticate at the proxy: real clients, and strangers that try to get in."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
import trustme
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

import ottla
from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.errors import (
    AuthenticationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from ottla.proxy.clients.carried import API_VERSIONS, CARRIED
from ottla.proxy.user_file import UserFile, read_users, write_users
from ottla.sasl_server.settings import OAuthSettings, SaslSettings
from ottla.subject_mapping import SubjectMapping
from ottla.testing import Broker
from tests import oidc, tls
from tests.brokerlite.peer import Peer
from tests.interop.peers import kcat_produce
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied
from tests.proxy.secured import MECHANISMS, logged_in, on_thread, rules, user_file, with_passwords
from tests.sdk.shared_topics import filled, share_from_the_beginning

USERS = {"alice": "correct horse", "bob, =1": "bob's", "admin": "secret-of-admin"}
SECRET = USERS["alice"]
OURS = {"PLAIN": ottla.Plain, "SCRAM-SHA-256": ottla.ScramSha256, "SCRAM-SHA-512": ottla.ScramSha512}
OF_ALICE = ("allow alice All Topic t", "allow alice Read Group g")


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", 2)
        broker.create_topic("secret", 1)
        yield broker


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> str:
    return user_file(tmp_path_factory.mktemp("users"), USERS)


@contextmanager
def proxy_of(broker: Broker, users: str, *acls: str, **listener: Any) -> Iterator[ProxyThread]:
    options = {"listeners": (with_passwords(**listener),), "acls": rules(*acls), "users": users}
    with proxied(broker.bootstrap, "t=rewrite", **options) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def proxy(broker: Broker, users: str) -> Iterator[ProxyThread]:
    with proxy_of(broker, users, *OF_ALICE) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def secured(broker: Broker, users: str, ca: trustme.CA) -> Iterator[ProxyThread]:
    with proxy_of(broker, users, *OF_ALICE, protocol="SASL_SSL", tls=tls.serving(ca, "127.0.0.1")) as proxy:
        yield proxy


# -- real clients


def by_ours(bootstrap: str, sasl: Any = None, secure: ottla.TLS | None = None, topic: str = "t") -> list[str]:
    async def work() -> list[str]:
        async with ottla.connect(bootstrap, sasl=sasl, tls=secure, connect_timeout=HUNG) as client:
            async with client.producer() as producer:
                await producer.send(topic, b"value", key=b"key")
            return sorted(await client.list_topics())

    return trio.run(work)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in_and_sees_what_it_may(proxy: ProxyThread, mechanism: str) -> None:
    assert by_ours(proxy.bootstrap, OURS[mechanism]("alice", SECRET)) == ["t"]
    assert by_ours(proxy.bootstrap, OURS[mechanism]("admin", USERS["admin"])) == ["secret", "t"]


def test_our_client_logs_in_within_tls(secured: ProxyThread, ca: trustme.CA) -> None:
    assert by_ours(secured.bootstrap, ottla.ScramSha512("alice", SECRET), tls.of_client(ca)) == ["t"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_hears_that_its_password_is_wrong(proxy: ProxyThread, mechanism: str) -> None:
    for user in ("alice", "nobody"):
        with pytest.raises(AuthenticationFailed) as raised:
            by_ours(proxy.bootstrap, OURS[mechanism](user, "wrong"))
        assert f"user '{user}' by {mechanism} is refused: Authentication failed" in str(raised.value)


def test_our_client_hears_what_it_may_not(proxy: ProxyThread) -> None:
    alice, bob = ottla.ScramSha256("alice", SECRET), ottla.Plain("bob, =1", "bob's")
    with pytest.raises(TopicAuthorizationFailed):
        by_ours(proxy.bootstrap, bob)
    with pytest.raises(TopicAuthorizationFailed):
        by_ours(proxy.bootstrap, alice, topic="secret")

    async def consume(group: str) -> int:
        client = ottla.connect(proxy.bootstrap, sasl=alice, connect_timeout=HUNG)
        async with client, client.consumer("t", group=group, reset="beginning") as consumer:
            async for batch in consumer:
                return len(batch)
        return 0

    assert trio.run(consume, "g") >= 1
    with pytest.raises(GroupAuthorizationFailed):
        trio.run(consume, "another")


def test_our_share_consumer_reads_what_it_may(broker: Broker, users: str) -> None:
    acls = ("allow alice Read Topic jobs", "allow alice Describe Topic more", "allow alice Read Group workers")

    async def work(topic: str, bootstrap: str, wanted: int) -> set[bytes]:
        client = ottla.connect(bootstrap, sasl=ottla.ScramSha256("alice", SECRET), connect_timeout=HUNG)
        found: set[bytes] = set()
        with trio.fail_after(HUNG):
            async with client, client.share_consumer(topic, group="workers") as jobs:
                async for record in jobs:
                    await record.accept()
                    found.add(record.value or b"")
                    if len(found) == wanted:
                        break
        return found

    async def prepare() -> set[bytes]:
        async with ottla.connect(broker.bootstrap) as admin:
            await share_from_the_beginning(admin, "workers")
            await filled(admin, "more", 1)
            return await filled(admin, "jobs", 30)

    values = trio.run(prepare)
    with proxy_of(broker, users, *acls) as proxy:
        assert trio.run(work, "jobs", proxy.bootstrap, len(values)) == values
        for topic in ("secret", "more"):
            with pytest.raises(TopicAuthorizationFailed):
                trio.run(work, topic, proxy.bootstrap, 1)
    with proxy_of(broker, users, *acls[:2]) as proxy, pytest.raises(GroupAuthorizationFailed):
        trio.run(work, "jobs", proxy.bootstrap, 1)


def test_a_client_is_the_subject_of_its_certificate(broker: Broker, ca: trustme.CA) -> None:
    subjects = SubjectMapping.parse("RULE:^.*CN=([^,]+).*$/$1/L,DEFAULT")
    own = ca.issue_cert(common_name="Alice")
    listener = with_passwords(
        protocol="SSL", sasl=None, tls=tls.serving(ca, "127.0.0.1", "required"), subjects=subjects
    )
    with proxied(broker.bootstrap, listeners=(listener,), acls=rules(*OF_ALICE)) as proxy:
        assert by_ours(proxy.bootstrap, None, tls.of_client(ca, own)) == ["t"]
        other = ca.issue_cert(common_name="Mallory")
        with pytest.raises(TopicAuthorizationFailed):
            by_ours(proxy.bootstrap, None, tls.of_client(ca, other))
        with pytest.raises(AuthenticationFailed, match="requires a certificate"):
            by_ours(proxy.bootstrap, None, tls.of_client(ca))


def test_a_client_logs_in_with_a_token(broker: Broker, tmp_path: Path) -> None:
    provider = oidc.Provider(lasts=3600)
    (tmp_path / "jwks.json").write_text(provider.keys())
    oauth = OAuthSettings(jwks=str(tmp_path / "jwks.json"), issuer="ottla-tests")
    listener = with_passwords(sasl=SaslSettings(mechanisms=("OAUTHBEARER",), oauth=oauth))
    with proxied(broker.bootstrap, listeners=(listener,), acls=rules(allow_if_none=True)) as proxy:
        by_ours(proxy.bootstrap, ottla.OAuthBearer(provider.token))
        with pytest.raises(AuthenticationFailed, match=r'refused: \{"status":"invalid_token"\}'):
            by_ours(proxy.bootstrap, ottla.OAuthBearer(lambda: provider.token(iss="another")))


def test_an_anonymous_client_has_the_rights_of_the_anonymous(broker: Broker) -> None:
    acls = rules("allow ANONYMOUS All Topic t")
    with proxied(broker.bootstrap, acls=acls) as proxy:
        assert by_ours(proxy.bootstrap) == ["t"]


def librdkafka(proxy: ProxyThread, mechanism: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": proxy.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    } | more


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_produces_and_consumes(proxy: ProxyThread, mechanism: str) -> None:
    producer = confluent_kafka.Producer(librdkafka(proxy, mechanism, SECRET))
    reports: list[Any] = []
    for topic in ("t", "secret"):
        producer.produce(topic, b"value", on_delivery=lambda error, message: reports.append(error))
    assert producer.flush(HUNG) == 0
    assert sorted(0 if each is None else each.code() for each in reports) == [0, TopicAuthorizationFailed.code]
    consumer = confluent_kafka.Consumer(
        librdkafka(proxy, mechanism, SECRET, **{"group.id": "g", "auto.offset.reset": "earliest"})
    )
    try:
        consumer.subscribe(["t"])
        deadline = time.monotonic() + HUNG
        while (message := consumer.poll(1.0)) is None or message.error():
            assert time.monotonic() < deadline
        assert message.topic() == "t"
    finally:
        consumer.close()


@pytest.mark.slow
def test_librdkafkas_share_consumer_reads_what_it_may(broker: Broker, users: str) -> None:
    async def prepare() -> set[bytes]:
        async with ottla.connect(broker.bootstrap) as admin:
            await share_from_the_beginning(admin, "workers-rd")
            return await filled(admin, "jobs-rd", 30)

    values = trio.run(prepare)
    with proxy_of(broker, users, "allow alice Read Topic jobs-rd", "allow alice Read Group workers-rd") as proxy:
        consumer = confluent_kafka.ShareConsumer(librdkafka(proxy, "PLAIN", SECRET, **{"group.id": "workers-rd"}))
        consumer.subscribe(["jobs-rd"])
        found: set[bytes] = set()
        deadline = time.monotonic() + HUNG
        while found != values:
            found |= {message.value() or b"" for message in consumer.poll(1.0) if not message.error()}
            assert time.monotonic() < deadline
        consumer.commit_sync()
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_logs_in(proxy: ProxyThread, mechanism: str) -> None:
    """Distributions ship it with an old librdkafka, which doubles its nonce."""
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": SECRET}
    options = ["-X", "security.protocol=SASL_PLAINTEXT", *(f"-X{name}={value}" for name, value in login.items())]
    kcat_produce(proxy.bootstrap, "t", [("key", "of kcat")], *options)


@pytest.mark.slow
def test_librdkafka_hears_that_its_password_is_wrong(proxy: ProxyThread) -> None:
    failures: list[str] = []
    config = librdkafka(proxy, "SCRAM-SHA-512", "wrong", error_cb=lambda error: failures.append(str(error)))
    admin = confluent_kafka.Producer(config)
    deadline = time.monotonic() + HUNG
    while not any("Authentication failed" in each for each in failures):
        assert time.monotonic() < deadline
        admin.poll(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(proxy: ProxyThread, mechanism: str) -> None:
    import asyncio

    async def produce(password: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=proxy.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            await producer.send_and_wait("t", b"value")
        finally:
            await producer.stop()

    asyncio.run(produce(SECRET))
    with pytest.raises(KafkaError):
        asyncio.run(produce("wrong"))


# -- users


def test_a_user_that_is_removed_is_disconnected_and_cannot_come_back(broker: Broker, tmp_path: Path) -> None:
    path = user_file(tmp_path, USERS)
    with proxy_of(broker, path, *OF_ALICE) as proxy:
        alice, admin = (logged_in(proxy.bootstrap, name, USERS[name]) for name in ("alice", "admin"))
        table = read_users(Path(path))
        for mechanism in list(table.credentials("alice")):
            table = table.changed("alice", mechanism, None)
        write_users(Path(path), table)
        assert alice.closed()
        with pytest.raises(AuthenticationFailed):
            by_ours(proxy.bootstrap, ottla.Plain("alice", SECRET))
        assert admin.ask(MetadataRequest(topics=()), 9).brokers
        alice.close()
        admin.close()


def test_a_file_of_users_that_is_damaged_later_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = Path(user_file(tmp_path, USERS)), [0.0]
    users = UserFile(path, clock=lambda: now[0])
    before = users.any_credential("alice")
    path.write_text('{"users": {"alice": ')
    now[0] = 10.0
    assert users.any_credential("alice") == before and users.changed() == frozenset()
    assert "new file of users cannot be used, keeping the previous users" in caplog.text
    assert path.stat().st_mode & 0o077 == 0


def test_no_file_and_no_repr_has_a_password(tmp_path: Path) -> None:
    path = Path(user_file(tmp_path, USERS))
    assert not any(each in path.read_text() for each in USERS.values())
    assert repr(UserFile(path).any_credential("alice")) == "<SCRAM-SHA-512 credential>"


# -- strangers


def test_versions_are_told_before_a_login_and_open_no_connection_to_upstream(
    broker: Broker, proxy: ProxyThread
) -> None:
    host, _, port = proxy.bootstrap.rpartition(":")
    core = proxy.running._core
    assert core is not None
    before = len(core.links._live)
    peers = [Peer(int(port), host, timeout=HUNG) for _ in range(20)]
    for peer in peers:
        answer: ApiVersionsResponse = peer.ask(ApiVersionsRequest(), 3)
        offered = {each.api_key for each in answer.api_keys}
        assert {17, 36} <= offered and 38 not in offered
    assert len(core.links._live) <= before
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("version", [CARRIED[API_VERSIONS].newest + 1, -1])
def test_another_version_of_api_versions_gets_the_one_entry_from_which_clients_take_the_newest(
    proxy: ProxyThread, version: int
) -> None:
    """franz-go takes a response with more entries for all that the server offers (KIP-511)."""
    host, _, port = proxy.bootstrap.rpartition(":")
    peer = Peer(int(port), host, timeout=HUNG)
    newest = CARRIED[API_VERSIONS].newest
    request = bytearray(frames.build_request(ApiVersionsRequest(), newest, 1, "x"))
    struct.pack_into(">h", request, 6, version)
    peer.write(bytes(request))
    _, answer = frames.parse_response(ApiVersionsResponse, 0, peer.frame())
    peer.close()
    assert answer.error_code == UnsupportedVersion.code
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [
        (API_VERSIONS, 0, newest)
    ]


@pytest.mark.parametrize(
    "data",
    [
        frames.build_request(MetadataRequest(topics=()), 9, 1, "x"),
        frames.build_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + SECRET.encode()), 2, 1, "x"),
        struct.pack(">i", 2**30),
        struct.pack(">i", 600_000) + b"\0\x12\0\3",
        b"GET / HTTP/1.1\r\n\r\n",
        frames.build_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "x")[:-3] + b"\xff\xff\xff",
        frames.build_request(SaslHandshakeRequest(mechanism="PLAIN\x00\x1b[31m"), 1, 1, "x"),
    ],
    ids=["no handshake", "no mechanism", "a huge frame", "a large frame", "HTTP", "cut off", "control characters"],
)
def test_a_stranger_is_turned_out_and_others_do_not_notice(
    proxy: ProxyThread, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    alice = logged_in(proxy.bootstrap, "alice", SECRET)
    host, _, port = proxy.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=HUNG) as stranger:
        stranger.sendall(data)
        while stranger.recv(4096):
            pass
    assert alice.ask(MetadataRequest(topics=None), 9).topics
    assert SECRET not in caplog.text and "\x1b" not in caplog.text
    alice.close()


def test_a_session_cannot_change_its_user(proxy: ProxyThread) -> None:
    peer = logged_in(proxy.bootstrap, "alice", SECRET)
    answer = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    while answer.error_code:  # at most once a second
        answer = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    refused = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0admin\0" + USERS["admin"].encode()), 2)
    assert refused.error_code and "Cannot change principals" in refused.error_message
    assert peer.closed()
    peer.close()


def test_a_session_ends_unless_it_is_renewed(broker: Broker, users: str) -> None:
    sasl = SaslSettings(mechanisms=("PLAIN",), max_reauth={"PLAIN": 1.2})
    with proxy_of(broker, users, *OF_ALICE, sasl=sasl) as proxy:
        renewed, left = (logged_in(proxy.bootstrap, "alice", SECRET) for _ in range(2))
        deadline = time.monotonic() + HUNG
        with pytest.raises(EOFError):
            while time.monotonic() < deadline:
                left.ask(MetadataRequest(topics=()), 9)
        while renewed.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code:
            assert time.monotonic() < deadline
        token = f"\0alice\0{SECRET}".encode()
        again = renewed.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert again.error_code == 0 and again.session_lifetime_ms == 1200
        assert renewed.ask(MetadataRequest(topics=()), 9).brokers
        renewed.close()
        left.close()


def test_acls_change_while_clients_are_connected(broker: Broker, users: str) -> None:
    with proxy_of(broker, users, *OF_ALICE) as proxy:
        alice = logged_in(proxy.bootstrap, "alice", SECRET)
        alice.ask(MetadataRequest(topics=()), 9)
        on_thread(proxy, lambda: proxy.running.change_acls(rules("allow alice Write Topic u")))
        assert alice.closed()
        alice.close()
        with pytest.raises(TopicAuthorizationFailed):
            by_ours(proxy.bootstrap, ottla.Plain("alice", SECRET))
