"""Reads offset ranges of many partitions together with one `Fetcher`, each range up to its end.

Rules:
- A partition's ranges are read one after the other, and nothing after the last one.
- A range that cannot be read is reported once, as `LostRange`; the caller says where to resume, or gives up.
- A range is bound to its topic's id: if the topic was recreated, the range is lost.
- On a new leader, the high watermark may lag behind for a moment. So if a log seems to end before the range does, the
  reader sends ListOffsets, which brokers refuse to answer during that moment (KIP-207).
- The ranges of a deleted topic are lost as soon as `Metadata.topic` fails; the fetcher would take longer.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from ottla.codec.apis.list_offsets import LATEST
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    BrokerUnreachable,
    DataLoss,
    LocalProtocolError,
    OffsetOutOfRange,
    OttlaError,
    TimeoutExpired,
    UnknownTopicOrPartition,
)
from ottla.late_dataclass import dataclass
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import Topic, TopicPartition, is_another
from ottla.sdk.consume.partitions.position import Offset
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED, AnyBatch
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome, any_of

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition from ``start`` up to, but not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: "UUID" = NO_UUID
    """The id of the topic to which the offsets belong; `NO_UUID`: unknown."""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    def __len__(self) -> int:
        """The number of offsets, which is the maximum number of records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Taken:
    """The batches of a range from one response.

    The first batch may begin before the range, and the last may end after it, so the caller has to trim them. Offsets
    may be missing (compaction, transactions).
    """

    range: OffsetRange
    batches: list[AnyBatch]


@dataclass(frozen=True, slots=True)
class LostRange:
    """A range that cannot be read from ``offset`` on; `RangeReader.go_on` resumes or ends it."""

    range: OffsetRange
    offset: int
    error: OttlaError
    """`OffsetOutOfRange`, `UnknownTopicOrPartition` or `DataLoss`."""


_LOSS = (OffsetOutOfRange, UnknownTopicOrPartition, DataLoss)


class RangeReader:
    """Reads ``ranges``, and hands out batches in the order of their arrival."""

    def __init__(self, core: ClientCore, ranges: Iterable[OffsetRange], *, isolation: int = READ_UNCOMMITTED) -> None:
        self._core, self._isolation = core, isolation
        self._fetcher = Fetcher(core, isolation=isolation)
        self._ranges: dict[TopicPartition, deque[OffsetRange]] = {}
        """The remaining ranges of each partition; the first is being read."""
        self._lost: dict[TopicPartition, LostRange] = {}
        """Lost ranges that the caller has not resumed or ended; their partitions are not read."""
        self._to_tell: deque[LostRange] = deque()
        self._topics: dict[str, Outcome[Topic]] = {}
        """Topic lookups in flight."""
        self._asked_again: set[str] = set()
        """Topics that looked recreated or too small, and were looked up a second time."""
        self._ends: dict[TopicPartition, tuple[int, Outcome[dict[TopicPartition, int]]]] = {}
        """Lookups of log ends, each with the high watermark that made it necessary."""
        self._waiting: tuple[float, int] | None = None
        """Since when no batch was taken, and the sum of all positions then. Positions also advance over records that
        the reader may not see."""
        for each in ranges:
            if each.start < each.end:
                self._ranges.setdefault(each.place, deque()).append(each)
        for topic in {topic for topic, _ in self._ranges}:
            self._look_up(topic, fresh=False)

    @property
    def done(self) -> bool:
        """Whether every range was read to its end, or was given up."""
        return not self._ranges

    def take(self) -> Taken | LostRange | None:
        """The next batches or lost range; ``None``: there is none yet, so call `wait`.

        Raises:
            TimeoutExpired: there was no progress for `api_timeout`.
            OttlaError: a range cannot be read any further, for another reason than loss.
        """
        self._learn()
        if self._to_tell:
            return self._to_tell.popleft()
        try:
            fetched = self._fetcher.take()
        except _LOSS as error:
            place = next(place for place, each in self._fetcher.failed.items() if each is error)
            self._lose(place, error)
            return self._to_tell.popleft()
        if fetched is None:
            self._look_after_all()
            if not (self._to_tell or self.done):
                self._wait_no_longer_than_allowed()
            return self._to_tell.popleft() if self._to_tell else None
        self._waiting = None
        place = fetched.topic, fetched.partition
        taken = self._ranges[place][0]
        if fetched.next_offset >= taken.end:
            self._next_range(place)
        return Taken(taken, [batch for batch in fetched.batches if batch.base_offset < taken.end])

    def wait(self) -> Outcome[None]:
        """Settled when `take` will return or raise something, perhaps earlier."""
        ends = (outcome for _, outcome in self._ends.values() if not outcome.done)
        return any_of([self._fetcher.wait(), *self._topics.values(), *ends])

    def go_on(self, lost: LostRange, offset: int) -> None:
        """Resume the lost range at ``offset``, or end it if ``offset`` is its end or later.

        Raises:
            LocalProtocolError: ``offset`` is not after the lost offset, so the range would be lost again.
        """
        if offset <= lost.offset:
            raise LocalProtocolError(f"offset {offset} is not after {lost.offset}, where the range was lost")
        place = lost.range.place
        del self._lost[place]
        if offset >= lost.range.end:
            self._next_range(place)
        else:
            self._ranges[place][0] = replace(lost.range, start=offset)
            self._read(place)

    def close(self) -> None:
        self._fetcher.close()

    # -- ranges -------------------------------------------------------------------------------------------------------

    def _read(self, place: TopicPartition) -> None:
        wanted = self._ranges[place][0]
        self._fetcher.assign({place: Offset(wanted.start)}, self._core.now, {place: wanted.end})

    def _next_range(self, place: TopicPartition) -> None:
        """End a range, and begin the partition's next one."""
        self._ends.pop(place, None)
        self._ranges[place].popleft()
        if self._ranges[place]:
            self._read(place)
        else:
            del self._ranges[place]
            self._fetcher.unassign([place])

    def _lose(self, place: TopicPartition, error: OttlaError) -> None:
        wanted = self._ranges[place][0]
        offset = self._fetcher.position(place) if place in self._fetcher.places else None
        self._fetcher.unassign([place])
        self._ends.pop(place, None)
        self._lost[place] = LostRange(wanted, wanted.start if offset is None else offset, error)
        self._to_tell.append(self._lost[place])

    def _places_of(self, topic: str) -> Iterator[TopicPartition]:
        """The topic's partitions that have ranges and are not lost."""
        return (place for place in list(self._ranges) if place[0] == topic and place not in self._lost)

    # -- topics -------------------------------------------------------------------------------------------------------

    def _look_up(self, topic: str, *, fresh: bool) -> None:
        self._topics[topic] = self._core.metadata.topic(topic, self._core.now, fresh=fresh)

    def _learn(self) -> None:
        """Process lookups that have ended."""
        for topic, found in [(topic, found) for topic, found in self._topics.items() if found.done]:
            del self._topics[topic]
            if isinstance(found.error, _LOSS):
                for place in self._places_of(topic):
                    self._lose(place, found.error)
            elif isinstance(found.error, BrokerUnreachable):  # within the same limit as the records
                raise self._nothing_came(str(found.error)) from found.error
            else:
                self._learn_topic(found.result())
        for place, (_, ends) in [(place, each) for place, each in self._ends.items() if each[1].done]:
            if ends.error is None:
                self._learn_end(place, ends.result()[place])
            else:  # the fetcher will get the same error
                del self._ends[place]

    def _learn_topic(self, topic: Topic) -> None:
        for place in self._places_of(topic.name):
            wanted = self._ranges[place][0]
            recreated = is_another(wanted.topic_id, topic.topic_id)
            missing = place[1] not in topic.partitions
            if (recreated or missing) and topic.name not in self._asked_again:
                self._asked_again.add(topic.name)  # the first metadata may be older than the range
                self._look_up(topic.name, fresh=True)
                return
            if recreated:
                self._lose(place, DataLoss(f"topic {topic.name} was deleted and recreated"))
            elif missing:
                self._lose(place, UnknownTopicOrPartition(told=f"{topic.name} has {len(topic.partitions)} partitions"))
            elif place not in self._fetcher.places:
                self._read(place)

    # -- no progress --------------------------------------------------------------------------------------------------

    def _look_after_all(self) -> None:
        """Without new batches, check which ranges have ended, and which may be lost."""
        topics = self._core.cluster.topics
        for place in list(self._ranges):
            if place not in self._fetcher.places:
                continue
            position, wanted = self._fetcher.position(place), self._ranges[place][0]
            # The last records of the range may be hidden from the reader, so that no batch reached its end.
            if position is not None and position >= wanted.end:
                self._next_range(place)
            elif place[0] not in topics:
                if place[0] not in self._topics:
                    self._look_up(place[0], fresh=True)
            elif position is not None:
                self._look_at_end(place, position, wanted)

    def _look_at_end(self, place: TopicPartition, position: int, wanted: OffsetRange) -> None:
        """Ask where the log ends, if it seems to end before the range does."""
        high_watermark = self._fetcher.high_watermark(place)
        readable = self._fetcher.last_stable_offset(place) if self._isolation == READ_COMMITTED else None
        if high_watermark is None or high_watermark >= wanted.end:
            return
        asked = self._ends.get(place)
        if position < (high_watermark if readable is None else readable) or (asked and asked[0] == high_watermark):
            return
        self._ends[place] = high_watermark, calls.offsets(self._core, {place: LATEST}, self._core.now)

    def _learn_end(self, place: TopicPartition, end: int) -> None:
        if end < self._ranges[place][0].end:
            self._lose(place, DataLoss(f"the log of {place[0]}-{place[1]} ends at offset {end}"))

    def _wait_no_longer_than_allowed(self) -> None:
        now, timeout = self._core.now, self._core.options.api_timeout
        reached = sum(self._fetcher.position(place) or 0 for place in self._fetcher.assignment)
        if self._waiting is None or self._waiting[1] != reached:
            self._waiting = now, reached
        if now - self._waiting[0] > timeout:
            # Without metadata the fetcher waits for nothing.
            waits = [*islice(self._fetcher.explain(now), 3)] or islice(self._core.explain(now), 3)
            raise self._nothing_came("; ".join(waits))

    def _nothing_came(self, why: str) -> TimeoutExpired:
        assigned = [(place, self._fetcher.position(place)) for place in islice(self._fetcher.assignment, 3)]
        # A partition is not assigned to the fetcher while its topic is looked up.
        places = assigned or [(place, each[0].start) for place, each in islice(self._ranges.items(), 3)]
        where = ", ".join(f"{t}-{p} at offset {at}, wanted up to {self._ranges[t, p][0].end}" for (t, p), at in places)
        timeout = self._core.options.api_timeout
        return TimeoutExpired(f"{where}: no records for {timeout:g} s{f' ({why})' if why else ''}")
