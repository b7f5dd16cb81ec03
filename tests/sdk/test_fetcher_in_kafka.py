"""Reading from Apache Kafka: sessions with topic ids, new leader epochs, large records, a recreated topic."""

import itertools
from datetime import timedelta

import pytest
import trio

import ottla
from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.errors import DataLoss, FetchSessionIdNotFound, LogTruncated, OffsetOutOfRange
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.consume.partitions.position import Offset
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.outcome import Outcome
from tests.kafka import ApacheKafka
from tests.patience import HUNG

pytestmark = pytest.mark.slow

DEADLINE = HUNG
numbers = itertools.count()


async def made(client: ottla.Client, partitions: int = 1) -> str:
    name = f"reading-{next(numbers)}"
    await client.create_topic(name, partitions=partitions, replication_factor=1)
    return name


async def send(client: ottla.Client, topic: str, *values: bytes, partition: int = 0) -> None:
    async with client.producer() as producer:
        for value in values:
            await producer.send(topic, value, partition=partition)


async def take(consumer: ottla.Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    async for batch in consumer:
        got += [record.value or b"" for record in batch]
        if len(got) >= count:
            return got
    raise AssertionError("the loop ended without a return")


def fetcher_of(client: ottla.Client) -> Fetcher:
    [fetcher] = [part for part in client._driver.core.parts if isinstance(part, Fetcher)]
    return fetcher


async def test_a_session_ends_with_its_consumer(kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap) as client:
            topic = await made(client)
            async with client.consumer(topic) as consumer:
                await send(client, topic, b"a")
                assert await take(consumer, 1) == [b"a"]
                [session] = fetcher_of(client)._scheduler._sessions.values()

            def ask(now: float) -> Outcome[FetchResponse]:
                outcome: Outcome[FetchResponse] = Outcome()
                again = FetchRequest(
                    max_wait_ms=0, min_bytes=0, session_id=session.id, session_epoch=session.epoch, topics=()
                )
                exchange = Exchange(again, lambda answer, now: outcome.settle(answer), now + 10)
                client._driver.core.submit(session.node, exchange, now)
                return outcome

            answer = await client._driver.call(ask)
            assert session.id > 0 and answer.error_code == FetchSessionIdNotFound.code


async def test_a_session_by_topic_id_lives_as_long_as_the_consumer(kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap) as client:
            topic = await made(client, partitions=20)
            async with client.consumer(topic) as consumer:
                ids = set()
                for number in range(30):
                    await send(client, topic, b"%d" % number, partition=number % 20)
                    assert await take(consumer, 1) == [b"%d" % number]
                    [session] = fetcher_of(client)._scheduler._sessions.values()
                    ids.add(session.id)
                assert len(ids) == 1 and session.id > 0
                assert session.epoch >= 29, "each record took one Fetch, and the last may still be pending"
                assert session._version >= 13 and len(session.known) == 20
                consumer.pause([(topic, number) for number in range(10)])
                await send(client, topic, b"after", partition=15)
                assert await take(consumer, 1) == [b"after"]
                await send(client, topic, b"then", partition=15)
                assert await take(consumer, 1) == [b"then"]
                assert set(session.known) == {(topic, number) for number in range(10, 20)}
                assert session.id in ids


async def test_after_a_restart_of_the_broker_the_new_epoch_is_checked_and_reading_goes_on(kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap) as client:
            topic = await made(client)
            async with client.consumer(topic) as consumer:
                await send(client, topic, b"a", b"b")
                assert await take(consumer, 2) == [b"a", b"b"]
                [position] = fetcher_of(client)._positions.assigned.values()
                before = position.leader_epoch
                await trio.to_thread.run_sync(kafka.kill)
                await trio.to_thread.run_sync(kafka.revive)
                await send(client, topic, b"c")
                assert await take(consumer, 1) == [b"c"]
                assert position.leader_epoch > before >= 0
                assert position.position_epoch == position.leader_epoch
            # An offset in an epoch that the log has never seen needs no validation.
            fetcher = Fetcher(client._driver.core)
            fetcher.assign({(topic, 0): Offset(2, leader_epoch=before + 50)}, trio.current_time())
            with pytest.raises(LogTruncated):
                while True:
                    fetcher.take()
                    await client._driver.call(lambda now: fetcher.moved())
            fetcher.close()


async def test_a_record_larger_than_the_fetch_size_arrives(kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap, partition_max_bytes=1000, fetch_max_bytes=5000) as client:
            topic = await made(client, partitions=2)
            for partition in range(2):
                await send(client, topic, b"small", b"x" * 500_000, b"last", partition=partition)
            async with client.consumer(topic) as consumer:
                assert sorted(map(len, await take(consumer, 6))) == [4, 4, 5, 5, 500_000, 500_000]


async def test_a_recreated_topic_is_told_or_read_from_its_beginning(kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap, metadata_max_age=2.0) as client:
            topic = await made(client)
            await send(client, topic, b"a", b"b", b"c")
            async with client.consumer(topic) as strict, client.consumer(topic, reset="beginning") as lenient:
                for consumer in (strict, lenient):
                    assert await take(consumer, 3) == [b"a", b"b", b"c"]
                await client.delete_topic(topic)
                await client.create_topic(topic, partitions=1, replication_factor=1)
                await send(client, topic, b"new", b"newer", b"newest", b"last")
                assert await take(lenient, 4) == [b"new", b"newer", b"newest", b"last"]
                with pytest.raises(DataLoss, match="recreated"):
                    await take(strict, 1)
                await strict.seek({(topic, 0): "beginning"})
                assert (await take(strict, 1))[0] == b"new"


async def test_the_low_level_side_and_places_by_time(kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(kafka.bootstrap) as client:
            topic = await made(client)
            await send(client, topic, b"a", b"b", b"c")
            leader = await client.leader(topic, 0)
            assert (leader.id, f"{leader.host}:{leader.port}") == (0, kafka.bootstrap)
            fetched = await client.fetch(topic, 0, 1)
            assert [record.value for record in fetched] == [b"b", b"c"]
            assert (fetched.next_offset, fetched.high_watermark) == (3, 3)
            with pytest.raises(OffsetOutOfRange):
                await client.fetch(topic, 0, 9)
            async with client.consumer(topic, start=timedelta(hours=1)) as consumer:
                assert await take(consumer, 3) == [b"a", b"b", b"c"]
                await consumer.seek({(topic, 0): timedelta(0)})
                assert consumer.position(topic, 0) == 3
