"""OAUTHBEARER with Apache Kafka: JWTs of a token endpoint, which Kafka verifies; tokens that expire under load."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla import TLS, ClientCredentials, OAuthBearer
from ottla.errors import AuthenticationFailed, BrokerUnreachable
from tests.kafka import HOST, NOW, ApacheKafka, start
from tests.oidc import CLIENT, SECRET, Provider, kafka_settings, serving
from tests.patience import FAR, longer_and_longer
from tests.sdk.loops import LOOPS, Loop
from tests.tls import kafka_store, text

pytestmark = pytest.mark.deep

LASTS = 4.0
"""The lifetime in seconds of a token that expires under load."""


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def provider(ca: trustme.CA) -> Iterator[Provider]:
    with serving(Provider(), ca) as provider:
        yield provider


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA, provider: Provider) -> Iterator[ApacheKafka]:
    home = tmp_path_factory.mktemp("oauth")
    settings, flag = kafka_settings(home, provider, "OAUTH")
    running = start(
        home / "kafka",
        1,
        settings | kafka_store(home, ca, HOST),
        release=replace(NOW, flags=(*NOW.flags, flag)),
        listeners={"OAUTH": "SASL_SSL"},
    )
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Loop:
    return LOOPS[request.param]


def options(provider: Provider, ca: trustme.CA, secret: str = SECRET) -> dict[str, Any]:
    tls = TLS(ca=text(ca.cert_pem))
    return {"tls": tls, "sasl": OAuthBearer(ClientCredentials(provider.endpoint, CLIENT, secret, tls=tls))}


def connected(loop: Loop, address: str, **options: Any) -> None:
    async def scenario() -> None:
        async with loop.connect(address, **options):
            pass

    loop.run(scenario)


def test_tokens_that_run_out_under_load_lose_and_double_nothing(
    loop: Loop, kafka: ApacheKafka, provider: Provider, ca: trustme.CA
) -> None:
    topic = f"t-{time.monotonic_ns()}"
    provider.lasts = LASTS
    sent = read = 0
    created: set[float] = set()

    async def scenario() -> None:
        nonlocal sent, read
        async with loop.connect(kafka.listener("OAUTH"), **options(provider, ca)) as client:
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
                    await producer.flush()
                    while read < sent:
                        batch = await anext(consumer)
                        for record in batch:
                            assert record.value == b"%d" % read
                            read += 1
                    await consumer.commit()
                    if time.monotonic() > began + LASTS / 2:  # by now all connections exist
                        created.add(sum(_made(client)))
            assert (await client.offsets({(topic, 0): "end"}))[topic, 0] == sent

    before = len(provider.issued)
    try:
        loop.run(scenario)
    finally:
        provider.lasts = 3600.0
    assert read == sent > 100
    assert len(provider.issued) - before >= 3
    # Without renewal, each token would cost five or six connections; on a busy machine one renewal may come too late.
    assert max(created) - min(created) <= 2, "sessions are renewed on their connections"


def _made(client: Any) -> list[float]:
    return [each.value for each in client.metrics() if each.name == "connection-creation-total"]


def test_what_is_refused_is_told_at_once(loop: Loop, kafka: ApacheKafka, provider: Provider, ca: trustme.CA) -> None:
    address = kafka.listener("OAUTH")
    with pytest.raises(AuthenticationFailed) as raised:
        connected(loop, address, **options(provider, ca, "wrong"), connect_timeout=FAR)
    why = "HTTP 401 invalid_client: Unknown client, or a wrong secret"
    assert str(raised.value) == f"{address}: {provider.endpoint} refuses client {CLIENT!r}: {why}"
    foreign = rsa.generate_private_key(65537, 2048)
    for token in (provider.token(key=foreign), provider.token(iss="others")):
        given = options(provider, ca) | {"sasl": OAuthBearer(partial(str, token))}
        with pytest.raises(AuthenticationFailed) as raised:
            connected(loop, address, **given, connect_timeout=FAR)
        assert str(raised.value) == f'{address}: the token by OAUTHBEARER is refused: {{"status":"invalid_token"}}'


def test_an_endpoint_that_cannot_be_reached_is_asked_again(
    loop: Loop, kafka: ApacheKafka, provider: Provider, ca: trustme.CA
) -> None:
    gone = OAuthBearer(ClientCredentials("https://127.0.0.1:1/token", CLIENT, SECRET))
    for seconds in longer_and_longer(2.0):
        with pytest.raises(BrokerUnreachable) as raised:
            connected(loop, kafka.listener("OAUTH"), **options(provider, ca) | {"sasl": gone}, connect_timeout=seconds)
        if "https://127.0.0.1:1/token cannot be reached" in str(raised.value):
            break
    assert "https://127.0.0.1:1/token cannot be reached" in str(raised.value)
    provider.answers = [(503, b"busy")] * 3
    connected(loop, kafka.listener("OAUTH"), **options(provider, ca))
    assert not provider.answers


def test_secrets_and_tokens_are_told_nobody(
    loop: Loop, kafka: ApacheKafka, provider: Provider, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    seen: list[object] = []

    async def scenario() -> None:
        async with loop.connect(kafka.listener("OAUTH"), **options(provider, ca)) as client:
            await client.list_topics()
            seen.extend([client, client.explain(), client.metrics(), client._driver.core.options])

    loop.run(scenario)
    for answer in ((401, b"{}"), (503, b"{}")):
        provider.answers = [answer] * 50
        with pytest.raises((AuthenticationFailed, BrokerUnreachable)) as raised:
            connected(loop, kafka.listener("OAUTH"), **options(provider, ca), connect_timeout=1.0)
        seen.extend([raised.value, raised.getrepr(style="long", showlocals=False)])
    provider.answers = []
    seen.extend([caplog.text, *(each.__dict__ for each in caplog.records)])
    for each in seen:
        for secret in (SECRET, provider.issued[-1]):
            assert secret not in repr(each) and secret not in str(each)
