"""Tasks that write, on brokerlite and without a Spark; librdkafka reads the stored records."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

from ottla.codec.partitioners import PARTITIONERS
from ottla.errors import (
    BrokerUnreachable,
    DeliveryFailed,
    EncodeError,
    OttlaError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from ottla.sdk import mdns
from ottla.sdk.connection import requests
from ottla.spark.writing import row_writer
from ottla.spark.writing.row_writer import BatchWriter, WrittenRows
from ottla.spark.writing.write_options import WriteOptions
from ottla.testing import Broker
from tests.announcing import alone
from tests.interop.lines import Received
from tests.interop.peers import LIBRDKAFKA
from tests.kafka import HOST, free_ports
from tests.patience import HUNG

pytestmark = pytest.mark.slow

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    ]
)


@pytest.fixture(autouse=True)
def no_producer_left() -> Iterator[None]:
    """Close the producers that other tests left in this process, and the producers that this test leaves."""
    yield
    row_writer.producers.close()


def task(bootstrap: str, **options: str) -> BatchWriter:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t"}
    given |= {name.replace("_", "."): value for name, value in options.items()}
    return BatchWriter(WriteOptions.parse({name: value for name, value in given.items() if value}), SCHEMA)


def rows(**columns: Any) -> pa.RecordBatch:
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": HEADERS,
    }
    return pa.record_batch({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def numbered(count: int, **columns: Any) -> pa.RecordBatch:
    return rows(key=[b"key-%d" % n for n in range(count)], value=[b"%d" % n for n in range(count)], **columns)


def stored(broker: Broker, topic: str = "t") -> list[Received]:
    return LIBRDKAFKA.consume(broker.bootstrap, topic)


def test_rows_are_stored_once_with_all_their_columns(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    headers = [None, [], [("a", b"1"), ("b", None), ("a", b"")], [("ä", b"x")]]
    count = 5000
    batch = rows(
        key=[None if n % 7 == 0 else b"key-%d" % (n % 100) for n in range(count)],
        value=[None if n % 11 == 0 else b"value " * (n % 5) + b"%d" % n for n in range(count)],
        headers=[headers[n % 4] for n in range(count)],
    )
    before = time.time_ns() // 10**6
    done = task(ottla_broker.bootstrap).write(iter([batch, batch.slice(0, 0), batch.slice(17, 100)]))
    after = time.time_ns() // 10**6
    assert done == WrittenRows(count + 100)
    sent = batch.to_pylist()
    wanted = Counter(
        (row["key"], row["value"], tuple((h["key"], h["value"]) for h in row["headers"] or ()))
        for row in [*sent, *sent[17:117]]
    )
    found = stored(ottla_broker)
    assert Counter((each.key, each.value, each.headers) for each in found) == wanted
    assert all(before <= each.timestamp <= after for each in found)
    by_key: dict[bytes | None, set[int]] = {}
    for each in found:
        by_key.setdefault(each.key, set()).add(each.partition)
    assert all(len(places) == 1 for key, places in by_key.items() if key is not None)


def test_rows_of_a_partition_keep_their_order(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 4)
    batches = [rows(key=[b"%d" % (n % 50) for n in range(3000)], value=[b"%d" % (b * 3000 + n) for n in range(3000)])
               for b in range(5)]  # fmt: skip
    task(ottla_broker.bootstrap, kafka_batch_size="5000").write(iter(batches))
    found = stored(ottla_broker)
    for partition in range(4):
        values = [int(each.value or b"") for each in found if each.partition == partition]
        assert values == sorted(values)
    assert sorted(int(each.value or b"") for each in found) == list(range(15_000))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, {"key": [None, b"a", None, b"b"]}),
        ({"partitioner": "crc32"}, {"key": [b"", b"a", None, b"b"]}),
        ({}, {"key": [None, b"a", None, b"b"], "partition": [None, None, 0, 0]}),
        ({}, {"partition": [None, 0, None, 0]}),
        ({"partitioner": "round_robin"}, {"key": [b"a", b"b", b"c", b"d"], "partition": [None, 0, None, 0]}),
    ],
    ids=["keyless", "empty keys", "keyless and a partition", "a partition", "a partition and round_robin"],
)
def test_rows_that_are_placed_in_different_ways_keep_their_order(
    ottla_broker: Broker, partitions: int, options: dict[str, str], columns: dict[str, list[Any]]
) -> None:
    # Java's producer takes one row after the other, so a row without a key stays behind earlier rows.
    ottla_broker.create_topic("t", partitions)
    batches = [
        rows(
            value=[b"%d" % (b * 1000 + n) for n in range(1000)], **{name: each * 250 for name, each in columns.items()}
        )
        for b in range(3)
    ]
    task(ottla_broker.bootstrap, kafka_batch_size="5000", **options).write(iter(batches))
    found = stored(ottla_broker)
    assert sorted(int(each.value or b"") for each in found) == list(range(3000))
    for partition in range(partitions):
        values = [int(each.value or b"") for each in found if each.partition == partition]
        assert values == sorted(values)


@pytest.mark.parametrize(
    ("ours", "librdkafkas"),
    [("murmur2", "murmur2_random"), ("crc32", "consistent_random"), ("consistent", "consistent"),
     ("fnv1a", "fnv1a_random")],
)  # fmt: skip
def test_a_key_goes_where_other_clients_send_it(ottla_broker: Broker, ours: str, librdkafkas: str) -> None:
    ottla_broker.create_topic("t", 7)
    ottla_broker.create_topic("theirs", 7)
    keys = [b"", *(b"%x" % (n**3) for n in range(500)), *("schlüssel-%d".encode() % n for n in range(5))]
    keys = keys[1:] if ours in ("crc32", "fnv1a") else keys  # librdkafka differs for empty keys
    task(ottla_broker.bootstrap, partitioner=ours).write(iter([rows(key=keys, value=keys)]))
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap, "partitioner": librdkafkas})
    for key in keys:
        producer.produce("theirs", key=key, value=key)
    assert producer.flush(HUNG) == 0
    mine, others = ({each.key: each.partition for each in stored(ottla_broker, name)} for name in ("t", "theirs"))
    assert mine == others
    assert len(set(mine.values())) == 7


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32", "consistent", "java_string", "fnv1a_unsigned"])
def test_null_and_empty_keys_go_where_the_partitioner_says(ottla_broker: Broker, partitioner: str) -> None:
    ottla_broker.create_topic("t", 12)
    keys = [None, b"", b"a"] * 1000
    size = {"kafka_batch_size": "2000"}
    task(ottla_broker.bootstrap, partitioner=partitioner, **size).write(
        iter([rows(key=keys, value=[b"v" * 50] * 3000)])
    )
    places: dict[bytes | None, set[int]] = {None: set(), b"": set(), b"a": set()}
    for each in stored(ottla_broker):
        places[each.key].add(each.partition)
    assert len(places[b"a"]) == 1
    assert (len(places[None]) == 1) == (partitioner == "consistent")
    assert (len(places[b""]) == 1) == (partitioner != "crc32")
    if partitioner == "consistent":
        assert places[None] == {PARTITIONERS["crc32"](b"", 12)}


@pytest.mark.parametrize("partitioner", ["murmur2", "round_robin", "random", "least_bytes"])
def test_rows_without_keys_are_spread_over_all_partitions(ottla_broker: Broker, partitioner: str) -> None:
    ottla_broker.create_topic("t", 3)
    batches = [rows(value=[b"x" * 100] * 500) for _ in range(10)]
    task(ottla_broker.bootstrap, partitioner=partitioner, kafka_batch_size="5000").write(iter(batches))
    counts = Counter(each.partition for each in stored(ottla_broker))
    assert counts.total() == 5000
    assert len(counts) == 3 and min(counts.values()) > 400, counts


def test_the_column_topic_says_where_a_row_goes_and_the_option_wins(ottla_broker: Broker) -> None:
    topics = ["a" if n % 3 else "b" for n in range(600)]
    for name in ("a", "b", "t"):
        ottla_broker.create_topic(name, 2)
    task(ottla_broker.bootstrap, topic="").write(iter([numbered(600, topic=topics), numbered(5, topic=["a"] * 5)]))
    assert sorted(int(each.value or b"") for each in stored(ottla_broker, "b")) == list(range(0, 600, 3))
    assert len(stored(ottla_broker, "a")) == 405
    task(ottla_broker.bootstrap, topic="t").write(iter([numbered(600, topic=topics)]))
    assert len(stored(ottla_broker)) == 600


def test_a_row_without_a_topic_is_an_error(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("a")
    with pytest.raises(EncodeError, match="2 of 3 rows have no topic: filter them out, or set option topic"):
        task(ottla_broker.bootstrap, topic="").write(iter([numbered(3, topic=["a", None, None])]))
    assert not list(row_writer.producers)


def test_the_column_partition_decides_where_it_is_not_null(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 5)
    places = [None if n % 2 else n % 5 for n in range(1000)]
    task(ottla_broker.bootstrap).write(iter([numbered(1000, partition=places)]))
    for each in stored(ottla_broker):
        wanted = places[int(each.value or b"")]
        assert each.partition == (PARTITIONERS["murmur2"](each.key or b"", 5) if wanted is None else wanted)
    values = [b"%d" % n for n in range(1000)]
    ottla_broker.create_topic("keyless", 5)
    task(ottla_broker.bootstrap, topic="keyless").write(iter([rows(value=values, partition=[3] * 1000)]))
    assert {each.partition for each in stored(ottla_broker, "keyless")} == {3}


@pytest.mark.parametrize("wrong", [-1, 2, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_an_error(ottla_broker: Broker, wrong: int) -> None:
    ottla_broker.create_topic("t", 2)
    with pytest.raises(UnknownTopicOrPartition, match=rf"names partition {wrong}, but 't' has partitions 0 to 1"):
        task(ottla_broker.bootstrap).write(iter([numbered(3, partition=[0, wrong, None])]))


def test_a_topic_is_created_if_the_broker_does_so(ottla_broker: Broker) -> None:
    task(ottla_broker.bootstrap, topic="new").write(iter([numbered(10)]))
    assert len(stored(ottla_broker, "new")) == 10
    with pytest.raises(OttlaError, match=r"no/slash"):
        task(ottla_broker.bootstrap, topic="no/slash").write(iter([numbered(10)]))


def test_topics_that_come_together_are_looked_up_together(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    metadata = requests.metadata

    def counted(names: list[str], **how: Any) -> Any:
        asked.append(names)
        return metadata(names, **how)

    monkeypatch.setattr(requests, "metadata", counted)
    names = [f"topic-{number:03}" for number in range(200)]
    task(ottla_broker.bootstrap, topic="").write(iter([numbered(400, topic=[*names, *names])]))
    assert len(asked) < 10 and sum(map(len, asked)) < 10 * len(names)
    assert all(len(stored(ottla_broker, name)) == 2 for name in (names[0], names[-1]))


def test_a_topic_that_is_not_utf_8_is_an_error(ottla_broker: Broker) -> None:
    names = pa.Array.from_buffers(pa.string(), 2, pa.array([b"t", b"\xff"]).buffers())
    wrong = pa.record_batch({"value": pa.array([b"a", b"b"]), "topic": names})
    with pytest.raises(EncodeError, match="a topic is not valid UTF-8: 'utf-8' codec"):
        task(ottla_broker.bootstrap, topic="").write(iter([wrong]))


def test_a_task_without_rows_needs_no_broker() -> None:
    nobody = f"{HOST}:{free_ports(1)[0]}"
    assert task(nobody).write(iter([])) == WrittenRows(0)
    assert task(nobody).write(iter([numbered(0)])) == WrittenRows(0)
    with pytest.raises(BrokerUnreachable):
        task(nobody, kafka_socket_connection_setup_timeout_ms="200").write(iter([numbered(1)]))


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.large_string(), pa.string()])
def test_all_kinds_of_text_and_bytes_that_spark_hands_over_are_taken(ottla_broker: Broker, kind: pa.DataType) -> None:
    ottla_broker.create_topic("t", 3)
    texts = pa.array([None, "", "grün", *map(str, range(100))], kind)
    task(ottla_broker.bootstrap).write(iter([pa.record_batch({"key": texts, "value": texts}).slice(1)]))
    found = sorted(each.value or b"" for each in stored(ottla_broker))
    assert found == sorted([b"", "grün".encode(), *(b"%d" % n for n in range(100))])


def test_a_megabyte_is_written_and_a_larger_record_is_an_error(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    large = rows(key=[b"%d" % n for n in range(40)], value=[b"%d" % (n % 10) * 10**6 for n in range(40)])
    task(ottla_broker.bootstrap, kafka_buffer_memory="4000000").write(iter([large]))
    found = stored(ottla_broker)
    assert Counter(each.key for each in found) == Counter(b"%d" % n for n in range(40))
    assert {len(each.value or b"") for each in found} == {10**6}
    with pytest.raises(
        RecordTooLarge, match=r"a record for 't' has about 2000\d+ bytes, and kafka.max.request.size is 1048576"
    ):
        task(ottla_broker.bootstrap).write(iter([rows(value=[b"fits", bytes(2 * 10**6)])]))
    with pytest.raises(DeliveryFailed, match=r"1 record\(s\) were not delivered .* MESSAGE_TOO_LARGE"):
        task(ottla_broker.bootstrap, kafka_max_request_size="4000000").write(iter([rows(value=[bytes(2 * 10**6)])]))


def test_the_buffer_bounds_what_is_accepted_ahead(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    write = task(ottla_broker.bootstrap, kafka_buffer_memory="100000", kafka_batch_size="10000")
    lowest = 10**9

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal lowest
        for _ in range(20):
            yield rows(value=[b"x" * 100] * 2000)
            [producer] = row_writer.producers
            lowest = min(lowest, producer._producer.appends.free)

    assert write.write(batches()) == WrittenRows(40_000)
    assert -20_000 < lowest < 100_000
    assert len(stored(ottla_broker)) == 40_000


def test_tasks_of_one_process_share_a_producer_and_other_options_have_their_own(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    for _ in range(3):
        task(ottla_broker.bootstrap).write(iter([numbered(100)]))
    [first] = row_writer.producers
    task(ottla_broker.bootstrap, topic="t", partitioner="crc32").write(iter([numbered(100)]))
    assert len(list(row_writer.producers)) == 2
    assert first._producer.pending == 0
    assert first._producer.appends.free == 32 * 2**20


def test_brokers_are_found_by_zeroconf_on_the_driver_alone(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    with alone(), mdns.announced("written", ottla_broker.port, interfaces=[ottla_broker.host]):
        write = task("zeroconf://written")
    again = task("zeroconf://written")  # in the next micro-batch, which does not search again
    assert [each.options.producer.client.bootstrap for each in (write, again)] == [ottla_broker.bootstrap] * 2
    assert write.write(iter([numbered(100)])) == WrittenRows(100)


def test_a_task_that_fails_is_written_again_and_nothing_is_lost(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)

    def broken() -> Iterator[pa.RecordBatch]:
        yield numbered(1000)
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        task(ottla_broker.bootstrap).write(broken())
    assert not list(row_writer.producers)  # a producer that stayed would never be flushed
    task(ottla_broker.bootstrap).write(iter([numbered(1000), numbered(1000)]))
    counts = Counter(each.value for each in stored(ottla_broker))
    assert set(counts) == {b"%d" % n for n in range(1000)}
    assert all(2 <= count <= 3 for count in counts.values())


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_broker_that_goes_away_and_comes_back_loses_and_repeats_nothing(ottla_broker: Broker, end: str) -> None:
    ottla_broker.create_topic("t", 3)

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(30):
            if n == 10:
                (ottla_broker.stop if end == "restart" else ottla_broker.kill)()
                again.start()
            yield rows(key=[b"%d" % (n * 100 + i) for i in range(100)], value=[b"v" * 1000] * 100)

    again = threading.Timer(0.3, ottla_broker.start)
    done = task(ottla_broker.bootstrap, kafka_buffer_memory="200000").write(batches())
    again.join()
    assert done == WrittenRows(3000)
    assert sorted(int(each.key or b"") for each in stored(ottla_broker)) == list(range(3000))


def test_a_broker_that_stays_away_fails_the_task_in_time(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    write = task(ottla_broker.bootstrap, kafka_delivery_timeout_ms="500", kafka_request_timeout_ms="300")
    write.write(iter([numbered(10)]))

    def batches() -> Iterator[pa.RecordBatch]:
        ottla_broker.kill()
        yield numbered(10)

    with pytest.raises(DeliveryFailed, match=r"10 record\(s\) were not delivered .*DeliveryTimeout: .*0\.5 s"):
        write.write(batches())
    assert not list(row_writer.producers)


def test_no_deadline_passes_while_the_task_waits_for_rows(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbered(1000)
        time.sleep(0.7)  # meanwhile, the broker's responses stay unread
        yield numbered(1000)

    write = task(ottla_broker.bootstrap, kafka_delivery_timeout_ms="400", kafka_request_timeout_ms="300")
    assert write.write(batches()) == WrittenRows(2000)
    assert len(stored(ottla_broker)) == 2000


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(ottla_broker: Broker, compression: str) -> None:
    ottla_broker.create_topic("t", 3)
    task(ottla_broker.bootstrap, kafka_compression_type=compression).write(iter([numbered(3000)]))
    assert len(stored(ottla_broker)) == 3000
    size = sum(path.stat().st_size for path in ottla_broker.data.rglob("*.log"))
    assert size < 40_000  # 75,000 bytes before compression


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_are_passed_on(ottla_broker: Broker, acks: str) -> None:
    ottla_broker.create_topic("t", 3)
    task(ottla_broker.bootstrap, kafka_acks=acks).write(iter([numbered(1000)]))
    deadline = time.monotonic() + HUNG
    while len(found := stored(ottla_broker)) < 1000 and acks == "0" and time.monotonic() < deadline:
        pass
    assert len(found) == 1000


def test_invalid_headers_are_refused(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 3)
    with pytest.raises(EncodeError, match="a header is null or has no key"):
        task(ottla_broker.bootstrap).write(iter([numbered(1, headers=[[None]])]))
    with pytest.raises(EncodeError, match="a header is null or has no key"):
        task(ottla_broker.bootstrap).write(iter([numbered(2, headers=[[(None, b"v")]] * 2)]))


def test_parts_of_a_large_batch_are_sorted_one_by_one() -> None:
    batch = rows(value=[bytes(10**6)] * 100)
    parts = list(row_writer._parts(batch))
    assert sum(part.num_rows for part in parts) == 100
    assert {part.num_rows for part in parts[:-1]} == {4}
    assert [part.num_rows for part in row_writer._parts(numbered(100))] == [100]
