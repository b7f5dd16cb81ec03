"""TLS and mTLS with Apache Kafka: records pass in both directions, and each failure raises its own error at once."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from ottla import TLS
from ottla.errors import AuthenticationFailed, BrokerUnreachable
from tests.kafka import HOST, start
from tests.patience import FAR
from tests.sdk.loops import LOOPS, Loop
from tests.tls import kafka_store, text

pytestmark = pytest.mark.slow


@dataclass
class Secured:
    """An Apache Kafka with TLS listeners."""

    ca: trustme.CA
    tls: str
    """The listener for any client."""
    mutual: str
    """The listener that requires a certificate of the CA."""
    plain: str

    def trusted(self, **options: Any) -> TLS:
        return TLS(ca=text(self.ca.cert_pem), **options)


def own(ca: trustme.CA, **times: Any) -> str:
    """A client certificate and its key, as one text."""
    return text(ca.issue_cert("service@example.com", **times).private_key_and_cert_chain_pem)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("secured")
    ca = trustme.CA()
    kafka = start(
        home / "kafka",
        1,
        kafka_store(home, ca, HOST) | {"listener.name.mutual.ssl.client.auth": "required"},
        listeners={"TLS": "SSL", "MUTUAL": "SSL"},
    )
    try:
        yield Secured(ca, kafka.listener("TLS"), kafka.listener("MUTUAL"), kafka.bootstrap)
    finally:
        kafka.stop()


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Loop:
    return LOOPS[request.param]


def test_records_go_and_come(loop: Loop, secured: Secured, tmp_path: Path) -> None:
    topic = f"t-{time.monotonic_ns()}"
    path = tmp_path / "own.pem"
    path.write_text(own(secured.ca))
    values = [bytes([number % 256]) * size for size in (100, 1000, 10_000, 400_000) for number in range(20)]

    async def scenario() -> list[bytes | None]:
        got: list[bytes | None] = []
        async with (
            loop.connect(secured.mutual, tls=secured.trusted(certificate=path)) as writing,
            loop.connect(secured.tls, tls=secured.trusted()) as reading,
        ):
            await writing.create_topic(topic, partitions=1)
            async with writing.producer() as producer:
                for value in values:
                    await producer.send_soon(topic, value)
            async with reading.consumer(topic, group="g", start="beginning") as consumer:
                while len(got) < len(values):
                    got += [each.value for each in await anext(consumer)]
        return got

    assert loop.run(scenario) == values


def connected(loop: Loop, address: str, seconds: float, **options: Any) -> None:
    async def scenario() -> None:
        async with loop.connect(address, connect_timeout=seconds, **options):
            pass

    loop.run(scenario)


NAMED = "the broker's certificate is not trusted: it is not for 'localhost'; it has to name what brokers advertise; "
UNTRUSTED = (
    "the broker does not accept this side's certificate: it has expired or is not valid yet, or the CA that "
    "signed it is missing in the broker's truststore"
)


def test_each_failure_is_told_at_once_and_by_its_name(loop: Loop, secured: Secured) -> None:
    ca, other = secured.ca, trustme.CA()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    past = {"not_before": yesterday - timedelta(days=1), "not_after": yesterday}
    missing = "the broker requires a certificate, and got none: give TLS(certificate=…, key=…)"
    signed = (
        "the broker's certificate is not trusted: unable to get local issuer certificate; give the CA that signed it"
    )
    for address, tls, why in [
        (secured.tls, TLS(ca=text(other.cert_pem)), f"{signed} as tls=TLS(ca=…)"),
        (secured.tls, TLS(), f"{signed} as tls=TLS(ca=…)"),
        (
            secured.tls.replace(HOST, "localhost"),
            secured.trusted(),
            f"{NAMED}TLS(check_hostname=False) accepts any name",
        ),
        (secured.mutual, secured.trusted(), missing),
        (secured.mutual, secured.trusted(certificate=own(other)), UNTRUSTED),
        (secured.mutual, secured.trusted(certificate=own(ca, **past)), UNTRUSTED),
    ]:
        with pytest.raises(AuthenticationFailed) as raised:
            connected(loop, address, FAR, tls=tls)
        assert str(raised.value) == f"{address}: {why}"


def test_a_listener_of_the_other_kind_is_recognised(loop: Loop, secured: Secured) -> None:
    with pytest.raises(BrokerUnreachable, match="it looks like a TLS alert"):
        connected(loop, secured.tls, 1.0)
    with pytest.raises(BrokerUnreachable, match="during the TLS handshake; listeners without TLS do that"):
        connected(loop, secured.plain, 1.0, tls=secured.trusted())


def test_a_certificate_that_was_renewed_is_used_by_the_next_connection(
    loop: Loop, secured: Secured, tmp_path: Path
) -> None:
    path = tmp_path / "own.pem"
    path.write_text(own(trustme.CA()))
    tls = secured.trusted(certificate=path)
    with pytest.raises(AuthenticationFailed):
        connected(loop, secured.mutual, 30.0, tls=tls)
    path.write_text(own(secured.ca))
    connected(loop, secured.mutual, 30.0, tls=tls)
