"""Resets a group's offsets: first makes a plan, then, if requested, commits it.

Rules:
- The targets are as in kafka-consumer-groups: earliest, latest, an offset, a time, a shift, the current offsets, and
  offsets from a file. The scope is every partition for which the group has offsets, or topics, or partitions.
- An offset outside the log becomes the nearer end of the log, and the plan notes it, as it does for a time without any
  later record.
- Only a group without members is reset. The reset creates a group that does not exist.

Source: ConsumerGroupCommand.java, resetOffsets, prepareOffsetsToReset, checkOffsetsRange.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import LocalProtocolError
from ottla.late_dataclass import dataclass
from ottla.sdk.admin import CommittedOffset, PlannedOffset, ResetPlan
from ottla.sdk.calls.fan_out import partitions_in
from ottla.sdk.calls.groups import committed_by, committing, refuse_members
from ottla.sdk.calls.offset_lookups import first_or_end, offsets_at
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.reading.fetcher import Offset, Time
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps


@dataclass(frozen=True, slots=True)
class Shift:
    """The committed offset plus ``by`` records; a negative number goes back."""

    by: int


@dataclass(frozen=True, slots=True)
class Current:
    """The committed offset, or the end if there is none."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """An explicit offset for each partition."""

    offsets: Mapping[TopicPartition, int]


Target = Offset | Time | Shift | Current | Exactly
Scope = Iterable[str | TopicPartition] | None
"""Topics and partitions; ``None``: all for which the group has offsets."""


def reset_offsets(
    core: ClientCore, group: str, target: Target, scope: Scope, execute: bool, now: float
) -> Outcome[ResetPlan]:
    """Make a plan, and commit it if ``execute``."""

    def work(task: Task[ResetPlan]) -> Steps[ResetPlan]:
        exists = yield from refuse_members(task, group)
        old = (yield from committed_by(task, {group: None}))[group]
        wanted = target.offsets if isinstance(target, Exactly) else scope
        places = sorted(old) if wanted is None else (yield from partitions_in(task, wanted))
        offsets = yield from planned(task, old, target, places)
        plan = ResetPlan(group, tuple(offsets), new_group=not exists)
        if execute:
            yield from committing(task, group, {(each.topic, each.partition): each.new for each in offsets})
            plan = replace(plan, executed=True)
        return plan

    return Task(core, f"resetting offsets of group {group!r}", now, work).outcome


def planned(
    task: Task[Any], old: Mapping[TopicPartition, CommittedOffset], target: Target, places: list[TopicPartition]
) -> Steps[list[PlannedOffset]]:
    """The new offset of each of ``places``; ``old``: the current ones."""
    notes: dict[TopicPartition, str] = {}
    match target:
        case Time(timestamp=timestamp):
            new, late = yield from first_or_end(task, dict.fromkeys(places, timestamp))
            notes = dict.fromkeys(late, "no record is that recent: the end")
        case Current():
            missing = [place for place in places if place not in old]
            ends = yield from offsets_at(task, dict.fromkeys(missing, LATEST))
            new = {place: old[place].offset if place in old else ends[place] for place in places}
            notes = dict.fromkeys(missing, "nothing was committed: the end")
        case _:
            new = {place: _asked_for(target, place, old.get(place)) for place in places}
            first = yield from offsets_at(task, dict.fromkeys(places, EARLIEST))
            end = yield from offsets_at(task, dict.fromkeys(places, LATEST))
            for place, offset in new.items():
                if offset > end[place]:
                    new[place], notes[place] = end[place], f"{offset} is after the end: the end"
                elif offset < first[place]:
                    new[place], notes[place] = first[place], f"{offset} is before the beginning: the beginning"
    return [
        PlannedOffset(*place, old[place].offset if place in old else None, new[place], notes.get(place, ""))
        for place in places
    ]


def _asked_for(target: Offset | Shift | Exactly, place: TopicPartition, old: CommittedOffset | None) -> int:
    match target:
        case Offset(offset=offset):
            return offset
        case Exactly(offsets=given):
            return given[place]
    if old is None:
        advice = "leave the partition out, or reset it in another way"
        raise LocalProtocolError(f"{place[0]}-{place[1]} cannot be shifted: it has no committed offset ({advice})")
    return old.offset + target.by
