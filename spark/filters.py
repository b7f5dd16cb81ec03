"""What the filters of a batch query say about the offsets to read (`spark.sql.python.filterPushdown.enabled`).

Rules:
- Only records are left out that no filter would let pass. Spark applies each filter again, so what is not understood
  here costs time, and no row.
- Conditions on `topic`, `partition` and `offset` follow from a range itself. One on `timestamp` is for the broker to
  say, and only where records begin: it looks for the first record at or after a time, and all before that are older,
  in whatever order their timestamps are. Where records are younger than a time, later ones may be older again; so an
  upper bound leaves nothing out.

Source: pyspark/sql/datasource.py, the subclasses of Filter; Kafka's LogSegment.findOffsetByTimestamp.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ottla.sdk.consume.ranges import OffsetRange

_1970 = datetime(1970, 1, 1, tzinfo=UTC)

_HOLDS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda is_, wanted: bool(is_ == wanted),
    EqualNullSafe: lambda is_, wanted: bool(is_ == wanted),
    In: lambda is_, wanted: is_ in wanted,
    GreaterThan: lambda is_, wanted: bool(is_ > wanted),
    GreaterThanOrEqual: lambda is_, wanted: bool(is_ >= wanted),
    LessThan: lambda is_, wanted: bool(is_ < wanted),
    LessThanOrEqual: lambda is_, wanted: bool(is_ <= wanted),
    StringStartsWith: lambda is_, wanted: bool(is_.startswith(wanted)),
    StringEndsWith: lambda is_, wanted: bool(is_.endswith(wanted)),
    StringContains: lambda is_, wanted: wanted in is_,
}
"""Of a value that is never null."""


def narrowed(ranges: Iterable[OffsetRange], filters: Sequence[Filter]) -> list[OffsetRange]:
    """What is left of ``ranges``, by topic, partition and offset."""
    left = []
    for each in ranges:
        if not all(_may_hold(condition, each) for condition in filters):
            continue
        start, end = each.start, each.end
        for lowest, highest in _offsets(filters):
            start = start if lowest is None else max(start, lowest)
            end = end if highest is None else min(end, highest + 1)
        if start < end:
            left.append(replace(each, start=start, end=end))
    return left


def earliest_time(filters: Sequence[Filter]) -> int | None:
    """Milliseconds since 1970: no record that is older passes the filters. ``None`` where they do not say so.

    It is one less than they say. Brokers before Kafka 3.8 note of a compressed batch only its last offset with its
    greatest timestamp, and for just that timestamp may answer with this offset, where an earlier one has it as well.
    """
    times: list[datetime] = [
        low for condition in filters if (low := _lowest(condition, "timestamp", datetime)) is not None
    ]
    if not times:
        return None
    return (max(times).astimezone(UTC) - _1970) // timedelta(milliseconds=1) - 1


def _may_hold(condition: Filter, wanted: OffsetRange) -> bool:
    """Whether ``condition`` holds for the topic and partition; true where it says nothing about them."""
    if isinstance(condition, IsNull):
        return condition.attribute not in {("topic",), ("partition",), ("offset",)}
    inner = condition.child if isinstance(condition, Not) else condition
    known: dict[tuple[str, ...], str | int] = {("topic",): wanted.topic, ("partition",): wanted.partition}
    holds, is_ = _HOLDS.get(type(inner)), known.get(getattr(inner, "attribute", ()))
    if holds is None or is_ is None:
        return True
    values = _values(inner, type(is_))
    if values is None:
        return True
    given = values if isinstance(inner, In) else values[0]
    return holds(is_, given) is not isinstance(condition, Not)


def _offsets(filters: Sequence[Filter]) -> Iterator[tuple[int | None, int | None]]:
    """The lowest and the highest offset that each filter lets pass."""
    for condition in filters:
        lowest, highest = _lowest(condition, "offset", int), _highest(condition)
        if isinstance(condition, GreaterThan) and lowest is not None:
            lowest += 1
        yield lowest, highest


def _lowest(condition: Filter, column: str, kind: type) -> Any:
    """What a column is at least, or more than, if the filter says so."""
    if not isinstance(condition, (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual)):
        return None
    values = _values(condition, kind) if condition.attribute == (column,) else None
    return min(values) if values else None


def _highest(condition: Filter) -> int | None:
    if not isinstance(condition, (EqualTo, EqualNullSafe, In, LessThan, LessThanOrEqual)):
        return None
    values = _values(condition, int) if condition.attribute == ("offset",) else None
    if not values:
        return None
    highest: int = max(values)
    return highest - 1 if isinstance(condition, LessThan) else highest


def _values(condition: Any, kind: type) -> list[Any] | None:
    """What a filter compares with, nulls left out; ``None`` if something is of another type."""
    given = condition.value if isinstance(condition, In) else (condition.value,)
    found = [each for each in given if each is not None]
    if not found or not all(type(each) is kind for each in found):
        return None
    if kind is datetime and any(each.tzinfo is None for each in found):
        return None
    return found
