"""The producer against Apache Kafka: errors that only a real broker returns."""

from typing import Any

import pytest
import trio

import ottla
from ottla.errors import InvalidRecord, MessageTooLarge
from tests.kafka import ApacheKafka
from tests.patience import HUNG

pytestmark = pytest.mark.slow


async def read(client: ottla.Client, topic: str, count: int) -> list[ottla.Record]:
    records: list[ottla.Record] = []
    with trio.fail_after(HUNG):
        async with client.consumer(topic) as consumer:
            async for batch in consumer:
                records += batch
                if len(records) >= count:
                    return records
    raise AssertionError("the loop ended without a return")


async def test_batches_that_are_too_large_are_split_and_their_order_stays(kafka: ApacheKafka) -> None:
    async with ottla.connect(kafka.bootstrap) as client:
        await client.create_topic("split", partitions=1, configs={"max.message.bytes": "2000"})
        async with client.producer(batch_size=50_000, linger=0.01) as producer:
            values = [b"%04d" % i + bytes(96) for i in range(2000)]
            too_large: list[object] = []
            for i, value in enumerate(values):
                await producer.send_soon("split", value)
                if i % 500 == 250:
                    producer.send_nowait("split", bytes(3000), on_delivery=too_large.append)
            last = await producer.send("split", b"last")
        records = await read(client, "split", 2001)
        splits = client.metrics()
    assert [record.value for record in records] == [*values, b"last"]
    assert last.offset == 2000
    assert [type(each) for each in too_large] == [MessageTooLarge] * 4
    assert any(each.name == "batch-split-total" and each.value > 10 for each in splits)


async def test_a_compacted_topic_names_the_record_without_a_key(kafka: ApacheKafka) -> None:
    told: list[object] = []
    async with ottla.connect(kafka.bootstrap) as client:
        await client.create_topic("compacted", partitions=1, configs={"cleanup.policy": "compact"})
        async with client.producer() as producer:
            for key in (b"a", None, b"c"):
                await producer.send_soon("compacted", b"v", key=key, partition=0, on_delivery=told.append)
            await producer.flush()
            assert (await producer.send("compacted", b"v", key=b"d")).offset == 0
    assert all(isinstance(each, InvalidRecord) for each in told)
    assert "key" in str(told[1]) and "another record of its batch" not in str(told[1])
    assert "another record of its batch" in str(told[0]) and "record 1" in str(told[2])


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_kind_of_acknowledgement_stores_in_order(kafka: ApacheKafka, acks: Any) -> None:
    topic = f"acks-{acks}"
    async with ottla.connect(kafka.bootstrap) as client:
        await client.create_topic(topic, partitions=1)
        async with client.producer(acks=acks, batch_size=200) as producer:
            await producer.send_many(topic, [b"%d" % i for i in range(1000)])
        assert [record.value for record in await read(client, topic, 1000)] == [b"%d" % i for i in range(1000)]
