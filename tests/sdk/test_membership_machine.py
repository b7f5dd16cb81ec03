"""A member of a group: its notifications to the consumer, and its reactions to the coordinator."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.codec.consumer_protocol import parse_subscription
from ottla.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    OttlaError,
    PolicyViolation,
    RebalanceInProgress,
    TimeoutExpired,
    UnknownMemberId,
    UnknownServerError,
    broker_error,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.group.assignors import (
    ASSIGNORS,
    Assignor,
    Member,
    Partitions,
    build_assigned,
    build_subscription,
    parse_assigned,
)
from ottla.sdk.group.classic_member import ClassicMember
from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.heartbeats import Heartbeats
from ottla.sdk.group.member_states import TRANSITIONS, MemberInput, MemberState
from ottla.sdk.group.membership import AssignmentChange, Lose, Receive, Revoke
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.group.seat import Seat
from ottla.sdk.options import Options
from tests.sdk.coordinator import Coordinator

GROUP = "billing"
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
ME = "me-1"


class InGroup:
    """One member of ottla's; the test plays the coordinator."""

    def __init__(
        self,
        *assignors: str | Assignor,
        instance_id: str | None = None,
        topics: dict[str, int] | None = None,
        rack: str | None = None,
    ) -> None:
        self.world = Coordinator({"t": 3} if topics is None else topics, Options(rack=rack))
        options = MemberOptions(
            assignors=tuple(ASSIGNORS[each] if isinstance(each, str) else each for each in assignors or ("range",)),
            instance_id=instance_id,
        )
        self.notified: list[AssignmentChange | None] = []
        self.member = ClassicMember(
            self.world.core, GROUP, options, "group-1", lambda change, now: self.notified.append(change)
        )
        self.member.subscribe(("t",), 0.0)
        self.member.join(0.0)
        self.world.run()

    @property
    def join(self) -> JoinGroupRequest:
        return self.world.asked(JoinGroupRequest)

    @property
    def sync(self) -> SyncGroupRequest:
        return self.world.asked(SyncGroupRequest)

    @property
    def changes(self) -> list[tuple[type[AssignmentChange], tuple[tuple[str, int], ...]]]:
        return [(type(change), change.places) for change in self.member.changes]

    def refuse(self, error: type[BrokerError], member_id: str = "") -> None:
        """Answer the pending JoinGroup with an error."""
        answer = JoinGroupResponse(
            error_code=error.code, protocol_name="", leader="", member_id=member_id, members=(), generation_id=-1
        )
        self.world.answer(self.join, answer)

    def joined(self, generation: int, *, leader: bool = False, protocol: str = "range") -> None:
        """Answer JoinGroup: all members have joined. The leader also gets the subscription of another member."""
        join = self.join
        mine = next(each.metadata for each in join.protocols if each.name == protocol)
        theirs = build_subscription(ASSIGNORS[protocol], ["t"])
        members = (
            JoinGroupResponseMember(member_id=ME, metadata=mine),
            JoinGroupResponseMember(member_id="other-1", metadata=theirs),
        )
        answer = JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=protocol,
            leader=ME if leader else "other-1",
            member_id=ME,
            members=members if leader else (),
        )
        self.world.answer(join, answer)

    def synced(self, *places: tuple[str, int]) -> None:
        self.world.answer(self.sync, SyncGroupResponse(error_code=0, assignment=build_assigned(places)))

    def sync_refused(self, error: type[BrokerError]) -> None:
        self.world.answer(self.sync, SyncGroupResponse(error_code=error.code, assignment=b""))

    def beat(self, error: type[BrokerError] | None = None) -> None:
        """Wait for a heartbeat and answer it."""
        self.world.later(3.0)
        self.world.answer(self.world.asked(HeartbeatRequest), HeartbeatResponse(error_code=error.code if error else 0))

    def settle(self, generation: int, *places: tuple[str, int], protocol: str = "range") -> None:
        """Become stable with these partitions, and let the consumer accept them."""
        self.joined(generation, protocol=protocol)
        self.synced(*places)
        while self.member.changes:
            self.member.done(self.member.changes[0], self.world.now)
        self.world.run()


def test_a_member_joins_hears_what_it_gets_and_sends_heartbeats() -> None:
    group = InGroup()
    group.joined(1)
    assert group.sync.assignments == ()
    group.synced(T0, T1)
    assert group.changes == [(Receive, (T0, T1))]
    assert group.member.state is MemberState.STABLE and group.member.identity is not None
    group.beat()
    assert group.world.waiting == [] and group.member.owned == (T0, T1)


def test_the_leader_divides_the_partitions_among_all_members() -> None:
    group = InGroup()
    group.joined(1, leader=True)
    given = {each.member_id: parse_assigned(each.assignment) for each in group.sync.assignments}
    assert given == {ME: (T0, T1), "other-1": (T2,)}


@pytest.mark.parametrize("error", [None, RebalanceInProgress])
def test_a_leader_sends_heartbeats_while_it_divides_the_partitions(error: type[BrokerError] | None) -> None:
    group = InGroup()
    group.world.slow = True
    group.joined(1, leader=True)
    for _ in range(2):
        assert group.world.pending(SyncGroupRequest) == []
        group.beat(error)  # older brokers say that the group rebalances, as the leader knows
    group.world.catch_up()
    assert group.sync.generation_id == 1 and group.world.pending(HeartbeatRequest) == []
    group.synced(T0)
    group.beat()


def test_a_leader_that_is_expelled_while_it_divides_the_partitions_joins_again() -> None:
    group = InGroup()
    group.world.slow = True
    group.joined(1, leader=True)
    group.beat(UnknownMemberId)
    assert group.join.member_id == "" and group.world.pending(SyncGroupRequest) == []


def test_a_member_that_is_asked_to_come_with_an_id_comes_again_with_it() -> None:
    group = InGroup()
    assert group.join.member_id == ""
    group.refuse(MemberIdRequired, "me-7")
    assert group.join.member_id == "me-7"


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator])
def test_joining_goes_on_when_the_coordinator_is_elsewhere_or_not_ready(error: type[BrokerError]) -> None:
    group = InGroup()
    lookups = group.world.lookups
    group.refuse(error)
    group.world.later(2.0)
    assert group.join.group_id == GROUP
    assert group.world.lookups == lookups + (error is not CoordinatorLoadInProgress)


@pytest.mark.parametrize("request_", ["JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_coordinator_that_fails_once_ends_no_membership(request_: str, caplog: pytest.LogCaptureFixture) -> None:
    group = InGroup()
    if request_ == "JoinGroup":
        group.refuse(UnknownServerError)
        group.world.later(2.0)
    elif request_ == "SyncGroup":
        group.joined(1)
        group.sync_refused(UnknownServerError)
        group.world.later(2.0)
    group.settle(2, T0)
    if request_ == "Heartbeat":
        group.beat(UnknownServerError)
        group.world.later(0.2)  # the retry, before the next heartbeat interval
        group.world.answer(group.world.asked(HeartbeatRequest), HeartbeatResponse(error_code=0))
    assert group.member.state is MemberState.STABLE and group.member.owned == (T0,) and group.member.failed is None
    assert sum("group coordinator failed, retrying" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize(
    "error",
    [
        FencedInstanceId,
        GroupAuthorizationFailed,
        GroupMaxSizeReached,
        InconsistentGroupProtocol,
        InvalidSessionTimeout,
        PolicyViolation,
    ],
)
def test_what_no_repetition_mends_ends_the_membership_with_the_error(error: type[BrokerError]) -> None:
    group = InGroup()
    group.refuse(error)
    group.world.later(60.0)
    assert isinstance(group.member.failed, error) and group.member.state is MemberState.FAILED
    assert group.world.waiting == []


def test_eager_members_give_everything_up_before_they_join_again() -> None:
    group = InGroup()
    group.settle(1, T0, T1)
    group.beat(RebalanceInProgress)
    assert group.changes == [(Revoke, (T0, T1))] and group.member.state is MemberState.REVOKING
    assert group.world.pending(JoinGroupRequest) == []
    group.beat(RebalanceInProgress)  # the listener takes its time, while heartbeats keep the member alive
    group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    assert group.join.member_id == ME and group.member.owned == ()
    group.joined(2)
    group.synced(T2)
    assert group.changes == [(Receive, (T2,))]


def test_cooperative_members_keep_what_they_have_and_give_up_only_what_others_get() -> None:
    group = InGroup("cooperative-sticky")
    group.settle(1, T0, T1, protocol="cooperative-sticky")
    group.beat(RebalanceInProgress)
    assert group.changes == [] and group.member.owned == (T0, T1)
    _, told = parse_subscription(group.join.protocols[0].metadata)
    assert told.generation_id == 1 and told.owned_partitions[0].partitions == (0, 1)
    assert group.member.identity is not None, "the member may commit while the others join"
    group.joined(2, protocol="cooperative-sticky")
    assert group.member.identity is None, "commits wait for the new generation"
    group.synced(T0)
    assert group.changes == [(Revoke, (T1,))] and group.member.state is MemberState.REVOKING
    group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    _, told = parse_subscription(group.join.protocols[0].metadata)
    assert told.generation_id == 2 and told.owned_partitions[0].partitions == (0,)


def test_assigned_and_revoked_partitions_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.sdk.consumer")
    group = InGroup()
    group.settle(1, T0, T1)
    group.beat(RebalanceInProgress)
    group.member.done(group.member.changes[0], group.world.now)
    lines = [(each.__dict__["msg"].event, each.__dict__.get("partitions")) for each in caplog.records]
    assert lines == [
        ("partitions assigned", ["t-0", "t-1"]),
        ("rebalance started", None),
        ("partitions revoked", ["t-0", "t-1"]),
    ]


def test_a_commit_that_the_next_generation_overtook_costs_a_cooperative_member_nothing() -> None:
    group = InGroup("cooperative-sticky")
    group.settle(1, T0, T1, protocol="cooperative-sticky")
    group.beat(RebalanceInProgress)
    sent_as = group.member.identity
    assert sent_as is not None and group.join.member_id == ME
    # The last member has joined, so the coordinator is in generation 2; its JoinGroup response has not arrived yet.
    group.member.refused(IllegalGeneration(GROUP), sent_as, group.world.now)
    group.world.run()
    assert group.changes == [] and group.member.owned == (T0, T1)
    group.joined(2, protocol="cooperative-sticky")
    group.synced(T0, T1)
    assert group.changes == [] and group.member.owned == (T0, T1)


def test_a_member_whose_assignors_are_not_all_cooperative_is_eager() -> None:
    group = InGroup("range", "cooperative-sticky")
    group.settle(1, T0, protocol="cooperative-sticky")
    group.beat(RebalanceInProgress)
    assert group.changes == [(Revoke, (T0,))]
    group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    _, told = parse_subscription(group.join.protocols[0].metadata)
    assert told.owned_partitions == ()


@pytest.mark.parametrize("error, comes_as", [(UnknownMemberId, ""), (IllegalGeneration, ME)])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_that_the_group_left_behind_loses_everything_and_comes_as_a_new_one_only_if_it_is_forgotten(
    error: type[BrokerError], comes_as: str, assignor: str
) -> None:
    group = InGroup(assignor)
    group.settle(1, T0, T1, protocol=assignor)
    group.beat(error)
    assert group.changes == [(Lose, (T0, T1))] and group.member.owned == ()
    assert group.join.member_id == comes_as


def joins_within(group: InGroup, seconds: float, answer: Callable[[], None]) -> int:
    """Answer each JoinGroup at once for so long, and return how many there were."""
    count, until = 0, group.world.now + seconds
    while group.world.now < until:
        if group.world.pending(JoinGroupRequest):
            answer()
            count += 1
            assert count < 100
        else:
            group.world.later(0.01)
    return count


def refused_sync(group: InGroup, error: type[BrokerError]) -> None:
    group.joined(1)
    group.sync_refused(error)


@pytest.mark.parametrize(
    "answer",
    [
        lambda group: group.refuse(UnknownMemberId),
        lambda group: group.refuse(IllegalGeneration),
        lambda group: group.refuse(MemberIdRequired, ME),
        lambda group: refused_sync(group, IllegalGeneration),
        lambda group: refused_sync(group, RebalanceInProgress),
    ],
    ids=["unknown member", "illegal generation", "member id required", "illegal generation in sync", "rebalances"],
)
def test_a_coordinator_that_goes_on_to_send_a_member_back_is_asked_ever_more_rarely(
    answer: Callable[[InGroup], None], caplog: pytest.LogCaptureFixture
) -> None:
    group = InGroup()
    answer(group)
    assert group.join, "the first time at once"
    assert 8 < joins_within(group, 10.0, lambda: answer(group)) < 25
    assert sum(each.levelname == "WARNING" for each in caplog.records) <= 1
    group.world.later(1.5)
    group.settle(2, T0)
    group.beat()
    group.beat(UnknownMemberId)
    assert group.join, "a confirmed member joins again at once"


def test_news_that_a_loss_overtook_are_not_told() -> None:
    group = InGroup()
    group.joined(1)
    group.synced(T0)
    group.beat(UnknownMemberId)
    assert group.changes == [(Lose, (T0,))]


def test_a_revocation_that_a_loss_overtook_starts_nothing() -> None:
    group = InGroup()
    group.settle(1, T0)
    group.beat(RebalanceInProgress)
    revoke = group.member.changes[0]
    group.beat(UnknownMemberId)
    joins = group.world.pending(JoinGroupRequest)
    group.member.done(revoke, group.world.now)
    group.world.run()
    assert group.world.pending(JoinGroupRequest) == joins
    assert group.changes == [(Lose, (T0,))]


def test_a_fenced_static_member_ends_with_that_error() -> None:
    group = InGroup(instance_id="i-1")
    group.settle(1, T0)
    group.beat(FencedInstanceId)
    assert isinstance(group.member.failed, FencedInstanceId)
    assert group.changes == [(Lose, (T0,))]


@pytest.mark.parametrize("error", [RebalanceInProgress, UnknownMemberId, NotCoordinator, CoordinatorLoadInProgress])
def test_an_assignment_that_does_not_come_is_waited_for_in_another_round(error: type[BrokerError]) -> None:
    group = InGroup()
    group.joined(1)
    group.sync_refused(error)
    group.world.later(2.0)
    assert group.join.member_id == ("" if error is UnknownMemberId else ME)


def test_a_broken_connection_costs_a_join_but_not_the_place_in_the_group() -> None:
    group = InGroup()
    group.refuse(MemberIdRequired, ME)
    group.world.break_connections()
    group.world.later(5.0)
    assert group.join.member_id == ME
    group.settle(1, T0)
    group.world.break_connections()
    group.world.later(5.0)
    assert group.member.owned == (T0,) and group.member.state is MemberState.STABLE
    assert group.world.asked(HeartbeatRequest).generation_id == 1


def test_a_coordinator_that_falls_silent_while_a_request_waits_there_is_left_for_the_new_one() -> None:
    group = InGroup()
    group.refuse(MemberIdRequired, ME)
    group.world.later(60.0)
    assert group.join.member_id == ME, "a long wait does not restart the join"
    group.world.home = (2, "two", 9002)
    group.world.later(15.0)
    (asked,) = group.world.waiting
    assert asked.key == (2, "group-1") and asked.message.member_id == ME


def test_a_late_answer_to_an_earlier_join_changes_nothing() -> None:
    group = InGroup()
    first = group.join
    group.member.leave("for the test", group.world.now)
    group.member.join(group.world.now)
    group.world.waiting = [each for each in group.world.waiting if each.message is first]
    group.world.run()
    assert group.member.state is MemberState.JOINING and group.member.generation == -1


def test_a_new_subscription_begins_a_rebalance_also_if_one_is_under_way() -> None:
    group = InGroup(topics={"t": 3, "u": 1})
    group.member.subscribe(("t", "u"), group.world.now)
    group.joined(1)
    group.synced(T0)
    assert group.changes == [(Receive, (T0,)), (Revoke, (T0,))]
    for _ in range(2):
        group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    assert parse_subscription(group.join.protocols[0].metadata)[1].topics == ("t", "u")


def test_a_subscription_that_changes_before_join_group_is_sent_goes_out_with_it() -> None:
    group = InGroup(topics={"t": 3, "u": 1})
    group.refuse(CoordinatorLoadInProgress)
    group.member.subscribe(("t", "u"), group.world.now)  # during the pause
    group.world.later(5.0)
    assert parse_subscription(group.join.protocols[0].metadata)[1].topics == ("t", "u")
    group.joined(1)
    group.synced(T0)
    assert group.changes == [(Receive, (T0,))], "no second rebalance"


def test_the_leader_begins_a_rebalance_when_a_topic_of_the_group_grows() -> None:
    group = InGroup()
    group.joined(1, leader=True)
    group.synced(T0, T1)
    group.member.done(group.member.changes[0], group.world.now)
    group.world.topics["t"] = 4
    group.world.core.metadata.refresh(group.world.now)
    group.world.later(group.world.core.options.retry_backoff)
    assert group.changes == [(Revoke, (T0, T1))]


class Seeing:
    """An assignor that assigns nothing, and keeps its arguments."""

    name = "range"
    cooperative = False

    def __init__(self) -> None:
        self.seen: list[Mapping[str, int]] = []

    def user_data(self, owned: Sequence[tuple[str, int]], generation: int) -> None:
        return None

    def assign(self, partitions: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[tuple[str, int]]]:
        self.seen.append(partitions)
        return {each.member_id: [] for each in members}


def test_the_leaders_assignor_is_told_where_partitions_are_if_any_member_says_where_it_is() -> None:
    for rack in (None, "east"):
        assignor = Seeing()
        group = InGroup(assignor, topics={"t": 1}, rack=rack)
        group.world.racks, group.world.replicas = {1: "east", 2: "west", 4: None}, (1, 2, 3, 4)
        group.joined(1, leader=True)
        (seen,) = assignor.seen
        assert isinstance(seen, Partitions) and seen == {"t": 1}
        assert seen.racks == ({T0: {"east", "west"}} if rack else {})


def test_the_leader_begins_a_rebalance_when_replicas_come_into_other_racks_and_not_when_a_node_is_down() -> None:
    for rack, rebalances in ((None, False), ("east", True)):
        group = InGroup(rack=rack)
        group.world.racks, group.world.replicas = {1: "east", 2: "west", 3: "north"}, (1, 2)
        group.joined(1, leader=True)
        group.synced(T0, T1)
        group.member.done(group.member.changes[0], group.world.now)
        whole = group.world.racks
        for racks in ({1: whole[1], 3: whole[3]}, whole):
            group.world.racks = racks
            group.world.core.metadata.refresh(group.world.now)
            group.world.later(1.0)
            assert group.member.state is MemberState.STABLE
        group.world.replicas = (1, 3)
        group.world.core.metadata.refresh(group.world.now)
        group.world.later(1.0)
        assert group.changes == ([(Revoke, (T0, T1))] if rebalances else [])


def test_topics_that_do_not_exist_keep_nobody_waiting() -> None:
    group = InGroup(topics={})
    group.joined(1, leader=True)
    assert [parse_assigned(each.assignment) for each in group.sync.assignments] == [(), ()]


def test_a_topic_that_appears_just_after_the_leader_missed_it_is_found_soon() -> None:
    group = InGroup(topics={})
    group.joined(1, leader=True)
    group.synced()
    group.world.topics["t"] = 2
    group.world.later(1.0)
    assert group.join.member_id == ME
    group.joined(2, leader=True)
    assert [parse_assigned(each.assignment) for each in group.sync.assignments] == [(T0,), (T1,)]


def test_a_topic_that_was_there_a_moment_ago_is_waited_for() -> None:
    group = InGroup()
    group.joined(1, leader=True)
    group.synced(T0, T1)
    group.member.done(group.member.changes[0], group.world.now)
    del group.world.topics["t"]  # metadata of a broker that has just started
    group.world.core.metadata.refresh(group.world.now)
    group.beat(RebalanceInProgress)
    group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    group.joined(2, leader=True)
    assert group.world.pending(SyncGroupRequest) == []
    group.world.topics["t"] = 3
    group.world.later(1.0)
    given = [parse_assigned(each.assignment) for each in group.sync.assignments]
    assert given == [(T0, T1), (T2,)]


def test_leaving_says_good_bye_while_a_join_still_waits_at_the_coordinator() -> None:
    group = InGroup()
    group.refuse(MemberIdRequired, ME)
    group.member.leave("the consumer was closed", group.world.now)
    group.world.run()
    (member,) = group.world.asked(LeaveGroupRequest).members
    assert (member.member_id, member.reason) == (ME, "the consumer was closed")


def test_a_static_member_says_no_good_bye() -> None:
    group = InGroup(instance_id="i-1")
    group.settle(1, T0)
    left = group.member.close("the consumer was closed", group.world.now)
    group.world.run()
    assert left.done and group.world.pending(LeaveGroupRequest) == []


def test_the_end_waits_for_the_goodbye_of_a_member_that_has_left_before() -> None:
    group = InGroup()
    group.settle(1, T0)
    group.member.leave("the loop did not ask for a batch", group.world.now)
    left = group.member.close("the consumer was closed", group.world.now)
    group.world.run()
    assert not left.done, "a client that closes now would take the goodbye along"
    group.world.answer(group.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
    assert left.done and left.error is None


def test_the_end_waits_for_the_goodbyes_of_both_members_if_one_has_left_and_joined_again() -> None:
    group = InGroup()
    group.settle(1, T0)
    group.member.leave("the loop did not ask for a batch", group.world.now)
    group.member.join(group.world.now)
    group.world.run()
    group.refuse(MemberIdRequired, "another")
    left = group.member.close("the consumer was closed", group.world.now)
    group.world.run()
    first, second = group.world.pending(LeaveGroupRequest)
    assert [each.members[0].member_id for each in (first, second)] == [ME, "another"]
    for each in (first, second):
        assert not left.done
        group.world.answer(each, LeaveGroupResponse(error_code=0, members=()))
    assert left.done and left.error is None


def test_the_end_waits_for_the_goodbye_of_a_member_that_has_failed() -> None:
    group = InGroup(Dividing(ZeroDivisionError("nobody")))
    group.joined(1, leader=True)
    left = group.member.close("the consumer was closed", group.world.now)
    assert not left.done
    group.world.answer(group.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
    assert left.done and left.error is None


def test_leaving_ends_though_nobody_answers() -> None:
    group = InGroup()
    group.settle(1, T0)
    left = group.member.close("the consumer was closed", group.world.now)
    group.world.later(6.0)
    assert left.done and group.member.state is MemberState.CLOSED


def test_the_state_can_be_told_to_people() -> None:
    group = InGroup()
    assert "waits for all members to join, 296 s more at most, for 4.0 s" in "".join(group.member.explain(4.0))
    group.settle(1, T0)
    assert list(group.member.explain(group.world.now)) == []
    group.beat(RebalanceInProgress)
    assert "waits for your loop to give up 1 partition" in "".join(group.member.explain(group.world.now))


def test_a_group_that_does_not_answer_is_one_line_until_it_does(caplog: pytest.LogCaptureFixture) -> None:
    group = InGroup()
    group.settle(1, T0)
    for silences in (1, 2):
        for _ in range(3):
            group.member.troubled(TimeoutExpired("no answer"), group.world.now)
        assert sum("group coordinator does not answer, retrying" in each.message for each in caplog.records) == silences
        group.member.alive(group.world.now)


LASTING = [TimeoutExpired("no answer"), broker_error(-1, repeatable=True), broker_error(9999, repeatable=True)]


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_a_coordinator_that_goes_on_failing_is_in_the_log_again(
    error: OttlaError, caplog: pytest.LogCaptureFixture
) -> None:
    group = InGroup()
    group.settle(1, T0)
    for seconds in range(0, 91, 10):
        group.member.troubled(error, group.world.now + seconds)
    assert sum(each.levelname == "ERROR" for each in caplog.records) == 4  # every 30 seconds


def test_a_member_that_waits_for_a_dead_one_says_so_once_in_a_rebalance(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[dict[str, object]]:
        return [each.__dict__ for each in caplog.records if "rebalance waits for" in each.message]

    group = InGroup()
    group.world.later(4.9)
    assert said() == []
    group.world.later(0.2)
    (line,) = said()
    assert (line["group"], line["seconds"], line["at_most"]) == ("billing", 5.0, 295)
    assert line["levelname"] == "WARNING" and "another member of the group, which is busy or dead" in str(
        line["message"]
    )
    group.world.later(60.0)
    group.joined(1)
    group.world.later(20.0)
    assert len(said()) == 1  # the wait for the leader belongs to the same rebalance
    group.synced(T0)
    group.beat(RebalanceInProgress)
    while group.member.changes:
        group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    group.joined(2)
    group.world.later(6.0)
    assert "waits for the leader" in str(said()[1]["message"]) and len(said()) == 2
    group.synced(T0)
    group.world.later(60.0)
    assert len(said()) == 2


def test_a_member_whose_coordinator_is_gone_says_since_when_it_is_not_heard() -> None:
    group = InGroup()
    group.settle(1, T0)
    group.beat()
    group.world.reachable = False
    group.world.break_connections()
    group.world.later(6.0)
    (line,) = group.member.explain(group.world.now)
    assert line.startswith(
        "group 'billing': this member gets no response to its heartbeats, for 6.0 s; looking for its coordinator (one:"
    )


class Heard:
    """What the heartbeats say about their member."""

    in_group, parked = True, False

    def __init__(self) -> None:
        self.troubles: list[OttlaError] = []

    def alive(self, now: float) -> None:
        raise AssertionError("no heartbeat was answered")

    def troubled(self, error: OttlaError, now: float) -> None:
        self.troubles.append(error)


@pytest.mark.parametrize("left", [False, True])
def test_a_lookup_for_a_heartbeat_that_fails_after_the_generation_ended_does_not_concern_the_member(left: bool) -> None:
    world = Coordinator({"t": 3})
    seat = Seat(GROUP, "group-1", MemberOptions(), MemberMetrics(world.core.metrics, GROUP), ME, generation=1)
    member = Heard()
    heartbeats = Heartbeats(world.core, seat, member)
    world.reachable = False
    world.break_connections()
    heartbeats.schedule(world.now)
    world.later(1.0)
    heartbeats.stop()
    if left:
        seat.vacate()
    world.later(world.core.options.api_timeout)
    assert [type(each) for each in member.troubles] == ([] if left else [TimeoutExpired])


def test_a_session_timeout_that_the_broker_does_not_allow_is_named() -> None:
    group = InGroup()
    group.refuse(InvalidSessionTimeout)
    said = str(group.member.failed)
    assert "group.min.session.timeout.ms" in said and "JoinGroup of 'billing' with session_timeout=45]" in said


class Dividing:
    """An assignor whose divisions are given, or an error that it raises."""

    name, cooperative = "range", False

    def __init__(self, divided: Mapping[str, Sequence[tuple[str, int]]] | BaseException) -> None:
        self._divided = divided

    def user_data(self, owned: object, generation: int) -> None:
        return None

    def assign(self, partitions: object, members: object) -> dict[str, Sequence[tuple[str, int]]]:
        if isinstance(self._divided, BaseException):
            raise self._divided
        return dict(self._divided)


@pytest.mark.parametrize("error", [ZeroDivisionError("nobody"), GeneratorExit("nobody"), StopIteration("nobody")])
def test_an_assignor_that_fails_is_named_and_its_member_says_good_bye(error: BaseException) -> None:
    group = InGroup(Dividing(error))
    group.joined(1, leader=True)
    assert f"assignor 'range' failed: {type(error).__name__}: nobody" in str(group.member.failed)
    assert group.world.asked(LeaveGroupRequest), "otherwise the others would wait for its session timeout"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_assignor_that_ends_the_program_ends_its_membership_too(error: BaseException) -> None:
    group = InGroup(Dividing(error))
    with pytest.raises(type(error)):
        group.joined(1, leader=True)
    group.world.run()
    assert f"assignor 'range' failed: {type(error).__name__}" in str(group.member.failed)


@pytest.mark.parametrize(
    ("divided", "why"),
    [
        ({ME: [T0, T0]}, "it names t-0 twice"),
        ({ME: [T0], "other-1": [T1, T0]}, "it names t-0 twice"),
        ({ME: [("t", 3)]}, "it names t-3, which does not exist, or which no member asked for"),
        ({ME: [("t", -1)]}, "it names t--1, which does not exist"),
        ({ME: [("u", 0)]}, "it names u-0, which does not exist, or which no member asked for"),
        ({ME: [T0], "a stranger": [T1]}, "it names member 'a stranger', which is not in the group"),
    ],
)
def test_a_division_that_cannot_be_carried_out_is_the_assignors_fault(
    divided: dict[str, list[tuple[str, int]]], why: str
) -> None:
    group = InGroup(Dividing(divided))
    group.joined(1, leader=True)
    assert f"assignor 'range' failed: ValueError: {why}" in str(group.member.failed)


def test_a_partition_that_a_foreign_leader_names_twice_is_owned_once() -> None:
    group = InGroup()
    group.joined(1)
    group.synced(T0, T1, T0)
    assert group.changes == [(Receive, (T0, T1))]
    group.member.done(group.member.changes[0], group.world.now)
    group.member.leave("for the test", group.world.now)
    assert group.changes == [(Lose, (T0, T1))]


# -- the table ---------------------------------------------------------------------------------------------------------


def put_into(state: MemberState) -> InGroup:
    """A member that reached the state in the usual way."""
    group = InGroup()
    if state is MemberState.PREPARING:
        group.refuse(CoordinatorLoadInProgress)
    if state in (MemberState.ASSIGNING, MemberState.SYNCING, MemberState.STABLE, MemberState.REVOKING):
        group.joined(1, leader=state is MemberState.ASSIGNING)
    if state is MemberState.ASSIGNING:
        group = InGroup()
        group.world.slow = True
        group.joined(1, leader=True)  # and waits for the topic's metadata
    if state in (MemberState.STABLE, MemberState.REVOKING):
        group.synced(T0)
        group.member.done(group.member.changes[0], group.world.now)
    if state is MemberState.REVOKING:
        group.beat(RebalanceInProgress)
    if state is MemberState.OUT:
        group.member.leave("for the test", group.world.now)
    if state is MemberState.FAILED:
        group.refuse(GroupAuthorizationFailed)
    if state is MemberState.CLOSED:
        group.member.close("for the test", group.world.now)
    assert group.member.state is state
    return group


CAUSES: dict[MemberInput, Callable[[ClassicMember, float], object]] = {
    MemberInput.JOIN: lambda member, now: member.join(now),
    MemberInput.REBALANCE: lambda member, now: cooperative(member).rejoin("for the test", now),
    MemberInput.REVOKE: lambda member, now: member.rejoin("for the test", now),
    MemberInput.GIVEN_UP: lambda member, now: finish(member, now),
    MemberInput.RETRY: lambda member, now: member.troubled(NotCoordinator("for the test"), now),
    MemberInput.EXPELLED: lambda member, now: member.troubled(UnknownMemberId("for the test"), now),
    MemberInput.FAIL: lambda member, now: member.troubled(GroupMaxSizeReached("for the test"), now),
    MemberInput.LEAVE: lambda member, now: member.leave("for the test", now),
    MemberInput.CLOSE: lambda member, now: member.close("for the test", now),
}
"""The inputs that may come at any time. The others are steps of a rebalance, which `put_into` takes."""


@pytest.mark.parametrize("what", CAUSES)
@pytest.mark.parametrize("state", MemberState)
def test_each_input_leads_from_each_state_where_the_table_says_and_else_changes_nothing(
    state: MemberState, what: MemberInput
) -> None:
    group = put_into(state)
    member, now = group.member, group.world.now
    before = (member.owned, member.generation, list(member.changes))
    CAUSES[what](member, now)
    follows = TRANSITIONS.get((state, what), state)
    assert member.state is follows
    if (state, what) not in TRANSITIONS and what is not MemberInput.GIVEN_UP:
        assert (member.owned, member.generation, list(member.changes)) == before
    group.world.run()


def finish(member: ClassicMember, now: float) -> None:
    for change in list(member.changes):
        member.done(change, now)


def cooperative(member: ClassicMember) -> ClassicMember:
    member._offered.cooperative = True
    return member


def test_no_state_is_without_a_way_out_but_closed_and_none_is_out_of_reach() -> None:
    assert {state for state, _ in TRANSITIONS} == set(MemberState) - {MemberState.CLOSED}
    assert set(TRANSITIONS.values()) == set(MemberState)
    assert {what for _, what in TRANSITIONS} == set(MemberInput)


def test_a_custom_assignor_is_called_outside_of_the_core_and_may_call_it() -> None:
    class Asking(Seeing):
        calls: list[str]

        def user_data(self, owned: Sequence[tuple[str, int]], generation: int) -> None:
            self.check("user_data")

        def assign(self, partitions: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[tuple[str, int]]]:
            self.check("assign")
            return super().assign(partitions, members)

        def check(self, name: str) -> None:
            if self.core is not None:
                with self.core.gate:
                    self.calls.append(name)

        core: ClientCore | None = None

    assignor = Asking()
    assignor.calls = []
    group = InGroup(assignor)
    assignor.core = group.world.core
    group.joined(1, leader=True)
    group.synced(T0)
    group.member.done(group.member.changes[0], group.world.now)
    group.beat(RebalanceInProgress)
    group.member.done(group.member.changes[0], group.world.now)
    group.world.run()
    assert group.join.member_id == ME and assignor.calls == ["assign", "user_data"]


def test_what_an_assignor_says_of_a_membership_that_moved_on_meanwhile_is_dropped() -> None:
    class Leaving(Seeing):
        member: ClassicMember | None = None

        def assign(self, partitions: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[tuple[str, int]]]:
            assert self.member is not None
            self.member.leave("for the test", 0.0)
            return super().assign(partitions, members)

    assignor = Leaving()
    group = InGroup(assignor)
    assignor.member = group.member
    group.joined(1, leader=True)
    assert group.world.pending(SyncGroupRequest) == [] and group.member.state is MemberState.OUT


def test_a_good_bye_goes_to_another_coordinator_when_the_first_one_is_none_any_more() -> None:
    group = InGroup()
    group.settle(1, T0)
    left = group.member.close("the consumer was closed", group.world.now)
    group.world.run()
    group.world.home = (2, "two", 9002)
    answer = LeaveGroupResponse(error_code=NotCoordinator.code, members=())
    group.world.answer(group.world.asked(LeaveGroupRequest), answer)
    group.world.later(1.0)
    (asked,) = group.world.waiting
    assert asked.key[0] == 2 and isinstance(asked.message, LeaveGroupRequest)
    group.world.answer(asked.message, LeaveGroupResponse(error_code=0, members=()))
    assert left.done and left.error is None
