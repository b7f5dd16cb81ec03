"""The choice of the group protocol: by the cluster, the group, and the options."""

from typing import Any

import pytest

from ottla.codec.apis import describe_groups
from ottla.codec.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.codec.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.codec.apis.join_group import JoinGroupRequest
from ottla.codec.apis.leave_group import LeaveGroupRequest
from ottla.errors import (
    BrokerError,
    ConfigurationError,
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    UnknownMemberId,
    UnsupportedVersion,
)
from ottla.sdk.consume.options import ConsumerOptions
from ottla.sdk.group.classic_member import ClassicMember
from ottla.sdk.group.consumer_group_member import ConsumerGroupMember
from ottla.sdk.group.membership import Lose, Membership
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.group.protocol_choice import ChoosingMember, member_of
from ottla.sdk.options import Options
from tests.sdk.coordinator import Coordinator

GROUP = "billing"
SERVED = {15: (0, 6), 68: (0, 1)}


class Choosing:
    """A member with ``auto``; the test plays the coordinator."""

    def __init__(self, *, group_version: int = 1, served: dict[int, tuple[int, int]] | None = None) -> None:
        self.describing = 1
        """How often an answer describes the group."""
        more = SERVED if served is None else served
        self.world = Coordinator({"t": 3}, more=more, group_version=group_version)
        options = MemberOptions(group_protocol="auto").checked()
        self.member = member_of(self.world.core, GROUP, options, "group-1", lambda change, now: None)
        self.member.subscribe(("t",), 0.0)
        self.member.join(0.0)
        self.world.run()

    @property
    def joins_by(self) -> type[Any]:
        """The request by which the member joins."""
        [message] = [each.message for each in self.world.waiting]
        return type(message)

    def describe(
        self, state: str = "", error: type[BrokerError] | None = GroupIdNotFound, message: str | None = None
    ) -> None:
        """Describe the group. By default it is not classic, with the answer of brokers since Kafka 4.0."""
        group = describe_groups.DescribedGroup(
            error_code=error.code if error else 0,
            error_message=message,
            group_id=GROUP,
            group_state=state,
            protocol_type="consumer",
            protocol_data="",
            members=(),
        )
        asked = self.world.asked(DescribeGroupsRequest)
        self.world.answer(asked, DescribeGroupsResponse(groups=(group,) * self.describing))

    def describe_classic(self, state: str) -> None:
        self.describe(state, None)

    def refuse_to_describe(self, error: type[BrokerError]) -> None:
        self.describe("", error)

    def own(self, *partitions: int) -> None:
        """Assign partitions of "t", which the user takes note of."""
        self.world.core.metadata.topic("t", self.world.now)
        self.world.run()
        places = (TopicPartitions(topic_id=self.world.core.cluster.topic_id("t"), partitions=partitions),)
        for assignment in (Assignment(topic_partitions=places), None):
            answer = ConsumerGroupHeartbeatResponse(
                error_code=0, member_epoch=3, heartbeat_interval_ms=5000, assignment=assignment
            )
            self.world.answer(self.world.asked(ConsumerGroupHeartbeatRequest), answer)
            for change in list(self.member.changes):
                self.member.done(change, self.world.now)
            self.world.run()
        self.world.later(5.0)

    def leave(self) -> None:
        """Let the member leave, and confirm its goodbye."""
        self.member.leave("the loop is slow", self.world.now)
        self.world.run()
        self.let_go()

    def let_go(self) -> None:
        """Confirm the goodbye, after a heartbeat that is under way."""
        answer = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=-1, heartbeat_interval_ms=0)
        for each in self.world.pending(ConsumerGroupHeartbeatRequest):
            self.world.answer(each, answer)

    def join(self) -> None:
        self.member.join(self.world.now)
        self.world.run()

    def refuse(self, error: type[BrokerError], message: str | None = None) -> None:
        asked = self.world.asked(ConsumerGroupHeartbeatRequest)
        answer = ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
        )
        self.world.answer(asked, answer)


def test_a_cluster_without_the_feature_gets_a_classic_member() -> None:
    assert Choosing(group_version=0).joins_by is JoinGroupRequest


def test_a_coordinator_that_does_not_offer_the_api_gets_a_classic_member() -> None:
    group = Choosing(served={15: (0, 6)})
    group.describe()
    assert group.joins_by is JoinGroupRequest


def test_a_group_of_the_new_type_or_none_gets_a_member_of_that_type() -> None:
    group = Choosing()
    assert [type(each.message) for each in group.world.waiting] == [DescribeGroupsRequest], (
        "ConsumerGroupDescribe would name all members"
    )
    group.describe()
    assert group.joins_by is ConsumerGroupHeartbeatRequest


def test_a_member_of_a_share_group_fails_and_names_the_type() -> None:
    group = Choosing()
    group.describe(message=f"Group {GROUP} is not a classic group.")
    group.refuse(GroupIdNotFound, f"Group {GROUP} is not a consumer group.")
    assert group.world.waiting == [], "it does not try to join by the classic protocol"
    why = "'billing' is a share group, and this is a consumer (client.consumer): use client.share_consumer"
    assert isinstance(group.member.failed, InconsistentGroupProtocol) and why in str(group.member.failed)


@pytest.mark.parametrize(
    ("state", "joins_by"),
    [
        ("Dead", ConsumerGroupHeartbeatRequest),
        ("Empty", ConsumerGroupHeartbeatRequest),
        ("Stable", JoinGroupRequest),
        ("PreparingRebalance", JoinGroupRequest),
    ],
)
def test_a_classic_group_stays_classic_as_long_as_it_has_members(state: str, joins_by: type[Any]) -> None:
    group = Choosing()
    group.describe_classic(state)
    assert group.joins_by is joins_by


@pytest.mark.parametrize("error", [UnsupportedVersion, GroupAuthorizationFailed])
def test_a_coordinator_that_does_not_describe_the_group_gets_a_classic_member(error: type[BrokerError]) -> None:
    group = Choosing()
    group.refuse_to_describe(error)
    assert group.joins_by is JoinGroupRequest


def test_a_coordinator_that_is_not_ready_is_asked_again() -> None:
    group = Choosing()
    group.refuse_to_describe(CoordinatorLoadInProgress)
    assert group.world.waiting == []
    assert "chooses the group protocol" in "".join(group.member.explain(group.world.now))
    group.world.later(0.5)
    group.describe()
    assert group.joins_by is ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_another_number_of_groups_is_the_brokers_mistake_and_asked_for_again(count: int) -> None:
    group = Choosing()
    group.describing = count
    group.describe()
    assert f"with {count} groups" in "".join(group.member.explain(group.world.now))
    group.describing = 1
    group.world.later(0.5)
    group.describe()
    assert group.joins_by is ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize("error", [UnsupportedVersion, GroupIdNotFound])
def test_a_coordinator_that_refuses_the_heartbeat_gets_a_classic_member(
    error: type[BrokerError], caplog: pytest.LogCaptureFixture
) -> None:
    group = Choosing()
    group.describe()
    group.refuse(error)
    assert group.joins_by is JoinGroupRequest and group.member.failed is None
    assert "the group cannot use the new group protocol" in caplog.text
    group.member.subscribe(("t", "u"), group.world.now)
    assert group.member.owned == () and group.member.generation == -1


def test_a_loss_is_reported_although_a_classic_member_has_taken_over() -> None:
    group = Choosing()
    group.describe()
    group.own(0, 1)
    group.refuse(UnsupportedVersion)
    assert group.world.pending(JoinGroupRequest) and group.member.owned == ()
    [lost] = group.member.changes
    assert isinstance(lost, Lose) and lost.places == (("t", 0), ("t", 1))
    group.member.done(lost, group.world.now)
    assert not group.member.changes


def test_the_join_of_a_classic_member_outlasts_the_goodbye_of_the_member_before() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.refuse(UnsupportedVersion)
    [join] = group.world.pending(JoinGroupRequest)
    group.let_go()
    group.world.later(0.5)
    [still] = group.world.pending(JoinGroupRequest)
    assert still is join


def test_the_end_waits_for_the_goodbye_of_the_member_before() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.refuse(UnsupportedVersion)
    left = group.member.close("the consumer was closed", group.world.now)
    group.world.run()
    assert not left.done and not group.world.pending(LeaveGroupRequest), "the classic member has no member id yet"
    group.let_go()
    assert left.done and left.error is None


def test_an_earlier_loss_is_reported_too_and_the_log_shows_no_error(caplog: pytest.LogCaptureFixture) -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.refuse(UnknownMemberId)
    [lost] = group.member.changes
    group.describe()
    group.refuse(GroupIdNotFound)  # meanwhile the group ended, and another member has begun a classic one
    assert group.joins_by is JoinGroupRequest and list(group.member.changes) == [lost]
    assert {each.levelname for each in caplog.records} == {"WARNING"}


def test_a_member_that_comes_back_joins_as_before_if_the_group_is_of_the_new_type() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.leave()
    group.join()
    group.describe()
    assert group.world.asked(ConsumerGroupHeartbeatRequest).member_epoch == 0


def test_a_member_that_comes_back_does_not_convert_a_group_that_became_classic() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.leave()  # the broker makes the group of the others a classic one
    [lost] = group.member.changes
    group.join()
    group.describe_classic("Stable")
    assert group.joins_by is JoinGroupRequest and list(group.member.changes) == [lost]


def test_a_member_that_comes_back_asks_for_the_group_only_when_it_has_left() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.member.leave("the loop is slow", group.world.now)
    group.join()
    assert group.world.pending(DescribeGroupsRequest) == [], "it would find itself in the group"
    group.let_go()
    assert group.joins_by is DescribeGroupsRequest


@pytest.mark.parametrize("error", [UnknownMemberId, GroupIdNotFound])
def test_an_expelled_member_does_not_convert_a_group_that_became_classic(error: type[BrokerError]) -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.refuse(error)
    group.describe_classic("PreparingRebalance")
    assert group.joins_by is JoinGroupRequest


def test_a_join_that_is_repeated_after_a_pause_does_not_convert_a_group_that_became_classic() -> None:
    group = Choosing()
    group.describe()
    group.refuse(CoordinatorLoadInProgress)
    group.world.later(0.5)
    group.describe_classic("Stable")
    assert group.joins_by is JoinGroupRequest


def test_a_member_that_comes_back_says_what_it_waits_for() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.leave()
    group.join()
    group.refuse_to_describe(CoordinatorLoadInProgress)
    told = "".join(group.member.explain(group.world.now))
    assert "chooses the group protocol" in told and "COORDINATOR_LOAD_IN_PROGRESS" in told
    group.world.later(0.5)
    group.describe()
    assert "chooses" not in "".join(group.member.explain(group.world.now))


def test_a_member_that_leaves_again_while_it_asks_for_the_group_asks_again_when_it_comes_back() -> None:
    group = Choosing()
    group.describe()
    group.own(0)
    group.leave()
    group.join()
    group.member.leave("the loop is slow again", group.world.now)
    group.describe()
    assert group.world.waiting == []
    group.join()
    assert group.joins_by is DescribeGroupsRequest


def test_a_choosing_member_passes_on_what_its_member_has() -> None:
    group = Choosing()
    group.describe()
    answer = ConsumerGroupHeartbeatResponse(
        error_code=0, member_epoch=3, heartbeat_interval_ms=5000, assignment=Assignment(topic_partitions=())
    )
    group.world.answer(group.world.asked(ConsumerGroupHeartbeatRequest), answer)
    identity = group.member.identity
    assert identity is not None and identity.generation == group.member.generation == 3
    assert group.member.member_id == identity.member_id and list(group.member.changes) == []


def test_a_choice_ends_if_the_member_leaves() -> None:
    group = Choosing()
    group.member.leave("the loop is busy", group.world.now)
    group.describe()
    assert group.world.waiting == []
    group.member.join(group.world.now)
    group.world.run()
    assert group.joins_by is DescribeGroupsRequest
    assert group.member.close("the end", group.world.now).done
    group.describe()
    assert group.world.waiting == []


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, ChoosingMember),
        ({"group_protocol": "classic"}, ClassicMember),
        ({"group_protocol": "consumer"}, ConsumerGroupMember),
        ({"group_protocol": "auto"}, ChoosingMember),
        ({"session_timeout": 30.0}, ClassicMember),
        ({"group_protocol": "auto", "session_timeout": 30.0}, ClassicMember),
        ({"group_protocol": "auto", "heartbeat_interval": 1.0}, ClassicMember),
        ({"group_protocol": "auto", "assignors": "range"}, ClassicMember),
        ({"assignors": ["range", "cooperative-sticky"]}, ChoosingMember),
        ({"assignors": ("range", "cooperative-sticky"), "session_timeout": 45.0}, ChoosingMember),
        ({"max_poll_interval": 30.0}, ChoosingMember),
        ({"instance_id": "i"}, ClassicMember),
        ({"group_protocol": "consumer", "instance_id": "i"}, ConsumerGroupMember),
        ({"group_protocol": "consumer", "assignors": ["range", "cooperative-sticky"]}, ConsumerGroupMember),
    ],
)
def test_the_options_choose_the_member(options: dict[str, Any], kind: type[Membership]) -> None:
    world = Coordinator({"t": 3}, more=SERVED, group_version=1)
    member = member_of(world.core, GROUP, MemberOptions(**options).checked(), "group-1", lambda change, now: None)
    assert type(member) is kind


@pytest.mark.parametrize(
    ("protocol", "kind"), [("auto", ClassicMember), ("classic", ClassicMember), ("consumer", ConsumerGroupMember)]
)
def test_a_client_with_a_rack_has_classic_members_by_default(protocol: Any, kind: type[Membership]) -> None:
    world = Coordinator({"t": 3}, Options(rack="east"), more=SERVED, group_version=1)
    options = MemberOptions(group_protocol=protocol).checked()
    assert type(member_of(world.core, GROUP, options, "group-1", lambda change, now: None)) is kind


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_protocol": "consumer", "session_timeout": 30.0}, "session_timeout and group_protocol='consumer'"),
        ({"group_protocol": "consumer", "heartbeat_interval": 1.0}, "the broker divides the partitions and sets"),
        ({"group_protocol": "consumer", "assignors": "range"}, "choose group_protocol='classic'"),
        ({"group_protocol": "new"}, "must be one of 'classic', 'consumer', 'auto', not 'new'"),
        ({"remote_assignor": "uniform"}, "remote_assignor needs group_protocol='consumer'"),
        ({"group_protocol": "auto", "remote_assignor": "uniform"}, "remote_assignor needs group_protocol='consumer'"),
        ({"group_protocol": "consumer", "remote_assignor": ""}, "must be a name such as 'uniform'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        MemberOptions(**options).checked()


def test_an_empty_pattern_of_the_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pattern_re2 must be a string that is not empty"):
        ConsumerOptions(group="g", pattern_re2="")
