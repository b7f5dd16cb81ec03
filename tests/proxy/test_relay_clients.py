"""Real clients that log in to upstream through the proxy, and one upstream that is Apache Kafka."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio

import ottla
from ottla.addresses import parse_address
from ottla.errors import AuthenticationFailed, TopicAuthorizationFailed
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.sasl_server.settings import MAX_RECEIVE, SaslSettings
from ottla.testing import Broker
from tests import kafka
from tests.brokerlite.record_acls import SETTINGS
from tests.patience import HUNG
from tests.proxy.running import proxied
from tests.proxy.secured import MECHANISMS, rules, user_file, with_passwords

USERS = {"alice": "correct horse", "proxy": "secret-of-the-proxy"}
OURS = {"PLAIN": ottla.Plain, "SCRAM-SHA-256": ottla.ScramSha256, "SCRAM-SHA-512": ottla.ScramSha512}


def relaying(*mechanisms: str) -> ProxyListener:
    return with_passwords(mode=ClientMode.RELAY, sasl=SaslSettings(mechanisms=mechanisms, relayed=True))


def by_ours(bootstrap: str, sasl: Any, topic: str = "t", value: bytes = b"value") -> list[bytes | None]:
    """Produce a record to a topic, and read the topic."""

    async def work() -> list[bytes | None]:
        async with ottla.connect(bootstrap, sasl=sasl, connect_timeout=HUNG) as client:
            async with client.producer() as producer:
                await producer.send(topic, value)
            async with client.consumer(topic, reset="beginning") as consumer:
                async for batch in consumer:
                    return [record.value for record in batch]
        return []

    return trio.run(work)


@pytest.mark.parametrize(("mode", "lines"), [(0o600, 0), (0o644, 1)])
def test_the_log_warns_of_a_password_that_every_user_may_read(
    mode: int, lines: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (given := tmp_path / "upstream.properties").touch()
    given.chmod(mode)
    own = {"sasl": ottla.Plain("proxy", USERS["proxy"]), "upstream_config": str(given)}
    with Broker(users=USERS) as broker, proxied(broker.bootstrap, listeners=(relaying("PLAIN"),), **own):
        pass
    assert caplog.messages.count("password readable by every user of this machine") == lines


def test_our_client_logs_in_to_the_broker_behind_the_proxy() -> None:
    with (
        Broker(users=USERS) as broker,
        proxied(
            broker.bootstrap,
            listeners=(relaying(*MECHANISMS),),
            sasl=ottla.ScramSha512("proxy", USERS["proxy"]),
        ) as proxy,
    ):
        broker.create_topic("t", 1)
        for mechanism in MECHANISMS:
            assert set(by_ours(proxy.bootstrap, OURS[mechanism]("alice", USERS["alice"]))) == {b"value"}
            with pytest.raises(AuthenticationFailed) as raised:
                by_ours(proxy.bootstrap, OURS[mechanism]("alice", "wrong"))
            assert f"user 'alice' by {mechanism} is refused: Authentication failed" in str(raised.value)


def test_a_request_may_be_large_only_after_the_login() -> None:
    with (
        Broker(users=USERS) as broker,
        proxied(broker.bootstrap, listeners=(relaying("PLAIN"),), sasl=ottla.Plain("proxy", USERS["proxy"])) as proxy,
    ):
        broker.create_topic("t", 1)
        with socket.create_connection(parse_address(proxy.bootstrap), HUNG) as stranger:
            stranger.sendall((MAX_RECEIVE + 1).to_bytes(4, "big"))
            assert stranger.recv(1) == b"", "the proxy closes the connection"
        large = os.urandom(MAX_RECEIVE + 1)
        assert by_ours(proxy.bootstrap, ottla.Plain("alice", USERS["alice"]), value=large) == [large]


def librdkafka(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def produced(config: dict[str, Any], *topics: str) -> list[int]:
    """The error codes of a record for each topic."""
    producer = confluent_kafka.Producer(config)
    reports: dict[str | None, Any] = {}
    for topic in topics:
        producer.produce(topic, b"value", on_delivery=lambda error, message: reports.update({message.topic(): error}))
    assert producer.flush(HUNG) == 0
    return [0 if (error := reports[topic]) is None else error.code() for topic in topics]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_to_the_broker_behind_the_proxy(mechanism: str) -> None:
    with (
        Broker(users=USERS) as broker,
        proxied(broker.bootstrap, listeners=(relaying(mechanism),), sasl=ottla.Plain("proxy", USERS["proxy"])) as proxy,
    ):
        broker.create_topic("t", 1)
        assert produced(librdkafka(proxy.bootstrap, mechanism, "alice", USERS["alice"]), "t") == [0]


@pytest.mark.slow
def test_apache_kafka_knows_who_a_relayed_client_is_and_the_proxy_who_a_terminated_one_is(tmp_path: Path) -> None:
    """Upstream's ACLs apply to relayed clients; those of the proxy to clients that log in there."""
    settings = SETTINGS | {"super.users": "User:ANONYMOUS;User:bob"}
    running = kafka.start(tmp_path / "kafka", 1, settings, listeners={"BARE": "SASL_PLAINTEXT"})
    try:
        with ottla.sync.connect(running.bootstrap, connect_timeout=HUNG) as admin:
            for topic in ("theirs", "ours", "secret"):
                admin.create_topic(topic, partitions=1, replication_factor=1)
            admin.create_acls([ottla.AclBinding("User:alice", "Write", "Topic", "theirs")])
        upstream, password = running.listener("BARE"), "tell-nobody"
        listeners = (
            ProxyListener(**vars_of(relaying("PLAIN")) | {"name": "RELAY"}),
            ProxyListener(**vars_of(with_passwords()) | {"name": "HERE"}),
        )
        options: dict[str, Any] = {
            "acls": rules("allow alice Write Topic ours"),
            "users": user_file(tmp_path / "users", {"alice": "another"}),
            "sasl": ottla.Plain("bob", password),
        }
        with proxied(upstream, listeners=listeners, **options) as proxy:
            denied = TopicAuthorizationFailed.code
            relayed = librdkafka(proxy.running.listeners["RELAY"], "PLAIN", "alice", password)
            here = librdkafka(proxy.running.listeners["HERE"], "SCRAM-SHA-256", "alice", "another")
            deadline = time.monotonic() + HUNG
            while produced(relayed, "theirs") != [0]:  # until the ACL has reached the broker
                assert time.monotonic() < deadline
            assert produced(relayed, "theirs", "ours", "secret") == [0, denied, denied]
            assert produced(here, "theirs", "ours", "secret") == [denied, 0, denied]
    finally:
        running.stop()


def vars_of(listener: ProxyListener) -> dict[str, Any]:
    return {name: getattr(listener, name) for name in listener.__dataclass_fields__}
