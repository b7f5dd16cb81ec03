"""Transactions, compared with Apache Kafka's own kafka-transactions, including transactions that really hang there."""

import time
import uuid
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

import ottla
from ottla.errors import PartialFailure, ProducerFenced, TransactionalIdNotFound, UnsupportedVersion
from ottla.sdk.client import Client
from tests.kafka import NOW, OLD, ApacheKafka, Release, run, start
from tests.patience import HUNG
from tests.sdk.contents import contents
from tests.sdk.hanging import UNVERIFIED, hang

pytestmark = pytest.mark.slow


def hours_ago(hours: int) -> int:
    return int((time.time() - 3600 * hours) * 1000)


async def tool(kafka: ApacheKafka, *arguments: str) -> list[dict[str, str]]:
    """The table in the output of kafka-transactions, if there is one."""
    main = "org.apache.kafka.tools.TransactionsCommand"
    everything = (main, "--bootstrap-server", kafka.bootstrap, *arguments)
    said = await trio.to_thread.run_sync(lambda: run(*everything, timeout=HUNG))  # the newest tool, for any broker
    lines = [[cell.strip() for cell in line.split("\t")[:-1]] for line in said.splitlines() if "\t" in line]
    return [dict(zip(lines[0], row, strict=True)) for row in lines[1:]]


async def committed(client: Client, topic: str, partition: int = 0) -> list[bytes]:
    """The values that a reader of committed records gets."""
    return (await contents(client, topic))[partition]


@pytest.fixture(scope="module", params=[NOW, OLD["3.9"]], ids=lambda release: release.version)
def unverified(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    release: Release = request.param
    kafka = start(tmp_path_factory.mktemp("unverified"), 1, UNVERIFIED, release)
    try:
        yield kafka
    finally:
        kafka.stop()


async def test_what_hangs_is_what_kafkas_tool_says_and_is_aborted_as_it_does(unverified: ApacheKafka) -> None:
    kafka = unverified
    async with ottla.connect(kafka.bootstrap) as client:
        await client.create_topic("t", partitions=3)
        async with client.producer(transactional_id="fine") as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"ended", partition=0)
            async with producer.transaction() as txn:
                await txn.send("t", b"open", partition=2, timestamp=hours_ago(3))
                await hang(client, "one", ("t", 0), hours_ago(1))
                await hang(client, "two", ("t", 1), hours_ago(2))
                await hang(client, "young", ("t", 1), hours_ago(0))

                found = await client.find_hanging_transactions()
                theirs = await tool(kafka, "find-hanging", "--topic", "t")
                assert [(each.partition, each.start_offset, each.transactional_id) for each in found] == [
                    (0, 2, "one"),
                    (1, 0, "two"),
                ]
                mine = [
                    {
                        "Topic": each.topic,
                        "Partition": str(each.partition),
                        "ProducerId": str(each.producer_id),
                        "ProducerEpoch": str(each.producer_epoch),
                        "CoordinatorEpoch": str(-1 if each.coordinator_epoch is None else each.coordinator_epoch),
                        "StartOffset": str(each.start_offset),
                        "LastTimestamp": str(each.last_timestamp),
                        "Duration(min)": str(60 * (1 + each.partition)),
                    }
                    for each in found
                ]
                assert sorted(theirs, key=lambda row: row["Partition"]) == mine
                listed = {each["TransactionalId"]: each for each in await tool(kafka, "list")}
                assert {
                    each.transactional_id: (str(each.coordinator.id), str(each.producer_id), each.state)
                    for each in await client.list_transactions()
                } == {
                    name: (row["Coordinator"], row["ProducerId"], row["TransactionState"])
                    for name, row in listed.items()
                }
                [row] = await tool(kafka, "describe", "--transactional-id", "fine")
                description = (await client.describe_transactions("fine"))["fine"]
                assert (row["CoordinatorId"], row["ProducerId"], row["ProducerEpoch"]) == (
                    str(description.coordinator.id),
                    str(description.producer_id),
                    str(description.producer_epoch),
                )
                assert (row["TransactionTimeoutMs"], row["CurrentTransactionStartTimeMs"], row["TopicPartitions"]) == (
                    "60000",
                    str(description.start_timestamp),
                    "t-2",
                )
                assert description.timeout == 60.0 and description.partitions == (("t", 2),)

        async with client.producer() as others:
            await others.send("t", b"behind", partition=1)
        assert await committed(client, "t", 1) == []
        await client.abort_hanging_transaction("t", 0, 2)
        assert [each["Partition"] for each in await tool(kafka, "find-hanging", "--topic", "t")] == ["1"]
        await tool(kafka, "abort", "--topic", "t", "--partition", "1", "--start-offset", "0")
        assert await client.find_hanging_transactions() == ()
        [young] = await client.find_hanging_transactions(max_transaction_timeout=0.0)
        await client.abort_hanging_transaction("t", 1, young.start_offset)
        assert await client.find_hanging_transactions(max_transaction_timeout=0.0) == ()
        assert await committed(client, "t", 1) == [b"behind"]


@pytest.mark.deep
async def test_a_producer_that_is_fenced_is_fenced_for_the_coordinator(kafka: ApacheKafka) -> None:
    name = f"fenced-{uuid.uuid4().hex}"
    async with ottla.connect(kafka.bootstrap) as client:
        await client.create_topic(name, partitions=1)
        with pytest.raises(ProducerFenced):
            async with client.producer(transactional_id=name) as producer, producer.transaction() as txn:
                await txn.send(name, b"fenced")
                assert [each.state for each in await client.list_transactions(running_longer=0.0)] == ["Ongoing"]
                given = (await client.fence_producers(name))[name]
        described = (await client.describe_transactions(name))[name]
        assert (described.producer_id, described.producer_epoch) == given and not described.is_open
        assert await committed(client, name) == []


LACKS = {
    OLD["0.10"].version: {"fence": "0.11.0", "describe": "0.11.0", "list": "3.0", "find": "2.8"},
    OLD["2.8"].version: {"describe": "3.0", "list": "3.0", "find": "3.0", "abort": "3.0"},
    OLD["3.9"].version: {},
}
"""The calls that each broker does not support, and the first version that does."""


@pytest.mark.deep
async def test_old_brokers_do_what_they_can_and_say_what_they_lack(old_kafka: ApacheKafka) -> None:
    lacks = LACKS[old_kafka.release.version]
    async with ottla.connect(old_kafka.bootstrap) as client:
        await client.create_topic("t", partitions=1, replication_factor=1)
        if hangs := "abort" in lacks:
            await hang(client, "x", ("t", 0), hours_ago(0))
        asks: dict[str, Callable[[], Awaitable[object]]] = {
            "fence": lambda: client.fence_producers("x", "y"),
            "describe": lambda: client.describe_transactions("x", "y"),
            "list": lambda: client.list_transactions(),
            "find": lambda: client.find_hanging_transactions(max_transaction_timeout=0.0),
        }
        if hangs:
            asks["abort"] = lambda: client.abort_hanging_transaction("t", 0, 0)
        for name, ask in asks.items():
            if name in lacks:
                with pytest.raises(UnsupportedVersion, match=rf"you need Kafka {lacks[name]} or newer"):
                    await ask()
            else:
                await ask()
        if hangs:
            async with client.producer() as others:
                await others.send("t", b"behind")
            assert await committed(client, "t") == []
            await client.abort_hanging_transaction("t", 0, 0, force=True)
            assert await committed(client, "t") == [b"behind"]


@pytest.mark.deep
async def test_a_node_that_is_gone_hides_its_ids_until_the_others_have_them(kafka_cluster: ApacheKafka) -> None:
    topic = f"gone-{uuid.uuid4().hex}"
    names = {f"{topic}-{number}" for number in range(6)}
    async with ottla.connect(kafka_cluster.bootstrap, connect_timeout=3.0) as client:
        await client.create_topic(topic, partitions=1)
        await client.fence_producers(*names)
        whose = {each.transactional_id: each.coordinator.id for each in await client.list_transactions()}
        gone = whose[min(names)]
        hidden = {name for name in names if whose[name] == gone}
        kafka_cluster.kill(gone)
        try:
            with trio.fail_after(HUNG):
                while True:
                    try:
                        listed = {each.transactional_id for each in await client.list_transactions()}
                    except PartialFailure as failure:
                        assert any(f"node {gone} " in each for each in failure.failures), failure
                        listed = {each.transactional_id for each in failure.found}
                        assert names - hidden <= listed or len(failure.failures) > 1
                    if names <= listed:
                        break
            described = await client.describe_transactions(*names)
            assert gone not in {each.coordinator.id for each in described.values()}
            with pytest.raises(TransactionalIdNotFound):
                await client.describe_transactions(f"{topic}-nobody")
        finally:
            kafka_cluster.revive(gone)
