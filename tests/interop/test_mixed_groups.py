"""ottla's consumer in a group with other clients, on Apache Kafka: members join, leave and die, and no record is lost.

The first member to join leads the group, and assigns the partitions of all.
"""

import pytest

from tests.interop.groups import PARTITIONS, Group
from tests.interop.members import MEMBERS, OURS, MemberClient
from tests.kafka import ApacheKafka

pytestmark = pytest.mark.slow

JAVA, OTHER = MEMBERS["java"], MEMBERS["librdkafka"]


def in_turn(clients: tuple[MemberClient, ...]) -> str:
    return "-".join(map(str, clients))


@pytest.mark.deep
@pytest.mark.parametrize("first", [OURS, JAVA, OTHER], ids=str)
def test_clients_of_six_kinds_share_a_topic_and_nothing_is_lost_when_they_come_leave_and_die(
    kafka: ApacheKafka, first: MemberClient
) -> None:
    others = [each for each in (OURS, *MEMBERS.values()) if each is not first]
    with Group(kafka.bootstrap, "roundrobin") as group:
        group.join(first)
        with group.flow():
            group.join(*others)
            ours, killed, leaver = (group.named(each) for each in ("ottla", "librdkafka", "aiokafka"))
            killed.kill()
            group.await_shared()
            leaver.leave()
            group.await_shared()
            group.join(OURS)
            ours.kill()
            group.await_shared()
            group.named("kafka-python").leave()
            group.await_shared()
        group.leave()
        assert group.committed == group.sent
        assert all(member.records for member in group.members), "every member had a share"


@pytest.mark.deep
@pytest.mark.parametrize("clients", [(OURS, JAVA, OTHER), (JAVA, OTHER, OURS)], ids=in_turn)
def test_cooperative_members_keep_what_they_read_while_others_come_leave_and_die(
    kafka: ApacheKafka, clients: tuple[MemberClient, ...]
) -> None:
    with Group(kafka.bootstrap, "cooperative-sticky") as group:
        for client in clients:
            before = {member: member.partitions for member in group.members}
            with group.flow():
                group.join(client)
            kept = {each.name: (sorted(before[each]), sorted(each.partitions)) for each in before}
            assert all(each.partitions < before[each] for each in before), f"they only gave up: {kept}"
        first, second, third = group.members
        before = {member: member.partitions for member in group.members}
        with group.flow():
            second.kill()
            group.await_shared()
        assert first.partitions > before[first] and third.partitions > before[third], "and only took over"
        third.leave()
        with group.flow():
            group.await_shared()
        first.leave()
        assert group.committed == group.sent


@pytest.mark.deep
@pytest.mark.parametrize("clients", [(OURS, JAVA), (JAVA, OURS)], ids=in_turn)
def test_sticky_members_get_again_what_they_had(kafka: ApacheKafka, clients: tuple[MemberClient, ...]) -> None:
    with Group(kafka.bootstrap, "sticky") as group, group.flow():
        first, second = group.join(*clients)
        assert len(first.partitions) == len(second.partitions) == PARTITIONS // 2
        before = first.partitions, second.partitions
        (third,) = group.join(OURS)
        between = first.partitions, second.partitions
        assert between[0] < before[0] and between[1] < before[1]
        third.kill()
        group.await_shared()
        assert first.partitions > between[0] and second.partitions > between[1]


@pytest.mark.parametrize("client", MEMBERS.values(), ids=str)
def test_each_goes_on_where_the_other_has_committed(kafka: ApacheKafka, client: MemberClient) -> None:
    with Group(kafka.bootstrap, "roundrobin") as group:
        for turn, each in enumerate((OURS, client, OURS)):
            group.produce(200)
            (member,) = group.join(each)
            group.await_read()
            member.leave()
            assert sorted(int(record.value or b"") for record in member.records) == list(
                range(200 * turn, 200 * (turn + 1))
            )
            assert group.committed == group.sent
