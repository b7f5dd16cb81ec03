"""The parts of a share consumer that decide about records: acquired records, states, sessions, the pace."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec.apis.share_fetch import ACCEPT, GAP, REJECT, RENEW, AcquiredRecords
from ottla.codec.records import Record, build_batch, rebased
from ottla.errors import AcknowledgementFailed, ChecksumMismatch, DecodeError, MemoryLimitExceeded
from ottla.sdk.outcome import Outcome
from ottla.sdk.share import locked_record, member_states
from ottla.sdk.share.acquired import acquired
from ottla.sdk.share.locked_record import (
    Lock,
    LockedRecord,
    RecordAcknowledgement,
    RecordInput,
    RecordState,
    RecordTally,
    SharedPartition,
)
from ottla.sdk.share.member_states import ShareMemberInput, ShareMemberState
from ottla.sdk.share.pace import START, Pace
from ottla.sdk.share.share_session import ShareFetchLimits, ShareSession

LIMIT = 2**27
LOCK = Lock(30.0, 30.1, 30.0)
T0 = SharedPartition("t", uuid.UUID(int=1), 0)


def batch(base: int, count: int) -> bytes:
    return bytes(rebased(build_batch([Record(0, 0, None, b"%d" % (base + n)) for n in range(count)]), base, 0))


def ranged(*ranges: tuple[int, int, int]) -> list[AcquiredRecords]:
    return [AcquiredRecords(first_offset=a, last_offset=b, delivery_count=n) for a, b, n in ranges]


# -- acquired records --------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=5),
)
def test_acquired_offsets_are_records_or_gaps(
    batches: list[tuple[int, int]], ranges: list[tuple[int, int, int]]
) -> None:
    data, at, there = b"", 0, set()
    for gap, count in batches:
        data += batch(at + gap, count)
        there |= set(range(at + gap, at + gap + count))
        at += gap + count
    wanted, at = [], 0
    for gap, count, deliveries in ranges:
        wanted.append((at + gap, at + gap + count - 1, deliveries))
        at += gap + count
    counts = {offset: each for first, last, each in wanted for offset in range(first, last + 1)}
    found = acquired(data, ranged(*wanted), LIMIT)
    assert {record.offset: each for record, each in found.records} == {n: c for n, c in counts.items() if n in there}
    assert [record.value for record, _ in found.records] == [b"%d" % record.offset for record, _ in found.records]
    gaps = [offset for first, last in found.gaps for offset in range(first, last + 1)]
    assert gaps == sorted(counts.keys() - there) and not found.unread and found.damage is None


@pytest.mark.parametrize("which", range(3))
def test_from_a_damaged_batch_on_the_offsets_are_unread(which: int) -> None:
    batches = [bytearray(batch(base, 2)) for base in (0, 2, 4)]
    batches[which][-1] ^= 1
    found = acquired(b"".join(batches), ranged((0, 5, 1)), LIMIT)
    assert isinstance(found.damage, ChecksumMismatch)
    assert [record.offset for record, _ in found.records] == list(range(2 * which))
    assert found.unread == [(2 * which, 5)] and not found.gaps


def test_a_batch_that_needs_too_much_memory_is_unread() -> None:
    found = acquired(batch(0, 100), ranged((0, 99, 1)), 1000)
    assert isinstance(found.damage, MemoryLimitExceeded) and found.unread == [(0, 99)]


def test_bytes_that_are_no_batch_are_damage() -> None:
    found = acquired(bytes(100), ranged((0, 0, 1)), LIMIT)
    assert isinstance(found.damage, DecodeError) and found.unread == [(0, 0)]


def test_a_gap_of_a_billion_offsets_costs_nothing() -> None:
    assert acquired(batch(0, 1), ranged((0, 10**9, 1)), LIMIT).gaps == [(1, 10**9)]


class Counted(list[AcquiredRecords]):
    """Ranges that count how often they are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[AcquiredRecords]:
        for each in super().__iter__():
            self.looks += 1
            yield each

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("size", [1, 10, 500])
def test_each_range_is_looked_at_a_few_times_however_many_there_are(size: int) -> None:
    ranges = Counted(ranged(*((n, n, 1 + n % 2) for n in range(0, 1000, 2))))
    data = b"".join(batch(base, size) for base in range(0, 1000, size))
    assert [record.offset for record, _ in acquired(data, ranges, LIMIT).records] == list(range(0, 1000, 2))
    assert ranges.looks < 5 * 1000


# -- the tables --------------------------------------------------------------------------------------------------------


def test_every_state_and_input_of_a_record_is_in_the_table() -> None:
    table = locked_record.TRANSITIONS
    assert {state for state, _ in table} | set(table.values()) == set(RecordState)
    assert {what for _, what in table} == set(RecordInput)


def test_every_state_and_input_of_a_member_is_in_the_table() -> None:
    table = member_states.TRANSITIONS
    assert {state for state, _ in table} | set(table.values()) == set(ShareMemberState)
    assert {what for _, what in table} == set(ShareMemberInput)


# -- sessions ----------------------------------------------------------------------------------------------------------


class Held:
    """A share session with a record at each of some offsets."""

    def __init__(self, *offsets: int) -> None:
        self.woken = 0
        self.session, self.tally = ShareSession("g", "member", self._wake), RecordTally()
        self.session.fetch({T0: None}, ShareFetchLimits(0.5, 1000, 10, True))
        self.session.answered()
        self.records = [LockedRecord(self.session, self.tally, T0, Record(n, 0, None, b""), 1, LOCK) for n in offsets]
        for each in self.records:
            self.session.hold(each)
            each.take()

    def _wake(self) -> None:
        self.woken += 1


def test_adjacent_acknowledgements_of_a_kind_are_one_batch() -> None:
    held = Held(0, 1, 2, 4, 5)
    for record, kind in zip(held.records, (ACCEPT, ACCEPT, REJECT, ACCEPT, ACCEPT), strict=True):
        record.acknowledge(kind)
    held.session.queue_for(T0, RecordAcknowledgement(3, 3, GAP, Outcome()))
    [topic] = held.session.acknowledge(2).topics
    [partition] = topic.partitions
    batches = [
        (each.first_offset, each.last_offset, each.acknowledge_types) for each in partition.acknowledgement_batches
    ]
    assert batches == [(0, 1, (ACCEPT,)), (2, 2, (REJECT,)), (3, 3, (GAP,)), (4, 5, (ACCEPT,))]
    assert held.woken == 6


def test_epochs_wrap_to_one() -> None:
    held = Held()
    held.session._epoch = 2**31 - 1
    held.session.answered()
    assert held.session.acknowledge(2).share_session_epoch == 1


def test_an_ended_session_begins_again_with_all_partitions() -> None:
    held = Held(0)
    held.session.end("the test", unknown=False)
    request = held.session.fetch({T0: None}, ShareFetchLimits(0.5, 1000, 10, True))
    assert request.share_session_epoch == 0 and len(request.topics) == 1
    assert held.records[0].state is RecordState.LOST and not held.session.is_locking and held.tally.held == 0


def test_an_acknowledgement_of_a_lost_record_is_not_sent() -> None:
    held = Held(0, 1)
    first, second = (each.acknowledge(ACCEPT) for each in held.records)
    held.records[0].lose("the test")
    [topic] = held.session.acknowledge(2).topics
    assert [each.first_offset for each in topic.partitions[0].acknowledgement_batches] == [1]
    assert isinstance(first.outcome.error, AcknowledgementFailed) and not second.outcome.done


def test_an_acknowledgement_takes_the_place_of_a_renewal_that_was_not_sent() -> None:
    held = Held(0)
    renewal, acknowledgement = held.records[0].renew(), held.records[0].acknowledge(ACCEPT)
    request = held.session.acknowledge(2)
    assert not request.is_renew_ack and renewal.outcome.done and renewal.outcome.error is None
    assert acknowledgement.in_flight


def test_a_record_is_acknowledged_behind_its_renewal() -> None:
    held = Held(0)
    renewal = held.records[0].renew()
    assert held.session.acknowledge(2).is_renew_ack
    acknowledgement = held.records[0].acknowledge(ACCEPT)
    assert not renewal.outcome.done and not acknowledgement.in_flight
    renewal.stored(Lock(60.0, 60.1, 30.0))
    assert held.records[0].lock.safe_until == 60.0 and renewal.kind == RENEW
    assert held.session.is_due


def test_an_acknowledgement_that_was_answered_with_an_error_that_passes_has_an_unknown_outcome() -> None:
    held = Held(0)
    acknowledgement = held.records[0].acknowledge(ACCEPT)
    held.session.acknowledge(2)
    held.session.again(T0, [acknowledgement])
    held.records[0].lose("its lock has expired")
    assert isinstance(acknowledgement.outcome.error, AcknowledgementFailed)
    assert acknowledgement.outcome.error.outcome_unknown


# -- the pace ----------------------------------------------------------------------------------------------------------


def test_the_pace_follows_the_loop_and_each_lock_counts_once() -> None:
    pace = Pace(100)
    assert pace.limit == START
    first = Lock(30.0, 30.0, 30.0)
    pace.taken(first, 1.0, last=True)
    pace.taken(first, 1.0, last=True)
    assert pace.limit == 2 * START
    second = Lock(60.0, 60.0, 30.0)
    pace.taken(second, 46.0, last=False)
    pace.dropped(second)
    assert pace.limit == START
    for number in range(10):
        pace.dropped(Lock(100.0 + number, 100.0, 30.0))
    assert pace.limit == 1
    for number in range(10):
        pace.taken(Lock(230.0 + number, 0.0, 30.0), 200.0 + number, last=True)
    assert pace.limit == 100
