"""Clients of others through the proxy, with brokerlite behind it."""

import asyncio
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Sequence

import confluent_kafka
import pytest
import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import ottla
from ottla.codec.partitioners import crc32_partition, murmur2_partition
from ottla.errors import BrokerUnreachable, ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.proxy.serve import RunningProxy, run_proxy
from ottla.proxy.topic_rule import parse_rule
from ottla.testing import Broker
from tests.interop.lines import Message, Received
from tests.interop.peers import AIOKAFKA, JAVA, LIBRDKAFKA, Client, kcat_consume, kcat_metadata, kcat_produce
from tests.kafka import free_ports
from tests.patience import HUNG, longer_and_longer
from tests.proxy.running import proxied

SIX = 6


def messages(topic: str, count: int) -> list[Message]:
    return [
        Message(topic, b"N%d" % (n % 97), b"%d" % n, headers=(("n", b"%d" % n),), timestamp=1_700_000_000_000 + n)
        for n in range(count)
    ]


def assert_moved(received: Sequence[Received], sent: Sequence[Message]) -> None:
    """Each message is stored once and whole, in the partition of its key, and each key in order."""
    assert sorted((r.key, r.value, r.headers, r.timestamp) for r in received) == sorted(
        (m.key, m.value, m.headers, m.timestamp) for m in sent
    )
    order = defaultdict(list)
    for record in received:
        assert record.key is not None and record.value is not None
        assert record.partition == murmur2_partition(record.key, SIX)
        order[record.key].append(int(record.value))
    assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "compression"),
    [
        (JAVA, "none"),
        (JAVA, "snappy"),
        (JAVA, "zstd"),
        *((LIBRDKAFKA, compression) for compression in ("none", "gzip", "snappy", "lz4", "zstd")),
        (AIOKAFKA, "gzip"),
    ],
    ids=str,
)
def test_records_of_foreign_clients_move_to_the_partition_of_their_key(
    ottla_broker: Broker, client: Client, compression: str
) -> None:
    ottla_broker.create_topic("flights", SIX)
    sent = messages("flights", 2000)
    with proxied(ottla_broker.bootstrap, "flights=rewrite") as proxy:
        outcomes = client.produce(proxy.bootstrap, sent, {**client.idempotence, "compression.type": compression})
        assert {outcome.error for outcome in outcomes} == {None}
        assert_moved(client.consume(proxy.bootstrap, "flights"), sent)


@pytest.mark.slow
def test_kcat_sees_the_proxys_addresses_and_its_records_move(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=rewrite") as proxy:
        assert [broker["name"] for broker in kcat_metadata(proxy.bootstrap)["brokers"]] == [proxy.bootstrap]
        kcat_produce(proxy.bootstrap, "flights", [(f"N{n % 17}", f"{n}") for n in range(100)])
        received = kcat_consume(proxy.bootstrap, "flights")
        ottla_broker.kill()
        revival = threading.Timer(1.0, ottla_broker.start)
        revival.start()
        assert kcat_metadata(proxy.bootstrap)["brokers"], "a client that connects during an outage waits"
        revival.join()
    assert sorted(int(r.value or b"") for r in received) == list(range(100))
    assert all(r.partition == murmur2_partition(r.key or b"", SIX) for r in received)


def produce(bootstrap: str, topic: str, count: int, **config: object) -> list[confluent_kafka.Message]:
    done: list[confluent_kafka.Message] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **config})
    for n in range(count):
        producer.produce(topic, key=b"N%d" % (n % 7), value=b"%d" % n, on_delivery=lambda _, m: done.append(m))
    assert producer.flush(HUNG) == 0
    return done


def consumed(bootstrap: str, topic: str, partitions: int, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
    received: list[confluent_kafka.Message] = []
    while len(received) < count and (batch := consumer.consume(count, timeout=HUNG)):
        received += batch
    consumer.close()
    return received


def test_a_crc32_client_lands_where_murmur2_says(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=rewrite") as proxy:
        done = produce(proxy.bootstrap, "flights", 200, **{"enable.idempotence": True})
        assert [message.error() for message in done] == [None] * 200
        received = consumed(proxy.bootstrap, "flights", SIX, 200)
    assert sorted(int(m.value() or b"") for m in received) == list(range(200))
    assert all(m.partition() == murmur2_partition(m.key() or b"", SIX) for m in received)


def test_an_observed_topic_keeps_the_clients_choice(ottla_broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=observe") as proxy:
        produce(proxy.bootstrap, "flights", 200, partitioner="consistent")
        received = consumed(ottla_broker.bootstrap, "flights", SIX, 200)
    assert all(m.partition() == crc32_partition(m.key() or b"", SIX) for m in received)
    (record,) = [record for record in caplog.records if record.message == "records so far"]
    elsewhere = sum(crc32_partition(m.key() or b"", SIX) != murmur2_partition(m.key() or b"", SIX) for m in received)
    assert (record.__dict__["records"], record.__dict__["misplaced"]) == (200, elsewhere)


def test_acks_0_and_1_are_served(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=rewrite") as proxy:
        for acks in (0, 1):
            produce(proxy.bootstrap, "flights", 50, acks=acks)
        received = consumed(proxy.bootstrap, "flights", SIX, 100)
    assert len(received) == 100


def test_a_small_buffer_slows_clients_down_and_loses_nothing(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=rewrite", max_buffered=20_000) as proxy:
        done = produce(proxy.bootstrap, "flights", 5000, **{"batch.num.messages": 100})
        assert [message.error() for message in done] == [None] * 5000
        assert len(consumed(proxy.bootstrap, "flights", SIX, 5000)) == 5000


async def test_ottlas_own_client_produces_and_consumes(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    keys = [b"N%d" % (n % 7) for n in range(200)]
    with proxied(ottla_broker.bootstrap, "flights=rewrite:crc32") as proxy:
        async with ottla.connect(proxy.bootstrap) as client:
            async with client.producer() as producer:
                for n, key in enumerate(keys):
                    await producer.send_soon("flights", b"%d" % n, key=key)
                await producer.flush()
            values: list[int] = []
            async with client.consumer("flights", start="beginning") as consumer:
                async for each in consumer:
                    values += [int(record.value or b"") for record in each]
                    assert all(crc32_partition(record.key or b"", SIX) == each.partition for record in each)
                    if len(values) == 200:
                        break
    assert sorted(values) == list(range(200))


def test_aiokafka_produces_and_consumes(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)

    async def work(bootstrap: str) -> list[tuple[int, bytes, bytes]]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for n in range(100):
                await producer.send("flights", b"%d" % n, key=b"N%d" % (n % 7), partition=0)
        async with AIOKafkaConsumer("flights", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            return [(r.partition, r.key, r.value) for r in [await consumer.getone() for _ in range(100)]]

    with proxied(ottla_broker.bootstrap, "flights=rewrite") as proxy:
        received = asyncio.run(work(proxy.bootstrap))
    assert sorted(int(value) for _, _, value in received) == list(range(100))
    assert all(partition == murmur2_partition(key, SIX) for partition, key, _ in received)


def test_a_restart_of_the_proxy_ends_librdkafkas_producers_and_doubles_nothing(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    (port,) = free_ports(1)
    listen = f"127.0.0.1:{port}"

    def opened() -> confluent_kafka.Producer:
        return confluent_kafka.Producer({"bootstrap.servers": listen, "enable.idempotence": True, "linger.ms": 0})

    def send(producer: confluent_kafka.Producer, start: int) -> None:
        for n in range(start, start + 10):
            producer.produce("flights", key=b"k", value=b"%d" % n)
        assert producer.flush(HUNG) == 0

    producer = opened()
    with proxied(ottla_broker.bootstrap, "flights=rewrite", listen=listen):
        send(producer, 0)
    with proxied(ottla_broker.bootstrap, "flights=rewrite", listen=listen):
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            send(producer, 10)
        assert raised.value.args[0].fatal(), "the application gets the error, and has to open another producer"
        send(opened(), 20)
    stored = [int(m.value() or b"") for m in consumed(ottla_broker.bootstrap, "flights", SIX, 20)]
    assert stored == [*range(10), *range(20, 30)]


def test_the_broker_is_killed_and_comes_back_while_clients_produce(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    failed: list[object] = []

    def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(error)

    producer_config = {"enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 200}
    with proxied(ottla_broker.bootstrap, "flights=rewrite") as proxy:
        producer = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap, **producer_config})
        for n in range(3000):
            producer.produce("flights", key=b"N%d" % (n % 7), value=b"%d" % n, on_delivery=note)
            producer.poll(0.001 if n % 50 == 0 else 0)
            if n in (500, 1500, 2500):
                ottla_broker.kill()
                ottla_broker.start()
        assert producer.flush(HUNG) == 0
        received = consumed(proxy.bootstrap, "flights", SIX, 3000)
    assert not failed
    assert sorted(int(m.value() or b"") for m in received) == list(range(3000))


# -- bad input and faults


def test_an_upstream_that_is_not_there_is_named_within_the_deadline() -> None:
    (port,) = free_ports(1)

    async def main(timeout: float) -> str:
        config = ProxyConfig(upstream=f"127.0.0.1:{port}", listen="127.0.0.1:0", connect_timeout=timeout)
        with trio.fail_after(HUNG), pytest.raises(BrokerUnreachable) as raised:
            await run_proxy(config)
        return str(raised.value)

    for timeout in longer_and_longer(0.2):
        if "refused" in (said := trio.run(main, timeout)):
            break
    assert said == f"no answer within {timeout:g} s: upstream 127.0.0.1:{port}: cannot connect: connection refused"


def test_an_upstream_that_does_not_speak_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config = ProxyConfig(upstream=f"127.0.0.1:{port}", listen="127.0.0.1:0", connect_timeout=0.3)

        async def main() -> None:
            with trio.fail_after(HUNG), pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}: no answer"):
                await run_proxy(config)

        trio.run(main)


def test_a_port_in_use_is_named(ottla_broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = ProxyConfig(upstream=ottla_broker.bootstrap, listen=f"127.0.0.1:{port}")

        async def main() -> None:
            with trio.fail_after(HUNG), pytest.raises(ConfigurationError, match=f"{port}: the port is in use"):
                await run_proxy(config)

        trio.run(main)


def test_a_health_port_in_use_is_named(ottla_broker: Broker) -> None:
    config = ProxyConfig(upstream=ottla_broker.bootstrap, listen="127.0.0.1:0", health=ottla_broker.bootstrap)

    async def main() -> None:
        with trio.fail_after(HUNG), pytest.raises(ConfigurationError, match="the port is in use"):
            await run_proxy(config)

    trio.run(main)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like a TLS hello"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like an HTTP request"),
        (struct.pack(">i", 2_000_000), "over the limit of 1000000"),
        (struct.pack(">ihhih", 10, 57, 0, 1, -1), "was not offered"),
    ],
)
def test_what_is_not_a_request_closes_its_connection_only(
    ottla_broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes, says: str
) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=rewrite", max_request_bytes=1_000_000) as proxy:
        host, _, port = proxy.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=HUNG) as bad:
            bad.sendall(data)
            assert bad.recv(1) == b""
        assert len(produce(proxy.bootstrap, "flights", 10)) == 10
    assert says in caplog.text


def test_health_and_readiness(ottla_broker: Broker) -> None:
    def status(url: str) -> int:
        try:
            with urllib.request.urlopen(url, timeout=HUNG) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    with proxied(ottla_broker.bootstrap, health="127.0.0.1:0") as proxy:
        assert status(f"http://{proxy.running.health}/health") == 200
        assert status(f"http://{proxy.running.health}/ready") == 200
        ottla_broker.stop()
        deadline = time.monotonic() + HUNG
        while status(f"http://{proxy.running.health}/ready") == 200:
            assert time.monotonic() < deadline, "still ready without upstream"
        assert status(f"http://{proxy.running.health}/health") == 200


async def test_a_drained_proxy_ends(ottla_broker: Broker) -> None:
    config = ProxyConfig(upstream=ottla_broker.bootstrap, listen="127.0.0.1:0", topics=(parse_rule("*=rewrite"),))

    async def serve(*, task_status: trio.TaskStatus[RunningProxy]) -> None:
        await run_proxy(config, task_status=task_status)

    with trio.fail_after(HUNG):
        async with trio.open_nursery() as nursery:
            running: RunningProxy = await nursery.start(serve)
            assert running.ready
            running.drain()
        assert not running.ready
