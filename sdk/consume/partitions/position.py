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

Source: SubscriptionState.java, CompletedFetch.java.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.compression import DECOMPRESSED_LIMIT
from ottla.codec.records import BEYOND
from ottla.codec.wire import NO_UUID
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition, is_another
from ottla.sdk.consume.partitions.fetched import Fetched, epoch_of
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, AnyBatch, about

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.codec.apis.fetch import PartitionData

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
    """The state of one assigned partition. Other objects read the attributes; only the methods change them."""

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
    replica: int = NO_NODE
    """The replica that the leader recommends instead of itself (KIP-392), until `replica_until`."""
    replica_until: float = -math.inf
    needs: int = 0
    """The size of the next batch in bytes, if it arrived truncated."""
    trouble: OttlaError | None = None
    """The error of the last request; if the state is FAILED, the error to raise."""
    unraised: bool = False
    """The state is FAILED, and the error is not raised yet."""
    failures: int = 0
    failing_since: float = math.nan
    unknown_since: float = math.nan
    """The time since which every response has said that the partition does not exist."""
    retry_at: float = -math.inf

    # -- where to read ------------------------------------------------------------------------------------------------

    def seek(self, start: Start, topic_id: "UUID") -> None:
        """Continue at ``start``: drop the buffer, forget errors, and read from the leader.

        Args:
            topic_id: the id of the topic now. Without one, the metadata lacks the topic, or its id: the offsets are
                still about the last topic of this name.
        """
        self.recovered()
        self.start, self.end_before = start, None
        self.read_from_leader()
        if topic_id != NO_UUID:
            self.topic_id = topic_id
        if isinstance(start, Offset):
            self.go(start.offset, start.leader_epoch)
        else:
            self.drop()
            self.state = PositionState.RESOLVING

    def go(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at ``offset``, and drop the buffer."""
        self.drop()
        self.state = PositionState.FETCHING
        self.fetch_offset = self.position = offset
        self.fetch_epoch = self.position_epoch = leader_epoch
        self.leader_epoch = self.incarnation = -1

    def stop_at(self, end: int) -> None:
        """Fetch up to this offset; a batch that begins before may reach beyond."""
        self.end = end

    def look_up(self, start: Start) -> None:
        """Look up this start instead of the wanted one, which the broker cannot look up."""
        self.start = start

    def log_ends_at(self, offset: int) -> None:
        """Take note of the log's end, as the leader says it, before a timestamp is looked up."""
        self.end_before = self.led, offset

    # -- leaders ------------------------------------------------------------------------------------------------------

    def led_by(self, led: Led | None) -> None:
        """Take note of the leader, or that there is none; a leader after none ends the partition's failures."""
        if self.led is None and led is not None:
            self.recovered()
        self.led = led

    def adopt(self, topic_id: "UUID") -> bool:
        """Take the topic's id; ``False`` if the offsets belong to another topic, which was deleted and recreated."""
        if is_another(self.topic_id, topic_id):
            return False
        if topic_id != NO_UUID:
            self.topic_id = topic_id
        return True

    def follow(self, led: Led) -> bool:
        """Fetch from this leader, if its log is known to match the records that were read; else validate that first.

        Returns:
            Whether the partition may be fetched.
        """
        if self.incarnation < 0:
            self.incarnation = led.incarnation
        good = (led.epoch, led.incarnation) == (self.leader_epoch, self.incarnation)
        if not good and led.epoch >= 0 and self.fetch_epoch >= 0:
            self.state = PositionState.VALIDATING
            return False
        self.vouched(led)
        return True

    def vouched(self, led: Led) -> None:
        """Mark the position as valid for this leader, whose log matches the records that were read."""
        self.state, self.leader_epoch, self.incarnation = PositionState.FETCHING, led.epoch, led.incarnation

    def read_from(self, replica: int, until: float) -> None:
        """Read from the replica that the leader recommends (KIP-392), until then, or until an error or a seek."""
        self.replica, self.replica_until = replica, until

    def read_from_leader(self) -> None:
        """Read from the leader, which may recommend a replica again."""
        self.replica = NO_NODE

    # -- requests -----------------------------------------------------------------------------------------------------

    def ask(self) -> int:
        """Take note that a request about the position goes out; returns what `answered` needs."""
        self.asking = True
        return self.seeks

    def answered(self, seeks: int) -> bool:
        """End the wait for a response; ``False`` if the response is obsolete, because of a seek meanwhile."""
        if self.seeks != seeks:
            return False
        self.asking = False
        return True

    def learned(self, result: "PartitionData") -> None:
        """Take note of the log's offsets in a Fetch response."""
        self.high_watermark, self.last_stable_offset = result.high_watermark, result.last_stable_offset
        self.log_start_offset = result.log_start_offset

    def batch_truncated(self, size: int) -> None:
        """Take note that the next batch arrived truncated; the next Fetch needs room for ``size`` bytes."""
        self.needs = size

    # -- errors -------------------------------------------------------------------------------------------------------

    def fail(self, error: OttlaError) -> bool:
        """Stop until a seek; ``False`` if the buffer has records: then the error only stops fetching until it is empty.

        The error may be gone by then. If not, the next Fetch brings it again.
        """
        if self.buffer:
            self.stuck = True
            return False
        self.state, self.trouble, self.unraised = PositionState.FAILED, error, True
        return True

    def take_error(self) -> OttlaError | None:
        """The error to raise, once the state is FAILED; returned once."""
        if not self.unraised:
            return None
        self.unraised = False
        return self.trouble

    def await_reader(self) -> None:
        """Fetch nothing until the user has taken the buffer, because a batch there is damaged."""
        self.state, self.stuck = PositionState.FETCHING, True

    def refused(self, error: OttlaError, now: float) -> None:
        """Take note of a request's error, before it is decided whether to retry; the leader is asked next."""
        self.read_from_leader()
        if math.isnan(self.failing_since):
            self.failing_since = now
        # A broker may not know a partition for a moment after a reassignment, or after it has started. If the
        # partition stays unknown, the topic was deleted.
        if not isinstance(error, UnknownTopicOrPartition):
            self.unknown_since = math.nan
        elif math.isnan(self.unknown_since):
            self.unknown_since = now

    def wait_for_topic(self, now: float) -> None:
        """Keep the partition of a deleted topic for as long again."""
        self.unknown_since = now

    def retry(self, error: OttlaError, at: float) -> None:
        """Send no request before ``at``, because of an error that may be gone by then."""
        self.trouble, self.retry_at = error, at
        self.failures += 1

    def retry_now(self) -> None:
        """End the pause before the next request."""
        self.retry_at = -math.inf

    def recovered(self) -> None:
        """Clear the failure state after a good response."""
        self.trouble, self.failures, self.failing_since, self.retry_at = None, 0, math.nan, -math.inf
        self.unknown_since, self.unraised = math.nan, False

    def about(self, error: OttlaError) -> OttlaError:
        """Add the partition and the fetch offset to an error."""
        return about(self.place, self.fetch_offset, error)

    # -- the buffer ---------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Drop the buffer, and ignore responses to requests in flight."""
        self.buffer.clear()
        self.buffered, self.stuck, self.asking, self.needs = 0, False, False, 0
        self.seeks += 1

    def rewind(self) -> None:
        """Drop the buffer, and fetch again from where the user is."""
        self.drop()
        self.fetch_offset, self.fetch_epoch = self.position, self.position_epoch

    def add(
        self, batches: list[AnyBatch], visible: list[AnyBatch], size: int, memory: int = DECOMPRESSED_LIMIT
    ) -> Fetched | None:
        """Buffer batches that start at `fetch_offset`; return the new entry, or ``None`` if the user may see none.

        Args:
            batches: all batches.
            visible: the batches that the user may see.
        """
        first, last = self.fetch_offset, batches[-1]
        self.fetch_offset, self.fetch_epoch, self.needs = last.next_offset, epoch_of(last), 0
        if visible:
            following, epoch = self.fetch_offset, self.fetch_epoch
            fetched = Fetched(*self.place, first, visible, self.high_watermark, following, epoch, size, memory)
            self.buffer.append(fetched)
            self.buffered += size
            return fetched
        if self.buffer:
            self.buffer[-1].skip(last)
        else:
            self.position, self.position_epoch = self.fetch_offset, self.fetch_epoch
        return None

    def check(self, isolation: int) -> OttlaError | None:
        """Compare the next entry's checksums; cut it before the first damaged batch, and return the damage."""
        self.buffer[0], damage = self.buffer[0].intact(isolation)
        return damage

    def is_sound(self, isolation: int) -> bool:
        """Whether all checksums in the buffer are right."""
        return all(each.is_sound(isolation) for each in self.buffer)

    def parted(self, index: int, most: int | None) -> Fetched:
        """The buffer entry at ``index``, split so that it may be handed out: at most ``most`` records."""
        fetched = self.buffer[index]
        if not fetched.fits:
            fetched, *rest = fetched.split(most)
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
        if not self.buffer:
            self.stuck = False
        return fetched

    def put_back(self, fetched: Fetched) -> bool:
        """Return the entry that was taken last to the front of the buffer.

        If records after it were skipped meanwhile, return ``False``: the caller has to `rewind`.
        """
        follows = self.position == fetched.next_offset
        self.position, self.position_epoch = fetched.first_offset, -1
        if follows:
            self.buffer.appendleft(fetched)
            self.buffered += fetched.size
        return follows

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
