"""Ranges of offsets of many partitions, read together by one `Fetcher`, each up to its end.

Rules:
- A partition is read while it has a range to be read: its ranges one after the other, and nothing behind them.
- What cannot be read is `Lost`, once for each range; the caller says where to go on, or gives up.
- A range is bound to its topic's id: a later topic of the same name is another topic, and the range is lost.
- A high watermark may stay behind for a moment on a new leader. So where a log seems to end before the range does,
  ListOffsets is asked, which brokers refuse to answer as long as that is so (KIP-207).
- A topic that is deleted is lost as soon as `Metadata.topic` gives it up, not when the fetcher does.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from ottla.codec.apis.list_offsets import LATEST
from ottla.codec.wire import NO_UUID
from ottla.errors import (
    DataLoss,
    LocalProtocolError,
    OffsetOutOfRange,
    OttlaError,
    TimeoutExpired,
    UnknownTopicOrPartition,
)
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.consume.fetcher import Fetcher
from ottla.sdk.consume.positions import Offset
from ottla.sdk.consume.record_sets import READ_COMMITTED, READ_UNCOMMITTED, AnyBatch
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome, any_of

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``start`` up to, not including, ``end`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: "UUID" = NO_UUID
    """Of the topic that the offsets are of; `NO_UUID` where it is not known."""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    def __len__(self) -> int:
        """Offsets, which is the most records there can be."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Taken:
    """What one answer held of a range.

    The first batch may begin before the range and the last end behind it: trim. Offsets may be missing (compaction,
    transactions).
    """

    range: OffsetRange
    batches: list[AnyBatch]


@dataclass(frozen=True, slots=True)
class Lost:
    """A range cannot be read from ``offset`` on: `RangeReader.go_on` says what becomes of it."""

    range: OffsetRange
    offset: int
    error: OttlaError
    """`OffsetOutOfRange`, `UnknownTopicOrPartition` or `DataLoss`."""


_LOSS = (OffsetOutOfRange, UnknownTopicOrPartition, DataLoss)


class RangeReader:
    """Reads ``ranges``; what comes first is handed out first."""

    def __init__(self, core: ClientCore, ranges: Iterable[OffsetRange], *, isolation: int = READ_UNCOMMITTED) -> None:
        self._core, self._isolation = core, isolation
        self._fetcher = Fetcher(core, isolation=isolation)
        self._ranges: dict[TopicPartition, deque[OffsetRange]] = {}
        """What is still to be read of each partition; the first is being read."""
        self._lost: dict[TopicPartition, Lost] = {}
        """Handed out or about to be; nothing is read there."""
        self._to_tell: deque[Lost] = deque()
        self._topics: dict[str, Outcome[Topic]] = {}
        """Look-ups of topics that are under way."""
        self._asked_again: set[str] = set()
        """Topics that turned out to be others, and were looked up once more."""
        self._ends: dict[TopicPartition, tuple[int, Outcome[dict[TopicPartition, int]]]] = {}
        """Look-ups of the ends of logs, each with the high watermark that made it necessary."""
        self._waiting: tuple[float, int] | None = None
        """Since when nothing came, and the sum of all positions then: a reader may go on over what it does not see."""
        for each in ranges:
            if each.start < each.end:
                self._ranges.setdefault(each.place, deque()).append(each)
        for topic in {topic for topic, _ in self._ranges}:
            self._look_up(topic, fresh=False)

    @property
    def done(self) -> bool:
        """Every range has been read to its end, or was given up."""
        return not self._ranges

    def take(self) -> Taken | Lost | None:
        """What has come, or is lost; ``None``: `wait`.

        Raises:
            TimeoutExpired: reading did not go on for `api_timeout`.
            OttlaError: reading goes no further, for another reason than loss.
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
        """Settled when `take` has something to say, perhaps earlier."""
        ends = (outcome for _, outcome in self._ends.values() if not outcome.done)
        return any_of([self._fetcher.wait(), *self._topics.values(), *ends])

    def go_on(self, lost: Lost, offset: int) -> None:
        """Read the range on from ``offset``; leave it there, if that is its end or lies behind.

        Raises:
            LocalProtocolError: ``offset`` does not lie behind that of ``lost``, which would be lost again.
        """
        if offset <= lost.offset:
            raise LocalProtocolError(f"offset {offset} does not lie behind {lost.offset}, where the range was lost")
        place = lost.range.place
        del self._lost[place]
        if offset >= lost.range.end:
            self._next_range(place)
        else:
            self._ranges[place][0] = replace(lost.range, start=offset)
            self._read(place)

    def close(self) -> None:
        self._fetcher.close()

    # -- what is read -------------------------------------------------------------------------------------------------

    def _read(self, place: TopicPartition) -> None:
        wanted = self._ranges[place][0]
        self._fetcher.assign({place: Offset(wanted.start)}, self._core.now, {place: wanted.end})

    def _next_range(self, place: TopicPartition) -> None:
        """A range is done with."""
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
        self._lost[place] = Lost(wanted, wanted.start if offset is None else offset, error)
        self._to_tell.append(self._lost[place])

    def _places_of(self, topic: str) -> Iterator[TopicPartition]:
        """Where ranges of the topic are being read, or are to be read once it is known."""
        return (place for place in list(self._ranges) if place[0] == topic and place not in self._lost)

    # -- topics -------------------------------------------------------------------------------------------------------

    def _look_up(self, topic: str, *, fresh: bool) -> None:
        self._topics[topic] = self._core.metadata.topic(topic, self._core.now, fresh=fresh)

    def _learn(self) -> None:
        """See what look-ups have found."""
        for topic, found in [(topic, found) for topic, found in self._topics.items() if found.done]:
            del self._topics[topic]
            if isinstance(found.error, _LOSS):
                for place in self._places_of(topic):
                    self._lose(place, found.error)
            else:
                self._learn_topic(found.result())
        for place, (_, ends) in [(place, each) for place, each in self._ends.items() if each[1].done]:
            if ends.error is None:
                self._learn_end(place, ends.result()[place])
            else:  # the fetcher will meet the same trouble
                del self._ends[place]

    def _learn_topic(self, topic: Topic) -> None:
        for place in self._places_of(topic.name):
            wanted = self._ranges[place][0]
            recreated = NO_UUID not in (wanted.topic_id, topic.topic_id) and wanted.topic_id != topic.topic_id
            missing = place[1] not in topic.partitions
            if (recreated or missing) and topic.name not in self._asked_again:
                self._asked_again.add(topic.name)  # the metadata may be older than the range
                self._look_up(topic.name, fresh=True)
                return
            if recreated:
                self._lose(place, DataLoss(f"topic {topic.name} was deleted and recreated"))
            elif missing:
                self._lose(place, UnknownTopicOrPartition(f"{topic.name} has {len(topic.partitions)} partitions"))
            elif place not in self._fetcher.places:
                self._read(place)

    # -- what takes long ----------------------------------------------------------------------------------------------

    def _look_after_all(self) -> None:
        """Nothing has come: see which ranges are done with, and which may be lost."""
        topics = self._core.cluster.topics
        for place in list(self._ranges):
            if place not in self._fetcher.places:
                continue
            position, wanted = self._fetcher.position(place), self._ranges[place][0]
            if position is not None and position >= wanted.end:  # over what the reader may not see
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
        if now - self._waiting[0] <= timeout:
            return
        assigned = [(place, self._fetcher.position(place)) for place in islice(self._fetcher.assignment, 3)]
        # None is assigned while its topic is looked up.
        places = assigned or [(place, each[0].start) for place, each in islice(self._ranges.items(), 3)]
        where = ", ".join(f"{t}-{p} at offset {at}, wanted up to {self._ranges[t, p][0].end}" for (t, p), at in places)
        why = "; ".join(islice(self._fetcher.explain(now), 3))
        raise TimeoutExpired(f"{where}: nothing came for {timeout:g} s{f' ({why})' if why else ''}")
