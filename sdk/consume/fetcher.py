"""A fetcher: what to read, what is known of it, and batches in fair turns. It is composed of:

    Changes          what happened to which partition since the last `poll`, and news for those that wait
    Review           what each changed partition needs
    Positions        the partitions: sought in, reset by policy, tried again (`Retries`), failed
    PositionLookups  asks leaders where to start, and whether they have what was read
    FetchScheduler   which node is asked for what, and for how much: a `Session` per node, leaders or `NearReplicas`
    FetchAnswers     what the answers mean
    FetchBuffers     what is not taken yet: how much it may be, and whose turn it is
    StableOffsets    for whose transactions a reader of committed records waits

Rules:
- An error of a partition is raised once, in the partition's turn, when what lies before it is taken. The others are
  read on, before and after that; this one is not, until a seek. Where no partition is left to be read on, the error is
  raised each time: to wait would be for nothing.

Source: KafkaConsumer.java, SubscriptionState.java, AbstractFetch.java.
"""

import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from ottla.codec.apis.fetch import FetchResponse
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.answers import FetchAnswers
from ottla.sdk.consume.assigned import Positions
from ottla.sdk.consume.buffers import FetchBuffers
from ottla.sdk.consume.changes import Changes
from ottla.sdk.consume.fetch_metrics import FetchMetrics
from ottla.sdk.consume.near import NearReplicas
from ottla.sdk.consume.position_lookups import PositionLookups
from ottla.sdk.consume.positions import NO_NODE, Ago, Fetched, Offset, Position, Start, State, Time, troubles
from ottla.sdk.consume.record_sets import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sdk.consume.review import Review
from ottla.sdk.consume.scheduler import FetchScheduler
from ottla.sdk.consume.sessions import Session
from ottla.sdk.consume.stable import StableOffsets
from ottla.sdk.core import ClientCore
from ottla.sdk.events import FETCH
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome

__all__ = [
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Ago",
    "Fetched",
    "Fetcher",
    "Offset",
    "Position",
    "Start",
    "State",
    "Time",
]

log = logger("ottla.sdk.consumer")

_SLOW = 5.0
"""Seconds after which a user who takes nothing is worth a line."""


class Fetcher:
    """The reading half of a consumer, on a `ClientCore`.

    Args:
        reset: where to go on when a position lies outside the log; ``None`` makes that an error.
        wall: tells the time of day, in seconds since 1970; needed for `Ago`, and to say how long a transaction has been
            open.
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
        self._positions = Positions(
            core, self._buffers, self._scheduler, self._near, self._changes, self._metrics, reset
        )
        self._lookups = PositionLookups(core, self._positions, self._changes, isolation, wall)
        self._review = Review(core, self._positions, self._lookups, self._scheduler)
        assigned = self._positions.assigned
        self._stable = StableOffsets(core, assigned, wall) if isolation == READ_COMMITTED else None
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

    # -- what to read -------------------------------------------------------------------------------------------------

    def assign(
        self, starts: Mapping[TopicPartition, Start], now: float, ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read these partitions too, each from its start; for one that is read already this is a seek.

        Args:
            ends: offsets from which on nothing more is fetched. Batches that begin before them may reach beyond.
        """
        if not self._lookups.knows_the_time and any(isinstance(start, Ago) for start in starts.values()):
            raise LocalProtocolError("a place so long ago needs the time of day: make the fetcher with `wall`")
        self._now = now
        self._positions.assign(starts, ends)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions: what is buffered of them is dropped, late answers are ignored."""
        self._positions.unassign(places)

    def follow(self, topics: Iterable[str]) -> None:
        """Read partitions that these topics get later too, each from its beginning."""
        self._positions.followed.update(topics)

    def let_go(self, topics: Iterable[str]) -> None:
        """Whatever there is of these topics is read.

        One that is deleted is not missed, and one that is recreated is read from its beginning; both with a warning in
        the log, in place of an error. Where topics have no ids, that is noticed if it was gone for half of
        `api_timeout`, or lacks what was read.
        """
        self._positions.may_go.update(topics)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Neither fetch these partitions nor hand them out until `resume`; what is buffered of them is kept."""
        for position in [self._positions.assigned[place] for place in places]:
            self._buffers.pause(position)
            self._changes.review(position)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions."""
        for position in [self._positions.assigned[place] for place in places]:
            self._buffers.resume(position)
            self._changes.review(position)
        self._changes.notify()

    @property
    def on_reset(self) -> Callable[[TopicPartition], None]:
        """Called with each partition that goes on elsewhere without a seek: it fell out of the log, the log was
        truncated, the topic was recreated. Offsets lower than before are meant from then on.
        """
        return self._positions.on_reset

    @on_reset.setter
    def on_reset(self, call: Callable[[TopicPartition], None]) -> None:
        self._positions.on_reset = call

    @property
    def on_passed(self) -> Callable[[TopicPartition], None]:
        """Called with each partition whose position has passed what the user may not see: nothing was handed out."""
        return self._positions.on_passed

    @on_passed.setter
    def on_passed(self, call: Callable[[TopicPartition], None]) -> None:
        self._positions.on_passed = call

    def close(self) -> None:
        if not self.closed:
            self.closed = self._positions.closed = True
            self._leave()
            self._core.metadata.observers.remove(self._metadata_changed)
            self._core.parts.pop(self, None)
            self._changes.closed = True
            self._positions.unassign(list(self._positions.assigned))
            self._scheduler.close()
            self._near.close()
            self._metrics.close()
            if self._stable is not None:
                self._stable.close()

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def places(self) -> Container[TopicPartition]:
        """What is assigned."""
        return self._positions.assigned.keys()

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions.assigned)

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return self._buffers.paused

    @property
    def failed(self) -> Mapping[TopicPartition, OttlaError]:
        """The partitions that cannot be read on until a seek, and why."""
        return self._positions.failed

    @property
    def buffered(self) -> int:
        """Bytes that are fetched, and not taken yet."""
        return self._buffers.size

    @property
    def resolved(self) -> bool:
        """Every position is known (or has failed)."""
        return not self._positions.unresolved

    def knows(self, place: TopicPartition) -> bool:
        """The partition is assigned, and its position is known (or it has failed)."""
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
        """One past the last record that all in-sync replicas have; ``None`` before the first answer."""
        return _known(self._positions.assigned[place].high_watermark)

    def last_stable_offset(self, place: TopicPartition) -> int | None:
        """One past the last record before the first undecided transaction; ``None`` where it is not known."""
        return _known(self._positions.assigned[place].last_stable_offset)

    def log_start_offset(self, place: TopicPartition) -> int | None:
        """The first offset there is; ``None`` where it is not known."""
        return _known(self._positions.assigned[place].log_start_offset)

    def lag(self, place: TopicPartition) -> int | None:
        """How many offsets the user is behind what can be read; ``None`` while that is not known."""
        return self._positions.assigned[place].lag(self._isolation)

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Partitions that cannot be read on without these nodes."""
        leader, read = self._core.cluster.leader, self._positions.assigned.items()
        known = [(each, leader(*place)) for place, each in read if not each.paused and each.state is not State.FAILED]
        count = sum(nodes is None or (led is not None and led.id in nodes) for _, led in known)
        return {"partitions": count} if count else {}

    def explain(self, now: float) -> Iterator[str]:
        """What is not as it should be, in lines for people: which partitions, since when, why."""
        for (topic, index), error in self._positions.failed.items():
            yield f"{topic}-{index}: cannot be read on until a seek: {error}"
        yield from troubles(self._positions.assigned.values(), now)
        if self._stable is not None:
            yield from self._stable.explain(now)
        yield from self._scheduler.explain(now)
        if self._buffers and now - self._taken_at > _SLOW:
            since = f"for {now - self._taken_at:.1f} s" if math.isfinite(self._taken_at) else "yet"
            yield f"{self._buffers.size} bytes are there, of which the user has taken nothing {since}"

    # -- taking and waiting -------------------------------------------------------------------------------------------

    def take(self, only: Container[TopicPartition] | None = None, most: int | None = None) -> Fetched | None:
        """The next records of some partition, in fair turns; ``None`` where nothing is buffered.

        Args:
            only: hand out nothing of other partitions.
            most: hand out no more records at once.

        Raises:
            OttlaError: a partition cannot be read on, until a seek; the error says which and why. It is raised once,
                and the next call goes on with the other partitions; where there are none, each time.
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
            if self._scheduler.taken(position):  # or it is being read on, and will be
                self._changes.review(position)
            return fetched
        if error := self._all_failed(only):
            raise error
        return None

    def put_back(self, fetched: Fetched) -> None:
        """What `take` returned last has not reached the user, who is to get it again."""
        position = self._positions.assigned.get((fetched.topic, fetched.partition))
        if position is not None and position.position >= fetched.next_offset:
            self._buffers.put_back(position, fetched)
            self._changes.review(position)

    def ahead(self, only: Container[TopicPartition] | None, most: int | None, count: int) -> list[Fetched]:
        """What the next calls of `take`, at most so many, will return if nothing happens."""
        return self._buffers.ahead(only, most, count)

    def moved(self) -> Outcome[None]:
        """Settled when something has changed: records came, a position is known, a partition failed."""
        return self._changes.news

    def wait(self, only: Container[TopicPartition] | None = None) -> Outcome[None]:
        """Settled when `take` has something to say, perhaps earlier."""
        if not (self.closed or self._buffers.next(only) or self._all_failed(only)):
            return self._changes.news
        outcome: Outcome[None] = Outcome()
        outcome.succeed(None)
        return outcome

    def resolve(
        self, now: float, only: Container[TopicPartition] | None = None, patience: float = math.inf
    ) -> Outcome[None]:
        """Settled when every position is known; fails after `api_timeout`, or with the error of a partition that has
        failed, which `take` raises all the same.

        Args:
            patience: seconds of trouble after which a partition is left out, if another one can be read. It is tried
                on, and read once that succeeds.
        """
        outcome: Outcome[None] = Outcome()
        timeout = self._core.options.api_timeout
        unresolved = self._positions.unresolved

        def leave_out(now: float) -> None:
            waiting = [each for each in unresolved if only is None or each.place in only]
            in_trouble = all(now - each.failing_since >= patience for each in waiting)  # false where it is NaN
            if in_trouble and len(waiting) < len(self._positions.assigned):
                topic, partition = waiting[0].place
                where = {"topic": topic, "partition": partition, "partitions": len(waiting)}
                why = {"why": str(waiting[0].trouble)}
                log.warning("reading begins without partitions that are in trouble", extra=where | why)
                outcome.succeed(None)
            else:
                look_again(now)

        def look_again(now: float) -> None:
            if patience < timeout:
                outcome.when_done(self._core.later(now + patience / 2, leave_out).cancel)

        def look() -> None:
            if outcome.done:
                return
            if error := self._error(only):
                outcome.fail(error)
            elif self.closed or not any(only is None or each.place in only for each in unresolved):
                outcome.succeed(None)
            else:
                self._changes.news.when_done(look)

        def late(now: float) -> None:
            why = "; ".join(itertools.islice(self.explain(now), 3))
            outcome.fail(TimeoutExpired(f"not all positions are known after {timeout:g} s: {why}"))

        look()
        if not outcome.done:
            outcome.when_done(self._core.later(now + timeout, late).cancel)
            look_again(now)
            self._core.fail_on_close(outcome)
        return outcome

    def _error(self, only: Container[TopicPartition] | None) -> OttlaError | None:
        failed = self._positions.failed.items()
        return next((error for place, error in failed if only is None or place in only), None)

    def _all_failed(self, only: Container[TopicPartition] | None) -> OttlaError | None:
        """An error of those, where there is no partition that can be read on."""
        return self._error(only) if len(self._positions.failed) == len(self._positions.assigned) else None

    # -- what happens -------------------------------------------------------------------------------------------------

    def _answered(self, session: Session, answer: FetchResponse | OttlaError, now: float) -> None:
        self._now = now
        self._answers.answered(session, answer, now)
        self._changes.wake()

    def _metadata_changed(self, now: float) -> None:
        topics, positions = self._core.cluster.topics, self._positions
        self._near.learned()
        new: dict[TopicPartition, Start] = {
            (name, index): Time(EARLIEST)
            for name in sorted(positions.followed)
            if (topic := topics.get(name))
            for index in topic.partitions
            if (name, index) not in positions.assigned
        }
        if new:
            self.assign(new, now)
        positions.recheck()

    def _reviewed(self, changed: list[Position], now: float) -> None:
        self._now = now
        self._review.review(changed, now)


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None
