"""The records of a share partition: their members, and their results."""

import itertools
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.brokerlite.machines.share_partitions.acquisition import AcquiredRun, FoundBatch, Wanted
from ottla.brokerlite.machines.share_partitions.delivery_states import TRANSITIONS, DeliveryInput, DeliveryState
from ottla.brokerlite.machines.share_partitions.record_results import RecordResults
from ottla.brokerlite.machines.share_partitions.share_partition import SharePartition
from ottla.brokerlite.machines.share_partitions.share_settings import ShareLimits
from ottla.brokerlite.machines.share_partitions.stored_state import StoredBatch, StoredState, merged
from ottla.codec.apis.share_fetch import ACCEPT, GAP, REJECT, RELEASE, RENEW
from ottla.errors import CoordinatorNotAvailable, InvalidRecordState, InvalidRequest

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
ALICE, BOB = "alice", "bob"


class Kept:
    """A share partition with a log of batches of ten records, and its stored state.

    Attributes:
        full: the disk refuses.
    """

    def __init__(self, records: int = 100, limits: ShareLimits | None = None, batch: int = 10) -> None:
        self.batches = [FoundBatch(first, first + batch - 1) for first in range(0, records, batch)]
        self.state = StoredState(0)
        self.limits = limits or ShareLimits()
        self.writes: list[tuple[int, int, tuple[StoredBatch, ...]]] = []
        self.full = False
        self.now = 0.0
        self.share = self.start()

    def start(self) -> SharePartition:
        """The partition as it is after a crash."""
        self.share = SharePartition(self.limits, self.store, self.state)
        return self.share

    def store(self, start_offset: int, final: int, batches: Sequence[StoredBatch]) -> None:
        if self.full:
            raise CoordinatorNotAvailable("the disk is full")
        self.writes.append((start_offset, final, tuple(batches)))
        together = merged(self.state.batches, batches, start_offset)
        self.state = StoredState(start_offset, final, together)

    def fetch(self, member: str, most: int = 500, size: int = 500, *, strict: bool = False) -> list[AcquiredRun]:
        offset = self.share.fetch_offset
        found = [batch for batch in self.batches if batch.last_offset >= offset]
        return self.share.acquire(Wanted(member, offset, most, size, strict), found, self.now)

    def tell(self, member: str, first: int, last: int, *types: int) -> None:
        self.share.acknowledge(member, [RecordResults(first, last, types)], self.now)

    def states(self) -> list[tuple[int, int, str, int]]:
        return [(run.first, run.last, run.state.name, run.deliveries) for run in self.share.runs()]


# -- the table


@pytest.mark.parametrize("state", DeliveryState)
@pytest.mark.parametrize("what", DeliveryInput)
def test_a_final_record_stays_final_and_only_acquired_ones_have_results(
    state: DeliveryState, what: DeliveryInput
) -> None:
    after = TRANSITIONS.get((state, what))
    if state.is_final:
        assert after is None
    elif state is DeliveryState.AVAILABLE:
        assert after == {
            DeliveryInput.ACQUIRED: DeliveryState.ACQUIRED,
            DeliveryInput.DROPPED: DeliveryState.ARCHIVED,
        }.get(what)
    else:
        assert (after is None) == (what is DeliveryInput.ACQUIRED)


# -- acquiring


def test_batches_of_the_log_are_acquired_whole() -> None:
    kept = Kept()
    assert kept.fetch(ALICE, 15) == [AcquiredRun(0, 19, 1)]
    assert kept.fetch(BOB, 1) == [AcquiredRun(20, 29, 1)]


def test_a_strict_limit_leaves_the_rest_of_the_batch_for_others() -> None:
    kept = Kept()
    assert kept.fetch(ALICE, 3, strict=True) == [AcquiredRun(0, 2, 1)]
    assert kept.fetch(BOB, 4, strict=True) == [AcquiredRun(3, 6, 1)]
    assert kept.fetch(BOB) == [AcquiredRun(7, 9, 1), AcquiredRun(10, 99, 1)]


def test_a_batch_size_divides_what_is_acquired_between_batches_of_the_log() -> None:
    assert Kept().fetch(ALICE, 50, 15) == [AcquiredRun(0, 19, 1), AcquiredRun(20, 39, 1), AcquiredRun(40, 49, 1)]


def test_records_in_flight_are_bounded_and_given_back_ones_do_not_count_twice() -> None:
    kept = Kept(limits=ShareLimits(record_locks=30))
    assert kept.fetch(ALICE) == [AcquiredRun(0, 29, 1)]
    assert not kept.share.may_acquire and kept.fetch(BOB) == []
    kept.tell(ALICE, 5, 5, RELEASE)
    assert kept.share.may_acquire and kept.fetch(BOB) == [AcquiredRun(5, 5, 2)]
    kept.tell(ALICE, 0, 4, ACCEPT)
    assert kept.share.in_flight == 25 and kept.fetch(BOB) == [AcquiredRun(30, 39, 1)]


def test_no_record_is_acquired_by_two_members() -> None:
    kept = Kept(20)
    assert kept.fetch(ALICE) and kept.fetch(BOB) == []
    with pytest.raises(InvalidRecordState, match="not the owner"):
        kept.tell(BOB, 0, 19, ACCEPT)


def test_records_that_compaction_took_are_skipped() -> None:
    kept = Kept(30)
    kept.fetch(ALICE, 20)
    kept.share.release(ALICE)
    kept.batches = [FoundBatch(12, 19), FoundBatch(20, 29)]
    assert kept.fetch(BOB, 10) == [AcquiredRun(12, 19, 2), AcquiredRun(20, 29, 1)]
    assert kept.share.start_offset == 12


def test_records_of_aborted_transactions_are_archived() -> None:
    kept = Kept()
    kept.batches = [FoundBatch(0, 9), FoundBatch(10, 14, aborted=True), FoundBatch(15, 19)]
    assert kept.fetch(ALICE) == [AcquiredRun(0, 9, 1), AcquiredRun(15, 19, 1)]
    kept.tell(ALICE, 0, 9, ACCEPT)
    assert kept.share.start_offset == 15, "the start passes over them"


def test_many_aborted_batches_take_linear_time() -> None:
    def taken(records: int) -> float:
        kept = Kept(records, ShareLimits(record_locks=records), batch=1)
        kept.batches = [each._replace(aborted=each.base_offset % 2 == 1) for each in kept.batches]
        start = time.process_time()
        acquired = kept.fetch(ALICE, records, 1)
        assert acquired == [AcquiredRun(offset, offset, 1) for offset in range(0, records, 2)]
        return time.process_time() - start

    few, many = (min(taken(records) for _ in range(2)) for records in (500, 4000))
    assert many < 30 * few, "eight times as many batches: 64 times as long, if it were quadratic"


def test_a_batch_with_aborted_records_in_its_middle_can_be_acknowledged_piece_by_piece() -> None:
    kept = Kept()
    kept.batches = [FoundBatch(0, 2), FoundBatch(3, 4, True), FoundBatch(5, 6), FoundBatch(7, 7, True)]
    assert kept.fetch(ALICE) == [AcquiredRun(0, 2, 1), AcquiredRun(5, 6, 1)]
    kept.tell(ALICE, 5, 6, ACCEPT)
    kept.tell(ALICE, 0, 2, ACCEPT)
    assert kept.share.start_offset == 8


# -- results


def test_each_type_of_acknowledgement_has_its_effect() -> None:
    kept = Kept(10)
    kept.fetch(ALICE)
    kept.tell(ALICE, 0, 9, ACCEPT, RELEASE, REJECT, GAP, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RENEW)
    assert kept.states() == [
        (1, 1, "AVAILABLE", 1),
        (2, 3, "ARCHIVED", 1),
        (4, 8, "ACKNOWLEDGED", 1),
        (9, 9, "ACQUIRED", 1),
    ]
    assert kept.writes == [(1, 7, ((1, 1, AVAILABLE, 1), (2, 3, ARCHIVED, 1), (4, 8, ACKNOWLEDGED, 1)))]


def test_the_start_moves_over_records_that_are_done_and_stops_at_the_first_that_is_not() -> None:
    kept = Kept()
    kept.fetch(ALICE, 30)
    kept.tell(ALICE, 10, 19, ACCEPT)
    assert (kept.share.start_offset, kept.state.final) == (0, 10)
    kept.tell(ALICE, 0, 9, REJECT)
    assert (kept.share.start_offset, kept.state.final) == (20, 0)
    kept.tell(ALICE, 20, 29, ACCEPT)
    assert kept.share.start_offset == kept.share.next_offset == 30 and kept.share.runs() == []


def test_a_request_counts_as_a_whole_or_not_at_all() -> None:
    kept = Kept()
    kept.fetch(ALICE, 10)
    kept.fetch(BOB, 10)
    before = kept.states()
    with pytest.raises(InvalidRecordState):
        kept.share.acknowledge(ALICE, [RecordResults(0, 9, (ACCEPT,)), RecordResults(10, 10, (ACCEPT,))], 0.0)
    assert kept.states() == before and kept.writes == []


def test_a_result_that_the_disk_refuses_does_not_count() -> None:
    kept = Kept()
    kept.fetch(ALICE, 10)
    before, kept.full = kept.states(), True
    with pytest.raises(CoordinatorNotAvailable):
        kept.tell(ALICE, 0, 9, ACCEPT)
    assert kept.states() == before
    kept.full = False
    kept.tell(ALICE, 0, 9, ACCEPT)
    assert kept.share.start_offset == 10


def test_results_of_records_that_are_done_are_errors_and_before_the_start_they_are_ignored() -> None:
    kept = Kept()
    kept.fetch(ALICE, 20)
    kept.tell(ALICE, 5, 5, ACCEPT)
    with pytest.raises(InvalidRecordState, match="not acquired"):
        kept.tell(ALICE, 5, 5, ACCEPT)
    kept.tell(ALICE, 0, 4, ACCEPT)
    kept.tell(ALICE, 0, 5, ACCEPT)
    assert kept.share.start_offset == 6


@pytest.mark.parametrize(("first", "last"), [(20, 29), (5, 12)])
def test_results_of_records_that_were_never_acquired_are_refused(first: int, last: int) -> None:
    kept = Kept()
    kept.fetch(ALICE, 10)
    with pytest.raises(InvalidRequest, match="past acquired records"):
        kept.tell(ALICE, first, last, ACCEPT)


def test_a_group_may_forbid_to_renew_locks() -> None:
    kept = Kept(limits=ShareLimits(renewable=False))
    kept.fetch(ALICE, 10)
    with pytest.raises(InvalidRecordState, match="Renewing"):
        kept.tell(ALICE, 0, 9, RENEW)


# -- locks and deliveries


def test_a_lock_that_expires_makes_the_record_available_again() -> None:
    kept = Kept()
    kept.fetch(ALICE, 10)
    assert kept.share.next_deadline == 30.0
    kept.now = 20.0
    kept.tell(ALICE, 0, 4, RENEW)
    kept.now = 30.0
    assert kept.share.expire(30.0) == (5, None)
    assert kept.states() == [(0, 4, "ACQUIRED", 1), (5, 9, "AVAILABLE", 1)] and kept.share.next_deadline == 50.0
    assert kept.fetch(BOB, 10)[0] == AcquiredRun(5, 9, 2)
    with pytest.raises(InvalidRecordState):
        kept.tell(ALICE, 5, 9, ACCEPT)


def test_a_lock_expires_even_if_the_disk_refuses() -> None:
    kept = Kept()
    kept.fetch(ALICE, 10)
    kept.full = True
    expired, error = kept.share.expire(30.0)
    assert expired == 10 and isinstance(error, CoordinatorNotAvailable)
    assert kept.fetch(BOB, 10) == [AcquiredRun(0, 9, 2)]


def test_a_member_that_goes_gives_back_only_its_own_records() -> None:
    kept = Kept()
    kept.fetch(ALICE, 10)
    kept.fetch(BOB, 10)
    assert kept.share.release(ALICE) and not kept.share.release(ALICE)
    assert kept.states() == [(0, 9, "AVAILABLE", 1), (10, 19, "ACQUIRED", 1)]


def test_a_record_is_delivered_as_often_as_the_group_allows_and_then_archived() -> None:
    kept = Kept(1, ShareLimits(delivery_count=5), batch=1)
    for count in range(1, 6):
        assert kept.fetch(ALICE) == [AcquiredRun(0, 0, count)]
        kept.tell(ALICE, 0, 0, RELEASE)
    assert kept.fetch(ALICE) == [] and kept.share.start_offset == 1


def test_from_half_of_the_limit_on_a_batch_is_delivered_in_parts_and_at_last_record_by_record() -> None:
    kept = Kept(8, ShareLimits(delivery_count=5), batch=8)
    for _ in range(3):
        kept.fetch(ALICE)
        kept.share.release(ALICE)
    parts = [kept.fetch(ALICE) for _ in range(2)]
    assert parts == [[AcquiredRun(0, 3, 4)], [AcquiredRun(4, 7, 4)]]
    kept.share.release(ALICE)
    assert [kept.fetch(ALICE) for _ in range(3)] == [
        [AcquiredRun(0, 0, 5)],
        [AcquiredRun(1, 1, 5)],
        [AcquiredRun(2, 2, 5)],
    ]


# -- after a crash, and with a log that changes


def test_after_a_crash_acquired_records_are_available_with_their_stored_count() -> None:
    kept = Kept()
    kept.fetch(ALICE, 30)
    kept.tell(ALICE, 10, 19, RELEASE)
    kept.tell(ALICE, 20, 24, ACCEPT)
    kept.fetch(BOB, 10)
    kept.start()
    assert kept.states() == [
        (0, 9, "AVAILABLE", 0),
        (10, 19, "AVAILABLE", 1),
        (20, 24, "ACKNOWLEDGED", 1),
    ]
    assert kept.fetch(BOB, 20) == [AcquiredRun(0, 9, 1), AcquiredRun(10, 19, 2)]
    assert kept.fetch(BOB, 5) == [AcquiredRun(25, 29, 1)]


def test_records_that_are_gone_from_the_log_are_done() -> None:
    kept = Kept()
    kept.fetch(ALICE, 30)
    kept.share.trim(15)
    assert kept.share.start_offset == 15
    kept.tell(ALICE, 0, 19, ACCEPT)
    assert kept.share.start_offset == 20
    kept.share.trim(50)
    assert kept.share.start_offset == kept.share.fetch_offset == 50 and kept.fetch(BOB, 5) == [AcquiredRun(50, 59, 1)]


@pytest.mark.parametrize(
    ("old", "new", "start", "expected"),
    [
        ([], [(0, 9, 2, 1)], 0, [(0, 9, 2, 1)]),
        ([(0, 9, 0, 1)], [(3, 5, 2, 1)], 0, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 0, 2)], [(5, 14, 0, 1)], 0, [(0, 4, 0, 2), (5, 14, 0, 1)]),
        ([(0, 4, 2, 1)], [(5, 9, 2, 1)], 0, [(0, 9, 2, 1)]),
        ([(0, 9, 0, 1)], [(10, 19, 4, 1)], 5, [(5, 9, 0, 1), (10, 19, 4, 1)]),
        ([(0, 9, 0, 1), (20, 29, 0, 1)], [(8, 21, 2, 1)], 0, [(0, 7, 0, 1), (8, 21, 2, 1), (22, 29, 0, 1)]),
        ([(0, 9, 0, 1)], [], 10, []),
    ],
)
def test_what_is_stored_later_counts(
    old: list[tuple[int, ...]], new: list[tuple[int, ...]], start: int, expected: list[tuple[int, ...]]
) -> None:
    stored = merged([StoredBatch(*each) for each in old], [StoredBatch(*each) for each in new], start)
    assert [tuple(each) for each in stored] == expected


def _in_order(pieces: list[tuple[int, int, int, int]]) -> list[StoredBatch]:
    """Batches with gaps and lengths, as they are stored: in order, without overlaps."""
    found, at = [], 0
    for gap, size, state, deliveries in pieces:
        found.append(StoredBatch(at + gap, at + gap + size - 1, state, deliveries))
        at += gap + size
    return found


PIECES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from((0, 2, 4)), st.integers(1, 2)), max_size=8
)


@given(old=PIECES, new=PIECES, start=st.integers(0, 30))
def test_merged_batches_are_those_of_single_offsets(old: list[Any], new: list[Any], start: int) -> None:
    def by_offset(batches: Iterable[StoredBatch]) -> dict[int, tuple[int, int]]:
        return {
            offset: (each.state, each.deliveries)
            for each in batches
            for offset in range(each.first, each.last + 1)
            if offset >= start
        }

    before = merged((), _in_order(old), 0)
    after = merged(before, _in_order(new), start)
    assert by_offset(after) == by_offset(before) | by_offset(_in_order(new))
    assert all(each.first >= start for each in after)
    pairs = list(itertools.pairwise(after))
    assert all(one.last < two.first for one, two in pairs)
    assert not any(one.last + 1 == two.first and one[2:] == two[2:] for one, two in pairs), "neighbours are joined"


OVERLAPPING = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 8), st.sampled_from((0, 2, 4)), st.integers(1, 2)), max_size=8
)


@given(old=PIECES, new=OVERLAPPING, start=st.integers(0, 30))
def test_of_batches_that_overlap_within_a_record_the_later_one_counts(
    old: list[Any], new: list[Any], start: int
) -> None:
    later = [StoredBatch(first, first + size - 1, *rest) for first, size, *rest in new]
    before = merged((), _in_order(old), 0)
    one_by_one = merged(before, (), start)
    for each in later:
        one_by_one = merged(one_by_one, [each], start)
    assert merged(before, later, start) == one_by_one


MEMBERS = st.sampled_from(["a", "b", "c"])


class Sharing(RuleBasedStateMachine):
    """Members share a partition, acknowledge, dawdle and crash; a model of single records checks each answer."""

    LIMIT = 4

    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept(60, ShareLimits(delivery_count=self.LIMIT, record_locks=35), batch=6)
        self.holder: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.stored: dict[int, int] = {}
        """The delivery counts that survive a crash."""
        self.done: set[int] = set()

    def give_back(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            del self.holder[offset]
            self.stored[offset] = self.counts[offset]
            if self.counts[offset] >= self.LIMIT:
                self.done.add(offset)

    @rule(member=MEMBERS, most=st.integers(1, 20), size=st.integers(1, 20), strict=st.booleans())
    def fetch(self, member: str, most: int, size: int, strict: bool) -> None:
        acquired = self.kept.fetch(member, most, size, strict=strict)
        offsets = [offset for each in acquired for offset in range(each.first, each.last + 1)]
        assert len(offsets) == len(set(offsets))
        assert not strict or len(offsets) <= most
        for each in acquired:
            for offset in range(each.first, each.last + 1):
                assert offset not in self.holder, "another member has it"
                assert offset not in self.done, "it is done"
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert self.counts[offset] == each.deliveries <= self.LIMIT
                self.holder[offset] = member

    @precondition(lambda self: self.holder)
    @rule(data=st.data(), kind=st.sampled_from([ACCEPT, RELEASE, REJECT]), full=st.booleans())
    def acknowledge(self, data: st.DataObject, kind: int, full: bool) -> None:
        first = data.draw(st.sampled_from(sorted(self.holder)))
        last = data.draw(st.integers(first, first + 8))
        member = data.draw(MEMBERS)
        held = [offset for offset in range(first, last + 1) if self.holder.get(offset) == member]
        self.kept.full = full
        try:
            self.kept.tell(member, first, last, kind)
        except (InvalidRecordState, InvalidRequest):
            assert len(held) < last - first + 1
            return
        except CoordinatorNotAvailable:
            assert full
            return
        finally:
            self.kept.full = False
        if kind == RELEASE:
            self.give_back(held)
            return
        for offset in held:
            del self.holder[offset]
            self.done.add(offset)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.kept.share.release(member)
        self.give_back([offset for offset, holder in self.holder.items() if holder == member])

    @rule()
    def expire(self) -> None:
        self.kept.now += 100.0
        self.kept.share.expire(self.kept.now)
        self.give_back(list(self.holder))

    @rule()
    def crash(self) -> None:
        self.kept.start()
        self.holder.clear()
        self.counts = dict(self.stored)

    @invariant()
    def the_start_is_before_everything_that_is_not_done(self) -> None:
        share = self.kept.share
        assert all(offset in self.done for offset in range(share.start_offset))
        held = {offset: run.member for run in share.runs() for offset in range(run.first, run.last + 1) if run.member}
        assert held == self.holder
        assert share.in_flight <= 35 + 6

    def teardown(self) -> None:
        """Everything is delivered in the end, or was."""
        rng = random.Random(0)
        for _ in range(1000):
            if len(self.done) == 60:
                break
            self.fetch("z", rng.randint(1, 20), 10, False)
            held = list(self.holder)
            self.kept.now += 100.0
            self.kept.share.expire(self.kept.now)
            self.give_back(held)
        assert len(self.done) == 60 and self.kept.share.start_offset == 60


TestSharing = Sharing.TestCase
