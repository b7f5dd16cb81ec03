"""Sends pending commits to the coordinator, one OffsetCommit at a time, and decides what its errors mean.

Rules:
- At most one OffsetCommit of a consumer is in flight. Commits made meanwhile are coalesced, and sent next.
- For each partition only the newest requested offset is sent, so a retry never contains an older one. (The classic bug:
  2000 fails, 3000 succeeds, and the retry of 2000 rewinds the group.)
- An OffsetCommit may wait for its connection, so its fields are decided only when it is sent. It leaves out assignments
  that have ended meanwhile: it names topics, and the coordinator would store the offset of a deleted topic for the one
  that was created in its place. If none lasts, or the member commits in another generation by now, it is withdrawn, and
  the pending commits are sent at once.
- Commits wait while there is no generation, during SyncGroup, and are sent in the next one.
- Acknowledged offsets count as soon as the response arrives; the flow processes errors in its next step.
- A partition that the coordinator does not know does not delay others: only its offset is sent again after a pause.
  Any other retriable error delays all commits, because it concerns the coordinator or the member.
- The commit of a partition that the coordinator does not know fails once other brokers do not know the topic either. A
  topic that is just being created, or that only one broker does not know yet, gets more time.

Source: ConsumerCoordinator.java, OffsetCommitResponseHandler.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, Protocol

from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailed,
    IllegalGeneration,
    NotCoordinator,
    OttlaError,
    RebalanceInProgress,
    RemoteProtocolError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import NO_ANSWER
from ottla.sdk.connection.versions import COMMIT_BY_NAME
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, ask
from ottla.sdk.group.commit_queue import CommitQueue, PendingCommits, lasting
from ottla.sdk.group.group_metrics import CommitMetrics
from ottla.sdk.outcome import Abandoned, Outcome
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer

OF_THE_MEMBER = (
    RebalanceInProgress,
    IllegalGeneration,
    UnknownMemberId,
    FencedInstanceId,
    StaleMemberEpoch,
    FencedMemberEpoch,
)
"""Errors that concern the member rather than a partition."""
_OF_THE_COORDINATOR = (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress, GroupAuthorizationFailed)


class CommittingMember(NamedTuple):
    """The member that commits; by default none, as for a consumer that no group assigns partitions.

    Attributes:
        generation: the generation of a classic group, or the member epoch.
        has_epoch: it is a member epoch (KIP-848): the coordinator also checks it when the member fetches offsets.
    """

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    has_epoch: bool = False


class CommitSource(Protocol):
    """The consumer's `Commits`, as seen by its requests; called inside the core."""

    group: str

    def identity(self) -> CommittingMember | None:
        """The member that commits now; ``None``: wait."""
        ...

    def refused(self, error: OttlaError, identity: CommittingMember, now: float, /) -> bool:
        """Handle an error that concerns the member; return whether to retry the commit."""
        ...

    def acknowledged(self, commits: PendingCommits, now: float) -> None:
        """Take note that the coordinator has acknowledged these commits."""
        ...

    def fail(self, commits: PendingCommits, error: OttlaError) -> None:
        """Fail these commits, because a retry does not help."""
        ...


class OffsetCommits:
    """Sends the commits in ``queue``, and retries them."""

    def __init__(self, core: ClientCore, queue: CommitQueue, commits: CommitSource, metrics: CommitMetrics) -> None:
        self._core, self._queue, self._commits, self._metrics = core, queue, commits, metrics
        self._failures = 0
        """Consecutive attempts that failed because of the coordinator or the member."""
        self._paused_until = -math.inf
        """The time of the next attempt."""
        self.trouble = ""
        """The last error, while commits fail."""
        self._timer: Timer | None = None
        self._sending: LoneFlow | None = None
        """The last OffsetCommit, with the lookup of the coordinator; it may have ended."""

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def wake(self) -> None:
        """Send pending commits soon."""
        if self._queue.pending and not self._queue.in_flight:
            self._find_at(-math.inf)

    def _find_at(self, when: float) -> None:
        """Send due commits at ``when``, or at the end of the pause."""
        when = max(when, self._paused_until)
        timer = self._timer
        if timer is not None and timer.call is not None:
            if timer.when <= when:
                return
            timer.cancel()
        self._timer = self._core.later(when, self._find)

    def _find(self, now: float) -> None:
        queue = self._queue
        if queue.in_flight or not queue.pending or self._commits.identity() is None:
            return
        if queue.next_at > now:
            self._find_at(queue.next_at)
            return
        if self._sending is None or self._sending.outcome.done:
            self._sending = LoneFlow(self._core, self._send())

    def _send(self) -> Steps[None]:
        """Find the coordinator, send it the commits that are due, and process its response."""
        core, queue = self._core, self._queue
        found = core.coordinators.find(self._commits.group, core.now)
        yield found
        if found.error is not None:
            self._retry_or_fail(found.error, queue.pending, core.now)
            return
        identity = self._commits.identity()
        if identity is None or queue.next_at > core.now:
            return
        due, sent_at = queue.send(core.now), core.now
        until = sent_at + core.options.request_timeout
        build = partial(self._build, due, identity)
        answered: Outcome[OffsetCommitResponse] = ask(
            core, found.result(), OffsetCommitRequest, until, build=build, versions=COMMIT_BY_NAME
        )
        answered.when_done(lambda: self._acknowledge(answered))
        try:
            try:
                answer = yield from settled(answered)
            except Abandoned:  # by `_build`
                queue.take_back(lasting(due))
            except OttlaError as error:
                self._metrics.latency.record(core.now - sent_at, core.now)
                core.coordinators.heard(self._commits.group, error)
                self._retry_or_fail(error, lasting(due), core.now)
            else:
                self._metrics.latency.record(core.now - sent_at, core.now)
                self._judge(lasting(queue.in_flight), identity, answer, core.now)
        finally:
            queue.end_flight()  # only now, or `settled` would succeed before the response is processed
        queue.settle()
        self.wake()

    def _build(self, due: PendingCommits, identity: CommittingMember, version: int) -> OffsetCommitRequest:
        """Build the request when its connection takes it; raises `Abandoned` if it must not be sent any more."""
        commits = lasting(due)
        if not commits or self._commits.identity() != identity:
            raise Abandoned("the assignments or the generation have changed")
        return self._request(commits, identity)

    def _request(self, commits: PendingCommits, identity: CommittingMember) -> OffsetCommitRequest:
        return requests.commit_offsets(
            self._commits.group,
            {place: (e.commit.offset, e.commit.leader_epoch, e.commit.metadata) for place, e in commits.items()},
            generation=identity.generation,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
        )

    def _acknowledge(self, answered: Outcome[OffsetCommitResponse]) -> None:
        """Take note of the stored offsets when the response arrives, before the flow continues.

        A partition may be revoked in between, and its commit has not failed.
        """
        if answered.error is not None:
            return
        stored = {place for place, code in _codes(answered.result()).items() if code == 0}
        self._commits.acknowledged(self._queue.acknowledge(stored), self._core.now)
        self._queue.settle()

    def _judge(
        self, refused: PendingCommits, identity: CommittingMember, answer: OffsetCommitResponse, now: float
    ) -> None:
        """Process the errors in the response, for each partition."""
        codes = _codes(answer)
        errors: dict[int | None, PendingCommits] = {}
        for place, each in refused.items():
            errors.setdefault(codes.get(place), {})[place] = each
        if not errors:
            self._failures, self.trouble = 0, ""
        for code, commits in errors.items():
            if code is None:
                lost = RemoteProtocolError(f"OffsetCommit was answered without {_listed(commits)}")
                self._retry_or_fail(lost, commits, now)
                continue
            error = broker_error(code, f"group {self._commits.group!r}, {_listed(commits)}", repeatable=True)
            self._core.coordinators.heard(self._commits.group, error)
            if isinstance(error, OF_THE_MEMBER) and self._commits.refused(error, identity, now):
                self._pause(now)
                self._retry(commits, now)
            elif isinstance(error, UnknownTopicOrPartition):
                gone = {place: each for place, each in commits.items() if each.is_gone(self._core.metadata, now)}
                if gone:
                    self._give_up(gone, broker_error(code, f"group {self._commits.group!r}, {_listed(gone)}"))
                if left := {place: each for place, each in commits.items() if place not in gone}:
                    self._retry_or_fail(error, left, now)
            else:
                self._retry_or_fail(error, commits, now)

    def _retry_or_fail(self, error: OttlaError, commits: PendingCommits, now: float) -> None:
        """Retry commits that were not acknowledged, or fail them if a retry does not help."""
        self.trouble = str(error)
        if isinstance(error, NO_ANSWER):
            for each in commits.values():
                each.assignment.lose_answer()
        of_partitions = isinstance(error, BrokerError) and not isinstance(error, _OF_THE_COORDINATOR)
        old = {
            place: each
            for place, each in commits.items()
            if not error.retriable or (of_partitions and now - each.since > self._core.options.api_timeout)
        }
        left = {place: each for place, each in commits.items() if place not in old}
        if old:
            self._give_up(old, error)
        if left:
            if not isinstance(error, UnknownTopicOrPartition):
                self._pause(now)
            self._retry(left, now)

    def _give_up(self, commits: PendingCommits, error: OttlaError) -> None:
        """Fail these commits, for which a retry does not help."""
        self._queue.give_up(commits)
        self._commits.fail(commits, error)
        for place, each in commits.items():
            if place not in self._queue.pending:
                each.assignment.withdraw()

    def _pause(self, now: float) -> None:
        """Pause all commits, with backoff."""
        self._paused_until = now + self._core.backoff(self._failures)
        self._failures += 1

    def _retry(self, commits: PendingCommits, now: float) -> None:
        """Send these commits again after a pause."""
        retry_at = self._paused_until
        if retry_at <= now:
            retry_at = now + self._core.backoff(max(each.failures for each in commits.values()))
        self._queue.retry(commits, retry_at)
        self._find_at(retry_at)


def _codes(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition in a response."""
    return {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def _listed(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in places)
