"""Each group API, as bytes in every served version, sent to the machine."""

from typing import Any

import pytest

from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.machines.core import Action, Answer
from ottla.codec.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.codec.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.codec.apis.list_groups import ListGroupsRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.codec.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.frames import build_request, build_response, parse_request, parse_response
from ottla.codec.wire import NO_UUID, api
from ottla.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidRequest, UnknownTopicOrPartition
from tests.brokerlite.club import subscription
from tests.brokerlite.machine import Machine, a_batch, producing
from tests.brokerlite.test_group_log import committing, join

NOT_ASKED = -(2**31)


def versions(key: int) -> range:
    return range(SERVED[key].lowest, SERVED[key].highest + 1)


def as_bytes(message: Any, version: int) -> Any:
    """The response as a client parses it."""
    return parse_response(type(message), version, build_response(message, version, 5)[4:])[1]


def asked(machine: Machine, message: Any, version: int | None = None) -> Any:
    """The response to a request, both as bytes; by default in the newest served version."""
    version = SERVED[api(type(message)).key].highest if version is None else version
    request = parse_request(build_request(message, version, 5, "test")[4:]).message
    return as_bytes(machine.ask(request, version), version)


def given(action: Action, version: int) -> Any:
    assert isinstance(action, Answer)
    return as_bytes(action.message, version)


def joining(member: str = "", *, instance_id: str | None = None, **others: Any) -> JoinGroupRequest:
    known: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name="range", metadata=subscription()),),
    }
    return JoinGroupRequest(**known | others)


def syncing(member: str, generation: int = 1, version: int = 5, **others: Any) -> SyncGroupRequest:
    protocol: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    assignments = (SyncGroupRequestAssignment(member_id=member, assignment=b"all"),)
    return SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member, assignments=assignments, **protocol | others
    )


@pytest.mark.parametrize("version", versions(11))
def test_join_group(machine: Machine, version: int) -> None:
    answer = asked(machine, joining(), version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (79, -1)
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = asked(machine, joining(answer.member_id), version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id and not answer.skip_assignment
    (member,) = answer.members
    assert (member.member_id, member.metadata) == (answer.member_id, subscription())
    rebalance = machine.core.groups.classic.by_id["g"].members[answer.member_id].rebalance_timeout_ms
    assert rebalance == (60_000 if version >= 1 else 10_000)
    for bad, code in ((joining("x"), 25), (joining(group_id=""), 24), (joining(session_timeout_ms=1), 26)):
        assert asked(machine, bad, version).error_code == code


@pytest.mark.parametrize("version", [v for v in versions(11) if v >= 5])
def test_join_group_of_a_static_member_that_was_started_again(machine: Machine, version: int) -> None:
    first = asked(machine, joining(instance_id="i"), version)
    assert first.error_code == 0 and asked(machine, syncing(first.member_id, group_instance_id="i")).error_code == 0
    second = asked(machine, joining(instance_id="i"), version)
    assert second.error_code == 0 and second.generation_id == 1 and second.member_id != first.member_id
    if version >= 9:
        assert second.skip_assignment and second.leader == second.member_id
        assert [each.group_instance_id for each in second.members] == ["i"]
    else:
        assert not second.skip_assignment and second.leader == first.member_id and second.members == ()


def test_a_join_waits_for_the_others_and_a_client_that_goes_is_not_answered(machine: Machine) -> None:
    a = join(machine)
    b = machine.send(joining(instance_id="j"), connection=2)
    c = machine.send(joining(instance_id="k"), connection=3)
    assert machine.poll() == []
    machine.core.disconnected(3, machine.now)
    machine.send(joining(a, instance_id="i"), connection=1)
    answers = {action.ticket: action for action in machine.poll()}
    assert len(answers) == 2 and b in answers and c not in answers
    message: JoinGroupResponse = given(answers[b], 9)
    assert message.error_code == 0 and message.generation_id == 2 and message.leader == a
    assert len(machine.core.groups.classic.by_id["g"].members) == 3, "its session will expire"
    assert not machine.core.waits._later


def test_a_drain_answers_members_that_wait_for_others(machine: Machine) -> None:
    join(machine)
    ticket = machine.send(joining(instance_id="j"), connection=2)
    machine.core.drain(machine.now)
    (action,) = machine.poll()
    assert action.ticket == ticket and given(action, 9).error_code == 16
    assert machine.ask(joining()).error_code == 15


@pytest.mark.parametrize("version", versions(14))
def test_sync_group(machine: Machine, version: int) -> None:
    member = asked(machine, joining(instance_id="i"), 5).member_id
    instance: dict[str, Any] = {"group_instance_id": "i"} if version >= 3 else {}
    if version >= 5:
        missing = syncing(member, version=4, **instance)
        assert asked(machine, missing, version).error_code == 23
    answer = asked(machine, syncing(member, version=version, **instance), version)
    assert (answer.error_code, answer.assignment) == (0, b"all")
    named = (answer.protocol_type, answer.protocol_name)
    assert named == (("consumer", "range") if version >= 5 else (None, None))
    for bad, code in ((syncing(member, 7, version), 22), (syncing("x", 1, version), 25)):
        answer = asked(machine, bad, version)
        assert (answer.error_code, answer.assignment) == (code, b"")


@pytest.mark.parametrize("version", versions(12))
def test_heartbeat(machine: Machine, version: int) -> None:
    member = join(machine)
    for generation, name, code in ((1, member, 0), (2, member, 22), (1, "x", 25)):
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=name)
        assert asked(machine, request, version).error_code == code
    if version >= 3:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="old", group_instance_id="i")
        assert asked(machine, request, version).error_code == 82


@pytest.mark.parametrize("version", versions(13))
def test_leave_group(machine: Machine, version: int) -> None:
    def leave(group: str, *members: tuple[str, str | None]) -> list[int]:
        if version < 3:
            answer = asked(machine, LeaveGroupRequest(group_id=group, member_id=members[0][0]), version)
            return [answer.error_code]
        each = tuple(MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members)
        answer = asked(machine, LeaveGroupRequest(group_id=group, members=each), version)
        assert answer.error_code == 0
        assert [(one.member_id, one.group_instance_id) for one in answer.members] == list(members)
        return [one.error_code for one in answer.members]

    member = join(machine)
    assert leave("no-such", (member, None)) == [25] and leave("g", ("x", None)) == [25]
    if version >= 3:
        assert leave("g", ("x", None), ("old", "i"), ("", "i")) == [25, 82, 0]
        assert asked(machine, LeaveGroupRequest(group_id="", members=()), version).error_code == 24
    else:
        assert leave("g", (member, None)) == [0]
    assert not machine.core.groups.classic.by_id["g"].members


@pytest.mark.parametrize("version", versions(8))
def test_offset_commit(machine: Machine, version: int) -> None:
    def partitions(*indexes: int) -> tuple[OffsetCommitRequestPartition, ...]:
        return tuple(
            OffsetCommitRequestPartition(
                partition_index=i,
                committed_offset=10 + i,
                committed_leader_epoch=0,
                committed_metadata="x" * 4097 if i == 2 else None,
            )
            for i in indexes
        )

    topic_id = machine.core.topics.by_name["t"].topic_id if version >= 10 else NO_UUID
    other_id = type(topic_id)(int=7) if version >= 10 else NO_UUID
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=5000 if 2 <= version <= 4 else -1,
        topics=(
            OffsetCommitRequestTopic(name="no-such", topic_id=other_id, partitions=partitions(0)),
            OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=partitions(1, 2, 9)),
        ),
    )
    answer = asked(machine, request, version)
    codes = [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in answer.topics]
    assert codes == [[(0, 100 if version >= 10 else 3)], [(1, 0), (2, 12), (9, 3)]]
    assert [topic.name for topic in answer.topics] == (["", ""] if version >= 10 else ["no-such", "t"])
    assert [topic.topic_id for topic in answer.topics] == [other_id, topic_id]
    ((place, committed),) = machine.core.offsets.of("g").items()
    assert place == ("t", 1) and (committed.offset, committed.metadata) == (11, "")
    assert committed.leader_epoch == (0 if version >= 6 else -1)
    assert (committed.expire_timestamp > 0) is (version <= 4)
    join(machine)
    answer = asked(machine, request, version)
    errors = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    assert errors == [[100 if version >= 10 else 3], [25, 25, 3]], "for the group, and for a topic that does not exist"


def test_the_longest_retention_of_an_offset_is_accepted(machine: Machine) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="g",
        retention_time_ms=2**63 - 1,
        topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    assert asked(machine, request, 2).topics[0].partitions[0].error_code == 0
    assert machine.core.offsets.of("g")["t", 0].expire_timestamp == 2**63 - 1


def test_a_commit_for_an_unknown_topic_creates_no_group(machine: Machine) -> None:
    request = committing(5, partition=77)
    assert asked(machine, request, 9).topics[0].partitions[0].error_code == 3
    assert asked(machine, OffsetCommitRequest(group_id="g", topics=()), 9).topics == ()
    assert not machine.core.groups.classic.by_id


@pytest.mark.parametrize("version", [v for v in versions(9) if v < 8])
def test_offset_fetch_of_one_group(machine: Machine, version: int) -> None:
    machine.ask(committing(5, metadata="m"))
    topics = (
        OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),
        OffsetFetchRequestTopic(name="u", partition_indexes=(3,)),
    )
    answer = asked(machine, OffsetFetchRequest(group_id="g", topics=topics), version)
    assert answer.error_code == 0
    seen = [
        (topic.name, [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions])
        for topic in answer.topics
    ]
    assert seen == [("t", [(0, 5, "m", 0), (1, -1, "", 0)]), ("u", [(3, -1, "", 0)])]
    assert answer.topics[0].partitions[0].committed_leader_epoch == (0 if version >= 5 else -1)
    answer = asked(machine, OffsetFetchRequest(group_id="no-such", topics=topics), version)
    assert [p.committed_offset for topic in answer.topics for p in topic.partitions] == [-1, -1, -1]
    if version >= 2:
        answer = asked(machine, OffsetFetchRequest(group_id="g", topics=None), version)
        assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics] == [("t", [0])]
        assert asked(machine, OffsetFetchRequest(group_id="no-such", topics=None), version).topics == ()


@pytest.mark.parametrize("version", [v for v in versions(9) if v >= 8])
def test_offset_fetch_of_many_groups(machine: Machine, version: int) -> None:
    machine.ask(committing(5, metadata="m"))
    machine.ask(committing(6, group="h", partition=2))
    topic_id = machine.core.topics.by_name["t"].topic_id if version >= 10 else NO_UUID
    other_id = type(topic_id)(int=7) if version >= 10 else NO_UUID
    topics = (
        OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=(0, 1)),
        OffsetFetchRequestTopics(name="u", topic_id=other_id, partition_indexes=(3,)),
    )
    groups = (
        OffsetFetchRequestGroup(group_id="g", topics=topics),
        OffsetFetchRequestGroup(group_id="h", topics=None),
        OffsetFetchRequestGroup(group_id="no-such", topics=None),
    )
    answer = asked(machine, OffsetFetchRequest(groups=groups, require_stable=True), version)
    g, h, none = answer.groups
    assert [each.group_id for each in answer.groups] == ["g", "h", "no-such"] and none.topics == ()
    assert [[(p.committed_offset, p.committed_leader_epoch, p.error_code) for p in t.partitions] for t in g.topics] == [
        [(5, 0, 0), (-1, -1, 0)],
        [(-1, -1, 100 if version >= 10 else 0)],
    ]
    (topic,) = h.topics
    assert (topic.name, topic.topic_id) == (("", topic_id) if version >= 10 else ("t", NO_UUID))
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(2, 6)]


def test_offset_delete(machine: Machine) -> None:
    def delete(group: str) -> Any:
        partitions = tuple(OffsetDeleteRequestPartition(partition_index=i) for i in (0, 1, 9))
        return asked(
            machine,
            OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(name="t", partitions=partitions),)),
        )

    def codes(answer: Any) -> list[int]:
        assert answer.error_code == 0
        return [each.error_code for each in answer.topics[0].partitions]

    machine.ask(committing(5))
    join(machine)
    assert codes(delete("g")) == [86, 86, 3]
    machine.ask(committing(5, group="h"))
    assert codes(delete("h")) == [0, 0, 3] and not machine.core.offsets.of("h")
    assert delete("no-such").error_code == 69 and delete("").error_code == 24


@pytest.mark.parametrize("version", versions(16))
def test_list_groups(machine: Machine, version: int) -> None:
    join(machine)
    machine.ask(committing(5, group="simple"))

    def listed(**filters: Any) -> dict[str, tuple[str, str, str]]:
        answer = asked(machine, ListGroupsRequest(**filters), version)
        assert answer.error_code == 0
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}

    states = ("Stable", "Empty") if version >= 4 else ("", "")
    kind = "classic" if version >= 5 else ""
    assert listed() == {"g": ("consumer", states[0], kind), "simple": ("", states[1], kind)}
    if version >= 4:
        assert list(listed(states_filter=("sTABLE ", "Dead"))) == ["g"]
        assert list(listed(states_filter=("Dead",))) == []
    if version >= 5:
        assert list(listed(types_filter=("Classic",))) == ["g", "simple"]
        assert list(listed(types_filter=("consumer", "nonsense"))) == []


@pytest.mark.parametrize("version", versions(15))
def test_describe_groups(machine: Machine, version: int) -> None:
    member = join(machine)
    request = DescribeGroupsRequest(groups=("g", "no-such"), include_authorized_operations=version >= 3)
    g, none = asked(machine, request, version).groups
    assert (g.error_code, g.group_state, g.protocol_type, g.protocol_data) == (0, "Stable", "consumer", "range")
    (each,) = g.members
    assert (each.member_id, each.client_id, each.client_host) == (member, "", "/127.0.0.1")
    assert (each.member_metadata, each.member_assignment) == (subscription(), b"all")
    assert each.group_instance_id == ("i" if version >= 4 else None)
    assert g.authorized_operations == (3400 if version >= 3 else NOT_ASKED)
    assert (none.group_state, none.members) == ("Dead", ())
    assert none.authorized_operations == (3400 if 3 <= version < 6 else NOT_ASKED)
    assert none.error_code == (69 if version >= 6 else 0)
    assert none.error_message == ("Group no-such not found." if version >= 6 else None)
    machine.send(joining(instance_id="j"))
    g, _ = asked(machine, request, version).groups
    assert (g.group_state, g.protocol_data) == ("PreparingRebalance", "")
    assert [each.member_metadata for each in g.members] == [b"", b""]


@pytest.mark.parametrize("version", versions(42))
def test_delete_groups(machine: Machine, version: int) -> None:
    join(machine)
    machine.ask(committing(5, group="old"))
    request = DeleteGroupsRequest(groups_names=("g", "old", "no-such", "old"))
    answer = asked(machine, request, version)
    assert [(each.group_id, each.error_code) for each in answer.results] == [("g", 68), ("old", 0), ("no-such", 69)]
    assert list(machine.core.groups.classic.by_id) == ["g"]


@pytest.mark.parametrize("version", versions(37))
def test_create_partitions(machine: Machine, version: int) -> None:
    def create(count: int, *, name: str = "t", validate: bool = False, brokers: Any = None) -> int:
        assignments = None if brokers is None else tuple(CreatePartitionsAssignment(broker_ids=b) for b in brokers)
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1000, validate_only=validate)
        (answer,) = asked(machine, request, version).results
        assert answer.name == name
        return int(answer.error_code)

    for bad in (2, 3, -1, 10_001):
        assert create(bad) == InvalidPartitions.code
    assert create(5, name="no-such") == UnknownTopicOrPartition.code
    assert create(5, brokers=[(1,)]) == create(4, brokers=[(2,)]) == InvalidReplicaAssignment.code
    assert create(5, validate=True) == 0 and len(machine.core.topics.by_name["t"].partitions) == 3
    assert create(4) == 0 and create(5, brokers=[(1,)]) == 0
    machine.produce(a_batch(b"a"), partition=4)
    machine = machine.restart(clean=False)
    assert len(machine.core.topics.by_name["t"].partitions) == 5 and machine.log(partition=4).end_offset == 1
    machine.folder.abandon()


def test_create_partitions_of_a_topic_that_is_named_twice_and_of_the_brokers_own(machine: Machine) -> None:
    join(machine)
    named = [CreatePartitionsTopic(name=name, count=9, assignments=None) for name in ("t", "t", "__consumer_offsets")]
    request = CreatePartitionsRequest(topics=tuple(named), timeout_ms=1000, validate_only=False)
    answers = {each.name: each.error_code for each in asked(machine, request).results}
    assert answers == {"t": InvalidRequest.code, "__consumer_offsets": InvalidRequest.code}
    assert len(machine.core.topics.by_name["t"].partitions) == 3


def test_new_partitions_that_the_disk_has_no_room_for_are_not_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.brokerlite.storage.partition_segments import PartitionSegments

    made: list[Any] = []
    create = PartitionSegments.create

    def full(self: PartitionSegments, topic_id: Any, leader_epoch: int) -> None:
        if made:
            raise OSError(28, "No space left on device")
        made.append(self)
        create(self, topic_id, leader_epoch)

    topic = CreatePartitionsTopic(name="t", count=6, assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1000, validate_only=False)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionSegments, "create", full)
        assert asked(machine, request).results[0].error_code == 56
    assert len(machine.core.topics.by_name["t"].partitions) == 3 and len(list(machine.folder.path.glob("t-*"))) == 3
    assert asked(machine, request).results[0].error_code == 0
    machine.produce(a_batch(b"a"), partition=5)


@pytest.mark.parametrize("version", versions(23))
def test_offset_for_leader_epoch(machine: Machine, version: int) -> None:
    machine.produce(a_batch(b"a", b"b"))

    def end(partition: int, epoch: int, known: int = -1, topic: str = "t") -> tuple[int, int, int]:
        asked_for = OffsetForLeaderPartition(partition=partition, current_leader_epoch=known, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic=topic, partitions=(asked_for,)),))
        (answer,) = asked(machine, request, version).topics[0].partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end(0, 0) == end(0, 0, 0) == (0, 0, 2) and end(1, 0) == (0, 0, 0)
    assert end(0, 1) == end(0, -1) == (0, -1, -1)
    assert end(0, 0, 1) == (75, -1, -1)
    assert end(9, 0) == end(0, 0, topic="no-such") == (3, -1, -1)


def test_the_members_of_two_groups_do_not_meet(machine: Machine) -> None:
    a, b = join(machine), join(machine, group="h", instance_id="i")
    machine.ask(committing(1, member=a, generation=1))
    machine.ask(committing(2, group="h", member=b, generation=1))
    assert asked(machine, committing(2, group="h", member=a, generation=1), 9).topics[0].partitions[0].error_code == 25
    offsets = machine.core.offsets
    assert offsets.of("g")["t", 0].offset == 1 and offsets.of("h")["t", 0].offset == 2


def test_a_commit_wakes_no_fetch_of_the_topic(machine: Machine) -> None:
    machine.ask(producing(a_batch()))
    machine.ask(committing(1))
    assert machine.log().end_offset == 1
