"""A proxy in front of an Apache Kafka that requires TLS and a password, or a token; clients need none of these."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

import ottla
from ottla import TLS, ClientCredentials, OAuthBearer, Plain
from ottla.errors import AuthenticationFailed, BrokerUnreachable, OttlaError
from tests.cli import program
from tests.kafka import HOST, NOW, ApacheKafka, start
from tests.oidc import CLIENT, Provider, kafka_settings, serving
from tests.oidc import SECRET as OF_THE_CLIENT
from tests.patience import FAR, longer_and_longer
from tests.proxy.running import ProxyThread, proxied
from tests.tls import kafka_store, text

pytestmark = pytest.mark.slow

SECRET = "tell-nobody"
LASTS = 4.0
"""The lifetime of a token in seconds; it expires under load."""


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def provider(ca: trustme.CA) -> Iterator[Provider]:
    with serving(Provider(), ca) as provider:
        yield provider


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA, provider: Provider) -> Iterator[ApacheKafka]:
    home = tmp_path_factory.mktemp("secured")
    settings, flag = kafka_settings(home, provider, "OAUTH")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings |= {
        "listener.name.words.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.words.plain.sasl.jaas.config": f"{module} required user_alice='{SECRET}';",
    }
    running = start(
        home / "kafka",
        1,
        settings | kafka_store(home, ca, HOST),
        release=replace(NOW, flags=(*NOW.flags, flag)),
        listeners={"OAUTH": "SASL_SSL", "WORDS": "SASL_SSL"},
    )
    try:
        yield running
    finally:
        running.stop()


def by_token(provider: Provider, ca: trustme.CA) -> dict[str, Any]:
    tls = TLS(ca=text(ca.cert_pem))
    return {"tls": tls, "sasl": OAuthBearer(ClientCredentials(provider.endpoint, CLIENT, OF_THE_CLIENT, tls=tls))}


@pytest.mark.deep
@pytest.mark.parametrize("rule", ["t-*=rewrite", "t-*=observe"])
def test_clients_need_no_password_for_what_the_proxy_has_one(kafka: ApacheKafka, ca: trustme.CA, rule: str) -> None:
    topic = f"t-{time.monotonic_ns()}"

    async def scenario(bootstrap: str) -> list[bytes | None]:
        async with ottla.connect(bootstrap) as client:
            await client.create_topic(topic, partitions=3)
            async with client.producer() as producer:
                await producer.send_many(topic, [b"%d" % number for number in range(300)])
                await producer.send(topic, b"x" * 200_000)
            read: list[bytes | None] = []
            async with client.consumer(topic, group=f"g-{topic}", start="beginning") as consumer:
                async for batch in consumer:
                    read += [record.value for record in batch]
                    if len(read) == 301:
                        break
            return sorted(read, key=lambda each: (len(each or b""), each))

    tls, sasl = TLS(ca=text(ca.cert_pem)), Plain("alice", SECRET)
    with proxied(kafka.listener("WORDS"), rule, tls=tls, sasl=sasl) as proxy:
        read = trio.run(scenario, proxy.bootstrap)
    expected = sorted([b"%d" % number for number in range(300)], key=lambda each: (len(each), each))
    assert read == [*expected, b"x" * 200_000]


@pytest.mark.deep
def test_tokens_that_run_out_under_load_lose_and_double_nothing(
    kafka: ApacheKafka, provider: Provider, ca: trustme.CA
) -> None:
    topic = f"t-{time.monotonic_ns()}"
    provider.lasts = LASTS
    before = len(provider.issued)
    sent = read = 0
    created: set[float] = set()

    async def scenario(bootstrap: str) -> None:
        nonlocal sent, read
        async with ottla.connect(bootstrap) as client:
            await client.create_topic(topic, partitions=1)
            async with (
                client.producer(linger=0.001) as producer,
                client.consumer(topic, group=f"g-{topic}", start="beginning") as consumer,
            ):
                began = time.monotonic()
                while time.monotonic() < began + 3 * LASTS:
                    for _ in range(20):
                        await producer.send(topic, b"%d" % sent)
                        sent += 1
                    while read < sent:
                        for record in await anext(consumer):
                            assert record.value == b"%d" % read
                            read += 1
                    await consumer.commit()
                    if time.monotonic() > began + LASTS / 2:  # all connections exist by now
                        metrics = client.metrics()
                        created.add(sum(each.value for each in metrics if each.name == "connection-creation-total"))
            assert (await client.offsets({(topic, 0): "end"}))[topic, 0] == sent

    try:
        with proxied(kafka.listener("OAUTH"), **by_token(provider, ca)) as proxy:
            trio.run(scenario, proxy.bootstrap)
    finally:
        provider.lasts = 3600.0
    assert read == sent > 100
    assert len(provider.issued) - before >= 3
    # Without renewal, five or six connections would break with each token; on a busy machine one renewal may be late.
    assert max(created) - min(created) <= 2, "upstream's sessions are renewed, so clients keep their connections"


@pytest.mark.deep
def test_what_is_refused_is_told_at_once(
    kafka: ApacheKafka, ca: trustme.CA, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    tls, address = TLS(ca=text(ca.cert_pem)), kafka.listener("WORDS")
    proxy = partial(ProxyThread, address, connect_timeout=FAR)
    cases: list[tuple[Any, type[OttlaError], str]] = [
        (
            partial(proxy, tls=tls, sasl=Plain("alice", "wrong-secret")),
            AuthenticationFailed,
            "user 'alice' by PLAIN is refused",
        ),
        (
            partial(ProxyThread, address, tls=TLS(), sasl=Plain("alice", SECRET), connect_timeout=FAR),
            AuthenticationFailed,
            "not trusted",
        ),
    ]
    for make, kind, says in cases:
        with pytest.RaisesGroup(pytest.RaisesExc(kind, match=says)):  # the nursery's group
            make().start()
    tried: list[tuple[Any, str]] = [
        (partial(ProxyThread, address, tls=tls), "at the first request; listeners that require authentication"),
        (partial(ProxyThread, address), "TLS is on at the other side"),
        (partial(ProxyThread, kafka.bootstrap, tls=tls), "listeners without TLS do that"),
    ]
    for make, says in tried:
        for seconds in longer_and_longer(2.0):
            with pytest.RaisesGroup(BrokerUnreachable) as raised:
                make(connect_timeout=seconds).start()
            if says in (said := str(raised.value.exceptions[0])):
                break
        assert says in said
    assert "wrong-secret" not in caplog.text


def test_the_file_that_serves_kafkas_tools_serves_the_proxy(kafka: ApacheKafka, ca: trustme.CA, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem.bytes())
    file = tmp_path / "upstream.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={tmp_path / 'ca.pem'}\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="{SECRET}";\n'
    )
    given = ("proxy", "--upstream", kafka.listener("WORDS"), "--listen", "127.0.0.1:0", "--json")
    with program.running(*given, "--upstream-config", file) as proxy:
        told = proxy.facts()
        listed = program.run("topics", "list", "--bootstrap", told["bootstrap"])
        assert (listed.returncode, listed.stderr) == (0, b"")
    file.write_text(file.read_text().replace(SECRET, "wrong-secret"))
    ended = program.run(*given, "--upstream-config", file)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"user 'alice' by PLAIN is refused" in ended.stderr and b"wrong-secret" not in ended.stderr
