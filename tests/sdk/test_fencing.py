"""Fenced producers, over real sockets: the error that leaves the block says what happened."""

import uuid
from typing import Any

import pytest

from ottla.errors import TransactionAborted
from ottla.sdk.client import Client
from ottla.sdk.producer import Producer
from ottla.sdk.transaction import fencing
from ottla.sdk.transaction.fencing import FENCING
from ottla.testing import Broker
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.sdk.loops import Loop, Trio


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not come without the coordinator's state, however long the coordinator takes to answer."""
    monkeypatch.setattr(fencing, "LIMIT", HUNG)


async def fenced_by_another(client: Client, topic: str) -> str:
    """The error that a producer gets after another one has used its transactional id."""
    await client.create_topic(topic, partitions=1)
    async with client.producer(transactional_id=topic) as producer:
        async with producer.transaction() as txn:
            await txn.send(topic, b"first")
        async with client.producer(transactional_id=topic) as newer, newer.transaction() as txn:
            await txn.send(topic, b"second")
        with pytest.raises(FENCING) as raised:
            async with producer.transaction() as txn:
                await txn.send_soon(topic, b"fenced")
        with pytest.raises(FENCING) as again:
            async with producer.transaction():
                pass
        assert again.value is raised.value
    return str(raised.value)


async def fenced_by_its_own_timeout(loop: Loop, client: Client, topic: str) -> str:
    """The error of a producer whose transaction exceeded its timeout and was aborted; can the producer continue?"""
    await client.create_topic(topic, partitions=1)
    async with client.producer(transactional_id=topic, transaction_timeout=1.0) as producer:
        with pytest.raises((TransactionAborted, *FENCING)) as raised:
            async with producer.transaction() as txn:
                await txn.send(topic, b"first")
                while (await client.offsets({(topic, 0): "end"}, isolation="read_committed"))[topic, 0] == 0:
                    await loop.sleep(0.1)
                await txn.send_soon(topic, b"fenced")
        text = str(raised.value)
        if "make another producer" in text:
            with pytest.raises(FENCING) as again:
                async with producer.transaction():
                    pass
            assert again.value is raised.value
        else:
            while not await sent(producer, topic, b"second"):
                pass
    return text


async def sent(producer: Producer[Any, Any], topic: str, value: bytes) -> bool:
    """Send a record in a transaction; whether the transaction was shorter than its timeout, as on a calm machine."""
    try:
        async with producer.transaction() as txn:
            await txn.send(topic, value)
    except TransactionAborted as late:
        assert "because it was open for " in str(late)
        return False
    return True


async def tell_both_stories(loop: Loop, bootstrap: str, known: str = "; its coordinator, node ") -> None:
    name = uuid.uuid4().hex
    with loop.fail_after(HUNG):
        async with loop.connect(bootstrap) as client:
            text = await fenced_by_another(client, f"rival-{name}")
            assert f": another producer with transactional id 'rival-{name}' has been initialized, or an" in text
            assert "(this one has producer id " in text and known in text
            text = await fenced_by_its_own_timeout(loop, client, f"late-{name}")
            assert f": the broker has aborted the transaction of 'late-{name}', because it was open for " in text
            assert "and transaction_timeout is 1 s: raise transaction_timeout, or make transactions shorter" in text
            assert known in text and "has been initialized" not in text


async def test_a_fenced_producer_says_by_whom(loop: Loop, ottla_broker: Broker) -> None:
    await tell_both_stories(loop, ottla_broker.bootstrap)


@pytest.mark.slow
async def test_a_fenced_producer_says_by_whom_on_apache_kafka(kafka: ApacheKafka) -> None:
    await tell_both_stories(Trio(), kafka.bootstrap)


@pytest.mark.deep
async def test_a_fenced_producer_says_by_whom_on_older_brokers(old_kafka: ApacheKafka) -> None:
    version = old_kafka.release.version
    if version.startswith("2.8"):
        await tell_both_stories(
            Trio(), old_kafka.bootstrap, "the coordinator's state is unknown: brokers before Kafka 3.0 cannot tell"
        )
    elif not version.startswith("0.10"):  # 0.10 has no transactions
        await tell_both_stories(Trio(), old_kafka.bootstrap)
