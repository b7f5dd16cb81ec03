"""Sends a consumer's commits to the coordinator, so that committed offsets never go backwards.

    commit ──► pending ── sent ──► in flight ── acknowledged ──► (gone)
                 ▲                     │
                 └───── retriable ─────┘   newer commits win

Rules:
- At most one OffsetCommit of a consumer is in flight. Commits made meanwhile are coalesced, and sent next.
- For each partition only the highest requested offset is kept, so a retry never contains an older one. (The classic
  bug: 2000 fails, 3000 succeeds, and the retry of 2000 rewinds the group.) Only a seek, by which the user asks to go
  back, lowers the mark. A commit pending at the seek is still sent, unless a newer one replaces it.
- A commit belongs to one `Assignment`, from the time the partition is assigned until it is revoked or lost. Commits not
  acknowledged by then are dropped and never sent again: the next owner has resumed from the committed offset.
- A commit without an answer may still arrive later: a broker that was paused reads its sockets when it continues, and
  there is no order between two connections. So after a commit with an unknown outcome, the newest offset is sent a
  second time, `request_timeout` later. Between the two, an older offset may be committed.
- Commits wait while there is no generation, during SyncGroup, and are sent in the next one.
- Acknowledged offsets count as soon as the response arrives; the flow processes errors in its next step.
- A caller waits for its own commit and for earlier ones of the same partitions. A cancelled wait withdraws no commit.
- A partition that the coordinator does not know does not delay others: only its offset is sent again after a pause.
  Any other retriable error delays all commits, because it concerns the coordinator or the member.
- The commit of a partition that the coordinator does not know fails once other brokers do not know the topic either. A
  topic that is just being created, or that only one broker does not know yet, gets more time.

Source: ConsumerCoordinator.java, OffsetCommitResponseHandler.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import NamedTuple

from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.errors import (
    BrokerError,
    CommitFailed,
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    NotCoordinator,
    OttlaError,
    RebalanceInProgress,
    RemoteProtocolError,
    TimeoutExpired,
    UnknownMemberId,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.late_dataclass import dataclass
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import COMMIT_BY_NAME
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, ask
from ottla.sdk.group.group_metrics import CommitMetrics
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, own
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_NOT_COMMITTED = "offsets were not committed"

OF_THE_MEMBER = (RebalanceInProgress, IllegalGeneration, UnknownMemberId, FencedInstanceId)
"""Errors that concern the member rather than a partition."""
_OF_THE_COORDINATOR = (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress, GroupAuthorizationFailed)


class CommittingMember(NamedTuple):
    """The member that commits; by default none, as for a consumer that no group assigns partitions."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(slots=True, eq=False)
class Assignment:
    """One assignment of a partition to this consumer, from the time it is assigned until it is revoked or lost."""

    place: TopicPartition
    asked: int = -1
    """The highest offset requested to be committed."""
    taken: CommittedOffset | None = None
    """The last committed offset that the coordinator acknowledged."""
    outcome_unknown: bool = False
    """An older offset may still arrive at the coordinator."""
    handed: int = -1
    """The offset after the records handed out since the last seek; -1: none, or their loss was reported already."""
    seeks: int = 0
    """Counts the seeks, after each of which lower offsets may be committed."""
    over: str = ""
    """Why the assignment ended; empty while it lasts."""
    ended: Outcome[None] = field(default_factory=Outcome)
    """Settled when the assignment ends."""

    @property
    def committed(self) -> int:
        """The last offset that the coordinator acknowledged; -1: none."""
        return self.taken.offset if self.taken else -1


@dataclass(slots=True)
class PendingCommit:
    """A commit that is not acknowledged yet."""

    commit: CommittedOffset
    assignment: Assignment
    number: int
    """The number of the oldest call that this commit covers."""
    since: float
    failures: int = 0
    """Consecutive attempts that failed because of this partition."""
    retry_at: float = -math.inf
    topic: Outcome[Topic] | None = None
    """The metadata lookup of the topic, made once the coordinator says that it is unknown."""


PendingCommits = dict[TopicPartition, PendingCommit]


class Commits:
    """Sends the commits of one consumer, retries them, and reports failures.

    Args:
        identity: returns the identity of the member that commits now; ``None``: wait.
        refused: called, inside the core, with errors that concern the member, and the identity that committed; returns
            whether the member acts on them: it ends the assignments, or keeps them in a new generation.
        taken: called, inside the core, with offsets that the coordinator has acknowledged.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        identity: Callable[[], CommittingMember | None] = CommittingMember,
        refused: Callable[[OttlaError, CommittingMember, float], bool] = lambda error, identity, now: False,
        taken: Callable[[Mapping[TopicPartition, CommittedOffset]], None] | None = None,
    ) -> None:
        self._core, self.group, self._identity, self.refused = core, group, identity, refused
        self._on_taken = taken
        self._identified: Outcome[None] = Outcome()
        """Settled, and then replaced, when the identity may be known."""
        self._assignments: dict[TopicPartition, Assignment] = {}
        self._pending: PendingCommits = {}
        """Commits for the next OffsetCommit."""
        self._waiting = CommitWaiters()
        self._number = 0
        self._failures = 0
        """Consecutive attempts that failed because of the coordinator or the member."""
        self._paused_until = -math.inf
        """The time of the next attempt."""
        self._trouble = ""
        self._due: Timer | None = None
        self._sending: LoneFlow | None = None
        """The last OffsetCommit, with the lookup of the coordinator; it may have ended."""
        self._in_flight: PendingCommits = {}
        """The commits of the last OffsetCommit that are not acknowledged, until its response is processed."""
        self._failed: CommitFailed | None = None
        self._metrics = CommitMetrics(core.metrics, group)

    def close(self) -> None:
        """End all assignments, and send nothing more: a late commit could overwrite one of the next reader."""
        for place in list(self._assignments):
            self.disown(place, "the consumer is closed")
        if self._due is not None:
            self._due.cancel()
        if self._sending is not None:
            self._sending.cancel()
        self._metrics.close()

    # -- assignments -------------------------------------------------------------------------------------------------

    def own(self, place: TopicPartition) -> Assignment:
        """Begin an assignment of the partition."""
        assignment = self._assignments[place] = Assignment(place)
        return assignment

    def assignment(self, place: TopicPartition) -> Assignment | None:
        return self._assignments.get(place)

    def disown(self, place: TopicPartition, why: str) -> None:
        """End the partition's assignment; commits that are not acknowledged fail."""
        assignment = self._assignments.pop(place, None)
        if assignment is None:
            return
        assignment.over = why
        assignment.ended.succeed(None)
        sent, newer = self._in_flight.get(place), self._pending.pop(place, None)
        if (last := newer or sent) is not None:
            last.number = (sent or last).number
            self._fail({place: last}, f"{_NOT_COMMITTED}, because {why}", quiet=True)

    def rewind(self, place: TopicPartition) -> None:
        """Take note of the user's seek: from now on, lower offsets may be committed."""
        if assignment := self._assignments.get(place):
            assignment.asked, assignment.taken, assignment.handed = -1, None, -1
            assignment.seeks += 1

    def renew(self, place: TopicPartition, why: str) -> None:
        """Drop pending commits because the log has changed; from now on, lower offsets may be committed."""
        if assignment := self._assignments.get(place):
            outcome_unknown = assignment.outcome_unknown or place in self._in_flight
            self.disown(place, why)
            self._assignments[place] = Assignment(place, outcome_unknown=outcome_unknown)

    def found(self, assignment: Assignment, at: CommittedOffset | None) -> CommittedOffset | None:
        """Return the group's committed offset; ``at`` is the coordinator's response to OffsetFetch.

        A commit that was requested or acknowledged after OffsetFetch was sent is newer than the response, and wins.
        """
        pending = self._pending.get(assignment.place) or self._in_flight.get(assignment.place)
        if pending is not None and pending.assignment is assignment:
            return pending.commit
        if assignment.taken is None and at is not None:
            assignment.asked, assignment.taken = at.offset, at
        return assignment.taken

    # -- for the user ------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Assignment, CommittedOffset], now: float) -> None:
        """Commit these offsets; an offset lower than one requested before is ignored.

        Raises:
            CommitFailed: an assignment has ended; none of the offsets is committed.
        """
        over = {assignment.place: each.offset for assignment, each in offsets.items() if assignment.over}
        if over:
            why = next(assignment.over for assignment in offsets if assignment.over)
            raise CommitFailed(f"the assignment of the partitions has ended: {why}", over)
        self._number += 1
        for assignment, each in offsets.items():
            if each.offset < assignment.asked:
                continue
            assignment.asked = each.offset
            before = self._pending.get(assignment.place) or PendingCommit(each, assignment, self._number, now)
            self._pending[assignment.place] = replace(before, commit=each)
        self.wake()

    def settled(self, now: float, places: Collection[TopicPartition] | None = None) -> Outcome[None]:
        """Settled when all commits so far of these partitions (``None``: of all) are acknowledged.

        Fails with `CommitFailed`, or with `TimeoutExpired` after `api_timeout`.
        """
        outcome: Outcome[None] = Outcome()
        pending = self._pending.keys() | self._in_flight.keys()
        if not pending or (places is not None and pending.isdisjoint(places)):
            outcome.succeed(None)
            return outcome
        timeout = self._core.options.api_timeout

        def expire(now: float) -> None:
            why = "; ".join(self.explain(now))
            outcome.fail(TimeoutExpired(f"not committed within {timeout:g} s: {why}"))

        self._waiting.add(outcome, self._number, None if places is None else frozenset(places))
        outcome.when_done(self._core.later(now + timeout, expire).cancel)
        self._core.fail_on_close(outcome)
        return outcome

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """The offsets that are not acknowledged yet."""
        return {place: each.commit.offset for place, each in (self._in_flight | self._pending).items()}

    @property
    def failed(self) -> bool:
        """Whether a commit for which no caller waited has failed since `take_failure`."""
        return self._failed is not None

    def take_failure(self) -> CommitFailed | None:
        """The error of failed commits for which no caller waited; returned once."""
        failed, self._failed = self._failed, None
        return failed

    def raise_failures(self) -> None:
        """Raise the error that `take_failure` returns, if any."""
        if (failed := self.take_failure()) is not None:
            raise failed

    def explain(self, now: float) -> Iterator[str]:
        pending = self._in_flight | self._pending
        if not pending:
            return
        since = min(each.since for each in pending.values())
        places = ", ".join(f"{topic}-{partition}" for topic, partition in list(pending)[:3])
        more = f" and {len(pending) - 3} more" if len(pending) > 3 else ""
        where = self._core.coordinators.where(self.group)
        what = "for an answer" if self._in_flight else "to be sent"
        if self._identity() is None:
            what = "for the rebalance to end"
        trouble = f"; last error: {self._trouble}" if self._trouble else ""
        yield (f"group {self.group!r}: offsets of {places}{more} wait {what} for {now - since:.1f} s; {where}{trouble}")

    # -- in transactions ---------------------------------------------------------------------------------------------

    def identified(self) -> Steps[CommittingMember]:
        """Wait until there is an identity that commits; during SyncGroup there is none."""
        while (identity := self._identity()) is None:
            yield own(self._identified)
        return identity

    def committed_in_transaction(self, offsets: Mapping[Assignment, CommittedOffset]) -> None:
        """Take note that a transaction has committed these offsets."""
        for assignment, each in offsets.items():
            if each.offset > assignment.committed:
                assignment.asked, assignment.taken = max(assignment.asked, each.offset), each
        if self._on_taken is not None and offsets:
            self._on_taken({assignment.place: each for assignment, each in offsets.items()})

    # -- sending -----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Send pending commits soon, and tell waiters to look for an identity."""
        identified, self._identified = self._identified, Outcome()
        identified.succeed(None)
        if self._pending and not self._in_flight:
            self._find_at(-math.inf)

    def _find_at(self, when: float) -> None:
        """Send due commits at ``when``, or at the end of the pause."""
        when = max(when, self._paused_until)
        due = self._due
        if due is not None and due.call is not None:
            if due.when <= when:
                return
            due.cancel()
        self._due = self._core.later(when, self._find)

    def _find(self, now: float) -> None:
        if self._in_flight or not self._pending or self._identity() is None:
            return
        if (earliest := min(each.retry_at for each in self._pending.values())) > now:
            self._find_at(earliest)
            return
        if self._sending is None or self._sending.outcome.done:
            self._sending = LoneFlow(self._core, self._send())

    def _send(self) -> Steps[None]:
        """Find the coordinator, send it the commits that are due, and process its response."""
        core = self._core
        found = core.coordinators.find(self.group, core.now)
        yield found
        if found.error is not None:
            self._retry_or_fail(found.error, self._pending, core.now)
            return
        identity = self._identity()
        due = {place: each for place, each in self._pending.items() if each.retry_at <= core.now}
        if identity is None or not due:
            return
        request, sent_at = self._request(due, identity), core.now
        self._pending = {place: each for place, each in self._pending.items() if place not in due}
        self._in_flight = due
        until = sent_at + core.options.request_timeout
        answered: Outcome[OffsetCommitResponse] = ask(core, found.result(), request, until, versions=COMMIT_BY_NAME)
        answered.when_done(lambda: self._acknowledge(answered))
        try:
            try:
                answer = yield from settled(answered)
            except OttlaError as error:
                core.coordinators.heard(self.group, error)
                self._retry_or_fail(error, _left(due), core.now)
            else:
                self._judge(_left(self._in_flight), identity, answer, core.now)
            self._metrics.latency.record(core.now - sent_at, core.now)
        finally:
            self._in_flight = {}  # only now, or `settled` would succeed before the response is processed
        self._settle()
        self.wake()

    def _request(self, commits: PendingCommits, identity: CommittingMember) -> OffsetCommitRequest:
        return requests.commit_offsets(
            self.group,
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
        self._take({place: each for place, each in _left(self._in_flight).items() if place in stored}, self._core.now)
        self._in_flight = {place: each for place, each in self._in_flight.items() if place not in stored}
        self._settle()

    def _judge(
        self, refused: PendingCommits, identity: CommittingMember, answer: OffsetCommitResponse, now: float
    ) -> None:
        """Process the errors in the response, for each partition."""
        codes = _codes(answer)
        errors: dict[int | None, PendingCommits] = {}
        for place, each in refused.items():
            errors.setdefault(codes.get(place), {})[place] = each
        if not errors:
            self._failures, self._trouble = 0, ""
        for code, commits in errors.items():
            if code is None:
                lost = RemoteProtocolError(f"OffsetCommit was answered without {_listed(commits)}")
                self._retry_or_fail(lost, commits, now)
                continue
            error = broker_error(code, f"group {self.group!r}, {_listed(commits)}", repeatable=True)
            self._core.coordinators.heard(self.group, error)
            if isinstance(error, OF_THE_MEMBER) and self.refused(error, identity, now):
                self._pause(now)
                self._retry(commits, now)
            elif isinstance(error, UnknownTopicOrPartition):
                gone = {place: each for place, each in commits.items() if self._is_gone(each, now)}
                if gone:
                    self._give_up(gone, broker_error(code, f"group {self.group!r}, {_listed(gone)}"))
                if left := {place: each for place, each in commits.items() if place not in gone}:
                    self._retry_or_fail(error, left, now)
            else:
                self._retry_or_fail(error, commits, now)

    def _is_gone(self, pending: PendingCommit, now: float) -> bool:
        """Whether other brokers do not know the topic either; the first call asks them."""
        found = pending.topic
        if found is not None and isinstance(found.error, UnknownTopicOrPartition):
            return True
        if found is None or found.done:
            name = pending.assignment.place[0]
            pending.topic = self._core.metadata.topic(name, now, fresh=True, grace=KNOWN_TOPIC_GRACE)
        return False

    def _take(self, commits: PendingCommits, now: float) -> None:
        """Take note that the coordinator has acknowledged these offsets."""
        if not commits:
            return
        self._metrics.commits.add(len(commits), now)
        for each in commits.values():
            assignment = each.assignment
            if each.commit.offset > assignment.asked:
                continue  # the user has sought since
            assignment.taken = each.commit
            if assignment.outcome_unknown:
                assignment.outcome_unknown = False
                self._core.later(now + self._core.options.request_timeout, partial(self._repeat, assignment))
        if self._on_taken is not None:
            self._on_taken({place: each.commit for place, each in commits.items()})

    def _repeat(self, assignment: Assignment, now: float) -> None:
        """Send the last acknowledged offset a second time, unless a newer one is pending or in flight."""
        under_way = assignment.place in self._pending or assignment.place in self._in_flight
        if assignment.taken is not None and not assignment.over and not under_way:
            self._number += 1
            self._pending[assignment.place] = PendingCommit(assignment.taken, assignment, self._number, now)
            self.wake()

    def _retry_or_fail(self, error: OttlaError, commits: PendingCommits, now: float) -> None:
        """Retry commits that were not acknowledged, or fail them if a retry does not help."""
        self._trouble = str(error)
        if isinstance(error, ConnectionLost | TimeoutExpired | RemoteProtocolError):
            for each in commits.values():
                each.assignment.outcome_unknown = True
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
        for place, each in commits.items():
            if self._pending.get(place) is each:
                del self._pending[place]
        self._fail(commits, f"{_NOT_COMMITTED}: {error}", cause=error)
        for place, each in commits.items():
            if place not in self._pending:
                each.assignment.asked = each.assignment.committed

    def _pause(self, now: float) -> None:
        """Pause all commits, with backoff."""
        self._paused_until = now + self._core.backoff(self._failures)
        self._failures += 1

    def _retry(self, commits: PendingCommits, now: float) -> None:
        """Send these commits again after a pause; a newer commit replaces an older one, and covers it for waiters."""
        retry_at = self._paused_until
        if retry_at <= now:
            retry_at = now + self._core.backoff(max(each.failures for each in commits.values()))
        for place, each in commits.items():
            each.failures += 1
            each.retry_at = retry_at
            if newer := self._pending.get(place):
                newer.number, newer.since = min(newer.number, each.number), min(newer.since, each.since)
                newer.failures, newer.retry_at, newer.topic = each.failures, each.retry_at, each.topic
            elif not each.assignment.over:  # commits of an ended assignment are dropped
                self._pending[place] = each
        self._find_at(retry_at)

    # -- settling ----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._waiting.settle([*self._pending.values(), *self._in_flight.values()])

    def _fail(self, commits: PendingCommits, why: str, *, cause: OttlaError | None = None, quiet: bool = False) -> None:
        """Fail commits. Waiting callers get the error; without any, the user's next call does, unless ``quiet``."""
        error = CommitFailed(why, {place: each.commit.offset for place, each in commits.items()}, cause)
        self._metrics.failed.add(len(commits))
        reason = str(error).removeprefix(_NOT_COMMITTED).lstrip(",: ").removeprefix("because ")
        log.warning(_NOT_COMMITTED, extra={"group": self.group, "why": reason})
        reported = self._waiting.fail(commits.values(), error)
        if not reported and not quiet:
            self._failed = self._failed or error
        if reported or not quiet:
            for each in commits.values():
                if each.assignment.handed <= each.commit.offset:
                    each.assignment.handed = -1
        self._settle()


def _left(commits: PendingCommits) -> PendingCommits:
    """The commits whose assignments have not ended."""
    return {place: each for place, each in commits.items() if not each.assignment.over}


def _codes(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition in a response."""
    return {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def _listed(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in places)


class CommitWaiter(NamedTuple):
    """A caller that waits for the commits up to a number, of some partitions or (``None``) of all."""

    number: int
    places: frozenset[TopicPartition] | None

    def waits_for(self, commits: Iterable[PendingCommit]) -> bool:
        """Whether the caller waits for any of these commits."""
        number, places = self
        return any(each.number <= number and (places is None or each.assignment.place in places) for each in commits)


class CommitWaiters:
    """Settles the outcomes of callers that wait for commits."""

    def __init__(self) -> None:
        self._waiting: dict[Outcome[None], CommitWaiter] = {}

    def add(self, outcome: Outcome[None], number: int, places: frozenset[TopicPartition] | None) -> None:
        """Add a caller; for the arguments see `CommitWaiter`."""
        self._waiting[outcome] = CommitWaiter(number, places)
        outcome.when_done(lambda: self._waiting.pop(outcome, None))

    def settle(self, left: Collection[PendingCommit]) -> None:
        """Settle the callers that wait for none of the commits in ``left``."""
        for outcome in [each for each, waiter in self._waiting.items() if not waiter.waits_for(left)]:
            outcome.succeed(None)

    def fail(self, commits: Collection[PendingCommit], error: OttlaError) -> bool:
        """Fail the callers that wait for these commits; return whether there is any."""
        concerned = [each for each, waiter in self._waiting.items() if waiter.waits_for(commits)]
        for outcome in concerned:
            outcome.fail(error)
        return bool(concerned)
