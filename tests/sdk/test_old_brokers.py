"""Apache Kafka 0.10, 2.8 and 3.9, on ZooKeeper: supported calls work, and an error names each unsupported feature."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
import trio

import ottla
from ottla.errors import OttlaError, UnsupportedVersion
from tests.interop.lines import Message
from tests.interop.peers import LIBRDKAFKA
from tests.kafka import ApacheKafka
from tests.patience import HUNG

pytestmark = pytest.mark.slow

OLDEST = "0.10.2.2"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE = HUNG
"""Seconds for a scenario; the first group waits until the broker has created its offsets topic."""


def is_oldest(kafka: ApacheKafka) -> bool:
    return kafka.release.version == OLDEST


def idempotent(kafka: ApacheKafka) -> bool:
    return not is_oldest(kafka)


async def read(consumer: ottla.Consumer, count: int) -> list[ottla.Record]:
    records: list[ottla.Record] = []
    async for batch in consumer:
        records += batch
        if len(records) >= count:
            return records
    raise AssertionError("the loop ended without a return")


@pytest.mark.deep
@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_what_is_sent_comes_back(old_kafka: ApacheKafka, compression: str) -> None:
    topic = f"sent-{compression}"
    values = [b"%d" % number * 20 for number in range(500)]
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic(topic, partitions=1, replication_factor=1)
            async with client.producer(compression=compression, idempotent=idempotent(old_kafka)) as producer:
                if compression == "zstd" and is_oldest(old_kafka):
                    with pytest.raises(OttlaError, match="zstd"):
                        await producer.send(topic, b"v")
                    return
                receipt = await producer.send(topic, b"first", key=b"k", timestamp=1_500_000_000_000)
                for value in values:
                    await producer.send_soon(topic, value)
            async with client.consumer(topic) as consumer:
                records = await read(consumer, 501)
    assert (receipt.partition, receipt.offset) == (0, 0)
    assert (records[0].key, records[0].value, records[0].timestamp) == (b"k", b"first", 1_500_000_000_000)
    assert [each.value for each in records[1:]] == values
    assert [each.offset for each in records] == list(range(501))


@pytest.mark.deep
async def test_the_broker_stores_what_it_calls_its_own_format(old_kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic("stored", partitions=1, replication_factor=1)
            async with client.producer(compression="gzip", idempotent=idempotent(old_kafka), linger=0.1) as producer:
                for number in range(10):
                    await producer.send_soon("stored", b"value %d" % number, key=b"key")
    segment = next((old_kafka.data() / "stored-0").glob("*.log"))
    dumped = await trio.to_thread.run_sync(
        lambda: old_kafka.run("kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", segment)
    )
    assert dumped.count("payload: value") == 10
    if not is_oldest(old_kafka):
        assert "magic: 2" in dumped and "isvalid: true" in dumped


@pytest.mark.deep
@pytest.mark.parametrize("compression", COMPRESSIONS[:4])
async def test_what_another_client_sent_is_read(old_kafka: ApacheKafka, compression: str) -> None:
    topic = f"others-{compression}"
    messages = [Message(topic, b"k%d" % number, b"v%d" % number * 10, partition=number % 2) for number in range(200)]
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic(topic, partitions=2, replication_factor=1)
            config = {"compression.codec": compression, "linger.ms": "20"}
            await trio.to_thread.run_sync(LIBRDKAFKA.produce, old_kafka.bootstrap, messages, config)
            async with client.consumer(topic) as consumer:
                records = await read(consumer, 200)
    assert sorted((each.key, each.value) for each in records) == sorted((each.key, each.value) for each in messages)


async def test_what_is_sent_is_read_by_another_client(old_kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic("for-others", partitions=3, replication_factor=1)
            for compression in ("none", "gzip", "snappy", "lz4"):
                async with client.producer(compression=compression, idempotent=idempotent(old_kafka)) as producer:
                    for number in range(100):
                        await producer.send_soon("for-others", f"{compression} {number}".encode(), key=b"%d" % number)
        records = await trio.to_thread.run_sync(LIBRDKAFKA.consume, old_kafka.bootstrap, "for-others")
    expected = {f"{compression} {n}".encode() for compression in ("none", "gzip", "snappy", "lz4") for n in range(100)}
    assert len(records) == 400 and {each.value for each in records} == expected


@pytest.mark.deep
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_kind_of_acknowledgement(old_kafka: ApacheKafka, acks: int) -> None:
    topic = f"acks-{acks}"
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic(topic, partitions=1, replication_factor=1)
            async with client.producer(acks=acks, idempotent=False) as producer:
                for number in range(100):
                    await producer.send_soon(topic, b"%d" % number)
            async with client.consumer(topic) as consumer:
                assert [each.value for each in await read(consumer, 100)] == [b"%d" % each for each in range(100)]


async def test_idempotence_and_headers_are_done_or_refused_by_name(old_kafka: ApacheKafka) -> None:
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic("exactly", partitions=1, replication_factor=1)
            if is_oldest(old_kafka):
                with pytest.raises(OttlaError, match="idempoten"):
                    async with client.producer(idempotent=True) as producer:
                        await producer.send("exactly", b"v")
                with pytest.raises(OttlaError, match="header"):
                    async with client.producer(idempotent=False) as producer:
                        await producer.send("exactly", b"v", headers=[("h", b"1")])
                return
            async with client.producer() as producer:
                await producer.send("exactly", b"v", headers=[("h", b"1"), ("h", None)])
            async with client.consumer("exactly", isolation="read_committed") as consumer:
                [record] = await read(consumer, 1)
    assert record.headers == (("h", b"1"), ("h", None))


@pytest.mark.deep
async def test_offsets_by_time_and_seeking(old_kafka: ApacheKafka) -> None:
    at = [datetime(2020, 1, day, tzinfo=UTC) for day in range(1, 6)]
    place = ("times", 0)
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic("times", partitions=1, replication_factor=1)
            async with client.producer(idempotent=idempotent(old_kafka)) as producer:
                for moment in at:
                    await producer.send("times", b"v", timestamp=int(moment.timestamp() * 1000))
            assert await client.offsets({place: "beginning"}) == {place: 0}
            assert await client.offsets({place: "end"}) == {place: 5}
            assert [(await client.offsets({place: moment}))[place] for moment in at] == [0, 1, 2, 3, 4]
            assert (await client.offsets({place: datetime(2021, 1, 1, tzinfo=UTC)}))[place] == -1
            async with client.consumer(assign={place: at[3]}) as consumer:
                assert [each.offset for each in await read(consumer, 2)] == [3, 4]


@pytest.mark.deep
async def test_a_record_larger_than_the_fetch_size_arrives(old_kafka: ApacheKafka) -> None:
    large = b"x" * 300_000
    with trio.fail_after(DEADLINE):
        async with ottla.connect(old_kafka.bootstrap, partition_max_bytes=10_000, fetch_max_bytes=20_000) as client:
            await client.create_topic("large", partitions=1, replication_factor=1)
            async with client.producer(idempotent=idempotent(old_kafka)) as producer:
                await producer.send("large", b"small")
                await producer.send("large", large)
                await producer.send("large", b"small")
            async with client.consumer("large") as consumer:
                assert [each.value for each in await read(consumer, 3)] == [b"small", large, b"small"]


class DeliveryCallback(ottla.RebalanceListener):
    """Reports that partitions were assigned."""

    def __init__(self, news: trio.MemorySendChannel[None]) -> None:
        self._news = news

    async def assigned(self, consumer: ottla.Consumer, places: Sequence[tuple[str, int]]) -> None:
        self._news.send_nowait(None)


@pytest.mark.deep
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_a_group_shares_a_topic_and_goes_on_where_it_committed(old_kafka: ApacheKafka, assignor: str) -> None:
    topic = group = f"group-{assignor}"

    async def round_of(members: int, numbers: range) -> None:
        """So many members share the topic, and read the records sent meanwhile."""
        seen: list[int] = []
        consumers: list[ottla.Consumer] = []
        told, news = trio.open_memory_channel[None](100)

        async def member() -> None:
            # Before 2.2, a member that leaves during its first join stays in the group until its session times out.
            async with client.consumer(
                topic, group=group, listener=DeliveryCallback(told), assignors=[assignor], session_timeout=15.0
            ) as consumer:
                consumers.append(consumer)
                async for batch in consumer:
                    seen.extend(int(each.value or b"") for each in batch)
                    await batch.commit()
                    if len(seen) >= len(numbers):
                        nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery, client.producer(idempotent=idempotent(old_kafka)) as producer:
            for _ in range(members):
                nursery.start_soon(member)
            async for _ in news:
                if [len(each.assignment) for each in consumers] == [4 // members] * members:
                    break
            for number in numbers:
                await producer.send_soon(topic, b"%d" % number, key=b"%d" % number)
        assert sorted(seen) == list(numbers)

    with trio.fail_after(2 * DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic(topic, partitions=4, replication_factor=1)
            await round_of(2, range(100))
            assert sum(each.offset for each in (await client.committed(group)).values()) == 100
            await round_of(1, range(100, 200))
            assert (await client.group_lag(group)).total == 0


async def test_topics_and_groups_are_administered(old_kafka: ApacheKafka) -> None:
    with trio.fail_after(2 * DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic("kept", partitions=2, replication_factor=1)
            await client.create_topic("deleted", partitions=1, replication_factor=1)
            await client.delete_topic("deleted")
            topics = await client.list_topics()
            assert "kept" in topics and "deleted" not in topics
            assert len(await client.offsets({("kept", 0): "end", ("kept", 1): "end"})) == 2
            assert len((await client.describe_topic("kept")).partitions) == 2
            async with client.producer(idempotent=idempotent(old_kafka)) as producer:
                await producer.send("kept", b"v")
            async with client.consumer("kept", group="readers") as consumer:
                async for batch in consumer:
                    await batch.commit()
                    described = await client.describe_group("readers")
                    break
            assert described.state == "Stable" and len(described.members) == 1
            assert "readers" in {each.group for each in await client.list_groups()}
            await client.reset_offsets("readers", "beginning", topics=["kept"], execute=True)
            assert (await client.group_lag("readers")).total == 1
            if is_oldest(old_kafka):
                with pytest.raises(UnsupportedVersion, match=r"DeleteGroups.*1\.1"):
                    await client.delete_group("readers")
                with pytest.raises(UnsupportedVersion, match="CreatePartitions"):
                    await client.create_partitions("kept", 3)
            else:
                await client.delete_group("readers")
                assert len((await client.create_partitions("kept", 3)).partitions) == 3


@pytest.mark.deep
async def test_a_kill_loses_nothing_and_under_idempotence_doubles_nothing(old_kafka: ApacheKafka) -> None:
    count = 20_000
    with trio.fail_after(4 * DEADLINE):
        async with ottla.connect(old_kafka.bootstrap) as client:
            await client.create_topic("killed", partitions=1, replication_factor=1)
            async with (
                client.producer(idempotent=idempotent(old_kafka), compression="lz4") as producer,
                trio.open_nursery() as nursery,
            ):

                async def strike() -> None:
                    await trio.to_thread.run_sync(old_kafka.kill)
                    await trio.to_thread.run_sync(old_kafka.revive)

                for number in range(count):
                    await producer.send_soon("killed", b"%d" % number)
                    if number == count // 2:
                        nursery.start_soon(strike)
            end = (await client.offsets({("killed", 0): "end"}))[("killed", 0)]
            async with client.consumer("killed") as consumer:
                values = [int(each.value or b"") for each in await read(consumer, end)]
    if idempotent(old_kafka):
        assert values == list(range(count))
    else:
        assert sorted(set(values)) == list(range(count))
