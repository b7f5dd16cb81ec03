"""The group protocol of KIP-848 on Apache Kafka: ottla alone, with Java and librdkafka, and migrations."""

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

import ottla
from ottla.errors import UnreleasedInstanceId, UnsupportedAssignor
from tests import kafka
from tests.interop.coordinator_logs import CONSUMER_OFFSETS, check_commits, check_owners, stored
from tests.interop.groups import PARTITIONS, Group
from tests.interop.lines import Message
from tests.interop.members import CHOOSING, CONSUMER_PROTOCOL, MEMBERS, OURS, MemberClient
from tests.interop.members import until as await_records
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.transfers import until as await_ends
from tests.kafka import ApacheKafka
from tests.patience import FAR, HUNG
from tests.serving import until

pytestmark = pytest.mark.slow

JAVA, OTHER = MEMBERS["java"], MEMBERS["librdkafka"]
MODERN, MODERN_JAVA, MODERN_OTHER, FRANZ = (
    CONSUMER_PROTOCOL[name] for name in ("ottla", "java", "librdkafka", "franz-go")
)
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "15000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
"""Kafka's defaults are 45 and 5 seconds."""


@pytest.fixture(scope="module")
def modern_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    if bootstrap := os.environ.get("OTTLA_TEST_KAFKA"):
        yield ApacheKafka(bootstrap)
        return
    running = kafka.start(tmp_path_factory.mktemp("modern"), 1, SETTINGS)
    try:
        yield running
    finally:
        running.stop()


def test_members_of_ottla_share_a_topic_while_others_come_leave_and_die(modern_kafka: ApacheKafka) -> None:
    with Group(modern_kafka.bootstrap) as group:
        with group.flow():
            first, second, third = group.join(MODERN, MODERN, MODERN)
            second.kill()
            group.await_shared()
            third.leave()
            group.await_shared()
            group.join(MODERN)
        group.leave()
        assert group.committed == group.sent and first.records
        assert group.repeated_only_after(second)


@pytest.mark.parametrize(
    "clients",
    [
        pytest.param((MODERN, MODERN_JAVA, MODERN_OTHER, FRANZ), id="first"),
        pytest.param((MODERN_JAVA, MODERN_OTHER, FRANZ, MODERN), id="last", marks=pytest.mark.deep),
    ],
)
def test_java_librdkafka_franz_go_and_ottla_are_members_of_one_group(
    modern_kafka: ApacheKafka, clients: tuple[MemberClient, ...]
) -> None:
    with Group(modern_kafka.bootstrap) as group:
        with group.flow():
            members = group.join(*clients)
            before = members[0].partitions
            members[1].kill()
            group.await_shared()
            assert members[0].partitions >= before, "it gave nothing up"
            members[0].leave()
            group.await_shared()
            group.join(clients[0])
        group.leave()
        assert group.committed == group.sent
        assert all(member.records for member in group.members)


@pytest.mark.deep
def test_after_a_restart_of_the_broker_each_partition_has_one_owner_and_no_commit_goes_backwards(
    tmp_path: Path,
) -> None:
    """Apache Kafka's own log tells: a member of each client has confirmed each change."""
    running = kafka.start(tmp_path, 1, SETTINGS | {"offsets.topic.num.partitions": "1"})
    try:
        with Group(running.bootstrap) as group:
            with group.flow():
                members = group.join(MODERN, MODERN_JAVA, MODERN_OTHER, FRANZ)
                running.kill()
                running.revive()
                first = group.sent
                await_records(lambda: all(int(m.records[-1].value or b"") >= first for m in members), members)
                group.await_shared()
                members[1].kill()
                group.await_shared()
                members[3].leave()
                group.await_shared()
                group.join(FRANZ)
            group.leave()
            assert group.committed == group.sent
        running.kill()
        records = stored(running.data() / "__consumer_offsets-0", CONSUMER_OFFSETS)
        assert check_owners(records, group.name) >= PARTITIONS
        assert sum(check_commits(records, group.name).values()) == group.sent
    finally:
        running.stop()


@pytest.mark.parametrize("assignor", [pytest.param("range", marks=pytest.mark.deep), "cooperative-sticky"])
def test_a_group_migrates_to_the_new_protocol_and_back_member_by_member(
    modern_kafka: ApacheKafka, assignor: str
) -> None:
    with Group(modern_kafka.bootstrap, assignor) as group:
        with group.flow():
            members = group.join(OURS, OURS)
            for turn in (MODERN, OURS):
                members = [group.replace(each, turn) for each in members]
        group.leave()
        assert group.committed == group.sent
        assert all(times == 1 for times in group.seen.values()), "every member left in order, with all commits"


def test_a_group_of_three_clients_migrates_with_mixed_members(modern_kafka: ApacheKafka) -> None:
    with Group(modern_kafka.bootstrap) as group:
        with group.flow():
            ours, java, other = group.join(OURS, JAVA, OTHER)
            ours = group.replace(ours, MODERN)
            java = group.replace(java, MODERN_JAVA)
            other = group.replace(other, MODERN_OTHER)
            group.replace(java, JAVA)
            group.replace(other, OTHER)
            group.replace(ours, OURS)
        group.leave()
        assert group.committed == group.sent


def test_clients_that_have_only_the_classic_protocol_join_a_group_that_ottla_began(modern_kafka: ApacheKafka) -> None:
    with Group(modern_kafka.bootstrap, "roundrobin") as group:
        with group.flow():
            group.join(CHOOSING, *MEMBERS.values())
            group.named("librdkafka").kill()
            group.await_shared()
            group.named("aiokafka").leave()
            group.await_shared()
        group.leave()
        assert group.committed == group.sent
        assert all(member.records for member in group.members)


# -- one client --------------------------------------------------------------------------------------------------------


async def _numbers(consumer: ottla.Consumer, count: int) -> list[int]:
    found: list[int] = []
    with trio.fail_after(HUNG):
        while len(found) < count:
            batch = await anext(consumer)
            found += [int(record.value or b"") for record in batch]
            await batch.commit()
    return found


def _topic(bootstrap: str, count: int = 100) -> str:
    name = f"modern-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name, PARTITIONS)
    LIBRDKAFKA.produce(
        bootstrap, [Message(name, None, b"%d" % number, partition=number % PARTITIONS) for number in range(count)]
    )
    return name


async def _read(bootstrap: str, *topics: str, count: int, group: str, **options: object) -> list[int]:
    async with (
        ottla.connect(bootstrap) as client,
        client.consumer(*topics, group=group, **options) as consumer,  # type: ignore[arg-type] # of the test
    ):
        return await _numbers(consumer, count)


def test_a_pattern_of_the_broker_finds_topics_that_come_later(modern_kafka: ApacheKafka) -> None:
    first = _topic(modern_kafka.bootstrap)

    async def scenario() -> None:
        async with (
            ottla.connect(modern_kafka.bootstrap) as client,
            client.consumer(pattern_re2=f"{first}.*", group=first, group_protocol="consumer") as consumer,
        ):
            assert sorted(await _numbers(consumer, 100)) == list(range(100))
            await client.create_topic(f"{first}-later", partitions=1)
            async with client.producer() as producer:
                await producer.send(f"{first}-later", b"7")
            assert await _numbers(consumer, 1) == [7]

    trio.run(scenario)


def test_auto_uses_the_new_protocol_and_joins_a_classic_group_by_the_old_one(modern_kafka: ApacheKafka) -> None:
    bootstrap = modern_kafka.bootstrap

    async def types(topic: str, **options: object) -> str:
        async with (
            ottla.connect(bootstrap) as client,
            client.consumer(topic, group=topic, **options) as consumer,  # type: ignore[arg-type] # of the test
        ):
            await _numbers(consumer, 100)
            async with client.consumer(topic, group=topic, group_protocol="auto"):
                [listing] = [each for each in await client.list_groups() if each.group == topic]
                return listing.type

    assert trio.run(partial(types, group_protocol="auto"), _topic(bootstrap)).casefold() == "consumer"
    assert trio.run(partial(types, group_protocol="classic"), _topic(bootstrap)).casefold() == "classic"


def test_a_static_member_goes_on_with_its_partitions(modern_kafka: ApacheKafka) -> None:
    topic = _topic(modern_kafka.bootstrap)
    read = partial(_read, modern_kafka.bootstrap, topic, group=topic, group_protocol="consumer", instance_id="i1")
    assert sorted(trio.run(partial(read, count=100))) == list(range(100))

    async def rival() -> None:
        async with ottla.connect(modern_kafka.bootstrap) as client:
            static = partial(client.consumer, topic, group=topic, group_protocol="consumer", instance_id="i1")
            async with static() as consumer:
                with trio.fail_after(FAR):
                    while len(consumer.assignment) < PARTITIONS:
                        with trio.move_on_after(0.1):
                            await anext(consumer)
                    with pytest.raises(UnreleasedInstanceId):
                        async with static() as second:
                            await anext(second)

    trio.run(rival)


def test_an_assignor_that_the_broker_does_not_have_is_an_error(modern_kafka: ApacheKafka) -> None:
    topic = _topic(modern_kafka.bootstrap, 1)
    read = partial(_read, modern_kafka.bootstrap, topic, count=1, group=topic, group_protocol="consumer")
    with pytest.raises(UnsupportedAssignor):
        trio.run(partial(read, remote_assignor="nonsense"))
    assert trio.run(partial(read, remote_assignor="range")) == [0]


def test_a_transform_commits_by_its_member_epoch(modern_kafka: ApacheKafka) -> None:
    topic = _topic(modern_kafka.bootstrap)
    create_topic(modern_kafka.bootstrap, f"{topic}-out", 1)

    async def transform(transactional_id: str, done: Counter[int]) -> None:
        async with (
            ottla.connect(modern_kafka.bootstrap) as client,
            client.transform(
                topic, group=topic, transactional_id=transactional_id, group_protocol="consumer", max_records=5
            ) as run,
        ):
            async for batch in run:
                async with run.transaction(batch) as transaction:
                    for record in batch:
                        await transaction.send_soon(f"{topic}-out", record.value)
                done.update(int(record.value or b"") for record in batch)

    async def scenario() -> None:
        done: Counter[int] = Counter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transform, f"{topic}-1", done)
            await until(lambda: done)
            nursery.start_soon(transform, f"{topic}-2", done)  # while the first one works, partitions move
            await until(lambda: len(done) == 100)
            nursery.cancel_scope.cancel()

    trio.run(scenario)
    with RawReader(modern_kafka.bootstrap) as reader:
        await_ends(lambda: not reader.is_open(f"{topic}-out", 0), "the end of what is open")
        found = [int(record.value or b"") for record in reader.committed(f"{topic}-out")]
    assert sorted(found) == list(range(100)), "every result once"
