"""Share groups: members, sessions, deliveries, and the state after a crash."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.acl.acls import Acl
from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.requests import request_work
from ottla.brokerlite.machines.share_groups import share_assignor
from ottla.brokerlite.machines.share_partitions import share_sessions, stored_state
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey
from ottla.brokerlite.machines.topics.topics import SHARE_GROUP_STATE
from ottla.codec.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.list_groups import ListGroupsRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.codec.apis.share_fetch import ACCEPT, RECORD_LIMIT, REJECT, RELEASE, RENEW
from ottla.codec.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.codec.records import read_batches
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    DecodeError,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidConfig,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    KafkaStorageError,
    NonEmptyGroup,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tests.brokerlite.machine import TODAY, Machine, a_batch, idempotent, producing, values_of
from tests.brokerlite.sharing import acknowledge, acquired, beat, configure, describe, errors, fetch, progress


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "data")
    yield machine
    machine.folder.abandon()


def topic_id(machine: Machine, name: str = "t") -> UUID:
    return machine.core.topics.by_name[name].topic_id


def ready(machine: Machine, *, partitions: int = 1, batches: int = 3, group: str = "g") -> UUID:
    """A topic with batches of five records in partition 0, and a group that reads it from the beginning."""
    if "t" not in machine.core.topics.by_name:
        machine.core.create_topic("t", partitions, {})
        for first in range(0, batches * 5, 5):
            machine.produce(a_batch(*(b"%d" % (first + i) for i in range(5))))
    assert machine.ask(configure(group, auto_offset_reset="earliest")).responses[0].error_code == 0
    assert machine.ask(beat(group=group)).error_code == 0
    return topic_id(machine)


def assigned(machine: Machine, answer: Any) -> dict[str, tuple[int, ...]]:
    known = machine.core.topics.by_id
    return {known[each.topic_id].name: each.partitions for each in answer.assignment.topic_partitions}


# -- members


def test_members_share_partitions_and_the_last_one_leaves_the_group_empty(machine: Machine) -> None:
    machine.core.create_topic("t", 2, {})
    first = machine.ask(beat("a"))
    assert (first.error_code, assigned(machine, first)) == (0, {"t": (0, 1)})
    second, third = machine.ask(beat("b")), machine.ask(beat("c"))
    again = machine.ask(beat("a", first.member_epoch))
    assert second.member_epoch == first.member_epoch + 1 and again.assignment is None, "it keeps both"
    assert len(assigned(machine, second)["t"]) == len(assigned(machine, third)["t"]) == 1
    described = machine.ask(ShareGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)).groups[0]
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 3)
    for member in ("a", "b", "c"):
        assert machine.ask(beat(member, -1)).member_epoch == -1
    described = machine.ask(ShareGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)).groups[0]
    assert (described.group_state, described.members) == ("Empty", ())


def test_an_unchanged_heartbeat_tells_nothing_and_writes_nothing(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    epoch = machine.ask(beat()).member_epoch
    before = machine.log("__consumer_offsets").end_offset
    answer = machine.ask(beat(epoch=epoch))
    assert (answer.member_epoch, answer.assignment) == (epoch, None)
    assert machine.log("__consumer_offsets").end_offset == before


def test_a_member_that_repeats_a_lost_heartbeat_gets_its_partitions(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    epoch = machine.ask(beat()).member_epoch
    machine.core.add_partitions(machine.core.topics.by_name["t"], 2)
    machine.ask(beat(epoch=epoch))  # the member does not get this answer
    repeated = machine.ask(beat(epoch=epoch, subscribed_topic_names=("t",)))
    assert repeated.member_epoch == epoch + 1 and assigned(machine, repeated) == {"t": (0, 1)}


def test_a_topic_that_comes_later_is_assigned_with_the_next_heartbeat(machine: Machine) -> None:
    joined = machine.ask(beat())
    assert joined.assignment.topic_partitions == ()
    machine.core.create_topic("t", 2, {})
    answer = machine.ask(beat(epoch=joined.member_epoch))
    assert assigned(machine, answer) == {"t": (0, 1)} and answer.member_epoch == joined.member_epoch + 1


def test_partitions_that_are_added_are_assigned_and_begin_like_the_others(machine: Machine) -> None:
    known = ready(machine)
    epoch = machine.ask(beat("n")).member_epoch
    machine.core.add_partitions(machine.core.topics.by_name["t"], 3)
    assert machine.ask(beat("n", epoch)).member_epoch == epoch + 1
    assert machine.core.share_groups.by_id["g"].initialized[known].partitions == {0, 1, 2}
    machine.produce(a_batch(b"early"), partition=2)
    assert acquired(machine.ask(fetch(known, partitions=(2,)))) == {2: [(0, 0, 1)]}


def test_a_silent_member_is_removed(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    epoch = machine.ask(beat()).member_epoch
    machine.pass_time(44.0)
    assert machine.ask(beat(epoch=epoch)).error_code == 0
    machine.pass_time(45.0)
    assert machine.ask(beat(epoch=epoch)).error_code == UnknownMemberId.code


def test_old_epochs_are_fenced_except_the_one_before(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    first = machine.ask(beat("a")).member_epoch
    machine.ask(beat("b"))
    newer = machine.ask(beat("a", first)).member_epoch
    assert newer > first and machine.ask(beat("a", first)).error_code == 0
    for epoch in (first - 1 or 100, newer + 1):
        assert machine.ask(beat("a", epoch)).error_code == FencedMemberEpoch.code


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"member": ""}, InvalidRequest),
        ({"group": ""}, InvalidRequest),
        ({"rack_id": " "}, InvalidRequest),
        ({"subscribed_topic_names": None}, InvalidRequest),
        ({"epoch": -2}, InvalidRequest),
        ({"epoch": 3}, GroupIdNotFound),
        ({"epoch": -1}, GroupIdNotFound),
    ],
)
def test_heartbeats_that_cannot_be(machine: Machine, told: dict[str, Any], error: type[Exception]) -> None:
    assert machine.ask(beat(**told)).error_code == error.code  # type: ignore[attr-defined]
    assert not machine.core.share_groups.by_id


def test_a_group_has_so_many_members_and_no_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", share_groups=ShareGroupSettings(max_members=1, max_share_partitions=3))
    machine.core.create_topic("t", 3, {})
    assert machine.ask(beat("a")).error_code == 0
    assert machine.ask(beat("b")).error_code == GroupMaxSizeReached.code
    assert machine.ask(beat("a")).error_code == 0
    assert machine.ask(beat(group="other")).error_code == CoordinatorNotAvailable.code, "too many share partitions"
    machine.folder.abandon()


def test_many_members_get_about_as_many_partitions_each() -> None:
    topic, members = UUID(int=1), [f"m{i:02}" for i in range(7)]
    subscriptions = dict.fromkeys(members, frozenset((topic,)))
    few = share_assignor.assign(subscriptions, {}, {topic: range(3)})
    holders = [sum(index in each.get(topic, ()) for each in few.values()) for index in range(3)]
    assert all(len(each[topic]) in (1, 2) for each in few.values()) and holders == [3, 3, 3]
    many = share_assignor.assign(subscriptions, few, {topic: range(20)})
    assert sorted(index for each in many.values() for index in each[topic]) == list(range(20))
    kept = [index for member in members for index in few[member][topic] & many[member][topic]]
    assert sorted(kept) == [0, 1, 2], "one of the members that had a partition keeps it"
    other = UUID(int=2)
    subscriptions[members[0]] = frozenset((other,))
    mixed = share_assignor.assign(subscriptions, many, {topic: range(6), other: range(2)})
    assert mixed[members[0]] == {other: {0, 1}} and all(len(mixed[each][topic]) == 1 for each in members[1:])


def test_members_that_keep_their_partitions_take_linear_time() -> None:
    topic = UUID(int=1)

    def taken(members: int) -> float:
        subscriptions = {f"m{i}": frozenset((topic,)) for i in range(members)}
        places = {topic: range(10 * members)}
        present = share_assignor.assign(subscriptions, {}, places)
        start = time.process_time()
        assert share_assignor.assign(subscriptions, present, places) == present
        return time.process_time() - start

    few, many = (min(taken(members) for _ in range(2)) for members in (100, 800))
    assert many < 30 * few, "eight times as many members: 64 times as long, if it were quadratic"


# -- other kinds of groups


def test_a_share_group_is_of_its_own_kind(machine: Machine) -> None:
    ready(machine)
    modern = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        topic_partitions=(),
        subscribed_topic_names=("t",),
    )
    assert machine.ask(modern).error_code == GroupIdNotFound.code
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )
    assert machine.ask(join).error_code == InconsistentGroupProtocol.code
    old = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert machine.ask(old).error_code == UnknownMemberId.code
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),))
    assert machine.ask(commit).topics[0].partitions[0].error_code == GroupIdNotFound.code
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert machine.ask(OffsetFetchRequest(groups=(group,))).groups[0].topics == ()
    assert machine.ask(DescribeGroupsRequest(groups=("g",))).groups[0].error_code == GroupIdNotFound.code
    (listed,) = machine.ask(ListGroupsRequest(types_filter=("Share",))).groups
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        "g",
        "share",
        "Stable",
        "share",
    )
    assert machine.ask(ListGroupsRequest(types_filter=("consumer",))).groups == ()


def test_another_kind_of_group_is_no_share_group(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    machine.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            topic_partitions=(),
            subscribed_topic_names=("t",),
        )
    )
    assert machine.ask(beat()).error_code == GroupIdNotFound.code
    (described,) = machine.ask(ShareGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)).groups
    assert (described.error_code, described.error_message) == (GroupIdNotFound.code, "Group g is not a share group.")
    assert machine.ask(describe()).groups[0].topics == ()


def test_a_group_with_members_cannot_be_deleted_and_an_empty_one_takes_its_progress_along(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.ask(acknowledge(known, 1, {0: [(0, 4, [ACCEPT])]}))
    delete = DeleteGroupsRequest(groups_names=("g",))
    assert machine.ask(delete).results[0].error_code == NonEmptyGroup.code
    machine.ask(beat(epoch=-1))
    assert machine.ask(delete).results[0].error_code == 0
    assert machine.ask(describe()).groups[0].topics == ()
    machine = machine.restart(clean=False)
    assert not machine.core.share_groups.by_id and not len(machine.core.share_states)
    machine.ask(beat())
    assert acquired(machine.ask(fetch(known))) == {0: [(0, 14, 1)]}, "configurations stay"
    machine.folder.abandon()


def test_groups_without_members_stay(machine: Machine) -> None:
    ready(machine)
    machine.ask(beat(epoch=-1))
    machine.pass_time(30 * 24 * 3600.0)
    assert "g" in machine.core.share_groups.by_id


# -- fetching


def test_a_member_gets_the_records_with_their_batches_and_the_time_it_has(machine: Machine) -> None:
    known = ready(machine)
    answer = machine.ask(fetch(known, records=7))
    assert acquired(answer) == {0: [(0, 9, 1)]} and answer.acquisition_lock_timeout_ms == 30_000
    assert values_of(answer.responses[0].partitions[0].records) == [b"%d" % i for i in range(10)]
    answer = machine.ask(fetch(known, 1))
    assert acquired(answer) == {0: [(10, 14, 1)]}
    assert values_of(answer.responses[0].partitions[0].records) == [b"%d" % i for i in range(10, 15)]


def test_the_strict_limit_of_version_2(machine: Machine) -> None:
    known = ready(machine)
    assert acquired(machine.ask(fetch(known, records=2, share_acquire_mode=RECORD_LIMIT))) == {0: [(0, 1, 1)]}


def test_without_records_a_fetch_waits_for_them_and_no_longer_than_it_may(machine: Machine) -> None:
    known = ready(machine, batches=0)
    machine.send(fetch(known, wait=0.5))
    assert machine.poll() == []
    machine.send(producing(a_batch(b"new")))
    answer, _ = machine.poll()
    assert isinstance(answer, Answer) and acquired(answer.message) == {0: [(0, 0, 1)]}
    machine.send(fetch(known, 1, wait=0.5))
    assert machine.poll() == []
    machine.now += 0.5
    (answer,) = machine.poll()
    assert isinstance(answer, Answer) and acquired(answer.message) == {}


def test_a_waiting_fetch_gets_what_another_member_gives_back(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(beat("n"))
    machine.ask(fetch(known))
    ticket = machine.send(fetch(known, member="n", wait=0.5), connection=2)
    assert machine.poll() == []
    machine.send(acknowledge(known, 1, {0: [(5, 9, [RELEASE])]}))
    answers = {each.ticket: each.message for each in machine.poll() if isinstance(each, Answer)}
    assert acquired(answers[ticket]) == {0: [(5, 9, 2)]}


def test_a_waiting_fetch_gets_records_whose_lock_expires(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.now += 29.0
    ticket = machine.send(fetch(known, member="n", wait=5.0), connection=2)
    assert machine.poll() == []
    machine.now += 1.0
    answers = {each.ticket: each.message for each in machine.poll() if isinstance(each, Answer)}
    assert acquired(answers[ticket]) == {0: [(0, 14, 2)]}
    assert errors(machine.ask(acknowledge(known, 1, {0: [(0, 4, [ACCEPT])]}))) == {0: (InvalidRecordState.code, 0)}


def test_a_lost_connection_gives_back_its_records_and_acquires_nothing_more(machine: Machine) -> None:
    known = ready(machine)
    machine.send(fetch(known, records=5), connection=7)
    machine.send(fetch(known, member="n", records=1), connection=8)
    machine.poll()
    machine.core.lost(7, machine.now)
    machine.core.disconnected(7, machine.now)
    machine.send(fetch(known, member="o", wait=5.0), connection=9)
    (answer,) = machine.poll()
    assert isinstance(answer, Answer) and acquired(answer.message)[0] == [(0, 4, 2), (10, 14, 1)]
    machine.send(fetch(known, member="p", wait=5.0), connection=10)
    assert machine.poll() == []
    machine.core.lost(10, machine.now)
    machine.core.disconnected(10, machine.now)
    machine.poll()
    machine.produce(a_batch(b"new"))
    assert acquired(machine.ask(fetch(known, member="q"))) == {0: [(15, 15, 1)]}


@pytest.mark.parametrize(("epoch", "left"), [(-1, [(0, 14, 2), (15, 15, 1)]), (0, [(15, 15, 1)])])
def test_a_fetch_of_a_session_that_is_closed_or_replaced_acquires_nothing(
    machine: Machine, epoch: int, left: list[tuple[int, int, int]]
) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    ticket = machine.send(fetch(known, 1, wait=5.0))
    assert machine.poll() == []
    machine.send(fetch(known, epoch, records=0), connection=2)
    actions = machine.poll()
    machine.send(producing(a_batch(b"new")), connection=2)
    actions += machine.poll()
    answers = {each.ticket: each.message for each in actions if isinstance(each, Answer)}
    assert answers[ticket].error_code == ShareSessionNotFound.code
    assert acquired(machine.ask(fetch(known, member="n"))) == {0: left}


def test_acknowledgements_travel_with_a_fetch(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known, records=5))
    answer = machine.ask(fetch(known, 1, results={0: [(0, 4, [ACCEPT, ACCEPT, REJECT, RELEASE, ACCEPT])]}, records=1))
    assert acquired(answer) == {0: [(3, 3, 2)]} and errors(answer) == {0: (0, 0)}
    answer = machine.ask(fetch(known, 2, results={0: [(3, 4, [ACCEPT])]}, records=1))
    assert errors(answer) == {0: (0, InvalidRecordState.code)} and acquired(answer) == {0: [(5, 9, 1)]}


@pytest.mark.parametrize(
    "batch",
    [(4, 3, [ACCEPT]), (0, 4, []), (0, 4, [ACCEPT] * 4), (0, 4, [7]), (0, 4, [RENEW]), (0, 4, [-1]), (-1, 4, [ACCEPT])],
)
def test_acknowledgements_that_make_no_sense(machine: Machine, batch: tuple[int, int, list[int]]) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    assert errors(machine.ask(acknowledge(known, 1, {0: [batch]}))) == {0: (InvalidRequest.code, 0)}


@pytest.mark.parametrize(
    "request_of", [acknowledge, lambda known, epoch, results: fetch(known, epoch, results=results)]
)
def test_of_a_partition_that_a_request_repeats_the_last_results_count(machine: Machine, request_of: Any) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    first = request_of(known, 1, {0: [(0, 4, [ACCEPT])]})
    last = request_of(known, 1, {0: [(5, 9, [ACCEPT])]})
    assert errors(machine.ask(replace(last, topics=first.topics + last.topics))) == {0: (0, 0)}
    assert errors(machine.ask(acknowledge(known, 2, {0: [(5, 9, [ACCEPT])]}))) == {0: (InvalidRecordState.code, 0)}
    assert errors(machine.ask(acknowledge(known, 3, {0: [(0, 4, [ACCEPT])]}))) == {0: (0, 0)}


def test_results_are_told_if_the_session_is_closed_while_the_fetch_waits(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    ticket = machine.send(fetch(known, 1, results={0: [(0, 4, [ACCEPT])]}, wait=5.0))
    assert machine.poll() == []
    machine.send(fetch(known, -1), connection=2)
    answers = {each.ticket: each.message for each in machine.poll() if isinstance(each, Answer)}
    assert (acquired(answers[ticket]), errors(answers[ticket])) == ({0: []}, {0: (0, 0)})


@pytest.mark.parametrize("error", [KafkaStorageError, CorruptMessage, CoordinatorNotAvailable])
def test_results_are_told_if_the_start_of_another_partition_is_not_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    def fail(*arguments: Any) -> Iterator[Any]:
        if error is CorruptMessage:
            raise DecodeError("damaged")
        raise error("not now")
        yield

    known = ready(machine, partitions=2)
    machine.ask(fetch(known))
    machine.ask(configure(auto_offset_reset="by_duration:PT1H"))
    with monkeypatch.context() as failing:
        if error is CoordinatorNotAvailable:
            failing.setattr(request_work, "MOST_BYTES", 0)
        failing.setattr(machine.log(partition=1), "first_at", fail)
        answer = machine.ask(fetch(known, 1, partitions=(1,), results={0: [(0, 4, [RELEASE])]}))
    assert errors(answer) == {0: (0, 0), 1: (error.code, 0)}
    assert acquired(answer) == {0: [(0, 4, 2)], 1: []}
    assert progress(machine.ask(describe()))["t", 1] == (-1, -1), "its start is searched again"
    assert acquired(machine.ask(fetch(known, 2))) == {1: []}


def test_a_renewed_lock_lasts_longer(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.pass_time(20.0)
    nothing: dict[str, Any] = {"records": 0, "max_bytes": 0, "min_bytes": 0}
    renew = fetch(known, 1, results={0: [(0, 14, [RENEW])]}, is_renew_ack=True, **nothing)
    assert errors(machine.ask(renew)) == {0: (0, 0)}
    machine.pass_time(29.0)
    assert errors(machine.ask(acknowledge(known, 2, {0: [(0, 14, [ACCEPT])]}))) == {0: (0, 0)}
    refused = machine.ask(fetch(known, 3, results={0: [(0, 14, [RENEW])]}, is_renew_ack=True))
    assert refused.error_code == InvalidRequest.code, "it would fetch, too"


# -- sessions


def test_the_epochs_of_a_session_count_up_over_both_kinds_of_requests(machine: Machine) -> None:
    known = ready(machine)
    assert machine.ask(fetch(known, 1)).error_code == ShareSessionNotFound.code
    assert machine.ask(acknowledge(known, 1, {})).error_code == ShareSessionNotFound.code
    assert machine.ask(fetch(known, results={0: [(0, 1, [ACCEPT])]})).error_code == InvalidRequest.code
    assert machine.ask(fetch(known)).error_code == 0
    assert machine.ask(acknowledge(known, 0, {})).error_code == InvalidShareSessionEpoch.code
    assert machine.ask(acknowledge(known, 1, {0: [(0, 4, [ACCEPT])]})).error_code == 0
    assert machine.ask(fetch(known, 1)).error_code == InvalidShareSessionEpoch.code
    assert machine.ask(fetch(known, 2)).error_code == 0
    assert machine.ask(fetch(known, -1)).error_code == 0
    assert machine.ask(acknowledge(known, -1, {})).error_code == ShareSessionNotFound.code


def test_the_end_of_a_session_acknowledges_and_gives_back_the_rest(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    answer = machine.ask(acknowledge(known, -1, {0: [(0, 4, [ACCEPT])]}))
    assert errors(answer) == {0: (0, 0)}
    assert acquired(machine.ask(fetch(known, member="n"))) == {0: [(5, 14, 2)]}


def test_partitions_come_and_go_within_a_session(machine: Machine) -> None:
    known = ready(machine, partitions=2, batches=1)
    machine.produce(a_batch(b"other"), partition=1)
    assert acquired(machine.ask(fetch(known))) == {0: [(0, 4, 1)]}
    assert acquired(machine.ask(fetch(known, 1))) == {}
    assert acquired(machine.ask(fetch(known, 2, partitions=(1,)))) == {1: [(0, 0, 1)]}
    machine.produce(a_batch(b"more"))
    assert acquired(machine.ask(fetch(known, 3, forget=(0,)))) == {}


def test_sessions_are_bounded(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", share_groups=ShareGroupSettings(max_share_sessions=1))
    known = ready(machine)
    assert machine.ask(fetch(known)).error_code == 0
    assert machine.ask(fetch(known)).error_code == 0, "the same member opens it again"
    assert machine.ask(fetch(known, member="n")).error_code == ShareSessionLimitReached.code
    machine.folder.abandon()


def test_a_session_with_too_many_partitions_gives_back_its_records(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_sessions, "MAX_PARTITIONS", 1)
    known = ready(machine, partitions=2)
    machine.ask(fetch(known))
    assert machine.ask(fetch(known, 1, partitions=(1,))).error_code == ShareSessionLimitReached.code
    assert machine.ask(fetch(known, 2)).error_code == ShareSessionNotFound.code
    assert acquired(machine.ask(fetch(known, member="n"))) == {0: [(0, 14, 2)]}
    assert machine.ask(fetch(known, member="n", partitions=(0, 1))).error_code == ShareSessionLimitReached.code


def test_a_session_that_is_refused_lets_its_group_leave_the_memory(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ready(machine, partitions=2)
    machine.ask(fetch(known))
    monkeypatch.setattr(share_sessions, "MAX_PARTITIONS", 1)
    assert machine.ask(fetch(known, partitions=(0, 1))).error_code == ShareSessionLimitReached.code
    machine.pass_time(600.0)
    assert machine.core.share_partitions.find(ShareKey("g", known, 0)) is None


def test_a_group_without_sessions_leaves_the_memory_once_its_last_lock_has_expired(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(configure(record_lock_duration_ms="400000"))
    machine.ask(fetch(known))
    machine.ask(fetch(known, partitions=()))  # replaces the session by one without the partition
    machine.ask(fetch(known, -1))
    key = ShareKey("g", known, 0)
    machine.pass_time(399.0)
    assert machine.core.share_partitions.find(key) is not None
    machine.pass_time(301.0)
    assert machine.core.share_partitions.find(key) is None


def test_partitions_that_cannot_be_read(machine: Machine) -> None:
    known = ready(machine)
    assert errors(machine.ask(fetch(UUID(int=9)))) == {0: (UnknownTopicId.code, 0)}
    assert errors(machine.ask(fetch(known, partitions=(5,)))) == {5: (UnknownTopicOrPartition.code, 0)}
    assert errors(machine.ask(fetch(known, group="stranger"))) == {0: (UnknownTopicOrPartition.code, 0)}
    assert machine.ask(replace(fetch(known), group_id=None)).error_code == InvalidRequest.code
    assert machine.ask(fetch(known, member="m" * 1001)).error_code == InvalidRequest.code
    assert machine.ask(replace(fetch(known), member_id=None)).error_code == InvalidRequest.code


# -- where a group starts, and which records it gets


def test_by_default_a_group_starts_at_the_end_and_misses_nothing_after_a_crash(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    machine.produce(a_batch(b"old"))
    machine.ask(beat())
    known = topic_id(machine)
    assert acquired(machine.ask(fetch(known))) == {0: []}
    machine.produce(a_batch(b"new"))
    assert acquired(machine.ask(fetch(known, 1))) == {0: [(1, 1, 1)]}
    machine = machine.restart(clean=False)
    machine.produce(a_batch(b"newer"))
    assert acquired(machine.ask(fetch(known))) == {0: [(1, 2, 1)]}
    machine.folder.abandon()


def test_a_group_may_start_with_records_of_some_time(machine: Machine) -> None:
    machine.core.create_topic("t", 1, {})
    for hours in (3, 2, 1):
        machine.produce(a_batch(b"%d" % hours, timestamp=TODAY - hours * 3_600_000))
    known = topic_id(machine)
    for duration, expected in (("PT2H30M", [(1, 2, 1)]), ("PT1M", [])):
        group = f"g{duration}"
        machine.ask(configure(group, auto_offset_reset=f"by_duration:{duration}"))
        machine.ask(beat(group=group))
        assert acquired(machine.ask(fetch(known, group=group))) == {0: expected}


def test_read_committed_leaves_out_aborted_and_undecided_records(machine: Machine) -> None:
    known = ready(machine, batches=1)
    machine.ask(configure(isolation_level="read_committed"))
    log = machine.log()
    for producer, first in ((7, b"aborted"), (8, b"undecided")):
        log.append_own(
            a_batch(first, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True), machine.now
        )
    log.end_transaction(7, 0, commit=False, coordinator_epoch=0, timestamp=TODAY)
    assert acquired(machine.ask(fetch(known))) == {0: [(0, 4, 1)]}
    log.end_transaction(8, 0, commit=True, coordinator_epoch=0, timestamp=TODAY)
    assert acquired(machine.ask(fetch(known, 1))) == {0: [(6, 8, 1)]}


def test_a_response_has_acquired_offsets_without_records_too(machine: Machine) -> None:
    """The member must acknowledge them: compaction took their records, and those before were aborted."""
    known = ready(machine, batches=0)
    machine.ask(configure(isolation_level="read_committed", partition_max_record_locks="100"))
    assert acquired(machine.ask(fetch(known))) == {0: []}
    log = machine.log()
    values = (b"%d" % i for i in range(5))
    log.append_own(a_batch(*values, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), machine.now)
    (batch,) = read_batches(a_batch(b"after the gap"))
    batch.base_offset = 200
    log.segments.append(batch)
    log.end_transaction(7, 0, commit=False, coordinator_epoch=0, timestamp=TODAY)
    assert acquired(machine.ask(fetch(known, 1))) == {0: [(5, 99, 1)]}


def test_records_that_were_deleted_are_skipped(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known, records=5))
    partition = DeleteRecordsPartition(partition_index=0, offset=7)
    topic = DeleteRecordsTopic(name="t", partitions=(partition,))
    assert machine.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=1000)).topics[0].partitions[0].error_code == 0
    assert acquired(machine.ask(fetch(known, 1, records=1)))[0] == [(7, 9, 1)]


def test_a_group_follows_its_configurations(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(configure(record_lock_duration_ms="2000", delivery_count_limit="2", heartbeat_interval_ms="1000"))
    assert machine.ask(beat("n")).heartbeat_interval_ms == 1000
    assert machine.ask(fetch(known)).acquisition_lock_timeout_ms == 2000
    machine.pass_time(2.0)
    assert acquired(machine.ask(fetch(known, 1, records=5)))[0][0][2] == 2
    machine.pass_time(2.0)
    assert machine.core.share_states.get(ShareKey("g", known, 0)) is not None
    machine.ask(configure(record_lock_duration_ms=None))
    assert machine.ask(fetch(known, 2)).acquisition_lock_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_offset_reset", "middle"),
        ("auto_offset_reset", "by_duration:-P1D"),
        ("auto_offset_reset", "by_duration:P"),
        ("record_lock_duration_ms", "1"),
        ("delivery_count_limit", "many"),
        ("isolation_level", "read_all"),
        ("nonsense", "1"),
    ],
)
def test_configurations_that_cannot_be(machine: Machine, name: str, value: str) -> None:
    assert machine.ask(configure(**{name: value})).responses[0].error_code == InvalidConfig.code


def test_configurations_are_described_and_survive_a_crash(machine: Machine) -> None:
    machine.ask(configure(auto_offset_reset="earliest", isolation_level="read_committed"))
    machine.ask(configure(isolation_level=None))
    machine = machine.restart(clean=False)
    resource = DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=None)
    described = machine.ask(DescribeConfigsRequest(resources=(resource,), include_synonyms=True)).results[0]
    values = {each.name: (each.value, each.config_source) for each in described.configs}
    assert values["share.auto.offset.reset"] == ("earliest", 8)
    assert values["share.isolation.level"] == ("read_uncommitted", 5)
    assert machine.core.topics.by_name.keys() == set(), "clients do not see where they are stored"
    machine.folder.abandon()


# -- progress


def test_progress_is_described_set_and_deleted(machine: Machine) -> None:
    known = ready(machine, partitions=2)
    assert progress(machine.ask(describe())) == {("t", 0): (-1, -1), ("t", 1): (-1, -1)}
    machine.ask(fetch(known))
    machine.ask(acknowledge(known, 1, {0: [(0, 4, [ACCEPT]), (7, 9, [REJECT])]}))
    assert progress(machine.ask(describe()))["t", 0] == (5, 7)
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=3)
    nowhere = AlterShareGroupOffsetsRequestPartition(partition_index=9, start_offset=3)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=(partition, nowhere))
    alter = AlterShareGroupOffsetsRequest(group_id="g", topics=(topic,))
    delete = DeleteShareGroupOffsetsRequest(group_id="g", topics=(DeleteShareGroupOffsetsRequestTopic(topic_name="t"),))
    assert machine.ask(alter).error_code == machine.ask(delete).error_code == NonEmptyGroup.code
    machine.ask(beat(epoch=-1))
    assert [each.error_code for each in machine.ask(alter).responses[0].partitions] == [
        0,
        UnknownTopicOrPartition.code,
    ]
    assert progress(machine.ask(describe()))["t", 0] == (3, 12)
    machine = machine.restart(clean=False)
    assert acquired(machine.ask(fetch(known))) == {0: [(3, 14, 1)]}
    assert machine.ask(delete).responses[0].error_code == 0
    assert progress(machine.ask(describe())) == {}
    machine.ask(beat())
    assert acquired(machine.ask(fetch(known))) == {0: [(0, 14, 1)]}
    machine.folder.abandon()


def test_the_state_after_a_crash_is_what_was_acknowledged(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.ask(acknowledge(known, 1, {0: [(0, 2, [ACCEPT]), (5, 6, [RELEASE, REJECT]), (10, 10, [ACCEPT])]}))
    machine = machine.restart(clean=False)
    assert machine.core.share_groups.by_id["g"].members.keys() == {"m"}
    share = machine.core.share_partitions.open(ShareKey("g", known, 0), machine.log())
    assert [(run.first, run.last, run.state.name, run.deliveries) for run in share.runs()] == [
        (3, 4, "AVAILABLE", 0),
        (5, 5, "AVAILABLE", 1),
        (6, 6, "ARCHIVED", 1),
        (7, 9, "AVAILABLE", 0),
        (10, 10, "ACKNOWLEDGED", 1),
    ]
    answer = machine.ask(fetch(known))
    assert acquired(answer) == {0: [(3, 4, 1), (5, 5, 2), (7, 9, 1), (11, 14, 1)]}
    assert values_of(answer.responses[0].partitions[0].records) == [b"%d" % i for i in range(15)]
    machine.folder.abandon()


def test_snapshots_bound_what_a_start_has_to_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "UPDATES", 3)
    monkeypatch.setattr(stored_state, "BATCHES", 2)
    known = ready(machine, batches=4)
    machine.ask(fetch(known))
    key = ShareKey("g", known, 0)
    for epoch, offset in enumerate(range(19, 3, -2), 1):
        machine.ask(acknowledge(known, epoch, {0: [(offset, offset, [ACCEPT])]}))
    before = machine.core.share_states.get(key)
    assert before is not None and before.snapshot_epoch > 1 and len(before.since) <= 2
    machine = machine.restart(clean=False)
    after = machine.core.share_states.get(key)
    assert after is not None and (after.batches, after.start_offset, after.final) == (
        before.batches,
        before.start_offset,
        before.final,
    )
    machine.folder.abandon()


def test_a_deleted_topic_takes_its_progress_along(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    assert not len(machine.core.share_states)
    assert errors(machine.ask(fetch(known, 1))) == {0: (UnknownTopicId.code, 0)}


def test_offsets_whose_deletion_a_kill_interrupted_are_deleted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.ask(acknowledge(known, 1, {0: [(0, 9, [ACCEPT])]}))
    machine.ask(beat(epoch=-1))

    def kill(*arguments: Any) -> None:
        raise KafkaStorageError("killed here")

    delete = DeleteShareGroupOffsetsRequest(group_id="g", topics=(DeleteShareGroupOffsetsRequestTopic(topic_name="t"),))
    with monkeypatch.context() as killed:
        killed.setattr(machine.log("__consumer_offsets"), "append_own", kill)
        assert machine.ask(delete).error_code == CoordinatorLoadInProgress.code
    machine = machine.restart(clean=False)
    assert progress(machine.ask(describe())) == {}
    machine.ask(beat())
    assert acquired(machine.ask(fetch(known))) == {0: [(0, 14, 1)]}
    machine.folder.abandon()


def test_states_whose_group_a_kill_left_unstored_are_deleted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.core.create_topic("t", 2, {})
    machine.ask(beat(group="other", subscribed_topic_names=("none",)))

    def kill(*arguments: Any) -> None:
        raise KafkaStorageError("killed here")

    with monkeypatch.context() as killed:
        killed.setattr(machine.log("__consumer_offsets"), "append_own", kill)
        assert machine.ask(beat()).error_code == CoordinatorLoadInProgress.code
    assert len(machine.core.share_states) == 2
    for _ in range(2):
        machine = machine.restart(clean=False)
        assert len(machine.core.share_states) == 0
    machine.folder.abandon()


def test_a_partition_whose_state_is_damaged_begins_again_and_the_others_go_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ready(machine, partitions=2)
    machine.produce(a_batch(b"a", b"b"), partition=1)
    machine.ask(fetch(known, partitions=(0, 1)))
    machine.ask(acknowledge(known, 1, {0: [(0, 9, [ACCEPT])], 1: [(0, 0, [ACCEPT])]}))
    machine.core.share_states.delete([ShareKey("g", known, 0)])  # as if its records could not be read
    machine = machine.restart(clean=False)
    machine.ask(beat())
    assert acquired(machine.ask(fetch(known, partitions=(0, 1)))) == {0: [(0, 14, 1)], 1: [(1, 1, 1)]}
    machine.folder.abandon()


def test_a_fetch_that_waits_for_a_deleted_topic_is_answered(machine: Machine) -> None:
    known = ready(machine, batches=0)
    machine.send(fetch(known, wait=5.0))
    machine.core.delete_topic(machine.core.topics.by_name["t"])
    (answer,) = machine.poll()
    assert isinstance(answer, Answer) and errors(answer.message) == {0: (UnknownTopicId.code, 0)}


def test_results_of_records_that_a_power_cut_took_do_not_count(machine: Machine) -> None:
    known = ready(machine)
    machine.ask(fetch(known))
    machine.ask(acknowledge(known, 1, {0: [(0, 1, [ACCEPT]), (3, 12, [ACCEPT])]}))
    end = machine.log().segments.size // 3
    machine.folder.abandon()
    (segment,) = (machine.folder.path / "t-0").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(end)
    for _ in range(2):
        machine = Machine(machine.folder.path)
        state = machine.core.share_states.get(ShareKey("g", known, 0))
        assert state is not None and machine.log().end_offset == 5
        assert (state.start_offset, state.batches, state.final) == (2, ((3, 4, 2, 1),), 2)
        machine.folder.abandon()
    machine = Machine(machine.folder.path)
    machine.produce(a_batch(b"new"))
    assert acquired(machine.ask(fetch(known))) == {0: [(2, 2, 1), (5, 5, 1)]}
    machine.folder.abandon()


def test_a_topic_that_was_deleted_just_before_a_kill_leaves_no_progress(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(machine)
    with monkeypatch.context() as killed:
        killed.setattr(machine.core.share_groups, "topic_deleted", lambda topic_id: None)
        machine.core.delete_topic(machine.core.topics.by_name["t"])
    assert len(machine.core.share_states) == 1
    machine = machine.restart(clean=False)
    assert not len(machine.core.share_states) and not machine.core.share_groups.by_id["g"].initialized
    machine.folder.abandon()


def test_a_full_disk_loses_no_result_and_no_record(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ready(machine)
    machine.ask(fetch(known))

    def refuse(*arguments: Any) -> None:
        raise KafkaStorageError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(machine.log(SHARE_GROUP_STATE), "append_own", refuse)
        full.setattr(machine.log("__consumer_offsets"), "append_own", refuse)
        answer = machine.ask(acknowledge(known, 1, {0: [(0, 14, [ACCEPT])]}))
        assert errors(answer) == {0: (CoordinatorNotAvailable.code, 0)}
        assert machine.ask(beat("n")).error_code == CoordinatorLoadInProgress.code
        machine.pass_time(30.0)
        assert acquired(machine.ask(fetch(known, 2, records=1))) == {0: [(0, 14, 2)]}
    assert errors(machine.ask(acknowledge(known, 3, {0: [(0, 14, [ACCEPT])]}))) == {0: (0, 0)}


def test_rights(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "data", acls=AclSettings(super_users=frozenset({"User:root"}), allow_if_none=False))
    machine.core.create_topic("t", 1, {})
    known = topic_id(machine)
    user = "User:u"
    assert machine.ask(beat(), principal=user).error_code == GroupAuthorizationFailed.code
    assert machine.ask(fetch(known), principal=user).error_code == GroupAuthorizationFailed.code
    assert machine.ask(acknowledge(known, 1, {}), principal=user).error_code == GroupAuthorizationFailed.code
    assert machine.ask(describe(), principal=user).groups[0].error_code == GroupAuthorizationFailed.code
    assert machine.ask(configure(isolation_level="read_committed"), principal=user).responses[0].error_code == (
        GroupAuthorizationFailed.code
    )
    acl = Acl(ResourceType.GROUP, "g", PatternType.LITERAL, user, "*", AclOperation.READ, AclPermissionType.ALLOW)
    machine.core.acls.create([acl])
    assert machine.ask(beat(), principal=user).error_code == TopicAuthorizationFailed.code
    machine.ask(beat(), principal="User:root")
    assert errors(machine.ask(fetch(known), principal=user)) == {0: (TopicAuthorizationFailed.code, 0)}
    machine.folder.abandon()


def test_duplicates_of_a_producer_are_delivered_once(machine: Machine) -> None:
    known = ready(machine, batches=0)
    machine.produce(idempotent(0, 3), idempotent(0, 3))
    assert acquired(machine.ask(fetch(known))) == {0: [(0, 2, 1)]}
