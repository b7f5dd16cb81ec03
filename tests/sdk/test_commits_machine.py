"""Commits: whatever fails and is retried, the committed offsets never go back."""

import pytest

from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.errors import (
    BrokerError,
    CommitFailed,
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    IllegalGeneration,
    NotCoordinator,
    OffsetMetadataTooLarge,
    OttlaError,
    PolicyViolation,
    RebalanceInProgress,
    RequestTimedOut,
    TimeoutExpired,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.offset_commits import CommittingMember
from tests.sdk.coordinator import Coordinator

P0, P1 = ("t", 0), ("t", 1)
GROUP = "billing"


class Committer:
    """A commit machine of a member of generation 1 that owns two partitions."""

    def __init__(self) -> None:
        self.world = Coordinator({"t": 2})
        self.identity: CommittingMember | None = CommittingMember(1, "m-1")
        self.refusals: list[tuple[OttlaError, CommittingMember]] = []
        self.machine = Commits(self.world.core, GROUP, lambda: self.identity, self._refused)
        self.assignments = {place: self.machine.own(place) for place in (P0, P1)}

    def _refused(self, error: OttlaError, identity: CommittingMember, now: float) -> bool:
        self.refusals.append((error, identity))
        return True

    def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        assignments: dict[Assignment, CommittedOffset] = {
            self.assignments[place]: CommittedOffset(offset) for place, offset in offsets.items()
        }
        self.machine.commit(assignments, self.world.now)
        self.world.run()

    @property
    def sent(self) -> dict[tuple[str, int], int]:
        """The offsets in the pending OffsetCommit."""
        request = self.world.asked(OffsetCommitRequest)
        return {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}

    @property
    def idle(self) -> bool:
        return not self.world.pending(OffsetCommitRequest)

    def answer(self, code: int = 0, codes: dict[tuple[str, int], int] | None = None) -> None:
        self.bring(code, codes)
        self.world.run()

    def bring(self, code: int = 0, codes: dict[tuple[str, int], int] | None = None) -> None:
        """Let the response arrive, before the core is polled."""
        request = self.world.asked(OffsetCommitRequest)
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=(codes or {}).get((topic.name, each.partition_index), code),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        self.world.bring(request, OffsetCommitResponse(topics=topics))


def test_one_commit_is_in_flight_and_the_newest_offsets_go_next() -> None:
    group = Committer()
    group.commit({P0: 10})
    for offset in (11, 12, 13):
        group.commit({P0: offset, P1: offset})
    assert group.sent == {P0: 10}
    group.answer()
    assert group.sent == {P0: 13, P1: 13}
    group.answer()
    assert group.idle and group.machine.pending == {}


@pytest.mark.parametrize("error", [RequestTimedOut, CoordinatorLoadInProgress, NotCoordinator])
def test_the_repetition_of_a_commit_that_failed_carries_the_newest_offset(error: type[BrokerError]) -> None:
    group = Committer()
    group.commit({P0: 2000})
    group.commit({P0: 3000})
    group.answer(error.code)
    group.world.later(2.0)
    assert group.sent == {P0: 3000}
    group.answer()
    group.world.later(60.0)
    assert group.idle


def test_a_commit_whose_answer_was_lost_is_sent_again_with_the_newest_offset() -> None:
    group = Committer()
    group.commit({P0: 2000, P1: 5})
    group.commit({P0: 3000})
    group.world.break_connections()
    group.world.later(5.0)
    assert group.sent == {P0: 3000, P1: 5}


def test_an_offset_that_is_lower_than_one_before_changes_nothing() -> None:
    group = Committer()
    group.commit({P0: 100})
    group.commit({P0: 50})
    group.answer()
    assert group.idle
    group.commit({P0: 70})
    assert group.idle


def test_after_a_seek_lower_offsets_are_meant_and_the_older_commit_is_not_repeated() -> None:
    group = Committer()
    group.commit({P0: 100})
    group.machine.rewind(P0)
    group.commit({P0: 20})
    group.answer(RequestTimedOut.code)
    group.world.later(5.0)
    assert group.sent == {P0: 20}


def test_a_seek_drops_nothing_of_what_was_wished_for_before() -> None:
    group = Committer()
    group.commit({P0: 100})
    group.commit({P1: 100})
    waited = group.machine.settled(group.world.now)
    for place in (P0, P1):
        group.machine.rewind(place)
    group.answer(RequestTimedOut.code)
    group.world.later(5.0)
    assert group.sent == {P0: 100, P1: 100} and not waited.done
    group.answer()
    assert group.idle and waited.done and waited.error is None
    group.commit({P0: 20})
    assert group.sent == {P0: 20}


def test_what_was_wished_for_in_a_log_that_was_lost_is_not_committed_and_who_waits_hears_it() -> None:
    group = Committer()
    group.commit({P0: 100, P1: 100})
    waited = group.machine.settled(group.world.now)
    group.machine.renew(P0, "the log is another")
    assert isinstance(waited.error, CommitFailed) and waited.error.offsets == {P0: 100}
    assignment = group.machine.assignment(P0)
    assert assignment is not None
    group.machine.commit({assignment: CommittedOffset(20)}, group.world.now)
    group.answer(RequestTimedOut.code)
    group.world.later(5.0)
    assert group.sent == {P0: 20, P1: 100}


def test_a_commit_that_waits_for_its_connection_leaves_out_partitions_that_are_lost_meanwhile() -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer()
    group.world.reachable = None
    group.world.break_connections()
    group.commit({P0: 100, P1: 100})
    assert group.idle and group.machine.pending == {P0: 100, P1: 100}
    waited = group.machine.settled(group.world.now, [P1])
    group.machine.renew(P0, "the topic was recreated")
    group.world.later(1.0)
    group.world.accept()
    assert group.sent == {P1: 100}
    group.answer()
    assert waited.done and waited.error is None
    assert group.idle and group.machine.pending == {}


def test_a_commit_that_waits_for_its_connection_is_sent_in_the_generation_of_that_time() -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer()
    group.world.reachable = None
    group.world.break_connections()
    group.commit({P0: 100, P1: 5})
    group.commit({P0: 101})
    group.identity = CommittingMember(2, "m-1")
    group.machine.wake()
    group.world.later(1.0)
    group.world.accept()
    assert group.world.asked(OffsetCommitRequest).generation_id_or_member_epoch == 2
    assert group.sent == {P0: 101, P1: 5}
    group.answer()
    assert group.idle and group.machine.pending == {} and not group.refusals


def test_a_commit_that_waits_for_its_connection_also_waits_for_a_rebalance_that_has_begun() -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer()
    group.world.reachable = None
    group.world.break_connections()
    group.commit({P0: 100})
    waited = group.machine.settled(group.world.now)
    group.identity = None
    group.world.later(1.0)
    group.world.accept()
    assert group.idle and group.machine.pending == {P0: 100} and not waited.done
    group.identity = CommittingMember(2, "m-1")
    group.machine.wake()
    group.world.run()
    assert group.sent == {P0: 100}
    group.answer()
    assert waited.done and waited.error is None


def test_no_commit_is_sent_without_partitions_and_a_newer_one_does_not_wait_for_it() -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer()
    group.world.reachable = None
    group.world.break_connections()
    group.commit({P0: 100})
    group.machine.renew(P0, "the topic was recreated")
    renewed = group.machine.assignment(P0)
    assert renewed is not None
    group.machine.commit({renewed: CommittedOffset(3)}, group.world.now)
    group.world.later(1.0)
    group.world.accept()
    assert group.sent == {P0: 3}
    group.answer()
    assert group.idle and group.machine.pending == {}


def test_what_is_not_acknowledged_when_a_partition_is_lost_is_never_sent_again() -> None:
    group = Committer()
    group.commit({P0: 10, P1: 10})
    waited = group.machine.settled(group.world.now)
    group.machine.disown(P0, "it was lost")
    assert isinstance(waited.error, CommitFailed) and waited.error.offsets == {P0: 10}
    group.answer(RequestTimedOut.code)
    group.world.later(5.0)
    assert group.sent == {P1: 10}


def test_an_acknowledged_commit_has_not_failed_if_the_partition_is_lost_as_the_response_arrives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Committer()
    group.commit({P0: 10, P1: 10})
    stored, refused = (group.machine.settled(group.world.now, [place]) for place in (P0, P1))
    group.bring(codes={P1: RequestTimedOut.code})
    for place in (P0, P1):
        group.machine.disown(place, "it was lost")
    group.world.run()
    assert stored.error is None and group.assignments[P0].committed == 10
    assert isinstance(refused.error, CommitFailed) and refused.error.offsets == {P1: 10}
    assert len(caplog.records) == 1
    group.world.later(5.0)
    assert group.idle and group.machine.pending == {}


def test_a_batch_of_an_earlier_ownership_cannot_be_committed_in_a_later_one() -> None:
    group = Committer()
    before = group.assignments[P0]
    group.machine.disown(P0, "it was given to another member")
    group.machine.own(P0)
    with pytest.raises(CommitFailed, match=r"another member \(t-0 at 7\)"):
        group.machine.commit({before: CommittedOffset(7)}, group.world.now)
    group.world.run()
    assert group.idle


def test_without_a_generation_commits_wait_and_then_go_out_under_the_new_one() -> None:
    group = Committer()
    group.identity = None
    group.commit({P0: 10})
    group.world.later(30.0)
    assert group.idle
    group.identity = CommittingMember(2, "m-1")
    group.machine.wake()
    group.world.run()
    assert group.world.asked(OffsetCommitRequest).generation_id_or_member_epoch == 2


@pytest.mark.parametrize("error", [IllegalGeneration, UnknownMemberId, RebalanceInProgress])
def test_a_refusal_of_the_member_is_told_once_and_the_wish_waits_for_what_becomes_of_it(
    error: type[BrokerError],
) -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer(error.code)
    assert [(type(each), identity) for each, identity in group.refusals] == [(error, CommittingMember(1, "m-1"))]
    assert group.idle
    group.machine.disown(P0, "the group has gone on")
    group.world.later(60.0)
    assert group.idle


def test_who_waits_waits_for_everything_wished_for_before() -> None:
    group = Committer()
    group.commit({P0: 10})
    group.commit({P1: 5})
    waited = group.machine.settled(group.world.now)
    group.answer()
    assert not waited.done
    group.commit({P0: 11})
    group.answer()
    assert waited.done and waited.error is None
    assert group.sent == {P0: 11}


@pytest.mark.parametrize("error", [OffsetMetadataTooLarge, GroupAuthorizationFailed, PolicyViolation])
def test_a_commit_that_is_refused_for_good_fails_who_waits_and_nobody_else(error: type[BrokerError]) -> None:
    group = Committer()
    group.commit({P0: 10, P1: 10})
    waited = group.machine.settled(group.world.now)
    group.answer(codes={P1: error.code})
    assert isinstance(waited.error, CommitFailed) and isinstance(waited.error.cause, error)
    assert waited.error.offsets == {P1: 10}
    group.machine.raise_failures()
    assert group.idle


def test_a_refusal_that_nobody_waited_for_is_raised_by_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer(OffsetMetadataTooLarge.code)
    with pytest.raises(CommitFailed, match="OFFSET_METADATA_TOO_LARGE"):
        group.machine.raise_failures()
    [line] = [each for each in caplog.records if each.message.startswith("offsets were not committed")]
    assert line.__dict__["why"].startswith("OFFSET_METADATA_TOO_LARGE"), "the line repeats nothing"
    group.machine.raise_failures()


def test_waiting_ends_by_the_deadline_and_says_for_what() -> None:
    group = Committer()
    group.commit({P0: 10})
    waited = group.machine.settled(group.world.now)
    group.world.reachable = False
    group.world.break_connections()
    group.world.later(61.0)
    assert isinstance(waited.error, TimeoutExpired)
    assert "t-0" in str(waited.error) and "connection refused" in str(waited.error)


def test_a_topic_that_is_gone_is_given_up_after_a_while() -> None:
    group = Committer()
    group.commit({P0: 10})
    for _ in range(200):
        if not group.idle:
            group.answer(3)
        group.world.later(1.0)
    assert group.idle
    with pytest.raises(CommitFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        group.machine.raise_failures()


def test_a_partition_that_is_not_known_holds_up_neither_other_commits_nor_who_waits_for_them() -> None:
    group = Committer()
    group.commit({P0: 10})
    group.answer(UnknownTopicOrPartition.code)
    group.commit({P1: 5})
    assert group.sent == {P1: 5}
    waited = group.machine.settled(group.world.now, [P1])
    of_all = group.machine.settled(group.world.now)
    group.answer()
    assert waited.done and waited.error is None and not of_all.done
    group.commit({P0: 11})
    assert group.idle  # its own backoff has not passed
    group.world.later(2.0)
    assert group.sent == {P0: 11}
    group.answer()
    assert of_all.done and of_all.error is None


def test_the_commit_of_a_topic_that_other_brokers_deny_too_fails_soon_and_by_name() -> None:
    group = Committer()
    group.commit({P0: 10})
    waited = group.machine.settled(group.world.now, [P0])
    del group.world.topics["t"]
    while not waited.done:
        group.answer(UnknownTopicOrPartition.code)
        group.world.later(1.2)  # longer than the longest backoff
    assert group.world.now < 5
    assert isinstance(waited.error, CommitFailed) and waited.error.offsets == {P0: 10}
    assert isinstance(waited.error.cause, UnknownTopicOrPartition) and "t-0" in str(waited.error)
    assert group.idle and not group.machine.pending


def test_the_commit_of_a_topic_that_only_the_coordinator_does_not_know_yet_is_sent_again() -> None:
    group = Committer()
    group.commit({P0: 10})
    waited = group.machine.settled(group.world.now)
    while group.world.now < 30:
        group.answer(UnknownTopicOrPartition.code)
        group.world.later(1.2)
    assert not waited.done
    group.answer()
    assert waited.done and waited.error is None


def test_a_consumer_without_a_member_hears_that_the_group_has_members() -> None:
    world = Coordinator({"t": 1})
    machine = Commits(world.core, GROUP)
    machine.commit({machine.own(P0): CommittedOffset(3)}, world.now)
    world.run()
    request = world.asked(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    part = OffsetCommitResponsePartition(partition_index=0, error_code=UnknownMemberId.code)
    world.answer(request, OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(part,)),)))
    with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
        machine.raise_failures()


def test_after_a_refusal_what_lies_below_it_can_be_committed() -> None:
    group = Committer()
    group.commit({P0: 100})
    group.answer()
    group.commit({P0: 200})
    group.answer(OffsetMetadataTooLarge.code)
    group.commit({P0: 150})
    assert group.sent == {P0: 150}


def test_a_closed_consumer_commits_nothing_more_so_the_group_goes_on_from_where_the_next_one_stands() -> None:
    group = Committer()
    group.commit({P0: 5})
    waiting = group.machine.settled(group.world.now)
    group.answer(CoordinatorLoadInProgress.code)  # which is retried for as long as the partition is owned
    group.machine.close()
    group.world.later(60.0)
    assert group.idle
    assert isinstance(waiting.error, CommitFailed) and "the consumer is closed" in str(waiting.error)


def test_an_answer_that_comes_after_the_end_of_a_consumer_brings_no_further_commit() -> None:
    group = Committer()
    group.commit({P0: 5})
    group.commit({P0: 6, P1: 7})
    group.machine.close()
    group.answer(RequestTimedOut.code)
    group.world.later(60.0)
    assert group.idle


def test_when_a_partition_is_lost_everybody_who_waits_for_it_hears_that() -> None:
    group = Committer()
    group.commit({P0: 10})
    first = group.machine.settled(group.world.now)
    group.commit({P0: 20})
    second = group.machine.settled(group.world.now)
    group.machine.disown(P0, "it was lost")
    group.answer(IllegalGeneration.code)
    assert isinstance(first.error, CommitFailed) and isinstance(second.error, CommitFailed)


@pytest.mark.parametrize(
    ("how", "left"),
    [("", True), ("wished", True), ("heard", False), ("heard before", True), ("committed", False), ("sought", False)],
)
def test_what_was_handed_out_is_left_when_a_partition_is_lost_unless_it_is_committed_or_somebody_heard(
    how: str, left: bool
) -> None:
    group = Committer()
    assignment = group.assignments[P0]
    assignment.handed = 10
    if how:
        group.commit({P0: 10})
    if how.startswith("heard"):
        group.machine.settled(group.world.now)
    if how == "heard before":  # an older batch failed
        assignment.handed = 20
    elif how == "committed":
        group.answer()
    elif how == "sought":
        group.machine.rewind(P0)
    group.machine.disown(P0, "it was lost")
    assert (assignment.handed > assignment.committed) is left


def test_behind_a_commit_whose_answer_was_lost_the_newest_is_sent_once_more() -> None:
    group = Committer()
    group.commit({P0: 2000})
    group.world.break_connections()
    group.commit({P0: 3000})
    group.world.later(5.0)
    assert group.sent == {P0: 3000}
    group.answer()
    group.world.later(31.0)
    assert group.sent == {P0: 3000}, "the older commit may have arrived late, on the old connection"
    group.answer()
    group.world.later(120.0)
    assert group.idle
