"""The five most recent batches of a producer, driven directly."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.brokerlite.machines.partitions.producers import EXPIRATION, LAST_SEQUENCE, REMEMBERED_BATCHES, Producers
from ottla.codec.records import RecordBatch, parse_batch, rebased
from ottla.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from tests.brokerlite.machine import a_batch, idempotent


def stored(producers: Producers, batch: bytes, offset: int) -> RecordBatch:
    parsed = parse_batch(batch)
    producers.check(parsed)
    placed = parse_batch(rebased(batch, offset, 0))
    producers.record(placed)
    return placed


def test_a_retry_of_each_of_the_last_five_batches_is_found_with_its_first_offset() -> None:
    producers = Producers()
    for i in range(8):
        stored(producers, idempotent(3 * i, 3), 100 + 3 * i)
    for i in range(8):
        found = producers.duplicate(parse_batch(idempotent(3 * i, 3)))
        if i < 8 - REMEMBERED_BATCHES:
            assert found is None
        else:
            assert found is not None and found.first_offset == 100 + 3 * i


def test_a_batch_that_only_overlaps_a_stored_one_is_no_duplicate_but_out_of_order() -> None:
    producers = Producers()
    stored(producers, idempotent(0, 4), 0)
    for sequence, count in ((0, 3), (0, 5), (1, 3), (3, 1)):
        batch = parse_batch(idempotent(sequence, count))
        assert producers.duplicate(batch) is None
        with pytest.raises(OutOfOrderSequenceNumber):
            producers.check(batch)


def test_a_gap_is_out_of_order_and_the_message_says_what_comes_next() -> None:
    producers = Producers()
    stored(producers, idempotent(0, 2), 0)
    with pytest.raises(OutOfOrderSequenceNumber, match="sent sequence 5 of epoch 0; expected 2"):
        producers.check(parse_batch(idempotent(5)))


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    producers = Producers()
    stored(producers, idempotent(LAST_SEQUENCE - 1, 2), 0)
    stored(producers, idempotent(0, 2), 2)
    assert producers.duplicate(parse_batch(idempotent(LAST_SEQUENCE - 1, 2))) is not None


def test_a_batch_may_lie_across_the_wrap() -> None:
    producers = Producers()
    placed = stored(producers, idempotent(LAST_SEQUENCE, 3), 0)
    assert placed.last_sequence == 1
    found = producers.duplicate(parse_batch(idempotent(LAST_SEQUENCE, 3)))
    assert found is not None and found.first_sequence == LAST_SEQUENCE
    stored(producers, idempotent(2), 3)


def test_an_older_epoch_is_fenced() -> None:
    producers = Producers()
    stored(producers, idempotent(0, epoch=3), 0)
    with pytest.raises(InvalidProducerEpoch):
        producers.check(parse_batch(idempotent(1, epoch=2)))


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches() -> None:
    producers = Producers()
    stored(producers, idempotent(0, 5), 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(parse_batch(idempotent(5, epoch=1)))
    stored(producers, idempotent(0, 5, epoch=1), 5)
    assert producers.duplicate(parse_batch(idempotent(0, 5))) is None
    again = producers.duplicate(parse_batch(idempotent(0, 5, epoch=1)))
    assert again is not None and again.first_offset == 5


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    producers = Producers()
    stored(producers, idempotent(4711, epoch=9), 0)
    stored(producers, idempotent(4712, epoch=9), 1)


def test_producers_do_not_see_each_other() -> None:
    producers = Producers()
    stored(producers, idempotent(0, producer_id=1), 0)
    stored(producers, idempotent(50, producer_id=2), 1)
    stored(producers, idempotent(1, producer_id=1), 2)


def test_sequences_go_on_behind_a_marker_of_the_same_epoch_and_begin_again_behind_a_higher_one() -> None:
    for epoch, expected in ((0, 2), (1, 0)):
        producers = Producers()
        stored(producers, idempotent(0, 2), 0)
        marker = a_batch(producer_id=7, producer_epoch=epoch, base_sequence=-1, control=True, transactional=True)
        producers.replay([parse_batch(rebased(marker, 2, 0))])
        assert (producers.duplicate(parse_batch(idempotent(0, 2))) is None) == (epoch > 0)
        stored(producers, idempotent(expected, epoch=epoch), 3)


def test_a_producer_that_was_not_seen_for_a_day_is_forgotten_whatever_its_timestamps_say() -> None:
    producers = Producers()
    producers.record(parse_batch(a_batch(producer_id=1, producer_epoch=0, base_sequence=0, timestamp=5)), 100.0)
    producers.expire(99.0 + EXPIRATION)
    assert 1 in producers.entries
    producers.expire(100.0 + EXPIRATION)
    assert not producers.entries


def test_a_crowd_of_producers_that_came_once_does_not_stay_for_ever() -> None:
    producers = Producers()
    for i in range(5000):
        batch = a_batch(producer_id=i, producer_epoch=0, base_sequence=0)
        producers.record(parse_batch(batch), i * EXPIRATION / 100)
    assert len(producers.entries) <= 1000


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_whatever_is_lost_and_repeated_each_batch_is_stored_once_and_in_order(seed: int, count: int) -> None:
    """A client with five batches in flight over a connection that loses answers, against a plain list."""
    rng = random.Random(seed)
    producers, log, sequence = Producers(), list[int](), LAST_SEQUENCE - 20
    flight: list[tuple[int, int]] = []
    sent = 0
    while sent < count or flight:
        while sent < count and len(flight) < REMEMBERED_BATCHES and rng.random() < 0.7:
            size = rng.randint(1, 4)
            flight.append((sequence, size))
            sequence = (sequence + size) & LAST_SEQUENCE
            sent += 1
        arrived = rng.randint(0, len(flight))  # the connection breaks here; the client sends all of it again
        for first, size in flight[:arrived]:
            batch = parse_batch(idempotent(first, size))
            if producers.duplicate(batch) is None:
                producers.check(batch)
                producers.record(parse_batch(rebased(batch.data, len(log), 0)))
                log += [(first + i) & LAST_SEQUENCE for i in range(size)]
        del flight[: rng.randint(0, arrived)]  # these were acknowledged
    first = LAST_SEQUENCE - 20
    assert log == [(first + i) & LAST_SEQUENCE for i in range(len(log))]
    assert not log or (log[-1] + 1) & LAST_SEQUENCE == sequence
