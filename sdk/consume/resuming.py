"""Looks up the group's committed offsets, and starts to read assigned partitions there.

Lookups are repeated until the coordinator answers. Partitions that were revoked meanwhile are left out; if one was
assigned again, it has its own lookup.

Source: ConsumerCoordinator.java, refreshCommittedOffsetsIfNeeded.
"""

from collections.abc import Callable, Iterable, Sequence

from ottla.errors import OttlaError
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.fetcher import Fetcher, Offset, Start
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commits import Assignment, Commits
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome

log = logger("ottla.sdk.consumer")

POSITIONS_TIMEOUT = 1.0
"""Seconds after which the user is notified of partitions whose positions are still unknown, for example because they
are leaderless."""


class Resuming:
    """Has the fetcher read the partitions that a group assigns.

    Args:
        start: returns where to begin in a partition without a committed offset.
        news: called, inside the core, when `ready` may have changed.
        failed: called, inside the core, with an error that is not retriable.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        commits: Commits,
        fetcher: Fetcher,
        start: Callable[[TopicPartition], Start],
        news: Callable[[], None],
        failed: Callable[[OttlaError], None],
    ) -> None:
        self._core, self._group, self._commits, self._fetcher, self._start = core, group, commits, fetcher, start
        self._news, self._failed = news, failed
        self._waited: dict[TopicPartition, Assignment] = {}
        """Partitions whose position is unknown after `POSITIONS_TIMEOUT`: they are no longer waited for."""

    def ready(self, place: TopicPartition) -> bool:
        """Whether to notify the user of the partition: its position is known, or `POSITIONS_TIMEOUT` has passed."""
        waited = place in self._fetcher.places and self._waited.get(place) is self._commits.assignment(place)
        return self._fetcher.knows(place) or waited

    def forget(self, place: TopicPartition) -> None:
        """Forget a partition that is no longer assigned to this consumer."""
        self._waited.pop(place, None)

    def receive(self, places: Sequence[TopicPartition], now: float) -> None:
        """Start to read partitions that the group has assigned; retries until their committed offsets are known."""
        commits = self._commits
        assignments = {place: assignment for place in places if (assignment := commits.assignment(place))}
        mine = list(assignments)
        found = self.resume(mine, now)

        def again(now: float) -> None:
            # A partition that was revoked and assigned again has its own lookup, and may be read already.
            self.receive([place for place in mine if commits.assignment(place) is assignments[place]], now)

        def arrived() -> None:
            error = found.error
            if error is not None and error.retriable and not self._fetcher.closed:
                log.error(
                    "partitions cannot be read yet, because the committed offsets of the group are not known",
                    extra={"group": self._group, "partitions": mine, "why": str(error)},
                )
                self._core.soon(again)
            elif error is not None and any(commits.assignment(place) for place in mine):
                self._failed(error)
            self._news()

        found.when_done(arrived)

    def resume(self, places: Sequence[TopicPartition], now: float) -> Outcome[None]:
        """Read these partitions from the group's committed offsets, else from `start`; settled once they are known."""
        outcome: Outcome[None] = Outcome()
        if not places:
            outcome.succeed(None)
            return outcome
        commits = self._commits
        assignments = {place: commits.assignment(place) for place in places}
        found = calls.committed(self._core, {self._group: list(places)}, now, stable=True)

        def arrived() -> None:
            if found.error is not None:
                outcome.fail(found.error)
                return
            offsets = found.result()[self._group]
            starts: dict[TopicPartition, Start] = {}
            for place, assignment in assignments.items():
                if assignment is None or assignment.over:
                    continue
                at = commits.found(assignment, offsets.get(place))
                starts[place] = Offset(at.offset, at.leader_epoch) if at else self._start(place)
            self._core.soon(lambda now: assign(starts, now))

        def assign(starts: dict[TopicPartition, Start], now: float) -> None:
            # Some may have been revoked a moment ago.
            live = {place: start for place, start in starts.items() if commits.assignment(place) is assignments[place]}
            self._fetcher.assign(live, now)
            outcome.succeed(None)
            self._core.later(now + POSITIONS_TIMEOUT, lambda now: self._have_waited(assignments))

        found.when_done(arrived)
        outcome.when_done(found.cancel)
        return outcome

    def _have_waited(self, places: Iterable[TopicPartition]) -> None:
        self._waited.update((place, assignment) for place in places if (assignment := self._commits.assignment(place)))
        self._news()
