"""Administration of transactions over real sockets: against brokerlite."""

import time

import pytest

from ottla.errors import ConfigurationError, PartialFailure, TransactionalIdNotFound, UnknownTopicOrPartition
from ottla.testing import Broker
from tests.sdk.loops import Loop

T0, T1 = ("t", 0), ("t", 1)


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
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer() as producer:
            await producer.send("t", b"v", partition=0)
        async with client.producer(transactional_id="t-1") as producer:
            async with producer.transaction() as txn:
                await txn.send_many("t", [b"v"] * 3)
                await txn.send("t", b"v", partition=0)
                told = await client.describe_producers([T0])
                [plain, open_] = told[T0]
            assert (plain.last_sequence, plain.coordinator_epoch, plain.transaction_start) == (0, None, None)
            id_ = (await client.describe_transactions("t-1"))["t-1"].producer_id
            assert (open_.producer_id, open_.coordinator_epoch, open_.transaction_start is None) == (id_, None, False)
            assert 0 <= time.time() * 1000 - open_.last_timestamp < 60_000
            [_, ended] = (await client.describe_producers([T0]))[T0]
            assert (ended.coordinator_epoch, ended.transaction_start) == (0, None)
        with loop.fail_after(3), pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 2"):
            await client.describe_producers([("t", 2)])
        with pytest.raises(PartialFailure, match="u-0") as failed:
            await client.describe_producers([T1, ("u", 0)])
        assert list(failed.value.found) == [T1]
        with pytest.raises(ConfigurationError):
            await client.describe_producers("t")  # type: ignore[arg-type] # on purpose
