"""Clients of others with a topic in mode `reject`, in front of brokerlite."""

from collections import Counter

import pytest

from ottla.codec.partitioners import murmur2_partition
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import AIOKAFKA, JAVA, LIBRDKAFKA, Client
from tests.proxy.running import proxied

SIX = 6
KEYS = [b"N%d" % number for number in range(97)]


def messages(count: int) -> list[Message]:
    """Every hundredth key is in the partition behind its own."""
    sent = []
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        partition = (murmur2_partition(key, SIX) + (number % 100 == 50)) % SIX
        sent.append(Message("flights", key, b"%d" % number, partition))
    return sent


def is_misplaced(message: Message) -> bool:
    return message.partition != murmur2_partition(message.key or b"", SIX)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "idempotent", "goes_on"),
    [(LIBRDKAFKA, True, True), (JAVA, True, True), (AIOKAFKA, False, True), (AIOKAFKA, True, False)],
    ids=["librdkafka", "java", "aiokafka, not idempotent", "aiokafka"],
)
def test_clients_tell_of_refused_batches_and_most_go_on(
    ottla_broker: Broker, client: Client, idempotent: bool, goes_on: bool
) -> None:
    ottla_broker.create_topic("flights", SIX)
    sent = messages(3000)
    config = {**client.small_batches, **(client.idempotence if idempotent else {"enable.idempotence": "false"})}
    with proxied(ottla_broker.bootstrap, "flights=reject") as proxy:
        outcomes = client.produce(proxy.bootstrap, sent, config)
        received = client.consume(proxy.bootstrap, "flights")
    stored = Counter(int(record.value or b"") for record in received)
    acknowledged = {number for number, outcome in enumerate(outcomes) if outcome.error is None}
    assert stored.keys() == acknowledged and set(stored.values()) == {1}
    assert not any(is_misplaced(sent[number]) for number in stored)
    assert all(outcomes[number].error for number, each in enumerate(sent) if is_misplaced(each))
    if goes_on:
        assert len(acknowledged) > len(sent) // 2, "the client has sent the batches behind refused ones"
        assert max(acknowledged) > len(sent) - 100, "also the last ones"
    else:  # its sequences continue behind the refused batch, so that brokers refuse all later batches, too
        assert {outcome.error for outcome in outcomes[-100:]} <= {"OutOfOrderSequenceNumber", "UnknownError"}
