"""Requests to consumer groups that Apache Kafka answers at other times, or not at all: patterns, limits, timeouts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.acl.acls import Acl
from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.consumer_groups import consumer_group_log, subscriptions, target
from ottla.brokerlite.machines.consumer_groups.assignors import Candidate, java_order, range_, uniform
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings, MigrationPolicy
from ottla.brokerlite.machines.consumer_groups.member import MemberProgress
from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS
from ottla.codec.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.codec.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    build_assignment,
    build_subscription,
    parse_assignment,
)
from ottla.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    DecodeError,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidSessionTimeout,
    KafkaStorageError,
    MemberIdRequired,
    RebalanceInProgress,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnsupportedVersion,
)
from tests.brokerlite.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "data")
    yield machine
    machine.folder.abandon()


def beat(machine: Machine, member_id: str = "m", epoch: int = 0, **told: Any) -> Any:
    usual: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        usual |= {"rebalance_timeout_ms": 60_000, "topic_partitions": ()}
    principal = told.pop("principal", None)
    request = ConsumerGroupHeartbeatRequest(**usual | told)
    return machine.ask(request, 1) if principal is None else machine.ask(request, 1, principal=principal)


def names(machine: Machine, answer: Any) -> dict[str, tuple[int, ...]]:
    known = machine.core.topics.by_id
    return {known[each.topic_id].name: each.partitions for each in answer.assignment.topic_partitions}


def test_a_pattern_finds_topics_that_exist_and_those_that_come(machine: Machine) -> None:
    for name in ("ta", "tb", "other"):
        machine.core.create_topic(name, 1, {})
    joined = beat(machine, subscribed_topic_regex="t.*")
    assert joined.error_code == 0 and names(machine, joined) == {"ta": (0,), "tb": (0,)}
    machine.core.create_topic("tc", 2, {})
    assert names(machine, beat(machine, epoch=joined.member_epoch)) == {"ta": (0,), "tb": (0,), "tc": (0, 1)}
    machine = machine.restart(clean=False)
    group = machine.core.consumer_groups.by_id["g"]
    assert group.patterns["t.*"].topics == {"ta", "tb", "tc"} and group.topics == {"ta", "tb", "tc"}
    machine.folder.abandon()


def test_after_an_unrelated_topic_comes_each_pattern_is_resolved_once_and_nothing_is_stored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.core.create_topic("ta", 1, {})
    joined = beat(machine, subscribed_topic_regex="t.*")
    machine.core.create_topic("unrelated", 1, {})
    before = machine.log(CONSUMER_OFFSETS).end_offset
    resolved = []

    def counting(pattern: str, *others: Any) -> subscriptions.ResolvedPattern:
        resolved.append(pattern)
        return subscriptions.resolve(pattern, *others)

    monkeypatch.setattr(target, "resolve", counting)
    for _ in range(5):
        assert beat(machine, epoch=joined.member_epoch).member_epoch == joined.member_epoch
    assert resolved == ["t.*"]
    assert machine.log(CONSUMER_OFFSETS).end_offset == before


def test_a_topic_created_after_a_restart_is_found_whatever_the_count_of_topics_was_before(machine: Machine) -> None:
    for name in ("ta", "x", "y"):
        machine.core.create_topic(name, 1, {})
    beat(machine, "other", subscribed_topic_names=("x",))  # creates the topic of the groups
    for name in ("x", "y"):
        machine.core.topics.delete(machine.core.topics.by_name[name])
    joined = beat(machine, subscribed_topic_regex="t.*")
    then = machine.core.topics.version
    machine = machine.restart(clean=False)
    while machine.core.topics.version < then:
        machine.core.create_topic(f"t{machine.core.topics.version}", 1, {})
    owned = beat(machine, epoch=joined.member_epoch, topic_partitions=())
    assert names(machine, owned).keys() == set(machine.core.topics.by_name) - {CONSUMER_OFFSETS}
    machine.folder.abandon()


def test_an_invalid_pattern_is_refused_by_name(machine: Machine) -> None:
    answer = beat(machine, subscribed_topic_regex="t(")
    assert answer.error_code == InvalidRegularExpression.code and "`t(`" in answer.error_message
    assert not machine.core.consumer_groups.by_id


@pytest.mark.parametrize(
    ("pattern", "says"),
    [(r"\pL{300}|x", "pattern too large"), ("a" * 2001, "has 2001 characters; this broker takes at most 2000")],
)
def test_a_pattern_that_would_take_much_memory_is_refused(machine: Machine, pattern: str, says: str) -> None:
    answer = beat(machine, subscribed_topic_regex=pattern)
    assert answer.error_code == InvalidRegularExpression.code and says in answer.error_message
    assert subscriptions.compiled.cache_parameters()["maxsize"] == 100


def test_a_pattern_may_name_many_topics(machine: Machine) -> None:
    pattern = "|".join(f"a-topic-{number:03}" for number in range(140)) + "|t"
    assert beat(machine, subscribed_topic_regex=pattern).error_code == 0


def test_without_re2_a_pattern_is_refused_with_the_name_of_the_extra(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    subscriptions.compiled.cache_clear()
    answer = beat(machine, subscribed_topic_regex="t.*")
    assert answer.error_code == UnsupportedVersion.code and "ottla[re2]" in answer.error_message


def test_a_silent_member_loses_its_partitions_to_the_others(machine: Machine) -> None:
    machine.core.create_topic("t", 2, {})
    beat(machine, "a", subscribed_topic_names=("t",))
    second = beat(machine, "b", subscribed_topic_names=("t",))
    for _ in range(10):
        machine.pass_time(5.0)
        answer = beat(machine, "b", second.member_epoch)
        second = answer if answer.error_code == 0 else second
    assert names(
        machine,
        beat(
            machine,
            "b",
            second.member_epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        ),
    ) == {"t": (0, 1)}
    assert beat(machine, "a", 2).error_code == UnknownMemberId.code


def test_a_group_has_so_many_members_and_no_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", consumer_groups=ConsumerGroupSettings(max_members=1))
    assert beat(machine, "a", subscribed_topic_names=("t",)).error_code == 0
    assert beat(machine, "b", subscribed_topic_names=("t",)).error_code == GroupMaxSizeReached.code
    assert beat(machine, "a", subscribed_topic_names=("t",)).error_code == 0
    machine.folder.abandon()


@pytest.mark.parametrize("policy", MigrationPolicy)
def test_the_migration_policy_decides_which_groups_change_their_protocol(
    tmp_path: Path, policy: MigrationPolicy
) -> None:
    machine = Machine(tmp_path / "data", consumer_groups=ConsumerGroupSettings(migration_policy=policy))
    machine.core.create_topic("t", 1, {})
    subscription = build_subscription(ConsumerProtocolSubscription(topics=("t",)), 1)

    def classic(group: str) -> Any:
        return machine.ask(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id="",
                group_instance_id="i",
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
            )
        )

    assert classic("g").error_code == 0
    upgraded = beat(machine, subscribed_topic_names=("t",)).error_code
    assert upgraded == (0 if policy.upgrades else GroupIdNotFound.code)
    beat(machine, subscribed_topic_names=("t",), group_id="h")
    joined = classic("h").error_code
    assert joined == (InconsistentGroupProtocol.code if policy is MigrationPolicy.DISABLED else 0)
    if not joined:
        beat(machine, epoch=-1, group_id="h")
        group = machine.core.groups.get("h")
        assert group is not None and group.kind == ("classic" if policy.downgrades else "consumer")
    machine.folder.abandon()


def test_a_downgrade_before_a_crash_ends_with_all_partitions_read(machine: Machine) -> None:
    machine.core.create_topic("t", 2, {})
    epoch = beat(machine, "new", subscribed_topic_names=("t",)).member_epoch
    old = join(machine, instance_id="i")
    assert old.error_code == 0
    epoch = beat(machine, "new", epoch).member_epoch
    topic_id = machine.core.topics.by_name["t"].topic_id
    beat(machine, "new", epoch, topic_partitions=(TopicPartitions(topic_id=topic_id, partitions=(0,)),))
    old = join(machine, old.member_id, instance_id="i")
    assert sync(machine, old) == {"t": (1,)}
    assert beat(machine, "new", -1).error_code == 0
    machine = machine.restart(clean=False)
    assert machine.ask(heartbeat(old, "i")).error_code == RebalanceInProgress.code
    old = join(machine, old.member_id, instance_id="i")
    assert old.error_code == 0 and old.leader == old.member_id and len(old.members) == 1
    assert sync(machine, old, {"t": (0, 1)}) == {"t": (0, 1)}
    machine = machine.restart(clean=False)
    group = machine.core.groups.get("g")
    assert group is not None and group.kind == "classic" and group.state_name == "Stable"
    machine.folder.abandon()


def test_a_member_that_waits_for_partitions_joins_again_when_a_static_member_makes_the_group_classic(
    machine: Machine,
) -> None:
    machine.core.create_topic("t", 6, {})
    beat(machine, "new", instance_id="i", subscribed_topic_names=("t",))
    first = join(machine, instance_id="1").member_id
    give_up(machine, "new", "i")
    join(machine, first, instance_id="1")
    second = join(machine, instance_id="2").member_id
    give_up(machine, "new", "i")
    waits = join(machine, second, instance_id="2")
    group = machine.core.consumer_groups.by_id["g"]
    assert group.members[second].state is MemberProgress.UNRELEASED
    join(machine, first, instance_id="1")  # gives up the partition for which the second member waits
    assert group.members[first].is_reconciled_to(group.target_epoch)
    beat(machine, "new", -2, instance_id="i")
    assert join(machine, instance_id="i").error_code == 0
    classic = machine.core.groups.get("g")
    assert classic is not None and classic.kind == "classic"
    assert machine.ask(heartbeat(waits, "2")).error_code == RebalanceInProgress.code


def give_up(machine: Machine, member_id: str, instance_id: str) -> None:
    """Have a member of the new protocol give up the partitions that its heartbeat names."""
    members = machine.core.consumer_groups.by_id["g"].members
    beat(machine, member_id, members[member_id].epoch, instance_id=instance_id)
    kept = tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(each))
        for topic_id, each in members[member_id].assigned.items()
    )
    beat(machine, member_id, members[member_id].epoch, instance_id=instance_id, topic_partitions=kept)


def heartbeat(joined: Any, instance_id: str) -> HeartbeatRequest:
    """The heartbeat of a classic member."""
    return HeartbeatRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
    )


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"session_timeout_ms": 10**9}, InvalidSessionTimeout),
        ({"member_id": "of yesterday"}, UnknownMemberId),
        ({"protocols": ()}, InconsistentGroupProtocol),
        ({"protocols": (JoinGroupRequestProtocol(name="p", metadata=bytes(2000)),)}, GroupMaxSizeReached),
        ({"member_id": ""}, CoordinatorNotAvailable),
    ],
)
def test_an_empty_group_and_its_offsets_outlast_a_join_that_is_refused(
    tmp_path: Path, told: dict[str, Any], error: type[BrokerError]
) -> None:
    full = error is CoordinatorNotAvailable
    settings = GroupSettings(max_groups=0 if full else 1, max_group_bytes=1000)
    machine = Machine(tmp_path / "data", groups=settings)
    machine.core.create_topic("t", 1, {})
    epoch = beat(machine, subscribed_topic_names=("t",)).member_epoch
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
    machine.ask(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id="m", topics=topics), 9)
    beat(machine, epoch=-1)
    end = machine.log(CONSUMER_OFFSETS).end_offset
    refused = join(machine, **told)
    kept = told.get("member_id", "")
    assert (refused.error_code, refused.member_id) == (error.code, kept)
    group = machine.core.groups.get("g")
    assert group is not None and group.kind == "consumer" and machine.log(CONSUMER_OFFSETS).end_offset == end
    if not full:
        assert join(machine).error_code == MemberIdRequired.code
        group = machine.core.groups.get("g")
        assert group is not None and group.kind == "classic"
    machine.folder.abandon()


def test_a_full_disk_lets_the_first_classic_member_of_an_empty_group_wait(machine: Machine) -> None:
    beat(machine, subscribed_topic_names=("t",))
    beat(machine, epoch=-1)
    with full_disk(machine):
        assert join(machine).error_code == CoordinatorLoadInProgress.code
    assert join(machine).error_code == MemberIdRequired.code


@contextmanager
def full_disk(machine: Machine) -> Iterator[None]:
    """Let the disk refuse the records of groups."""

    def refuse(*args: object) -> None:
        raise KafkaStorageError("the disk is full")

    log = machine.core.offsets_log
    log.write = refuse  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del log.write


def test_a_member_that_is_back_before_the_disk_takes_its_removal_stays(machine: Machine) -> None:
    joined = beat(machine, subscribed_topic_names=("t",))
    with full_disk(machine):
        machine.pass_time(45.5)
    assert beat(machine, epoch=joined.member_epoch).error_code == 0
    machine.pass_time(30.0)
    assert beat(machine, epoch=joined.member_epoch).error_code == 0
    machine.pass_time(46.0)
    assert beat(machine, epoch=joined.member_epoch).error_code == UnknownMemberId.code


def must_give_up(machine: Machine, **told: Any) -> int:
    """Let member "m" have partitions of which "other" shall get some; return the epoch of "m"."""
    machine.core.create_topic("t", 2, {})
    beat(machine, subscribed_topic_names=("t",), rebalance_timeout_ms=10_000, **told)
    beat(machine, "other", subscribed_topic_names=("t",))
    epoch: int = beat(machine, epoch=2, **told).member_epoch
    assert machine.core.consumer_groups.by_id["g"].members["m"].state is MemberProgress.UNREVOKED
    return epoch


def test_a_member_that_keeps_its_partitions_is_removed_when_the_disk_allows_it_though_it_sends_heartbeats(
    machine: Machine,
) -> None:
    epoch = must_give_up(machine)
    with full_disk(machine):
        machine.pass_time(10.5)
    assert beat(machine, epoch=epoch).error_code == 0
    machine.pass_time(1.0)
    assert beat(machine, epoch=epoch).error_code == UnknownMemberId.code


@pytest.mark.parametrize("restarted", [False, True])
def test_a_static_member_that_left_for_a_while_need_not_give_up_partitions_in_time(
    machine: Machine, restarted: bool
) -> None:
    must_give_up(machine, instance_id="i")
    assert beat(machine, epoch=-2, instance_id="i").error_code == 0
    if restarted:
        machine = machine.restart(clean=False)
    machine.pass_time(30.0)
    group = machine.core.consumer_groups.by_id["g"]
    assert group.members.keys() == {"m", "other"}
    assert beat(machine, "new", instance_id="i", subscribed_topic_names=("t",)).error_code == 0
    assert group.members.keys() == {"new", "other"}
    machine.folder.abandon()


def test_a_group_is_upgraded_in_its_first_rebalance(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", groups=GroupSettings(initial_rebalance_delay=3.0))
    machine.core.create_topic("t", 2, {})
    member_id = join(machine).member_id
    waiting = machine.send(joining(member_id))
    assert machine.poll() == []
    upgrading = machine.send(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="new",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
    )
    answers = {each.ticket: each.message.error_code for each in machine.poll() if isinstance(each, Answer)}
    assert answers == {waiting: RebalanceInProgress.code, upgrading: 0}
    joined = join(machine, member_id)
    group = machine.core.consumer_groups.by_id["g"]
    assert joined.error_code == 0 and group.members.keys() == {"new", member_id}
    assert group.members[member_id].topics == {"t"}
    machine.folder.abandon()


def test_a_group_whose_epoch_is_damaged_on_disk_assigns_new_partitions(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.core.create_topic("t", 1, {})
    for i in range(5):
        beat(machine, f"m{i}", subscribed_topic_names=("t",))
        beat(machine, f"m{i}", epoch=-1)
    epoch = beat(machine, subscribed_topic_names=("t",)).member_epoch
    monkeypatch.setattr(consumer_group_log, "_READERS", {**consumer_group_log._READERS, 3: damaged})
    machine = machine.restart(clean=False)
    topic = CreatePartitionsTopic(name="t", count=2, assignments=None)
    machine.ask(CreatePartitionsRequest(topics=(topic,), timeout_ms=1000, validate_only=False), 3)
    answer = beat(machine, epoch=epoch)
    assert answer.error_code == 0 and answer.member_epoch > epoch and names(machine, answer) == {"t": (0, 1)}
    machine.folder.abandon()


def damaged(key: bytes, value: bytes, piece: object) -> str:
    raise DecodeError("a test has damaged this record")


def test_groups_that_change_their_protocol_count_too(tmp_path: Path) -> None:
    one = Machine(tmp_path / "one", consumer_groups=ConsumerGroupSettings(max_groups=1))
    for group_id in ("g", "h"):
        assert join(one, group_id=group_id, instance_id="i").error_code == 0
    join(one, group_id="empty")
    assert beat(one, subscribed_topic_names=("t",)).error_code == 0
    for group_id in ("h", "empty"):
        answer = beat(one, subscribed_topic_names=("t",), group_id=group_id)
        assert answer.error_code == CoordinatorNotAvailable.code
    one.folder.abandon()
    machine = Machine(tmp_path / "none", groups=GroupSettings(max_groups=1))
    beat(machine, subscribed_topic_names=("t",))
    joined = join(machine, instance_id="i")
    assert join(machine, group_id="h", instance_id="i").error_code == 0
    assert beat(machine, epoch=-1).error_code == 0
    group = machine.core.groups.get("g")
    assert group is not None and group.kind == "consumer" and list(group.members) == [joined.member_id]
    machine.folder.abandon()


def test_long_member_ids_count_as_memory_of_the_group(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", consumer_groups=ConsumerGroupSettings(max_group_bytes=10_000))
    assert beat(machine, "a" * 1000, subscribed_topic_names=("t",)).error_code == 0
    assert beat(machine, "b" * 2000, subscribed_topic_names=("t",)).error_code == GroupMaxSizeReached.code
    machine.folder.abandon()


def join(machine: Machine, member_id: str = "", **told: Any) -> Any:
    """Join as a classic member; the answer comes at once."""
    return machine.ask(joining(member_id, **told))


def joining(member_id: str = "", *, instance_id: str | None = None, **told: Any) -> JoinGroupRequest:
    subscription = build_subscription(ConsumerProtocolSubscription(topics=("t",)), 1)
    usual: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name="range", metadata=subscription),),
    }
    return JoinGroupRequest(**usual | told)


def sync(machine: Machine, joined: Any, plan: dict[str, tuple[int, ...]] | None = None) -> dict[str, tuple[int, ...]]:
    """Get the assignment of a classic member, which is alone if it assigns ``plan`` itself."""
    given = (
        ()
        if plan is None
        else (
            SyncGroupRequestAssignment(
                member_id=joined.member_id,
                assignment=build_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=tuple(TopicPartition(topic=t, partitions=p) for t, p in plan.items())
                    ),
                    1,
                ),
            ),
        )
    )
    answer = machine.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
    )
    assert answer.error_code == 0
    return {each.topic: each.partitions for each in parse_assignment(bytes(answer.assignment))[1].assigned_partitions}


def test_members_need_rights_and_patterns_show_only_topics_that_they_may_describe(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", acls=AclSettings(super_users=frozenset(("User:admin",)), allow_if_none=False))
    for name in ("t", "secret"):
        machine.core.create_topic(name, 1, {})
    anna = "User:anna"
    assert beat(machine, subscribed_topic_names=("t",), principal=anna).error_code == GroupAuthorizationFailed.code
    allow(machine, ResourceType.GROUP, "g", AclOperation.READ)
    assert beat(machine, subscribed_topic_names=("t",), principal=anna).error_code == TopicAuthorizationFailed.code
    allow(machine, ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
    answer = beat(machine, subscribed_topic_regex=".*", principal=anna)
    assert names(machine, answer) == {"t": (0,)}
    assert beat(machine, "admins", subscribed_topic_names=("secret",), principal="User:admin").error_code == 0
    request = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=True)
    (seen,) = machine.ask(request, 1, principal=anna).groups
    assert seen.error_code == TopicAuthorizationFailed.code and not seen.members
    (seen,) = machine.ask(request, 1, principal="User:admin").groups
    assert seen.error_code == 0 and len(seen.members) == 2 and seen.authorized_operations > 0
    machine.folder.abandon()


def allow(machine: Machine, kind: ResourceType, name: str, operation: AclOperation) -> None:
    acl = Acl(kind, name, PatternType.LITERAL, "User:anna", "*", operation, AclPermissionType.ALLOW)
    machine.core.acls.create([acl])


def test_uniform_moves_no_partition_that_can_stay() -> None:
    topic = UUID(int=1)
    before = {name: Candidate(frozenset((topic,))) for name in ("a", "b")}
    first = uniform(before, {topic: 7})
    held = {name: Candidate(frozenset((topic,)), first[name]) for name in before}
    second = uniform({**held, "c": Candidate(frozenset((topic,)))}, {topic: 7})
    assert sorted(len(each[topic]) for each in second.values()) == [2, 2, 3]
    assert all(second[name][topic] <= first[name][topic] for name in before)


def test_range_gives_the_first_members_one_more_and_static_members_come_first() -> None:
    topic = UUID(int=1)
    members = {"a": Candidate(frozenset((topic,))), "z": Candidate(frozenset((topic,)), {}, "instance")}
    assert range_(members, {topic: 3}) == {"z": {topic: frozenset((0, 1))}, "a": {topic: frozenset((2,))}}


def test_members_are_in_the_order_of_javas_hash_table() -> None:
    """As ``new HashMap(...).keySet()`` of these names has them."""
    assert java_order(["range", "uniform", "m3", "m0"]) == ["uniform", "m0", "m3", "range"]
