"""Reading: each record once, in order, from the offset where the caller began."""

import functools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.codec.apis.list_offsets import EARLIEST, LATEST, ListOffsetsRequest, ListOffsetsResponse
from ottla.codec.records import parse_batch
from ottla.errors import DecodeError, UnknownTopicOrPartition
from ottla.sdk.calls import offsets
from ottla.sdk.consume.reading.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Fetcher, Offset, Start, Time
from ottla.sdk.options import Options
from tests.examples import examples
from tests.sim.world import ModelBroker, World


def fill(world: World, place: tuple[str, int], count: int, first: int = 0) -> None:
    """Append batches of one record and of three in turn."""
    log, value = world.broker.logs[place], first
    while value < first + count:
        size = min(1 + 2 * (value % 2), first + count - value)
        log.append(*(b"%d" % (value + i) for i in range(size)), timestamp=1000)
        value += size


def read(world: World, fetcher: Fetcher, count: int, limit: float = 60) -> dict[tuple[str, int], list[int]]:
    """The first ``count`` records, by partition."""
    got: dict[tuple[str, int], list[int]] = {}
    end = world.now + limit
    while sum(map(len, got.values())) < count:
        fetched = fetcher.take()
        if fetched is None:
            assert world.now < end
            world.run(fetcher.wait(), limit)
            continue
        records = [r for batch in fetched.batches for r in batch.records() if r.offset >= fetched.first_offset]
        got.setdefault((fetched.topic, fetched.partition), []).extend(int(r.value or b"") for r in records)
    return got


def reader(world: World, starts: dict[tuple[str, int], Start], reset: Time | None = None) -> Fetcher:
    for topic in {topic for topic, _ in starts}:
        world.call(functools.partial(world.core.metadata.topic, topic))
    fetcher = Fetcher(world.core, reset=reset)
    fetcher.assign(starts, world.now)
    return fetcher


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    breaks=st.sampled_from([0.0, 0.1, 0.4]),
    nodes=st.integers(1, 3),
    start=st.integers(0, 99),
)
def test_whatever_breaks_each_record_is_read_once_and_in_order(
    seed: int, breaks: float, nodes: int, start: int
) -> None:
    world = World(ModelBroker({"t": 3}, nodes), seed=seed, breaks=breaks)
    places: list[tuple[str, int]] = [("t", index) for index in range(3)]
    for place in places:
        fill(world, place, 100)
    fetcher = reader(world, {place: Offset(start) for place in places})
    assert read(world, fetcher, 3 * (100 - start)) == {place: list(range(start, 100)) for place in places}
    assert [fetcher.position(place) for place in places] == [100, 100, 100]


def test_a_seek_drops_what_was_on_its_way() -> None:
    world = World(ModelBroker({"t": 1}))
    fill(world, ("t", 0), 50)
    fetcher = reader(world, {("t", 0): Offset(0)})
    world.run(fetcher.wait())
    fetcher.assign({("t", 0): Offset(40)}, world.now)
    assert read(world, fetcher, 10) == {("t", 0): list(range(40, 50))}


def test_what_nobody_takes_is_explained() -> None:
    world = World(ModelBroker({"t": 1}))
    fill(world, ("t", 0), 50)
    fetcher = reader(world, {("t", 0): Offset(0)})
    world.run(fetcher.wait())
    assert [each for each in fetcher.explain(world.now) if "taken no batch yet" in each]
    assert fetcher.take() is not None
    fill(world, ("t", 0), 50, first=50)
    world.run(fetcher.wait())
    assert not [each for each in fetcher.explain(world.now) if "taken no batch" in each]
    assert [each for each in fetcher.explain(world.now + 7.0) if "taken no batch for 7." in each]


def test_nothing_is_fetched_behind_the_end_that_was_given() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(fetch_max_bytes=400, partition_max_bytes=400))
    fill(world, ("t", 0), 50)
    world.call(functools.partial(world.core.metadata.topic, "t"))
    fetcher = Fetcher(world.core)
    fetcher.assign({("t", 0): Offset(0)}, world.now, {("t", 0): 20})
    [values] = read(world, fetcher, 20).values()
    world.run(5.0)
    assert values == list(range(len(values))) and len(values) < 30, "one more answer may arrive, and no other"
    assert fetcher.take() is None
    fetcher.assign({("t", 0): Offset(0)}, world.now)
    assert read(world, fetcher, 50) == {("t", 0): list(range(50))}


@example(which=0, at=22, bit=5, isolation=READ_UNCOMMITTED, reset=None)  # the damaged batch looks like a control batch
@example(which=0, at=22, bit=4, isolation=READ_COMMITTED, reset=None)  # like a batch of a transaction
@example(which=0, at=23, bit=7, isolation=READ_UNCOMMITTED, reset=None)  # like a batch before the requested offset
@example(which=4, at=23, bit=6, isolation=READ_UNCOMMITTED, reset=Time(LATEST))  # like one after the end of the log
@examples(100)
@given(
    which=st.integers(0, 19),
    at=st.integers(16, 300),
    bit=st.integers(0, 7),
    isolation=st.sampled_from([READ_UNCOMMITTED, READ_COMMITTED]),
    reset=st.sampled_from([None, Time(EARLIEST), Time(LATEST)]),
)
def test_whatever_bit_is_damaged_all_before_it_is_read_and_nothing_is_left_out(
    which: int, at: int, bit: int, isolation: int, reset: Time | None
) -> None:
    """Also if the damaged batch seems to end elsewhere, and the next Fetch asks for an offset outside the log."""
    world = World(ModelBroker({"t": 1}), options=Options(api_timeout=10.0))
    fill(world, ("t", 0), 40)
    good = world.broker.logs["t", 0].batches[which].data
    damaged = bytearray(good)
    damaged[16 + (at - 16) % (len(good) - 16)] ^= 1 << bit

    def failing_disk(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest):
            [[each]] = [topic.partitions for topic in answer.responses]
            each.records = bytes(each.records or b"").replace(good, bytes(damaged))
        return answer

    intact, world.broker.bend = world.broker.bend, failing_disk
    world.call(functools.partial(world.core.metadata.topic, "t"))
    fetcher = Fetcher(world.core, isolation=isolation, reset=reset)
    fetcher.assign({("t", 0): Offset(0)}, world.now)
    before = parse_batch(good).base_offset
    assert read(world, fetcher, before) == ({("t", 0): list(range(before))} if before else {})
    with pytest.raises(DecodeError, match=f"t-0 from offset {before}"):
        read(world, fetcher, 1)
    assert fetcher.position(("t", 0)) == before
    world.broker.bend = intact
    fetcher.assign({("t", 0): Offset(before)}, world.now)
    assert read(world, fetcher, 40 - before) == {("t", 0): list(range(before, 40))}


def test_a_reader_with_nothing_to_read_has_the_broker_hold_each_fetch_for_half_a_second() -> None:
    world = World(ModelBroker({"t": 2}))
    reader(world, {("t", 0): Offset(0), ("t", 1): Offset(0)})

    def fetches() -> list[FetchRequest]:
        return [message for _, message in world.broker.requests if isinstance(message, FetchRequest)]

    world.run(lambda: len(fetches()) >= 3)
    assert {each.max_wait_ms for each in fetches()} == {500}


def test_offsets_survive_broken_wires() -> None:
    for seed in range(20):
        world = World(ModelBroker({"t": 4, "u": 2}, 3), seed=seed, breaks=0.4)
        for place in world.broker.logs:
            fill(world, place, 5)
        wanted = dict.fromkeys(world.broker.logs, LATEST)
        assert world.call(lambda now: offsets(world.core, wanted, now)) == dict.fromkeys(wanted, 5)  # noqa: B023 # called within the iteration


def test_a_topic_that_vanishes_while_offsets_are_looked_up_is_an_error_and_no_crash() -> None:
    world = World(ModelBroker({"a": 1, "b": 1}), options=Options(api_timeout=10.0))
    world.call(lambda now: world.core.metadata.topic("a", now))
    world.broker.cluster.delete("a")
    looked_up = offsets(world.core, {("a", 0): LATEST, ("b", 0): LATEST}, world.now)
    world.run(looked_up)
    assert isinstance(looked_up.error, UnknownTopicOrPartition) and "topic 'a'" in str(looked_up.error)


def test_a_partition_that_answers_leave_out_is_asked_for_with_pauses_and_named() -> None:
    world = World(ModelBroker({"t": 1}), options=Options(api_timeout=10.0))
    fill(world, ("t", 0), 3)
    faulty = {ListOffsetsRequest: ListOffsetsResponse(topics=()), FetchRequest: FetchResponse(responses=())}
    world.broker.bend = lambda node, request, answer: faulty.get(type(request), answer)
    looked_up = offsets(world.core, {("t", 0): LATEST}, world.now)
    world.run(looked_up)
    assert "the response lacks t-0" in str(looked_up.error)
    fetcher = reader(world, {("t", 0): Offset(0)})
    world.run(5.0)
    assert sum(isinstance(message, ListOffsetsRequest) for _, message in world.broker.requests) < 30
    assert 3 <= sum(isinstance(message, FetchRequest) for _, message in world.broker.requests) < 30
    fetcher.close()


def test_a_partition_taken_away_is_read_no_more_whatever_was_on_its_way() -> None:
    world = World(ModelBroker({"t": 2}))
    for index in range(2):
        fill(world, ("t", index), 30)
    fetcher = reader(world, {("t", index): Offset(0) for index in range(2)})
    world.run(fetcher.wait())
    fetcher.unassign([("t", 0)])
    assert fetcher.assignment == [("t", 1)]
    assert read(world, fetcher, 30) == {("t", 1): list(range(30))}
    fetcher.assign({("t", 0): Offset(20)}, world.now)
    assert read(world, fetcher, 10) == {("t", 0): list(range(20, 30))}


def test_a_paused_partition_keeps_what_is_buffered_and_gives_it_out_when_it_is_resumed() -> None:
    world = World(ModelBroker({"t": 2}))
    for index in range(2):
        fill(world, ("t", index), 30)
    places: list[tuple[str, int]] = [("t", 0), ("t", 1)]
    fetcher = reader(world, {place: Offset(0) for place in places})
    world.run(lambda: fetcher.lag(places[0]) is not None)
    fetcher.pause([places[0]])
    assert fetcher.paused == [places[0]]
    assert read(world, fetcher, 30) == {places[1]: list(range(30))}
    assert fetcher.position(places[0]) == 0
    fetcher.resume([places[0]])
    assert fetcher.take() is not None, "the buffer was lost"
    assert fetcher.paused == []
    assert (fetcher.high_watermark(places[1]), fetcher.lag(places[1])) == (30, 0)


def test_only_the_partitions_asked_for_are_handed_out() -> None:
    world = World(ModelBroker({"t": 3}))
    for index in range(3):
        fill(world, ("t", index), 5)
    fetcher = reader(world, {("t", index): Offset(0) for index in range(3)})
    world.run(fetcher.wait(only={("t", 2)}))
    fetched = fetcher.take(only={("t", 2)})
    assert fetched is not None and fetched.partition == 2
