"""Consumers of others with ``group.protocol=consumer`` in groups of brokerlite: they share partitions, join, leave and
die, the broker is killed, groups change their protocol, and no record is lost."""

import re
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.testing import Broker
from tests.brokerlite.running import BrokerProcess
from tests.brokerlite.test_group_clients import PARTITIONS, committed, produce, seen
from tests.brokerlite.test_process import dumped_by_kafka, process
from tests.interop.coordinator_logs import CONSUMER_OFFSETS, check_commits, check_owners, stored
from tests.interop.groups import Group
from tests.interop.members import CHOOSING, CONSUMER_PROTOCOL, MEMBERS, Member, MemberClient, shared, until
from tests.interop.peers import create_topic
from tests.kafka import free_ports, run
from tests.patience import HUNG

pytestmark = pytest.mark.slow

SETTINGS = "group.consumer.heartbeat.interval.ms=300\n"


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker whose members send heartbeats often, and are removed soon after their death."""
    return Broker(
        BrokerConfig(
            port=0,
            data=tmp_path / "data",
            sync=Sync.NEVER,
            group_initial_rebalance_delay=0,
            group_consumer_heartbeat_interval=0.3,
            group_consumer_session_timeout=15,
        )
    )


@pytest.fixture
def patient_broker(tmp_path: Path) -> Broker:
    """A broker that keeps the partitions of a static member for as long as a virtual machine may take to start."""
    config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, group_consumer_heartbeat_interval=0.3)
    return Broker(config)


def _have_read(members: list[Member], wanted: set[int]) -> bool:
    return seen(members) == wanted


def state_of(broker: Broker) -> tuple[str, str]:
    """The kind and the state of the group ``g``."""

    def look(running: object) -> tuple[str, str]:
        group = running._core.groups.get("g")  # type: ignore[attr-defined]
        return group.kind, group.state_name

    return broker._call(look)


def test_java_and_librdkafka_share_a_topic_and_nothing_is_lost_when_one_leaves_and_one_dies(broker: Broker) -> None:
    with broker, ExitStack() as stack:
        bootstrap = broker.bootstrap
        broker.create_topic("t", PARTITIONS)
        produce(bootstrap, 0, 400)
        clients = [CONSUMER_PROTOCOL["java"], CONSUMER_PROTOCOL["librdkafka"]] * 2
        members = [stack.enter_context(each.join(bootstrap, "t", "g")) for each in clients]
        until(lambda: shared(members, PARTITIONS), members)
        until(lambda: seen(members) == set(range(400)), members)
        assert {len(member.partitions) for member in members} == {2} and state_of(broker)[0] == "consumer"
        leaver, dead, *others = members
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


@pytest.mark.parametrize("client", CONSUMER_PROTOCOL.values(), ids=str)
def test_a_static_member_gets_its_partitions_back(patient_broker: Broker, client: MemberClient) -> None:
    join = client.join
    with patient_broker as broker, ExitStack() as stack:
        broker.create_topic("t", PARTITIONS)
        first = stack.enter_context(join(broker.bootstrap, "t", "g", config={"group.instance.id": "a"}))
        second = stack.enter_context(join(broker.bootstrap, "t", "g", config={"group.instance.id": "b"}))
        until(lambda: shared([first, second], PARTITIONS), [first, second])
        before = second.partitions
        second.leave()
        again = stack.enter_context(join(broker.bootstrap, "t", "g", config={"group.instance.id": "b"}))
        until(lambda: again.partitions == before, [first, again])
        produce(broker.bootstrap, 0, 80)
        until(lambda: seen([first, again]) == set(range(80)), [first, again])


def test_a_group_and_its_commits_survive_kills_of_the_broker_under_load(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    bootstrap = f"127.0.0.1:{port}"
    settings = tmp_path / "server.properties"
    settings.write_text(SETTINGS)
    with ExitStack() as stack:
        members: list[Member] = []
        for turn in range(3):
            with process(tmp_path / "data", port, "--config", str(settings)) as running:
                if turn == 0:
                    create_topic(bootstrap, "t", PARTITIONS)
                    clients = [CONSUMER_PROTOCOL["java"], CONSUMER_PROTOCOL["librdkafka"]]
                    members = [stack.enter_context(each.join(bootstrap, "t", "g")) for each in clients]
                    until(partial(shared, members, PARTITIONS), members)
                produce(bootstrap, 200 * turn, 200)
                wanted = set(range(200 * (turn + 1)))
                until(partial(_have_read, members, wanted), members)
                until(lambda: committed(bootstrap) == 200 * (turn + 1), members)  # noqa: B023 # called at once
                until(partial(shared, members, PARTITIONS), members)
                running.send_signal(signal.SIGKILL)
                running.wait()
        with process(tmp_path / "data", port, "--config", str(settings)):
            assert committed(bootstrap) == 600
            for member in members:
                member.leave()
    assert sum(len(member.records) for member in members) < 1200, "they continue at their committed offsets"
    (log,) = (tmp_path / "data").glob("__consumer_offsets-0/*.log")
    dumped = dumped_by_kafka(str(log), "--offsets-decoder", "--deep-iteration")
    for kind in range(3, 9):
        assert kind == 4 or f'"type":"{kind}"' in dumped or f'"type":{kind}' in dumped, kind


def test_a_group_changes_its_protocol_member_by_member_and_back(broker: Broker) -> None:
    with broker, ExitStack() as stack:
        bootstrap = broker.bootstrap
        broker.create_topic("t", PARTITIONS)

        def start(name: str, *, classic: bool) -> Member:
            if classic:
                return stack.enter_context(MEMBERS[name].join(bootstrap, "t", "g", assignor="range"))
            return stack.enter_context(CONSUMER_PROTOCOL[name].join(bootstrap, "t", "g"))

        everyone = [start("java", classic=True), start("librdkafka", classic=True)]
        members = list(everyone)
        until(lambda: shared(members, PARTITIONS), members)
        assert state_of(broker)[0] == "classic"
        sent = 0
        for name, classic in (("java", False), ("librdkafka", False), ("librdkafka", True), ("java", True)):
            produce(bootstrap, sent, 80)
            sent += 80
            new = start(name, classic=classic)
            everyone.append(new)
            members.append(new)
            until(lambda: shared(members, PARTITIONS), members)
            assert state_of(broker)[0] == "consumer"
            members.pop(0).leave()
            until(lambda: shared(members, PARTITIONS), members)
            until(lambda: seen(everyone) == set(range(sent)), members)  # noqa: B023 # called at once
        until(lambda: state_of(broker) == ("classic", "Stable"), members)
        until(lambda: committed(bootstrap) == sent, members)


def test_four_clients_share_a_topic_while_they_come_leave_and_die_and_the_broker_is_killed(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"{SETTINGS}group.consumer.session.timeout.ms=15000\n")
    ours, java, librdkafka, franz = (CONSUMER_PROTOCOL[name] for name in ("ottla", "java", "librdkafka", "franz-go"))
    broker = BrokerProcess(tmp_path / "data", "--config", str(settings))
    try:
        with Group(broker.bootstrap) as group:
            with group.flow():
                _, killed, leaver, *_ = group.join(ours, ours, java, librdkafka, franz)
                killed.kill()
                group.await_shared()
                broker.kill()
                broker.revive()
                group.await_shared()
                leaver.leave()
                group.await_shared()
                group.join(ours, java)
                broker.kill()
                broker.revive()
            group.leave()
            assert group.committed == group.sent
            assert all(member.records for member in group.members)
            assert group.repeated_only_after(killed)
    finally:
        broker.stop()
    records = stored(tmp_path / "data" / "__consumer_offsets-0", CONSUMER_OFFSETS)
    assert check_owners(records, group.name) >= PARTITIONS
    assert sum(check_commits(records, group.name).values()) == group.sent


def test_clients_that_have_only_the_classic_protocol_join_a_group_that_ottla_began(broker: Broker) -> None:
    with broker, Group(broker.bootstrap, "roundrobin") as group:
        with group.flow():
            group.join(CHOOSING, *MEMBERS.values())
            group.named("librdkafka").kill()
            group.await_shared()
            group.named("aiokafka").leave()
            group.await_shared()
        group.leave()
        assert group.committed == group.sent
        assert all(member.records for member in group.members)


def test_librdkafka_subscribes_to_a_pattern_that_the_broker_resolves(broker: Broker) -> None:
    with broker:
        broker.create_topic("ta", 2)
        broker.create_topic("other", 5)
        with CONSUMER_PROTOCOL["librdkafka"].join(broker.bootstrap, "^t.*", "g") as member:
            until(lambda: member.partitions == {0, 1}, [member])
            broker.create_topic("tb", 3)
            until(lambda: member.partitions == {0, 1, 2}, [member])
            patterns = broker._call(lambda running: dict(running._core.consumer_groups.by_id["g"].patterns))
            assert [sorted(each.topics) for each in patterns.values()] == [["ta", "tb"]]


def test_administrators_of_others_see_both_kinds_of_groups(broker: Broker) -> None:
    with broker:
        bootstrap = broker.bootstrap
        broker.create_topic("t", PARTITIONS)
        produce(bootstrap, 0, 80)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        with CONSUMER_PROTOCOL["librdkafka"].join(bootstrap, "t", "g") as member:
            until(lambda: committed(bootstrap) == 80, [member])
            (listed,) = admin.list_consumer_groups(request_timeout=HUNG).result().valid
            assert (listed.type, listed.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
            described = admin.describe_consumer_groups(["g"], request_timeout=HUNG)["g"].result()
            assert described.type is ConsumerGroupType.CONSUMER and described.partition_assignor == "uniform"
            tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
            at = ("--bootstrap-server", bootstrap, "--timeout", "60000", "--group", "g")
            said = run(tool, *at, "--describe")
            assert len(re.findall(r"^g +t +\d +10 +10 +0 ", said, re.MULTILINE)) == PARTITIONS
            said = run(tool, *at, "--describe", "--members", "--verbose")
            assert "t:0,1,2,3,4,5,6,7" in said.replace(" ", "") or "t(0,1,2,3,4,5,6,7)" in said.replace(" ", ""), said
            member.leave()
        run(tool, *at, "--topic", "t:3", "--reset-offsets", "--to-offset", "4", "--execute")
        assert committed(bootstrap) == 74
        admin.delete_consumer_groups(["g"])["g"].result(timeout=HUNG)
        assert not admin.list_consumer_groups(request_timeout=HUNG).result().valid
