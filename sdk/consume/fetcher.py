"""A fetcher as its user sees it: what to read, what is known of it, and batches in fair turns.

The machinery is `Fetching`'s.

Rules:
- A partition with several answers buffered goes to the end of the turn after each.
- An error of a partition is raised once, in the partition's turn, when what lies before it is taken. The others are
  read on, before and after that; this one is not, until a seek. Where no partition is left to be read on, the error is
  raised each time: to wait would be for nothing.
- Who waits shares one `Outcome` with all who wait, which any news settles.

Source: KafkaConsumer.java, SubscriptionState.java.
"""

import itertools
from collections.abc import Container, Iterable

from ottla.errors import OttlaError, TimeoutExpired
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.fetching import Fetching
from ottla.sdk.consume.positions import NOWHERE, Ago, Fetched, Offset, Position, Start, State, Time
from ottla.sdk.consume.record_sets import READ_COMMITTED, READ_UNCOMMITTED
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


class Fetcher(Fetching):
    """The reading half of a consumer; made as `Fetching` is."""

    # -- what to read -------------------------------------------------------------------------------------------------

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Neither fetch these partitions nor hand them out until `resume`; what is buffered of them is kept."""
        for position in [self._positions[place] for place in places]:
            self._paused[position] = None
            position.paused = True
            self._turn.pop(position, None)
            self._stir(position)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions."""
        for position in [self._positions[place] for place in places]:
            self._paused.pop(position, None)
            position.paused = False
            if position.buffer or position.untold:
                self._turn.setdefault(position)
            self._stir(position)
        self._notify()

    def follow(self, topics: Iterable[str], *, may_go: bool = False) -> None:
        """Read partitions that these topics get later too, each from its beginning.

        Args:
            may_go: whatever there is of these topics is read. One that is deleted is not missed, and one that is
                recreated is read from its beginning; both with a warning in the log, in place of an error.
        """
        self._followed.update(dict.fromkeys(topics, may_go))

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def places(self) -> Container[TopicPartition]:
        """What is assigned."""
        return self._positions.keys()

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._positions)

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return sorted(each.place for each in self._paused)

    @property
    def resolved(self) -> bool:
        """Every position is known (or has failed)."""
        return not self._unresolved

    def knows(self, place: TopicPartition) -> bool:
        """The partition is assigned, and its position is known (or it has failed)."""
        position = self._positions.get(place)
        return position is not None and position not in self._unresolved

    def position(self, place: TopicPartition) -> int | None:
        """The offset of the next record that the user gets; ``None`` while it is being looked up."""
        position = self._positions[place]
        return None if position in self._unresolved else _known(position.position)

    def position_epoch(self, place: TopicPartition) -> int:
        """The leader epoch of the record before `position`, for commits; -1: unknown."""
        return self._positions[place].position_epoch

    def high_watermark(self, place: TopicPartition) -> int | None:
        """One past the last record that all in-sync replicas have; ``None`` before the first answer."""
        return _known(self._positions[place].high_watermark)

    def last_stable_offset(self, place: TopicPartition) -> int | None:
        """One past the last record before the first undecided transaction; ``None`` where it is not known."""
        return _known(self._positions[place].last_stable_offset)

    def log_start_offset(self, place: TopicPartition) -> int | None:
        """The first offset there is; ``None`` where it is not known."""
        return _known(self._positions[place].log_start_offset)

    def lag(self, place: TopicPartition) -> int | None:
        """How many offsets the user is behind what can be read; ``None`` while that is not known."""
        return self._positions[place].lag(self._isolation)

    @property
    def buffered(self) -> int:
        """Bytes that are fetched, and not taken yet."""
        return self._buffered

    # -- taking and waiting -------------------------------------------------------------------------------------------

    def take(self, only: Container[TopicPartition] | None = None) -> Fetched | None:
        """The next records of some partition, in fair turns; ``None`` where nothing is buffered.

        Args:
            only: hand out nothing of other partitions.

        Raises:
            OttlaError: a partition cannot be read on, until a seek; the error says which and why. It is raised once,
                and the next call goes on with the other partitions; where there are none, each time.
        """
        position = self._next(only)
        if position is None:
            if error := self._all_failed(only):
                raise error
            return None
        if position.untold:
            del self._turn[position]
            position.untold = False
            raise self._broken[position.place]
        damage = position.check(self._isolation)
        if damage is not None and not position.buffer[0].batches:
            self._rewind(position)
            self._damaged(position, damage)
            return self.take(only)
        fetched = position.take()
        self._buffered -= fetched.size
        if damage is not None:  # where it ends is not to be trusted: ask again for all that follows the good ones
            fetched.size = sum(len(each.data) for each in fetched.batches)
            self._rewind(position)
            self._leave_node(position)
        elif position.buffer:
            self._turn.move_to_end(position)
        else:
            del self._turn[position]
            position.stuck = False
        if position.replica != NOWHERE:
            self._near.accepted(position.place)
        self._taken, self._taken_at = True, self._now
        self._metrics.consumed(fetched, self._now)
        if position.node == NOWHERE or self._short:  # or it is being read on, and will be
            self._stir(position)
        return fetched

    def moved(self) -> Outcome[None]:
        """Settled when something has changed: records came, a position is known, a partition failed."""
        return self._news

    def wait(self, only: Container[TopicPartition] | None = None) -> Outcome[None]:
        """Settled when `take` has something to say, perhaps earlier."""
        if not (self.closed or self._next(only) or self._all_failed(only)):
            return self._news
        outcome: Outcome[None] = Outcome()
        outcome.succeed(None)
        return outcome

    def resolve(self, now: float, only: Container[TopicPartition] | None = None) -> Outcome[None]:
        """Settled when every position is known; fails after `api_timeout`, or with the error of a partition that has
        failed, which `take` raises all the same.
        """
        outcome: Outcome[None] = Outcome()
        timeout = self._core.options.api_timeout

        def look() -> None:
            if outcome.done:
                return
            if error := self._error(only):
                outcome.fail(error)
            elif self.closed or not any(only is None or each.place in only for each in self._unresolved):
                outcome.succeed(None)
            else:
                self._news.when_done(look)

        def late(now: float) -> None:
            why = "; ".join(itertools.islice(self.explain(now), 3))
            outcome.fail(TimeoutExpired(f"not all positions are known after {timeout:g} s: {why}"))

        look()
        if not outcome.done:
            outcome.when_done(self._core.later(now + timeout, late).cancel)
            self._core.fail_on_close(outcome)
        return outcome

    def _next(self, only: Container[TopicPartition] | None) -> Position | None:
        return next((each for each in self._turn if only is None or each.place in only), None)

    def _error(self, only: Container[TopicPartition] | None) -> OttlaError | None:
        return next((error for place, error in self._broken.items() if only is None or place in only), None)

    def _all_failed(self, only: Container[TopicPartition] | None) -> OttlaError | None:
        """An error of those, where there is no partition that can be read on."""
        return self._error(only) if len(self._broken) == len(self._positions) else None


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None
