"""Decides which offsets a query reads, and how its tasks share them.

Rules:
- `resolve` fixes the offsets once, on the driver. A task reads its ranges and depends on nothing else, so a task that
  Spark repeats reads the same records again.
- The ends of logs are looked up before offsets by time. ListOffsets answers -1 if every record is older than the
  timestamp, and then the log's end is used. That end must be the earlier one: with a later end, a record that arrives
  between the two requests is never read.
- The JSON is that of Spark's own connector: ``{"topic": {"0": 23, "1": -2}}``, with -2 for earliest and -1 for latest.

Source: KafkaOffsetReaderAdmin.scala, KafkaOffsetRangeCalculator.scala, JsonUtils.scala (for the formats).
"""

import heapq
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol
from uuid import UUID

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import ConfigurationError, DataLoss
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED, AnyBatch
from ottla.sdk.consume.reading.range_reader import LostRange, OffsetRange

SMALL_TASK = 5_000
"""Partitions up to this many records share a task if there are more partitions than cores: a task costs Spark some
50-100 ms."""

log = logging.getLogger("ottla.spark")


class OffsetsClient(Protocol):
    """The part of `ottla.sdk.drivers.blocking.BlockingClient` that is used here."""

    def topic_ids(self, names: Sequence[str] | None) -> dict[str, tuple[UUID, int]]: ...
    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = ...
    ) -> Mapping[TopicPartition, int]: ...
    def fetch(
        self, ranges: Iterable[OffsetRange], *, isolation: int = ..., on_lost: Callable[[LostRange], int] = ...
    ) -> Generator[tuple[OffsetRange, AnyBatch], None, None]: ...


@dataclass(frozen=True, slots=True)
class Limit:
    """The start or the end of what to read, as the user gave it.

    Attributes:
        option: the option's name, for messages.
        places: an offset (including `EARLIEST` and `LATEST`) or, with `by_time`, milliseconds since 1970; one for all
            partitions, or one for each.
        by_time: `places` are timestamps, and stand for the first record at or after them.
    """

    option: str
    places: int | Mapping[TopicPartition, int]
    by_time: bool = False

    def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the place for each partition.

        Raises:
            ConfigurationError: the option does not name exactly these partitions.
        """
        if isinstance(self.places, int):
            return dict.fromkeys(partitions, self.places)
        if extra := sorted(set(self.places) - set(partitions)):
            raise ConfigurationError(f"{self.option} names {_names(extra)}, which the query does not read")
        if missing := sorted(set(partitions) - set(self.places)):
            hint = {"startingOffsets": "; -2 stands for earliest", "endingOffsets": "; -1 stands for latest"}
            raise ConfigurationError(
                f"{self.option} must name every partition, but misses {_names(missing)}{hint.get(self.option, '')}"
            )
        return dict(self.places)


def parse_assign(text: str) -> frozenset[TopicPartition]:
    """Parse a text like ``{"topic": [0, 1]}``; return the partitions."""
    wanted = 'a JSON object such as {"topic": [0, 1]}'
    partitions = set()
    for topic, numbers in _json_object(text, "assign", wanted).items():
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ConfigurationError(f"assign must be {wanted}, but has {numbers!r} for {topic!r}")
        partitions |= {(topic, number) for number in numbers}
    if not partitions:
        raise ConfigurationError(f"assign names no partition; it must be {wanted}")
    return frozenset(partitions)


def parse_places(
    text: str, option: str, *, lowest: int = EARLIEST, words: Iterable[str] = ()
) -> dict[TopicPartition, int]:
    """Parse a text like ``{"topic": {"0": 23}}``; return the numbers. Numbers below ``lowest`` are refused.

    Args:
        words: other values that the option accepts, for messages.
    """
    wanted = "".join(f"{word} or " for word in words) + 'a JSON object such as {"topic": {"0": 23}}'
    places: dict[TopicPartition, int] = {}
    for topic, by_partition in _json_object(text, option, wanted).items():
        if not isinstance(by_partition, dict):
            raise ConfigurationError(f"{option} must be {wanted}, but has {by_partition!r} for {topic!r}")
        for number, place in by_partition.items():
            if not re.fullmatch("[0-9]{1,10}", number):
                raise ConfigurationError(f"{option}: {number!r:.100} is not a partition number of {topic!r}")
            if type(place) is not int or place < lowest:
                raise ConfigurationError(f"{option}: {place!r} for {topic}-{number} must be a number, {lowest} or more")
            if (topic, int(number)) in places:
                raise ConfigurationError(f"{option} names {topic}-{int(number)} twice")
            places[topic, int(number)] = place
    return places


def resolve(
    client: OffsetsClient,
    partitions: Mapping[TopicPartition, UUID],
    starting: Limit,
    ending: Limit,
    *,
    latest_if_no_record: bool = False,
    fail_on_data_loss: bool = True,
    isolation: int = READ_UNCOMMITTED,
) -> list[OffsetRange]:
    """Return the ranges to read, ordered by topic and partition; partitions without offsets are left out.

    Args:
        partitions: what to read, with the topics' ids.
        latest_if_no_record: if no record is at or after a starting timestamp, start at the end.
        fail_on_data_loss: raise if the log does not have some of the offsets (any more), instead of skipping them.
        isolation: with `READ_COMMITTED`, a log ends at its last stable offset.

    Raises:
        ConfigurationError: the limits do not fit the partitions or each other, or all records are older than a starting
            timestamp.
        DataLoss: a limit is outside the log.
    """
    starts, ends = starting.of(partitions), ending.of(partitions)
    log_starts = client.offsets(dict.fromkeys(partitions, EARLIEST), isolation=isolation)
    log_ends = client.offsets(dict.fromkeys(partitions, LATEST), isolation=isolation)
    starts_by_time = client.offsets(starts, isolation=isolation) if starting.by_time else {}
    ends_by_time = client.offsets(ends, isolation=isolation) if ending.by_time else {}
    if not latest_if_no_record:
        _refuse_too_young(starting, starts_by_time)
    starts |= _up_to(log_ends, starts_by_time)
    ends |= _up_to(log_ends, ends_by_time)
    ranges = []
    for place in sorted(partitions):
        lowest, highest = log_starts[place], log_ends[place]
        known = {EARLIEST: lowest, LATEST: highest}
        start, end = known.get(starts[place], starts[place]), known.get(ends[place], ends[place])
        if starts_by_time.get(place, 0) < 0:
            start = min(start, end)
        if start > end and starts[place] >= 0 and ends[place] >= 0:
            raise ConfigurationError(
                f"{starting.option} gives {start} for {place[0]}-{place[1]}, "
                f"which is after the {end} that {ending.option} gives"
            )
        if start < lowest or max(start, end) > highest:
            _lost(place, start, end, lowest, highest, fail_on_data_loss, isolation)
            start, end = max(start, lowest), min(end, highest)
        if start < end:
            ranges.append(OffsetRange(*place, start, end, partitions[place]))
    return ranges


def known_starts(
    client: OffsetsClient,
    partitions: Collection[TopicPartition],
    starting: Limit,
    *,
    latest_if_no_record: bool = False,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return where a query without an end starts; for the arguments see `resolve`.

    Raises:
        ConfigurationError: the limit does not fit the partitions, or all records are older than its timestamp.
    """
    starts = starting.of(partitions)
    if not starting.by_time:
        sought = {place: at for place, at in starts.items() if at < 0}
        return {**starts, **client.offsets(sought, isolation=isolation)}
    log_ends = client.offsets(dict.fromkeys(starts, LATEST), isolation=isolation) if latest_if_no_record else {}
    found = client.offsets(starts, isolation=isolation)
    if not latest_if_no_record:
        _refuse_too_young(starting, found)
    return {place: log_ends[place] if offset < 0 else offset for place, offset in found.items()}


def _up_to(log_ends: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offsets ``found`` by time, up to the ends of logs; the log's end if no record was found."""
    return {place: min(offset, log_ends[place]) if offset >= 0 else log_ends[place] for place, offset in found.items()}


def _refuse_too_young(starting: Limit, found: Mapping[TopicPartition, int]) -> None:
    if too_young := sorted(place for place, offset in found.items() if offset < 0):
        raise ConfigurationError(
            f"{starting.option}: no record is at or after that time in {_names(too_young)}; "
            "startingOffsetsByTimestampStrategy=latest starts at their end instead"
        )


def _lost(place: TopicPartition, start: int, end: int, lowest: int, highest: int, fail: bool, isolation: int) -> None:
    topic, partition = place
    if fail:
        why = f"{'deleted by retention' if start < lowest else 'not written yet'}, or was the topic recreated?"
        if isolation == READ_COMMITTED and max(start, end) > highest:
            why = f"read_committed ends at {highest}, where a transaction may be open;"
        raise DataLoss(
            f"the query wants offsets {start} to {max(start, end)} of {topic}-{partition}, but the log has {lowest} to "
            f"{highest}: {why} failOnDataLoss=false skips missing offsets"
        )
    log.warning(
        f"the query wants offsets {start} to {max(start, end)} of {topic}-{partition}, but the log has {lowest} to "
        f"{highest}: missing offsets are skipped",
        extra={
            "topic": topic,
            "partition": partition,
            "start": start,
            "end": end,
            "log_start": lowest,
            "log_end": highest,
        },
    )


def plan(
    ranges: Sequence[OffsetRange],
    cores: int,
    *,
    min_tasks: int | None = None,
    max_records: int | None = None,
    max_tasks: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Divide the ranges into tasks.

    Args:
        cores: number of tasks that run at once.
        min_tasks: split ranges, always the one with the largest parts, until there are this many (`minPartitions`).
        max_records: split ranges with more offsets than this (`maxRecordsPerPartition`).
        max_tasks: then distribute them over at most this many tasks, evenly by offsets.

    Without the last three, each partition is one task; if there are more partitions than cores, small ones share tasks.
    Sharing never leaves fewer tasks than cores, because only the query knows how much work a record is.
    """
    if min_tasks is None and max_records is None and max_tasks is None:
        return _packed(ranges, cores)
    pieces = list(ranges)
    if max_records is not None:
        pieces = [piece for each in pieces for piece in _split(each, -(-len(each) // max_records))]
    if min_tasks is not None and min_tasks > len(pieces):
        counts = _parts(pieces, min_tasks)
        pieces = [piece for each, parts in zip(pieces, counts, strict=True) for piece in _split(each, parts)]
    if max_tasks is None or len(pieces) <= max_tasks:
        return [(piece,) for piece in pieces]
    return _shared(pieces, max_tasks)


def _parts(ranges: Sequence[OffsetRange], wanted: int) -> list[int]:
    """Return in how many parts to split each range, to get ``wanted`` parts, or one per offset if there are fewer.

    Never more than ``wanted``: each task has a cost, and splitting small partitions gains nothing.
    """
    parts = [1] * len(ranges)
    largest = [(-float(len(each)), number) for number, each in enumerate(ranges)]
    heapq.heapify(largest)
    for _ in range(min(wanted, sum(map(len, ranges))) - len(ranges)):
        _, number = largest[0]
        parts[number] += 1
        heapq.heapreplace(largest, (-len(ranges[number]) / parts[number], number))
    return parts


def _packed(ranges: Sequence[OffsetRange], cores: int) -> list[tuple[OffsetRange, ...]]:
    """Make one task per range. If there are more than ``cores``, ranges of up to `SMALL_TASK` records share tasks."""
    small = [each for each in ranges if len(each) <= SMALL_TASK]
    large = [(each,) for each in ranges if len(each) > SMALL_TASK]
    tasks = max(cores - len(large), -(-sum(map(len, small)) // SMALL_TASK))
    return [*large, *(_shared(small, tasks) if tasks < len(small) else [(each,) for each in small])]


def _shared(pieces: Sequence[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Distribute the pieces: the largest first, each to the task with the least work so far."""
    shares: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    loads = [(0, number) for number in range(tasks)]
    for piece in sorted(pieces, key=len, reverse=True):
        load, number = loads[0]
        shares[number].append(piece)
        heapq.heapreplace(loads, (load + len(piece), number))
    return [
        tuple(_joined(sorted(share, key=lambda each: (each.topic, each.partition, each.start)))) for share in shares
    ]


def _joined(ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the ranges in order; adjacent ranges of one partition become one."""
    last: OffsetRange | None = None
    for each in sorted(ranges, key=lambda each: (each.topic, each.partition, each.start)):
        if last is not None and last.place == each.place and last.end == each.start:
            last = replace(last, end=each.end)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _split(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Split ``whole`` into this many nearly equal parts, or into single offsets if there are fewer."""
    parts = max(1, min(parts, len(whole)))
    edges = [whole.start + len(whole) * part // parts for part in range(parts + 1)]
    for start, end in pairwise(edges):
        yield replace(whole, start=start, end=end)


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)


def _json_object(text: str, option: str, wanted: str) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        for name, count in Counter(name for name, _ in pairs).items():
            if count > 1:
                raise ConfigurationError(f"{option} names {name!r} {count} times in one object: {text!r}")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option} must be {wanted}, not {text!r}")
    return value
