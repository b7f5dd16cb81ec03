"""The state of idempotent clients, driven directly."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from ottla.errors import InvalidProducerEpoch, MessageTooLarge, OutOfOrderSequenceNumber, ProducerFenced
from ottla.proxy.clients import producers
from ottla.proxy.clients.producers import ClientProducers
from ottla.proxy.clients.refused_records import Fingerprint
from ottla.proxy.clients.windows import GAP, AnsweredBatch, ClientResult, Numbered, Window
from ottla.proxy.routing import Destination
from ottla.proxy.upstream.batches import PartResult

TOO_LARGE = PartResult(MessageTooLarge.code)
UNKNOWN = PartResult(-1, unknown=True)


@dataclass(eq=False)
class Batch(Numbered):
    """A batch whose records are numbers; the records in ``stored`` are stored, even if the batch is refused."""

    records: list[int] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)

    def fingerprints(self) -> Iterable[tuple[Fingerprint, bool]]:
        return zip(fingerprints(self.records), [each in self.stored for each in self.records], strict=True)


def fingerprints(records: list[int]) -> list[Fingerprint]:
    """Those of records that have their own times and sequences."""
    return [Fingerprint(each, -1 - each) for each in records]


@pytest.fixture
def window() -> Window[Batch]:
    return Window()


def begin(window: Window[Batch], sequence: int, count: int = 1, epoch: int = 0) -> Batch:
    """Begin a batch whose records are its sequences."""
    assert window.look_up(epoch, sequence, count) is None
    batch = Batch(epoch, sequence, count, open_parts=1, records=list(range(sequence, sequence + count)))
    window.begin(batch)
    if window.due() is batch:
        batch.begun = True
    return batch


def settle(window: Window[Batch], batch: Batch, failure: PartResult | None = None) -> None:
    batch.open_parts = 0
    if failure:
        window.failed(batch, failure)


def told(window: Window[Batch]) -> list[tuple[int, ClientResult]]:
    """First sequence and outcome of all that are over."""
    outcomes = []
    while batch := window.pop_settled():
        outcomes.append((batch.base_sequence, window.judged(batch)))
    return outcomes


def store(window: Window[Batch], sequence: int, count: int = 1, epoch: int = 0, offset: int = 7) -> None:
    batch = begin(window, sequence, count, epoch)
    batch.offset = offset
    settle(window, batch)
    assert told(window) == [(sequence, ClientResult(0, offset))]


def outcome(window: Window[Batch], sequence: int, count: int = 1) -> ClientResult:
    """The outcome of an answered batch of epoch 0."""
    answered = window.look_up(0, sequence, count)
    assert isinstance(answered, AnsweredBatch)
    return answered.outcome


def test_a_retry_of_a_batch_under_way_finds_it(window: Window[Batch]) -> None:
    batch = begin(window, 0, 3)
    assert window.look_up(0, 0, 3) is batch


def test_a_retry_of_a_stored_batch_gets_the_same_answer(window: Window[Batch]) -> None:
    store(window, 0, 3)
    assert outcome(window, 0, 3) == ClientResult(0, 7)


def test_the_last_five_batches_are_remembered(window: Window[Batch]) -> None:
    for sequence in range(6):
        store(window, sequence, offset=sequence)
    assert [outcome(window, sequence) for sequence in range(1, 6)] == [ClientResult(0, n) for n in range(1, 6)]
    with pytest.raises(OutOfOrderSequenceNumber):
        window.look_up(0, 0, 1)


def test_a_gap_is_refused(window: Window[Batch]) -> None:
    begin(window, 0, 3)
    with pytest.raises(OutOfOrderSequenceNumber, match="got sequence 4, expected 3"):
        window.look_up(0, 4, 1)


def test_the_first_batch_begins_at_zero(window: Window[Batch]) -> None:
    with pytest.raises(OutOfOrderSequenceNumber):
        window.look_up(0, 5, 1)


def test_sequences_wrap_to_zero(window: Window[Batch]) -> None:
    window.begin(Batch(0, 0, 2**31 - 2))
    window.begin(Batch(0, 2**31 - 2, 5))
    begin(window, 3)


def test_batches_go_at_once_and_are_told_of_in_their_order(window: Window[Batch]) -> None:
    first, second = begin(window, 0), begin(window, 1)
    assert first.begun and second.begun
    settle(window, second)
    assert told(window) == []
    settle(window, first)
    assert [sequence for sequence, _ in told(window)] == [0, 1]


def test_an_older_epoch_is_refused(window: Window[Batch]) -> None:
    begin(window, 0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        window.look_up(2, 1, 1)


def test_a_new_epoch_begins_at_zero_and_forgets_the_old(window: Window[Batch]) -> None:
    store(window, 0)
    with pytest.raises(OutOfOrderSequenceNumber, match="epoch 1 starts at sequence 1"):
        window.look_up(1, 1, 1)
    begin(window, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        window.look_up(0, 0, 1)


def test_a_new_epoch_waits_for_what_the_old_one_has_under_way(window: Window[Batch]) -> None:
    old, new = begin(window, 0), begin(window, 0, epoch=1)
    assert old.begun and not new.begun
    settle(window, old)
    told(window)
    assert window.due() is new


def test_a_refused_batch_takes_its_followers_with_it_and_is_next_again(window: Window[Batch]) -> None:
    first, second, third = begin(window, 0, 2), begin(window, 2), begin(window, 3)
    settle(window, second)
    settle(window, first, TOO_LARGE)
    with pytest.raises(OutOfOrderSequenceNumber, match="a batch before it failed"):
        window.look_up(0, 4, 1)
    assert told(window) == [(0, ClientResult(MessageTooLarge.code)), (2, GAP)]
    again = begin(window, 0, 2)
    assert not again.begun, "before the third of the old ones is settled"
    settle(window, third)
    assert told(window) == [(3, GAP)]
    assert window.due() is again


def test_a_follower_that_fails_too_is_a_gap_all_the_same(window: Window[Batch]) -> None:
    first, second = begin(window, 0), begin(window, 1)
    settle(window, first, TOO_LARGE)
    settle(window, second)
    assert [outcome for _, outcome in told(window)] == [ClientResult(MessageTooLarge.code), GAP]
    assert window.look_up(0, 0, 1) is None


def refuse(window: Window[Batch], sequence: int, count: int, stored: set[int]) -> None:
    batch = begin(window, sequence, count)
    batch.stored = stored
    settle(window, batch, TOO_LARGE)
    told(window)


def test_records_stored_of_a_refused_batch_are_known_in_whatever_batch_they_come_again(window: Window[Batch]) -> None:
    refuse(window, 0, 4, {1, 2})
    assert window.remembers
    assert window.stored_already(fingerprints([0, 1])) == {1}
    assert window.stored_already(fingerprints([2, 3])) == {0}
    assert not window.remembers
    assert window.stored_already(fingerprints([0, 1, 2, 3])) == set()


def test_records_stored_of_a_refused_batch_are_known_by_their_sequences_if_their_times_are_new(
    window: Window[Batch],
) -> None:
    refuse(window, 0, 4, {1, 2})
    restored: Window[Batch] = Window(refused=window.refused_records())
    for each in (window, restored):
        assert each.stored_already([Fingerprint(100 + n, -1 - n) for n in range(4)]) == {1, 2}
        assert not each.remembers


def test_each_is_taken_for_one_only(window: Window[Batch]) -> None:
    refuse(window, 0, 4, {1})
    assert window.stored_already(fingerprints([1, 1, 0])) == {0}


def test_the_followers_of_a_refused_batch_are_known_by_their_records_too(window: Window[Batch]) -> None:
    first, second, third = begin(window, 0), begin(window, 1, 2), begin(window, 3)
    second.stored = {2}
    settle(window, third)
    settle(window, second)
    settle(window, first, TOO_LARGE)
    told(window)
    begin(window, 0, 2)
    assert window.stored_already(fingerprints([0, 9])) == set(), "the first one again: known, but not stored"
    assert window.stored_already(fingerprints([1, 2])) == {1}


def test_a_batch_of_other_records_ends_the_memory_of_those_that_were_refused(window: Window[Batch]) -> None:
    refuse(window, 0, 4, {1, 2})
    assert window.stored_already(fingerprints([20, 22])) == set()
    assert window.stored_already(fingerprints([0, 1, 2])) == set()


def test_where_nothing_is_stored_nothing_is_remembered(window: Window[Batch]) -> None:
    refuse(window, 0, 4, set())
    assert not window.remembers
    assert window._refused is None


def test_a_batch_of_unknown_outcome_fences_its_epoch(window: Window[Batch]) -> None:
    settle(window, begin(window, 0), UNKNOWN)
    assert [outcome.error_code for _, outcome in told(window)] == [ProducerFenced.code]
    with pytest.raises(ProducerFenced, match="outcome of an earlier batch"):
        window.look_up(0, 0, 1)
    begin(window, 0, epoch=1)


def test_a_producer_id_that_was_not_allocated_is_fenced() -> None:
    known: ClientProducers[Numbered] = ClientProducers()
    with pytest.raises(ProducerFenced, match="open a new producer"):
        known.known(7)
    known.allocated(7, 0, "a")
    window = known.known(7).window(Destination("t", 0))
    assert known.known(7).window(Destination("t", 0)) is window
    assert known.known(7).window(Destination("t", 1)) is not window


def allocate(known: ClientProducers[Numbered], host: str, ids: Iterable[int], *, writes: bool = False) -> list[int]:
    """Have ids allocated to a host; returns the producers that are forgotten."""
    forgotten = []
    for producer_id in ids:
        known.allocated(producer_id, 0, host, writes=writes)
        if (one := known.forget_one()) is not None:
            assert one.producer_id is not None
            forgotten.append(one.producer_id)
    return forgotten


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> ClientProducers[Numbered]:
    monkeypatch.setattr(producers, "REMEMBERED_PRODUCERS", 100)
    return ClientProducers()


@pytest.mark.parametrize("writes", [False, True])
def test_the_longest_unused_producers_are_forgotten(known: ClientProducers[Numbered], writes: bool) -> None:
    assert allocate(known, "a", range(100), writes=writes) == []
    known.known(0)
    assert allocate(known, "a", [100], writes=writes) == [1]
    known.known(0)
    with pytest.raises(ProducerFenced):
        known.known(1)


def test_ids_that_write_nothing_cost_no_producer_that_writes_its_place(known: ClientProducers[Numbered]) -> None:
    allocate(known, "a", [7])
    assert known.wrote(known.known(7), "a")
    assert allocate(known, "a", range(1000, 1200)) == [*range(1000, 1100)]
    assert not known.wrote(known.known(7), "a")


def test_a_host_with_many_producers_costs_no_other_host_its_place(known: ClientProducers[Numbered]) -> None:
    for writes in (False, True):
        offset = 10_000 * writes
        allocate(known, "a", range(offset, offset + 5), writes=writes)
        many = range(offset + 1000, offset + 1300)
        assert allocate(known, "b", many, writes=writes) == [*many[:205]]


def test_a_producer_counts_for_the_host_that_writes_with_it(known: ClientProducers[Numbered]) -> None:
    allocate(known, "a", range(60), writes=True)
    for n in range(20, 60):
        assert known.wrote(known.known(n), "b")
    assert allocate(known, "c", range(100, 141), writes=True) == [100]
    forgotten = allocate(known, "a", range(200, 222), writes=True)
    own = [each for each in forgotten if each < 20]
    assert own == [*range(len(own))] and own, "once it has most"
