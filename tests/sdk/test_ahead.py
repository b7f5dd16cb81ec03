"""Batches that a thread takes before its next call: the same batches in the same order, and all others know of them."""

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ottla.sync
from ottla.codec.records import parse_batch
from ottla.errors import LocalProtocolError
from ottla.sdk.consume.ahead import Ahead
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Offset, Position
from ottla.sdk.consume.partitions.record_sets import READ_UNCOMMITTED
from ottla.sdk.options import Options
from ottla.testing import Broker
from tests.patience import HUNG
from tests.sdk.test_bounded_batches import batch


@given(
    st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)) | st.none(),
    st.sampled_from([None, 1, 3]),
    st.integers(1, 12),
    st.integers(0, 3) | st.none(),
)
def test_what_is_ahead_is_what_is_taken_next(
    sizes: list[list[int]], only: set[int] | None, most: int | None, count: int, damaged: int | None
) -> None:
    buffers = FetchBuffers(Options(), READ_UNCOMMITTED)
    for number, counts in enumerate(sizes):
        position = Position(("t", number), Offset(0))
        position.go(0)
        for each in counts:
            came = batch(position.fetch_offset, each)
            if number == damaged and each == 4:
                came = parse_batch(bytes(came.data[:-1]) + b"\xff")
            buffers.add(position, [came], [came], 100)
    places = None if only is None else {("t", each) for each in only}
    ahead = buffers.ahead(places, most, count)
    assert len(ahead) <= count
    for expected in ahead:
        position = buffers.next(places)  # type: ignore[assignment]
        assert buffers.take(position, most) == (expected, None)
    if len(ahead) < count and (left := buffers.next(places)) is not None:
        assert left.check(READ_UNCOMMITTED) is not None, "only damage ends the batches ahead early"


@pytest.mark.slow
def test_what_is_offered_is_taken_or_taken_back_but_never_both() -> None:
    """The two threads may interleave in any way."""
    task, settled, taken, offered = object(), list[Any](), list[Any](), 0
    ahead: Ahead[Any] = Ahead(lambda fetched, claim: fetched, bytearray(2))
    over = threading.Event()

    def take() -> None:
        while not over.is_set():
            if (each := ahead.take(task, 0.0)) is not None:
                taken.append(each)

    thread = threading.Thread(target=take)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while offered < 500:
            ahead.offer(task, [(Fetched("t", 0, each, [], 0, 0, 0), None) for each in range(offered, offered + 8)])
            settled += ahead.settle()
            offered = len(settled)
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert [each.first_offset for each in settled] == list(range(offered))
    assert taken == settled


@pytest.fixture
def consumer(ottla_broker: Broker) -> Iterator[ottla.sync.Consumer]:
    """A consumer of three partitions with a hundred records each, in batches of five."""
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic("t", partitions=3)
        with client.producer() as producer:
            for number in range(100):
                for partition in range(3):
                    producer.send_soon("t", b"%d" % number, partition=partition)
        with client.consumer("t", group="g", max_records=5) as consumer:
            yield consumer


def test_positions_and_commits_are_those_of_what_was_taken(consumer: ottla.sync.Consumer) -> None:
    taken = dict.fromkeys(range(3), 0)
    ahead = 0
    for count, each in enumerate(consumer, 1):
        assert each.records[0].offset == taken[each.partition]
        taken[each.partition] = each.next_offset
        ahead += bool(consumer._core.ahead and consumer._core.ahead._left)
        if count % 7 == 0:
            assert {number: consumer.position("t", number) for number in range(3)} == taken
            assert consumer.lag == {("t", number): 100 - taken[number] for number in range(3)}
        if count % 10 == 0:
            consumer.commit()
            found = consumer.committed()
            assert {number: at.offset if (at := found["t", number]) else 0 for number in range(3)} == taken
        if set(taken.values()) == {100}:
            break
    assert ahead > 20


def test_what_is_paused_or_sought_in_counts_from_the_next_batch_on(consumer: ottla.sync.Consumer) -> None:
    seen: list[tuple[int, int]] = []
    for each in consumer:
        seen.append((each.partition, each.records[0].offset))
        if len(seen) == 10:
            consumer.pause([("t", 1)])
            consumer.seek({("t", 2): 0})
        if len(seen) == 20:
            consumer.resume([("t", 1)])
        if {1, 2} <= {partition for partition, _ in seen[20:]}:
            break
    assert 1 not in {partition for partition, _ in seen[10:20]}
    assert next(offset for partition, offset in seen[10:] if partition == 2) == 0


def test_only_the_thread_that_has_the_batch_in_hand_takes_more(consumer: ottla.sync.Consumer) -> None:
    next(consumer)
    refused: list[Exception] = []

    def other() -> None:
        try:
            next(consumer)
        except LocalProtocolError as error:
            refused.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(HUNG)
    assert "has a batch of this consumer in hand" in str(refused)
    assert next(consumer).next_offset


def test_a_finalizer_that_comes_in_while_batches_are_offered_is_refused(
    consumer: ottla.sync.Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """The garbage collector may run at any allocation, also in the client's thread."""
    ahead = consumer._core.ahead
    assert ahead is not None
    make, refused = ahead._make, list[str]()

    def finalized(*taken: Any) -> Any:
        try:
            consumer.position("t", 0)
        except LocalProtocolError as error:
            refused.append(str(error))
        return make(*taken)

    ahead._make = finalized
    taken = dict.fromkeys(range(3), 0)
    while set(taken.values()) != {100}:
        batch = next(consumer)
        assert batch.records[0].offset == taken[batch.partition]
        taken[batch.partition] = batch.next_offset
    assert refused and all("the client is busy" in each for each in refused)


def test_batches_of_a_transform_are_taken_from_the_transform_only(ottla_broker: Broker) -> None:
    """A batch that the consumer hands out would be committed, and never transformed."""
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic("t", partitions=1)
        with client.producer() as producer:
            producer.send_many("t", [b"%d" % each for each in range(50)])
        with client.transform("t", group="g", transactional_id="x", max_records=10) as transform:
            batches = next(transform)
            with transform.transaction(batches):
                pass
            time.sleep(0.1)  # the client is idle, and more batches are fetched
            for _ in range(3):
                with pytest.raises(LocalProtocolError, match="a transform reads this consumer"):
                    transform.consumer.poll(0.0)
            assert next(transform).batches[0].records[0].value == b"10"
