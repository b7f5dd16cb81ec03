"""The notifications of a consumer in a group, and their times: no overlap of steps leaves a partition behind."""

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.codec.apis.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    BrokerError,
    Closed,
    CommitFailed,
    DataLoss,
    LocalProtocolError,
    OffsetMetadataTooLarge,
    OttlaError,
    RebalanceInProgress,
    TimeoutExpired,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.assignment.committing import BatchAssignment
from ottla.sdk.consume.assignment.leaving import LEAVE_TIMEOUT
from ottla.sdk.consume.assignment.subscription import PATTERN_AGE
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerOptions, ConsumerPlan, TopicFilter
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Offset, Start, Time
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.group.assignors import ASSIGNORS, build_assigned
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import Membership
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.steps import TURN, Shielded, Steps
from tests.sdk.calling import Call, Cancelled, Tasks
from tests.sdk.coordinator import Coordinator

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
Places = tuple[tuple[str, int], ...]
Told = tuple[str, Places]


class Listening:
    """A listener that does nothing by itself."""

    name = "Listening"

    async def assigned(self, places: Sequence[TopicPartition]) -> None: ...
    async def revoked(self, places: Sequence[TopicPartition]) -> None: ...
    async def lost(self, places: Sequence[TopicPartition]) -> None: ...


class Reader:
    """A consumer of ``t`` in a group; the test plays its coordinator, its loop and its listener.

    Attributes:
        loop: the call that waits for a batch.
    """

    def __init__(
        self,
        assignor: str = "range",
        *,
        pattern: bool = False,
        start: Start = Offset(0),  # noqa: B008 # frozen
        topic_id: uuid.UUID = uuid.UUID(int=7),  # noqa: B008 # frozen
        **options: Any,
    ) -> None:
        self.world = Coordinator({"t": 3})
        self.world.ids["t"] = topic_id
        self.assignor = assignor
        self.world.core.metadata.topic("t", 0.0)
        self.world.run()
        member = MemberOptions(assignors=(ASSIGNORS[assignor],), **options)
        named: dict[str, Any] = {"matches": TopicFilter("t")} if pattern else {"topics": ("t",)}
        self.machine = ConsumerCore(
            self.world.core,
            ConsumerPlan(start=start, member=member, options=ConsumerOptions(group="g"), **named),
            Fetcher(self.world.core),
            Tasks(),
            Listening(),
        )
        assert self.call(self.machine.enter({}, "task")).over
        self.loop = self.call(self.machine.next_batch("task"))

    def call(self, steps: Steps[Any]) -> Call[Any]:
        return Call(self.world.core, steps, lambda: self.world.now, self.world.run)

    def ask(self) -> None:
        """Begin another call for a batch."""
        self.loop = self.call(self.machine.next_batch("task"))

    @property
    def commits(self) -> Commits:
        assert self.machine.commits is not None
        return self.machine.commits

    @property
    def member(self) -> Membership:
        assert self.machine.membership is not None
        return self.machine.membership

    def assign(self, generation: int, *places: tuple[str, int]) -> None:
        """Let the group assign these partitions."""
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
        """Answer every pending OffsetFetch with this offset."""
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

    def begins(self, offset: int) -> int:
        """Answer the pending ListOffsets of one partition with this offset; return its timestamp."""
        request = self.world.asked(ListOffsetsRequest)
        ((name, (asked,)),) = [(each.name, each.partitions) for each in request.topics]
        found = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=0, offset=offset)
        topic = ListOffsetsTopicResponse(name=name, partitions=(found,))
        self.world.answer(request, ListOffsetsResponse(topics=(topic,)))
        self.loop.go_on()
        return asked.timestamp

    def read_from_the_end(self) -> None:
        """Assign T0, which has no committed offset, and read it from its end."""
        self.assign(1, T0)
        self.stands(-1)
        assert self.begins(5) == LATEST
        assert self.tell() == ("assigned", (T0,))

    def live(self, seconds: float) -> None:
        """Let time pass, with heartbeats, and take the notifications."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.later(1.0)
            for beat in self.world.pending(HeartbeatRequest):
                self.world.answer(beat, HeartbeatResponse(error_code=0))
            self.loop.go_on()
            while self.news is not None:
                self.tell()

    def beat(self, error: type[BrokerError]) -> None:
        self.world.later(3.0)
        self.world.answer(self.world.asked(HeartbeatRequest), HeartbeatResponse(error_code=error.code))

    def committed(self, code: int = 0) -> None:
        """Answer the pending OffsetCommit."""
        request = self.world.asked(OffsetCommitRequest)
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

    @property
    def news(self) -> Told | None:
        """The notification that the listener is handling."""
        awaits = self.loop.awaits
        return (awaits.function.__name__, awaits.args[0]) if awaits else None

    def tell(self) -> Told:
        """The listener returns from the notification that it is handling."""
        told = self.news
        assert told is not None
        self.loop.answer()
        return told

    def hand_out(self, place: tuple[str, int], offset: int) -> None:
        """As if the consumer had handed out a batch that ends there."""
        assignment = self.commits.assignment(place)
        assert assignment is not None
        assignment.handed = offset


def test_partitions_are_told_of_once_it_is_known_where_the_group_stands() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    assert reader.news is None
    reader.stands(7)
    assert reader.tell() == ("assigned", (T0, T1))
    assert reader.machine.fetcher.position(T0) == 7


def test_partitions_that_are_lost_while_they_are_given_up_are_not_told_of_again_and_come_again() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.beat(RebalanceInProgress)
    assert reader.news == ("revoked", (T0, T1))  # the listener takes its time
    reader.beat(UnknownMemberId)
    reader.assign(2, T0, T1)
    assert reader.tell() == ("revoked", (T0, T1))
    assert reader.news is None
    reader.stands(9)
    assert reader.tell() == ("assigned", (T0, T1))
    assert reader.machine.fetcher.assignment == [T0, T1] and reader.machine.fetcher.position(T1) == 9


@pytest.mark.parametrize("error", [Cancelled, ZeroDivisionError])
def test_a_revocation_whose_telling_was_cancelled_or_raised_goes_on_and_is_not_told_again(
    error: type[BaseException],
) -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.beat(RebalanceInProgress)
    assert reader.news == ("revoked", (T0, T1))
    reader.loop.throw(error())
    assert isinstance(reader.loop.error, error) and reader.member.owned == (T0, T1)
    reader.ask()
    assert reader.news is None and not reader.member.owned
    assert reader.world.pending(JoinGroupRequest)


def test_a_revocation_whose_commits_were_cancelled_waits_for_them_in_the_next_call() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.machine.committer.commit_soon({T0: 8})
    reader.world.run()
    reader.beat(RebalanceInProgress)
    reader.tell()
    reader.loop.throw(Cancelled())
    reader.ask()
    assert reader.news is None and reader.member.owned == (T0,)
    reader.committed()
    reader.loop.go_on()
    assert not reader.member.owned


@pytest.mark.parametrize("cancelled_every", [8.0, 1.0, 0.25, None])
def test_a_revocation_gives_up_commits_before_the_group_removes_the_member(
    cancelled_every: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(max_poll_interval=20.0)
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.machine.committer.commit_soon({T0: 8})
    reader.world.run()
    reader.beat(RebalanceInProgress)
    began = reader.world.now
    reader.tell()
    while reader.member.owned and reader.world.now < began + 20.0:
        reader.world.later(cancelled_every or 1.0)
        if cancelled_every and not reader.loop.over:  # the next call does not begin to wait from the start
            reader.loop.throw(Cancelled())
            reader.ask()
        reader.loop.go_on()
    assert 10.0 <= reader.world.now - began <= 16.0
    assert not reader.member.owned and reader.world.pending(JoinGroupRequest)
    assert "partitions are revoked with uncommitted offsets" in caplog.text


def test_a_commit_that_a_listener_awaits_ends_before_the_group_removes_the_member() -> None:
    reader = Reader(max_poll_interval=20.0)
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.beat(RebalanceInProgress)
    assert reader.news == ("revoked", (T0,))
    began = reader.world.now
    commit = reader.call(reader.machine.committer.commit({T0: 9}))
    while not commit.over:
        reader.world.later(1.0)
        commit.go_on()
    assert isinstance(commit.error, TimeoutExpired) and reader.world.now <= began + 10.0
    reader.loop.throw(commit.error)  # the listener does not catch it
    reader.ask()
    reader.world.later(6.0)
    reader.loop.go_on()
    assert not reader.member.owned and reader.world.pending(JoinGroupRequest)


@pytest.mark.parametrize("handled", [19.0, 30.0])
def test_a_revocation_that_the_user_gets_late_still_waits_for_commits(
    handled: float, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader("cooperative-sticky", max_poll_interval=20.0)
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.beat(RebalanceInProgress)
    reader.assign(2, T0)
    assert reader.news == ("revoked", (T1,))
    for _ in range(2):  # the listener does other work first, for longer than the group waits if it counts at all
        reader.world.later(handled / 2)
        for beat in reader.world.pending(HeartbeatRequest):
            reader.world.answer(beat, HeartbeatResponse(error_code=0))
        reader.machine.polls.away(reader.world.now)
    reader.machine.committer.commit_soon({T1: 8})
    reader.world.run()
    reader.tell()
    reader.world.later(0.1)
    reader.loop.go_on()
    assert T1 in reader.member.owned
    reader.committed()
    reader.loop.go_on()
    assert reader.member.owned == (T0,) and "uncommitted" not in caplog.text


def test_a_revocation_waits_for_the_commits_of_its_own_partitions_alone() -> None:
    reader = Reader("cooperative-sticky")
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.machine.committer.commit_soon({T0: 8})
    reader.world.run()
    reader.beat(RebalanceInProgress)
    reader.assign(2, T0)
    assert reader.tell() == ("revoked", (T1,))
    reader.loop.go_on()
    assert reader.member.owned == (T0,)  # though T0 is not committed
    assert reader.world.pending(OffsetCommitRequest)


def test_a_revocation_that_is_cancelled_is_not_told_once_more_when_the_block_is_left() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.beat(RebalanceInProgress)
    assert reader.news == ("revoked", (T0,))
    reader.loop.throw(Cancelled())
    leaving = reader.call(reader.machine.leave(Cancelled(), "task"))
    assert leaving.awaits is None and reader.world.pending(LeaveGroupRequest)


def test_a_block_whose_leaving_is_cancelled_does_not_tell_of_what_it_told_already() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.machine.committer.commit_soon({T0: 8})
    reader.world.run()
    reader.loop.throw(Cancelled())
    leaving = reader.call(reader.machine.leave(None, "task"))
    assert leaving.awaits is not None and leaving.awaits.function.__name__ == "revoked"
    leaving.answer()
    cancelled = Cancelled()
    leaving.throw(cancelled)  # during the commit
    assert leaving.awaits is None and not leaving.over
    reader.world.later(0.8)
    assert leaving.go_on().awaits is None
    reader.world.later(0.8)
    assert leaving.go_on().error is cancelled
    assert cancelled.__notes__ == ["ottla: not committed, so to be read again: t-0 at 8"]


def test_a_rebalance_does_not_wait_for_positions_that_nobody_will_use() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.beat(RebalanceInProgress)  # no OffsetFetch has been answered yet
    assert reader.news is None, "a partition that was not announced needs no revocation"
    reader.assign(2, T2)
    reader.stands(3)
    assert reader.tell() == ("assigned", (T2,))
    assert reader.machine.fetcher.assignment == [T2] and reader.machine.notices.known == (T2,)


def test_a_cooperative_member_gives_up_before_it_is_known_where_what_it_got_stands() -> None:
    reader = Reader("cooperative-sticky")
    reader.assign(1, T0, T1)
    reader.stands(0)
    reader.tell()
    reader.beat(RebalanceInProgress)
    reader.assign(2, T0, T2)
    assert reader.tell() == ("revoked", (T1,))
    assert reader.news is None
    reader.stands(5)
    assert reader.tell() == ("assigned", (T2,))


def test_a_topic_that_was_deleted_is_not_said_to_be_with_another_member() -> None:
    for gone, why in ((True, "its topic was deleted"), (False, "perhaps this consumer again")):
        reader = Reader()
        reader.assign(1, T0)
        reader.stands(0)
        reader.tell()
        assignment = reader.commits.assignment(T0)
        if gone:
            del reader.world.core.cluster.topics["t"]
        reader.beat(RebalanceInProgress)
        assert reader.tell() == ("revoked", (T0,))
        assert assignment is not None and why in assignment.over


def test_a_loss_while_partitions_are_told_of_is_told_next_and_a_seek_in_them_meanwhile_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.stands(7)
    assert reader.news == ("assigned", (T0, T1))  # the listener takes its time
    reader.beat(UnknownMemberId)
    reader.call(reader.machine.navigation.seek({T0: Offset(5)}))
    reader.loop.answer()
    assert reader.news == ("lost", (T0, T1))
    reader.call(reader.machine.navigation.seek({T0: Offset(5)}))
    reader.machine.navigation.pause([T0])
    dropped: list[Any] = [each for each in caplog.records if each.message.startswith("call dropped")]
    assert [(each.call, each.partitions) for each in dropped] == [(each, ["t-0"]) for each in ("seek", "seek", "pause")]
    with pytest.raises(LocalProtocolError, match="the group has revoked it, and the listener will be notified next"):
        reader.machine.committer.commit_soon({T0: 8})
    reader.tell()
    error = reader.call(reader.machine.navigation.seek({T0: Offset(5)})).error
    assert isinstance(error, LocalProtocolError) and "('t', 0) is not assigned" in str(error)
    assert "seek once `assigned`" in str(error)
    reader.assign(2, T0)
    reader.stands(9)
    assert reader.tell() == ("assigned", (T0,)) and reader.machine.fetcher.position(T0) == 9


def test_a_seek_in_partitions_that_the_group_did_not_give_is_refused_whenever_it_comes() -> None:
    reader = Reader()
    for given in (), (T1,):
        if given:
            reader.assign(1, *given)
            reader.stands(0)
            reader.tell()
            reader.call(reader.machine.navigation.seek({T1: Offset(3)}))
        error = reader.call(reader.machine.navigation.seek({T0: Offset(5), T1: Offset(5)})).error
        assert isinstance(error, LocalProtocolError) and "seek once `assigned`" in str(error)
    assert reader.machine.fetcher.position(T1) == 3


def test_what_was_lost_and_has_been_committed_since_is_not_told_of() -> None:
    for committed in (5, 10):
        reader = Reader()
        reader.assign(1, T0)
        reader.stands(0)
        reader.tell()
        reader.hand_out(T0, 10)
        reader.beat(UnknownMemberId)
        reader.tell()
        reader.assign(2, T0)
        reader.stands(committed)
        reader.tell()
        reader.beat(UnknownMemberId)
        error = reader.call(reader.machine.committer.commit(None)).error
        assert (error.offsets if isinstance(error, CommitFailed) else None) == ({T0: 10} if committed == 5 else None)


@pytest.mark.parametrize("error", [Cancelled, TimeoutExpired, CommitFailed])
def test_what_was_lost_is_told_by_the_next_commit_where_the_wait_for_this_one_ends_otherwise(
    error: type[BaseException],
) -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.hand_out(T0, 9)
    reader.beat(UnknownMemberId)
    reader.tell()
    reader.assign(2, T1)
    reader.stands(7)
    reader.tell()
    reader.machine.committer.commit_soon({T1: 8})
    first = reader.call(reader.machine.committer.commit(None))
    if error is Cancelled:
        first.throw(Cancelled())
    elif error is TimeoutExpired:
        reader.world.later(61.0)
    else:
        reader.committed(OffsetMetadataTooLarge.code)
    assert isinstance(first.go_on().error, error)
    assert not isinstance(first.error, CommitFailed) or first.error.offsets == {T1: 8}
    if reader.world.pending(OffsetCommitRequest):
        reader.committed()
    second = reader.call(reader.machine.committer.commit(None))
    assert isinstance(second.error, CommitFailed) and second.error.offsets == {T0: 9}
    assert reader.call(reader.machine.committer.commit(None)).error is None


def test_a_member_that_is_lost_before_it_was_told_of_anything_is_told_nothing() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.beat(UnknownMemberId)
    assert reader.news is None and reader.machine.notices.known == ()


@pytest.mark.slow
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
                if chance.random() < 0.3:
                    reader.loop.throw(Cancelled())
                    reader.ask()
                else:
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
        assert not reader.member.changes, seed
        known = reader.machine.notices.known
        assert sorted(reader.member.owned) == sorted(known) == reader.machine.fetcher.assignment, seed


# -- max_poll_interval -------------------------------------------------------------------------------------------------


def test_a_poll_counts_as_progress_and_leaves_nothing_behind() -> None:
    reader = Reader(max_poll_interval=5.0)
    reader.assign(1, T0)
    reader.stands(0)
    reader.tell()
    reader.loop.throw(Cancelled())

    def later(seconds: float) -> None:
        reader.world.later(seconds)
        for beat in reader.world.pending(HeartbeatRequest):
            reader.world.answer(beat, HeartbeatResponse(error_code=0))

    def left() -> int:
        return len(reader.machine._news._callbacks)

    before = left()
    for number in range(8):
        reader.loop = reader.call(reader.machine.poll("task", 0.5))
        assert left() > before
        if number == 3:
            reader.loop.throw(Cancelled())
        else:
            later(0.4)
            assert not reader.loop.go_on().over
            later(0.2)
            assert reader.loop.go_on().over and reader.loop.result is None and reader.loop.error is None
        later(0.5)
    assert reader.member.owned == (T0,), "polling counts as progress"
    assert left() == before
    later(5.0)
    assert not reader.member.owned, "and without a poll the member leaves"


@pytest.mark.parametrize("how", ["cancelled", "by an error"])
def test_max_poll_interval_is_counted_from_the_end_of_a_wait_however_it_ended(how: str) -> None:
    reader = Reader(max_poll_interval=5.0)
    reader.assign(1, T0)
    reader.stands(0)
    reader.tell()
    for _ in range(10):
        reader.world.later(3.0)
        for beat in reader.world.pending(HeartbeatRequest):
            reader.world.answer(beat, HeartbeatResponse(error_code=0))
    assert reader.member.owned == (T0,), "a waiting consumer makes progress"
    reader.loop.throw(Cancelled() if how == "cancelled" else OttlaError("a stalled partition"))
    reader.world.later(4.9)
    assert reader.member.owned == (T0,)
    reader.world.later(0.2)
    assert not reader.member.owned
    reader.ask()
    assert reader.news == ("lost", (T0,))


def test_a_member_that_asks_for_no_batch_stays_away_though_the_topics_of_its_pattern_are_looked_for() -> None:
    reader = Reader(max_poll_interval=5.0, pattern=True)
    reader.assign(1, T0)
    reader.stands(0)
    reader.tell()
    reader.loop.throw(Cancelled())
    reader.world.later(5.1)
    assert not reader.member.owned
    reader.world.later(2 * PATTERN_AGE)
    assert not reader.world.pending(JoinGroupRequest)
    reader.ask()
    assert reader.tell() == ("lost", (T0,))
    assert reader.world.pending(JoinGroupRequest)


def test_a_topic_of_a_pattern_that_is_deleted_is_not_missed_by_a_member_of_a_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader("cooperative-sticky", pattern=True)
    world = reader.world
    reader.assign(1, T0)
    del world.topics["t"]
    world.core.metadata.refresh(world.now)
    world.later(1.0)
    reader.stands(7)
    assert reader.tell() == ("assigned", (T0,))
    while "the topic was deleted and is no longer read" not in caplog.text:
        world.later(1.0)
        for beat in world.pending(HeartbeatRequest):
            world.answer(beat, HeartbeatResponse(error_code=0))
        assert not reader.loop.go_on().over and world.now < 100.0
    assert T0 in reader.machine.fetcher.places, "until the rebalance that the member has requested"
    reader.assign(2)
    assert reader.tell() == ("revoked", (T0,)) and not reader.machine.fetcher.assignment


def test_a_topic_of_a_pattern_that_is_recreated_is_read_from_its_beginning_by_a_member_of_a_group() -> None:
    reader = Reader(pattern=True)
    world = reader.world
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    world.ids["t"] = uuid.UUID(int=8)
    world.core.metadata.refresh(world.now)
    world.later(1.0)
    assert not reader.loop.go_on().over
    (topic,) = world.asked(ListOffsetsRequest).topics
    assert [(each.partition_index, each.timestamp) for each in topic.partitions] == [(0, EARLIEST)]


def _deleted_and_listed_again(reader: Reader, topic_id: uuid.UUID) -> None:
    """A listing lacks the topic, so the group revokes it; a later listing has it again, and the group assigns it."""
    world = reader.world
    del world.topics["t"]
    reader.live(PATTERN_AGE)
    reader.assign(2)
    assert not reader.machine.fetcher.assignment
    world.topics["t"], world.ids["t"] = 3, topic_id
    reader.live(PATTERN_AGE)
    reader.assign(3, T0)


RECREATED = "the topic was deleted and recreated: it is read from its beginning"


def test_a_topic_that_a_group_revoked_because_it_was_deleted_is_read_from_its_beginning_once_recreated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader(pattern=True, start=Time(LATEST))
    reader.read_from_the_end()
    _deleted_and_listed_again(reader, uuid.UUID(int=8))
    reader.stands(-1)
    assert reader.begins(0) == EARLIEST
    assert "topics that match the pattern are no longer listed or read (topics=['t'])" in caplog.messages
    assert f"{RECREATED} (topic=t)" in caplog.messages


def test_a_topic_that_one_listing_lacks_is_not_a_recreated_one() -> None:
    reader = Reader(pattern=True, start=Time(LATEST))
    reader.read_from_the_end()
    _deleted_and_listed_again(reader, uuid.UUID(int=7))
    reader.stands(-1)
    assert reader.begins(5) == LATEST, "a broker that has just started lists no topics"


def test_without_topic_ids_a_topic_that_a_listing_lacks_is_read_from_its_beginning() -> None:
    reader = Reader(pattern=True, start=Time(LATEST), topic_id=NO_UUID)
    reader.read_from_the_end()
    _deleted_and_listed_again(reader, NO_UUID)
    reader.stands(-1)
    assert reader.begins(0) == EARLIEST


@pytest.mark.parametrize("pattern", [True, False], ids=["by pattern", "by name"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "forgotten"])
def test_a_topic_that_is_recreated_between_two_assignments_is_read_from_its_beginning(
    pattern: bool, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(pattern=pattern, start=Time(LATEST))
    world = reader.world
    reader.read_from_the_end()
    reader.beat(RebalanceInProgress)
    assert reader.tell() == ("revoked", (T0,))
    world.ids["t"] = uuid.UUID(int=8)
    if known:
        world.core.metadata.refresh(world.now)
        world.core.metadata.topic("t", world.now, fresh=True)
        world.later(1.0)
    else:  # no partition of it was assigned for long
        world.core.metadata.forget("t")
    reader.assign(2, T0)
    reader.stands(-1)
    world.later(1.0)
    assert reader.begins(0) == EARLIEST
    assert [each for each in caplog.messages if each.startswith(RECREATED)], caplog.messages


def test_the_end_of_a_topic_that_is_recreated_during_the_lookup_is_not_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader(start=Time(LATEST))
    world = reader.world
    reader.assign(1, T0)
    reader.stands(-1)
    world.ids["t"] = uuid.UUID(int=8)
    world.core.metadata.refresh(world.now)
    world.later(0.5)
    assert reader.begins(5) == LATEST  # it may be the end of either topic
    assert not reader.machine.fetcher.knows(T0)
    assert reader.begins(0) == EARLIEST and reader.machine.fetcher.position(T0) == 0
    assert f"{RECREATED} (topic=t, partition=0)" in caplog.messages


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_commit_of_everything_sends_only_what_is_not_acknowledged() -> None:
    reader = Reader()
    reader.assign(1, T0, T1, T2)
    reader.stands(7)
    reader.tell()
    assert reader.call(reader.machine.committer.commit(None)).over and not reader.world.pending(OffsetCommitRequest)
    reader.call(reader.machine.navigation.seek({T1: Offset(9)}))
    for _ in range(2):
        waiting = [reader.call(reader.machine.committer.commit(None)) for _ in range(2)]
        (request,) = reader.world.pending(OffsetCommitRequest)
        sent = {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}
        assert sent == {T1: 9} and not waiting[0].over
        reader.committed()
        assert all(each.go_on().over for each in waiting)
        assert reader.call(reader.machine.committer.commit(None)).over and not reader.world.pending(OffsetCommitRequest)
        reader.call(reader.machine.navigation.seek({T1: Offset(9)}))  # which allows lower offsets


def test_an_offset_that_was_refused_is_committed_with_everything_once_more() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.call(reader.machine.navigation.seek({T0: Offset(9)}))
    first = reader.call(reader.machine.committer.commit(None))
    reader.committed(OffsetMetadataTooLarge.code)
    assert isinstance(first.go_on().error, CommitFailed)
    assert not reader.call(reader.machine.committer.commit(None)).over
    reader.committed()


def test_a_commit_before_it_is_known_where_the_group_stands_is_not_undone_by_that() -> None:
    reader = Reader()
    reader.assign(1, T0, T1)
    (lookup,) = reader.world.pending(OffsetFetchRequest)
    reader.machine.committer.commit_soon({T0: 5, T1: 6})
    reader.world.run()
    reader.stands(3)  # the offset from before the commit
    assert lookup not in reader.world.pending(OffsetFetchRequest)
    with pytest.raises(LocalProtocolError, match="a commit of 5 was requested already"):
        reader.machine.committer.commit_soon({T0: 4})
    assert reader.news == ("assigned", (T0, T1))
    assert (reader.machine.fetcher.position(T0), reader.machine.fetcher.position(T1)) == (5, 6)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_revoked_that_raises_at_the_end_of_the_block_drops_no_commit() -> None:
    for answered in (True, False):
        reader = Reader()
        reader.assign(1, T0)
        reader.stands(7)
        reader.tell()
        reader.machine.committer.commit_soon({T0: 8})
        reader.world.run()
        reader.loop.throw(Cancelled())
        leaving = reader.call(reader.machine.leave(None, "task"))
        mine = ValueError("mine")
        leaving.throw(mine)
        assert not leaving.over
        if answered:
            reader.committed()
            leaving.go_on()
            reader.world.answer(reader.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
        else:  # so that the LeaveGroup after it gets no answer either
            reader.world.later(30.0)
            leaving.go_on()
            reader.world.later(0.8)
        assert leaving.go_on().error is mine
        notes = getattr(mine, "__notes__", [])
        assert notes == ([] if answered else ["ottla: not committed, so to be read again: t-0 at 8"])


@pytest.mark.parametrize("error", [None, Cancelled()])
def test_a_block_is_left_with_a_good_bye_though_the_coordinator_has_to_be_looked_up(
    error: BaseException | None,
) -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.loop.throw(Cancelled())
    reader.world.reachable = False
    reader.world.break_connections()
    reader.world.core.coordinators.forget("g")
    leaving = reader.call(reader.machine.leave(error, "task"))
    if error is None:
        leaving.answer()
    reader.world.later(0.01)
    assert not leaving.go_on().over
    reader.world.reachable = True
    reader.world.later(0.5)
    (request,) = reader.world.pending(LeaveGroupRequest)
    assert [each.member_id for each in request.members] == ["me"]
    reader.world.answer(request, LeaveGroupResponse(error_code=0, members=()))
    if error is not None:
        leaving.answer()  # `lost`
    assert leaving.go_on().over and leaving.error is None and reader.machine.closed


def test_a_block_ends_though_nobody_says_who_coordinates_the_group(caplog: pytest.LogCaptureFixture) -> None:
    for error, seconds in ((None, 30.0), (Cancelled(), 0.75)):
        reader = Reader()
        reader.assign(1, T0)
        reader.loop.throw(Cancelled())
        reader.world.reachable = False
        reader.world.break_connections()
        reader.world.core.coordinators.forget("g")
        leaving = reader.call(reader.machine.leave(error, "task"))
        reader.world.later(seconds - 0.1)
        assert not leaving.go_on().over
        reader.world.later(0.2)
        assert leaving.go_on().over and leaving.error is None
    told = [each for each in caplog.records if "leaving the group was not confirmed" in each.message]
    assert len(told) == 2 and all("looking for its coordinator" in vars(each)["why"] for each in told)


def test_a_coordinator_that_does_not_answer_leave_group_is_named_and_not_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.loop.throw(Cancelled())
    leaving = reader.call(reader.machine.leave(None, "task"))
    reader.world.later(31.0)
    assert leaving.go_on().over
    told = [each for each in caplog.records if "leaving the group was not confirmed" in each.message]
    assert [vars(each)["why"] for each in told] == ["its coordinator is node 1 at one:9001"]
    assert reader.world.core.coordinators.known("g") is not None


@pytest.mark.parametrize("answered", [False, True])
def test_a_task_that_waits_for_a_batch_is_refused_once_another_leaves_the_block_and_nobody_joins_again(
    answered: bool,
) -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    leaving = reader.call(reader.machine.leave(None, "another task"))
    assert isinstance(reader.loop.go_on().error, Closed)
    leaving.answer()  # `revoked`
    with pytest.raises(Closed, match="block of the consumer was left"):
        next(reader.machine.next_batch("task"))
    with pytest.raises(LocalProtocolError, match="a method of a RebalanceListener"):
        next(reader.machine.next_batch("another task"))
    if answered:
        reader.world.answer(reader.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
    reader.world.later(31.0)
    assert leaving.go_on().over and leaving.error is None
    assert not reader.world.pending(JoinGroupRequest)


def test_max_poll_interval_is_not_counted_while_the_block_is_being_left() -> None:
    reader = Reader(max_poll_interval=5.0)
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    leaving = reader.call(reader.machine.leave(None, "another task"))
    assert reader.loop.go_on().over and reader.machine.polls.counted(reader.world.now) is None
    assert leaving.awaits is not None, "`revoked` still runs"
    reader.world.later(6.0)
    assert reader.member.owned == (T0,) and not reader.world.pending(LeaveGroupRequest)


def test_a_member_whose_client_is_left_does_not_join_again() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    leaving = reader.call(reader.world.core.leave_groups())
    assert reader.tell() == ("lost", (T0,))
    reader.world.run()
    assert reader.world.pending(LeaveGroupRequest) and not reader.world.pending(JoinGroupRequest)
    reader.world.answer(reader.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
    assert leaving.go_on().over and not reader.loop.go_on().over


@pytest.mark.parametrize("error", [None, UnknownMemberId])
def test_partitions_that_are_lost_before_the_block_is_left_are_told_of_as_lost(
    error: type[BrokerError] | None,
) -> None:
    reader = Reader(max_poll_interval=5.0)
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.loop.throw(Cancelled())  # the user handles a batch
    if error is None:
        reader.world.later(5.1)
    else:
        reader.beat(error)
    leaving = reader.call(reader.machine.leave(None, "task"))
    assert leaving.awaits is not None
    assert (leaving.awaits.function.__name__, leaving.awaits.args) == ("lost", ((T0, T1),))
    leaving.throw(ZeroDivisionError())  # it is raised after the member has left the group
    reader.world.later(31.0)
    assert isinstance(leaving.go_on().error, ZeroDivisionError) and not reader.machine.notices.known


def test_of_a_block_that_is_left_after_a_loss_only_what_came_since_is_revoked() -> None:
    reader = Reader("cooperative-sticky")
    reader.assign(1, T0, T1)
    reader.stands(7)
    reader.tell()
    reader.beat(UnknownMemberId)
    assert reader.news == ("lost", (T0, T1))
    reader.assign(2, T1, T2)
    reader.tell()
    reader.stands(9)
    assert reader.tell() == ("assigned", (T1, T2))
    reader.loop.throw(Cancelled())
    reader.beat(RebalanceInProgress)
    reader.assign(3, T1)  # the member still owns T2 until it has revoked it
    leaving = reader.call(reader.machine.leave(None, "task"))
    assert leaving.awaits is not None
    assert (leaving.awaits.function.__name__, leaving.awaits.args) == ("revoked", ((T1, T2),))


def test_a_block_that_is_left_tells_of_a_loss_and_not_of_what_came_again_and_was_never_told() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.loop.throw(Cancelled())
    reader.beat(UnknownMemberId)
    reader.assign(2, T0)
    leaving = reader.call(reader.machine.leave(None, "task"))
    assert leaving.awaits is not None and leaving.awaits.function.__name__ == "lost"
    leaving.answer()
    assert leaving.awaits is None, "the new assignment was never announced, so it needs no revocation"


def test_a_consumer_that_was_never_left_ends_with_its_client() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.world.core.close(reader.world.now)
    assert reader.machine.ended.done and isinstance(reader.loop.go_on().error, Closed)
    assert reader.machine not in reader.world.core.parts and not reader.world.core.metadata.observers
    with pytest.raises(Closed):
        reader.machine.committer.commit_soon({T0: 8})


def test_a_wait_for_a_batch_that_is_cancelled_while_others_have_their_turn_leaves_the_batch_in_hand() -> None:
    reader = Reader()
    steps = reader.machine.next_batch("task")
    reader.loop.throw(Cancelled())
    reader.world.later(1.0)
    assert reader.world.core.resume(steps, reader.world.now) is TURN, "before it takes or finishes a batch"
    with pytest.raises(Cancelled):
        reader.world.core.resume(steps, reader.world.now, raised=Cancelled())


def test_a_batch_can_be_committed_until_a_seek_after_it_was_handed_out_however_late_its_loop_gets_it() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    fetched, at = Fetched(*T0, 7, [], 9, 9, 0), CommittedOffset(9)
    early, claim = (reader.machine.committing.hand_out(fetched) for _ in range(2))
    assert reader.machine.committing.commit_batch(early, at, reader.world.now) == ""
    reader.machine.committing.move(T0)
    late = reader.machine.committing.hand_out(fetched)
    assert "sought to another offset" in reader.machine.committing.commit_batch(claim, at, reader.world.now)
    assert reader.machine.committing.commit_batch(late, at, reader.world.now) == ""


# -- a cancellation at every suspension --------------------------------------------------------------------------------


class Cancelling:
    """A member's whole life, with a cancellation at one suspension: number ``at`` of all its calls."""

    def __init__(self, at: int | None) -> None:
        self.at, self.suspensions, self.generation = at, 0, 0
        self.told: list[Told] = []
        self.reader = Reader()

    def call(self, steps: Steps[Any], enough: Callable[[], bool] = lambda: False) -> Call[Any]:
        """Make a call and answer its waits until ``enough``; cancel it if its suspension has the number."""
        call = self.reader.call(steps)
        while not call.go_on().over:
            if call.awaits is None and enough():
                call.throw(Cancelled())
                break
            if (awaits := call.awaits) is not None:
                self.told.append((awaits.function.__name__, awaits.args[0]))
            shielded = isinstance(call._wait, Shielded) or (awaits is not None and awaits.shield)
            self.suspensions += not shielded
            if not shielded and self.suspensions == self.at:
                call.throw(Cancelled())
            elif awaits is not None:
                call.answer()
            else:
                self.answer()
        return call

    def answer(self) -> None:
        """Answer the coordinator's pending request, or else let time pass."""
        reader, world = self.reader, self.reader.world
        if world.pending(JoinGroupRequest):
            self.generation += 1
            reader.assign(self.generation, T0, T1)
        elif world.pending(OffsetFetchRequest):
            reader.stands(7)
        elif world.pending(OffsetCommitRequest):
            reader.committed()
        elif leaving := world.pending(LeaveGroupRequest):
            world.answer(leaving[0], LeaveGroupResponse(error_code=0, members=()))
        else:
            world.later(0.1)

    def live(self) -> None:
        reader, machine = self.reader, self.reader.machine
        reader.loop.throw(Cancelled())
        self.until("assigned")
        self.call(machine.navigation.seek({T0: Offset(9)}))
        machine.committer.commit_soon({T1: 8})
        self.call(machine.committer.commit(None))
        self.call(machine.committer.committed([T0]))
        machine.committer.commit_soon({T0: 10})
        reader.world.run()
        reader.beat(RebalanceInProgress)
        self.until("revoked")
        self.until("assigned")
        left = self.call(machine.leave(None, "task"))
        assert left.error is None or isinstance(left.error, Cancelled)

    def until(self, method: str) -> None:
        """Ask for batches until the listener was called and no notification is pending."""
        before = len(self.told)

        def enough() -> bool:
            called = any(name == method for name, _ in self.told[before:])
            return called and self.reader.machine.notices.next() is None

        for _ in range(3):  # a cancellation ends at most one of them
            self.call(self.reader.machine.next_batch("task"), enough)
            if enough():
                return
        raise AssertionError(f"{method} was not called")


def test_a_cancellation_at_any_suspension_leaves_the_group_and_tells_of_each_going_once() -> None:
    clean = Cancelling(None)
    clean.live()
    assert clean.suspensions >= 8
    for at in range(1, clean.suspensions + 1):
        user = Cancelling(at)
        user.live()
        came = [place for name, places in user.told if name == "assigned" for place in places]
        gone = [place for name, places in user.told if name != "assigned" for place in places]
        assert sorted(set(came)) == sorted(set(gone)) and len(gone) <= len(came), user.told
        machine = user.reader.machine
        assert machine.closed and not user.reader.member.owned and not machine.notices.known


def _recreated(reader: Reader) -> None:
    """The topic is recreated, and the client learns it."""
    reader.world.ids["t"] = uuid.UUID(int=8)
    reader.world.core.metadata.refresh(reader.world.now)
    reader.world.later(1.0)


@pytest.mark.parametrize("failed", [False, True], ids=["is read", "has failed"])
def test_offsets_of_a_recreated_topic_are_not_committed_until_a_seek(failed: bool) -> None:
    """The broker would store them for the new topic, and the group's next member would skip its first records."""
    reader = Reader()
    world, machine = reader.world, reader.machine
    reader.assign(1, T0)
    reader.stands(7)
    assert reader.tell() == ("assigned", (T0,))
    position = machine.fetcher._positions.assigned[T0]
    reader.hand_out(T0, 9)
    position.go(9)  # as if a batch was read
    machine.committing._moved[T0] = None
    before = reader.commits.assignment(T0)
    assert before is not None
    claim = BatchAssignment(before, before.seeks)
    if failed:
        machine.fetcher._positions.fail(position, UnknownTopicOrPartition("t-0"))
    _recreated(reader)
    assert isinstance(reader.loop.go_on().error, UnknownTopicOrPartition if failed else DataLoss)
    commit = machine.committer.commit_batch(T0, CommittedOffset(9), claim)
    error = reader.call(commit).error
    assert isinstance(error, CommitFailed) and "the topic was recreated" in str(error)
    with pytest.raises(CommitFailed, match="the topic was recreated"):
        machine.committer.commit_soon({T0: 9})
    machine.committer.commit_soon(None)
    machine.committing._all_done(T0)
    machine.committing.commit_done(world.now)
    world.later(1.0)
    assert not world.pending(OffsetCommitRequest)
    reader.call(machine.navigation.seek({T0: Offset(0)}))
    machine.committer.commit_soon({T0: 0})
    world.run()
    reader.committed()
    assert reader.commits.assignment(T0).committed == 0  # type: ignore[union-attr] # it is assigned


def test_a_pending_commit_fails_when_the_client_learns_that_its_topic_was_recreated() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    waits = reader.call(reader.machine.committer.commit({T0: 9}))
    assert not waits.go_on().over
    _recreated(reader)
    error = waits.go_on().error
    assert isinstance(error, CommitFailed) and "the topic was recreated" in str(error)


def test_a_transaction_with_offsets_of_a_recreated_topic_is_doomed() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    assignment = reader.commits.assignment(T0)
    assert assignment is not None
    _recreated(reader)
    assert assignment.ended.done and "recreated" in assignment.over


@pytest.mark.parametrize("answered", [True, False])
def test_a_consumer_whose_client_is_left_first_commits_or_says_that_it_did_not(answered: bool) -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.machine.committer.commit_soon({T0: 9})
    leaving = reader.call(reader.world.core.leave_groups())
    if answered:
        reader.committed()
        assert reader.world.pending(LeaveGroupRequest)
        reader.world.answer(reader.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
    else:
        assert not reader.world.pending(LeaveGroupRequest), "the commit comes first"
        reader.world.later(0.4)
        assert reader.world.pending(LeaveGroupRequest)
        reader.world.later(0.4)
    assert leaving.go_on().over
    reader.world.core.close(reader.world.now)
    left = reader.call(reader.machine.leave(None, "task"))
    if not left.over:
        assert left.awaits is not None and left.awaits.function.__name__ == "lost"
        left.answer()
    assert left.over and (left.error is None if answered else "t-0 at 9" in str(left.error))


def test_max_poll_interval_is_not_counted_while_the_client_is_being_left() -> None:
    reader = Reader(max_poll_interval=5.0)
    reader.assign(1, T0)
    reader.stands(7)
    reader.tell()
    reader.loop.throw(Cancelled())
    reader.machine.committer.commit_soon({T0: 9})
    reader.world.later(4.9)
    leaving = reader.call(reader.world.core.leave_groups())
    reader.world.later(0.2)
    assert not reader.world.pending(LeaveGroupRequest), "the commit comes first"
    reader.committed()
    reader.world.answer(reader.world.asked(LeaveGroupRequest), LeaveGroupResponse(error_code=0, members=()))
    assert leaving.go_on().over
    reader.world.core.close(reader.world.now)
    left = reader.call(reader.machine.leave(None, "task"))
    left.answer()  # `lost`
    assert left.over and left.error is None, "the coordinator has the commit"


def test_the_end_of_a_block_waits_for_the_listener_that_another_task_calls() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    assert reader.news == ("assigned", (T0,))
    leaving = reader.call(reader.machine.leave(None, "another task"))
    assert not leaving.over and leaving.awaits is None, "one method at a time"
    reader.loop.answer()
    assert leaving.awaits is not None and leaving.awaits.function.__name__ == "revoked"


def test_the_end_of_a_block_waits_for_the_listener_no_longer_than_for_the_rest() -> None:
    reader = Reader()
    reader.assign(1, T0)
    reader.stands(7)
    assert reader.news == ("assigned", (T0,))
    leaving = reader.call(reader.machine.leave(None, "another task"))
    reader.world.later(LEAVE_TIMEOUT / 2)
    assert leaving.awaits is not None and leaving.awaits.seconds == LEAVE_TIMEOUT / 2
    mine = Reader()
    mine.assign(1, T0)
    mine.stands(7)
    assert mine.news == ("assigned", (T0,))
    leaving = mine.call(mine.machine.leave(None, "task"))
    assert leaving.awaits is not None, "a listener that leaves the block does not wait for itself"
