"""Clients of others with a topic in mode `fan-out`, in front of brokerlite."""

import asyncio
from collections import Counter, defaultdict

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from ottla.codec.partitioners import murmur2_partition
from ottla.errors import TopicAuthorizationFailed
from ottla.sdk.sync import connect
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import AIOKAFKA, CLIENTS, JAVA, LIBRDKAFKA, Client, PeerFailed
from tests.patience import HUNG
from tests.proxy.running import proxied

SIX = 6
KEYS = [b"N%d" % number for number in range(97)]


def messages() -> list[Message]:
    """Every tenth record has no key."""
    return [
        Message("flights", KEYS[number % len(KEYS)] if number % 10 else None, b"%d" % number) for number in range(2000)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_each_key_is_in_its_partition_in_order_whatever_partitioner_the_client_has(
    ottla_broker: Broker, client: Client
) -> None:
    ottla_broker.create_topic("flights", SIX)
    sent = messages()
    with proxied(ottla_broker.bootstrap, "flights=fan-out") as proxy:
        outcomes = client.produce(proxy.bootstrap, sent, {**client.small_batches, **client.idempotence})
    assert {outcome.error for outcome in outcomes} == {None}
    assert {outcome.partition for outcome in outcomes} == {0}, "clients see one partition"
    received = LIBRDKAFKA.consume(ottla_broker.bootstrap, "flights")
    assert Counter(int(record.value or b"") for record in received) == Counter(range(len(sent)))
    order: defaultdict[bytes, list[int]] = defaultdict(list)
    for record in received:
        if record.key is not None:
            assert record.partition == murmur2_partition(record.key, SIX)
            order[record.key].append(int(record.value or b""))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len({record.partition for record in received if record.key is None}) > 1, "they are spread, too"


@pytest.mark.slow
@pytest.mark.parametrize("client", [JAVA, AIOKAFKA], ids=str)
def test_a_client_that_reads_without_a_group_gets_an_authorization_error(ottla_broker: Broker, client: Client) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=fan-out") as proxy, pytest.raises(PeerFailed, match=r"uthoriz"):
        client.consume(proxy.bootstrap, "flights")


@pytest.mark.slow
def test_a_member_of_a_group_gets_an_authorization_error(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("flights", SIX)
    with proxied(ottla_broker.bootstrap, "flights=fan-out") as proxy:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "g"})
        consumer.subscribe(["flights"])
        found = consumer.poll(HUNG)
        assert found is not None, "no error came"
        error = found.error()
        assert error is not None and error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, error
        consumer.close()
        with pytest.raises(KafkaError, match="TopicAuthorizationFailed"):
            asyncio.run(_read(proxy.bootstrap))
        with (
            connect(proxy.bootstrap) as client,
            pytest.raises(TopicAuthorizationFailed),
            client.consumer("flights", group="h") as ours,
        ):
            next(iter(ours))


async def _read(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer("flights", bootstrap_servers=bootstrap, group_id="a")
    try:
        await asyncio.wait_for(consumer.start(), HUNG)
        await asyncio.wait_for(consumer.getone(), HUNG)
    finally:
        await consumer.stop()
