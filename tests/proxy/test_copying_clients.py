"""Clients of others with a topic in mode `copy`, in front of brokerlite: idempotent and transactional producers."""

import secrets
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ottla.codec.partitioners import murmur2_partition
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import CLIENTS, LIBRDKAFKA, Client, create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.test_transactions import until
from tests.interop.transacting import TRANSACTORS, TransactorClient
from tests.proxy.running import proxied
from tests.proxy.test_transactions_of_clients import KEYS, producing, transact

pytestmark = pytest.mark.slow

SIX, FOUR = 6, 4
MANY_KEYS = [b"N%d" % number for number in range(97)]


def messages() -> list[Message]:
    """Every tenth record has no key."""
    return [
        Message("flights", MANY_KEYS[number % len(MANY_KEYS)] if number % 10 else None, b"%d" % number)
        for number in range(2000)
    ]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_the_copy_has_each_record_once_and_each_key_in_order(
    ottla_broker: Broker, client: Client, tmp_path: Path
) -> None:
    topics = {"flights": SIX, "archive": FOUR}
    for topic, count in topics.items():
        ottla_broker.create_topic(topic, count)
    sent = messages()
    with proxied(ottla_broker.bootstrap, "flights=copy:archive", "archive=rewrite", state=str(tmp_path)) as proxy:
        outcomes = client.produce(proxy.bootstrap, sent, {**client.small_batches, **client.idempotence})
    assert {outcome.error for outcome in outcomes} == {None}
    for topic, count in topics.items():
        received = LIBRDKAFKA.consume(ottla_broker.bootstrap, topic)
        assert Counter(int(record.value or b"") for record in received) == Counter(range(len(sent)))
        order: defaultdict[bytes, list[int]] = defaultdict(list)
        for record in received:
            if record.key is not None:
                assert record.partition == murmur2_partition(record.key, count)
                order[record.key].append(int(record.value or b""))
        assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.parametrize("client", TRANSACTORS.values(), ids=str)
def test_the_copy_has_the_committed_records(ottla_broker: Broker, client: TransactorClient) -> None:
    topics = {f"moved-{secrets.token_hex(4)}": SIX, "archive": FOUR}
    source = next(iter(topics))
    for topic, count in topics.items():
        create_topic(ottla_broker.bootstrap, topic, count)
    with (
        proxied(ottla_broker.bootstrap, "moved-*=copy:archive", "archive=rewrite") as proxy,
        producing(client, proxy, source) as producer,
    ):
        transact(producer, source, b"1", b"2")
        transact(producer, source, b"aborted", end="abort")
        transact(producer, source, b"3")
        producer.close()
    with RawReader(ottla_broker.bootstrap) as reader:
        for topic, count in topics.items():
            until(lambda t=topic, n=count: not any(reader.is_open(t, index) for index in range(n)))  # type: ignore[misc]
            values: defaultdict[bytes | None, list[bytes | None]] = defaultdict(list)
            for each in reader.committed(topic):
                assert each.partition == murmur2_partition(each.key or b"", count)
                values[each.key].append(each.value)
            assert values == {key: [b"1", b"2", b"3"] for key in KEYS}, topic
