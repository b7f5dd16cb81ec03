"""A consumer's positions: one `Position` for each assigned partition, with the batches fetched for it.

    RESOLVING ── ListOffsets ──────────────► FETCHING ── records ──► (buffered) ── take ──► the user
        ▲                                    │   ▲  │
        │                 a new leader epoch ▼   │  │
        │                             VALIDATING ┘  │
        │                                 │         │
        └── reset by policy ── truncated ─┴─────────┴── OFFSET_OUT_OF_RANGE, truncated ── no policy ──► FAILED
                                                                               (raised once, until a seek)

Rules:
- Two offsets per partition: `fetch_offset`, where the next Fetch reads, and `position`, the next record for the user.
- Each has the leader epoch of the record before it, to check that a later leader has the same log (KIP-320).
- `seeks` counts the events that make requests in flight obsolete; responses to older requests are ignored.
- An error at `fetch_offset` is raised once the user has taken the records before it.
- A few bytes may decompress to many, so a response is handed out in parts of at most `fetch_batch_memory` bytes. It is
  not refused: ordinary records, too, may be compressed to a thousandth.

Source: SubscriptionState.java, CompletedFetch.java.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.columns import Columns
from ottla.codec.compression import DECOMPRESSED_LIMIT
from ottla.codec.records import BEYOND, Record, RecordBatch, Records, read_columns
from ottla.codec.wire import NO_UUID
from ottla.errors import DecodeError, MemoryLimitExceeded, OttlaError
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, AnyBatch, about, sound

if TYPE_CHECKING:
    from uuid import UUID

NO_NODE = -1
"""In place of a node's id."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Start at this offset."""

    offset: int
    leader_epoch: int = -1
    """The leader epoch of the record before, from a commit, to detect a truncated log (KIP-320); -1: unknown."""


@dataclass(frozen=True, slots=True)
class Time:
    """Start at the first record of this time or later: milliseconds since 1970, or `EARLIEST` or `LATEST`."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class Ago:
    """Start at the first record that is not older than this when the position is looked up; seconds (KIP-1106)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NoStart:
    """Do not start: there is no committed offset, and no policy that says where to start."""

    why: str


Start = Offset | Time | Ago | NoStart


class PositionState(Enum):
    RESOLVING = auto()
    VALIDATING = auto()
    FETCHING = auto()
    FAILED = auto()


@dataclass(slots=True)
class Fetched:
    """The batches of one partition in a Fetch response, or a part of them."""

    topic: str
    partition: int
    first_offset: int
    """Records before this offset were not asked for."""
    batches: list[AnyBatch]
    high_watermark: int
    next_offset: int
    """The offset after these records, and after records skipped behind them: the offset to commit."""
    leader_epoch: int
    """The leader epoch of the record before `next_offset`; the commit contains it; -1: unknown."""
    size: int = 0
    """Bytes on the wire."""
    memory: int = DECOMPRESSED_LIMIT
    """Limit in bytes for all batches together once they are decompressed; a single batch may take as many."""
    cut: Records | None = None
    """The part of the only batch that this object stands for, if the batch was too large to be handed out at once."""
    checked: bool = False
    """All checksums were compared and are right."""
    damaged: bool = False
    """At least one batch failed its checksum."""
    fits: bool = False
    """This may be handed out as it is: `split` would not divide it."""
    count: int = field(init=False)
    """The number of records that is known without decompressing: a message from before Kafka 0.11 counts as one."""

    def __post_init__(self) -> None:
        batches = sum(max(each.count, 0) if isinstance(each, RecordBatch) else 1 for each in self.batches)
        self.count = batches if self.cut is None else len(self.cut)

    def split(self, most: int | None = None) -> list["Fetched"]:
        """Divide this into parts that take at most `memory` bytes each once they are decompressed.

        A part has at least one batch, and whole batches only. A damaged batch is not divided: the damage is found when
        its records are used.

        Args:
            most: the maximum number of records per part. The first part is also divided within its only batch if that
                has more. For the other parts this is done in their turn, because it decompresses the batch.
        """
        ends: list[int] = []
        if len(self.batches) > 1:
            begin = memory = count = 0
            for index, batch in enumerate(self.batches):
                bound, records = batch.memory_bound, 0 if most is None else _records_in(batch)
                memory, count = memory + bound, count + records
                if index > begin and (memory > self.memory or (most is not None and count > most)):
                    ends.append(index)
                    begin, memory, count = index, bound, records
        parts = self._split_at(ends) if ends else [self]
        first = parts[0]
        if most is not None and len(first.batches) == 1:
            count = len(first.cut) if first.cut is not None else _records_in(first.batches[0])
            if count > most:
                parts[:1] = first._cut_at(most)
        return parts

    def _end_with(self, batch: AnyBatch) -> None:
        """Commit the offset after ``batch``, with its leader epoch: the batch is the last here, or was skipped."""
        self.next_offset, self.leader_epoch = batch.next_offset, _epoch_of(batch)

    def _split_at(self, ends: list[int]) -> list["Fetched"]:
        """Divide this before the batches with these indices."""
        parts: list[Fetched] = []
        first_offset, start, done = self.first_offset, 0, 0
        for end in [*ends, len(self.batches)]:
            batches, size = self.batches[start:end], self.size * end // len(self.batches)
            part = replace(self, first_offset=first_offset, batches=batches, size=size - done)
            if end < len(self.batches):
                part._end_with(batches[-1])
            part.fits = len(batches) > 1  # a single batch may have to be cut
            parts.append(part)
            first_offset, start, done = part.next_offset, end, size
        return parts

    def _cut_at(self, most: int) -> list["Fetched"]:
        """Divide this in two within its only batch, if that has more records than ``most``."""
        try:
            [records] = self.parts()
        except DecodeError:
            return [self]
        if len(records) <= most:
            return [self]
        following, size = records[most].offset, self.size * most // len(records)
        first, rest = records.between(-BEYOND, following), records.between(following, BEYOND)
        epoch = _epoch_of(self.batches[0])
        begin = replace(self, next_offset=following, leader_epoch=epoch, size=size, cut=first)
        return [begin, replace(self, first_offset=following, size=self.size - size, cut=rest)]

    def can_wait(self, partitions: int) -> bool:
        """Whether other partitions may come first: no batch is open here, or there is memory for one per partition."""
        return self.cut is None or self.can_be_cut(partitions)

    def can_be_cut(self, partitions: int) -> bool:
        """Whether `memory` suffices if ``partitions`` partitions decompress a batch like the first one here."""
        return self.batches[0].memory_bound * partitions <= self.memory

    def parts(self) -> list[Records]:
        """The requested records of each batch, decompressed and checked, but not decoded.

        Raises:
            DecodeError: a batch is damaged; the error says which.
            MemoryLimitExceeded: the only batch takes more than `memory`.
        """
        if self.cut is not None:
            return [self.cut]
        try:
            return [batch.records(self.memory).between(self.first_offset, BEYOND) for batch in self.batches]
        except DecodeError as error:
            raise self._here(error) from None

    def records(self) -> list[Record]:
        """The requested records, decoded; raises as `parts`."""
        return list(chain.from_iterable(self.parts()))

    def columns(self) -> Columns:
        """The requested records as columns, without creating an object per record; raises as `parts`."""
        batches = [each for each in self.batches if isinstance(each, RecordBatch)]
        if len(batches) < len(self.batches) or self.cut is not None:  # messages from before Kafka 0.11, or a part
            return Columns.of(self.parts())
        try:
            return read_columns(batches, self.first_offset, self.memory)
        except DecodeError as error:
            raise self._here(error) from None

    def _here(self, error: DecodeError) -> DecodeError:
        error.within = f"{self.topic}-{self.partition}, {error.within}"
        if isinstance(error, MemoryLimitExceeded):
            error.reason += f"; raise fetch_batch_memory, an option of connect, or seek to offset {self.next_offset}"
        return error

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())


def _records_in(batch: AnyBatch) -> int:
    """An upper bound of the number of requested records in the batch."""
    if isinstance(batch, RecordBatch):
        return batch.count
    try:
        return len(batch.records())
    except DecodeError:
        return 1


def _epoch_of(batch: AnyBatch) -> int:
    """The leader epoch of the batch; -1: unknown."""
    return batch.partition_leader_epoch if isinstance(batch, RecordBatch) else -1


class Led(NamedTuple):
    """A partition's leader according to the metadata."""

    node: int
    epoch: int
    """-1: unknown."""
    incarnation: int
    """`Topic.incarnation`. For topics without ids it may change although the topic is the same."""
    topic_id: "UUID"


@dataclass(slots=True, eq=False)
class Position:
    """The state of one assigned partition."""

    place: TopicPartition
    start: Start
    state: PositionState = PositionState.RESOLVING
    fetch_offset: int = -1
    fetch_epoch: int = -1
    """Leader epoch of the record before `fetch_offset`; -1: unknown."""
    position: int = -1
    position_epoch: int = -1
    leader_epoch: int = -1
    """The leader epoch for which `fetch_offset` was validated."""
    incarnation: int = -1
    """The topic's incarnation for which `fetch_offset` was validated."""
    topic_id: "UUID" = NO_UUID
    """The id of the topic to which the offsets belong; a recreated topic has another."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    end: int = BEYOND
    """The offset at which fetching stops."""
    paused: bool = False
    buffer: deque[Fetched] = field(default_factory=deque)
    buffered: int = 0
    """Bytes."""
    seeks: int = 0
    asking: bool = False
    """A ListOffsets or OffsetForLeaderEpoch request is in flight, or a metadata request that confirms an error."""
    stuck: bool = False
    """There is an error at `fetch_offset`, to be handled once the buffer is empty."""
    led: Led | None = None
    """The leader at the last review."""
    end_before: tuple[Led | None, int] | None = None
    """The leader and the end of its log, requested before the lookup of a timestamp; ``None``: not known yet."""
    node: int = NO_NODE
    """The node that is asked for records."""
    priority: bool = False
    """The user sought here, so the first Fetch must not wait until the broker answers an earlier one."""
    replica: int = NO_NODE
    """The replica that the leader recommends instead of itself (KIP-392), until `replica_until`."""
    replica_until: float = -math.inf
    needs: int = 0
    """The size of the next batch in bytes, if it arrived truncated."""
    trouble: OttlaError | None = None
    unraised: bool = False
    """The state is FAILED, and the error is not raised yet."""
    failures: int = 0
    failing_since: float = math.nan
    unknown_since: float = math.nan
    """The time since which every response has said that the partition does not exist."""
    retry_at: float = -math.inf

    def go(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at ``offset``, and drop the buffer."""
        self.drop()
        self.state = PositionState.FETCHING
        self.fetch_offset = self.position = offset
        self.fetch_epoch = self.position_epoch = leader_epoch
        self.leader_epoch = self.incarnation = -1

    def vouched(self, led: Led) -> None:
        """Mark the position as valid for this leader, whose log matches the records that were read."""
        self.state, self.leader_epoch, self.incarnation = PositionState.FETCHING, led.epoch, led.incarnation

    def drop(self) -> None:
        """Drop the buffer, and ignore responses to requests in flight."""
        self.buffer.clear()
        self.buffered, self.stuck, self.asking, self.needs = 0, False, False, 0
        self.seeks += 1

    def add(
        self, batches: list[AnyBatch], visible: list[AnyBatch], size: int, memory: int = DECOMPRESSED_LIMIT
    ) -> Fetched | None:
        """Buffer batches that start at `fetch_offset`; return the new entry, or ``None`` if the user may see none.

        Args:
            batches: all batches.
            visible: the batches that the user may see.
        """
        first, last = self.fetch_offset, batches[-1]
        self.fetch_offset = last.next_offset
        self.fetch_epoch = _epoch_of(last)
        if visible:
            following, epoch = self.fetch_offset, self.fetch_epoch
            fetched = Fetched(*self.place, first, visible, self.high_watermark, following, epoch, size, memory)
            self.buffer.append(fetched)
            self.buffered += size
            return fetched
        if self.buffer:
            self.buffer[-1]._end_with(last)
        else:
            self.position, self.position_epoch = self.fetch_offset, self.fetch_epoch
        return None

    def check(self, isolation: int) -> OttlaError | None:
        """Compare the next entry's checksums; cut it before the first damaged batch, and return the damage."""
        fetched = self.buffer[0]
        if fetched.checked:
            return None
        good, damage = sound(fetched.batches, isolation)
        fetched.checked = damage is None
        if damage is not None:
            following, epoch = self.position, self.position_epoch
            if good:
                following, epoch = good[-1].next_offset, _epoch_of(good[-1])
            self.buffer[0] = replace(fetched, batches=good, next_offset=following, leader_epoch=epoch)
        return damage

    def is_sound_at(self, index: int, isolation: int) -> bool:
        """Whether all checksums of this buffer entry are right."""
        fetched = self.buffer[index]
        if not (fetched.checked or fetched.damaged):
            fetched.checked = sound(fetched.batches, isolation)[1] is None
            fetched.damaged = not fetched.checked
        return fetched.checked

    def is_sound(self, isolation: int) -> bool:
        """Whether all checksums in the buffer are right."""
        return not any(sound(each.batches, isolation)[1] for each in self.buffer)

    def rewind(self) -> None:
        """Drop the buffer, and fetch again from where the user is."""
        self.drop()
        self.fetch_offset, self.fetch_epoch = self.position, self.position_epoch

    def parted(self, index: int, most: int | None) -> Fetched:
        """The buffer entry at ``index``, split so that it may be handed out: at most ``most`` records."""
        fetched = self.buffer[index]
        if not fetched.fits:
            fetched, *rest = fetched.split(most)
            fetched.fits = True
            self.buffer[index] = fetched
            for each in reversed(rest):
                self.buffer.insert(index + 1, each)
        return fetched

    def take(self, most: int | None = None) -> Fetched:
        """Take the next entry from the buffer, at most ``most`` records if that is given."""
        fetched = self.parted(0, most)
        del self.buffer[0]
        self.buffered -= fetched.size
        self.position, self.position_epoch = fetched.next_offset, fetched.leader_epoch
        return fetched

    def recovered(self) -> None:
        """Clear the failure state after a good response."""
        self.trouble, self.failures, self.failing_since, self.retry_at = None, 0, math.nan, -math.inf
        self.unknown_since, self.unraised = math.nan, False

    def about(self, error: OttlaError) -> OttlaError:
        """Add the partition and the fetch offset to an error."""
        return about(self.place, self.fetch_offset, error)

    def lag(self, isolation: int) -> int | None:
        """The number of readable offsets from the position on; ``None``: unknown."""
        end = self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark
        return max(0, end - self.position) if end >= 0 and self.position >= 0 else None


_DOING = {
    PositionState.RESOLVING: "looking up where to begin",
    PositionState.VALIDATING: "asking the leader whether it has what was read",
    PositionState.FETCHING: "fetching",
}
_CONFIRMING = "checking which node leads it now, because the leader does not have the position"
_NAMED = 3
"""The number of partitions that a line names; the others are counted."""


def troubles(positions: Iterable[Position], now: float) -> Iterator[str]:
    """Lines for people about what partitions wait for: one line for all that wait for the same."""
    groups: dict[tuple[str, str], list[Position]] = {}
    for each in positions:
        confirming = each.state is PositionState.FETCHING and each.asking
        if each.state is not PositionState.FAILED and (
            each.trouble is not None or each.state is not PositionState.FETCHING or confirming
        ):
            doing = _CONFIRMING if confirming else _DOING[each.state]
            groups.setdefault((doing, str(each.trouble or "")), []).append(each)
    for (doing, trouble), waiting in groups.items():
        names = ", ".join(f"{topic}-{index}" for topic, index in (each.place for each in waiting[:_NAMED]))
        where = names + (f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else "")
        if not trouble:
            yield f"{where}: {doing}"
            continue
        since = now - min(each.failing_since for each in waiting)
        tries, pause = max(each.failures for each in waiting), max(0.0, waiting[0].retry_at - now)
        failing = f"failing for {since:.1f} s and {tries} attempt(s), the next in {pause:.1f} s"
        yield f"{where}: {doing}, {failing}: {trouble}"
