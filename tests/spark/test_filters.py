"""Filters of a query: what is not fetched because of them, and that no row is lost by it."""

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ottla.sdk.consume.ranges import OffsetRange
from ottla.spark import reader as spark_reader
from ottla.spark.filters import earliest_time, narrowed
from ottla.spark.options import ReadOptions
from ottla.spark.reader import FilteredBatchReader
from ottla.testing import Broker
from tests.interop.peers import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGES = [OffsetRange(topic, partition, 5, 12) for topic in ("orders", "other") for partition in (0, 1)]
COMPARISONS: dict[Any, Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
EXACT = [
    *((kind(("offset",), n), "offset", op, n) for kind, op in COMPARISONS.items() for n in (0, 5, 8, 11, 12, 50)),
    *((kind(("partition",), n), "partition", op, n) for kind, op in COMPARISONS.items() for n in (-1, 0, 1, 7)),
    *((kind(("topic",), n), "topic", op, n) for kind, op in COMPARISONS.items() for n in ("orders", "p", "")),
    (In(("partition",), (1, None, 9)), "partition", lambda is_, _: is_ == 1, None),
    (In(("topic",), ("other", "third")), "topic", lambda is_, _: is_ == "other", None),
    (Not(In(("partition",), (1, 9))), "partition", operator.ne, 1),
    (Not(EqualTo(("topic",), "other")), "topic", operator.ne, "other"),
    (StringStartsWith(("topic",), "ord"), "topic", str.startswith, "ord"),
    (StringEndsWith(("topic",), "ers"), "topic", str.endswith, "ers"),
    (StringContains(("topic",), "the"), "topic", operator.contains, "the"),
    (IsNull(("topic",)), "topic", operator.is_, None),
    (IsNotNull(("offset",)), "offset", operator.is_not, None),
]
NOTHING_KNOWN: list[Filter] = [
    EqualTo(("value",), b"x"),
    EqualTo(("value", "offset"), 7),
    EqualTo(("offset",), None),
    GreaterThan(("offset",), "7"),
    GreaterThan(("partition",), True),
    LessThan(("timestamp",), datetime(2000, 1, 1, tzinfo=UTC)),
    Not(EqualTo(("offset",), 7)),
    Not(EqualTo(("partition",), None)),
    IsNull(("key",)),
]


def records(ranges: list[OffsetRange]) -> set[tuple[str, int, int]]:
    return {(each.topic, each.partition, offset) for each in ranges for offset in range(each.start, each.end)}


@pytest.mark.parametrize(("condition", "column", "holds", "wanted"), EXACT)
def test_just_what_a_filter_lets_pass_is_left(
    condition: Filter, column: str, holds: Callable[[Any, Any], Any], wanted: Any
) -> None:
    at = ("topic", "partition", "offset").index(column)
    assert records(narrowed(RANGES, [condition])) == {each for each in records(RANGES) if holds(each[at], wanted)}


def test_of_several_offsets_all_between_are_left_and_filters_are_taken_together() -> None:
    found = narrowed(RANGES, [In(("offset",), (7, 9, 50)), EqualTo(("partition",), 1), LessThan(("offset",), 10)])
    assert found == [OffsetRange(topic, 1, 7, 10) for topic in ("orders", "other")]


@pytest.mark.parametrize("condition", NOTHING_KNOWN)
def test_what_says_nothing_about_a_range_leaves_it_as_it_is(condition: Filter) -> None:
    assert narrowed(RANGES, [condition]) == RANGES
    assert earliest_time([condition]) is None


def test_the_latest_lower_bound_of_time_counts_less_a_millisecond() -> None:
    at = datetime(1970, 1, 1, 0, 0, 5, 1999, UTC)
    since: list[Filter] = [GreaterThanOrEqual(("timestamp",), at), GreaterThan(("timestamp",), at.replace(second=4))]
    assert earliest_time(since) == 5_000
    assert earliest_time([GreaterThan(("timestamp",), at.replace(tzinfo=None))]) is None


TIMES = [1_700_000_000_000 + n for n in (*range(50), 20, 10, 90, 5, 60, 99, 1)]
"""They do not only rise."""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_no_record_is_lost_to_a_bound_of_time_though_times_do_not_only_rise(bootstrap: str, codec: str) -> None:
    topic = f"times-{codec}"
    create_topic(bootstrap, topic, partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
    for number, time in enumerate(TIMES):
        producer.produce(topic, b"v", timestamp=time)
        if number % 10 == 0:
            producer.flush(20)
    assert producer.flush(20) == 0
    options = ReadOptions.parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    fetched = {}
    for since in sorted({*TIMES, 1_700_000_000_200}):
        reader = FilteredBatchReader(options)
        at = datetime.fromtimestamp(since // 1000, UTC).replace(microsecond=since % 1000 * 1000)
        assert reader.pushFilters([GreaterThanOrEqual(("timestamp",), at)]) == reader.filters
        rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
        offsets = {row["offset"] for row in rows}
        assert offsets >= {offset for offset, time in enumerate(TIMES) if time >= since}
        fetched[since] = len(offsets)
    assert fetched[1_700_000_000_200] == 0
    assert fetched[1_700_000_000_040] <= len(TIMES) - 39
    spark_reader.clients.close()


@pytest.fixture
def pushdown(spark: "SparkSession") -> "Iterator[None]":
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


CONDITIONS = {
    "offset >= 20": 10,
    "offset BETWEEN 3 AND 4 AND partition = 1": 2,
    "partition <> 0": 25,
    "topic IN ('t', 'u')": 50,
    "topic LIKE 'u%'": 0,
    "timestamp >= timestamp_millis(1700000000040)": 11,
    "timestamp < timestamp_millis(1700000000010)": 50,
    "value = CAST('7' AS BINARY)": 50,
    "offset = 3 OR partition = 1": 50,
    "offset > 30": 0,
}
"""How many of 50 records are fetched."""


@pytest.mark.slow
def test_a_query_has_the_same_rows_of_fewer_records(
    spark: "SparkSession", ottla_broker: Broker, request: pytest.FixtureRequest
) -> None:
    ottla_broker.create_topic("t", partitions=2)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    for number in range(50):
        producer.produce("t", b"%d" % number, partition=number % 2, timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0

    def found(condition: str) -> tuple[list[Any], int]:
        options = {"kafka.bootstrap.servers": ottla_broker.bootstrap, "subscribe": "t"}
        frame = spark.read.format("ottla").options(**options).load().where(condition).select("partition", "offset")
        rows = sorted(map(tuple, frame.collect()))
        scan = frame._jdf.queryExecution().executedPlan()
        while scan.children().size():
            scan = scan.children().apply(0)
        return rows, scan.metrics().apply("numOutputRows").value()

    without = {condition: found(condition) for condition in CONDITIONS}
    assert {count for _, count in without.values()} == {50}
    request.getfixturevalue("pushdown")
    for condition, count in CONDITIONS.items():
        assert found(condition) == (without[condition][0], count), condition
