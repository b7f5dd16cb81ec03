"""Consumers of others in groups of brokerlite: they share partitions, join, leave and die, and no record is lost."""

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from ottla.testing import Broker
from tests.brokerlite.test_process import dumped_by_kafka, process
from tests.interop.lines import Message
from tests.interop.members import MEMBERS, Member, MemberClient, shared, until
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.kafka import free_ports, run
from tests.patience import HUNG

pytestmark = pytest.mark.slow

PARTITIONS = 8


@contextmanager
def joined(bootstrap: str, clients: list[MemberClient], assignor: str = "roundrobin") -> Iterator[list[Member]]:
    """Members of the group ``g`` that share the topic ``t``."""
    with ExitStack() as stack:
        members = [stack.enter_context(each.join(bootstrap, "t", "g", assignor=assignor)) for each in clients]
        until(lambda: shared(members, PARTITIONS), members)
        yield members


def produce(bootstrap: str, first: int, count: int) -> None:
    """Write the numbers from ``first`` on into all partitions."""
    messages = [Message("t", None, b"%d" % i, partition=i % PARTITIONS) for i in range(first, first + count)]
    assert all(outcome.error is None for outcome in LIBRDKAFKA.produce(bootstrap, messages))


def seen(members: list[Member]) -> set[int]:
    return {int(record.value or b"") for member in members for record in member.records}


def committed(bootstrap: str) -> int:
    """The sum of the committed offsets, as an administrator sees them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    result = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(timeout=HUNG)
    return sum(place.offset for place in result.topic_partitions or ())


def test_clients_of_five_kinds_share_a_topic_and_nothing_is_lost_when_one_leaves_and_one_dies(
    ottla_broker: Broker,
) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", PARTITIONS)
    produce(bootstrap, 0, 400)
    with joined(bootstrap, list(MEMBERS.values())) as members:
        until(lambda: seen(members) == set(range(400)), members)
        leaver, dead, *others = sorted(members, key=lambda member: member.name != "aiokafka")
        leaver.leave()
        until(lambda: shared([dead, *others], PARTITIONS), others)
        produce(bootstrap, 400, 400)
        until(lambda: seen(members) == set(range(800)), others)
        dead.kill()
        until(lambda: shared(others, PARTITIONS), others)
        produce(bootstrap, 800, 400)
        until(lambda: seen(members) == set(range(1200)), others)
        for member in others:
            member.leave()
    assert committed(bootstrap) == 1200


@pytest.mark.parametrize("client", MEMBERS.values(), ids=str)
def test_a_client_continues_at_the_offsets_of_its_group(ottla_broker: Broker, client: MemberClient) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", PARTITIONS)
    produce(bootstrap, 0, 100)
    with joined(bootstrap, [client]) as members:
        until(lambda: seen(members) == set(range(100)), members)
        if client.name == "java":
            assert ottla_broker._call(lambda running: len(running._core.fetch_sessions)) == 1, "it has a fetch session"
        members[0].leave()
    assert committed(bootstrap) == 100
    produce(bootstrap, 100, 100)
    ottla_broker.restart()
    with joined(bootstrap, [client, client]) as members:
        until(lambda: seen(members) == set(range(100, 200)), members)


@pytest.mark.deep
@pytest.mark.parametrize("client", [MEMBERS["java"], MEMBERS["librdkafka"]], ids=str)
def test_cooperative_members_share_and_take_over(ottla_broker: Broker, client: MemberClient) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", PARTITIONS)
    produce(bootstrap, 0, 100)
    with joined(bootstrap, [client], "cooperative-sticky") as (first,):
        other = MEMBERS["librdkafka"].join(bootstrap, "t", "g", assignor="cooperative-sticky")
        with other:
            until(lambda: shared([first, other], PARTITIONS), [first, other])
            assert len(other.partitions) == PARTITIONS // 2
            produce(bootstrap, 100, 100)
            until(lambda: seen([first, other]) == set(range(200)), [first, other])
            other.leave()
        until(lambda: shared([first], PARTITIONS), [first])
        produce(bootstrap, 200, 100)
        until(lambda: seen([first, other]) == set(range(300)), [first])
        assert len(first.records) + len(other.records) == 300, "no record was read twice"


@pytest.mark.deep
@pytest.mark.parametrize("client", [MEMBERS["java"], MEMBERS["librdkafka"]], ids=str)
def test_a_static_member_that_is_started_again_gets_its_partitions_back_without_a_rebalance(
    ottla_broker: Broker, client: MemberClient
) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", PARTITIONS)

    def start(name: str) -> Member:
        config = {"group.instance.id": name, "session.timeout.ms": str(round(1000 * HUNG))}
        return client.join(bootstrap, "t", "g", assignor="range", config=config)

    with start("a") as a, start("b") as b:
        until(lambda: shared([a, b], PARTITIONS), [a, b])
        before, generation = b.partitions, generation_of(ottla_broker)
        b.kill()
        with start("b") as again:
            until(lambda: again.partitions == before, [a, again])
            produce(bootstrap, 0, 80)
            until(lambda: seen([a, again]) == set(range(80)), [a, again])
            assert generation_of(ottla_broker) == generation


def generation_of(broker: Broker) -> int:
    return broker._call(lambda running: running._core.groups.classic.by_id["g"].generation)


@pytest.mark.deep
def test_a_group_and_its_commits_survive_kills_of_the_broker(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    bootstrap = f"127.0.0.1:{port}"
    clients = [MEMBERS["librdkafka"], MEMBERS["aiokafka"], MEMBERS["kafka-python"]]
    with ExitStack() as stack:
        for turn in range(3):
            with process(tmp_path / "data", port) as broker:
                if turn == 0:
                    create_topic(bootstrap, "t", PARTITIONS)
                    members = stack.enter_context(joined(bootstrap, clients))
                produce(bootstrap, 200 * turn, 200)
                until(lambda: seen(members) == set(range(200 * (turn + 1))), members)  # noqa: B023 # called at once
                until(lambda: committed(bootstrap) == 200 * (turn + 1), members)  # noqa: B023 # called at once
                broker.send_signal(signal.SIGKILL)
                broker.wait()
        with process(tmp_path / "data", port):
            assert committed(bootstrap) == 600
            for member in members:
                member.leave()
    assert sum(len(member.records) for member in members) < 1200, "they continue at their committed offsets"


def test_librdkafkas_admin_lists_describes_resets_and_deletes_groups(ottla_broker: Broker) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", PARTITIONS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with joined(bootstrap, [MEMBERS["librdkafka"]]) as members:
        (listed,) = admin.list_consumer_groups(request_timeout=HUNG).result().valid
        assert (listed.group_id, listed.state) == ("g", ConsumerGroupState.STABLE)
        described = admin.describe_consumer_groups(["g"], request_timeout=HUNG)["g"].result()
        (member,) = described.members
        assert described.partition_assignor == "roundrobin" and member.host == "/127.0.0.1"
        assert {place.partition for place in member.assignment.topic_partitions} == set(range(PARTITIONS))
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["g"])["g"].result(timeout=HUNG)
        members[0].leave()
    reset = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 3, 42)])
    admin.alter_consumer_group_offsets([reset])["g"].result(timeout=HUNG)
    assert committed(bootstrap) == 42
    admin.delete_consumer_groups(["g"])["g"].result(timeout=HUNG)
    assert not admin.list_consumer_groups(request_timeout=HUNG).result().valid


@pytest.mark.deep
def test_a_group_reads_added_partitions(ottla_broker: Broker) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", 2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with MEMBERS["librdkafka"].join(bootstrap, "t", "g") as member:
        until(lambda: shared([member], 2), [member])
        admin.create_partitions([NewPartitions("t", PARTITIONS)])["t"].result(timeout=HUNG)
        until(lambda: shared([member], PARTITIONS), [member])
        produce(bootstrap, 0, 80)
        until(lambda: seen([member]) == set(range(80)), [member])


@pytest.mark.deep
def test_a_consumer_outside_of_a_group_commits_and_gets_its_offset_back(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 2)
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": "alone"})
    places = [TopicPartition("t", 0, 7, metadata="half past"), TopicPartition("t", 1, 9)]
    consumer.commit(offsets=places, asynchronous=False)
    ottla_broker.kill()
    ottla_broker.start()
    told = consumer.committed([TopicPartition("t", i) for i in range(2)], timeout=HUNG)
    assert [place.offset for place in told] == [7, 9] and told[0].metadata == "half past"
    consumer.close()


def test_kafkas_own_tools_read_and_reset_groups_and_their_log(ottla_broker: Broker) -> None:
    bootstrap = ottla_broker.bootstrap
    ottla_broker.create_topic("t", PARTITIONS)
    produce(bootstrap, 0, 80)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    at = ("--bootstrap-server", bootstrap)
    with joined(bootstrap, [MEMBERS["librdkafka"]]) as members:
        until(lambda: seen(members) == set(range(80)), members)
        until(lambda: committed(bootstrap) == 80, members)
        said = run(tool, *at, "--describe", "--group", "g")
        assert len(re.findall(r"^g +t +\d +10 +10 +0 ", said, re.MULTILINE)) == PARTITIONS
        members[0].leave()
    run(tool, *at, "--group", "g", "--topic", "t:3", "--reset-offsets", "--to-offset", "4", "--execute")
    assert committed(bootstrap) == 74
    assert "g" in run(tool, *at, "--list").split()
    run(tool, *at, "--group", "g", "--delete-offsets", "--topic", "t:3")
    assert committed(bootstrap) == 70
    ottla_broker.stop()
    (log,) = ottla_broker.data.glob("__consumer_offsets-0/*.log")
    dumped = dumped_by_kafka(str(log), "--offsets-decoder", "--deep-iteration")
    assert '"group":"g"' in dumped and '"offset":10' in dumped and '"protocol":"roundrobin"' in dumped
