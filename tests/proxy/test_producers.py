"""The memory for idempotent clients, driven directly."""

import pytest

from ottla.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber, ProducerFenced
from ottla.proxy.producers import REMEMBERED_PRODUCERS, Numbered, Outcome, Producers, Window

STORED = Outcome(0, 7)


@pytest.fixture
def window() -> Window[Numbered]:
    return Window()


def begin(window: Window[Numbered], sequence: int, count: int = 1, epoch: int = 0) -> Numbered:
    assert window.look_up(epoch, sequence, count) is None
    batch = Numbered(epoch, sequence, count)
    window.begin(batch)
    return batch


def test_a_retry_of_a_batch_under_way_finds_it(window: Window[Numbered]) -> None:
    batch = begin(window, 0, 3)
    assert window.look_up(0, 0, 3) is batch


def test_a_retry_of_a_stored_batch_gets_the_same_answer(window: Window[Numbered]) -> None:
    begin(window, 0, 3)
    window.succeed(STORED)
    assert window.look_up(0, 0, 3) is STORED


def test_the_last_five_batches_are_remembered(window: Window[Numbered]) -> None:
    for sequence in range(6):
        begin(window, sequence)
        window.succeed(Outcome(0, sequence))
    assert [window.look_up(0, sequence, 1) for sequence in range(1, 6)] == [Outcome(0, n) for n in range(1, 6)]
    with pytest.raises(OutOfOrderSequenceNumber):
        window.look_up(0, 0, 1)


def test_a_gap_is_refused(window: Window[Numbered]) -> None:
    begin(window, 0, 3)
    with pytest.raises(OutOfOrderSequenceNumber, match="sequence 4 comes where 3 is next"):
        window.look_up(0, 4, 1)


def test_the_first_batch_begins_at_zero(window: Window[Numbered]) -> None:
    with pytest.raises(OutOfOrderSequenceNumber):
        window.look_up(0, 5, 1)


def test_sequences_wrap_to_zero(window: Window[Numbered]) -> None:
    begin(window, 0, 2**31 - 2)
    window.succeed(STORED)
    begin(window, 2**31 - 2, 5)
    window.succeed(STORED)
    begin(window, 3)


def test_only_the_oldest_batch_is_delivered_at_once(window: Window[Numbered]) -> None:
    assert window.begin(Numbered(0, 0, 1))
    assert not window.begin(Numbered(0, 1, 1))
    window.succeed(STORED)
    assert [batch.base_sequence for batch in window.under_way] == [1]


def test_an_older_epoch_is_refused(window: Window[Numbered]) -> None:
    begin(window, 0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        window.look_up(2, 1, 1)


def test_a_new_epoch_begins_at_zero_and_forgets_the_old(window: Window[Numbered]) -> None:
    begin(window, 0)
    window.succeed(STORED)
    with pytest.raises(OutOfOrderSequenceNumber, match="epoch 1 begins with sequence 1"):
        window.look_up(1, 1, 1)
    begin(window, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        window.look_up(0, 0, 1)


def test_a_new_epoch_waits_for_what_the_old_one_has_under_way(window: Window[Numbered]) -> None:
    window.begin(Numbered(0, 0, 1))
    assert not window.begin(Numbered(1, 0, 1))
    assert window.fail({}, fence=False) == []
    assert [batch.epoch for batch in window.under_way] == [1]
    window.succeed(STORED)
    assert window.look_up(1, 0, 1) is STORED


def test_a_refused_batch_takes_its_followers_with_it_and_is_next_again(window: Window[Numbered]) -> None:
    begin(window, 0, 2)
    second, third = begin(window, 2), begin(window, 3)
    assert window.fail({}, fence=False) == [second, third]
    with pytest.raises(OutOfOrderSequenceNumber):
        window.look_up(0, 2, 1)
    begin(window, 0, 2)


def test_records_stored_of_a_refused_batch_are_known_to_any_retry(window: Window[Numbered]) -> None:
    begin(window, 0, 4)
    window.fail({1: 11, 2: 12}, fence=False)
    assert window.stored_already(0, [10, 11]) == {1}
    begin(window, 0, 2)
    window.succeed(STORED)
    assert window.stored_already(2, [12, 13]) == {0}
    begin(window, 2, 2)
    window.succeed(STORED)
    assert window.stored_already(0, [10, 11, 12, 13]) == set()


def test_other_records_under_the_numbers_of_a_refused_batch_are_no_retry(window: Window[Numbered]) -> None:
    begin(window, 0, 4)
    window.fail({1: 11, 2: 12}, fence=False)
    assert window.stored_already(0, [20, 11, 22]) == set()
    assert window.stored_already(0, [10, 11, 12]) == set()


def test_a_batch_of_unknown_outcome_fences_its_epoch(window: Window[Numbered]) -> None:
    begin(window, 0)
    window.fail({}, fence=True)
    with pytest.raises(ProducerFenced, match="nobody can know"):
        window.look_up(0, 0, 1)
    begin(window, 0, epoch=1)


def test_a_producer_id_that_was_not_handed_on_is_fenced() -> None:
    producers: Producers[Numbered] = Producers()
    with pytest.raises(ProducerFenced, match="open a new producer"):
        producers.window(7, "t", 0)
    producers.handed_on(7)
    window = producers.window(7, "t", 0)
    assert producers.window(7, "t", 0) is window
    assert producers.window(7, "t", 1) is not window


def test_the_longest_unused_producers_are_forgotten() -> None:
    producers: Producers[Numbered] = Producers()
    for producer_id in range(REMEMBERED_PRODUCERS):
        producers.handed_on(producer_id)
    producers.window(0, "t", 0)
    producers.handed_on(REMEMBERED_PRODUCERS)
    producers.window(0, "t", 0)
    with pytest.raises(ProducerFenced):
        producers.window(1, "t", 0)
