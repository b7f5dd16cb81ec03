"""A consumer whose group has the protocol of KIP-848: it resumes, commits and gives up by the member epoch."""

import uuid
from typing import Any, Literal

import pytest

from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.codec.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.codec.apis.join_group import JoinGroupRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.errors import BrokerError, GroupIdNotFound, StaleMemberEpoch, UnknownMemberId, UnsupportedVersion
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerOptions, ConsumerPlan
from ottla.sdk.consume.partitions.position import Offset
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.options import Options
from ottla.sdk.steps import Steps
from tests.sdk.calling import Call, Cancelled, Tasks
from tests.sdk.coordinator import Coordinator
from tests.sdk.test_consumer_machine import Listening

T0, T1 = ("t", 0), ("t", 1)
T_ID = uuid.UUID(int=101)


class Reader:
    """A consumer of "t"; the test plays the coordinator."""

    def __init__(self, group_protocol: Literal["consumer", "auto"] = "consumer") -> None:
        more = {9: (0, 9), 15: (0, 6), 68: (0, 1)}
        self.world = Coordinator({"t": 3}, Options(), more=more, group_version=1)
        self.world.ids["t"] = T_ID
        self.world.core.metadata.topic("t", 0.0)
        self.world.run()
        plan = ConsumerPlan(
            start=Offset(0),
            topics=("t",),
            member=MemberOptions(group_protocol=group_protocol),
            options=ConsumerOptions(group="g"),
        )
        self.machine = ConsumerCore(self.world.core, plan, Fetcher(self.world.core), Tasks(), Listening())
        assert self.call(self.machine.enter({}, "task")).over
        self.loop = self.call(self.machine.next_batch("task"))

    def call(self, steps: Steps[Any]) -> Call[Any]:
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    @property
    def beat(self) -> ConsumerGroupHeartbeatRequest:
        return self.world.asked(ConsumerGroupHeartbeatRequest)

    def answer(self, epoch: int, places: list[int] | None = None) -> None:
        some = (TopicPartitions(topic_id=T_ID, partitions=tuple(places)),) if places else ()
        assignment = None if places is None else Assignment(topic_partitions=some)
        self.world.answer(
            self.beat,
            ConsumerGroupHeartbeatResponse(
                error_code=0, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
            ),
        )

    def refuse(self, error: type[BrokerError]) -> None:
        answer = ConsumerGroupHeartbeatResponse(error_code=error.code, member_epoch=0, heartbeat_interval_ms=0)
        self.world.answer(self.beat, answer)

    def fetched(self, offset: int, error: type[BrokerError] | None = None) -> OffsetFetchRequest:
        """Answer the pending OffsetFetch, and return it."""
        request = self.world.asked(OffsetFetchRequest)
        [asked] = request.groups
        topics = tuple(
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartitions(
                        partition_index=each, committed_offset=offset, metadata="", error_code=0
                    )
                    for each in topic.partition_indexes
                ),
            )
            for topic in asked.topics or ()
        )
        group = OffsetFetchResponseGroup(
            group_id="g", topics=() if error else topics, error_code=error.code if error else 0
        )
        self.world.answer(request, OffsetFetchResponse(groups=(group,)))
        return request

    def committed(self, error: type[BrokerError] | None = None) -> OffsetCommitRequest:
        """Answer the pending OffsetCommit, and return it."""
        request = self.world.asked(OffsetCommitRequest)
        code = error.code if error else 0
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        self.world.answer(request, OffsetCommitResponse(topics=topics))
        return request

    def tell(self) -> tuple[str, tuple[Any, ...]]:
        """The listener returns from the notification that it is handling."""
        self.loop.go_on()
        awaits = self.loop.awaits
        assert awaits is not None
        self.loop.answer()
        return awaits.function.__name__, awaits.args[0]

    def assign(self, epoch: int, *places: int) -> None:
        """Join, and read these partitions from offset 0."""
        self.answer(epoch, list(places))
        self.answer(epoch)
        self.fetched(0)
        self.tell()

    def commit(self, place: tuple[str, int], offset: int) -> Call[None]:
        commits = self.machine.commits
        assert commits is not None
        assignment = commits.assignment(place)
        assert assignment is not None
        commits.commit({assignment: CommittedOffset(offset)}, self.world.now)
        self.world.run()
        return self.call(self.machine.committer.settled([place]))


def test_offsets_are_fetched_and_committed_by_the_member_epoch() -> None:
    reader = Reader()
    member_id = reader.beat.member_id
    reader.answer(4, [0])
    reader.answer(4)
    [asked] = reader.fetched(7).groups
    assert (asked.member_id, asked.member_epoch) == (member_id, 4)
    assert reader.tell() == ("assigned", (T0,))
    waiting = reader.commit(T0, 9)
    request = reader.committed()
    assert (request.member_id, request.generation_id_or_member_epoch) == (member_id, 4)
    waiting.go_on()
    assert waiting.over


@pytest.mark.parametrize("error", [StaleMemberEpoch, UnknownMemberId])
def test_a_refused_fetch_of_offsets_is_no_error_of_the_consumer(error: type[BrokerError]) -> None:
    reader = Reader()
    reader.answer(4, [0])
    reader.answer(4)
    reader.fetched(7, error)
    if error is StaleMemberEpoch:
        assert reader.beat.rebalance_timeout_ms > 0, "it asks for its epoch at once"
        reader.answer(5)
    else:
        assert reader.beat.member_epoch == JOIN
        reader.answer(5, [0])
        reader.answer(5)
    reader.world.later(1.0)
    [asked] = reader.fetched(7).groups
    assert asked.member_epoch == 5
    reader.loop.go_on()
    assert not reader.loop.over and reader.machine.membership is not None and reader.machine.membership.owned == (T0,)


def test_a_commit_in_an_old_epoch_is_sent_again_in_the_new_one() -> None:
    reader = Reader()
    reader.assign(4, 0)
    waiting = reader.commit(T0, 9)
    assert reader.committed(StaleMemberEpoch).generation_id_or_member_epoch == 4
    reader.answer(6)
    reader.world.later(1.0)
    assert reader.committed().generation_id_or_member_epoch == 6
    waiting.go_on()
    assert waiting.over


def test_a_commit_in_an_old_epoch_is_dropped_for_a_lost_partition() -> None:
    reader = Reader()
    reader.assign(4, 0)
    reader.commit(T0, 9)
    reader.committed(StaleMemberEpoch)
    reader.refuse(UnknownMemberId)
    assert reader.tell() == ("lost", (T0,))
    reader.world.later(5.0)
    assert reader.world.pending(OffsetCommitRequest) == []


def test_a_partition_is_reported_as_given_up_only_after_its_commit() -> None:
    reader = Reader()
    reader.assign(4, 0, 1)
    reader.commit(T1, 9)
    reader.world.later(5.0)
    reader.answer(4, [0])
    assert reader.tell() == ("revoked", (T1,))
    assert reader.world.pending(ConsumerGroupHeartbeatRequest) == [], "its commit has no answer yet"
    reader.committed()
    reader.loop.go_on()
    [left] = reader.beat.topic_partitions or ()
    assert left.partitions == (0,)


def test_the_listener_hears_of_the_loss_when_a_classic_member_takes_over() -> None:
    reader = Reader("auto")
    unknown = DescribedGroup(
        error_code=GroupIdNotFound.code,
        group_id="g",
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
    )
    asked = reader.world.asked(DescribeGroupsRequest)
    reader.world.answer(asked, DescribeGroupsResponse(groups=(unknown,)))
    reader.assign(1, 0, 1)
    reader.world.later(5.0)
    reader.refuse(UnsupportedVersion)
    assert reader.world.pending(JoinGroupRequest)
    assert reader.tell() == ("lost", (T0, T1)) and reader.machine.notices.known == ()


def test_a_consumer_whose_block_ends_leaves_by_a_last_heartbeat() -> None:
    reader = Reader()
    reader.assign(4, 0)
    reader.loop.throw(Cancelled())
    ending = reader.call(reader.machine.leave(None, "task"))
    awaits = ending.awaits
    assert awaits is not None and awaits.function.__name__ == "revoked"
    ending.answer()
    assert reader.beat.member_epoch == LEAVE
    reader.answer(LEAVE)
    ending.go_on()
    assert ending.over
