"""Clients of others with a topic in mode `copy`, in front of brokerlite and Apache Kafka."""

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.codec.partitioners import murmur2_partition
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import CLIENTS, LIBRDKAFKA, Client, create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.test_transactions import either, until
from tests.interop.transacting import TransactorClient
from tests.proxy.running import proxied
from tests.proxy.test_transactions_of_clients import ALL, KEYS, SOME, producing, transact

pytestmark = pytest.mark.slow

SIX, FOUR = 6, 4
MANY_KEYS = [b"N%d" % number for number in range(97)]


@pytest.fixture
def upstream(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from either(request, tmp_path)


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


@pytest.mark.parametrize(("upstream", "client"), ALL + SOME, indirect=["upstream"], ids=str)
def test_the_copy_has_the_committed_records(upstream: str, client: TransactorClient) -> None:
    source, copy = f"moved-{secrets.token_hex(4)}", f"copied-{secrets.token_hex(4)}"
    create_topic(upstream, source, SIX)
    create_topic(upstream, copy, FOUR)
    with (
        proxied(upstream, f"{source}=copy:{copy}", f"{copy}=rewrite") as proxy,
        producing(client, proxy, source) as producer,
    ):
        transact(producer, source, b"1", b"2")
        transact(producer, source, b"aborted", end="abort")
        transact(producer, source, b"3")
        producer.close()
    expected = {key: [b"1", b"2", b"3"] for key in KEYS}
    assert committed(upstream, source, SIX) == committed(upstream, copy, FOUR) == expected


def committed(upstream: str, topic: str, count: int) -> dict[bytes | None, list[bytes | None]]:
    """The committed values of each key, once every transaction has ended; all must be in the key's partition."""
    values: defaultdict[bytes | None, list[bytes | None]] = defaultdict(list)
    with RawReader(upstream) as reader:
        until(lambda: not any(reader.is_open(topic, partition) for partition in range(count)))
        for each in reader.committed(topic):
            assert each.partition == murmur2_partition(each.key or b"", count)
            values[each.key].append(each.value)
    return values
