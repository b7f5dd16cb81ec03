"""Which offsets are read, and how tasks share them. The log consists only of numbers."""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import ConfigurationError, DataLoss
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED, AnyBatch
from ottla.sdk.consume.reading.range_reader import LostRange, OffsetRange
from ottla.spark.cores import CORES, UNKNOWN, cores, local_cores
from ottla.spark.reading.offsets import SMALL_TASK, Limit, known_starts, plan, resolve

TOPIC_ID = UUID(int=1)
ALL = Limit("startingOffsets", EARLIEST)
END = Limit("endingOffsets", LATEST)


@dataclass
class Logs:
    """Partitions as (first offset, end offset); the record at offset n has timestamp 10 n.

    The last stable offset is `open` before the end. A record arrives before request number `arriving`.
    """

    extent: dict[TopicPartition, tuple[int, int]]
    open: int = 0
    arriving: int | None = None
    requests: int = 0

    def topic_ids(self, names: Sequence[str] | None) -> dict[str, tuple[UUID, int]]:
        raise AssertionError("the query names its partitions and needs no lookup")

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> Mapping[TopicPartition, int]:
        if self.requests == self.arriving:
            self.extent = {place: (first, end + 1) for place, (first, end) in self.extent.items()}
        self.requests += 1
        hidden = self.open if isolation == READ_COMMITTED else 0
        extents = {place: (first, max(first, end - hidden)) for place, (first, end) in self.extent.items()}
        return {place: self._offset(*extents[place], when) for place, when in wanted.items()}

    def _offset(self, first: int, end: int, when: int) -> int:
        if when in (EARLIEST, LATEST):
            return first if when == EARLIEST else end
        found = max(first, -(-when // 10))
        return found if found < end else -1

    def fetch(
        self,
        ranges: Iterable[OffsetRange],
        *,
        isolation: int = READ_UNCOMMITTED,
        on_lost: Callable[[LostRange], int] = lambda lost: 0,
    ) -> Generator[tuple[OffsetRange, AnyBatch], None, None]:
        raise AssertionError("planning must not fetch")


LOGS = Logs({("t", 0): (10, 30), ("t", 1): (0, 100), ("t", 2): (5, 5)})


def ranges(starting: Limit = ALL, ending: Limit = END, logs: Logs = LOGS, **more: Any) -> list[tuple[int, int, int]]:
    found = resolve(logs, dict.fromkeys(logs.extent, TOPIC_ID), starting, ending, **more)
    assert {(each.topic, each.topic_id) for each in found} <= {("t", TOPIC_ID)}
    return [(each.partition, each.start, each.end) for each in found]


def test_each_log_is_read_from_start_to_end_and_empty_partitions_are_left_out() -> None:
    assert ranges() == [(0, 10, 30), (1, 0, 100)]


def test_offsets_may_be_given_for_each_partition() -> None:
    starting = Limit("startingOffsets", {("t", 0): 20, ("t", 1): EARLIEST, ("t", 2): 5})
    ending = Limit("endingOffsets", {("t", 0): 25, ("t", 1): LATEST, ("t", 2): LATEST})
    assert ranges(starting, ending) == [(0, 20, 25), (1, 0, 100)]


def test_a_time_means_the_first_record_at_or_after_it() -> None:
    starting = Limit("startingTimestamp", 205, by_time=True)
    ending = Limit("endingTimestamp", 280, by_time=True)
    logs = Logs({("t", 0): (10, 30), ("t", 1): (0, 100)})
    assert ranges(starting, ending, logs) == [(0, 21, 28), (1, 21, 28)]


def test_an_ending_time_that_no_record_has_means_the_end() -> None:
    assert ranges(ending=Limit("endingTimestamp", 500, by_time=True)) == [(0, 10, 30), (1, 0, 50)]


def test_a_starting_time_that_no_record_has_is_an_error_unless_the_strategy_says_latest() -> None:
    starting = Limit("startingTimestamp", 500, by_time=True)
    with pytest.raises(ConfigurationError, match=r"no record is at or after that time in t-0, t-2; .*latest"):
        ranges(starting)
    assert ranges(starting, latest_if_no_record=True) == [(1, 50, 100)]


@pytest.mark.parametrize("before", range(4), ids=lambda n: f"before request {n}")
@pytest.mark.parametrize("time", [100, 110], ids=["young enough", "too old"])
def test_a_query_that_starts_at_a_time_skips_no_record_that_arrives_while_it_asks(before: int, time: int) -> None:
    """The record at offset 10, of time 100, arrives before one of the requests. The query starts at time 100 or 110."""
    logs = Logs({("t", 0): (0, 10)}, arriving=before)
    start = known_starts(logs, [("t", 0)], Limit("startingTimestamp", time, by_time=True), latest_if_no_record=True)
    assert start == {("t", 0): 11 if before == 0 and time == 110 else 10}


@pytest.mark.parametrize("before", range(5), ids=lambda n: f"before request {n}")
def test_a_batch_reads_nothing_that_is_too_young_though_it_arrives_while_the_query_asks(before: int) -> None:
    logs = Logs({("t", 0): (0, 10)}, arriving=before)
    start, end = Limit("startingTimestamp", 50, by_time=True), Limit("endingTimestamp", 100, by_time=True)
    assert ranges(start, end, logs) == [(0, 5, 10)]
    logs = Logs({("t", 0): (0, 10)}, arriving=before)
    young = Limit("startingTimestamp", 100, by_time=True)
    assert ranges(young, END, logs, latest_if_no_record=True) == ([(0, 10, 11)] if before < 2 else [])


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({("t", 0): 10}, "startingOffsets must name every partition, but misses t-1, t-2; -2 stands for earliest"),
        ({("t", 0): 10, ("t", 1): 0, ("t", 2): 5, ("u", 0): 1}, "names u-0, which the query does not read"),
        ({("u", 0): 1}, "names u-0, which the query does not read"),
    ],
)
def test_offsets_must_name_exactly_the_partitions_that_are_read(places: dict[TopicPartition, int], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ranges(Limit("startingOffsets", places))


def test_an_end_before_the_start_is_an_error() -> None:
    logs = Logs({("t", 0): (0, 100)})
    with pytest.raises(ConfigurationError, match="gives 50 for t-0, which is after the 40 that endingOffsets"):
        ranges(Limit("startingOffsets", {("t", 0): 50}), Limit("endingOffsets", {("t", 0): 40}), logs)


@pytest.mark.parametrize(("start", "end"), [(9, 30), (10, 31), (31, LATEST), (0, 5)])
def test_offsets_outside_the_log_are_data_loss(start: int, end: int, caplog: pytest.LogCaptureFixture) -> None:
    logs = Logs({("t", 0): (10, 30)})
    starting, ending = Limit("startingOffsets", {("t", 0): start}), Limit("endingOffsets", {("t", 0): end})
    why = "deleted by retention" if start < 10 else "not written yet"
    with pytest.raises(DataLoss, match=f"of t-0, but the log has 10 to 30: {why}.*failOnDataLoss=false"):
        ranges(starting, ending, logs)
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        found = ranges(starting, ending, logs, fail_on_data_loss=False)
    assert found in ([(0, 10, 30)], [])
    [record] = caplog.records
    asked = f"the query wants offsets {start} to {max(start, end if end >= 0 else 30)} of t-0"
    assert record.getMessage() == f"{asked}, but the log has 10 to 30: missing offsets are skipped"
    assert record.__dict__["log_start"] == 10


def test_with_read_committed_a_log_ends_where_a_transaction_is_open() -> None:
    logs = Logs({("t", 0): (10, 30)}, open=5)
    assert ranges(logs=logs) == [(0, 10, 30)]
    assert ranges(logs=logs, isolation=READ_COMMITTED) == [(0, 10, 25)]
    late = Limit("endingTimestamp", 280, by_time=True)
    assert ranges(ending=late, logs=logs, isolation=READ_COMMITTED) == [(0, 10, 25)]
    behind = Limit("endingOffsets", {("t", 0): 28})
    with pytest.raises(DataLoss, match="10 to 25: read_committed ends at 25, where a transaction may be open"):
        ranges(ending=behind, logs=logs, isolation=READ_COMMITTED)
    assert ranges(ending=behind, logs=logs, isolation=READ_COMMITTED, fail_on_data_loss=False) == [(0, 10, 25)]


def pieces(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", partition, 100, 100 + size) for partition, size in enumerate(sizes)]


def sizes(tasks: list[tuple[OffsetRange, ...]]) -> list[list[int]]:
    return [[len(each) for each in task] for task in tasks]


def test_there_are_as_many_tasks_as_cores_and_beyond_them_small_partitions_share_tasks() -> None:
    """A record may take a second to process: small partitions must not wait for one core while others are idle."""
    big, small = SMALL_TASK + 1, SMALL_TASK // 2
    assert sizes(plan(pieces(5, 1, 3), 4)) == [[5], [1], [3]]
    assert sizes(plan(pieces(5, 1, 3, 4), 4)) == [[5], [1], [3], [4]]
    assert sizes(plan(pieces(*[10] * 8), 4)) == [[10, 10]] * 4
    assert sizes(plan(pieces(*[1] * 7, 7, 1), 2)) == [[7, 1], [1] * 7]
    assert sizes(plan(pieces(big, small, small, small, big), 2)) == [[big], [big], [small, small], [small]]
    assert sizes(plan(pieces(big, small, small, small, big), 5)) == [[big], [big], [small], [small], [small]]
    assert sizes(plan(pieces(*[small] * 100), 4)) == [[small, small]] * 50


@pytest.mark.parametrize(
    ("master", "wanted"),
    [("local", 1), ("local[3]", 3), ("local[ 3, 2 ]", 3), ("local[*]", os.cpu_count()),
     ("local[" + "9" * 5000 + "]", None), ("local-cluster[2,1,512]", None),
     ("spark://host:7077", None), ("yarn", None)],
)  # fmt: skip
def test_the_cores_of_a_local_spark_stand_in_its_master(master: str, wanted: int | None) -> None:
    assert local_cores(master) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"), [("8", 8), ("0", UNKNOWN), ("many", UNKNOWN), ("9" * 5000, UNKNOWN), (None, UNKNOWN)]
)
def test_a_query_is_planned_for_the_cores_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: int
) -> None:
    monkeypatch.delenv(CORES, raising=False)
    if given is not None:
        monkeypatch.setenv(CORES, given)
    assert cores() == wanted


def test_with_min_partitions_large_partitions_are_split_more_often() -> None:
    assert sizes(plan(pieces(10, 90), 2, min_tasks=10)) == [[10], *[[10]] * 9]
    assert sizes(plan(pieces(3), 2, min_tasks=10)) == [[1], [1], [1]]
    assert sizes(plan(pieces(5, 5), 2, min_tasks=1)) == [[5], [5]]


def test_min_partitions_makes_no_more_tasks_than_that() -> None:
    assert len(plan(pieces(*[1000] * 500), 2, min_tasks=600)) == 600
    assert sizes(plan(pieces(1, 1, 1000), 2, min_tasks=4)) == [[1], [1], [500], [500]]


def test_parts_of_a_partition_that_one_task_reads_are_one_range() -> None:
    assert sizes(plan(pieces(100), 2, min_tasks=10, max_tasks=1)) == [[100]]


def test_with_max_records_no_task_has_more() -> None:
    assert sizes(plan(pieces(10, 25), 2, max_records=10)) == [[10], [8], [8], [9]]


def test_with_max_tasks_the_work_is_shared_out_evenly() -> None:
    assert sizes(plan(pieces(5, 50, 10, 45), 2, max_tasks=2)) == [[5, 50], [10, 45]]
    assert sizes(plan(pieces(5, 50), 2, max_tasks=9)) == [[5], [50]]


def test_nothing_to_read_is_no_task() -> None:
    assert plan([], 2) == plan([], 2, min_tasks=4, max_records=5, max_tasks=2) == []


optional = st.none() | st.integers(1, 40)


@given(st.lists(st.integers(1, 20_000), max_size=12), optional, optional.map(lambda n: n and n * 500), optional)
def test_every_offset_is_in_exactly_one_task(
    lengths: list[int], min_tasks: int | None, max_records: int | None, max_tasks: int | None
) -> None:
    whole = pieces(*lengths)
    tasks = plan(whole, 4, min_tasks=min_tasks, max_records=max_records, max_tasks=max_tasks)
    assert all(tasks)
    if max_tasks is not None:
        assert len(tasks) <= max_tasks
    elif min_tasks is not None:
        assert len(tasks) == max(len(lengths), min(min_tasks, sum(lengths))) or max_records is not None
    parts = sorted((each for task in tasks for each in task), key=lambda each: (each.partition, each.start))
    joined: list[OffsetRange] = []
    for part in parts:
        if joined and joined[-1].partition == part.partition:
            assert part.start == joined[-1].end
            part = OffsetRange("t", part.partition, joined.pop().start, part.end)
        joined.append(part)
    assert joined == whole
