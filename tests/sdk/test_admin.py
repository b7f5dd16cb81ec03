"""Administrative calls over real sockets against brokerlite, and the plans of `reset_offsets`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest

from ottla import AclBinding, Plain
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.errors import (
    ConfigurationError,
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    LocalProtocolError,
    NonEmptyGroup,
    PartialFailure,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.sdk.admin import ListedOffset, ResetPlan, offsets_from_csv
from ottla.sdk.client import Client
from ottla.testing import Broker
from tests.patience import FAR, HUNG
from tests.sdk.loops import Loop

T0, T1 = ("t", 0), ("t", 1)
NOON = datetime(2013, 7, 4, 12, tzinfo=UTC)


async def fill(client: Client, count: int = 10) -> None:
    """``count`` records in each of two partitions, a minute apart, the first at noon."""
    await client.create_topic("t", partitions=2)
    async with client.producer() as producer:
        for number in range(count):
            stamp = int((NOON + timedelta(minutes=number)).timestamp() * 1000)
            for partition in range(2):
                await producer.send_soon("t", b"%d" % number, partition=partition, timestamp=stamp)


def planned(plan: ResetPlan) -> dict[tuple[str, int], tuple[int | None, int]]:
    return {(each.topic, each.partition): (each.old, each.new) for each in plan.offsets}


async def test_offsets_are_reset_in_every_way_and_only_when_told_to(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client)
        plan = await client.reset_offsets("g", {T0: 4}, execute=True)
        assert plan.executed and plan.new_group and planned(plan) == {T0: (None, 4)}
        assert not (await client.reset_offsets("g", "end")).new_group
        assert {place: each.offset for place, each in (await client.committed("g")).items()} == {T0: 4}

        async def new(to: object = None, **more: object) -> Mapping[tuple[str, int], int]:
            found = await client.reset_offsets("g", to, **more)  # type: ignore[arg-type] # part of the test
            return {place: offset for place, (_, offset) in planned(found).items()}

        assert await new("beginning") == {T0: 0}
        assert await new("end") == {T0: 10}
        assert await new("end", topics=["t"]) == {T0: 10, T1: 10}
        assert await new(7, topics=[T1]) == {T1: 7}
        assert await new(NOON + timedelta(minutes=2, seconds=1), topics=["t"]) == {T0: 3, T1: 3}
        assert await new(datetime.now(UTC) - NOON - timedelta(minutes=5, seconds=-30)) == {T0: 5}
        assert await new("current", topics=["t"]) == {T0: 4, T1: 10}
        assert await new(shift_by=3) == {T0: 7}
        assert await new(shift_by=-3) == {T0: 1}
        assert await new({T0: 2, T1: 3}) == {T0: 2, T1: 3}
        # None of these plans was executed.
        assert {place: each.offset for place, each in (await client.committed("g")).items()} == {T0: 4}


async def test_a_topic_is_described_without_the_right_to_its_configuration(loop: Loop, tmp_path: Path) -> None:
    config = BrokerConfig(port=0, data=tmp_path, sync=Sync.NEVER, acls=True, super_users=("User:admin",))
    with Broker(config, users={"admin": "a", "billing": "b"}) as broker:
        async with loop.connect(broker.bootstrap, sasl=Plain("admin", "a")) as admin:
            await admin.create_topic("orders", configs={"retention.ms": "5"})
            await admin.create_acls([AclBinding("User:billing", "Read", "Topic", "orders")])
            assert (await admin.describe_topic("orders")).configs == {"retention.ms": "5"}
        async with loop.connect(broker.bootstrap, sasl=Plain("billing", "b")) as client:
            topic = await client.describe_topic("orders")
            assert topic.configs is None and len(topic.partitions) == 1
            with pytest.raises(TopicAuthorizationFailed, match="topic 'secret'"):
                await client.describe_topic("secret")


async def test_offsets_outside_the_log_become_its_nearer_end_and_are_noted(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client)
        [beyond] = (await client.reset_offsets("g", 99, topics=[T0])).offsets
        assert (beyond.new, beyond.note) == (10, "99 is after the end: the end")
        await client.reset_offsets("g", {T0: 4}, execute=True)
        [before] = (await client.reset_offsets("g", shift_by=-9)).offsets
        assert (before.new, before.note) == (0, "-5 is before the beginning: the beginning")
        [young] = (await client.reset_offsets("g", timedelta(hours=1))).offsets
        assert (young.new, young.note) == (10, "no record is that recent: the end")


async def test_what_cannot_be_reset_is_said(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap, api_timeout=FAR) as client:
        await fill(client)
        with pytest.raises(UnknownTopicOrPartition, match="'u'"):
            await client.reset_offsets("g", "end", topics=["u"])
        with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 2"):
            await client.reset_offsets("g", "end", topics=[("t", 2)])
        with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 9"):
            await client.reset_offsets("g", shift_by=-10, topics=[("t", 9)])
        with loop.fail_after(HUNG), pytest.raises(UnknownTopicOrPartition, match="'u'"):
            await client.reset_offsets("g", {("u", 0): 1})
        with pytest.raises(LocalProtocolError, match="t-0 cannot be shifted: it has no committed offset"):
            await client.reset_offsets("g", shift_by=1, topics=["t"])
        with pytest.raises(ConfigurationError, match="give either the place"):
            await client.reset_offsets("g", "end", shift_by=1)
        with pytest.raises(ConfigurationError, match="leave out `topics`"):
            await client.reset_offsets("g", {T0: 1}, topics=["t"])
        assert (await client.reset_offsets("g", "end")).offsets == ()


@pytest.mark.parametrize(("kind", "protocol"), [("classic", "range"), ("consumer", "uniform")])
async def test_a_group_is_listed_described_followed_and_deleted(
    loop: Loop, ottla_broker: Broker, kind: Literal["classic", "consumer"], protocol: str
) -> None:
    async with loop.connect(ottla_broker.bootstrap, client_id="reader") as client:
        await fill(client)
        async with client.consumer("t", group="g", group_protocol=kind) as consumer:
            with loop.fail_after(HUNG):
                batch = await anext(consumer)
                await batch.commit()
            described = await client.describe_group("g")
            assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", protocol)
            [member] = described.members
            assert (member.client_id, member.host) == ("reader", "127.0.0.1")
            assert member.assignment == (T0, T1)
            lag = await client.group_lag("g")
            assert {(each.topic, each.partition): each.member for each in lag.partitions} == {T0: member, T1: member}
            committed = {(each.topic, each.partition): each.lag for each in lag.partitions}
            assert committed[batch.topic, batch.partition] == 0 and lag.total == 0
            with pytest.raises(NonEmptyGroup, match=member.member_id):
                await client.reset_offsets("g", "end", execute=True)
            with pytest.raises(NonEmptyGroup, match=member.member_id):
                await client.delete_group("g")
        [listed] = await client.list_groups(states=["empty"])
        assert (listed.group, listed.type) == ("g", kind)
        await client.delete_offsets("g", [(batch.topic, batch.partition)])
        assert await client.committed("g") == {}
        with pytest.raises(PartialFailure, match="nobody") as failed:
            await client.delete_groups(["g", "nobody"])
        assert list(failed.value.failures) == ["nobody"]
        assert await client.list_groups() == ()
        with pytest.raises(GroupIdNotFound):
            await client.group_lag("g")


async def test_records_are_found_with_their_timestamps(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client)
        at = NOON + timedelta(minutes=3)
        stamp = int(at.timestamp() * 1000)
        found = await client.list_offsets({T0: at, T1: "end"})
        assert (found[T0].offset, found[T0].timestamp, found[T1].offset, found[T1].timestamp) == (3, stamp, 10, -1)
        largest = (await client.list_offsets({T0: "max_timestamp"}))[T0]
        assert largest[:2] == ListedOffset(9, stamp + 6 * 60_000)[:2]
        young = await client.list_offsets({T0: NOON + timedelta(days=1)})
        assert young[T0].offset == -1


async def test_topics_grow_and_never_shrink(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client)
        assert [each.partition for each in (await client.create_partitions("t", 4)).partitions] == [0, 1, 2, 3]
        assert len((await client.describe_topic("t")).partitions) == 4
        for total in (4, 3):
            with pytest.raises(InvalidPartitions):
                await client.create_partitions("t", total)
        with pytest.raises(UnknownTopicOrPartition):
            await client.create_partitions("u", 2)


async def test_single_configurations_of_a_topic_change(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", configs={"retention.ms": "5", "segment.ms": "7"})
        await client.configure_topic("t", {"retention.ms": None, "max.message.bytes": "100"})
        assert (await client.describe_topic("t")).configs == {"segment.ms": "7", "max.message.bytes": "100"}
        with pytest.raises(InvalidConfig, match=r"retention\.ms is 'long', which is not a number"):
            await client.configure_topic("t", {"segment.ms": "8", "retention.ms": "long"})
        assert (await client.describe_topic("t")).configs == {"segment.ms": "7", "max.message.bytes": "100"}
        with pytest.raises(InvalidConfig, match=r"'segment\.mss' is not a topic's .*: do you mean segment\.ms\?"):
            await client.configure_topic("t", {"segment.ms": "8", "segment.mss": None})
        assert (await client.describe_topic("t")).configs == {"segment.ms": "7", "max.message.bytes": "100"}
        for change in ("5", None):
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'u': check its name"):
                await client.configure_topic("u", {"retention.ms": change})


async def test_an_unknown_topic_is_described_as_unknown_at_once(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap, api_timeout=FAR) as client:
        with loop.fail_after(HUNG), pytest.raises(UnknownTopicOrPartition, match="'u'"):
            await client.describe_topic("u")


def test_a_plan_is_read_back_as_kafkas_tool_writes_it() -> None:
    assert offsets_from_csv("t,0,5\nu,1,7\n", "g") == {("t", 0): 5, ("u", 1): 7}
    assert offsets_from_csv('g,"t",0,5\r\nh,t,1,6\r\n\r\n', "g") == {("t", 0): 5}
    too_large = (f"t,{2**31},0", f"t,0,{2**63}", "t,0," + "9" * 5000)
    for line in ("t,0", "t,0,x", "t,-1,5", ",0,5", "g,t,0,5,6", *too_large, "topic,partition,offset"):
        with pytest.raises(ConfigurationError, match="line 2"):
            offsets_from_csv(f"t,0,5\n{line}\n", "g")


async def test_the_brokers_of_a_cluster_are_listed(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        [broker] = await client.brokers()
        host, _, port = ottla_broker.bootstrap.rpartition(":")
        assert (broker.host, broker.port, broker.rack, broker.is_controller) == (host, int(port), None, True)
        await client.create_topic("t")
        assert broker.id == (await client.leader("t", 0)).id


async def test_the_last_offset_before_a_time_is_found(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client)
        await client.create_topic("empty")

        async def before(when: datetime | timedelta) -> int:
            return (await client.offsets_before({T0: when}))[T0]

        assert await before(NOON) == await before(datetime(1969, 1, 1, tzinfo=UTC)) == -1
        assert await before(NOON + timedelta(seconds=1)) == 0
        assert await before(NOON + timedelta(minutes=5)) == 4
        assert await before(NOON + timedelta(days=1)) == await before(timedelta(0)) == 9
        assert await client.offsets_before({("empty", 0): NOON, T1: NOON + timedelta(minutes=1)}) == {
            ("empty", 0): -1,
            T1: 0,
        }
        for wrong in ("end", 5, None):
            with pytest.raises(ConfigurationError, match="is not a time"):
                await before(wrong)  # type: ignore[arg-type] # on purpose
        with pytest.raises(UnknownTopicOrPartition):
            await client.offsets_before({("t", 7): NOON})


async def test_timestamps_that_do_not_ascend_have_older_ones_before_that_offset(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=1)
        async with client.producer() as producer:
            for stamp in (1000, 3000, 2000, 5000, 4000):
                await producer.send("t", b"x", partition=0, timestamp=stamp)
        when = datetime.fromtimestamp(3.0, UTC)
        assert await client.offsets_before({T0: when}) == {T0: 0}, "record 2 is older, but follows a newer one"


async def test_several_partitions_are_fetched_in_one_call(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await fill(client, 3)
        found = await client.fetch_many({T0: 1, T1: 2})
        assert {place: [each.value for each in some] for place, some in found.items()} == {T0: [b"1", b"2"], T1: [b"2"]}
        with pytest.raises(PartialFailure, match="t-1: OFFSET_OUT_OF_RANGE") as failed:
            await client.fetch_many({T0: 0, T1: 99})
        assert list(failed.value.found) == [T0] and list(failed.value.failures) == ["t-1"]
        with pytest.raises(ConfigurationError, match="offset of 0 or more"):
            await client.fetch_many({T0: -1})
        with pytest.raises(ConfigurationError, match="wait shorter"):
            await client.fetch_many({T0: 0}, wait=1000.0)
        assert await client.fetch_many({}) == {}
