"""SASL with Apache Kafka: each mechanism, in plaintext and over TLS, and the error that a user sees on failure."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from ottla import TLS, Plain, ScramSha256, ScramSha512
from ottla.errors import AuthenticationFailed, BrokerUnreachable
from tests.kafka import HOST, ApacheKafka, start
from tests.patience import FAR
from tests.sdk.loops import LOOPS, Loop
from tests.tls import kafka_store, text

pytestmark = pytest.mark.slow

SECRET = "tell-nobody"
JAAS = "org.apache.kafka.common.security"
SETTINGS = {
    "listener.name.{}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.{}.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required user_alice='{SECRET}';",
    "listener.name.{}.scram-sha-256.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
    "listener.name.{}.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
}


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[ApacheKafka]:
    home = tmp_path_factory.mktemp("sasl")
    settings = {name.format(each): value for each in ("bare", "both") for name, value in SETTINGS.items()}
    settings["listener.name.few.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
    settings["listener.name.few.scram-sha-512.sasl.jaas.config"] = f"{JAAS}.scram.ScramLoginModule required;"
    running = start(
        home / "kafka",
        1,
        settings | kafka_store(home, ca, HOST),
        listeners={"BARE": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "FEW": "SASL_PLAINTEXT"},
    )
    try:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            entity = ["--entity-type", "users", "--entity-name", "alice"]
            how = ["--alter", "--add-config", f"{mechanism}=[password={SECRET}]", *entity]
            running.run("kafka.admin.ConfigCommand", "--bootstrap-server", running.bootstrap, *how)
        yield running
    finally:
        running.stop()


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Loop:
    return LOOPS[request.param]


@pytest.mark.parametrize("kind", [Plain, ScramSha256, ScramSha512])
@pytest.mark.parametrize("listener", ["BARE", "BOTH"])
def test_a_user_with_the_right_password_is_let_in(
    loop: Loop, kafka: ApacheKafka, ca: trustme.CA, listener: str, kind: Any
) -> None:
    topic = f"t-{time.monotonic_ns()}"

    async def scenario() -> bytes | None:
        tls = TLS(ca=text(ca.cert_pem)) if listener == "BOTH" else None
        async with loop.connect(kafka.listener(listener), tls=tls, sasl=kind("alice", SECRET)) as client:
            await client.create_topic(topic, partitions=1)
            async with client.producer() as producer:
                await producer.send(topic, b"v")
            async with client.consumer(topic, group="g", start="beginning") as consumer:
                async for batch in consumer:
                    return next(iter(batch)).value
        return None

    assert loop.run(scenario) == b"v"


def connected(loop: Loop, address: str, sasl: Any, seconds: float) -> None:
    async def scenario() -> None:
        async with loop.connect(address, sasl=sasl, connect_timeout=seconds):
            pass

    loop.run(scenario)


@pytest.mark.parametrize("kind", [Plain, ScramSha256, ScramSha512])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_is_told_at_once(loop: Loop, kafka: ApacheKafka, kind: Any, user: str) -> None:
    address = kafka.listener("BARE")
    with pytest.raises(AuthenticationFailed) as raised:
        connected(loop, address, kind(user, "wrong"), FAR)
    said = (
        "Authentication failed: Invalid username or password"
        if kind is Plain
        else "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        + kind.mechanism
    )
    assert str(raised.value) == f"{address}: user {user!r} by {kind.mechanism} is refused: {said}"


def test_what_the_listener_has_not_is_told_at_once(loop: Loop, kafka: ApacheKafka) -> None:
    for address, says in [
        (kafka.listener("FEW"), "the broker does not offer this mechanism; it has SCRAM-SHA-512"),
        (kafka.bootstrap, "the listener has no SASL; leave out sasl=, or use another port"),
    ]:
        with pytest.raises(AuthenticationFailed) as raised:
            connected(loop, address, Plain("alice", SECRET), 30.0)
        assert str(raised.value) == f"{address}: user 'alice' by PLAIN: {says}"
    with pytest.raises(BrokerUnreachable, match=r"listeners that require authentication \(SASL\)"):
        connected(loop, kafka.listener("BARE"), None, 2.0)


@pytest.mark.parametrize("kind", [Plain, ScramSha256, ScramSha512])
def test_a_password_is_told_nobody(loop: Loop, kafka: ApacheKafka, caplog: pytest.LogCaptureFixture, kind: Any) -> None:
    caplog.set_level(0)
    seen: list[object] = []

    async def scenario() -> None:
        async with loop.connect(kafka.listener("BARE"), sasl=kind("alice", SECRET)) as client:
            await client.list_topics()
            seen.extend([client, client.explain(), client.metrics(), client._driver.core.options])

    loop.run(scenario)
    with pytest.raises(AuthenticationFailed) as raised:
        connected(loop, kafka.listener("BARE"), kind("mallory", SECRET), 30.0)
    seen.extend([raised.value, raised.getrepr(style="long", showlocals=False), caplog.text])
    seen.extend([each.__dict__ for each in caplog.records])
    assert caplog.records
    for each in seen:
        assert SECRET not in repr(each) and SECRET not in str(each)
