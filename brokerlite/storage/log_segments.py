"""Reads across the segments of one log.

Rules:
- Damage does not end a log: batches around it are returned, and a read of the damaged or missing ones is refused.
- Each damage is logged once.

Source: LogSegments.java.
"""

import logging
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ottla.brokerlite.machines.partitions.retention import SegmentState
from ottla.brokerlite.storage.log_file import Damage, Damaged
from ottla.brokerlite.storage.segment import Segment, index_of
from ottla.codec.records import RecordBatch
from ottla.codec.stored.indexes import AbortedTxn
from ottla.codec.wire import Part
from ottla.errors import CorruptMessage

log = logging.getLogger("ottla.brokerlite")


class _Place(NamedTuple):
    base_offset: int
    """The base offset of the segment."""
    position: int


class DamageReports:
    """Reports damage in one partition, to the log and to clients.

    Args:
        name: of the partition's folder.

    Attributes:
        last_offset: the highest offset at which there was any; -1: there was none.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[_Place] = set()
        self.last_offset = -1

    def tell(self, segment: Segment, position: int, offset: int) -> None:
        """Log damage to the batch with ``offset``, once."""
        place = _Place(segment.base_offset, position)
        if place not in self._told:
            self._told.add(place)
            self.last_offset = max(self.last_offset, offset)
            said = "%s is damaged: offset %d cannot be read: bad batch at byte %d of %s"
            log.error(said, self._name, offset, position, segment.log_path)

    def error(self, offset: int) -> CorruptMessage:
        """Return the error for a client that reads ``offset``."""
        return CorruptMessage(f"{self._name} is damaged on the broker's disk at offset {offset}; continue after it")


class LogSegments:
    """Keeps the segments of one log in order; every method may raise an `OSError`.

    Args:
        lost: the end offsets of segments after which records are missing, up to the next segment.

    Attributes:
        active: the last segment, to which batches are appended.
    """

    def __init__(self, damage: DamageReports, segments: list[Segment], lost: Collection[int] = ()) -> None:
        self.active = segments[-1]
        self._damage = damage
        self._segments = segments
        self._lost = lost

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def damaged_offset(self) -> int:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.damaged_offset`."""
        return max(self._damage.last_offset, *self._lost, -1)

    # -- changes

    def add(self, segment: Segment) -> None:
        """Make ``segment`` the active one."""
        self._segments.append(segment)
        self.active = segment

    def drop_before(self, offset: int) -> list[Segment]:
        """Drop the segments before the segment with ``offset``, and return them."""
        count = self._index(offset)
        gone = self._segments[:count]
        del self._segments[:count]
        return gone

    def replace(self, old: list[Segment], new: Segment) -> bool:
        """Replace adjacent segments if all of them are still there and none is followed by lost records."""
        if old[0] not in self._segments or any(segment.end_offset in self._lost for segment in old):
            return False
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != old:
            return False
        new.ends_before(self._segments[at + len(old)].base_offset)
        self._segments[at : at + len(old)] = [new]
        return True

    # -- content

    @property
    def sealed(self) -> list[Segment]:
        """All segments but the active one."""
        return self._segments[:-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def max_timestamp(self) -> int:
        return max(segment.max_timestamp for segment in self._segments)

    def at(self, offset: int) -> Segment:
        """Return the segment that contains ``offset``."""
        return self._segments[self._index(offset)]

    def states(self, *, first_timestamps: bool = False) -> list[SegmentState]:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.states`."""
        states = [segment.state(first_timestamp=first_timestamps) for segment in self._segments]
        for i, follower in enumerate(self._segments[1:]):
            if states[i].end_offset != follower.base_offset:  # records lost at its end expire with the segment
                states[i] = states[i]._replace(end_offset=follower.base_offset)
        return states

    def _index(self, offset: int) -> int:
        return index_of(self._segments, offset)

    # -- reads

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> Part:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.read`."""
        for segment in self._segments[self._index(offset) :]:
            try:
                data = segment.read(offset, max_bytes, at_least_one, up_to)
            except Damaged as damaged:
                self._damage.tell(segment, damaged.position, offset)
                raise self._damage.error(offset) from None
            if data is not None:
                return data
            if segment.end_offset in self._lost:
                raise self._damage.error(offset)
        return b""

    def batches(self) -> Iterator[RecordBatch]:
        for segment in self._segments:
            yield from self._intact(segment, segment.around())

    def batches_since(self, timestamp: int) -> Iterator[RecordBatch]:
        for segment in self._segments:
            yield from self._intact(segment, segment.since(timestamp))

    def _intact(self, segment: Segment, found: Iterator[tuple[int, RecordBatch | Damage]]) -> Iterator[RecordBatch]:
        for position, each in found:
            if isinstance(each, RecordBatch):
                yield each
            else:
                self._damage.tell(segment, position, each.offset)

    def aborted(self, first_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.aborted`."""
        found: list[AbortedTxn] = []
        for segment in self._segments[self._index(first_offset) :]:
            for entry in segment.txn_index.since(first_offset):
                if entry.first_offset < upper_bound:
                    found.append(entry)
                if entry.last_stable_offset >= upper_bound:
                    return found
        return found

    def bound(self, offset: int, size: int) -> int:
        """See `ottla.brokerlite.machines.partitions.partition_log.Segments.bound`."""
        for segment in self._segments[self._index(offset) :]:
            if segment.end_offset > offset:  # `read` takes the records from this segment
                return segment.bound(offset, size)
        return self.active.end_offset
