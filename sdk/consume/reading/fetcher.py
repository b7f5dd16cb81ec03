"""The fetcher reads assigned partitions, and hands out their batches in fair turns. Its parts:

    Changes            collects changed partitions until the next `poll`, and wakes waiters
    Review             decides what each changed partition needs
    AssignedPositions  holds the positions: seeks, resets by policy, retries (`Retries`), failures
    PositionLookups    asks leaders where to start, and whether their log still matches the records read
    FetchScheduler     chooses nodes (also `NearReplicas`), partitions and sizes: a `FetchSession` per node
    FetchAnswers       interprets Fetch responses
    FetchBuffers       holds batches until the user takes them, and takes turns between partitions
    StableOffsets      finds the transactions that hold back a read_committed consumer

Rules:
- An error of a partition is raised once, in the partition's turn, after the records before it are taken. That partition
  is not read again until a seek; other partitions are not affected. If no partition can be read any more, the error is
  raised by each call, because waiting would be pointless.

Source: KafkaConsumer.java, SubscriptionState.java, AbstractFetch.java.
"""

import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.codec.apis.fetch import FetchResponse
from ottla.errors import LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.fetching.fetch_metrics import FetchMetrics
from ottla.sdk.consume.fetching.fetch_scheduler import FetchScheduler
from ottla.sdk.consume.fetching.fetch_session import FetchSession
from ottla.sdk.consume.fetching.near_replicas import NearReplicas
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import NO_NODE, Ago, Offset, Position, PositionState, Start, Time
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sdk.consume.positions.assigned_positions import AssignedPositions, PositionObserver
from ottla.sdk.consume.positions.changes import Changes
from ottla.sdk.consume.positions.position_lookups import PositionLookups
from ottla.sdk.consume.positions.review import Review
from ottla.sdk.consume.reading.fetch_answers import FetchAnswers
from ottla.sdk.consume.reading.stable_offsets import StableOffsets
from ottla.sdk.core import ClientCore
from ottla.sdk.events import FETCH
from ottla.sdk.flow import Flow, FlowExpired
from ottla.sdk.outcome import Outcome, own, settled_with
from ottla.sdk.steps import Steps

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Ago",
    "Fetched",
    "Fetcher",
    "Offset",
    "Position",
    "PositionState",
    "Start",
    "Time",
]

_SLOW = 5.0
"""Seconds after which `explain` reports that the user takes no batches."""


class Fetcher:
    """Reads partitions for a consumer, on a `ClientCore`.

    Args:
        reset: where to resume when a position is outside the log; ``None`` makes that an error.
        wall: returns the time of day, in seconds since 1970; needed for `Ago`, and to say how long a transaction has
            been open.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        core: ClientCore,
        *,
        isolation: int = READ_UNCOMMITTED,
        reset: Time | Ago | None = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._core, self._isolation = core, isolation
        self.number = next(self._numbers)
        self.closed = False
        self._now = -math.inf
        self._taken_at = -math.inf
        channel = f"{FETCH}-{self.number}"
        self._metrics = FetchMetrics(core.metrics, self.number, isolation, near=bool(core.options.rack))
        self._changes = Changes(core, self._reviewed)
        self._buffers = FetchBuffers(core.options, isolation)
        self._near = NearReplicas(core, channel)
        self._scheduler = FetchScheduler(core, self._buffers, self._near, channel, isolation, self._answered)
        self._positions = AssignedPositions(
            core, self._buffers, self._scheduler, self._near, self._changes, self._metrics, reset
        )
        self._lookups = PositionLookups(core, self._positions, self._changes, isolation, wall)
        self._review = Review(core, self._positions, self._lookups, self._scheduler)
        assigned = self._positions.assigned
        paused = self._buffers.paused
        self._stable = StableOffsets(core, assigned, paused, wall) if isolation == READ_COMMITTED else None
        self._answers = FetchAnswers(
            core,
            self._positions,
            self._buffers,
            self._scheduler,
            self._near,
            self._changes,
            self._metrics,
            isolation,
            self._stable,
        )
        core.metadata.observers.append(self._metadata_changed)
        core.parts[self] = None
        self._leave = core.on_close(lambda error: self.close())

    # -- assignment ---------------------------------------------------------------------------------------------------

    def assign(
        self,
        starts: Mapping[TopicPartition, Start],
        now: float,
        ends: Mapping[TopicPartition, int] | None = None,
        topic_ids: "Mapping[TopicPartition, UUID] | None" = None,
    ) -> None:
        """Start to read these partitions, each at its start; a partition that is read already is sought.

        Args:
            ends: offsets at which to stop fetching. A batch that begins before its partition's end may reach beyond.
            topic_ids: the ids of the topics that the starts are for, in case that the client does not know them now.
        """
        if not self._lookups.knows_the_time and any(isinstance(start, Ago) for start in starts.values()):
            raise LocalProtocolError("a start relative to now needs the time of day: make the fetcher with `wall`")
        self._now = now
        self._positions.assign(starts, ends, topic_ids)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions: drop their buffers, and ignore late responses."""
        self._positions.unassign(places)

    def follow(self, topics: Iterable[str]) -> None:
        """Also read partitions that these topics get later, each from its beginning."""
        self._positions.followed.update(topics)

    def let_go(self, topics: Iterable[str]) -> None:
        """Let these topics be deleted or recreated without an error.

        A deleted topic is no longer read, and a recreated one is read from its beginning; the log gets a warning. For
        topics without ids this is noticed only if the topic is gone for half of `api_timeout`, or lacks records that
        were read.
        """
        self._positions.may_go.update(topics)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions, and handing out their records, until `resume`; keep their buffers."""
        for position in [self._positions.assigned[place] for place in places]:
            self._buffers.pause(position)
            self._changes.review(position)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Continue with paused partitions."""
        for position in [self._positions.assigned[place] for place in places]:
            self._buffers.resume(position)
            self._changes.review(position)
        self._changes.notify()

    def report_to(self, observer: PositionObserver) -> None:
        """Tell ``observer``, too, about positions that move although the user takes no batch and does not seek."""
        self._positions.observers.append(observer)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._leave()
            self._core.metadata.observers.remove(self._metadata_changed)
            self._core.parts.pop(self, None)
            self._changes.close()
            self._positions.unassign(list(self._positions.assigned))
            self._scheduler.close()
            self._near.close()
            self._metrics.close()
            if self._stable is not None:
                self._stable.close()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def places(self) -> Container[TopicPartition]:
        """The assigned partitions."""
        return self._positions.assigned.keys()

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions.assigned)

    @property
    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted."""
        return sorted(each.place for each in self._buffers.paused)

    @property
    def failed(self) -> Mapping[TopicPartition, OttlaError]:
        """The partitions that cannot be read until a seek, and why."""
        return self._positions.failed

    @property
    def buffered(self) -> int:
        """Bytes fetched and not taken yet."""
        return self._buffers.size

    @property
    def resolved(self) -> bool:
        """Whether every position is known (or has failed)."""
        return not self._positions.unresolved

    def knows(self, place: TopicPartition) -> bool:
        """Whether the partition is assigned, and its position is known (or has failed)."""
        position = self._positions.assigned.get(place)
        return position is not None and position not in self._positions.unresolved

    def position(self, place: TopicPartition) -> int | None:
        """The offset of the next record that the user gets; ``None`` while it is being looked up."""
        position = self._positions.assigned[place]
        return None if position in self._positions.unresolved else _known(position.position)

    def position_epoch(self, place: TopicPartition) -> int:
        """The leader epoch of the record before `position`, for commits; -1: unknown."""
        return self._positions.assigned[place].position_epoch

    def high_watermark(self, place: TopicPartition) -> int | None:
        """One past the last record that all in-sync replicas have; ``None`` before the first response."""
        return _known(self._positions.assigned[place].high_watermark)

    def last_stable_offset(self, place: TopicPartition) -> int | None:
        """The offset at which the first open transaction begins, else the high watermark; ``None``: unknown."""
        return _known(self._positions.assigned[place].last_stable_offset)

    def log_start_offset(self, place: TopicPartition) -> int | None:
        """The first offset of the log; ``None``: unknown."""
        return _known(self._positions.assigned[place].log_start_offset)

    def lag(self, place: TopicPartition) -> int | None:
        """The number of readable offsets from the position on; ``None``: unknown."""
        return self._positions.assigned[place].lag(self._isolation)

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """The number of partitions that cannot be read without these nodes."""
        count = self._positions.waiting(nodes)
        return {"partition_count": count} if count else {}

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about problems: which partitions, since when, why."""
        yield from self._positions.explain(now)
        if self._stable is not None:
            yield from self._stable.explain(now)
        yield from self._scheduler.explain(now)
        if self._buffers and now - self._taken_at > _SLOW:
            since = f"for {now - self._taken_at:.1f} s" if math.isfinite(self._taken_at) else "yet"
            yield f"{self._buffers.size} bytes are buffered, and the consumer's loop has taken no batch {since}"

    # -- taking and waiting -------------------------------------------------------------------------------------------

    def take(self, only: Container[TopicPartition] | None = None, most: int | None = None) -> Fetched | None:
        """The next records of the partition whose turn it is; ``None`` if all buffers are empty.

        Args:
            only: hand out records of these partitions only.
            most: the maximum number of records.

        Raises:
            OttlaError: a partition cannot be read until a seek; the error says which and why. It is raised once, and
                the next call continues with other partitions; if there are none, each call raises it.
        """
        while (position := self._buffers.next(only)) is not None:
            if error := self._buffers.error(position):
                raise error
            fetched, damage = self._buffers.take(position, most)
            if fetched is None:
                if damage is not None:
                    self._positions.damaged(position, damage, self._now)
                continue
            if damage is not None:
                self._scheduler.leave(position)
            if position.replica != NO_NODE:
                self._near.accepted(position.place)
            self._taken_at = self._now
            self._metrics.consumed(fetched, self._now)
            if self._scheduler.taken(position):  # otherwise a Fetch of the partition is wanted or in flight already
                self._changes.review(position)
            return fetched
        if error := self._all_failed(only):
            raise error
        return None

    def put_back(self, fetched: Fetched) -> None:
        """Take back the batch that `take` returned last, because it has not reached the user."""
        position = self._positions.assigned.get((fetched.topic, fetched.partition))
        if position is not None and position.position >= fetched.next_offset:
            self._buffers.put_back(position, fetched)
            self._changes.review(position)

    def ahead(self, only: Container[TopicPartition] | None, most: int | None, count: int) -> list[Fetched]:
        """The batches that the next ``count`` calls of `take` will return, unless an event intervenes."""
        return self._buffers.ahead(only, most, count)

    def moved(self) -> Outcome[None]:
        """Settled by any news: records arrived, a position became known, a partition failed."""
        return self._changes.news

    def wait(self, only: Container[TopicPartition] | None = None) -> Outcome[None]:
        """Settled when `take` will return or raise something, perhaps earlier."""
        if not (self.closed or self._buffers.next(only) or self._all_failed(only)):
            return self._changes.news
        return settled_with(None)

    def resolve(self, now: float, only: Container[TopicPartition] | None = None) -> Outcome[None]:
        """Settled when every position is known; fails after `api_timeout`, or with the error of a failed partition,
        which `take` then raises as well.
        """
        return Flow(self._core, self._resolve(only), now + self._core.options.api_timeout).outcome

    def _resolve(self, only: Container[TopicPartition] | None) -> Steps[None]:
        unresolved = self._positions.unresolved
        try:
            while True:
                if error := self._error(only):
                    raise error
                if self.closed or not any(only is None or each.place in only for each in unresolved):
                    return
                yield own(self._changes.news)
        except FlowExpired:
            why = "; ".join(itertools.islice(self.explain(self._core.now), 3))
            timeout = self._core.options.api_timeout
            raise TimeoutExpired(f"not all positions are known after {timeout:g} s: {why}") from None

    def _error(self, only: Container[TopicPartition] | None) -> OttlaError | None:
        failed = self._positions.failed.items()
        return next((error for place, error in failed if only is None or place in only), None)

    def _all_failed(self, only: Container[TopicPartition] | None) -> OttlaError | None:
        """The error of a failed partition, if all assigned partitions have failed."""
        return self._error(only) if len(self._positions.failed) == len(self._positions.assigned) else None

    # -- events -------------------------------------------------------------------------------------------------------

    def _answered(self, session: FetchSession, answer: FetchResponse | OttlaError, now: float) -> None:
        self._now = now
        self._answers.answered(session, answer, now)
        self._changes.wake()

    def _metadata_changed(self, now: float) -> None:
        self._now = now
        self._near.learned()
        self._positions.metadata_changed()

    def _reviewed(self, changed: list[Position], now: float) -> None:
        self._now = now
        self._review.review(changed, now)


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None
