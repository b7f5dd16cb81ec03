"""Looks up the group's committed offsets, and starts to read assigned partitions there.

Lookups are repeated until the coordinator answers. Partitions that were revoked meanwhile are left out; if one was
assigned again, it has its own lookup.

Source: ConsumerCoordinator.java, refreshCommittedOffsetsIfNeeded.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.sdk import calls
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.assignment.subscription import Subscription
from ottla.sdk.consume.reading.fetcher import Fetcher, Offset, Start
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import Flow, LoneFlow, sleep
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.offset_commits import OF_THE_MEMBER, CommittingMember
from ottla.sdk.logs import logger, named
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

if TYPE_CHECKING:
    from uuid import UUID

log = logger("ottla.sdk.consumer")

POSITIONS_TIMEOUT = 1.0
"""Seconds after which the user is notified of partitions whose positions are still unknown, for example because they
are leaderless."""


class Resuming:
    """Has the fetcher read the partitions that a group assigns.

    Args:
        subscription: knows where to begin in a partition without a committed offset.
        news: called, inside the core, when `ready` may have changed.
        failed: called, inside the core, with an error that is not retriable.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        commits: Commits,
        fetcher: Fetcher,
        subscription: Subscription,
        news: Callable[[], None],
        failed: Callable[[OttlaError], None],
    ) -> None:
        self._core, self._group, self._commits, self._fetcher = core, group, commits, fetcher
        self._subscription = subscription
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

    def receive(self, places: Sequence[TopicPartition]) -> None:
        """Start to read partitions that the group has assigned; retries until their committed offsets are known."""
        LoneFlow(self._core, self._receive(places))

    def _receive(self, places: Sequence[TopicPartition]) -> Steps[None]:
        commits = self._commits
        assignments = {place: commits.assignment(place) for place in places}
        refusals = 0
        while True:
            # A partition that was revoked and assigned again has its own lookup, and may be read already.
            mine = [place for place, each in assignments.items() if each and commits.assignment(place) is each]
            member = commits.identity()
            member = member if member is not None and member.has_epoch else None
            try:
                yield from self._resume(mine, member)
            except OttlaError as error:
                if member is not None and isinstance(error, OF_THE_MEMBER):
                    # The epoch has moved on, or the member is lost: then its partitions are lost, too.
                    commits.refused(error, member, self._core.now)
                    yield from sleep(self._core, self._core.backoff(refusals))
                    refusals += 1
                    continue
                if error.retriable and not self._fetcher.closed:
                    log.error(
                        "partitions cannot be read yet: the committed offsets of the group are unknown, retrying",
                        extra={"group": self._group, "partitions": named(mine), "why": str(error)},
                    )
                    self._news()
                    continue  # without a pause: `calls.committed` has retried for `api_timeout` already
                if any(commits.assignment(place) for place in mine):
                    self._failed(error)
            self._news()
            return

    def resume(self, places: Sequence[TopicPartition]) -> Outcome[None]:
        """Read these partitions from the group's committed offsets, else from `start`; settled once they are known."""
        return Flow(self._core, self._resume(places)).outcome

    def _resume(self, places: Sequence[TopicPartition], member: CommittingMember | None = None) -> Steps[None]:
        if not places:
            return
        core, commits = self._core, self._commits
        assignments = {place: assignment for place in places if (assignment := commits.assignment(place))}
        found = yield from settled(
            calls.committed(core, {self._group: list(places)}, core.now, stable=True, member=member)
        )
        starts: dict[TopicPartition, Start] = {}
        topic_ids: dict[TopicPartition, UUID] = {}
        for place, assignment in assignments.items():
            if not assignment.over:  # it was not revoked meanwhile
                at = commits.found(assignment, found[self._group].get(place))
                if at is not None:
                    starts[place] = Offset(at.offset, at.leader_epoch)
                else:
                    starts[place] = self._subscription.start(place)
                    topic_ids[place] = self._subscription.topic_id(place[0])
        self._fetcher.assign(starts, core.now, topic_ids=topic_ids)
        core.later(core.now + POSITIONS_TIMEOUT, lambda now: self._have_waited(places))

    def _have_waited(self, places: Iterable[TopicPartition]) -> None:
        self._waited.update((place, assignment) for place in places if (assignment := self._commits.assignment(place)))
        self._news()
