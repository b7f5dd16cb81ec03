"""Clients of others against brokerlite: each reads back the same records, whichever client wrote them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import (
    CLIENTS,
    LIBRDKAFKA,
    Client,
    create_topic,
    kcat,
    kcat_consume,
    kcat_metadata,
    kcat_produce,
)
from tests.interop.relay import FETCH, PRODUCE, Moment, Relay
from tests.patience import HUNG

pytestmark = pytest.mark.slow

MESSAGES = [
    Message("t", b"key", b"value", timestamp=1_700_000_000_000),
    Message("t", None, b"without a key", partition=2),
    Message("t", b"", b"an empty key", partition=0),
    Message("t", b"tombstone", None),
    Message("t", b"\x00\xff\t\n", b"headers", headers=(("trace", b"\x01\x02"), ("none", None), ("empty", b""))),
]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_what_a_client_writes_every_client_reads_back(ottla_broker: Broker, client: Client) -> None:
    ottla_broker.create_topic("t", partitions=3)
    messages = [client.sendable(message) for message in MESSAGES]
    outcomes = client.produce(ottla_broker.bootstrap, messages, client.idempotence)

    assert all(outcome.error is None and outcome.offset >= 0 for outcome in outcomes)
    placed = {(o.partition, o.offset): (m.key, m.value, m.headers) for o, m in zip(outcomes, messages, strict=True)}
    for reader in CLIENTS:
        seen = reader.consume(ottla_broker.bootstrap, "t")
        assert {(r.partition, r.offset): (r.key, r.value, r.headers) for r in seen} == placed, reader
        assert 1_700_000_000_000 in {r.timestamp for r in seen if r.key == b"key"}
    without_headers = {place: (key, value) for place, (key, value, _) in placed.items()}
    read_by_kcat = kcat_consume(ottla_broker.bootstrap, "t")
    assert {(r.partition, r.offset): (r.key, r.value) for r in read_by_kcat} == without_headers


@pytest.mark.deep
@pytest.mark.parametrize(
    ("client", "compression"), [(each, name) for each in CLIENTS for name in each.compressions], ids=str
)
def test_each_compression_of_each_client_is_stored_and_read_back(
    ottla_broker: Broker, client: Client, compression: str
) -> None:
    messages = [Message("t", b"%d" % i, b"the same words again and again" * 20, partition=0) for i in range(300)]
    outcomes = client.produce(ottla_broker.bootstrap, messages, {"compression.type": compression, **client.idempotence})
    assert [outcome.offset for outcome in outcomes] == list(range(300))
    size = sum(path.stat().st_size for path in ottla_broker.data.glob("t-0/*.log"))
    assert size < 300 * 600 / 4, "stored as the client compressed it"
    assert [(r.key, r.value) for r in LIBRDKAFKA.consume(ottla_broker.bootstrap, "t")] == [
        (m.key, m.value) for m in messages
    ]


@contextmanager
def relayed(data: Path) -> Iterator[tuple[Broker, Relay]]:
    """A broker that clients reach only through a relay."""
    with Relay(("127.0.0.1", 0)) as relay:
        broker = Broker(BrokerConfig(port=0, data=data, advertise=relay.address, sync=Sync.NEVER))
        relay.upstream = (broker.host, broker.port)
        try:
            yield broker, relay
        finally:
            broker.stop()


def consumer(bootstrap: str, **settings: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": "false", **settings})


def errors_of(producer: Producer, topic: str, value: bytes, partition: int = -1) -> list[str]:
    """The error that librdkafka reports for a record, if any."""
    errors: list[str] = []
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error.name() if error else "")
    )
    assert producer.flush(HUNG) == 0
    return errors


def test_a_topic_is_created_when_a_client_names_it_and_kcat_sees_it(ottla_broker: Broker) -> None:
    kcat_produce(ottla_broker.bootstrap, "new", [("a", "1"), ("b", "2")], "-X", "allow.auto.create.topics=true")
    assert [(r.key, r.value) for r in kcat_consume(ottla_broker.bootstrap, "new")] == [(b"a", b"1"), (b"b", b"2")]
    metadata = kcat_metadata(ottla_broker.bootstrap)
    assert metadata["brokers"] == [{"id": 1, "name": ottla_broker.bootstrap}]
    assert [topic["topic"] for topic in metadata["topics"]] == ["new"]


def test_kcat_finds_the_offset_of_a_time(ottla_broker: Broker) -> None:
    messages = [Message("t", None, b"%d" % i, partition=0, timestamp=1_700_000_000_000 + 1000 * i) for i in range(50)]
    LIBRDKAFKA.produce(ottla_broker.bootstrap, messages)
    assert kcat(ottla_broker.bootstrap, "-Q", "-t", "t:0:1700000010500").decode().split() == [
        "t",
        "[0]",
        "offset",
        "11",
    ]
    with_end = kcat(ottla_broker.bootstrap, "-C", "-t", "t", "-o", "s@1700000047500", "-e", "-q", "-f", "%s ")
    assert with_end.split() == [b"48", b"49"]


def test_offsets_by_time_and_both_ends_from_librdkafka(ottla_broker: Broker) -> None:
    messages = [Message("t", None, b"%d" % i, partition=0, timestamp=1_700_000_000_000 + 1000 * i) for i in range(50)]
    LIBRDKAFKA.produce(ottla_broker.bootstrap, messages)
    reader = consumer(ottla_broker.bootstrap)
    assert reader.get_watermark_offsets(TopicPartition("t", 0), timeout=HUNG) == (0, 50)
    for timestamp, expected in ((0, 0), (1_700_000_010_001, 11), (1_700_000_049_000, 49), (1_700_000_049_001, -1)):
        (found,) = reader.offsets_for_times([TopicPartition("t", 0, timestamp)], timeout=HUNG)
        assert found.offset == expected
    reader.close()


def test_topics_are_created_described_and_deleted_by_librdkafkas_admin(ottla_broker: Broker) -> None:
    create_topic(ottla_broker.bootstrap, "t", 3, retention_ms="12345")
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        create_topic(ottla_broker.bootstrap, "t")
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        create_topic(ottla_broker.bootstrap, "other", replicas=3)
    admin.delete_topics(["t"])["t"].result(timeout=HUNG)
    assert not admin.list_topics(timeout=HUNG).topics
    ottla_broker.stop()
    assert not list(ottla_broker.data.glob("t-*"))


def test_everything_is_there_after_a_restart_and_the_offsets_go_on(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    messages = [Message("t", b"k", b"%d" % i) for i in range(100)]
    LIBRDKAFKA.produce(ottla_broker.bootstrap, messages)
    ottla_broker.restart()
    outcomes = LIBRDKAFKA.produce(ottla_broker.bootstrap, messages)
    assert [outcome.offset for outcome in outcomes] == list(range(100, 200))
    assert [r.value for r in LIBRDKAFKA.consume(ottla_broker.bootstrap, "t")] == [m.value for m in messages] * 2


@pytest.mark.deep
def test_a_record_that_is_too_large_an_unknown_topic_and_an_unknown_partition(tmp_path: Path) -> None:
    broker = Broker(
        BrokerConfig(port=0, data=tmp_path / "data", auto_create=False, max_message_bytes=1000, sync=Sync.NEVER)
    )
    broker.create_topic("t")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "topic.metadata.propagation.max.ms": 500})
    assert errors_of(producer, "t", bytes(5000)) == ["MSG_SIZE_TOO_LARGE"]
    assert errors_of(producer, "no-such", b"") == ["UNKNOWN_TOPIC_OR_PART"]
    with pytest.raises(KafkaException, match="Unknown partition"):
        errors_of(producer, "t", b"", partition=9)
    assert errors_of(producer, "t", b"small") == [""]
    broker.stop()


@pytest.mark.deep
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_an_idempotent_producer_whose_answers_are_lost_stores_each_record_once_in_order(
    tmp_path: Path, client: Client
) -> None:
    with relayed(tmp_path / "data") as (broker, relay):
        broker.create_topic("t")
        storms = [relay.cut(PRODUCE, moment, every=3, times=4) for moment in Moment]
        with client.producing(relay.address, {**client.idempotence, **client.small_batches}) as producer:
            sent = 0
            while not all(storm.wait(0) for storm in storms):
                for _ in range(20):
                    producer.send(Message("t", b"k", b"%d" % sent))
                    sent += 1
                producer.flush()
                assert storms[0].wait(0.02) or sent < 100_000
            outcomes = producer.finish()
        assert all(outcome.error is None for outcome in outcomes)
        assert [r.value for r in LIBRDKAFKA.consume(relay.address, "t")] == [b"%d" % i for i in range(sent)]


@pytest.mark.deep
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_an_idempotent_producer_survives_kills_of_the_broker(ottla_broker: Broker, client: Client) -> None:
    ottla_broker.create_topic("t")
    settings = {**client.idempotence, **client.small_batches}
    with client.producing(ottla_broker.bootstrap, settings) as producer:
        for i in range(3000):
            producer.send(Message("t", b"k", b"%d" % i))
            if i % 1000 == 999:
                producer.flush()
                ottla_broker.kill()
                ottla_broker.start()
        outcomes = producer.finish()
    assert all(outcome.error is None for outcome in outcomes)
    assert [r.value for r in LIBRDKAFKA.consume(ottla_broker.bootstrap, "t")] == [b"%d" % i for i in range(3000)]


@pytest.mark.deep
def test_an_idle_consumer_sends_at_most_three_requests_a_second(tmp_path: Path) -> None:
    with relayed(tmp_path / "data") as (broker, relay):
        broker.create_topic("t", partitions=6)
        reader = consumer(relay.address)
        reader.assign([TopicPartition("t", i, 0) for i in range(6)])
        assert reader.poll(1) is None
        began = time.monotonic()
        relay.requests.clear()
        assert reader.poll(3) is None
        fetches = sum(request.api_key == FETCH for request in relay.requests)
        assert 1 <= fetches <= 3 * (time.monotonic() - began)
        reader.close()


@pytest.mark.deep
def test_a_consumer_that_assigns_its_partitions_itself_follows_new_records(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    reader = consumer(ottla_broker.bootstrap)
    reader.assign([TopicPartition("t", 0, 0)])
    assert reader.poll(0.3) is None
    for i in range(5):
        LIBRDKAFKA.produce(ottla_broker.bootstrap, [Message("t", None, b"%d" % i)])
        message = reader.poll(HUNG)
        assert message is not None and message.error() is None and message.value() == b"%d" % i
    reader.close()
