"""A member of a consumer group (KIP-848): its heartbeats, its partitions, and its reactions to the coordinator."""

import uuid
from collections.abc import Sequence

import pytest

from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InvalidRegularExpression,
    NotCoordinator,
    PolicyViolation,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from ottla.sdk.group.consumer_group_member import ConsumerGroupMember
from ottla.sdk.group.consumer_member_states import TRANSITIONS, ConsumerMemberInput, ConsumerMemberState
from ottla.sdk.group.membership import AssignmentChange, Lose, Receive, Revoke
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.options import Options
from tests.sdk.coordinator import Coordinator

GROUP = "billing"
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
T_ID, U_ID = uuid.UUID(int=101), uuid.UUID(int=102)
Place = tuple[str, int]


class InGroup:
    """One member of ottla's; the test plays the coordinator."""

    def __init__(
        self,
        *,
        topics: tuple[str, ...] = ("t",),
        regex: str | None = None,
        rack: str | None = None,
        served: dict[int, tuple[int, int]] | None = None,
        **options: object,
    ) -> None:
        self.world = Coordinator({"t": 3}, Options(rack=rack), more={68: (0, 1)} if served is None else served)
        self.world.ids["t"] = T_ID
        self.member = ConsumerGroupMember(
            self.world.core,
            GROUP,
            MemberOptions(group_protocol="consumer", **options),  # type: ignore[arg-type] # of the test
            "group-1",
            lambda change, now: None,
            regex,
        )
        self.world.core.metadata.topic("t", 0.0)
        self.world.run()
        self.member.subscribe(() if regex else topics, 0.0)
        self.member.join(0.0)
        self.world.run()

    @property
    def beat(self) -> ConsumerGroupHeartbeatRequest:
        """The only heartbeat without an answer."""
        return self.world.asked(ConsumerGroupHeartbeatRequest)

    @property
    def beats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return self.world.pending(ConsumerGroupHeartbeatRequest)

    @property
    def changes(self) -> list[tuple[type[AssignmentChange], tuple[Place, ...]]]:
        return [(type(change), change.places) for change in self.member.changes]

    def answer(self, epoch: int, places: Sequence[int] | None = None, *, topic: uuid.UUID = T_ID) -> None:
        """Answer the heartbeat; ``places`` are the partitions of the assignment, if there is one."""
        assignment = None
        if places is not None:
            some = (TopicPartitions(topic_id=topic, partitions=tuple(places)),) if places else ()
            assignment = Assignment(topic_partitions=some)
        self.world.answer(
            self.beat,
            ConsumerGroupHeartbeatResponse(
                error_code=0, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
            ),
        )

    def refuse(self, error: type[BrokerError]) -> None:
        answer = ConsumerGroupHeartbeatResponse(error_code=error.code, member_epoch=0, heartbeat_interval_ms=0)
        self.world.answer(self.beat, answer)

    def done(self) -> None:
        """Let the consumer finish the first change."""
        self.member.done(self.member.changes[0], self.world.now)
        self.world.run()

    def settle(self, epoch: int, *places: int) -> None:
        """Join, own these partitions, and acknowledge them."""
        self.answer(epoch, places)
        while self.member.changes:
            self.done()
        self.answer(epoch)


def owned(beat: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if beat.topic_partitions is None:
        return None
    return [index for each in beat.topic_partitions for index in each.partitions]


def test_a_member_joins_with_all_fields_and_an_id_of_its_own() -> None:
    group = InGroup(rack="r1", remote_assignor="range", max_poll_interval=60.0)
    beat = group.beat
    assert beat.member_epoch == JOIN and uuid.UUID(beat.member_id).version == 4
    assert beat.subscribed_topic_names == ("t",) and beat.topic_partitions == () and beat.instance_id is None
    assert (beat.rack_id, beat.server_assignor, beat.rebalance_timeout_ms) == ("r1", "range", 60_000)
    assert beat.subscribed_topic_regex is None and group.member.identity is None


def test_what_is_assigned_is_received_and_acknowledged_at_once() -> None:
    group = InGroup()
    group.answer(1, [0, 1])
    assert group.changes == [(Receive, (T0, T1))] and group.member.owned == (T0, T1)
    beat = group.beat
    assert owned(beat) == [0, 1] and beat.member_epoch == 1
    assert beat.subscribed_topic_names is None and beat.rebalance_timeout_ms == -1, "only what has changed is sent"
    identity = group.member.identity
    assert identity is not None and (identity.generation, identity.has_epoch) == (1, True)


def test_heartbeats_keep_the_interval_of_the_coordinator() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.later(4.9)
    assert group.beats == []
    group.world.later(0.1)
    assert owned(group.beat) is None, "nothing has changed"


def test_partitions_are_given_up_before_others_are_received() -> None:
    group = InGroup()
    group.settle(1, 0, 1)
    group.world.later(5.0)
    group.answer(1, [0])
    assert group.changes == [(Revoke, (T1,))] and group.member.owned == (T0, T1)
    group.world.later(5.0)
    assert owned(group.beat) == [0, 1], "the user has not given it up yet"
    group.answer(1)
    group.done()
    assert owned(group.beat) == [0], "others wait for the partition"
    group.answer(2, [0, 2])
    assert group.changes == [(Receive, (T2,))] and group.member.owned == (T0, T2)


def test_an_assignment_that_comes_while_partitions_are_given_up_counts_afterwards() -> None:
    group = InGroup()
    group.settle(1, 0, 1)
    group.world.later(5.0)
    group.answer(1, [0])
    group.world.later(5.0)
    group.answer(2, [1, 2])
    assert group.changes == [(Revoke, (T1,))]
    group.done()
    assert group.changes == [(Revoke, (T0,))]
    group.done()
    assert group.changes == [(Receive, (T1, T2))] and group.member.owned == (T1, T2)


def test_an_assignment_that_is_taken_back_before_it_was_received_is_acknowledged() -> None:
    group = InGroup()
    group.answer(1, [0], topic=U_ID)
    assert group.changes == [], "the metadata has no topic with this id"
    group.world.later(5.0)
    group.answer(1, [])
    assert owned(group.beat) == [], "the coordinator waits for this"


def test_a_topic_that_the_metadata_do_not_have_is_looked_up() -> None:
    group = InGroup()
    group.world.ids["t"] = U_ID  # recreated, and the client's metadata are old
    group.answer(1, [0], topic=U_ID)
    group.world.later(1.0)
    assert group.changes == [(Receive, (T0,))]


def test_a_topic_without_a_name_is_looked_up_less_and_less_often() -> None:
    group = InGroup()
    before = group.world.metadata_requests
    group.answer(1, [0], topic=U_ID)
    group.world.later(4.0)
    assert 4 <= group.world.metadata_requests - before <= 10
    group.world.ids["t"] = U_ID
    group.world.later(1.5)
    assert group.changes == [(Receive, (T0,))]


def test_a_recreated_topic_is_revoked_and_received() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.ids["t"] = U_ID
    group.world.later(5.0)
    group.answer(1, [0], topic=U_ID)
    assert group.changes == [(Revoke, (T0,))]
    group.done()
    group.world.later(1.0)
    assert group.changes == [(Receive, (T0,))]


def test_a_deleted_topic_is_named(caplog: pytest.LogCaptureFixture) -> None:
    group = InGroup()
    group.settle(1, 0)
    del group.world.topics["t"]
    group.world.later(5.0)
    group.answer(2, [])
    group.done()
    group.answer(2)
    group.world.later(5.0)
    assert "subscribed topics do not exist (group=billing, topics=['t'])" in caplog.text
    assert "subscribed topics do not exist: t" in "".join(group.member.explain(group.world.now))


def test_a_topic_that_another_member_got_is_not_missing(caplog: pytest.LogCaptureFixture) -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.later(5.0)
    group.answer(2, [])
    group.done()
    group.answer(2)
    group.world.later(5.0)
    assert "do not exist" not in caplog.text
    assert not list(group.member.explain(group.world.now))


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress, NotCoordinator])
def test_after_an_error_all_fields_are_sent_again(error: type[BrokerError]) -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.later(5.0)
    group.refuse(error)
    assert group.beats == [], "it pauses"
    group.world.later(0.5)
    beat = group.beat
    assert beat.member_epoch == 1 and owned(beat) == [0]
    assert beat.subscribed_topic_names == ("t",) and beat.rebalance_timeout_ms == 300_000
    assert group.member.owned == (T0,)


def test_after_a_lost_response_all_fields_are_sent_again() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.later(5.0)
    group.world.break_connections()
    group.world.later(1.0)
    assert owned(group.beat) == [0] and group.beat.subscribed_topic_names == ("t",)


def test_a_coordinator_that_does_not_answer_for_three_intervals_is_asked_again() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.later(5.0)
    silent = group.beat
    group.world.later(14.9)
    assert group.beats == [silent]
    group.world.later(1.0)
    assert group.beat is not silent


@pytest.mark.parametrize("error", [UnknownMemberId, FencedMemberEpoch, GroupIdNotFound])
def test_an_expelled_member_loses_everything_and_joins_again_with_the_same_id(error: type[BrokerError]) -> None:
    group = InGroup()
    group.settle(3, 0, 1)
    group.world.later(5.0)
    before = group.beat.member_id
    group.refuse(error)
    assert group.changes == [(Lose, (T0, T1))] and group.member.owned == () and group.member.identity is None
    beat = group.beat
    assert beat.member_epoch == JOIN and beat.member_id == before and beat.topic_partitions == ()


@pytest.mark.parametrize("error", [UnknownMemberId, FencedMemberEpoch])
def test_a_member_that_is_expelled_again_and_again_joins_ever_more_rarely(
    error: type[BrokerError], caplog: pytest.LogCaptureFixture
) -> None:
    group = InGroup()
    count, until = 0, group.world.now + 10.0
    while group.world.now < until:
        if not group.beats:
            group.world.later(0.01)
        elif group.beat.member_epoch == JOIN:
            group.answer(7, [0])
            while group.member.changes:
                group.done()
            count += 1
            assert count < 100
        else:
            group.refuse(error)
            assert count > 1 or group.beats, "the first time at once"
    assert 8 < count < 25
    assert sum(each.levelname == "WARNING" for each in caplog.records) == 1


@pytest.mark.parametrize("epoch", [LEAVE, LEAVE_STATIC])
def test_an_epoch_that_would_say_goodbye_is_the_brokers_mistake(epoch: int) -> None:
    group = InGroup()
    group.answer(epoch, [0])
    assert group.changes == [] and group.beats == [], "a pause"
    group.world.later(0.2)
    assert group.beat.member_epoch == JOIN
    group.settle(1, 0)
    assert group.member.owned == (T0,)


def test_a_coordinator_that_still_has_a_fenced_member_is_told_that_it_leaves() -> None:
    group = InGroup()
    group.settle(3, 0)
    group.world.later(5.0)
    group.refuse(FencedMemberEpoch)
    group.refuse(FencedMemberEpoch)  # of epoch 0, too
    assert group.beat.member_epoch == LEAVE
    group.answer(LEAVE)
    assert group.beat.member_epoch == JOIN


def test_a_static_member_whose_join_was_not_answered_gives_its_instance_id_free() -> None:
    group = InGroup(instance_id="i1")
    group.world.break_connections()
    group.world.later(1.0)
    group.refuse(UnreleasedInstanceId)
    assert group.beat.member_epoch == LEAVE_STATIC and group.beat.instance_id == "i1"
    group.answer(LEAVE_STATIC)
    group.answer(1, [0])
    assert group.member.owned == (T0,)


def test_an_instance_id_of_another_member_ends_the_membership() -> None:
    group = InGroup(instance_id="i1")
    group.refuse(UnreleasedInstanceId)
    assert isinstance(group.member.failed, UnreleasedInstanceId) and group.beats == []


def test_an_instance_id_that_another_member_took_meanwhile_ends_the_membership() -> None:
    group = InGroup(instance_id="i1")
    group.world.break_connections()
    group.world.later(1.0)
    group.refuse(UnreleasedInstanceId)
    group.refuse(FencedInstanceId)  # the goodbye: the other one has another member id
    group.refuse(UnreleasedInstanceId)
    assert isinstance(group.member.failed, UnreleasedInstanceId)


@pytest.mark.parametrize(
    "error", [UnsupportedAssignor, GroupMaxSizeReached, InvalidRegularExpression, FencedInstanceId, PolicyViolation]
)
def test_an_error_that_no_retry_helps_ends_the_membership(error: type[BrokerError]) -> None:
    group = InGroup()
    group.refuse(error)
    group.world.later(10.0)
    assert isinstance(group.member.failed, error) and group.member.state is ConsumerMemberState.FAILED
    assert group.beats == []


def test_a_failed_member_that_the_coordinator_has_leaves() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.world.later(5.0)
    group.refuse(InvalidRegularExpression)
    assert group.changes == [(Lose, (T0,))] and group.beat.member_epoch == LEAVE


@pytest.mark.parametrize("error", [StaleMemberEpoch, IllegalGeneration])
def test_a_commit_in_an_old_epoch_asks_for_the_new_one(error: type[BrokerError]) -> None:
    group = InGroup()
    group.settle(1, 0)
    identity = group.member.identity
    assert identity is not None
    assert group.member.refused(error("of the test"), identity, group.world.now)
    group.world.run()
    assert owned(group.beat) == [0] and group.beat.rebalance_timeout_ms == 300_000
    group.answer(4)
    assert group.member.identity is not None and group.member.identity.generation == 4
    assert group.member.refused(error("of the test"), identity, group.world.now), "its epoch has passed already"
    assert group.member.owned == (T0,) and group.beats == []


def test_a_commit_of_a_member_that_the_group_does_not_have_expels_it() -> None:
    group = InGroup()
    group.settle(1, 0)
    identity = group.member.identity
    assert identity is not None
    assert group.member.refused(UnknownMemberId("of the test"), identity, group.world.now)
    group.world.run()
    assert group.changes == [(Lose, (T0,))] and group.beat.member_epoch == JOIN


def test_a_changed_subscription_is_sent_at_once() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.member.subscribe(("t", "u"), group.world.now)
    group.world.run()
    assert group.beat.subscribed_topic_names == ("t", "u") and owned(group.beat) is None


def test_a_member_without_topics_joins_once_it_has_one() -> None:
    group = InGroup(topics=())
    group.world.later(10.0)
    assert group.beats == [] and "has no topic to read" in "".join(group.member.explain(group.world.now))
    group.member.subscribe(("t",), group.world.now)
    group.world.run()
    assert group.beat.member_epoch == JOIN and group.beat.subscribed_topic_names == ("t",)


def test_a_member_in_the_group_may_lose_its_last_topic() -> None:
    group = InGroup()
    group.settle(1, 0)
    group.member.subscribe((), group.world.now)
    group.world.run()
    assert group.beat.subscribed_topic_names == () and group.beat.member_epoch == 1


def test_a_broker_that_names_no_interval_is_not_flooded() -> None:
    group = InGroup()
    answer = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=0)
    group.world.answer(group.beat, answer)
    assert group.beats == []
    group.world.later(0.2)
    assert group.beat.member_epoch == 1


def test_a_coordinator_without_the_api_gets_no_goodbye() -> None:
    group = InGroup(served={})
    assert isinstance(group.member.failed, UnsupportedVersion) and group.beats == []
    assert group.member.close("the end", group.world.now).done


def test_a_regular_expression_goes_to_the_coordinator_with_no_names() -> None:
    group = InGroup(regex="t.*")
    assert group.beat.subscribed_topic_regex == "t.*" and group.beat.subscribed_topic_names == ()
    group.answer(1, [0], topic=T_ID)
    assert group.changes == [(Receive, (T0,))]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVE), ("i1", LEAVE_STATIC)])
def test_a_member_that_leaves_says_so_and_joins_again_only_afterwards(instance_id: str | None, epoch: int) -> None:
    group = InGroup(instance_id=instance_id)
    group.settle(1, 0)
    group.member.leave("the loop is busy", group.world.now)
    group.world.run()
    assert group.changes == [(Lose, (T0,))] and group.beat.member_epoch == epoch
    group.member.join(group.world.now)
    group.world.run()
    assert group.beat.member_epoch == epoch, "a goodbye that comes late would remove the new member"
    group.answer(epoch)
    assert group.beat.member_epoch == JOIN


def test_a_member_that_was_never_in_the_group_says_no_goodbye() -> None:
    group = InGroup(instance_id="i1")
    group.refuse(UnreleasedInstanceId)
    assert group.member.close("the end", group.world.now).done and group.beats == []


def test_a_closed_member_leaves_behind_a_heartbeat_without_an_answer() -> None:
    group = InGroup()
    left = group.member.close("the end", group.world.now)
    group.world.run()
    join, goodbye = group.beats
    assert (join.member_epoch, goodbye.member_epoch) == (JOIN, LEAVE) and not left.done
    gone = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=LEAVE, heartbeat_interval_ms=0)
    group.world.answer(join, ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=5000))
    group.world.answer(goodbye, gone)
    assert left.done and group.member.owned == () and group.member.state is ConsumerMemberState.CLOSED


def test_explain_says_what_a_member_waits_for() -> None:
    group = InGroup()
    assert "is about to join" in "".join(group.member.explain(group.world.now))
    group.settle(1, 0)
    assert not list(group.member.explain(group.world.now))
    group.world.later(5.0)
    group.answer(1, [])
    assert "waits for your loop to give up partitions" in "".join(group.member.explain(group.world.now))


def test_every_state_and_input_is_in_the_table() -> None:
    assert {state for state, _ in TRANSITIONS} | set(TRANSITIONS.values()) == set(ConsumerMemberState)
    assert {what for _, what in TRANSITIONS} == set(ConsumerMemberInput)
