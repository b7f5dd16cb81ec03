"""Batch queries from end to end, on brokerlite and on Apache Kafka. librdkafka wrote the records."""

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark import TaskContext
from pyspark.errors import PySparkException

from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerUnreachable, ConfigurationError, DataLoss
from ottla.sdk import mdns
from ottla.spark.reading import batch_reader as spark_reader
from ottla.spark.reading.batch_reader import MOST_PLANS, OLD_PLAN, OLD_REUSED_PLAN, BatchReader, ReadTask
from ottla.spark.reading.read_options import ReadOptions
from ottla.testing import Broker
from tests.announcing import alone
from tests.interop.lines import Message
from tests.interop.peers import create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.transfers import until
from tests.kafka import ApacheKafka, free_ports
from tests.patience import FAR, HUNG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(params=["brokerlite", "apache"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a broker: a new brokerlite, or the Apache Kafka of the session."""
    if request.param == "apache":
        kafka: ApacheKafka = request.getfixturevalue("kafka")
        return kafka.bootstrap
    broker: Broker = request.getfixturevalue("ottla_broker")
    return broker.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture(autouse=True)
def no_client_left() -> Iterator[None]:
    """Close the clients that other tests left in this process, and the clients that this test leaves."""
    spark_reader.clients.close()
    yield
    spark_reader.clients.close()


def produce(bootstrap: str, messages: Iterable[Message], **config: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "20", **config})
    send(producer, messages)


def send(producer: Producer, messages: Iterable[Message]) -> None:
    failed: list[object] = []
    for each in messages:
        producer.produce(
            each.topic,
            key=each.key,
            value=each.value,
            partition=-1 if each.partition is None else each.partition,
            headers=list(each.headers),
            timestamp=each.timestamp or 0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(HUNG) == 0
    assert failed == []


def numbered(topic: str, partition: int, count: int) -> list[Message]:
    return [Message(topic, b"k", b"%d" % n, partition, timestamp=1_000 + n) for n in range(count)]


def load(spark: "SparkSession", bootstrap: str, **options: str | int) -> "DataFrame":
    return spark.read.format("ottla").options(**{"kafka.bootstrap.servers": bootstrap}, **options).load()


def batch(bootstrap: str, **options: str) -> BatchReader:
    """A query without Spark; the test plans it and reads it step by step."""
    return BatchReader(ReadOptions.parse({"kafka.bootstrap.servers": bootstrap, **options}))


NEVER = {"kafka.default.api.timeout.ms": str(int(FAR * 1000))}
"""So long that a reader which waits for it fails its test: the error must come at once."""


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic, and return once no metadata have it: only then can a topic of that name be created again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(HUNG)
    deadline = time.monotonic() + HUNG
    while topic in admin.list_topics(timeout=HUNG).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def offsets(reader: BatchReader, tasks: Sequence[ReadTask]) -> list[tuple[int, int]]:
    rows = (row for task in tasks for found in reader.read(task) for row in found.to_pylist())
    return [(row["partition"], row["offset"]) for row in rows]


def await_markers(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open: Kafka answers the end of a transaction before it writes the markers."""
    with RawReader(bootstrap) as reader:
        until(lambda: not reader.is_open(topic, 0), "the transaction's marker")


def failure(frame: "DataFrame") -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(caught.value)


def test_every_record_is_read_once_with_all_its_fields(spark: "SparkSession", bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=3)
    headers = (("source", b"gate"), ("empty", b""), ("none", None))
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        messages = [
            Message(
                topic,
                None if n % 7 == 0 else b"key-%d" % n,
                None if n % 11 == 0 else b"value " * (n % 5) + b"%d" % (number * 1000 + n),
                n % 3,
                headers if n % 2 else (),
                1_700_000_000_000 + n,
            )
            for n in range(1000)
        ]
        produce(bootstrap, messages, **{"compression.type": codec})
        wanted = Counter((m.key, m.value, m.partition, m.headers, m.timestamp) for m in messages)
        starts = {str(partition): number * n for partition, n in enumerate([334, 333, 333])}
        frame = load(
            spark,
            bootstrap,
            subscribe=topic,
            includeHeaders="true",
            startingOffsets=str({topic: starts}).replace("'", '"'),
        )
        rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
        found = Counter(
            (row.key, row.value, row.partition, tuple(map(tuple, row.headers or ())), row.ms) for row in rows
        )
        assert found == wanted, codec
        assert {(row.topic, row.timestampType) for row in rows} == {(topic, 0)}
        assert all(row.headers is None or row.headers for row in rows)
        places = {(row.partition, row.offset) for row in rows}
        assert places == {(p, starts[str(p)] + n) for p, size in enumerate([334, 333, 333]) for n in range(size)}


def test_several_topics_are_read_empty_ones_among_them(spark: "SparkSession", bootstrap: str, topic: str) -> None:
    for name in ("a", "b", "none"):
        create_topic(bootstrap, f"{topic}.{name}", partitions=2)
    produce(bootstrap, [*numbered(f"{topic}.a", 0, 10), *numbered(f"{topic}.b", 1, 5)])
    everything = load(spark, bootstrap, subscribe=f"{topic}.a, {topic}.b, {topic}.none")
    assert {(row.topic, row["count"]) for row in everything.groupBy("topic").count().collect()} == {
        (f"{topic}.a", 10),
        (f"{topic}.b", 5),
    }
    assert load(spark, bootstrap, subscribe=f"{topic}.none").collect() == []
    assert load(spark, bootstrap, subscribePattern=rf"{topic}\.[ab]").count() == 15
    assert load(spark, bootstrap, subscribePattern=rf"{topic[1:]}\.").count() == 15  # matches anywhere, as in Java
    assert load(spark, bootstrap, assign=f'{{"{topic}.a": [0, 1], "{topic}.b": [0]}}').count() == 10


def test_offsets_and_times_bound_what_is_read(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)
    produce(bootstrap, [*numbered(topic, 0, 100), *numbered(topic, 1, 50)])

    def read(**options: str) -> dict[int, list[int]]:
        reader = batch(bootstrap, subscribe=topic, **options)
        found: dict[int, list[int]] = {0: [], 1: []}
        for partition, offset in offsets(reader, reader.partitions()):
            found[partition].append(offset)
        return {partition: [min(seen), max(seen) + 1] if seen else [] for partition, seen in found.items()}

    specific = f'{{"{topic}": {{"0": 30, "1": %d}}}}'
    assert read(startingOffsets=specific % -2) == {0: [30, 100], 1: [0, 50]}
    assert read(endingOffsets=specific % -1) == {0: [0, 30], 1: [0, 50]}
    assert read(startingOffsets=specific % 50, endingOffsets=specific % 50) == {0: [], 1: []}
    assert read(startingTimestamp="1020", endingTimestamp="1060") == {0: [20, 60], 1: [20, 50]}
    assert read(startingTimestamp="1070", startingOffsetsByTimestampStrategy="latest") == {0: [70, 100], 1: []}
    with pytest.raises(ConfigurationError, match=f"no record is at or after that time in {topic}-1"):
        batch(bootstrap, subscribe=topic, startingTimestamp="1070").partitions()


def test_with_log_append_time_rows_have_the_brokers_time(spark: "SparkSession", bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, message_timestamp_type="LogAppendTime")
    produce(bootstrap, numbered(topic, 0, 3))
    rows = load(spark, bootstrap, subscribe=topic).selectExpr("timestampType", "year(timestamp) > 2000").distinct()
    assert [tuple(row) for row in rows.collect()] == [(1, True)]


def test_tasks_follow_min_partitions_and_max_tasks(spark: "SparkSession", bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=4)
    produce(bootstrap, [message for partition in range(4) for message in numbered(topic, partition, 50)])

    def tasks(**options: str | int) -> list[int]:
        frame = load(spark, bootstrap, subscribe=topic, **options)
        counts = frame.selectExpr("spark_partition_id() AS task").groupBy("task").count().collect()
        return sorted(row["count"] for row in counts)

    assert tasks() == [100, 100]
    assert tasks(minPartitions=8) == [25] * 8
    assert tasks(maxRecordsPerPartition=30) == [25] * 8
    assert tasks(maxTasks=3) == [50, 50, 100]


def test_a_planned_query_reads_the_same_each_time_whatever_is_written_meanwhile(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)
    produce(bootstrap, numbered(topic, 0, 500))
    reader = batch(bootstrap, subscribe=topic, minPartitions="3")
    tasks = reader.partitions()
    first = offsets(reader, tasks)
    produce(bootstrap, [*numbered(topic, 0, 500), *numbered(topic, 1, 500)])
    assert first == offsets(reader, tasks) == [(0, n) for n in range(500)]


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_frame_that_is_used_again_has_the_rows_of_each_condition(
    spark: "SparkSession", ottla_broker: Broker, topic: str, pushdown: str
) -> None:
    create_topic(ottla_broker.bootstrap, topic, partitions=2)
    produce(ottla_broker.bootstrap, [*numbered(topic, 0, 10), *numbered(topic, 1, 10)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = load(spark, ottla_broker.bootstrap, subscribe=topic)
        first, second = frame.where("partition = 0"), frame.where("partition = 1")
        assert [first.count(), second.count(), frame.count(), first.union(second).count()] == [10, 10, 20, 20]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_query_that_stops_early_leaves_a_client_that_still_reads(
    spark: "SparkSession", bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, [Message(topic, None, b"x" * 1000, 0) for _ in range(30_000)])
    frame = load(spark, bootstrap, subscribe=topic)
    assert [len(frame.take(3)), frame.count(), len(frame.take(1))] == [3, 30_000, 1]

    reader = batch(bootstrap, subscribe=topic)
    [task] = reader.partitions()
    [client] = spark_reader.clients
    for _ in range(3):
        rows = reader.read(task)
        assert next(rows).num_rows > 0
        rows.close()  # type: ignore[attr-defined]  # Spark wants an Iterator; it is a generator
    assert offsets(reader, [task]) == [(0, n) for n in range(30_000)]
    assert list(spark_reader.clients) == [client]


def test_the_client_of_a_worker_outlives_its_broker(ottla_broker: Broker, topic: str) -> None:
    create_topic(ottla_broker.bootstrap, topic)
    produce(ottla_broker.bootstrap, numbered(topic, 0, 100))
    reader = batch(ottla_broker.bootstrap, subscribe=topic)
    tasks = reader.partitions()
    assert len(offsets(reader, tasks)) == 100
    ottla_broker.restart()
    assert len(offsets(reader, tasks)) == 100
    assert len(offsets(reader, reader.partitions())) == 100


def test_a_worker_that_was_forked_gets_a_client_of_its_own(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, numbered(topic, 0, 10))
    reader = batch(bootstrap, subscribe=topic)
    tasks = reader.partitions()
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert len(offsets(reader, tasks)) == 10
    assert len(set(map(id, spark_reader.clients))) == 2


def test_brokers_are_found_by_zeroconf_on_the_driver_alone(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, numbered(topic, 0, 10))
    host, _, port = bootstrap.partition(":")
    with alone(), mdns.announced(topic[:60], int(port), interfaces=[host]):
        reader = batch(f"zeroconf://{topic[:60]}", subscribe=topic)
        tasks = reader.partitions()
    assert [task.client.bootstrap for task in tasks] == [bootstrap]
    assert len(offsets(reader, tasks)) == 10


def test_deleted_records_are_an_error_or_skipped(spark: "SparkSession", kafka: ApacheKafka, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, numbered(topic, 0, 100))
    strict, lenient = (batch(kafka.bootstrap, subscribe=topic, failOnDataLoss=flag) for flag in ("true", "false"))
    tasks = strict.partitions()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 40)]).values():
        deleted.result(HUNG)

    # The topic was deleted after the query was planned.
    with pytest.raises(DataLoss, match=f"offsets 0 to 99 of {topic}-0 .*failOnDataLoss=false"):
        offsets(strict, tasks)
    assert offsets(lenient, tasks) == [(0, n) for n in range(40, 100)]

    # The topic was deleted before the query was planned.
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 10}}}}'}
    text = failure(load(spark, kafka.bootstrap, **options))
    assert f"the query wants offsets 10 to 100 of {topic}-0, but the log has 40 to 100" in text
    assert load(spark, kafka.bootstrap, failOnDataLoss="false", **options).count() == 60
    assert load(spark, kafka.bootstrap, subscribe=topic).count() == 60


@pytest.mark.parametrize("left", [5, 0], ids=["shorter", "empty"])
def test_a_topic_that_was_deleted_or_recreated_is_lost_at_once(
    bootstrap: str, topic: str, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, numbered(topic, 0, 100))
    strict, lenient = (batch(bootstrap, subscribe=topic, failOnDataLoss=flag, **NEVER) for flag in ("true", "false"))
    tasks = strict.partitions()
    assert len(offsets(strict, tasks)) == 100
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic)
    produce(bootstrap, numbered(topic, 0, left))
    with pytest.raises(DataLoss, match=f"offsets 0 to 99 of {topic}-0 .* topic {topic} was deleted and recreated;"):
        offsets(strict, tasks)
    assert offsets(lenient, tasks) == []
    assert f"offsets 0 to 99 of {topic}-0 are gone and are skipped: topic {topic} was deleted" in caplog.text


def test_a_log_that_has_become_shorter_is_lost_at_once(ottla_broker: Broker, topic: str) -> None:
    """As after an unclean election. Without topic ids, a recreated topic looks the same."""
    create_topic(ottla_broker.bootstrap, topic)
    produce(ottla_broker.bootstrap, numbered(topic, 0, 10))
    strict, lenient = (
        batch(ottla_broker.bootstrap, subscribe=topic, failOnDataLoss=flag, **NEVER) for flag in ("true", "false")
    )
    [task] = strict.partitions()
    [whole] = task.ranges
    longer = replace(task, ranges=(replace(whole, end=100, topic_id=NO_UUID),))
    with pytest.raises(DataLoss, match=f"offsets 10 to 99 of {topic}-0 .*the log of {topic}-0 ends at offset 10"):
        offsets(strict, [longer])
    assert offsets(lenient, [longer]) == [(0, n) for n in range(10)]


def test_a_plan_that_is_old_or_read_again_warns_once(
    ottla_broker: Broker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(ottla_broker.bootstrap, topic)
    produce(ottla_broker.bootstrap, numbered(topic, 0, 10))
    reader = batch(ottla_broker.bootstrap, subscribe=topic)
    [task] = reader.partitions()
    assert offsets(reader, [task]) and "load() it again" not in caplog.text
    old = replace(task, latest_as_of=time.time() - 2 * OLD_PLAN)
    assert len(offsets(reader, [old, old])) == 20
    assert caplog.text.count("reads up to the ends that its topics had 2.0 h ago") == 1
    begun = replace(task, latest_as_of=time.time() - OLD_REUSED_PLAN - 1)
    for execution, said in (("7", 0), ("7", 0), ("8", 1), ("9", 1)):
        running = Namespace(getLocalProperty={"spark.sql.execution.id": execution}.get)
        monkeypatch.setattr(TaskContext, "get", lambda running=running: running)
        assert len(offsets(reader, [begun])) == 10
        assert caplog.text.count(f"view of {topic} reads up to the ends that its topics had 6 s ago") == said
    for n in range(2 * MOST_PLANS):
        offsets(reader, [replace(task, latest_as_of=time.time() + n)])
    assert len(spark_reader._plans) == MOST_PLANS
    [bounded] = batch(ottla_broker.bootstrap, subscribe=topic, endingOffsets=f'{{"{topic}": {{"0": 5}}}}').partitions()
    assert bounded.latest_as_of is None


def test_an_error_is_a_sentence_without_a_traceback(spark: "SparkSession", ottla_broker: Broker, topic: str) -> None:
    create_topic(ottla_broker.bootstrap, topic)
    produce(ottla_broker.bootstrap, numbered(topic, 0, 10))
    frame = load(spark, ottla_broker.bootstrap, subscribe=topic)
    assert frame.count() == 10
    delete_topic(ottla_broker.bootstrap, topic)
    create_topic(ottla_broker.bootstrap, topic)
    for text in (failure(frame), failure(load(spark, ottla_broker.bootstrap, subscribePattern="no-such-.*"))):
        assert "Traceback" not in text
        assert len(text.strip().splitlines()) <= 3, text


def test_read_committed_omits_aborted_records_and_ends_at_an_open_transaction(
    spark: "SparkSession", bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(HUNG)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        send(producer, numbered(topic, 0, 10))
        end(HUNG)
    await_markers(bootstrap, topic)
    # Offsets 10, 21 and 32 are the transactions' markers; read_uncommitted shows the aborted records too.
    everything, committed = [*range(10), *range(11, 21), *range(22, 32)], [*range(10), *range(22, 32)]
    isolated = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    rows = load(spark, bootstrap, subscribe=topic).select("offset").collect()
    assert [row.offset for row in rows] == everything
    assert load(spark, bootstrap, subscribe=topic, endingOffsets=f'{{"{topic}": {{"0": 11}}}}').count() == 10
    rows = load(spark, bootstrap, **isolated).select("offset").collect()
    assert [row.offset for row in rows] == committed

    producer.begin_transaction()
    send(producer, numbered(topic, 0, 10))
    produce(bootstrap, numbered(topic, 0, 10))

    def read(**more: str) -> list[int]:
        reader = batch(bootstrap, **isolated, **more)
        return [offset for _, offset in offsets(reader, reader.partitions())]

    assert read() == read(minPartitions="7") == committed
    behind = f'{{"{topic}": {{"0": 40}}}}'
    with pytest.raises(DataLoss, match="the log has 0 to 33: read_committed ends at 33"):
        read(endingOffsets=behind)
    assert read(endingOffsets=behind, failOnDataLoss="false") == committed
    before = batch(bootstrap, **isolated)
    planned = before.partitions()
    producer.abort_transaction(HUNG)
    await_markers(bootstrap, topic)
    assert [offset for _, offset in offsets(before, planned)] == committed
    # The log ends in the marker of an aborted transaction.
    assert read() == [*committed, *range(43, 53)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        ({"subscribePattern": "no-such-.*"}, "subscribePattern 'no-such-.*' matches no topic"),
        ({"assign": '{"there": [0, 7]}'}, "assign names there-7, but there has 2 partitions"),
        ({"subscribe": "there", "endingOffsets": '{"there": {"0": 5, "1": -1}}'}, "the log has 0 to 0"),
    ],
)
def test_topics_partitions_and_offsets_that_do_not_exist_are_named(
    spark: "SparkSession", ottla_broker: Broker, options: Mapping[str, str], says: str
) -> None:
    ottla_broker.create_topic("there", partitions=2)
    assert says in failure(load(spark, ottla_broker.bootstrap, **options))


def test_a_broker_that_is_not_there_is_named_within_the_deadline() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    deadline = {"kafka.socket.connection.setup.timeout.ms": "500", "kafka.default.api.timeout.ms": "1000"}
    with pytest.raises(BrokerUnreachable, match=address):
        BatchReader(ReadOptions.parse({"kafka.bootstrap.servers": address, "subscribe": "t", **deadline})).partitions()


def test_load_reports_mistakes_in_options(spark: "SparkSession") -> None:
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        load(spark, "localhost:1", subscribe="t", startingOfsets="earliest")
