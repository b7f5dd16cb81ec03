"""The ends of micro-batches: their form in checkpoints, and the records between two of them."""

import json
from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigurationError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.reading.range_reader import OffsetRange
from ottla.spark.streaming.stream_offsets import BEGINNING, Positions, StreamOffset, limited

ONE, OTHER = str(UUID(int=1)), str(UUID(int=2))
PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 11))


def logs_begin_at_2(places: Collection[TopicPartition]) -> Positions:
    return dict.fromkeys(places, 2)


def ranges(start: StreamOffset, end: StreamOffset) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.start, each.end) for each in start.until(end, logs_begin_at_2)]


@given(st.dictionaries(PLACES, st.integers(0, 99)), st.permutations(range(12)))
def test_the_json_is_the_same_in_whatever_order_partitions_come(positions: Positions, order: list[int]) -> None:
    other = dict(sorted(positions.items(), key=lambda item: order[item[0][1]]))
    text = json.dumps(StreamOffset(positions, {"b": "1", "a": "2"}, positions).json())
    assert text == json.dumps(StreamOffset(other, {"a": "2", "b": "1"}, other).json())
    assert StreamOffset.parse(json.loads(text)) == StreamOffset(positions, {"a": "2", "b": "1"}, positions)


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    text = json.dumps(StreamOffset({("t", 10): 1, ("t", 9): 2}).json())
    assert text == '{"t": {"9": 2, "10": 1}}'


def test_an_offset_of_the_jvm_connector_is_understood() -> None:
    assert StreamOffset.parse({"t": {"0": 23, "1": 0}}) == StreamOffset({("t", 0): 23, ("t", 1): 0})


@pytest.mark.parametrize("wrong", [{"t": 5}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": {"0": -1}}, {"$": 3}])
def test_an_offset_of_another_source_is_refused_with_what_to_do(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="another checkpointLocation"):
        StreamOffset.parse(wrong)


def test_a_batch_reads_from_one_end_to_the_other() -> None:
    start, end = StreamOffset({("t", 0): 5, ("t", 1): 7}), StreamOffset({("t", 0): 9, ("t", 1): 7})
    assert start.until(end, logs_begin_at_2) == [OffsetRange("t", 0, 5, 9)]


def test_the_first_batch_begins_where_its_end_says_not_where_latest_is_by_now() -> None:
    end = StreamOffset({("t", 0): 9}, begins={("t", 0): 5})
    assert ranges(BEGINNING, end) == [("t", 0, 5, 9)]
    assert ranges(end, end) == []


def test_a_first_batch_whose_start_only_the_jvm_connector_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"finish it with format\('kafka'\)"):
        BEGINNING.until(StreamOffset.parse({"t": {"0": 9}}), logs_begin_at_2)


def test_a_new_partition_without_a_start_in_any_end_is_read_from_where_its_log_begins() -> None:
    assert ranges(StreamOffset({("t", 0): 5}), StreamOffset({("t", 0): 5, ("t", 1): 3})) == [("t", 1, 2, 3)]


def test_a_batch_begins_where_its_end_says_in_partitions_that_are_new() -> None:
    start, end = StreamOffset({("t", 0): 5}), StreamOffset({("t", 0): 7, ("t", 1): 30}, begins={("t", 1): 20})
    assert ranges(start, end) == [("t", 0, 5, 7), ("t", 1, 20, 30)]


def test_a_partition_that_comes_back_is_read_on_unless_its_topic_is_another() -> None:
    start = StreamOffset({("t", 0): 5, ("u", 0): 1}, {"t": ONE})
    without = start.next({("u", 0): 1}, {}, {("u", 0): 1}, first=False)
    assert without is not None
    assert without.gone == {("t", 0): 5}
    assert StreamOffset.parse(json.loads(json.dumps(without.json()))) == without
    assert without.position(("t", 0), ONE) == 5
    assert without.position(("t", 0), OTHER) is None
    other = without.next({("t", 0): 3, ("u", 0): 1}, {"t": OTHER}, {("t", 0): 0, ("u", 0): 1}, first=False)
    assert other is not None
    assert (other.gone, other.begins) == ({}, {("t", 0): 0})


def test_a_missing_partition_is_forgotten_when_a_newer_topic_appears_without_it() -> None:
    # A broker that knows the newer topic knows that the older one was deleted; it does not merely hide it.
    start = StreamOffset({("t", 0): 5, ("u", 0): 1}, {"t": ONE, "u": ONE})
    gone = start.next({("u", 0): 1, ("new", 0): 0}, {"u": ONE, "new": ONE}, {}, first=False)
    assert gone is not None
    assert gone.gone == {("t", 0): 5}, "it has only just gone"
    read = gone.next({("u", 0): 2, ("new", 0): 9}, {"u": ONE, "new": ONE}, {}, first=False)
    assert read is not None and read.gone == {("t", 0): 5}, "new records alone do not forget it"
    for positions, ids in (
        ({("u", 0): 1, ("new", 0): 0, ("newer", 0): 0}, {"u": ONE, "new": ONE, "newer": ONE}),
        ({("u", 0): 1, ("new", 0): 0}, {"u": ONE, "new": OTHER}),
    ):
        after = gone.next(positions, ids, {}, first=False)
        assert after is not None
        assert (after.gone, after.ids) == ({}, ids)
    back = gone.next({**gone.positions, ("t", 0): 6}, {**gone.ids}, {("t", 0): 5}, first=False)
    assert back is not None and back.gone == {} and back.begins is None


def test_a_checkpoint_does_not_grow_where_topics_come_and_go() -> None:
    end, sizes = StreamOffset({("base", 0): 1}, {"base": ONE}), []
    for number in range(50):
        for there in (["base", f"job-{number:02}"], ["base"]):
            positions = dict.fromkeys([(name, 0) for name in there], 1)
            end = end.next(positions, dict.fromkeys(there, ONE), {}, first=False) or end
        sizes.append(len(json.dumps(end.json())))
    assert len(set(sizes)) == 1


def test_when_a_topics_id_changes_its_old_partitions_are_forgotten() -> None:
    start = StreamOffset({("t", 1): 5}, {"t": ONE})
    smaller = start.next({}, {"t": OTHER}, {}, first=False)  # it has no partition 1 yet
    assert smaller is not None
    assert (smaller.gone, smaller.position(("t", 1), OTHER)) == ({}, None)


def test_a_topic_that_was_created_again_is_read_from_where_its_log_begins() -> None:
    start, end = StreamOffset({("t", 0): 5}, {"t": ONE}), StreamOffset({("t", 0): 3}, {"t": OTHER})
    assert ranges(start, end) == [("t", 0, 2, 3)]


def test_a_partition_that_was_cut_off_is_not_read_backwards() -> None:
    assert ranges(StreamOffset({("t", 0): 5}), StreamOffset({("t", 0): 3})) == []


@given(st.dictionaries(PLACES, st.integers(0, 10_000), min_size=1), st.integers(1, 20_000))
def test_a_limit_is_shared_in_proportion_and_starves_no_partition(ends: Positions, most: int) -> None:
    start = {place: end // 3 for place, end in ends.items()}
    lags = {place: ends[place] - start[place] for place in ends}
    got = {place: end - start[place] for place, end in limited(start, ends, most).items()}
    waiting = [place for place, lag in lags.items() if lag]
    assert sum(got.values()) == min(sum(lags.values()), max(most, len(waiting)))
    assert all(1 <= got[place] <= lags[place] for place in waiting)
    for one in waiting:
        for other in waiting:
            assert lags[one] < lags[other] or got[one] >= got[other] - 1, "only rounding may give one record more"


def test_a_limit_does_not_count_a_partition_that_ends_before_its_position() -> None:
    assert limited({("t", 0): 9, ("t", 1): 0}, {("t", 0): 4, ("t", 1): 50}, 10) == {("t", 0): 4, ("t", 1): 10}
