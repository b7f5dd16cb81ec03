"""Consume, transform, produce, over real sockets, against brokerlite and both protocol versions of Apache Kafka."""

import math
import uuid
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio

import ottla
import ottla.sdk.sync.consumer
import ottla.sdk.sync.producer
import ottla.sdk.transaction.transform
import ottla.sync
from ottla.brokerlite.machines.partitions.partition_log import Appended, PartitionLog
from ottla.codec.records import RecordBatch
from ottla.errors import (
    BufferFull,
    ConfigurationError,
    DeliveryTimeout,
    LocalProtocolError,
    MessageTooLarge,
    NotEnoughReplicas,
    OttlaError,
    ProducerFenced,
    TransactionAborted,
)
from ottla.sdk.drivers.trio import TrioDriver
from ottla.sdk.options import ClientOptions
from ottla.testing import Broker
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.sdk.contents import contents
from tests.sdk.loops import Loop, Trio


async def fill(client: ottla.Client, topic: str, values: Sequence[bytes], partitions: int = 3) -> None:
    await client.create_topic(topic, partitions=partitions, replication_factor=1)
    async with client.producer() as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % partitions)


async def committed(client: ottla.Client, topic: str) -> list[bytes]:
    """The values that readers of committed records see, sorted."""
    return sorted(value for values in (await contents(client, topic)).values() for value in values)


async def group_stands_at(client: ottla.Client, group: str, topic: str, partitions: int) -> list[int]:
    offsets = await client.committed(group, [(topic, each) for each in range(partitions)])
    return [offsets[topic, each].offset for each in range(partitions)]


VALUES = [b"%03d" % number for number in range(60)]


async def transform_it_all(loop: Loop, bootstrap: str, name: str) -> None:
    """By several transactions, of which the handler's errors abort some; commits and aborts alternate."""
    source, target, group = f"{name}-in", f"{name}-out", f"{name}-group"
    async with loop.connect(bootstrap) as client:
        await fill(client, source, VALUES)
        await client.create_topic(target, partitions=2)
        tried: Counter[bytes] = Counter()
        done = 0
        async with client.transform(
            source, group=group, transactional_id=f"{name}-1", max_records=7, session_timeout=HUNG
        ) as transform:
            async for batches in transform:
                assert len(batches) <= 7
                values = [record.value or b"" for record in batches]
                tried.update(values)
                try:
                    async with transform.transaction(batches) as txn:
                        for value in values:
                            await txn.send_soon(target, value.upper(), key=value)
                        if tried[values[0]] == 1:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    assert txn.committed is False
                    continue
                assert txn.committed
                done += len(values)
                if done == len(VALUES):
                    break
        assert await committed(client, target) == VALUES
        assert await group_stands_at(client, group, source, 3) == [20, 20, 20]
        assert max(tried.values()) > 1


async def test_what_is_made_of_each_record_is_there_once(loop: Loop, ottla_broker: Broker) -> None:
    await transform_it_all(loop, ottla_broker.bootstrap, "t")


@pytest.mark.slow
async def test_the_same_on_apache_kafka(loop: Loop, kafka: ApacheKafka) -> None:
    await transform_it_all(loop, kafka.bootstrap, f"t-{uuid.uuid4().hex}")


@pytest.mark.deep
async def test_the_same_on_older_brokers(old_kafka: ApacheKafka) -> None:
    if old_kafka.release.version >= "2.5":
        await transform_it_all(Trio(), old_kafka.bootstrap, "t")
        return
    async with ottla.connect(old_kafka.bootstrap) as client:
        await fill(client, "t-in", VALUES)
        with pytest.raises(OttlaError, match=r"Kafka (2\.5|0\.11)"):
            async with client.transform("t-in", group="g", transactional_id="t-1") as transform:
                async for batches in transform:
                    async with transform.transaction(batches):
                        pass


def test_in_code_that_blocks_it_is_the_same(ottla_broker: Broker) -> None:
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        for topic in ("in", "out"):
            client.create_topic(topic, partitions=1)
        with client.producer() as producer:
            producer.send_many("in", VALUES)
        with client.transform("in", group="g", transactional_id="t-1") as transform:
            for batches in transform:
                with transform.transaction(batches) as txn:
                    txn.send_many("out", [record.value for record in batches])
                if batches.batches[-1].next_offset == len(VALUES):
                    break
        with client.consumer("out", isolation="read_committed") as consumer:
            assert [record.value for record in consumer.poll(HUNG) or ()] == VALUES


# -- offsets in a transaction of one's own -----------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["nothing", "producer", "consumer"])
def test_a_transform_whose_opening_is_interrupted_leaves_no_member(
    opened: str, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BaseException):
        """Like Ctrl-C, but it may be raised in the client's own thread."""

    def interrupted(*_: object) -> None:
        raise Interrupted

    where = {
        "nothing": (ottla.sdk.sync.producer.Producer, "__enter__"),
        "producer": (ottla.sdk.sync.consumer.Consumer, "__enter__"),
        "consumer": (ottla.sdk.transaction.transform.TransformCore, "__init__"),
    }
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic("t", partitions=1)
        transform = client.transform("t", group="g", transactional_id="t-1")
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(*where[opened], interrupted)
            transform.__enter__()
        core = client._driver.core
        assert not core.members and not core.parts, "neither a consumer nor a producer is left"
        with client.transform("t", group="g", transactional_id="t-1") as another:
            assert another.poll(0.1) is None


async def test_offsets_go_with_the_transaction_or_not_at_all(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:3], partitions=1)
        await client.create_topic("out", partitions=1)
        async with (
            client.producer(transactional_id="t-1") as producer,
            client.consumer("in", group="g", max_records=1) as consumer,
        ):
            batch = await anext(consumer)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as txn:
                    txn.commit_offsets(batch)
                    await txn.send("out", b"aborted")
                    1 / 0  # noqa: B018 # raises
            assert await consumer.committed() == {("in", 0): None}
            async with producer.transaction() as txn:
                txn.commit_offsets(batch, await anext(consumer), metadata="by hand")
            [at] = (await consumer.committed()).values()
            assert at is not None and (at.offset, at.metadata) == (2, "by hand")
            await consumer.commit()  # the transaction has already committed all offsets
            [at] = (await consumer.committed()).values()
            assert at is not None and at.metadata == "by hand"
        async with client.consumer("in", group="g") as consumer:
            assert [record.value for record in await anext(consumer)] == VALUES[2:3]


async def test_what_sends_in_one_turn_of_the_loop_does_so_in_no_other(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES)
        await client.create_topic("out", partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1", max_records=1) as transform:
            before = None
            async for batches in transform:
                async with transform.transaction(batches) as txn:
                    await txn.send_soon("out", b"mine")
                    if before is not None:
                        for _ in range(10):  # once in a millisecond, a send takes the slow path
                            with pytest.raises(LocalProtocolError, match="this transaction is over"):
                                await before("out", b"late")
                        break
                    before = txn.send_soon


async def test_offsets_of_others_are_refused_at_the_call(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client, ottla.connect(ottla_broker.bootstrap) as another:
        await fill(client, "in", VALUES[:2], partitions=1)
        async with (
            client.producer(transactional_id="t-1") as producer,
            client.consumer("in") as alone,
            client.consumer("in", group="auto", auto_commit=5.0) as by_itself,
            another.consumer("in", group="another") as of_another,
        ):
            async with producer.transaction() as txn:
                for consumer, why in (
                    (alone, "without a group"),
                    (by_itself, "auto_commit"),
                    (of_another, "same client"),
                ):
                    batch = await anext(consumer)
                    with pytest.raises(LocalProtocolError, match=why):
                        txn.commit_offsets(batch)
            assert txn.committed
            with pytest.raises(LocalProtocolError, match="this transaction is over"):
                txn.commit_offsets(batch)


async def test_a_partition_that_was_lost_makes_the_commit_impossible(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:2], partitions=1)
        await client.create_topic("out", partitions=1)
        static = partial(client.consumer, "in", group="g", group_protocol="classic", instance_id="one")
        async with client.producer(transactional_id="t-1") as producer, static() as consumer:
            batch = await anext(consumer)
            with pytest.raises(TransactionAborted, match="offsets cannot be committed") as raised:
                async with producer.transaction() as txn:
                    await txn.send("out", b"of a batch that was lost")
                    async with static() as newer:  # replaces the member
                        await anext(newer)
                        txn.commit_offsets(batch)
            assert raised.value.partitions == {}
        assert await committed(client, "out") == []


# -- the loop ---------------------------------------------------------------------------------------------------------


async def test_batches_that_were_cancelled_come_again(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:6])
        await client.create_topic("out", partitions=1)
        seen: list[bytes] = []
        async with client.transform("in", group="g", transactional_id="t-1", max_wait=0.2) as transform:
            with loop.move_on_after(0.1) as scope:
                await anext(transform)  # still collects batches
            assert scope.cancelled_caught
            with loop.cancel_scope() as scope:
                async for batches in transform:
                    async with transform.transaction(batches) as txn:
                        await txn.send("out", b"cancelled")
                        scope.cancel()
                        await loop.sleep_forever()
            assert scope.cancelled_caught
            while len(seen) < 6:
                batches = await anext(transform)
                async with transform.transaction(batches) as txn:
                    for record in batches:
                        seen.append(record.value or b"")
                        await txn.send_soon("out", record.value)
        assert sorted(seen) == VALUES[:6]
        assert await committed(client, "out") == VALUES[:6]


async def test_what_is_not_part_of_a_transaction_is_not_passed_over_by_mistake(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:2], partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1", max_records=1) as transform:
            batches = await anext(transform)
            with pytest.raises(LocalProtocolError, match="were not part of a transaction"):
                await anext(transform)
            transaction = transform.transaction(batches)
            async with transaction:
                with pytest.raises(LocalProtocolError, match="a transaction is open"):
                    await anext(transform)
                with pytest.raises(LocalProtocolError, match="the loop returned last"):
                    transform.transaction(batches)
            with pytest.raises(LocalProtocolError, match="the loop returned last"):
                transform.transaction(batches)
            after = await anext(transform)
            assert [record.value for record in after] == VALUES[1:2]
            async with transform.transaction(after):
                pass
        assert await group_stands_at(client, "g", "in", 1) == [2]


async def test_an_error_that_does_not_pass_is_raised_at_once_and_one_of_the_users_too(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        await client.create_topic("out", partitions=1, configs={"max.message.bytes": "1000"})
        async with client.transform("in", group="g", transactional_id="t-1", buffer_memory=4000) as transform:
            with pytest.raises(TransactionAborted) as raised:
                async for batches in transform:
                    async with transform.transaction(batches) as txn:
                        await txn.send_soon("out", b"x" * 2000)
            assert isinstance(raised.value.cause, MessageTooLarge)
            with pytest.raises(BufferFull):
                async for batches in transform:
                    async with transform.transaction(batches) as txn:
                        while True:
                            txn.send_nowait("out", b"x" * 500)
            async for batches in transform:
                async with transform.transaction(batches) as txn:
                    await txn.send("out", b"small")
                break
        assert await committed(client, "out") == [b"small"]


def take_replicas_away(monkeypatch: pytest.MonkeyPatch, partition: str) -> None:
    """Let the broker refuse all writes to a partition, as if too few replicas were in sync."""
    original = PartitionLog.append

    def append(log: PartitionLog, batch: RecordBatch, timestamp: int, now: float) -> Appended:
        if log.name == partition:
            raise NotEnoughReplicas
        return original(log, batch, timestamp, now)

    monkeypatch.setattr(PartitionLog, "append", append)


async def test_an_error_that_may_pass_is_tried_again_and_raised_in_the_end(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_replicas_away(monkeypatch, "out-0")
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        await client.create_topic("out", partitions=1)
        tries = 0
        with pytest.raises(TransactionAborted, match="first cause: DeliveryTimeout") as raised:
            async with client.transform(
                "in", group="g", transactional_id="t-1", attempts=3, delivery_timeout=0.2
            ) as transform:
                async for batches in transform:
                    tries += 1
                    async with transform.transaction(batches) as txn:
                        await txn.send_soon("out", b"v")
                    assert txn.committed is False
        assert tries == 3 and any("failed 3 times" in note for note in raised.value.__notes__)


async def test_of_two_with_one_transactional_id_the_older_one_ends(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:2], partitions=1)
        await client.create_topic("out", partitions=1)
        with pytest.raises(ProducerFenced):
            async with client.transform("in", group="g", transactional_id="t-1", max_records=1) as transform:
                async for batches in transform:
                    newer = client.transform("in", group="g", transactional_id="t-1")
                    async with newer, transform.transaction(batches) as txn:
                        await txn.send("out", b"fenced")
        assert await committed(client, "out") == []


async def test_options_that_make_no_sense_are_refused(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        for wrong in (
            {"group": ""},
            {"transactional_id": ""},
            {"max_records": 0},
            {"max_bytes": 0},
            {"max_wait": -1.0},
            {"max_wait": math.nan},
            {"attempts": 0},
        ):
            with pytest.raises(ConfigurationError):
                client.transform("in", **{"group": "g", "transactional_id": "t", **wrong})  # type: ignore[arg-type]


# -- records that must not be skipped ----------------------------------------------------------------------------------


async def test_the_consumer_of_a_transform_is_read_and_commits_for_it_alone(ottla_broker: Broker) -> None:
    class Commits(ottla.RebalanceListener):
        refused: LocalProtocolError | None = None

        async def revoked(self, consumer: ottla.Consumer, places: Sequence[tuple[str, int]]) -> None:
            try:
                await consumer.commit()
            except LocalProtocolError as error:
                self.refused = error

    listener = Commits()
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:3], partitions=1)
        async with client.transform(
            "in", group="g", transactional_id="t-1", max_records=1, listener=listener
        ) as transform:
            batches = await anext(transform)
            [batch] = batches.batches
            for call in (batch.commit, transform.consumer.commit):
                with pytest.raises(LocalProtocolError, match="transactions of a transform commit its offsets"):
                    await call()
            for soon in (batch.commit_soon, transform.consumer.commit_soon):
                with pytest.raises(LocalProtocolError, match="transactions of a transform commit its offsets"):
                    soon()
            with pytest.raises(LocalProtocolError, match="a transform reads this consumer"):
                await transform.consumer.poll(1.0)
            async with transform.transaction(batches):
                pass
            assert [record.value for record in await anext(transform)] == VALUES[1:2]
        assert listener.refused is not None
        assert await group_stands_at(client, "g", "in", 1) == [1]


async def test_a_transaction_never_takes_its_group_back(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:2], partitions=1)
        async with (
            client.producer(transactional_id="t-1") as producer,
            client.consumer("in", group="g", max_records=1) as consumer,
        ):
            older, newer = await anext(consumer), await anext(consumer)
            async with producer.transaction() as txn:
                txn.commit_offsets(newer)
            with pytest.raises(LocalProtocolError, match="a commit of 2 was requested already: seek first"):
                async with producer.transaction() as txn:
                    txn.commit_offsets(older)
        assert await group_stands_at(client, "g", "in", 1) == [2]


async def test_an_error_that_a_nursery_wraps_is_what_it_is(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_replicas_away(monkeypatch, "out-0")
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        await client.create_topic("out", partitions=1)
        tries = 0
        with pytest.raises(DeliveryTimeout):
            async with client.transform(
                "in", group="g", transactional_id="t-1", attempts=2, delivery_timeout=0.2
            ) as transform:
                async for batches in transform:
                    tries += 1
                    async with transform.transaction(batches) as txn:
                        if tries == 1:
                            async with trio.open_nursery() as nursery:
                                nursery.start_soon(lambda: txn.send("out", b"v"))
                        await txn.send("out", b"v")
        assert tries == 2


async def test_a_client_that_replaces_consumer_and_producer_sees_those_of_a_transform(ottla_broker: Broker) -> None:
    seen: list[object] = []

    class Traced(ottla.Client):
        def consumer(self, *topics: str, **options: Any) -> ottla.Consumer:
            seen.append((topics, options["group"], options["max_poll_interval"]))
            return super().consumer(*topics, **options)

        def producer(self, **options: Any) -> ottla.Producer[Any, Any]:
            seen.append((options["transactional_id"], options["linger"]))
            return super().producer(**options)

    async with Traced(ClientOptions(bootstrap=ottla_broker.bootstrap), TrioDriver) as client:
        client.transform("in", group="g", transactional_id="t-1", max_poll_interval=60.0, linger=0.25)
    assert seen == [(("in",), "g", 60.0), ("t-1", 0.25)]


async def test_polls_of_a_transform_return_what_there_is_or_nothing_in_time(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1") as transform:
            batches = None
            while batches is None:
                batches = await transform.poll(1.0)
            async with transform.transaction(batches):
                pass
            assert await transform.poll(0.1) is None


async def test_what_is_no_batch_is_refused_by_name(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES[:1], partitions=1)
        async with client.transform("in", group="g", transactional_id="t-1") as transform:
            batches = await anext(transform)
            with pytest.raises(LocalProtocolError, match="the batches from the loop, not <Batch "):
                transform.transaction(batches.batches[0])  # type: ignore[arg-type] # on purpose
            async with transform.transaction(batches) as txn:
                with pytest.raises(LocalProtocolError, match="takes batches of a consumer"):
                    txn.commit_offsets([batches.batches[0]])  # type: ignore[arg-type]
        async with client.producer(transactional_id="t-2") as producer:
            with pytest.raises(LocalProtocolError, match="has not begun"):
                await producer.transaction().send("out", b"v")
