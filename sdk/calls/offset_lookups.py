"""Looks up offsets: the ends of partitions, and the first record at or after a time.

Rules:
- Each leader gets one ListOffsets, which is repeated for partitions that are still missing.
- If no record is at or after a time, the end of the log is used. The end is looked up first: a record that arrives
  between the two requests is after it.
- The last offset before a time is the one before the first record at or after it, or before the end if there is none:
  timestamps need not ascend, but all records before that offset are older.
- Brokers before 0.10.1 know only where segments begin: their answer for a time is at or before the right record.
- A call that only looks at the current state (`reachable_offsets`) gets an error in place of each unknown offset, and
  waits at most `RETRY_FOR` for a leaderless partition.

Source: KafkaAdminClient.java, listOffsets; KafkaApis.scala of Kafka 0.10.0, fetchOffsetsBefore.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ottla.codec.apis.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from ottla.errors import OttlaError, UnsupportedVersion, broker_error
from ottla.sdk.admin import ListedOffset
from ottla.sdk.calls.fan_out import (
    RETRY_FOR,
    Reply,
    ask_leaders,
    existing_places,
    known_places,
    left_out,
    place_name,
)
from ottla.sdk.calls.task import Task, mapped
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import LIST_OFFSETS_MAX_TIMESTAMP
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps

Found = dict[TopicPartition, ListedOffset | OttlaError]


def list_offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, ListedOffset]]:
    """The offset at each timestamp (milliseconds, or a special one of ListOffsets).

    Fails, with the reason, if one of them cannot be looked up.
    """

    def work(task: Task[dict[TopicPartition, ListedOffset]]) -> Steps[dict[TopicPartition, ListedOffset]]:
        return (yield from _listed(task, wanted, isolation))

    return Task(core, "ListOffsets", now, work).outcome


def _listed(
    task: Task[Any], wanted: Mapping[TopicPartition, int], isolation: int
) -> Steps[dict[TopicPartition, ListedOffset]]:
    _, gone = yield from known_places(task, wanted)
    for error in gone.values():
        raise error
    found = yield from _look_up(task, wanted, isolation, strict=True)
    return {place: each for place, each in found.items() if not isinstance(each, OttlaError)}


def offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, int]]:
    """The offset at each timestamp; -1 if no record is that recent."""
    found = list_offsets(core, wanted, now, isolation)
    return mapped(found, lambda found: {place: each.offset for place, each in found.items()})


def offsets_at(
    task: Task[Any], wanted: Mapping[TopicPartition, int], isolation: int = 0
) -> Steps[dict[TopicPartition, int]]:
    """As `offsets`, within another call, whose error names the trouble."""
    found = yield from _listed(task, wanted, isolation)
    return {place: each.offset for place, each in found.items()}


def offsets_before(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, int]]:
    """The last offset before each timestamp; -1 if the log begins later, or is empty."""

    def work(task: Task[dict[TopicPartition, int]]) -> Steps[dict[TopicPartition, int]]:
        found, _ = yield from first_or_end(task, wanted, isolation)
        first = yield from offsets_at(task, dict.fromkeys(wanted, EARLIEST))
        return {place: offset - 1 if offset > first[place] else -1 for place, offset in found.items()}

    return Task(core, "ListOffsets", now, work).outcome


def first_or_end(
    task: Task[Any], wanted: Mapping[TopicPartition, int], isolation: int = 0
) -> Steps[tuple[dict[TopicPartition, int], list[TopicPartition]]]:
    """The offset at each timestamp, or the log's end if no record is that recent; and the partitions of the latter."""
    ends = yield from offsets_at(task, dict.fromkeys(wanted, LATEST), isolation)
    found = yield from offsets_at(task, wanted, isolation)
    late = [place for place, offset in found.items() if offset < 0]
    return found | {place: ends[place] for place in late}, late


def reachable_offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[Found]:
    """Like `list_offsets`, with an error in place of each offset that cannot be looked up."""

    def work(task: Task[Found]) -> Steps[Found]:
        there, gone = yield from existing_places(task, wanted)
        retry_for = min(RETRY_FOR, task.timeout / 2)
        asked = {place: wanted[place] for place in there}
        found = yield from _look_up(task, asked, isolation, retry_for=retry_for)
        return {place: gone.get(place) or found[place] for place in wanted}

    return Task(core, "ListOffsets", now, work).outcome


def _look_up(
    task: Task[Any],
    wanted: Mapping[TopicPartition, int],
    isolation: int = 0,
    *,
    strict: bool = False,
    retry_for: float = math.inf,
) -> Steps[Found]:
    """Look up the offset at each timestamp; the other arguments are as in `ask_leaders`."""
    times = dict(wanted)

    def send(node: Node, places: list[TopicPartition]) -> Outcome[tuple[Any, int]]:
        asked = {place: (times[place], -1) for place in places}
        build = partial(requests.list_offsets, asked, isolation, task.core.options.request_timeout)
        return task.request(node, ListOffsetsRequest, build)

    def read(reply: Reply[TopicPartition]) -> Found:
        answer: ListOffsetsResponse = reply.answer
        answered = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        found: Found = {}
        for place in reply.keys:
            each = answered.get(place)
            offset = _offset(place, times[place], each, reply.version) if each else left_out(place)
            if offset is not None:
                found[place] = offset
            else:  # No segment was complete by that time, so the record is at or after the beginning of the log.
                times[place] = EARLIEST
        return found

    return ask_leaders(task, wanted, send, read, strict=strict, retry_for=retry_for)


def _offset(
    place: TopicPartition, timestamp: int, each: ListOffsetsPartitionResponse, version: int
) -> ListedOffset | OttlaError | None:
    """The broker's answer; ``None`` if it knows only segments, and none ended by that time."""
    where = place_name(place)
    if each.error_code:
        return broker_error(each.error_code, where, repeatable=True)
    if timestamp == MAX_TIMESTAMP and version < LIST_OFFSETS_MAX_TIMESTAMP:
        what = "brokers find the record with the largest timestamp since Kafka 3.0"
        return UnsupportedVersion(f"ListOffsets of {where}: {what}")
    if version > 0:
        return ListedOffset(each.offset, each.timestamp, each.leader_epoch)
    if each.old_style_offsets:
        return ListedOffset(each.old_style_offsets[0])
    return ListedOffset(0) if timestamp == EARLIEST else None
