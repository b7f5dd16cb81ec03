"""Transactions of a producer, over real sockets, against brokerlite and both protocol versions of Apache Kafka."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio

import ottla
import ottla.sync
from ottla.errors import (
    ConfigurationError,
    EncodeError,
    InvalidTransactionTimeout,
    LocalProtocolError,
    MessageTooLarge,
    OttlaError,
    ProducerFenced,
    TransactionAborted,
)
from ottla.testing import Broker
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.sdk.contents import contents
from tests.sdk.loops import Loop


async def read(
    client: ottla.Client, topic: str, isolation: Literal["read_committed", "read_uncommitted"]
) -> list[bytes]:
    """All records with this isolation, in the order of the partitions."""
    found = await contents(client, topic, isolation)
    return [value for partition in sorted(found) for value in found[partition]]


async def committed(client: ottla.Client, topic: str) -> list[bytes]:
    return await read(client, topic, "read_committed")


async def everything(client: ottla.Client, topic: str) -> list[bytes]:
    return await read(client, topic, "read_uncommitted")


async def tell_the_whole_story(loop: Loop, bootstrap: str, topic: str) -> None:
    """Commit, abort and cancel in turn, and then get fenced."""
    async with loop.connect(bootstrap) as client:
        await client.create_topic(topic, partitions=2)
        async with client.producer(transactional_id=f"{topic}-id") as producer:
            for number in range(3):
                async with producer.transaction() as txn:
                    await txn.send_soon(topic, b"%d-0" % number, partition=0)
                    await txn.send(topic, b"%d-1" % number, partition=1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as txn:
                    await txn.send(topic, b"aborted", partition=0)
                    1 / 0  # noqa: B018 # raises
            async with producer.transaction():
                pass
            async with client.producer(transactional_id=f"{topic}-id") as newer:
                async with newer.transaction() as txn:
                    await txn.send_many(topic, [b"new"] * 3)
                with pytest.raises(ProducerFenced):
                    async with producer.transaction() as txn:
                        await txn.send_soon(topic, b"fenced", partition=0)
        seen = await committed(client, topic)
        assert seen[:3] == [b"0-0", b"1-0", b"2-0"] and seen.count(b"new") == 3 and len(seen) == 9
        assert b"aborted" in await everything(client, topic)


async def test_what_commits_is_seen_and_what_aborts_is_not(loop: Loop, ottla_broker: Broker) -> None:
    await tell_the_whole_story(loop, ottla_broker.bootstrap, "story")


async def test_what_sends_in_a_transaction_does_so_in_no_other(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(transactional_id="t-1") as producer:
        await client.create_topic("t", partitions=1)
        async with producer.transaction() as txn:
            send_soon = txn.send_soon
            for number in range(100):
                await send_soon("t", b"%d" % number)
        async with producer.transaction() as txn:
            await txn.send_soon("t", b"next")
            for _ in range(10):  # once in a millisecond, a send takes the slow path
                with pytest.raises(LocalProtocolError, match="this transaction is over"):
                    await send_soon("t", b"late")
        assert await committed(client, "t") == [*(b"%d" % number for number in range(100)), b"next"]


@pytest.mark.slow
async def test_the_same_on_apache_kafka(loop: Loop, kafka: ApacheKafka) -> None:
    await tell_the_whole_story(loop, kafka.bootstrap, f"story-{uuid.uuid4().hex}")


@pytest.mark.deep
async def test_the_same_on_older_brokers(old_kafka: ApacheKafka) -> None:
    from tests.sdk.loops import Trio

    if old_kafka.release.version.startswith("0.10"):  # 0.10 has no transactions
        async with ottla.connect(old_kafka.bootstrap) as client, client.producer(transactional_id="t") as producer:
            with pytest.raises(OttlaError, match=r"Kafka 0\.11"):
                async with producer.transaction():
                    pass
        return
    await tell_the_whole_story(Trio(), old_kafka.bootstrap, "story")


def test_in_code_that_blocks_it_is_the_same(ottla_broker: Broker) -> None:
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic("t", partitions=1)
        with client.producer(transactional_id="t-1") as producer:
            with producer.transaction() as txn:
                assert txn.send("t", b"a").offset == 0
                send_soon = txn.send_soon
            with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
                txn.send_nowait("t", b"b")
                with pytest.raises(LocalProtocolError, match="this transaction is over"):
                    send_soon("t", b"late")
                1 / 0  # noqa: B018 # raises
        with client.consumer("t", isolation="read_committed") as consumer:
            assert [record.value for record in consumer.poll(HUNG) or ()] == [b"a"]


@pytest.mark.parametrize("how", ["many", "many-serialized", "send", "send_soon", "send_nowait"])
def test_a_record_that_its_thread_is_still_making_is_part_of_no_later_transaction(
    how: str, ottla_broker: Broker
) -> None:
    """A thread sends; in its iterator, or its serializer, another thread ends the transaction, and begins the next."""
    made, ended = threading.Event(), threading.Event()
    refused: list[OttlaError] = []

    def values() -> Iterator[bytes]:
        yield b"early"
        made.set()
        assert ended.wait(HUNG)
        yield b"late"

    def serialize(value: bytes) -> bytes:
        if value == b"late":
            made.set()
            assert ended.wait(HUNG)
        return value

    def work(txn: Any) -> None:
        try:
            txn.send_many("t", values()) if how.startswith("many") else getattr(txn, how)("t", b"late")
        except LocalProtocolError as error:
            refused.append(error)

    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic("t", partitions=1)
        hooks: Any = {} if how == "many" else {"value_serializer": serialize}
        with client.producer(transactional_id="t-1", **hooks) as producer:
            with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
                txn.send("t", b"aborted")
                thread = threading.Thread(target=work, args=(txn,))
                thread.start()
                assert made.wait(HUNG)
                1 / 0  # noqa: B018 # raises
            with producer.transaction() as txn:
                txn.send("t", b"next")
                ended.set()
                thread.join(HUNG)
        assert [str(each) for each in refused] == [
            "this transaction is over: send within the block of producer.transaction()"
        ]
        with client.consumer("t", isolation="read_committed") as consumer:
            assert [record.value for record in consumer.poll(HUNG) or ()] == [b"next"]


async def test_a_cancellation_aborts(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, client.producer(transactional_id="t-1") as producer:
        await client.create_topic("t", partitions=1)
        with trio.CancelScope() as scope:
            async with producer.transaction() as txn:
                await txn.send("t", b"cancelled")
                scope.cancel()
                await trio.sleep_forever()
        async with producer.transaction() as txn:
            await txn.send("t", b"next")
        assert await committed(client, "t") == [b"next"]
        assert await everything(client, "t") == [b"cancelled", b"next"]


async def test_a_record_that_fails_makes_the_commit_impossible_by_name(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, client.producer(transactional_id="t-1") as producer:
        await client.create_topic("t", partitions=1, configs={"max.message.bytes": "1000"})
        with pytest.raises(TransactionAborted, match=r"1 record\(s\) were not delivered \(t-0: 1\)") as raised:
            async with producer.transaction() as txn:
                await txn.send("t", b"small")
                await txn.send_soon("t", b"large" * 1000)
        assert isinstance(raised.value.cause, MessageTooLarge) and raised.value.partitions == {("t", 0): 1}
        with pytest.raises(TransactionAborted):
            async with producer.transaction() as txn:
                with pytest.raises(MessageTooLarge):
                    await txn.send("t", b"large" * 1000)
                with pytest.raises(TransactionAborted):
                    await txn.send("t", b"of no use any more")
        async with producer.transaction() as txn:
            await txn.send("t", b"good")
        assert await committed(client, "t") == [b"good"]


async def test_outside_of_a_transaction_nothing_is_sent(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, client.producer(transactional_id="t-1") as producer:
        for call in (lambda: producer.send("t", b"v"), lambda: producer.send_soon("t", b"v")):
            with pytest.raises(LocalProtocolError, match="no transaction is open"):
                await call()
        with pytest.raises(LocalProtocolError, match="no transaction is open"):
            producer.send_nowait("t", b"v")
        async with producer.transaction() as txn:
            await txn.send("t", b"v")
            with pytest.raises(LocalProtocolError, match="is open: end it"):
                async with producer.transaction():
                    pass
        with pytest.raises(LocalProtocolError, match="this transaction is over"):
            await txn.send("t", b"late")
        with pytest.raises(LocalProtocolError, match="begun only once"):
            async with txn:
                pass
        async with producer.transaction() as other:
            with pytest.raises(LocalProtocolError, match="this transaction is over"):
                txn.send_nowait("t", b"late")
            await other.send("t", b"w")
        assert await committed(client, "t") == [b"v", b"w"]


async def test_a_producer_without_a_name_has_no_transactions(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            with pytest.raises(LocalProtocolError, match="transactional_id="):
                producer.transaction()
        for wrong in ({"transactional_id": ""}, {"transactional_id": 7}, {"transactional_id": "t", "acks": 1}):
            with pytest.raises(ConfigurationError):
                client.producer(**wrong)


async def test_what_the_broker_refuses_for_good_is_raised_by_the_first_transaction(ottla_broker: Broker) -> None:
    async with (
        ottla.connect(ottla_broker.bootstrap) as client,
        client.producer(transactional_id="t", transaction_timeout=3600.0) as producer,
    ):
        for _ in range(2):
            with pytest.raises(InvalidTransactionTimeout):
                async with producer.transaction():
                    pass


async def test_a_mistake_of_the_caller_aborts_like_any_error(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, client.producer(transactional_id="t") as producer:
        await client.create_topic("t", partitions=1)
        with pytest.raises(EncodeError):
            async with producer.transaction() as txn:
                await txn.send("t", b"v")
                await txn.send("t", "no bytes")  # type: ignore[arg-type] # on purpose
        assert await committed(client, "t") == []
