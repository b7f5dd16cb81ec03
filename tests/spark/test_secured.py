"""Queries on an Apache Kafka that requires TLS and a password."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme
from pyspark.errors import PySparkException

import ottla
from ottla import TLS, Plain
from ottla.spark.reading import batch_reader as spark_reader
from tests.kafka import HOST, ApacheKafka, start
from tests.patience import PROGRAM
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


@pytest.fixture
def options(kafka: ApacheKafka, ca: trustme.CA, tmp_path: Path) -> dict[str, Any]:
    """The options, by Kafka's names."""
    trust = tmp_path / "ca.pem"
    trust.write_text(text(ca.cert_pem))
    return {
        "kafka.bootstrap.servers": kafka.listener("BOTH"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(trust),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": SECRET,
    }


def create(options: dict[str, Any], topic: str) -> None:
    tls = TLS(ca=Path(options["kafka.ssl.ca.location"]))

    async def main() -> None:
        address = options["kafka.bootstrap.servers"]
        async with ottla.connect(address, tls=tls, sasl=Plain("alice", SECRET)) as client:
            await client.create_topic(topic, partitions=2)

    trio.run(main)


def test_queries_use_kafkas_names_for_tls_and_sasl_and_show_no_password(
    spark: "SparkSession", options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    create(options, "orders")
    frame = spark.range(100).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    frame.write.format("ottla").mode("append").options(**options, topic="orders").save()
    rows = spark.read.format("ottla").options(**options, subscribe="orders").load().collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(100))
    wrong = options | {"kafka.sasl.password": f"not-{SECRET}"}
    refused = r"user 'alice' by PLAIN is refused: Authentication failed"
    with pytest.raises(PySparkException, match=refused) as raised:
        spark.read.format("ottla").options(**wrong, subscribe="orders").load().collect()
    assert SECRET not in str(raised.value)
    with pytest.raises(PySparkException, match=refused) as raised:
        frame.write.format("ottla").mode("append").options(**wrong, topic="orders").save()
    assert SECRET not in str(raised.value)
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("ottla")]  # Spark logs the options
    assert SECRET not in "".join(ours)


def test_a_stream_reads_and_writes_with_tls_and_sasl(
    spark: "SparkSession", options: dict[str, Any], tmp_path: Path
) -> None:
    for topic in ("source", "target"):
        create(options, topic)
    frame = spark.range(50).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    frame.write.format("ottla").mode("append").options(**options, topic="source").save()
    read = spark.readStream.format("ottla").options(**options, subscribe="source", startingOffsets="earliest").load()
    written = read.select("value").writeStream.format("ottla").options(**options, topic="target")
    query = written.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(PROGRAM)
    rows = spark.read.format("ottla").options(**options, subscribe="target").load().collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(50))
