"""Real clients as whose users the proxy writes, with brokerlite and with Apache Kafka upstream."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
import trustme

import ottla
from ottla.addresses import parse_address
from ottla.brokerlite.config import BrokerConfig
from ottla.errors import AuthenticationFailed, TopicAuthorizationFailed, TransactionalIdAuthorizationFailed
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.sasl_server.settings import SaslSettings
from ottla.testing import Broker
from tests import kafka, tls
from tests.interop.lines import Message
from tests.interop.peers import JAVA
from tests.oidc import Provider, kafka_settings
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied

USERS = {"alice": "secret-of-alice", "bob": "secret-of-bob", "proxy": "secret-of-the-proxy"}
KEYS = 20
LASTS = 4.0
"""The lifetime of a token in seconds."""
QUOTA = 5000
"""Bytes in a second that Apache Kafka accepts from alice."""


def forwarding(ca: trustme.CA, port: int = 0) -> dict[str, Any]:
    """The options of a proxy that forwards."""
    listener = ProxyListener(
        protocol="SASL_SSL",  # type: ignore[arg-type]
        port=port,
        mode=ClientMode.FORWARD,
        tls=tls.serving(ca, "127.0.0.1"),
        sasl=SaslSettings(mechanisms=("PLAIN", "OAUTHBEARER"), relayed=True),
    )
    return {"listeners": (listener,), "tls": tls.of_client(ca), "sasl": plain("proxy")}


def plain(user: str) -> ottla.Plain:
    return ottla.Plain(user, USERS[user])


async def send(client: ottla.Client, topic: str, count: int = KEYS) -> None:
    async with client.producer() as producer:
        for number in range(count):
            await producer.send(topic, b"v%d" % number, key=b"%d" % number)


def by_ours(ca: trustme.CA, bootstrap: str, sasl: Any, topic: str) -> None:
    async def work() -> None:
        async with ottla.connect(bootstrap, tls=tls.of_client(ca), sasl=sasl, connect_timeout=HUNG) as client:
            await send(client, topic)

    trio.run(work)


def values(bootstrap: str, topic: str, count: int, **secure: Any) -> list[bytes]:
    """The first values of a topic, sorted."""

    async def work() -> list[bytes]:
        found: list[bytes] = []
        async with (
            ottla.connect(bootstrap, connect_timeout=HUNG, **secure) as client,
            client.consumer(topic, reset="beginning") as consumer,
        ):
            async for batch in consumer:
                found += [record.value or b"" for record in batch]
                if len(found) >= count:
                    break
        return sorted(found)

    return trio.run(work)


# -- brokerlite


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def broker(ca: trustme.CA) -> Iterator[Broker]:
    """A broker in which alice may write to topic t."""
    config = BrokerConfig(port=0, acls=True, super_users=("User:proxy",), auto_create=False)
    with Broker(config, users=USERS, tls=tls.serving(ca, "127.0.0.1")) as broker:
        with ottla.sync.connect(broker.bootstrap, tls=tls.of_client(ca), sasl=plain("proxy")) as admin:
            admin.create_topic("t", partitions=3)
            admin.create_acls([ottla.AclBinding("User:alice", "Write", "Topic", "t")])
        yield broker


@pytest.mark.parametrize("rules", [(), ("t=rewrite:crc32",)])
def test_the_broker_behind_the_proxy_decides_who_may_write(
    broker: Broker, ca: trustme.CA, rules: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with proxied(broker.bootstrap, *rules, **forwarding(ca)) as proxy:
        by_ours(ca, proxy.bootstrap, plain("alice"), "t")
        with pytest.raises(TopicAuthorizationFailed):
            by_ours(ca, proxy.bootstrap, plain("bob"), "t")
        with pytest.raises(AuthenticationFailed, match="user 'alice' by PLAIN is refused: Authentication failed"):
            by_ours(ca, proxy.bootstrap, ottla.Plain("alice", "wrong"), "t")
        of_the_proxy = [each.getMessage() for each in caplog.records if "upstream" in each.getMessage()]
        assert of_the_proxy == ["authentication failed: upstream refuses user 'alice' by PLAIN"]
        stored = values(broker.bootstrap, "t", KEYS, tls=tls.of_client(ca), sasl=plain("proxy"))
    assert stored == sorted(b"v%d" % number for number in range(KEYS))


def test_a_producer_goes_on_after_its_proxy_was_killed_and_no_file_has_a_secret(
    broker: Broker, ca: trustme.CA, tmp_path: Path
) -> None:
    def start(port: int) -> ProxyThread:
        proxy = ProxyThread(broker.bootstrap, "t=rewrite", state=str(tmp_path), **forwarding(ca, port))
        proxy.start()
        return proxy

    async def work() -> None:
        proxy = start(0)
        _, port = parse_address(proxy.bootstrap)
        try:
            async with (
                ottla.connect(proxy.bootstrap, tls=tls.of_client(ca), sasl=plain("alice")) as client,
                client.producer() as producer,
            ):
                await producer.send("t", b"1", key=b"k")
                await trio.to_thread.run_sync(proxy.kill)
                proxy = await trio.to_thread.run_sync(start, port)
                await producer.send("t", b"2", key=b"k")
        finally:
            await trio.to_thread.run_sync(proxy.stop)

    trio.run(work)
    assert values(broker.bootstrap, "t", 2, tls=tls.of_client(ca), sasl=plain("proxy")) == [b"1", b"2"]
    files = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert any(b"User:alice" in each for each in files)
    assert not any(secret.encode() in each for each in files for secret in USERS.values())


# -- Apache Kafka


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA, provider: Provider
) -> Iterator[kafka.ApacheKafka]:
    """Apache Kafka with its StandardAuthorizer, in which alice may write to topics ``a-*``, and bob to ``b-*``."""
    home = tmp_path_factory.mktemp("secured")
    settings, flag = kafka_settings(home, provider, "OAUTH")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f"user_{name}='{password}'" for name, password in USERS.items())
    settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:proxy",
        "listener.name.oauth.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",  # the proxy itself has a password
        "listener.name.oauth.plain.sasl.jaas.config": f"{module} required {users};",
    }
    running = kafka.start(
        home / "kafka",
        1,
        settings | tls.kafka_store(home, ca, kafka.HOST),
        release=replace(kafka.NOW, flags=(*kafka.NOW.flags, flag)),
        listeners={"OAUTH": "SASL_SSL"},
    )
    try:
        with ottla.sync.connect(running.bootstrap, connect_timeout=HUNG) as admin:
            admin.create_acls(
                [
                    ottla.AclBinding(f"User:{user}", operation, kind, name, prefixed=True)
                    for user, name in (("alice", "a-"), ("bob", "b-"))
                    for operation, kind in (("Write", "Topic"), ("Read", "Topic"), ("Read", "Group"))
                ]
                + [ottla.AclBinding("User:alice", "Write", "TransactionalId", "a-", prefixed=True)]
            )
        yield running
    finally:
        running.stop()


def topics(running: kafka.ApacheKafka, *prefixes: str) -> list[str]:
    """New topics with these prefixes."""
    names = [f"{prefix}-{time.monotonic_ns()}" for prefix in prefixes]
    with ottla.sync.connect(running.bootstrap, connect_timeout=HUNG) as admin:
        for name in names:
            admin.create_topic(name, partitions=3)
    return names


def librdkafka(bootstrap: str, home: Path, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(home / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
        "enable.idempotence": True,
    }


def produced(config: dict[str, Any], topic: str, count: int = KEYS) -> set[int]:
    """The error codes of some records."""
    producer = confluent_kafka.Producer(config)
    codes: set[int] = set()
    for number in range(count):
        heard = lambda error, message: codes.add(0 if error is None else error.code())  # noqa: E731
        producer.produce(topic, b"v%d" % number, b"%d" % number, on_delivery=heard)
    assert producer.flush(HUNG) == 0
    return codes


def java(home: Path, user: str, password: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


@pytest.mark.slow
def test_apache_kafka_applies_its_acls_to_the_users_of_java_and_librdkafka(
    secured: kafka.ApacheKafka, ca: trustme.CA, tmp_path: Path
) -> None:
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    of_alice, of_bob = topics(secured, "a", "b")
    with proxied(secured.listener("OAUTH"), "*=rewrite", **forwarding(ca)) as proxy:
        denied = TopicAuthorizationFailed.code
        for user, topic, expected in (("alice", of_alice, 0), ("alice", of_bob, denied), ("bob", of_bob, 0)):
            config = librdkafka(proxy.bootstrap, tmp_path, user, USERS[user])
            assert produced(config, topic) == {expected}, f"{user} writes to {topic}"
        messages = [Message(of_alice, b"%d" % number, b"j%d" % number) for number in range(KEYS)]
        outcomes = JAVA.produce(proxy.bootstrap, messages, java(tmp_path, "alice", USERS["alice"]))
        assert not any(each.error for each in outcomes)
        [outcome] = JAVA.produce(
            proxy.bootstrap, [Message(of_bob, b"k", b"v")], java(tmp_path, "alice", USERS["alice"])
        )
        assert "TopicAuthorization" in (outcome.error or "")
        received = JAVA.consume(proxy.bootstrap, of_alice, java(tmp_path, "alice", USERS["alice"]))
        assert sorted(each.value or b"" for each in received) == sorted(
            b"%c%d" % (kind, number) for kind in b"jv" for number in range(KEYS)
        )
    assert len({(each.key, each.partition) for each in received}) == KEYS, "a key is in one partition"
    assert values(secured.bootstrap, of_bob, KEYS) == sorted(b"v%d" % number for number in range(KEYS))


@pytest.mark.slow
def test_tokens_that_expire_under_load_lose_and_double_nothing(
    secured: kafka.ApacheKafka, ca: trustme.CA, provider: Provider
) -> None:
    """Clients authenticate again before their tokens expire (KIP-368), and the proxy with the same tokens."""
    [topic] = topics(secured, "a")
    issued: list[str] = []

    def token() -> str:
        issued.append(provider.token(LASTS, sub="alice"))
        return issued[-1]

    async def work(bootstrap: str) -> int:
        sasl, sent = ottla.OAuthBearer(token), 0
        async with (
            ottla.connect(bootstrap, tls=tls.of_client(ca), sasl=sasl, connect_timeout=HUNG) as client,
            client.producer() as producer,
        ):
            while len(issued) < 4:
                await producer.send(topic, b"%06d" % sent, key=b"%d" % (sent % KEYS))
                sent += 1
        return sent

    with proxied(secured.listener("OAUTH"), "*=rewrite", **forwarding(ca)) as proxy:
        sent = trio.run(work, proxy.bootstrap)
    assert values(secured.bootstrap, topic, sent) == [b"%06d" % number for number in range(sent)]


@pytest.mark.slow
def test_a_transaction_belongs_to_the_user_who_may_write_with_its_id(
    secured: kafka.ApacheKafka, ca: trustme.CA
) -> None:
    [topic] = topics(secured, "a")

    async def work(bootstrap: str, user: str) -> None:
        async with (
            ottla.connect(bootstrap, tls=tls.of_client(ca), sasl=plain(user), connect_timeout=HUNG) as client,
            client.producer(transactional_id=f"a-{topic}") as producer,
        ):
            for number in range(2):
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number, key=b"k")

    with proxied(secured.listener("OAUTH"), "*=rewrite", **forwarding(ca)) as proxy:
        trio.run(work, proxy.bootstrap, "alice")
        with pytest.raises(TransactionalIdAuthorizationFailed):
            trio.run(work, proxy.bootstrap, "bob")
    assert values(secured.bootstrap, topic, 2) == [b"0", b"1"]


@pytest.mark.slow
def test_upstreams_quotas_are_those_of_the_user(secured: kafka.ApacheKafka, ca: trustme.CA) -> None:
    of_alice, of_bob = topics(secured, "a", "b")
    secured.run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", secured.bootstrap, "--alter", "--add-config",
        f"producer_byte_rate={QUOTA}", "--entity-type", "users", "--entity-name", "alice",
    )  # fmt: skip

    async def work(bootstrap: str, user: str, topic: str) -> float:
        async with (
            ottla.connect(bootstrap, tls=tls.of_client(ca), sasl=plain(user), connect_timeout=HUNG) as client,
            client.producer() as producer,
        ):
            began = trio.current_time()
            for _ in range(2):  # the second waits until the quota has recovered from the first
                await producer.send(topic, b"x" * 20 * QUOTA)
            return trio.current_time() - began

    with proxied(secured.listener("OAUTH"), "*=rewrite", **forwarding(ca)) as proxy:
        bobs, alices = (trio.run(work, proxy.bootstrap, *each) for each in (("bob", of_bob), ("alice", of_alice)))
    assert alices > max(5, bobs), "alice had to wait for her quota"
