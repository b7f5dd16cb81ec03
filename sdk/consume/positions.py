"""Where a consumer reads: one `Position` for each assigned partition, and what has been fetched of it.

    RESOLVING ── ListOffsets ──────────────► FETCHING ── records ──► (buffered) ── take ──► the user
        ▲                                    │   ▲  │
        │                 a new leader epoch ▼   │  │
        │                             VALIDATING ┘  │
        │                                 │         │
        └── reset by policy ── truncated ─┴─────────┴── OFFSET_OUT_OF_RANGE, truncated ── no policy ──► FAILED
                                                                               (raised once; a seek mends it)

Rules:
- Two offsets per partition: `fetch_offset`, where the next Fetch reads, and `position`, what the user gets next.
- With each goes the leader epoch of the record before it: the proof that a later leader has the same log (KIP-320).
- `seeks` counts what makes questions under way pointless: an answer to an older question is dropped.
- What is wrong at `fetch_offset` is raised once the user has taken what lies before it.
- Few bytes may become many when they are decompressed, so an answer is handed out in parts that take at most
  `fetch_batch_memory` bytes. It is not refused, because honest records, too, may be compressed to a thousandth.

Source: SubscriptionState.java, CompletedFetch.java.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.columns import Columns
from ottla.codec.compression import DECOMPRESSED_LIMIT
from ottla.codec.records import BEYOND, Record, RecordBatch, Records, read_columns
from ottla.codec.wire import NO_UUID
from ottla.errors import DecodeError, MemoryLimitExceeded, OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.record_sets import READ_COMMITTED, AnyBatch, about, sound

if TYPE_CHECKING:
    from uuid import UUID

NO_NODE = -1
"""In place of a node's id."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Start at this very offset."""

    offset: int
    leader_epoch: int = -1
    """Of the record before it, as commits carry it, so that a log which lost it is noticed (KIP-320); -1: unknown."""


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
    """Do not start: somebody must say where."""

    why: str


Start = Offset | Time | Ago | NoStart


class State(Enum):
    RESOLVING = auto()
    VALIDATING = auto()
    FETCHING = auto()
    FAILED = auto()


@dataclass(slots=True)
class Fetched:
    """What one answer held for one partition."""

    topic: str
    partition: int
    first_offset: int
    """Records before it were not asked for."""
    batches: list[AnyBatch]
    high_watermark: int
    next_offset: int
    """Where to go on behind these records and what was skipped after them: what a commit says."""
    leader_epoch: int
    """Of the record before `next_offset`, for the commit; -1: unknown."""
    size: int = 0
    """Bytes, as they came."""
    memory: int = DECOMPRESSED_LIMIT
    """Bytes that all batches may take when this is handed out and opened: as many as a single batch may."""
    cut: Records | None = None
    """Of the one batch, the part that this is: it was too large to be handed out at once."""
    checked: bool = False
    """No checksum of the batches is wrong."""
    damaged: bool = False
    """One is."""
    fits: bool = False
    """It is what is handed out together: `split` has nothing more to divide."""
    count: int = field(init=False)
    """Records, as far as that is known without decompressing: messages of before Kafka 0.11 count as one."""

    def __post_init__(self) -> None:
        batches = sum(max(each.count, 0) if isinstance(each, RecordBatch) else 1 for each in self.batches)
        self.count = batches if self.cut is None else len(self.cut)

    def split(self, most: int | None = None) -> list["Fetched"]:
        """This in parts that take no more than `memory` bytes each once they are opened.

        Each has whole batches, and at least one. A damaged batch stays whole: its damage is found when its records are
        wanted.

        Args:
            most: records that a part may have. The first is divided within its only batch, too, where that has more;
                the others are when their turn comes, as a batch has to be opened for it.
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

    def _split_at(self, ends: list[int]) -> list["Fetched"]:
        """In parts that end before the batches with these indices, and the last one."""
        parts: list[Fetched] = []
        first_offset, start, done = self.first_offset, 0, 0
        for end in [*ends, len(self.batches)]:
            batches, size = self.batches[start:end], self.size * end // len(self.batches)
            part = replace(self, first_offset=first_offset, batches=batches, size=size - done)
            if end < len(self.batches):
                part.next_offset, part.leader_epoch = batches[-1].next_offset, _epoch_of(batches[-1])
            part.fits = len(batches) > 1  # a single one may have to be cut
            parts.append(part)
            first_offset, start, done = part.next_offset, end, size
        return parts

    def _cut_at(self, most: int) -> list["Fetched"]:
        """In two within the only batch, where it has more records than ``most``."""
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
        """Whether `memory` suffices if so many partitions hold back as much: an open batch, or none."""
        return self.cut is None or self.can_be_cut(partitions)

    def can_be_cut(self, partitions: int) -> bool:
        """Whether `memory` suffices if so many partitions open their next batch."""
        return self.batches[0].memory_bound * partitions <= self.memory

    def parts(self) -> list[Records]:
        """The records that were asked for, of each batch: opened and found whole, and nothing made of them yet.

        Raises:
            DecodeError: a batch is damaged; says which.
            MemoryLimitExceeded: the only batch takes more than `memory`.
        """
        if self.cut is not None:
            return [self.cut]
        try:
            return [batch.records(self.memory).between(self.first_offset, BEYOND) for batch in self.batches]
        except DecodeError as error:
            raise self._here(error) from None

    def records(self) -> list[Record]:
        """The records that were asked for, decoded; errors as `parts`."""
        return list(chain.from_iterable(self.parts()))

    def columns(self) -> Columns:
        """The records that were asked for, field by field, without making an object of any; errors as `parts`."""
        batches = [each for each in self.batches if isinstance(each, RecordBatch)]
        if len(batches) < len(self.batches) or self.cut is not None:  # messages of before Kafka 0.11, or a part
            return Columns.of(self.parts())
        try:
            return read_columns(batches, self.first_offset, self.memory)
        except DecodeError as error:
            raise self._here(error) from None

    def _here(self, error: DecodeError) -> DecodeError:
        error.within = f"{self.topic}-{self.partition}, {error.within}"
        if isinstance(error, MemoryLimitExceeded):
            error.reason += f"; raise fetch_batch_memory, an option of connect, or go on from offset {self.next_offset}"
        return error

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())


def _records_in(batch: AnyBatch) -> int:
    """How many there are at the most."""
    if isinstance(batch, RecordBatch):
        return batch.count
    try:
        return len(batch.records())
    except DecodeError:
        return 1


def _epoch_of(batch: AnyBatch) -> int:
    """The leader epoch of its records; -1: unknown."""
    return batch.partition_leader_epoch if isinstance(batch, RecordBatch) else -1


class Led(NamedTuple):
    """By whom a partition is led, by the metadata."""

    node: int
    epoch: int
    """-1: unknown."""
    incarnation: int
    """`Topic.incarnation`. Where topics have no ids it may differ though the topic is the same."""
    topic_id: "UUID"


@dataclass(slots=True, eq=False)
class Position:
    """One assigned partition."""

    place: TopicPartition
    start: Start
    state: State = State.RESOLVING
    fetch_offset: int = -1
    fetch_epoch: int = -1
    """Leader epoch of the record before `fetch_offset`; -1: unknown."""
    position: int = -1
    position_epoch: int = -1
    leader_epoch: int = -1
    """The leader epoch for which `fetch_offset` is known to be good."""
    incarnation: int = -1
    """The incarnation of the topic for which it is."""
    topic_id: "UUID" = NO_UUID
    """Of the topic that the offsets are of; one of the same name that was made later has another."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    end: int = BEYOND
    """Nothing is fetched from here on."""
    paused: bool = False
    buffer: deque[Fetched] = field(default_factory=deque)
    buffered: int = 0
    """Bytes."""
    seeks: int = 0
    asking: bool = False
    """ListOffsets or OffsetForLeaderEpoch is under way; or new metadata, which show whether an error still holds."""
    stuck: bool = False
    """Something is wrong at `fetch_offset`, which is looked into once the buffer is empty."""
    led: Led | None = None
    """The leader when this was last looked at."""
    end_before: tuple[Led | None, int] | None = None
    """Where the log ended before its place was looked up by time, and by which leader; ``None``: not known yet."""
    node: int = NO_NODE
    """The node that is asked for records."""
    priority: bool = False
    """The user sought here: what the broker holds back for other partitions must not hold this one up."""
    replica: int = NO_NODE
    """The replica that the leader recommends instead of itself (KIP-392), until `replica_until`."""
    replica_until: float = -math.inf
    needs: int = 0
    """Bytes of the next batch, where it came cut."""
    trouble: OttlaError | None = None
    unraised: bool = False
    """It is FAILED, which is still to be raised."""
    failures: int = 0
    failing_since: float = math.nan
    unknown_since: float = math.nan
    """Since when every answer says that there is no such partition."""
    retry_at: float = -math.inf

    def go(self, offset: int, leader_epoch: int = -1) -> None:
        """Read on at ``offset``; what is buffered is dropped."""
        self.drop()
        self.state = State.FETCHING
        self.fetch_offset = self.position = offset
        self.fetch_epoch = self.position_epoch = leader_epoch
        self.leader_epoch = self.incarnation = -1

    def vouched(self, led: Led) -> None:
        """The leader has what was read."""
        self.state, self.leader_epoch, self.incarnation = State.FETCHING, led.epoch, led.incarnation

    def drop(self) -> None:
        """Forget the buffer, and whatever is under way."""
        self.buffer.clear()
        self.buffered, self.stuck, self.asking, self.needs = 0, False, False, 0
        self.seeks += 1

    def add(
        self, batches: list[AnyBatch], visible: list[AnyBatch], size: int, memory: int = DECOMPRESSED_LIMIT
    ) -> Fetched | None:
        """Take in what follows `fetch_offset`: ``batches``, of which the user may see some; what is new to take."""
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
            self.buffer[-1].next_offset, self.buffer[-1].leader_epoch = self.fetch_offset, self.fetch_epoch
        else:
            self.position, self.position_epoch = self.fetch_offset, self.fetch_epoch
        return None

    def check(self, isolation: int) -> OttlaError | None:
        """Compare the checksums of what is next; keep what lies before a damaged batch, and say what that has."""
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
        """No checksum there in the buffer is wrong."""
        fetched = self.buffer[index]
        if not (fetched.checked or fetched.damaged):
            fetched.checked = sound(fetched.batches, isolation)[1] is None
            fetched.damaged = not fetched.checked
        return fetched.checked

    def is_sound(self, isolation: int) -> bool:
        """No checksum in the buffer is wrong."""
        return not any(sound(each.batches, isolation)[1] for each in self.buffer)

    def rewind(self) -> None:
        """Read again what the user has not taken."""
        self.drop()
        self.fetch_offset, self.fetch_epoch = self.position, self.position_epoch

    def parted(self, index: int, most: int | None) -> Fetched:
        """What stands there in the buffer, cut to what is handed out together: ``most`` records."""
        fetched = self.buffer[index]
        if not fetched.fits:
            fetched, *rest = fetched.split(most)
            fetched.fits = True
            self.buffer[index] = fetched
            for each in reversed(rest):
                self.buffer.insert(index + 1, each)
        return fetched

    def take(self, most: int | None = None) -> Fetched:
        """What is next, as far as it is handed out together: ``most`` records, where that is given."""
        fetched = self.parted(0, most)
        del self.buffer[0]
        self.buffered -= fetched.size
        self.position, self.position_epoch = fetched.next_offset, fetched.leader_epoch
        return fetched

    def recovered(self) -> None:
        """It was answered: whatever was wrong is over."""
        self.trouble, self.failures, self.failing_since, self.retry_at = None, 0, math.nan, -math.inf
        self.unknown_since, self.unraised = math.nan, False

    def about(self, error: OttlaError) -> OttlaError:
        """The error, with the partition and where it is read."""
        return about(self.place, self.fetch_offset, error)

    def lag(self, isolation: int) -> int | None:
        """Offsets between the user and the end of what can be read; ``None`` while that is not known."""
        end = self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark
        return max(0, end - self.position) if end >= 0 and self.position >= 0 else None


_DOING = {
    State.RESOLVING: "looking up where to begin",
    State.VALIDATING: "asking the leader whether it has what was read",
    State.FETCHING: "fetching",
}
_CONFIRMING = "asking which node leads it by now, because the leader does not have the position"
_NAMED = 3
"""Partitions that a line names; of the others it gives the number."""


def troubles(positions: Iterable[Position], now: float) -> Iterator[str]:
    """What partitions wait for, in lines for people: a line for all that wait for the same."""
    groups: dict[tuple[str, str], list[Position]] = {}
    for each in positions:
        confirming = each.state is State.FETCHING and each.asking
        if each.state is not State.FAILED and (
            each.trouble is not None or each.state is not State.FETCHING or confirming
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
