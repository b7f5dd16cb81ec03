"""The proof: connections are cut under load, and no record is lost, repeated, or out of order for its key.

Each cut comes after the arrival of a Produce request and before its response: the work is done, but the sender does not
know it. The relay is between the client and the proxy, or between the proxy and Apache Kafka.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.codec.partitioners import murmur2_partition
from tests.interop.lines import Message, Outcome, Received
from tests.interop.peers import CLIENTS, Client, create_topic
from tests.interop.relay import PRODUCE, Cuts, Moment, Relay
from tests.kafka import ApacheKafka, free_ports
from tests.proxy.running import proxied

SIX = 6
CUTS = 100
KEYS = 53
LONGEST = 400_000
"""The number of messages by which all cuts must have happened."""
IMPATIENT = {
    "java": {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "20", "retry.backoff.ms": "10"},
    "librdkafka": {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "20", "retry.backoff.ms": "10"},
    "aiokafka": {"retry_backoff_ms": "10"},
    "kafkajs": {"retry.backoff.ms": "10", "retry.backoff.max.ms": "20"},
}


@contextmanager
def relayed_client(kafka: ApacheKafka) -> Iterator[tuple[Relay, str]]:
    """client → relay → proxy → Kafka"""
    front, back = free_ports(2)
    with (
        Relay(("127.0.0.1", back), listen=("127.0.0.1", front)) as relay,
        proxied(kafka.bootstrap, "storm-*=rewrite", listen=f"127.0.0.1:{back}", advertise=relay.address),
    ):
        yield relay, relay.address


@contextmanager
def relayed_upstream(kafka: ApacheKafka) -> Iterator[tuple[Relay, str]]:
    """client → proxy → relay → Kafka"""
    with (
        Relay(kafka.relayed(), listen=kafka.relay()) as relay,
        proxied(relay.address, "storm-*=rewrite") as proxy,
    ):
        yield relay, proxy.bootstrap


def storm(client: Client, bootstrap: str, topic: str, cuts: Cuts) -> tuple[list[Message], list[Outcome]]:
    """Produce until every cut has happened, and a little longer."""
    config = {**client.idempotence, **client.small_batches, **IMPATIENT[client.name]}
    sent: list[Message] = []
    with client.producing(bootstrap, config) as producer:
        while not cuts.wait(0.0):
            for _ in range(200):
                sent.append(Message(topic, b"key-%d" % (len(sent) % KEYS), b"%d" % len(sent)))
                producer.send(sent[-1])
            producer.flush()
            assert len(sent) < LONGEST, f"only {cuts.done} of {cuts.times} cuts happened"
            cuts.wait(0.1)
        return sent, producer.finish()


def assert_once_and_in_order(received: list[Received], sent: list[Message]) -> None:
    assert sorted(int(r.value or b"") for r in received) == list(range(len(sent)))
    order: dict[bytes, list[int]] = defaultdict(list)
    for record in received:
        assert record.key is not None
        assert record.partition == murmur2_partition(record.key, SIX)
        order[record.key].append(int(record.value or b""))
    assert len(order) == KEYS
    assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.deep
@pytest.mark.parametrize("leg", [relayed_client, relayed_upstream], ids=["client-leg", "upstream-leg"])
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_a_hundred_cuts_lose_double_and_reorder_nothing(kafka: ApacheKafka, client: Client, leg: object) -> None:
    side = "client" if leg is relayed_client else "upstream"
    topic = f"storm-{client}-{side}"
    create_topic(kafka.bootstrap, topic, SIX)
    with (relayed_client if leg is relayed_client else relayed_upstream)(kafka) as (relay, bootstrap):
        cuts = relay.cut(PRODUCE, Moment.BEFORE_ANSWER, every=3, times=CUTS)
        sent, outcomes = storm(client, bootstrap, topic, cuts)
        assert cuts.done == CUTS
    assert {outcome.error for outcome in outcomes} == {None}
    assert_once_and_in_order(client.consume(kafka.bootstrap, topic), sent)
