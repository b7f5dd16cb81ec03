"""What a consumer in a group is told, and when: steps that overtake each other leave no partition behind."""

import random
from typing import Any

import pytest

from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.errors import BrokerError, LocalProtocolError, RebalanceInProgress, UnknownMemberId
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.core import ConsumerCore, ConsumerOptions
from ottla.sdk.consume.fetcher import Fetcher
from ottla.sdk.consume.positions import Offset
from ottla.sdk.group.assignors import ASSIGNORS, build_assigned
from ottla.sdk.group.membership import Lose, MemberOptions, Receive, Revoke, Step
from tests.sdk.coordinator import Coordinator

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
Places = tuple[tuple[str, int], ...]


class Reader:
    """A consumer of ``t`` in a group, and a test that plays its coordinator."""

    def __init__(self, assignor: str = "range") -> None:
        self.world = Coordinator({"t": 3})
        self.assignor = assignor
        self.world.core.metadata.topic("t", 0.0)
        self.world.run()
        options = ConsumerOptions(
            start=Offset(0), topics=("t",), group="g", member=MemberOptions(assignors=(ASSIGNORS[assignor],))
        )
        self.machine = ConsumerCore(self.world.core, options, Fetcher(self.world.core))
        self.machine.begin(0.0)
        self.machine.idle(0.0)
        self.world.run()

    def assign(self, generation: int, *places: tuple[str, int]) -> None:
        """Let the group give these partitions."""
        answer = JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=self.assignor,
            leader="other",
            member_id="me",
            members=(),
        )
        self.world.answer(self.world.asked(JoinGroupRequest), answer)
        sync = SyncGroupResponse(error_code=0, assignment=build_assigned(places))
        self.world.answer(self.world.asked(SyncGroupRequest), sync)

    def stands(self, offset: int) -> None:
        """Say where the group stands in all that is asked for."""
        for request in self.world.pending(OffsetFetchRequest):
            topics = tuple(
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetFetchResponsePartition(
                            partition_index=each, committed_offset=offset, metadata="", error_code=0
                        )
                        for each in topic.partition_indexes
                    ),
                )
                for topic in request.topics or ()
            )
            self.world.answer(request, OffsetFetchResponse(topics=topics))

    def beat(self, error: type[BrokerError]) -> None:
        self.world.later(3.0)
        self.world.answer(self.world.asked(HeartbeatRequest), HeartbeatResponse(error_code=error.code))

    @property
    def news(self) -> tuple[type[Step], Places] | None:
        told = self.machine.next_step()
        return (type(told[0]), told[1]) if told else None

    def tell(self) -> tuple[type[Step], Places]:
        """Tell the user what is to be told next."""
        told = self.machine.next_step()
        assert told is not None
        self.machine.done_with(*told, self.world.now)
        self.world.run()
        return type(told[0]), told[1]


def test_partitions_are_told_of_once_it_is_known_where_the_group_stands() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    assert reader.news is None
    reader.stands(7)
    assert reader.tell() == (Receive, (T0, T1))
    assert reader.machine.fetcher.position(T0) == 7


def test_a_revocation_that_a_loss_overtook_leaves_the_next_assignment_alone() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.beat(RebalanceInProgress)
    revoke = reader.machine.next_step()
    assert revoke is not None and isinstance(revoke[0], Revoke)  # the user takes time
    reader.beat(UnknownMemberId)
    reader.assign(2, T0, T1)
    reader.machine.done_with(*revoke, reader.world.now)
    assert reader.tell() == (Lose, (T0, T1))
    reader.stands(9)
    assert reader.tell() == (Receive, (T0, T1))
    assert reader.machine.fetcher.assignment == [T0, T1] and reader.machine.fetcher.position(T1) == 9


def test_a_rebalance_does_not_wait_for_positions_that_nobody_will_use() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.beat(RebalanceInProgress)  # nobody has told yet where the group stands
    assert reader.tell() == (Revoke, ()), "who was never told that they came need not give them up"
    reader.assign(2, T2)
    reader.stands(3)
    assert reader.tell() == (Receive, ())
    assert reader.tell() == (Receive, (T2,))
    assert reader.machine.fetcher.assignment == [T2] and reader.machine.received == (T2,)


def test_a_cooperative_member_gives_up_before_it_is_known_where_what_it_got_stands() -> None:
    reader = Reader("cooperative-sticky")
    reader.assign(1, T0, T1)
    reader.stands(0)
    reader.tell()
    reader.beat(RebalanceInProgress)
    reader.assign(2, T0, T2)
    assert reader.tell() == (Revoke, (T1,))
    assert reader.news is None
    reader.stands(5)
    assert reader.tell() == (Receive, (T2,))


def test_a_topic_that_was_deleted_is_not_said_to_be_with_another_member() -> None:
    for gone, why in ((True, "its topic is gone"), (False, "be it this consumer again")):
        reader = Reader()
        reader.assign(1, T0)
        reader.stands(0)
        reader.tell()
        assignment = reader.machine.group_commits.assignment(T0)
        if gone:
            del reader.world.core.cluster.topics["t"]
        reader.beat(RebalanceInProgress)
        assert reader.tell() == (Revoke, (T0,))
        assert assignment is not None and why in assignment.over


def test_a_loss_while_partitions_are_told_of_is_told_next_and_a_seek_in_them_meanwhile_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.stands(7)
    receive = reader.machine.next_step()
    assert receive is not None and isinstance(receive[0], Receive)  # the user takes time
    reader.beat(UnknownMemberId)
    reader.machine.seek({T0: Offset(5)}, reader.world.now)
    reader.machine.done_with(*receive, reader.world.now)
    reader.machine.seek({T0: Offset(5)}, reader.world.now)
    assert reader.machine.owned([T0], "pause") == []
    dropped: list[Any] = [each for each in caplog.records if each.message.startswith("a wish is dropped")]
    assert [(each.wish, each.partitions) for each in dropped] == [("seek", [T0]), ("seek", [T0]), ("pause", [T0])]
    with pytest.raises(LocalProtocolError, match="the group has taken it, which the loop is told of next"):
        reader.machine.commit({T0: CommittedOffset(8)}, reader.world.now)
    assert reader.tell() == (Lose, (T0, T1))
    with pytest.raises(LocalProtocolError, match=r"\('t', 0\) is not assigned .* seek once `assigned`"):
        reader.machine.seek({T0: Offset(5)}, reader.world.now)
    reader.assign(2, T0)
    reader.stands(9)
    assert reader.tell() == (Receive, (T0,)) and reader.machine.fetcher.position(T0) == 9


def test_a_seek_in_partitions_that_the_group_did_not_give_is_refused_whenever_it_comes() -> None:
    reader = Reader()
    for given in (), (T1,):
        if given:
            reader.assign(1, *given)
            reader.stands(0)
            reader.tell()
            reader.machine.seek({T1: Offset(3)}, reader.world.now)
        with pytest.raises(LocalProtocolError, match="seek once `assigned`"):
            reader.machine.seek({T0: Offset(5), T1: Offset(5)}, reader.world.now)
    assert reader.machine.fetcher.position(T1) == 3


def test_what_was_lost_and_has_been_committed_since_is_not_told_of() -> None:
    for committed in (5, 10):
        reader = Reader()
        reader.assign(1, T0)
        reader.stands(0)
        reader.tell()
        assignment = reader.machine.group_commits.assignment(T0)
        assert assignment is not None
        assignment.handed = 10
        reader.beat(UnknownMemberId)
        reader.tell()
        reader.assign(2, T0)
        reader.stands(committed)
        reader.tell()
        reader.beat(UnknownMemberId)
        lost = reader.machine.commit_all(reader.world.now)
        assert (lost and lost.offsets) == ({T0: 10} if committed == 5 else None)


def test_a_member_that_is_lost_before_it_was_told_of_anything_is_told_nothing() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.beat(UnknownMemberId)
    assert reader.tell() == (Lose, ())
    assert reader.machine.received == ()


def test_whatever_comes_in_whatever_order_what_is_owned_is_what_is_read() -> None:
    for seed in range(100):
        chance, reader = random.Random(seed), Reader(("range", "cooperative-sticky")[seed % 2])
        for generation in range(1, 12):
            if reader.world.pending(JoinGroupRequest):
                places = [each for each in (T0, T1, T2) if chance.random() < 0.6]
                reader.assign(generation, *places)
            if chance.random() < 0.6:
                reader.stands(generation)
            while chance.random() < 0.6 and reader.news:
                reader.tell()
            reader.world.later(3.0)
            for beat in reader.world.pending(HeartbeatRequest):
                error = chance.choice([None, RebalanceInProgress, UnknownMemberId])
                reader.world.answer(beat, HeartbeatResponse(error_code=error.code if error else 0))
        for generation in range(20, 30):
            while reader.news:
                reader.tell()
            if reader.world.pending(JoinGroupRequest):
                reader.assign(generation, T0, T1)
            reader.stands(generation)
            reader.world.later(1.0)
        membership = reader.machine.membership
        assert membership is not None and not membership.steps, seed
        assert sorted(membership.owned) == sorted(reader.machine.received) == reader.machine.fetcher.assignment, seed
