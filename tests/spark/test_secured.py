"""Batch queries of an Apache Kafka that wants TLS and a password."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme
from pyspark.errors import PySparkException

import ottla
from ottla import TLS, Plain
from ottla.spark import reader as spark_reader
from tests.kafka import HOST, ApacheKafka, start
from tests.tls import kafka_store, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SECRET = "tell-nobody"


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[ApacheKafka]:
    home = tmp_path_factory.mktemp("secured")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listener.name.both.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.both.plain.sasl.jaas.config": f"{module} required user_alice='{SECRET}';",
    }
    running = start(home / "kafka", 1, settings | kafka_store(home, ca, HOST), listeners={"BOTH": "SASL_SSL"})
    try:
        yield running
    finally:
        running.stop()
        spark_reader.clients.close()


def test_a_query_uses_kafkas_names_for_tls_and_sasl_and_shows_no_password(
    spark: "SparkSession", kafka: ApacheKafka, ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    address, trust = kafka.listener("BOTH"), tmp_path / "ca.pem"
    trust.write_text(text(ca.cert_pem))

    async def write() -> None:
        async with ottla.connect(address, tls=TLS(ca=trust), sasl=Plain("alice", SECRET)) as client:
            await client.create_topic("orders", partitions=2)
            async with client.producer() as producer:
                for number in range(100):
                    await producer.send("orders", b"%d" % number)

    trio.run(write)
    options: dict[str, Any] = {
        "subscribe": "orders",
        "kafka.bootstrap.servers": address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(trust),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": SECRET,
    }
    rows = spark.read.format("ottla").options(**options).load().collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(100))
    wrong = options | {"kafka.sasl.password": f"not-{SECRET}"}
    with pytest.raises(PySparkException, match=r"user 'alice' by PLAIN is refused: Authentication failed") as raised:
        spark.read.format("ottla").options(**wrong).load().collect()
    assert SECRET not in str(raised.value)
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("ottla")]  # Spark logs all it is told
    assert SECRET not in "".join(ours)
