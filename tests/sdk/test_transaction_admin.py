"""Administration of transactions over real sockets, against brokerlite."""

import time
from typing import Any

import pytest

import ottla.sync
from ottla.errors import (
    ConfigurationError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    LocalProtocolError,
    PartialFailure,
    ProducerFenced,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from ottla.sdk.client import Client
from ottla.testing import Broker
from tests.patience import FAR, HUNG
from tests.sdk.contents import contents
from tests.sdk.hanging import lose
from tests.sdk.loops import Loop

T0, T1 = ("t", 0), ("t", 1)


async def committed(client: Client, topic: str) -> list[bytes]:
    """The values that a reader of committed records gets before it has to wait."""
    return [value for values in (await contents(client, topic)).values() for value in values]


async def test_an_id_and_its_transaction_are_described(loop: Loop, ottla_broker: Broker) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(transactional_id="t-1", transaction_timeout=42.0) as producer,
    ):
        await client.create_topic("t", partitions=2)
        before = time.time() * 1000 - 1
        async with producer.transaction() as txn:
            await txn.send("t", b"v", partition=1)
            await txn.send("t", b"v", partition=0)
            open_ = (await client.describe_transactions("t-1"))["t-1"]
        assert (open_.state, open_.is_open, open_.timeout, open_.partitions) == ("Ongoing", True, 42.0, (T0, T1))
        assert open_.start_timestamp is not None and before <= open_.start_timestamp <= time.time() * 1000
        assert open_.coordinator.id == (await client.leader("t", 0)).id
        ended = (await client.describe_transactions("t-1"))["t-1"]
        assert (ended.state, ended.is_open, ended.partitions) == ("CompleteCommit", False, ())
        with pytest.raises(TransactionalIdNotFound, match="'nobody'"):
            await client.describe_transactions("nobody")
        with pytest.raises(PartialFailure, match="nobody") as failed:
            await client.describe_transactions("t-1", "nobody")
        assert list(failed.value.found) == ["t-1"]


async def test_producers_are_described_by_the_partitions_that_they_write_to(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap, api_timeout=FAR) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer() as producer:
            await producer.send("t", b"v", partition=0)
        async with client.producer(transactional_id="t-1") as producer:
            before = time.time() * 1000 - 1
            async with producer.transaction() as txn:
                await txn.send_many("t", [b"v"] * 3)
                await txn.send("t", b"v", partition=0)
                told = await client.describe_producers([T0])
                [plain, open_] = told[T0]
            assert (plain.last_sequence, plain.coordinator_epoch, plain.transaction_start) == (0, None, None)
            id_ = (await client.describe_transactions("t-1"))["t-1"].producer_id
            assert (open_.producer_id, open_.coordinator_epoch, open_.transaction_start is None) == (id_, None, False)
            assert before <= open_.last_timestamp <= time.time() * 1000
            [_, ended] = (await client.describe_producers([T0]))[T0]
            assert (ended.coordinator_epoch, ended.transaction_start) == (0, None)
        with loop.fail_after(HUNG), pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 2"):
            await client.describe_producers([("t", 2)])
        with pytest.raises(PartialFailure, match="u-0") as failed:
            await client.describe_producers([T1, ("u", 0)])
        assert list(failed.value.found) == [T1]
        with pytest.raises(ConfigurationError):
            await client.describe_producers("t")  # type: ignore[arg-type] # on purpose


async def test_ids_are_listed_by_state_by_producer_and_by_how_long_they_run(loop: Loop, ottla_broker: Broker) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(transactional_id="t-1") as one,
        client.producer(transactional_id="t-2") as two,
    ):
        await client.create_topic("t", partitions=2)
        async with one.transaction() as txn:
            await txn.send("t", b"v")
        async with two.transaction() as txn:
            await txn.send("t", b"v")
            first, second = await client.list_transactions()
            assert (first.transactional_id, first.state) == ("t-1", "CompleteCommit")
            assert (second.transactional_id, second.state) == ("t-2", "Ongoing")
            assert second.coordinator.id == (await client.leader("t", 0)).id
            assert await client.list_transactions(states=["ongoing"]) == (second,)
            assert await client.list_transactions(producer_ids=[first.producer_id, 4711]) == (first,)
            assert await client.list_transactions(running_longer=3600.0) == ()
            with pytest.raises(ConfigurationError, match="no transaction is open in state Empty"):
                await client.list_transactions(states=["Ongoing", "Empty"], running_longer=0.0)
            with loop.fail_after(HUNG):  # until a millisecond has passed
                while await client.list_transactions(running_longer=0.0) != (second,):
                    await loop.checkpoint()
        with pytest.raises(
            ConfigurationError, match="'ongoin' is not a known transaction state: do you mean 'Ongoing'"
        ):
            await client.list_transactions(states=["ongoin"])
        wrong: dict[str, Any]
        for wrong in ({"states": "Ongoing"}, {"producer_ids": ["t-1"]}, {"running_longer": -1.0}):
            with pytest.raises(ConfigurationError):
                await client.list_transactions(**wrong)


async def test_a_transaction_that_its_coordinator_has_lost_is_found_and_aborted(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer(transactional_id="t-1") as producer:
            async with producer.transaction() as txn:
                await txn.send("t", b"before", partition=0)
            with pytest.raises(InvalidProducerIdMapping):
                async with producer.transaction() as txn:
                    await txn.send("t", b"lost", partition=0)
                    await txn.send("t", b"lost", partition=1)
                    assert await client.find_hanging_transactions(max_transaction_timeout=0.0) == ()
                    lose(ottla_broker, "t-1")
        async with client.producer() as others:
            await others.send("t", b"behind", partition=0)
        assert await client.find_hanging_transactions() == (), "it is open for less than fifteen minutes"
        zero, one = await client.find_hanging_transactions(max_transaction_timeout=0.0)
        assert (zero.topic, zero.partition, zero.start_offset, zero.transactional_id) == ("t", 0, 2, None)
        assert (one.topic, one.partition, one.start_offset) == ("t", 1, 0)
        assert (zero.coordinator_epoch, one.coordinator_epoch) == (0, None)
        assert zero.reason == one.reason == "no coordinator knows its producer id"
        assert await client.find_hanging_transactions([T1], max_transaction_timeout=0.0) == (one,)
        assert await committed(client, "t") == [b"before"]
        await client.abort_hanging_transaction("t", 0, zero.start_offset)
        assert await committed(client, "t") == [b"before", b"behind"]
        assert await client.find_hanging_transactions(["t"], max_transaction_timeout=0.0) == (one,)
        await client.abort_hanging_transaction(
            "t", 1, producer_id=one.producer_id, producer_epoch=one.producer_epoch, coordinator_epoch=-1
        )
        assert await client.find_hanging_transactions(max_transaction_timeout=0.0) == ()


async def test_only_what_hangs_is_aborted_unless_that_is_forced(loop: Loop, ottla_broker: Broker) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap, api_timeout=FAR) as client,
        client.producer(transactional_id="t-1", transaction_timeout=42.0) as producer,
    ):
        await client.create_topic("t", partitions=2)
        async with producer.transaction() as txn:
            await txn.send("t", b"first", partition=0)
        async with producer.transaction() as txn:
            await txn.send("t", b"torn", partition=0)
            await txn.send("t", b"whole", partition=1)
            mine = r"the transaction in t-0 belongs to transactional id 't-1', Ongoing: .*node 1 .*, ends it 42 s after"
            with pytest.raises(LocalProtocolError, match=mine):
                await client.abort_hanging_transaction("t", 0, 2)
            with pytest.raises(LocalProtocolError, match=r"begins at offset 7 of t-0: open ones begin at 2 \(producer"):
                await client.abort_hanging_transaction("t", 0, 7, force=True)
            [state] = (await client.describe_producers([T0]))[T0]
            older: dict[str, Any] = {"producer_id": state.producer_id, "producer_epoch": state.producer_epoch - 1}
            with pytest.raises(InvalidProducerEpoch, match="check again"):
                await client.abort_hanging_transaction("t", 0, **older, coordinator_epoch=0, force=True)
            await client.abort_hanging_transaction("t", 0, 2, force=True)
        assert sorted(await committed(client, "t")) == [b"first", b"whole"]
        with pytest.raises(LocalProtocolError, match="of t-0: none is open there"):
            await client.abort_hanging_transaction("t", 0, 0)
        with loop.fail_after(HUNG), pytest.raises(UnknownTopicOrPartition):
            await client.abort_hanging_transaction("u", 0, 0)
        vague: list[dict[str, Any]] = [{}, {"producer_id": 1}, {"start_offset": 0, "producer_id": 1}]
        for given in vague:
            with pytest.raises(ConfigurationError, match="do not name one transaction"):
                await client.abort_hanging_transaction("t", 0, **given)
        with pytest.raises(ConfigurationError, match="producer_epoch must be from 0 to 32767, not -1"):
            await client.abort_hanging_transaction("t", 0, producer_id=1, producer_epoch=-1, coordinator_epoch=-1)


async def test_fenced_producers_write_no_more_and_their_transactions_are_aborted(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=1)
        with pytest.raises(ProducerFenced):
            async with client.producer(transactional_id="t-1") as producer, producer.transaction() as txn:
                await txn.send("t", b"fenced")
                before = (await client.describe_transactions("t-1"))["t-1"]
                fenced = await client.fence_producers("t-1", "t-2")
        assert fenced["t-1"].producer_id == before.producer_id
        assert fenced["t-1"].producer_epoch > before.producer_epoch and fenced["t-2"].producer_epoch == 0
        assert (await client.describe_transactions("t-1"))["t-1"].is_open is False
        async with client.producer(transactional_id="t-1") as producer, producer.transaction() as txn:
            await txn.send("t", b"next")
        assert await committed(client, "t") == [b"next"]


def test_in_code_that_blocks_it_is_the_same(ottla_broker: Broker) -> None:
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic("t", partitions=1)
        with client.producer(transactional_id="t-1") as producer, producer.transaction() as txn:
            txn.send("t", b"v")
            assert client.describe_transactions("t-1")["t-1"].partitions == (T0,)
            assert [each.state for each in client.list_transactions()] == ["Ongoing"]
            assert client.describe_producers([T0])[T0][0].transaction_start == 0
            assert client.find_hanging_transactions(max_transaction_timeout=0.0) == ()
