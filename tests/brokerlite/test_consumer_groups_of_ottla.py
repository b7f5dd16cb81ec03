"""Our own client in consumer groups (KIP-848) of brokerlite: transforms, and topics by pattern."""

import pytest
import trio

import ottla
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.errors import InvalidRegularExpression
from ottla.sdk.consume.assignment import subscription
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.patience import HUNG
from tests.sdk.test_transforms import VALUES, committed, fill, group_stands_at


async def read(consumer: ottla.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    with trio.fail_after(HUNG):
        while len(found) < count:
            found += [record.value or b"" for record in await anext(consumer)]
    return sorted(found)


def patterns(broker: Broker, group: str) -> set[str]:
    """The patterns of the group that the broker matches."""
    found: set[str] = broker._call(lambda running: set(running._core.consumer_groups.by_id[group].patterns))
    return found


async def remove_the_member(client: ottla.Client, broker: Broker) -> None:
    """Let the only member of the group ``g`` leave, which it does not learn."""
    (member,) = (await client.describe_group("g")).members
    with Peer(broker.port) as peer:
        leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=-1)
        assert peer.ask(leaving, 1).error_code == 0


# -- transforms


async def test_the_offsets_of_a_transform_are_committed_to_a_consumer_group(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES)
        await client.create_topic("out", partitions=1)
        async with client.transform(
            "in", group="g", transactional_id="t-1", group_protocol="consumer", max_records=7
        ) as transform:
            done = 0
            with trio.fail_after(HUNG):
                async for batches in transform:
                    async with transform.transaction(batches) as transaction:
                        await transaction.send_many("out", [record.value for record in batches])
                    done += len(batches)
                    if done == len(VALUES):
                        break
            described = await client.describe_group("g")
        assert (described.type, described.state, len(described.members)) == ("consumer", "Stable", 1)
        assert await group_stands_at(client, "g", "in", 3) == [20, 20, 20]
        assert await committed(client, "out") == VALUES


async def test_two_transforms_share_the_partitions_and_each_result_is_there_once(ottla_broker: Broker) -> None:
    async def run(number: int) -> None:
        async with (
            ottla.connect(ottla_broker.bootstrap) as client,
            client.transform(
                "in", group="g", transactional_id=f"t-{number}", group_protocol="consumer", max_records=5
            ) as transform,
        ):
            async for batches in transform:
                async with transform.transaction(batches) as transaction:
                    await transaction.send_many("out", [b"%d " % number + (record.value or b"") for record in batches])

    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES)
        await client.create_topic("out", partitions=1)

        async def commits(count: int) -> None:
            places = [("in", partition) for partition in range(3)]
            while sum(each.offset for each in (await client.committed("g", places)).values()) < count:
                await trio.sleep(0.01)

        async def shared() -> None:
            while sorted(len(each.assignment) for each in (await client.describe_group("g")).members) != [1, 2]:
                await trio.sleep(0.01)

        with trio.fail_after(HUNG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, 1)
                await commits(60)
                nursery.start_soon(run, 2)  # the epoch of the first member rises
                await shared()
                async with client.producer() as producer:
                    for number in range(60, 120):
                        await producer.send("in", b"%03d" % number, partition=number % 3)
                await commits(120)
                nursery.cancel_scope.cancel()
        results = [value.split() for value in await committed(client, "out")]
    assert sorted(value for _, value in results) == [b"%03d" % number for number in range(120)]
    assert {number for number, _ in results} == {b"1", b"2"}


async def test_a_transform_whose_member_was_removed_commits_nothing_and_gets_its_records_again(
    ottla_broker: Broker,
) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "in", VALUES, 1)
        await client.create_topic("out", partitions=1)
        outcomes: list[tuple[bytes | None, bool | None]] = []
        async with client.transform(
            "in", group="g", transactional_id="t-1", group_protocol="consumer", max_records=20
        ) as transform:
            with trio.fail_after(HUNG):
                async for batches in transform:
                    values = [record.value for record in batches]
                    async with transform.transaction(batches) as transaction:
                        await transaction.send_many("out", values)
                        if len(outcomes) == 1:
                            await remove_the_member(client, ottla_broker)
                    outcomes.append((values[0], transaction.committed))
                    if outcomes[-1] == (b"040", True):
                        break
        assert outcomes == [(b"000", True), (b"020", False), (b"020", True), (b"040", True)]
        assert await group_stands_at(client, "g", "in", 1) == [60]
        assert await committed(client, "out") == VALUES


# -- patterns


async def test_a_pattern_of_the_broker_finds_topics_that_come_later(ottla_broker: Broker) -> None:
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "orders-a", VALUES)
        await fill(client, "payments", [b"other"])
        async with client.consumer(pattern_re2="orders-.*", group="g", group_protocol="consumer") as consumer:
            assert await read(consumer, 60) == VALUES
            await fill(client, "orders-b", [b"later"], 1)
            assert await read(consumer, 1) == [b"later"]
            assert {topic for topic, _ in consumer.assignment} == {"orders-a", "orders-b"}
            assert patterns(ottla_broker, "g") == {"orders-.*"}


async def test_an_invalid_pattern_of_the_broker_is_an_error_by_name(ottla_broker: Broker) -> None:
    async with (
        ottla.connect(ottla_broker.bootstrap) as client,
        client.consumer(pattern_re2="orders-(", group="g", group_protocol="consumer") as consumer,
    ):
        with trio.fail_after(HUNG), pytest.raises(InvalidRegularExpression, match=r"orders-\("):
            await anext(consumer)


async def test_a_pattern_of_the_client_finds_topics_that_come_later_in_a_consumer_group(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PATTERN_AGE", 0.05)
    async with ottla.connect(ottla_broker.bootstrap) as client:
        await fill(client, "orders-a", VALUES)
        await fill(client, "orders-test", [b"other"])
        # RE2 has no lookahead: only the client can match this.
        async with client.consumer(pattern="orders-(?!test).*", group="g", group_protocol="consumer") as consumer:
            assert await read(consumer, 60) == VALUES
            await fill(client, "orders-b", [b"later"], 1)
            assert await read(consumer, 1) == [b"later"]
            assert {topic for topic, _ in consumer.assignment} == {"orders-a", "orders-b"}
            assert patterns(ottla_broker, "g") == set()
            assert (await client.describe_group("g")).type == "consumer"
