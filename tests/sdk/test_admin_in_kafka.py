"""Plans, lags and members, compared with Apache Kafka's own kafka-consumer-groups."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla
from ottla.errors import GroupIdNotFound
from ottla.sdk.admin import GroupMember, ResetPlan, offsets_from_csv
from ottla.sdk.client import Client
from tests.kafka import ApacheKafka
from tests.patience import HUNG

pytestmark = pytest.mark.slow

NOON = datetime(2013, 7, 4, 12, tzinfo=UTC)
TOPIC, GROUP = "admin.flights", "admin.billing"


async def tool(kafka: ApacheKafka, *arguments: str | Path) -> str:
    """The output of kafka-consumer-groups."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    everything = ("--bootstrap-server", kafka.bootstrap, "--group", GROUP, "--timeout", "30000", *arguments)
    return await trio.to_thread.run_sync(lambda: kafka.run(main, *everything, timeout=HUNG))


async def theirs(kafka: ApacheKafka, *arguments: str | Path) -> dict[tuple[str, int], int]:
    """The plan that kafka-consumer-groups prints; its other lines are warnings."""
    said = await tool(kafka, "--reset-offsets", "--export", *arguments)
    lines = [line for line in said.splitlines() if line.count(",") == 2 and line.startswith((TOPIC, f'"{TOPIC}'))]
    return offsets_from_csv("\n".join(lines), GROUP)


def ours(plan: ResetPlan) -> dict[tuple[str, int], int]:
    return offsets_from_csv(plan.to_csv(), GROUP)


async def fill(client: Client) -> None:
    """Ten records in two of three partitions, a minute apart; the group has read some of both."""
    await client.create_topic(TOPIC, partitions=3, configs={"message.timestamp.before.max.ms": str(2**62)})
    async with client.producer() as producer:
        for number in range(10):
            stamp = int((NOON + timedelta(minutes=number)).timestamp() * 1000)
            for partition in range(2):
                await producer.send_soon(TOPIC, b"x", partition=partition, timestamp=stamp)
    await client.reset_offsets(GROUP, {(TOPIC, 0): 4, (TOPIC, 1): 9}, execute=True)


def text(number: int | None) -> str:
    return "-" if number is None else str(number)


def reader(member: GroupMember | None) -> list[str]:
    """A member as the tool prints it: its id, host and client."""
    return [member.member_id, f"/{member.host}", member.client_id] if member else ["-", "-", "-"]


async def test_every_way_to_reset_plans_what_kafkas_tool_plans(kafka: ApacheKafka, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    async with ottla.connect(kafka.bootstrap) as client:
        await fill(client)

        async def same(plan: ResetPlan, *arguments: str | Path) -> None:
            found = ours(plan)
            assert found and found == await theirs(kafka, *arguments), arguments

        async def reset(*to: Any, **more: Any) -> ResetPlan:
            return await client.reset_offsets(GROUP, *to, **more)

        every, some = ("--topic", TOPIC), ("--topic", f"{TOPIC}:0,2")
        at = NOON + timedelta(minutes=3, seconds=1)
        await same(await reset("beginning", topics=[TOPIC]), "--to-earliest", *every)
        await same(await reset("end"), "--to-latest", "--all-topics")
        await same(await reset(7, topics=[(TOPIC, 0), (TOPIC, 2)]), "--to-offset", "7", *some)
        await same(await reset(at, topics=[TOPIC]), "--to-datetime", f"{at:%Y-%m-%dT%H:%M:%S.000}", *every)
        await same(await reset(shift_by=-5), "--shift-by", "-5", "--all-topics")
        await same(await reset("current", topics=[TOPIC]), "--to-current", *every)
        await same(await reset(timedelta(hours=1), topics=[TOPIC]), "--by-duration", "PT1H", *every)
        exact = await client.reset_offsets(GROUP, {(TOPIC, 0): 3, (TOPIC, 1): 99})
        plan.write_text(f"{TOPIC},0,3\n{TOPIC},1,99\n")
        await same(exact, "--from-file", plan)

        # Each of the two executes a plan, and the other sees the result.
        plan.write_text(exact.to_csv())
        await tool(kafka, "--reset-offsets", "--execute", "--from-file", plan)
        assert {place: each.offset for place, each in (await client.committed(GROUP)).items()} == ours(exact)


async def test_a_group_is_described_as_kafkas_tool_does(kafka: ApacheKafka) -> None:
    async with ottla.connect(kafka.bootstrap, client_id="reader") as client:
        if TOPIC not in await client.list_topics():
            await fill(client)
        async with client.consumer(TOPIC, group=GROUP, instance_id="first", start="end") as consumer:
            await client.reset_offsets(f"{GROUP}.other", "end", topics=[TOPIC], execute=True)
            with trio.fail_after(HUNG):
                while len(consumer.assignment) < 3:
                    with trio.move_on_after(0.2):
                        await anext(consumer)
            await consumer.seek({(TOPIC, 0): 2, (TOPIC, 1): 5})
            await consumer.commit()
            lag = await client.group_lag(GROUP)
            described = await tool(kafka, "--describe")
            states = await tool(kafka, "--describe", "--state")
        rows = [line.split() for line in described.splitlines() if line.startswith(GROUP)]
        mine = [
            [GROUP, each.topic, *map(text, (each.partition, each.committed, each.end, each.lag)), *reader(each.member)]
            for each in lag.partitions
        ]
        assert sorted(rows, key=lambda row: row[2]) == mine
        group, node = lag.group, lag.group.coordinator
        assert f"{node.host}:{node.port}" in states
        assert [group.protocol, group.state, str(len(group.members))] == states.splitlines()[-1].split()[-3:]
        assert [each.instance_id for each in group.members] == ["first"]
        assert {each.group for each in await client.list_groups()} >= {GROUP, f"{GROUP}.other"}


@pytest.mark.deep
async def test_a_group_that_kafka_does_not_know_is_an_error_with_its_words(kafka: ApacheKafka) -> None:
    async with ottla.connect(kafka.bootstrap) as client:
        with pytest.raises(GroupIdNotFound, match=r"Group admin\.nobody not found"):
            await client.describe_group("admin.nobody")
