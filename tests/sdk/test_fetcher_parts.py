"""Each part of a fetcher alone."""

import random
from typing import Any

import pytest

from ottla.codec.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.records import Record, RecordBatch, build_batch, parse_batch, read_plain, rebased
from ottla.errors import (
    ConnectionLost,
    CorruptMessage,
    DecodeError,
    NoCommittedOffset,
    OttlaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.fetching.fetch_metrics import FetchMetrics
from ottla.sdk.consume.fetching.fetch_scheduler import FetchScheduler
from ottla.sdk.consume.fetching.fetch_session import FetchLimits, FetchSession
from ottla.sdk.consume.fetching.near_replicas import NearReplicas
from ottla.sdk.consume.partitions.position import NoStart, Offset, Position, PositionState, Time
from ottla.sdk.consume.partitions.record_sets import READ_UNCOMMITTED
from ottla.sdk.consume.positions.assigned_positions import AssignedPositions
from ottla.sdk.consume.positions.changes import Changes
from ottla.sdk.consume.positions.position_lookups import PositionLookups
from ottla.sdk.consume.positions.retries import Retries
from ottla.sdk.consume.positions.review import Review
from ottla.sdk.consume.reading.fetch_answers import FetchAnswers
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.options import Options
from tests.sdk.leaders import Leaders

P, Q = ("t", 0), ("t", 1)
NODE = Node(1, "leaders", 9001)


def position(place: tuple[str, int] = P, offset: int = 0) -> Position:
    made = Position(place, Offset(offset))
    made.go(offset)
    return made


def batch(offset: int, size: int = 10) -> RecordBatch:
    return parse_batch(rebased(build_batch([Record(0, 1, None, b"x" * size)]), offset, 0))


def damaged(offset: int) -> RecordBatch:
    data = bytes(batch(offset).data)
    [found], _ = read_plain(data[:-2] + b"!" + data[-1:], offset, transactional=True)
    return found


class Parts:
    """The parts of a fetcher of ``t``; the test plays the leaders."""

    def __init__(self, partitions: int = 2, options: Options | None = None) -> None:
        self.leaders = Leaders({"t": partitions}, options=options)
        core = self.core = self.leaders.core
        self.leaders.run(core.metadata.topic("t", 0.0))
        self.reviewed: list[Position] = []
        self.answers: list[Any] = []
        self.buffers = FetchBuffers(core.options, READ_UNCOMMITTED)
        self.near = NearReplicas(core, "fetch-1")
        self.changes = Changes(core, lambda changed, now: self.reviewed.extend(changed))
        self.metrics = FetchMetrics(core.metrics, 1, READ_UNCOMMITTED)
        self.scheduler = FetchScheduler(
            core, self.buffers, self.near, "fetch-1", READ_UNCOMMITTED, lambda *answered: self.answers.append(answered)
        )
        self.positions = AssignedPositions(core, self.buffers, self.scheduler, self.near, self.changes, self.metrics)

    def assign(self, *places: tuple[str, int]) -> list[Position]:
        self.positions.assign({place: Offset(0) for place in places})
        return [self.positions.assigned[place] for place in places]


# -- buffers ----------------------------------------------------------------------------------------------------------


def test_buffers_hand_out_in_turns_and_count_what_they_hold() -> None:
    buffers = FetchBuffers(Options(), READ_UNCOMMITTED)
    first, second = position(P), position(Q)
    for offset in range(2):
        for each in (first, second):
            buffers.add(each, [batch(offset)], [batch(offset)], 100)
    assert buffers.size == 400
    order = []
    while (turn := buffers.next()) is not None:
        fetched, damage = buffers.take(turn)
        assert fetched is not None and damage is None
        order.append((fetched.partition, fetched.first_offset))
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1)] and buffers.size == 0


def test_buffers_have_room_for_one_batch_that_is_larger_than_all_of_it_once_they_are_empty() -> None:
    buffers = FetchBuffers(Options(fetch_buffer_bytes=1000, partition_max_bytes=500), READ_UNCOMMITTED)
    assert buffers.room(5000, under_way=0) == 1000
    assert buffers.room(5000, under_way=1) == 0
    held = position(P)
    buffers.add(held, [batch(0)], [batch(0)], 400)
    assert buffers.room(500, under_way=0) == 600 and buffers.room(5000, under_way=0) == 0
    buffers.pause(held)
    assert buffers.room(5000, under_way=0) == 1000, "a paused partition frees its buffer space"
    assert buffers.size == 0 and held.fetch_offset == 0


def test_what_a_partition_may_have_buffered_is_its_share_and_one_answer_at_least() -> None:
    buffers = FetchBuffers(Options(fetch_buffer_bytes=4000, partition_max_bytes=1000), READ_UNCOMMITTED)
    each = position()
    buffers.add(each, [batch(0)], [batch(0)], 1500)
    assert buffers.wants(each, partitions=1) and not buffers.wants(each, partitions=4)
    each.stuck = True
    assert not buffers.wants(each, partitions=1)


def test_buffers_give_what_lies_before_damage_then_the_damage() -> None:
    buffers = FetchBuffers(Options(), READ_UNCOMMITTED)
    each = position()
    buffers.add(each, [batch(0), damaged(1)], [batch(0), damaged(1)], 200)
    fetched, damage = buffers.take(each)
    assert fetched is not None and isinstance(damage, DecodeError)
    assert (len(fetched.batches), fetched.next_offset, each.fetch_offset, buffers.size) == (1, 1, 1, 0)
    buffers.add(each, [damaged(1)], [damaged(1)], 100)
    fetched, damage = buffers.take(each)
    assert fetched is None and isinstance(damage, DecodeError) and buffers.next() is None


# -- changes, retries -------------------------------------------------------------------------------------------------


def test_changes_are_reviewed_once_in_the_next_poll() -> None:
    core, seen = ClientCore([("nobody", 9)], Options(), random.Random(1)), []
    changes = Changes(core, lambda changed, now: seen.append((changed, now)))
    first, second = position(P), position(Q)
    for each in (first, second, first):
        changes.review(each)
    changes.forget(second)
    news = changes.news
    core.poll(7.0)
    assert seen == [([first], 7.0)] and not news.done
    changes.notify()
    assert news.done and not changes.news.done
    core.poll(8.0)
    assert len(seen) == 1


def heard(core: ClientCore, asked: float) -> None:
    """Metadata arrived after the first request for it; then, at ``asked``, another request was sent."""
    core.metadata._requests.since, core.metadata._heard_since = asked, 0.0


def test_retries_pause_longer_each_time_and_give_up_where_another_attempt_would_not_help() -> None:
    core = ClientCore([("nobody", 9)], Options(api_timeout=10.0), random.Random(1))
    again: list[float] = []
    given_up: list[tuple[str, bool]] = []

    def give_up(_: Position, error: OttlaError, gone: bool) -> bool:
        given_up.append((type(error).__name__, gone))
        return True

    now = 0.0
    each = position()
    retries = Retries(core, {each.place: each}, lambda each: None, lambda each: again.append(now), give_up)
    pauses = []
    for _ in range(3):
        retries.retry([each], ConnectionLost("the wire broke"), now)
        pauses.append(each.retry_at - now)
        now = each.retry_at
        core.poll(now)
    assert len(again) == 3 and pauses == sorted(pauses) and each.failures == 3
    retries.retry([each], TopicAuthorizationFailed("t-0"), now)
    retries.retry([each], UnknownTopicOrPartition("t-0"), now)
    heard(core, now + 6.0)
    retries.retry([each], UnknownTopicOrPartition("t-0"), now + 6.0)
    assert given_up == [("TopicAuthorizationFailed", False), ("UnknownTopicOrPartition", True)]


def test_a_broker_that_has_just_started_and_knows_no_topic_ends_no_reader_after_a_long_outage() -> None:
    core = ClientCore([("nobody", 9)], Options(api_timeout=10.0), random.Random(1))
    given_up: list[float] = []

    def give_up(each: Position, error: OttlaError, gone: bool) -> bool:
        given_up.append(each.retry_at)
        return True

    each = position()
    retries = Retries(core, {each.place: each}, lambda _: None, lambda _: None, give_up)
    for now, error in (
        (0.0, UnknownTopicOrPartition("t-0")),
        (1.0, ConnectionLost("the wire broke")),
        (9.0, UnknownTopicOrPartition("t-0")),
        (13.9, UnknownTopicOrPartition("t-0")),
    ):
        heard(core, now)
        retries.retry([each], error, now)
    retries.retry([each], UnknownTopicOrPartition("t-0"), 20.0)
    assert not given_up, "no metadata has arrived since"
    heard(core, 20.0)
    retries.retry([each], UnknownTopicOrPartition("t-0"), 20.0)
    assert given_up


# -- the scheduler ----------------------------------------------------------------------------------------------------


def test_the_scheduler_asks_a_node_once_for_all_that_is_wanted_there() -> None:
    parts = Parts()
    for place in (P, Q):
        parts.scheduler.want(position(place), NODE, 2, parts.leaders.now)
    parts.leaders.logs[Q].append(b"a")
    parts.scheduler.fetch(parts.leaders.now)
    parts.scheduler.fetch(parts.leaders.now)
    parts.leaders.run(lambda: bool(parts.answers))
    [request] = parts.leaders.asked(FetchRequest)
    assert [each.partition for topic in request.topics for each in topic.partitions] == [0, 1]
    [(session, answer, _)] = parts.answers
    assert session.node.id == 1 and isinstance(answer, FetchResponse)


def test_a_partition_that_was_left_is_asked_for_no_more() -> None:
    parts = Parts()
    wanted, left = position(P), position(Q)
    for each in (wanted, left):
        parts.scheduler.want(each, NODE, 2, parts.leaders.now)
    parts.scheduler.leave(left)
    parts.scheduler.fetch(parts.leaders.now)
    parts.leaders.run(lambda: bool(parts.answers))
    [request] = parts.leaders.asked(FetchRequest)
    assert [each.partition for topic in request.topics for each in topic.partitions] == [0]


def test_a_session_asks_for_what_came_cut_first() -> None:
    session, limits = FetchSession(NODE), FetchLimits(0.5, 4000, 1000, READ_UNCOMMITTED, "")
    whole, torn = position(P), position(Q)
    torn.needs = 3000
    session.want(whole, NODE)
    session.want(torn, NODE)
    assert session.needs == 3000
    session.reserved = limits.max_bytes
    request = session.request(limits, 12)
    assert [(each.partition, each.partition_max_bytes) for each in request.topics[0].partitions] == [
        (1, 3000),
        (0, 1000),
    ]
    assert (session.room_for(Q), session.room_for(P)) == (3000, 0)
    assert [each.partition for each in session.request(limits, 2).topics[0].partitions] == [1, 0], "4000 bytes"


# -- positions --------------------------------------------------------------------------------------------------------


def test_positions_fail_once_and_a_seek_makes_them_well() -> None:
    parts = Parts()
    [first, second] = parts.assign(P, Q)
    parts.positions.fail(first, CorruptMessage("why"))
    assert first.state is PositionState.FAILED and list(parts.positions.failed) == [P]
    assert parts.buffers.next() is first and isinstance(parts.buffers.error(first), CorruptMessage)
    assert parts.buffers.next() is None and list(parts.positions.failed) == [P]
    parts.positions.assign({P: Offset(3)})
    assert not parts.positions.failed and first.trouble is None
    parts.positions.assign({Q: NoStart("nobody says where")})
    assert isinstance(second.trouble, NoCommittedOffset)


def test_what_lies_before_an_error_is_handed_out_first() -> None:
    parts = Parts()
    [first] = parts.assign(P)
    parts.buffers.add(first, [batch(0)], [batch(0)], 100)
    parts.positions.fail(first, CorruptMessage("why"))
    assert first.stuck and not parts.positions.failed


def test_lookups_find_where_to_start() -> None:
    parts = Parts()
    parts.leaders.logs[P].append(b"a")
    lookups = PositionLookups(parts.core, parts.positions, parts.changes, READ_UNCOMMITTED)
    parts.positions.assign({P: Time(EARLIEST)})
    each = parts.positions.assigned[P]
    assert list(parts.positions.unresolved) == [each]
    lookups.resolve(NODE, [each], parts.leaders.now)
    parts.leaders.run(lambda: not parts.positions.unresolved)
    assert (each.state, each.fetch_offset) == (PositionState.FETCHING, 0)


def test_lookups_ask_a_new_leader_whether_it_has_what_was_read() -> None:
    parts = Parts()
    parts.leaders.logs[P].append(b"a")
    lookups = PositionLookups(parts.core, parts.positions, parts.changes, READ_UNCOMMITTED)
    parts.positions.assign({P: Offset(1, leader_epoch=0)})
    each = parts.positions.assigned[P]
    each.state, each.led = PositionState.VALIDATING, parts.positions.leader(each)
    lookups.validate(NODE, [each], parts.leaders.now)
    parts.leaders.run(lambda: not each.asking)
    assert each.state is PositionState.FETCHING and each.leader_epoch == 0


# -- answers, review --------------------------------------------------------------------------------------------------


def answered(parts: Parts, results: list[PartitionData] | OttlaError) -> None:
    """Answer a Fetch of all assigned partitions with these results."""
    answers = FetchAnswers(
        parts.core,
        parts.positions,
        parts.buffers,
        parts.scheduler,
        parts.near,
        parts.changes,
        parts.metrics,
        READ_UNCOMMITTED,
    )
    session = FetchSession(NODE)
    for each in parts.positions.assigned.values():
        session.want(each, NODE)
        parts.scheduler.want(each, NODE, 1, parts.leaders.now)
    session.request(FetchLimits(0.5, 10_000, 1000, READ_UNCOMMITTED, ""), 12)
    answer = (
        results
        if isinstance(results, OttlaError)
        else FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=tuple(results)),))
    )
    answers.answered(session, answer, parts.leaders.now)


def test_answers_are_buffered_or_tried_again_partition_by_partition() -> None:
    parts = Parts()
    [first, second] = parts.assign(P, Q)
    good = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=batch(0).data)
    bad = PartitionData(partition_index=1, error_code=UnknownTopicOrPartition.code, high_watermark=-1, records=b"")
    answered(parts, [good, bad])
    assert (first.fetch_offset, first.high_watermark, len(first.buffer)) == (1, 1, 1)
    assert isinstance(second.trouble, UnknownTopicOrPartition) and second.retry_at > parts.leaders.now


def test_a_lost_answer_is_asked_for_again() -> None:
    parts = Parts()
    positions = parts.assign(P, Q)
    answered(parts, ConnectionLost("the wire broke"))
    assert all(isinstance(each.trouble, ConnectionLost) and each.failures == 1 for each in positions)


@pytest.mark.parametrize(
    ("start", "state"), [(Offset(0), PositionState.FETCHING), (Time(EARLIEST), PositionState.RESOLVING)]
)
def test_a_review_has_partitions_fetched_or_looked_up(start: Offset | Time, state: PositionState) -> None:
    parts = Parts()
    lookups = PositionLookups(parts.core, parts.positions, parts.changes, READ_UNCOMMITTED)
    review = Review(parts.core, parts.positions, lookups, parts.scheduler)
    parts.positions.assign({P: start})
    each = parts.positions.assigned[P]
    review.review([each], parts.leaders.now)
    assert each.state is state
    assert each.asking is (state is PositionState.RESOLVING)
    assert (parts.scheduler.node(each) == NODE.id) is (state is PositionState.FETCHING)
