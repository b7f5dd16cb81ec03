"""The ACLs that queries need on Apache Kafka: the rights that docs/spark.md names are enough, and all are needed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.errors import PySparkException

from ottla.spark.reading import batch_reader as spark_reader
from tests.interop.lines import Message
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.interop.transfers import until
from tests.kafka import NOW, OLD, ApacheKafka, start
from tests.patience import HUNG, PROGRAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

Right = tuple[str, str, AclOperation]
"""The user, the topic or group, and the operation."""
READ_TOPIC, READ_GROUP = ("reader", "source", AclOperation.READ), ("reader", "lag", AclOperation.READ)
WRITE_TOPIC = ("writer", "target", AclOperation.WRITE)


@dataclass
class Guarded:
    """A Kafka with ACLs; on the plain listener, every client may do everything."""

    kafka: ApacheKafka

    def options(self, user: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.kafka.listener("GUARDED"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": user,
            "kafka.sasl.password": f"of-{user}",
        }

    def allow(self, *rights: Right) -> None:
        """Grant these rights, and revoke all others; return once the broker enforces that.

        The controller answers before the broker has read the change. The broker describes the ACLs that it enforces.
        """
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        everything = AclBindingFilter(  # the library's types lack None, which stands for any name
            ResourceType.ANY,
            None,  # type: ignore[arg-type]
            ResourcePatternType.ANY,
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin.delete_acls([everything])[everything].result(HUNG)
        bindings = [
            AclBinding(
                ResourceType.GROUP if name == "lag" else ResourceType.TOPIC,
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for user, name, operation in rights
        ]
        for done in admin.create_acls(bindings).values() if bindings else ():
            done.result(HUNG)
        until(lambda: set(admin.describe_acls(everything).result(HUNG)) == set(bindings), "the new ACLs")


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.deep)])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    old = request.param != "4.3"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{user}="of-{user}"' for user in ("reader", "writer"))
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"
        if old
        else "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f"{module} required {users};",
    }
    release = OLD[request.param] if old else NOW
    home = tmp_path_factory.mktemp("guarded") / "kafka"
    kafka = start(home, 1, settings, release=release, listeners={"GUARDED": "SASL_PLAINTEXT"})
    for topic in ("source", "target", "unseen"):
        create_topic(kafka.bootstrap, topic, 2)
    LIBRDKAFKA.produce(kafka.bootstrap, [Message("source", b"%d" % n, b"%d" % n) for n in range(100)])
    yield Guarded(kafka)
    kafka.stop()
    spark_reader.clients.close()


def read(spark: "SparkSession", guarded: Guarded, **source: str) -> int:
    return spark.read.format("ottla").options(**guarded.options("reader"), **source).load().count()


def write(spark: "SparkSession", guarded: Guarded, topic: str) -> None:
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").mode("append").options(**guarded.options("writer"), topic=topic).save()


def test_a_batch_query_needs_read_on_its_topics(spark: "SparkSession", guarded: Guarded) -> None:
    guarded.allow(READ_TOPIC)
    assert read(spark, guarded, subscribe="source") == 100
    assert read(spark, guarded, subscribePattern=".*") == 100, "topics that it may not see do not match the pattern"
    guarded.allow(("reader", "source", AclOperation.DESCRIBE))
    with pytest.raises(PySparkException, match=r"TopicAuthorizationFailed|[Nn]ot authorized"):
        read(spark, guarded, subscribe="source")


def test_a_stream_needs_read_on_its_group_to_show_its_lag(
    spark: "SparkSession", guarded: Guarded, tmp_path: Path
) -> None:
    def run(name: str) -> None:
        frame = spark.readStream.format("ottla").options(**guarded.options("reader"), subscribe="source")
        frame = (
            frame.option("startingOffsets", "earliest")
            .option("groupIdPrefix", "lag")
            .option("maxOffsetsPerTrigger", 10)
        )
        writer = frame.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PROGRAM)
        last = query.lastProgress
        assert last is not None
        read = json.loads(last["sources"][0]["endOffset"])["source"]
        assert sum(read.values()) == 100

    def committed() -> int:
        with Consumer({"bootstrap.servers": guarded.kafka.bootstrap, "group.id": "lag"}) as consumer:
            places = consumer.committed([TopicPartition("source", each) for each in range(2)], HUNG)
        return sum(max(each.offset, 0) for each in places)

    guarded.allow(READ_TOPIC)
    run("without")  # the query continues, with warnings
    guarded.allow(READ_TOPIC, READ_GROUP)
    run("with")
    assert committed() == 100


def test_a_query_that_writes_needs_write_on_its_topics(spark: "SparkSession", guarded: Guarded) -> None:
    guarded.allow(WRITE_TOPIC)
    write(spark, guarded, "target")
    assert len(LIBRDKAFKA.consume(guarded.kafka.bootstrap, "target")) == 100
    guarded.allow(("writer", "target", AclOperation.DESCRIBE))
    with pytest.raises(PySparkException, match="TOPIC_AUTHORIZATION_FAILED"):
        write(spark, guarded, "target")
