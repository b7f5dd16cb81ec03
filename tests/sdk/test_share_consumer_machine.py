"""A share consumer: its records, their acknowledgements and locks, its sessions and leaders, the end of its block."""

import pytest

from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.codec.apis.share_fetch import ACCEPT, GAP, RECORD_LIMIT, REJECT, RELEASE, RENEW, ShareFetchRequest
from ottla.codec.apis.share_group_heartbeat import JOIN, LEAVE, ShareGroupHeartbeatRequest
from ottla.errors import (
    AcknowledgementFailed,
    BrokerError,
    ChecksumMismatch,
    Closed,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    InvalidRecordState,
    InvalidShareSessionEpoch,
    LocalProtocolError,
    MemoryLimitExceeded,
    NotLeaderOrFollower,
    PolicyViolation,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.sdk.options import Options
from ottla.sdk.share.lock_watch import LockWatch
from ottla.sdk.share.locked_record import RecordState
from tests.sdk.sharing import LOCK, SHARE_APIS, Sharing, asked_partitions, batch, failure, numbered, told, values

T0 = ("t", 0)


# -- the member --------------------------------------------------------------------------------------------------------


def test_a_member_joins_with_its_topics_and_an_id_in_kafkas_form() -> None:
    group = Sharing(joins=False)
    beat = group.beat
    assert (beat.group_id, beat.member_epoch, beat.subscribed_topic_names) == ("g", JOIN, ("t",))
    assert len(beat.member_id) == 22 and "=" not in beat.member_id


def test_heartbeats_send_what_has_changed_in_the_interval_of_the_coordinator() -> None:
    group = Sharing()
    group.world.later(4.9)
    assert group.world.pending(ShareGroupHeartbeatRequest) == []
    group.world.later(0.2)
    assert (group.beat.member_epoch, group.beat.subscribed_topic_names) == (1, None)


def test_a_member_without_partitions_asks_again_soon() -> None:
    group = Sharing(joins=False)
    group.assign()
    waited = []
    for _ in range(4):
        before = group.world.now
        group.world.run(lambda: bool(group.world.pending(ShareGroupHeartbeatRequest)))
        waited.append(round(group.world.now - before, 1))
        group.confirm()
    assert waited == [0.2, 0.4, 0.8, 1.6]


@pytest.mark.parametrize("error", [UnknownMemberId, FencedMemberEpoch])
def test_an_expelled_member_joins_again_with_the_same_id_and_all_fields(error: type[UnknownMemberId]) -> None:
    group = Sharing()
    group.world.later(5.0)
    member_id = group.beat.member_id
    group.refuse_beat(error)
    beat = group.beat
    assert (beat.member_epoch, beat.member_id, beat.subscribed_topic_names) == (JOIN, member_id, ("t",))


def test_records_of_an_expelled_member_can_still_be_acknowledged() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(5.0)
    group.refuse_beat(UnknownMemberId)
    accepting = group.call(group.core.accept(record))
    group.world.run()
    assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))]
    group.answer_acknowledgement()
    assert accepting.go_on().over and accepting.error is None


def test_a_cluster_without_share_groups_is_named() -> None:
    group = Sharing(served={}, joins=False)
    asked = group.next()
    assert isinstance(asked.go_on().error, UnsupportedVersion)
    assert "this cluster has no share groups: they need Kafka 4.2 or newer" in str(asked.error)


@pytest.mark.parametrize("error", [GroupAuthorizationFailed, PolicyViolation])
def test_an_error_of_the_group_ends_the_membership_and_is_raised(error: type[BrokerError]) -> None:
    group = Sharing(joins=False)
    asked = group.next()
    group.refuse_beat(error)
    assert isinstance(asked.go_on().error, error)


def test_a_member_whose_user_hangs_leaves_and_the_next_request_joins_again(caplog: pytest.LogCaptureFixture) -> None:
    group = Sharing(max_poll_interval=60.0)
    [record] = group.take(0, 0)
    group.world.later(LOCK - 1)
    renewing = group.call(group.core.renew(record))  # a sign of life
    group.world.run()
    group.answer_acknowledgement()
    assert renewing.go_on().over
    while group.world.now < LOCK + 58:
        group.world.later(1.0)
        if group.world.pending(ShareGroupHeartbeatRequest):
            assert group.beat.member_epoch == 1
            group.confirm()
    group.world.later(1.0)
    assert group.beat.member_epoch == LEAVE and "max_poll_interval" in caplog.text
    asked = group.next()
    assert not asked.over and group.beat.member_epoch == LEAVE, "it joins behind its goodbye"
    group.confirm(LEAVE)
    assert (group.beat.member_epoch, group.beat.subscribed_topic_names) == (JOIN, ("t",))
    group.assign(0)
    assert group.acknowledgement.share_session_epoch == -1, "the session was closed with its last lock"
    group.answer_acknowledgement()
    group.answer_fetch(numbered(1, 1), (1, 1, 1))
    assert values([asked.go_on().result]) == [b"1"]


def test_a_member_stays_while_a_call_waits() -> None:
    group = Sharing(max_poll_interval=10.0)
    asked = group.next()
    for _ in range(12):
        group.world.later(5.0)
        group.confirm()
        if group.fetches:
            group.answer_fetch()
    assert not asked.over and group.world.pending(ShareGroupHeartbeatRequest) == []


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_session_begins_with_all_partitions_and_a_strict_limit() -> None:
    group = Sharing(max_records=10, joins=False)
    group.assign(0, 2)
    assert group.fetches == [], "nobody has asked for a record"
    group.next()
    fetch = group.fetch
    assert (fetch.share_session_epoch, asked_partitions(fetch), fetch.max_records) == (0, [0, 2], 10)
    assert fetch.share_acquire_mode == RECORD_LIMIT and fetch.max_wait_ms == 500


def test_records_are_handed_out_with_their_delivery_counts() -> None:
    group = Sharing()
    asked = group.next()
    group.answer_fetch(numbered(5, 9), (6, 7, 1), (9, 9, 3))
    taken = [asked.go_on().result, group.next().result, group.next().result]
    assert values(taken) == [b"6", b"7", b"9"] and [each.delivery_count for each in taken] == [1, 1, 3]


def test_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    group = Sharing()
    group.next()
    group.answer_fetch(batch(2, b"2", b"3") + batch(6, b"6"), (0, 8, 1))
    assert told(group.acknowledgement) == [(0, 0, 1, (GAP,)), (0, 4, 5, (GAP,)), (0, 7, 8, (GAP,))]


def test_a_damaged_batch_is_raised_and_its_records_are_released() -> None:
    group = Sharing()
    asked = group.next()
    damaged = bytearray(numbered(1, 2))
    damaged[-1] ^= 1
    group.answer_fetch(numbered(0, 0) + bytes(damaged), (0, 2, 1))
    assert isinstance(asked.go_on().error, ChecksumMismatch) and "t-0" in str(asked.error)
    assert told(group.acknowledgement) == [(0, 1, 2, (RELEASE,))]
    assert values([group.next().result]) == [b"0"]


def test_a_partition_that_this_client_cannot_decode_is_not_read_again() -> None:
    """Each attempt would use up a delivery, until the leader archives records that other members can read."""
    group = Sharing(client=Options(fetch_batch_memory=1000))
    asked = group.next()
    group.answer_fetch(numbered(0, 99), (0, 99, 1))
    assert isinstance(asked.go_on().error, MemoryLimitExceeded)
    asked = group.next()
    assert told(group.acknowledgement) == [(0, 0, 99, (RELEASE,))]
    group.answer_acknowledgement()
    group.world.later(4.0)
    assert not asked.go_on().over and group.fetches == []
    assert "t-0: " in "".join(group.core.explain(group.world.now))


def test_no_more_records_are_held_than_the_limit() -> None:
    group = Sharing(max_records=2)
    first, second = group.take(0, 1)
    group.next("another")
    assert group.fetches == []
    group.world.core.call(lambda: group.core.accept_soon(first), group.world.now)
    group.world.run()
    group.answer_acknowledgement()
    assert group.fetch.max_records == 1
    assert second.state is RecordState.HANDED_OUT


def test_a_call_that_waits_for_room_is_explained() -> None:
    group = Sharing(max_records=2)
    first, _ = group.take(0, 1)
    assert list(group.core.explain(group.world.now)) == []
    group.next("another")
    full = "share group 'g': your code has 2 record(s), as many as max_records: acknowledge some of them"
    assert list(group.core.explain(group.world.now)) == [full]
    group.world.core.call(lambda: group.core.accept_soon(first), group.world.now)
    assert full not in group.core.explain(group.world.now)


def test_a_group_without_its_first_record_is_explained_by_where_it_begins() -> None:
    group = Sharing()
    group.next()
    assert list(group.core.explain(group.world.now)) == []
    group.world.later(6.0)
    (line,) = group.core.explain(group.world.now)
    assert "a new share group begins" in line.lower() and "ottla share reset g --to-earliest --topic" in line


def test_a_group_that_has_had_a_record_may_wait_long_for_the_next() -> None:
    group = Sharing()
    group.take(0, 0)
    group.next()
    group.world.later(60.0)
    assert not any("begins" in line for line in group.core.explain(group.world.now))


def test_a_broker_that_refuses_share_sessions_is_explained_to_calls_that_wait() -> None:
    group = Sharing()
    group.next()
    assert list(group.core.explain(group.world.now)) == []
    for attempt in (1, 2):
        group.answer_fetch(code=ShareSessionLimitReached.code)
        (line,) = group.core.explain(group.world.now)
        assert f"no share session with node 1: {attempt} attempt(s) failed, last error: " in line
        assert "SHARE_SESSION_LIMIT_REACHED" in line
        group.world.later(1.0)
    group.answer_fetch()
    assert list(group.core.explain(group.world.now)) == []


def test_nothing_is_fetched_while_nobody_asks_and_nothing_is_buffered() -> None:
    group = Sharing()
    group.take(0, 3)
    group.world.later(10.0)
    assert group.fetches == []


def test_a_loop_that_keeps_up_gets_more_records_ahead_and_a_stuck_one_less() -> None:
    group = Sharing(max_records=100)
    at, asked = 0, []
    for _ in range(4):
        waits = group.next()
        asked.append(group.fetch.max_records)
        group.answer_fetch(numbered(at, at + 3), (at, at + 3, 1))
        assert waits.go_on().over
        for _ in range(3):
            group.next()
        group.answer_fetch()  # nothing to fetch ahead
        at += 4
    assert asked == [16, 32, 64, 88], "the last is bounded by the records in hand"
    waits = group.next()
    group.answer_fetch(numbered(at, at + 9), (at, at + 9, 1))
    group.world.later(LOCK)
    group.confirm()
    group.world.run()
    group.next()
    assert group.fetch.max_records == 50, "records were dropped, because nobody asked for them"


def test_nodes_take_turns_and_an_empty_one_does_not_hold_up_another() -> None:
    group = Sharing(max_records=1, joins=False, leaders={("t", 1): 2})
    group.assign(0, 1)
    asked = group.next()
    first = group.fetch
    assert first.max_wait_ms == 100
    partition = asked_partitions(first)[0]
    group.answer_fetch(numbered(0, 0), (0, 0, 1), partition=partition)
    record = asked.go_on().result
    assert record is not None
    group.world.core.call(lambda: group.core.accept_soon(record), group.world.now)
    group.next("again")
    group.answer_acknowledgement()
    second = group.fetch
    assert asked_partitions(second) == [1 - partition] and second.max_wait_ms == 0


def test_a_cancelled_call_takes_no_record() -> None:
    group = Sharing()
    asked = group.next()
    asked.throw(KeyboardInterrupt())
    group.answer_fetch(numbered(0, 0), (0, 0, 1))
    assert values([group.next().result]) == [b"0"]


def test_a_record_that_did_not_reach_its_caller_is_handed_out_again() -> None:
    group = Sharing()
    first, _ = group.take(0, 1)
    group.core.put_back(first)
    assert group.next().result is first


def test_the_content_of_share_fetches_is_measured() -> None:
    group = Sharing()
    metrics = group.world.core.metrics
    one, other = numbered(0, 1), numbered(2, 4)
    group.next()
    group.answer_fetch(one, (0, 1, 1))
    group.next()
    group.next()
    group.answer_fetch(other, (3, 4, 1))
    kind = "consumer-share-fetch-manager-metrics"
    now = group.world.now
    for name, value in {
        "fetch-total": 2,
        "records-consumed-total": 4,
        "records-per-request-avg": 2,
        "bytes-consumed-total": len(one) + len(other),
        "fetch-size-max": len(other),
        "fetch-throttle-time-max": 0,
    }.items():
        assert metrics.value(name, now, type=kind) == value, name


def test_several_tasks_may_ask_and_each_record_goes_to_one() -> None:
    group = Sharing()
    one, other = group.next("one"), group.next("other")
    group.answer_fetch(numbered(0, 1), (0, 1, 1))
    assert values([one.go_on().result, other.go_on().result]) == [b"0", b"1"]


def test_a_call_with_a_timeout_returns_nothing_then() -> None:
    group = Sharing()
    asked = group.next(timeout=0.2)
    assert not asked.over
    group.world.later(0.2)
    assert asked.go_on().over and asked.result is None


# -- acknowledgements --------------------------------------------------------------------------------------------------


def test_acknowledgements_go_together_and_by_offsets() -> None:
    group = Sharing()
    records = group.take(0, 4)
    group.world.core.call(lambda: group.core.accept_soon(records[0]), group.world.now)
    group.world.run()
    first = group.acknowledgement
    calls = [
        group.call(group.core.reject(records[4])),
        group.call(group.core.accept(records[1])),
        group.call(group.core.accept(records[2])),
        group.call(group.core.release(records[3])),
    ]
    group.world.run()
    assert group.acknowledgement is first, "one request at a time"
    group.answer_acknowledgement()
    assert group.acknowledgement.share_session_epoch == first.share_session_epoch + 1
    assert told(group.acknowledgement) == [(0, 1, 2, (ACCEPT,)), (0, 3, 3, (RELEASE,)), (0, 4, 4, (REJECT,))]
    group.answer_acknowledgement()
    assert all(each.go_on().over and each.error is None for each in calls)


def test_a_record_is_acknowledged_once() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.call(group.core.accept(record))
    again = group.call(group.core.release(record))
    assert isinstance(again.error, LocalProtocolError) and "accepted already" in str(again.error)


def test_acknowledgements_that_are_refused_together_are_sent_again_in_halves() -> None:
    group = Sharing()
    records = group.take(0, 3)
    calls = [group.call(group.core.accept(each)) for each in records]
    group.world.run()
    group.answer_acknowledgement()  # the first went alone
    sent = []
    for error in (InvalidRecordState.code, 0, InvalidRecordState.code):
        sent.append(told(group.acknowledgement))
        group.answer_acknowledgement(error=error)
    assert sent == [[(0, 1, 3, (ACCEPT,))], [(0, 1, 1, (ACCEPT,))], [(0, 2, 3, (ACCEPT,))]]
    group.answer_acknowledgement(error=InvalidRecordState.code)
    group.answer_acknowledgement()
    metrics = group.world.core.metrics
    assert metrics.value("acknowledgements-send-total", group.world.now) == 1 + 3 + 1 + 2 + 1 + 1
    assert metrics.value("acknowledgements-error-total", group.world.now) == 1
    errors = [each.go_on().error for each in calls]
    assert [type(each) for each in errors] == [type(None), type(None), AcknowledgementFailed, type(None)]
    assert errors[2].records == {("t", 0, 2): False}  # type: ignore[union-attr] # of the assertion above


def test_reports_of_gaps_are_not_sent_again() -> None:
    """They have no lock, so nothing would end that: their topic may be deleted. Another delivery reports them."""
    group = Sharing()
    group.next()
    group.answer_fetch(b"", (0, 8, 1))
    assert told(group.acknowledgement) == [(0, 0, 8, (GAP,))]
    group.answer_acknowledgement(error=UnknownTopicId.code)
    group.world.later(5.0)
    assert group.acknowledgements == [] and group.fetch


def test_an_acknowledgement_that_the_leader_refuses_for_now_is_sent_again_and_fetches_go_on() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    accepting = group.call(group.core.accept(record))
    group.world.run()
    asked = group.next("another")
    for number in range(3):
        assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))]
        group.answer_acknowledgement(error=UnknownTopicOrPartition.code)
        assert group.acknowledgements == [], "it waits"
        group.answer_fetch(numbered(1 + number, 1 + number), (1 + number, 1 + number, 1))
        assert asked.go_on().over
        asked = group.next("another")
        group.world.later(1.5)
        group.answer_fetch()
    group.answer_acknowledgement()
    assert accepting.go_on().over and accepting.error is None


def test_later_acknowledgements_of_a_troubled_partition_wait_with_the_refused_one() -> None:
    group = Sharing()
    first, second = group.take(0, 1)
    group.call(group.core.accept(first))
    group.world.run()
    group.answer_acknowledgement(error=UnknownTopicOrPartition.code)
    group.call(group.core.accept(second))
    group.world.run()
    assert group.acknowledgements == []
    group.world.later(1.5)
    assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))]
    group.answer_acknowledgement()
    assert told(group.acknowledgement) == [(0, 1, 1, (ACCEPT,))]


def test_the_block_ends_behind_acknowledgements_that_are_sent_again() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    accepting = group.call(group.core.accept(record))
    leaving = group.call(group.core.leave(None))
    group.world.run()
    group.answer_acknowledgement(error=UnknownTopicOrPartition.code)
    group.world.later(1.5)
    assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))]
    group.answer_acknowledgement()
    assert accepting.go_on().over and accepting.error is None
    assert group.acknowledgement.share_session_epoch == -1
    group.answer_acknowledgement()
    leaving.go_on()
    group.confirm(LEAVE)
    assert leaving.go_on().over and leaving.error is None


def test_an_acknowledgement_that_is_refused_for_now_after_its_lock_has_expired_has_an_unknown_outcome() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(LOCK - 0.5)
    accepting = group.call(group.core.accept(record))
    group.world.run()
    group.world.later(1.0)
    assert not accepting.go_on().over, "the leader decides"
    group.answer_acknowledgement(error=UnknownTopicOrPartition.code)
    assert failure(accepting).outcome_unknown and "its lock has expired" in str(accepting.error)
    group.world.later(5.0)
    assert group.acknowledgements == []


def test_a_failure_that_no_call_waits_for_is_raised_by_the_next_one_and_once() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.core.call(lambda: group.core.accept_soon(record), group.world.now)
    group.world.run()
    group.answer_acknowledgement(error=InvalidRecordState.code)
    asked = group.next()
    assert isinstance(asked.error, AcknowledgementFailed) and asked.error.records == {("t", 0, 0): False}
    assert not group.next().over


def test_a_cancelled_acknowledgement_goes_on_and_its_failure_is_raised_by_flush() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    accepting = group.call(group.core.accept(record))
    accepting.throw(KeyboardInterrupt())
    flushing = group.call(group.core.flush())
    group.world.run()
    group.answer_acknowledgement(error=InvalidRecordState.code)
    assert isinstance(flushing.go_on().error, AcknowledgementFailed)


def test_with_implicit_acknowledgement_asking_accepts_the_record_before() -> None:
    group = Sharing(acknowledge="implicit")
    group.take(0, 1)
    assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))]
    group.next()
    other = group.next("another")
    assert isinstance(other.error, LocalProtocolError) and "another task" in str(other.error)


# -- locks -------------------------------------------------------------------------------------------------------------


def test_the_log_warns_before_locks_expire(caplog: pytest.LogCaptureFixture) -> None:
    group = Sharing()
    group.take(0, 1)
    group.world.later(LOCK * 0.7)
    assert "about to expire" not in caplog.text
    group.world.later(LOCK * 0.1)
    assert "about to expire" in caplog.text and "records=2" in caplog.text


def test_a_late_acknowledgement_is_refused_at_once() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(LOCK)
    accepting = group.call(group.core.accept(record))
    assert not failure(accepting).outcome_unknown
    assert "its lock has expired after 30 s" in str(accepting.error) and "delivered again (t-0 at 0)" in str(
        accepting.error
    )


def test_a_renewed_lock_lasts_from_the_renewal_on() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(LOCK - 1)
    renewing = group.call(group.core.renew(record))
    group.world.run()
    assert group.acknowledgement.is_renew_ack and told(group.acknowledgement) == [(0, 0, 0, (RENEW,))]
    group.answer_acknowledgement()
    assert renewing.go_on().over and renewing.error is None
    group.world.later(LOCK - 1)
    assert group.core.lock_left(record, group.world.now) == pytest.approx(1.0)
    group.call(group.core.accept(record))
    group.world.run()
    assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))]


def test_a_renewal_in_flight_at_the_end_of_the_lock_counts() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(LOCK - 0.5)
    renewing = group.call(group.core.renew(record))
    group.world.run()
    group.world.later(1.0)
    assert not renewing.go_on().over, "the leader decides"
    group.answer_acknowledgement()
    assert renewing.go_on().over and renewing.error is None
    assert group.core.lock_left(record, group.world.now) > LOCK - 2


@pytest.mark.parametrize("error", [InvalidRecordState, UnknownTopicOrPartition])
def test_a_renewal_that_fails_after_the_end_of_the_lock_loses_the_record(error: type[InvalidRecordState]) -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(LOCK - 0.5)
    renewing = group.call(group.core.renew(record))
    group.world.run()
    group.world.later(1.0)
    accepting = group.call(group.core.accept(record))
    group.answer_acknowledgement(error=error.code)
    assert not failure(renewing).outcome_unknown and not failure(accepting).outcome_unknown
    assert record.state is RecordState.LOST


def test_a_broker_that_cannot_renew_says_so() -> None:
    group = Sharing(served=SHARE_APIS | {79: (1, 1)})
    [record] = group.take(0, 0)
    renewing = group.call(group.core.renew(record))
    group.world.run()
    assert isinstance(renewing.go_on().error, UnsupportedVersion) and "KIP-1222" in str(renewing.error)
    group.answer_acknowledgement()
    assert record.state is RecordState.HANDED_OUT


def test_records_that_nobody_asked_for_in_time_are_not_handed_out() -> None:
    group = Sharing()
    group.next()
    group.answer_fetch(numbered(0, 1), (0, 1, 1))
    group.world.later(LOCK)
    asked = group.next()
    assert not asked.over, "the second record waited too long"


def test_a_delivery_ends_the_one_before() -> None:
    """Otherwise its acknowledgement would count for the new one."""
    group = Sharing()
    [record] = group.take(0, 0)
    group.next("another")
    accepting = group.call(group.core.accept(record))
    group.world.run()
    assert group.acknowledgements == [], "a ShareFetch is in flight"
    group.answer_fetch(numbered(0, 0), (0, 0, 2))
    assert isinstance(accepting.go_on().error, AcknowledgementFailed)
    assert "delivered to this consumer again" in str(accepting.error) and group.acknowledgements == []


def timers_of_locks(group: Sharing) -> int:
    calls = [entry[2].call for entry in group.world.core.timers._heap]
    return sum(isinstance(getattr(getattr(each, "func", None), "__self__", None), LockWatch) for each in calls)


def test_the_timers_of_a_lock_end_with_its_last_record() -> None:
    group = Sharing()
    first, second = group.take(0, 1)
    renewing = group.call(group.core.renew(first))
    group.world.run()
    group.answer_acknowledgement()
    assert renewing.go_on().over and timers_of_locks(group) == 6
    for left, record in ((3, second), (0, first)):
        group.call(group.core.accept(record))
        group.world.run()
        group.answer_acknowledgement()
        assert timers_of_locks(group) == left


def test_a_closed_consumer_keeps_neither_records_nor_timers() -> None:
    group = Sharing()
    group.next()
    group.answer_fetch(numbered(0, 3), (0, 3, 1))
    assert timers_of_locks(group) == 3
    group.core.close()
    assert timers_of_locks(group) == 0 and not group.core._reader._buffer


# -- sessions and leaders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ShareSessionNotFound, InvalidShareSessionEpoch])
def test_a_refused_session_begins_again_and_its_records_are_lost(error: type[ShareSessionNotFound]) -> None:
    group = Sharing()
    first, second = group.take(0, 1)
    accepting = group.call(group.core.accept(first))
    group.world.run()
    group.answer_acknowledgement(code=error.code)
    assert not failure(accepting).outcome_unknown
    late = group.call(group.core.accept(second))
    assert isinstance(late.error, AcknowledgementFailed) and "session with node 1 is lost" in str(late.error)
    group.next()
    group.world.later(0.2)
    assert (group.fetch.share_session_epoch, asked_partitions(group.fetch)) == (0, [0])


def test_an_acknowledgement_without_an_answer_has_an_unknown_outcome() -> None:
    group = Sharing()
    first, second = group.take(0, 1)
    accepting = group.call(group.core.accept(first))
    group.world.run()
    waiting = group.call(group.core.accept(second))
    group.world.break_connections()
    assert failure(accepting).outcome_unknown
    assert "unless the acknowledgement counts after all" in str(accepting.error)
    assert not failure(waiting).outcome_unknown


def test_partitions_are_added_and_forgotten_in_the_session() -> None:
    group = Sharing()
    group.next()
    group.answer_fetch()
    group.world.later(5.0)
    group.answer_fetch()
    group.assign(1, 2)
    group.world.run()
    fetch = group.fetch
    assert asked_partitions(fetch) in ([], [1, 2])
    if not asked_partitions(fetch):
        group.answer_fetch()
        fetch = group.fetch
    assert asked_partitions(fetch) == [1, 2]
    assert [each.partitions for each in fetch.forgotten_topics_data] == [(0,)]


def test_a_partition_with_locked_records_stays_in_the_session() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.later(5.0)
    group.assign(1)
    group.next()
    assert asked_partitions(group.fetch) == [1] and not group.fetch.forgotten_topics_data
    group.call(group.core.accept(record))
    group.answer_fetch()
    group.answer_acknowledgement()
    [forgotten] = group.fetch.forgotten_topics_data
    assert forgotten.partitions == (0,)


def test_the_locks_of_a_leader_that_has_moved_are_gone() -> None:
    group = Sharing()
    first, second = group.take(0, 1)
    accepting = group.call(group.core.accept(first))
    group.world.run()
    group.answer_acknowledgement(error=NotLeaderOrFollower.code)
    assert isinstance(accepting.go_on().error, AcknowledgementFailed)
    assert "does not lead the partition any more" in str(accepting.error)
    assert second.state is RecordState.LOST


def test_a_partition_is_read_from_its_new_leader() -> None:
    group = Sharing()
    group.next()
    group.world.racks[2] = None
    group.world.leaders["t", 0] = 2
    group.answer_fetch(error=NotLeaderOrFollower.code)
    group.world.later(1.0)
    [other] = [each for each in group.world.waiting if isinstance(each.message, ShareFetchRequest) and each.key[0] == 2]
    assert asked_partitions(other.message) == [0] and other.message.share_session_epoch == 0


def test_a_partition_that_cannot_be_read_is_raised_once() -> None:
    group = Sharing()
    asked = group.next()
    group.answer_fetch(error=TopicAuthorizationFailed.code)
    assert isinstance(asked.go_on().error, TopicAuthorizationFailed)
    assert not group.next().over
    assert "t-0: TOPIC_AUTHORIZATION_FAILED" in "".join(group.core.explain(group.world.now))


# -- the end of the block ----------------------------------------------------------------------------------------------


def test_the_block_ends_in_order() -> None:
    group = Sharing()
    first, _ = group.take(0, 1)
    group.world.core.call(lambda: group.core.accept_soon(first), group.world.now)
    leaving = group.call(group.core.leave(None))
    group.world.run()
    assert told(group.acknowledgement) == [(0, 0, 0, (ACCEPT,))] and group.acknowledgement.share_session_epoch > 0
    group.answer_acknowledgement()
    assert group.acknowledgement.share_session_epoch == -1, "the broker releases the other record"
    group.answer_acknowledgement()
    assert leaving.go_on() and group.beat.member_epoch == LEAVE
    group.confirm(LEAVE)
    assert leaving.go_on().over and leaving.error is None
    late = group.next()
    assert isinstance(late.error, Closed)


def test_the_end_of_the_block_raises_a_failed_acknowledgement() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.core.call(lambda: group.core.accept_soon(record), group.world.now)
    leaving = group.call(group.core.leave(None))
    group.world.run()
    group.answer_acknowledgement(error=InvalidRecordState.code)
    group.answer_acknowledgement()
    leaving.go_on()
    group.confirm(LEAVE)
    assert isinstance(leaving.go_on().error, AcknowledgementFailed)


def test_an_error_ends_the_block_within_a_moment_and_names_what_failed() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    group.world.core.call(lambda: group.core.accept_soon(record), group.world.now)
    error = ValueError("the user's")
    leaving = group.call(group.core.leave(error))
    began = group.world.now
    group.world.run(lambda: leaving.go_on().over)
    assert leaving.error is None and group.world.now - began <= 1.51, "no broker has answered"
    assert ["1 acknowledgement(s) failed" in each for each in error.__notes__] == [True]


def test_an_error_ends_the_block_within_a_moment_while_an_earlier_goodbye_has_no_answer() -> None:
    group = Sharing(max_poll_interval=1.0)
    group.take(0, 0)
    group.world.later(1.5)
    assert group.beat.member_epoch == LEAVE
    leaving = group.call(group.core.leave(ValueError("the user's")))
    began = group.world.now
    group.world.run(lambda: leaving.go_on().over)
    assert leaving.error is None and group.world.now - began <= 1.51


def test_a_client_that_closes_first_leaves_the_group() -> None:
    group = Sharing()
    [record] = group.take(0, 0)
    accepting = group.call(group.core.accept(record))
    closing = group.call(group.world.core.leave_groups())
    group.world.run()
    group.answer_acknowledgement()
    assert accepting.go_on().over and accepting.error is None
    assert group.acknowledgement.share_session_epoch == -1
    group.answer_acknowledgement()
    assert group.beat.member_epoch == LEAVE
    group.confirm(LEAVE)
    assert closing.go_on().over


def test_max_poll_interval_is_not_counted_while_the_client_is_being_left() -> None:
    group = Sharing(max_poll_interval=1.0)
    [record] = group.take(0, 0)
    group.world.core.call(lambda: group.core.accept_soon(record), group.world.now)
    group.world.later(0.9)
    closing = group.call(group.world.core.leave_groups())
    group.world.later(0.2)
    assert group.world.pending(ShareGroupHeartbeatRequest) == [], "the acknowledgements come first"
    group.answer_acknowledgement()
    group.answer_acknowledgement()
    group.confirm(LEAVE)
    assert closing.go_on().over


def closed_first(group: Sharing) -> None:
    """The client closes first, and the leader refuses an acknowledgement for which no call waits."""
    [record] = group.take(0, 0)
    group.world.core.call(lambda: group.core.accept_soon(record), group.world.now)
    closing = group.call(group.world.core.leave_groups())
    group.world.run()
    group.answer_acknowledgement(error=InvalidRecordState.code)
    group.answer_acknowledgement()
    group.confirm(LEAVE)
    assert closing.go_on().over
    group.world.core.close(group.world.now)


def test_the_end_of_the_block_raises_a_failed_acknowledgement_after_the_client_was_closed() -> None:
    group = Sharing()
    closed_first(group)
    leaving = group.call(group.core.leave(None))
    assert failure(leaving).records == {("t", 0, 0): False}


def test_an_error_that_ends_the_block_after_the_client_was_closed_names_what_failed() -> None:
    group = Sharing()
    closed_first(group)
    error = ValueError("the user's")
    assert group.call(group.core.leave(error)).error is None
    assert ["1 acknowledgement(s) failed" in each for each in error.__notes__] == [True]


def test_a_call_that_waits_ends_with_the_block() -> None:
    group = Sharing()
    asked = group.next("another")
    group.call(group.core.leave(None))
    group.world.run()
    assert isinstance(asked.go_on().error, Closed)


def test_a_closed_consumer_leaves_nothing_in_its_client() -> None:
    group = Sharing()
    group.take(0, 3)
    group.core.close()
    group.world.run()
    assert not group.world.core.parts and not group.world.core.members
    for each in group.world.pending(ShareAcknowledgeRequest):
        assert each.share_session_epoch == -1
    assert not [each for each in group.world.core.metrics.snapshot(0.0) if each.name.startswith("acknowledgements")]
