"""Apache Kafka behind the proxy, on one node and on three."""

import contextlib
from collections import defaultdict

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from ottla.codec.partitioners import murmur2_partition
from tests.interop.lines import Message, Received
from tests.interop.peers import CLIENTS, JAVA, Client, create_topic, kcat_metadata
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.proxy.running import proxied

pytestmark = pytest.mark.slow
SIX = 6


def messages(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"N%d" % (n % 97), b"%d" % n, headers=(("n", b"%d" % n),)) for n in range(count)]


def assert_moved(received: list[Received], sent: list[Message]) -> None:
    assert sorted((r.key, r.value, r.headers) for r in received) == sorted((m.key, m.value, m.headers) for m in sent)
    order: dict[bytes | None, list[int]] = defaultdict(list)
    for record in received:
        assert record.partition == murmur2_partition(record.key or b"", SIX)
        order[record.key].append(int(record.value or b""))
    assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_records_move_and_consumers_read_them_through_the_proxy(kafka: ApacheKafka, client: Client) -> None:
    topic = f"one-{client}"
    create_topic(kafka.bootstrap, topic, SIX)
    sent = messages(topic, 5000)
    with proxied(kafka.bootstrap, "one-*=rewrite") as proxy:
        outcomes = client.produce(proxy.bootstrap, sent, client.idempotence)
        assert {outcome.error for outcome in outcomes} == {None}
        assert_moved(client.consume(proxy.bootstrap, topic), sent)


@pytest.mark.deep
def test_topics_are_made_and_groups_consume_through_the_proxy(kafka: ApacheKafka) -> None:
    with proxied(kafka.bootstrap, "grouped=rewrite") as proxy:
        create_topic(proxy.bootstrap, "grouped", SIX)
        producer = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap})
        for n in range(500):
            producer.produce("grouped", key=b"N%d" % (n % 31), value=b"%d" % n)
        assert producer.flush(HUNG) == 0
        config = {"bootstrap.servers": proxy.bootstrap, "group.id": "grouped", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe(["grouped"])
        values: list[int] = []
        while len(values) < 500 and (batch := consumer.consume(100, timeout=HUNG)):
            values += [int(message.value() or b"") for message in batch]
            consumer.commit(asynchronous=False)
        consumer.close()
        assert sorted(values) == list(range(500))
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        assert "grouped" in {group.group_id for group in admin.list_consumer_groups().result(HUNG).valid}


def test_a_transaction_writes_to_topics_that_are_rewritten_and_to_others(kafka: ApacheKafka) -> None:
    create_topic(kafka.bootstrap, "tx-plain", 2)
    create_topic(kafka.bootstrap, "tx-moved", SIX)
    with proxied(kafka.bootstrap, "tx-moved=rewrite") as proxy:
        producer = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": "through"})
        producer.init_transactions(30)
        for value, end in ((b"1", producer.commit_transaction), (b"2", producer.abort_transaction)):
            producer.begin_transaction()
            for topic in ("tx-plain", "tx-moved"):
                producer.produce(topic, key=b"k", value=value)
            producer.flush(HUNG)
            end(30)
    for topic in ("tx-plain", "tx-moved"):
        seen = JAVA.consume(kafka.bootstrap, topic, {"isolation.level": "read_committed"})
        assert [each.value for each in seen] == [b"1"], topic
        assert topic == "tx-plain" or seen[0].partition == murmur2_partition(b"k", SIX)


@pytest.mark.deep
def test_each_of_three_nodes_has_a_port_of_its_own(kafka_cluster: ApacheKafka) -> None:
    with proxied(kafka_cluster.bootstrap) as proxy:
        metadata = kcat_metadata(proxy.bootstrap)
        assert {b["id"]: b["name"] for b in metadata["brokers"]} == {
            node: f"127.0.0.1:{port}" for node, port in proxy.running.nodes.items()
        }
        assert sorted(proxy.running.nodes) == [0, 1, 2]


@pytest.mark.deep
def test_a_node_of_three_is_killed_while_clients_produce(kafka_cluster: ApacheKafka) -> None:
    sent = {client.name: messages(f"three-{client}", 6_000) for client in CLIENTS}
    for topic in (f"three-{client}" for client in CLIENTS):
        create_topic(kafka_cluster.bootstrap, topic, SIX, 3, min_insync_replicas="1")
    with proxied(kafka_cluster.bootstrap, "three-*=rewrite") as proxy, contextlib.ExitStack() as stack:
        producers = {
            client.name: stack.enter_context(
                client.producing(proxy.bootstrap, {**client.idempotence, **client.small_batches})
            )
            for client in CLIENTS
        }
        for number in range(6_000):
            for name, producer in producers.items():
                producer.send(sent[name][number])
            if number == 2_000:
                kafka_cluster.kill(2)
                stack.callback(kafka_cluster.revive, 2)
        for producer in producers.values():
            assert {outcome.error for outcome in producer.finish()} == {None}
        for client in CLIENTS:
            assert_moved(client.consume(proxy.bootstrap, f"three-{client}"), sent[client.name])
