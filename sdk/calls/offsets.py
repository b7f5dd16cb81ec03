"""Offsets of places in partitions: their ends, and the first record at or after a time.

Rules:
- One ListOffsets goes to each leader, and is repeated for the partitions that are still wanting.
- The last offset before a time is the one before the first record at or after it, or before the end where there is
  none: timestamps need not ascend, but all before that offset are older.
- Brokers before 0.10.1 know only where segments begin: what they say for a time lies at or before the record meant.
- A caller that only wants to see what there is (`reachable_offsets`) gets an error in the place of each offset that is
  not known, and waits no longer than `PATIENCE` for a partition that nobody leads.

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
from ottla.errors import (
    LeaderNotAvailable,
    OttlaError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.admin import ListedOffset
from ottla.sdk.calls.call import Task, mapped
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import LIST_OFFSETS_MAX_TIMESTAMP
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.steps import Steps, settled

PATIENCE = 3.0
"""Seconds until `reachable_offsets` does without a partition whose trouble might pass."""

Found = dict[TopicPartition, ListedOffset | OttlaError]


def list_offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, ListedOffset]]:
    """What is at each timestamp (milliseconds, or a special one of ListOffsets).

    Fails where one of them cannot be had, with the reason.
    """

    def work(task: Task[dict[TopicPartition, ListedOffset]]) -> Steps[dict[TopicPartition, ListedOffset]]:
        topics = yield from _known(task, wanted)
        for name, partition in wanted:
            partitions = topics[name].result().partitions
            if partition not in partitions:
                raise no_partition(name, partition, len(partitions))
        look_up = _LookUp(task, wanted, isolation)
        yield from look_up.run(math.inf, strict=True)
        return {place: look_up.found[place] for place in wanted}

    return Task(core, "ListOffsets", now, work).outcome


def offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, int]]:
    """The offset at each timestamp; -1 where no record is so young."""
    found = list_offsets(core, wanted, now, isolation)
    return mapped(found, lambda found: {place: each.offset for place, each in found.items()})


def offsets_before(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, int]]:
    """The last offset before each timestamp; -1 where the log begins later, or is empty."""

    def work(task: Task[dict[TopicPartition, int]]) -> Steps[dict[TopicPartition, int]]:
        found = yield from settled(offsets(core, wanted, task.now, isolation))
        late = {place: LATEST for place, offset in found.items() if offset < 0}
        if late:
            found |= yield from settled(offsets(core, late, task.now, isolation))
        first = yield from settled(offsets(core, dict.fromkeys(wanted, EARLIEST), task.now))
        return {place: offset - 1 if offset > first[place] else -1 for place, offset in found.items()}

    return Task(core, "ListOffsets", now, work).outcome


def reachable_offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[Found]:
    """As `list_offsets`, with an error in the place of each offset that cannot be had."""

    def work(task: Task[Found]) -> Steps[Found]:
        gone: dict[TopicPartition, OttlaError] = {}
        counts = yield from partition_counts(task, _topics(wanted))
        for name, partition in wanted:
            count = counts[name]
            if isinstance(count, OttlaError):
                gone[name, partition] = count
            elif partition >= count:
                gone[name, partition] = no_partition(name, partition, count)
        there = {place: timestamp for place, timestamp in wanted.items() if place not in gone}
        yield from _known(task, there)
        look_up = _LookUp(task, there, isolation)
        yield from look_up.run(task.now + min(PATIENCE, task.timeout / 2), strict=False)
        return {place: gone.get(place) or look_up.failed.get(place) or look_up.found[place] for place in wanted}

    return Task(core, "ListOffsets", now, work).outcome


def partition_counts(task: Task[Any], names: list[str]) -> Steps[dict[str, int | OttlaError]]:
    """How many partitions each topic has at this moment, or the error that is said of it.

    A topic that is just being made is waited for, no longer than `PATIENCE`. (Brokers before 0.11 make a topic when
    somebody asks for it, if that is how they are set.)
    """
    counts: dict[str, int | OttlaError] = {}
    until = task.now + PATIENCE
    while names:
        answer = yield from task.ask_cluster(names)
        counts = {name: UnknownTopicOrPartition(f"topic {name!r} was left out of the answer") for name in names}
        for each in answer.topics:
            error = broker_error(each.error_code, f"topic {each.name!r}") if each.error_code else None
            counts[each.name or ""] = error or len(each.partitions)
        coming = next((each for each in counts.values() if isinstance(each, LeaderNotAvailable)), None)
        if coming is None or task.now >= until:
            break
        yield from task.pause(coming)
    return counts


def _known(task: Task[Any], places: Mapping[TopicPartition, int]) -> Steps[dict[str, Outcome[Topic]]]:
    """The topics of ``places``, once each is known or cannot be; until the call ends their leaders are kept fresh."""
    for name in _topics(places):
        task.outcome.when_done(task.core.metadata.hold(name))
    topics = {name: task.core.metadata.topic(name, task.now) for name in _topics(places)}
    yield all_of(list(topics.values()))
    return topics


def _topics(places: Mapping[TopicPartition, int]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _ in places))


def no_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartition:
    """The error for a partition that a topic of ``count`` partitions does not have."""
    return UnknownTopicOrPartition(f"{topic!r} has partitions 0 to {count - 1}, not {partition}")


class _LookUp:
    """Places and timestamps that are still wanting, what was found, and what never will be."""

    def __init__(self, task: Task[Any], wanted: Mapping[TopicPartition, int], isolation: int) -> None:
        self.task, self.isolation = task, isolation
        self.wanted = dict(wanted)
        self.found: dict[TopicPartition, ListedOffset] = {}
        self.failed: dict[TopicPartition, OttlaError] = {}

    def run(self, until: float, *, strict: bool) -> Steps[None]:
        """Ask until nothing is wanting; troubles that might pass are waited out until ``until``."""
        while self.wanted:
            troubles = yield from self._round()
            for place, error in troubles.items():
                if not error.retriable or self.task.now >= until:
                    if strict:
                        raise error
                    self.failed[place] = error
                    del self.wanted[place]
            if waiting := [error for place, error in troubles.items() if place in self.wanted]:
                self.task.core.metadata.refresh(self.task.now)
                yield from self.task.pause(waiting[0])

    def _round(self) -> Steps[dict[TopicPartition, OttlaError]]:
        """Ask every leader once; the troubles of places that are still wanting."""
        core = self.task.core
        troubles: dict[TopicPartition, OttlaError] = {}
        asked: dict[Node, list[TopicPartition]] = {}
        for place in self.wanted:
            leader = core.cluster.leader(*place)
            if leader is None:
                troubles[place] = core.metadata.why_no_leader(*place)
            else:
                asked.setdefault(leader, []).append(place)
        sent = [(places, self._request(node, places)) for node, places in asked.items()]
        for places, outcome in sent:
            yield outcome
            if outcome.error is not None:
                troubles |= dict.fromkeys(places, outcome.error)
            else:
                troubles |= self._learn(places, *outcome.result())
        return troubles

    def _request(self, node: Node, places: list[TopicPartition]) -> Outcome[tuple[Any, int]]:
        wanted = {place: (self.wanted[place], -1) for place in places}
        build = partial(requests.list_offsets, wanted, self.isolation, self.task.core.options.request_timeout)
        return self.task.request(node, ListOffsetsRequest, build)

    def _learn(
        self, places: list[TopicPartition], answer: ListOffsetsResponse, version: int
    ) -> dict[TopicPartition, OttlaError]:
        """Keep what was found of ``places``; the troubles of the others."""
        answered = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        troubles: dict[TopicPartition, OttlaError] = {}
        for place in places:
            where, each = f"{place[0]}-{place[1]}", answered.get(place)
            if each is None:
                troubles[place] = RemoteProtocolError(f"{where} was left out of the answer to ListOffsets")
            elif each.error_code:
                troubles[place] = broker_error(each.error_code, where)
            elif self.wanted[place] == MAX_TIMESTAMP and version < LIST_OFFSETS_MAX_TIMESTAMP:
                what = "brokers find the record with the largest timestamp since Kafka 3.0"
                troubles[place] = UnsupportedVersion(f"ListOffsets of {where}: {what}")
            elif (offset := self._offset(place, each, version)) is not None:
                self.found[place] = offset
                del self.wanted[place]
        return troubles

    def _offset(self, place: TopicPartition, each: ListOffsetsPartitionResponse, version: int) -> ListedOffset | None:
        """What the broker has found; ``None`` where it must be asked for something else."""
        if version > 0:
            return ListedOffset(each.offset, each.timestamp, each.leader_epoch)
        if each.old_style_offsets:
            return ListedOffset(each.old_style_offsets[0])
        if self.wanted[place] == EARLIEST:
            return ListedOffset(0)
        # No segment was finished by that time: the record meant comes at or after the beginning.
        self.wanted[place] = EARLIEST
        return None
