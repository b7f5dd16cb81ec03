"""The programs of Kafka's own system tests work through the proxy.

`StreamsSmokeTest` verifies aggregates of Kafka Streams. Its driver sends one record with the key ``flush`` to each
partition of ``data`` on purpose, so ``data`` cannot be rewritten; ``echo`` is.
"""

import json
import threading
from pathlib import Path

import pytest

from ottla.codec.partitioners import murmur2_partition
from tests.interop.peers import JAVA, Running, create_topic
from tests.kafka import NOW, STREAMS, ApacheKafka, Release, java
from tests.patience import PROGRAM
from tests.proxy.running import proxied

pytestmark = pytest.mark.deep

SMOKE_TOPICS = [
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif"),
    *("sum", "sws-raw", "sws-suppressed", "cnt", "avg", "tagg"),
]
THREE, SIX = 3, 6
RECORDS = 6_000


class Program(Running):
    """A running program of Kafka; tests wait for its lines."""

    def __init__(self, main: str, *arguments: str | Path, release: Release = NOW) -> None:
        self.main = main
        self.lines: list[str] = []
        self._changed, self._ended = threading.Condition(), False
        super().__init__(java(main, *arguments, release=release))

    def heard(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def await_lines(self, count: int, text: str) -> None:
        """Wait until ``count`` lines contain a text."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._counted(text) >= count, PROGRAM)
        last = "\n".join(self.lines[-20:])
        assert self._counted(text) >= count, f"{self}: no {count} lines with {text!r}:\n{last}\n{self.said()}"

    def _counted(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    def _read(self) -> None:
        super()._read()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __str__(self) -> str:
        return self.main


def smoke_test(command: str, properties: Path) -> Program:
    return Program("org.apache.kafka.streams.tests.StreamsSmokeTest", properties, command, release=STREAMS)


def tool(name: str, *arguments: str) -> Program:
    return Program(f"org.apache.kafka.tools.{name}", *arguments)


def test_kafka_streams_computes_exactly_once_although_the_application_is_killed(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    for topic in SMOKE_TOPICS:
        create_topic(kafka.bootstrap, topic, 5)
    with proxied(kafka.bootstrap, "echo=rewrite") as proxy:
        properties = tmp_path / "streams.properties"
        properties.write_text(
            f"bootstrap.servers={proxy.bootstrap}\nprocessing.guarantee=exactly_once_v2\n"
            "commit.interval.ms=500\nsession.timeout.ms=10000\nnum.stream.threads=2\n"
        )
        with smoke_test("run", properties) as driver:
            with smoke_test("process", properties) as killed:
                killed.await_lines(1, "SMOKE-TEST-CLIENT-STARTED")
                driver.await_lines(15, "records produced")  # a line for every hundred; 5,000 in all
            with smoke_test("process", properties) as application:
                driver.close(PROGRAM)
                assert not [line for line in application.lines if "EXCEPTION" in line]
    assert "ALL-RECORDS-DELIVERED" in driver.lines and "SUCCESS" in driver.lines, driver.lines[-40:]


def test_a_copy_in_transactions_with_random_aborts_is_complete_although_the_copier_is_killed(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    """The copier names its input's partition for each record: rewriting moves the records among twice as many."""
    create_topic(kafka.bootstrap, "verifiable", THREE)
    create_topic(kafka.bootstrap, "copied", SIX)
    committed = tmp_path / "committed.properties"
    committed.write_text("isolation.level=read_committed\n")
    count = str(RECORDS)
    with proxied(kafka.bootstrap, "verifiable=rewrite", "copied=rewrite") as proxy:
        bootstrap = ("--bootstrap-server", proxy.bootstrap)
        some = ("--repeating-keys", "97", "--max-messages", count)
        with tool("VerifiableProducer", *bootstrap, "--topic", "verifiable", *some) as producer:
            producer.close(PROGRAM)
        sent = [json.loads(line) for line in producer.lines]
        assert sum(each["name"] == "producer_send_success" for each in sent) == RECORDS
        for partition in range(THREE):
            copy = [
                *("--broker-list", proxy.bootstrap, "--input-topic", "verifiable", "--output-topic", "copied"),
                *("--input-partition", str(partition), "--consumer-group", f"copier-{partition}"),
                *("--transactional-id", f"copier-{partition}", "--transaction-size", "50", "--enable-random-aborts"),
            ]
            with tool("TransactionalMessageCopier", *copy) as killed:
                killed.await_lines(5, "remaining")
            with tool("TransactionalMessageCopier", *copy) as copier:
                copier.close(PROGRAM)
        group = ("--group-id", "verifier", "--command-config", str(committed), "--max-messages", count, "--verbose")
        with tool("VerifiableConsumer", *bootstrap, "--topic", "copied", *group) as consumer:
            consumer.close(PROGRAM)
    seen = [json.loads(line) for line in consumer.lines]
    values = [each["value"] for each in seen if each["name"] == "record_data"]
    assert sorted(values, key=int) == [str(n) for n in range(RECORDS)]
    for record in JAVA.consume(kafka.bootstrap, "copied", {"isolation.level": "read_committed"}):
        assert record.partition == murmur2_partition(record.key or b"", SIX)
