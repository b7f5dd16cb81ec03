"""A consumer's commits: the offsets of each assignment, and the callers and errors of failed commits.

Rules:
- A commit belongs to one `Assignment`, from the time the partition is assigned until it is revoked or lost. Commits not
  acknowledged by then are dropped and never sent again: the next owner has resumed from the committed offset.
- A commit that is pending when the user seeks is still sent, unless a newer one replaces it.
- A commit without an answer may still arrive later: a broker that was paused reads its sockets when it continues, and
  there is no order between two connections. So after a commit with an unknown outcome, the newest offset is sent a
  second time, `request_timeout` later. Between the two, an older offset may be committed.
- A partition's offsets are committed by one party at a time. While a transaction holds the assignment, other commits
  are refused, and the second sending waits; the transaction sends its offset once earlier OffsetCommits have ended. If
  one arrived between TxnOffsetCommit and the end of the transaction, Kafka would drop the transaction's offset.
- A caller waits for its own commit and for earlier ones of the same partitions. A cancelled wait withdraws no commit.

Source: ConsumerCoordinator.java; OffsetMetadataManager.java, replayEndTransactionMarker.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from ottla.errors import CommitFailed, OttlaError, TimeoutExpired
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commit_queue import Assignment, CommitQueue, Holder, PendingCommits
from ottla.sdk.group.group_metrics import CommitMetrics
from ottla.sdk.group.offset_commits import CommittingMember, OffsetCommits
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, own, settled_with
from ottla.sdk.steps import Steps

log = logger("ottla.sdk.consumer")

_NOT_COMMITTED = "offsets were not committed"


class Commits:
    """Commits the offsets of one consumer, and reports failures.

    Args:
        identity: returns the identity of the member that commits now; ``None``: wait.
        refused: called, inside the core, with errors that concern the member, and the identity that committed; returns
            whether to retry the commit: its assignment ends, or goes on in a new generation.
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
        self._core, self.group, self.identity, self.refused = core, group, identity, refused
        self._on_taken = taken
        self._identified: Outcome[None] = Outcome()
        """Settled, and then replaced, when the identity may be known."""
        self._assignments: dict[TopicPartition, Assignment] = {}
        self._queue = CommitQueue()
        self._metrics = CommitMetrics(core.metrics, group)
        self._sender = OffsetCommits(core, self._queue, self, self._metrics)
        self._failed: CommitFailed | None = None

    def close(self) -> None:
        """End all assignments, and send nothing more: a late commit could overwrite one of the next reader."""
        for place in list(self._assignments):
            self.disown(place, "the consumer is closed", quiet=False)
        self._sender.close()
        self._metrics.close()

    # -- assignments -------------------------------------------------------------------------------------------------

    def own(self, place: TopicPartition) -> Assignment:
        """Begin an assignment of the partition."""
        assignment = self._assignments[place] = Assignment(place)
        return assignment

    def assignment(self, place: TopicPartition) -> Assignment | None:
        return self._assignments.get(place)

    def disown(self, place: TopicPartition, why: str, *, quiet: bool = True) -> None:
        """End the partition's assignment; commits that are not acknowledged fail, ``quiet`` or not as in `_fail`."""
        assignment = self._assignments.pop(place, None)
        if assignment is None:
            return
        assignment.end(why)
        if (last := self._queue.drop(place)) is not None:
            self._fail({place: last}, f"{_NOT_COMMITTED}, because {why}", quiet=quiet)

    def rewind(self, place: TopicPartition) -> None:
        """Take note of the user's seek: from now on, lower offsets may be committed."""
        if (assignment := self._assignments.get(place)) and assignment.over:
            self.renew(place, assignment.over)
        elif assignment:
            assignment.rewind()

    def suspend(self, place: TopicPartition, why: str) -> None:
        """Drop pending commits because the log has changed, and refuse others until `rewind` or `renew`."""
        if (assignment := self._assignments.get(place)) and not assignment.over:
            self.renew(place, why)
            self._assignments[place].end(why)

    def renew(self, place: TopicPartition, why: str) -> None:
        """Drop pending commits because the log has changed; from now on, lower offsets may be committed."""
        if assignment := self._assignments.get(place):
            outcome_unknown = assignment.outcome_unknown or place in self._queue.in_flight
            self.disown(place, why)
            self._assignments[place] = Assignment(place, outcome_unknown=outcome_unknown)

    def found(self, assignment: Assignment, at: CommittedOffset | None) -> CommittedOffset | None:
        """Return the group's committed offset; ``at`` is the coordinator's response to OffsetFetch.

        A commit that was requested or acknowledged after OffsetFetch was sent is newer than the response, and wins.
        """
        pending = self._queue.newest(assignment.place)
        if pending is not None and pending.assignment is assignment:
            return pending.commit
        if assignment.taken is None and at is not None:
            assignment.resume(at)
        return assignment.taken

    # -- for the user ------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Assignment, CommittedOffset], now: float) -> None:
        """Commit these offsets; an offset lower than one requested before is ignored.

        Raises:
            CommitFailed: an assignment has ended; none of the offsets is committed.
            LocalProtocolError: a transaction commits an offset of a partition; none of the offsets is committed.
        """
        over = {assignment.place: each.offset for assignment, each in offsets.items() if assignment.over}
        if over:
            why = next(assignment.over for assignment in offsets if assignment.over)
            raise CommitFailed(f"the assignment of the partitions has ended: {why}", over)
        for assignment, each in offsets.items():
            if each.offset >= assignment.asked:
                assignment.refuse_held()
        wanted = {assignment: each for assignment, each in offsets.items() if assignment.request(each.offset)}
        self._queue.add(wanted, now)
        self.wake()

    def settled(
        self, now: float, places: Collection[TopicPartition] | None = None, timeout: float = math.inf
    ) -> Outcome[None]:
        """Settled when all commits so far of these partitions (``None``: of all) are acknowledged.

        Fails with `CommitFailed`, or with `TimeoutExpired` after ``timeout`` seconds, at most `api_timeout`.
        """
        pending = self._queue.unfinished.keys()
        if not pending or (places is not None and pending.isdisjoint(places)):
            return settled_with(None)
        outcome: Outcome[None] = Outcome()
        timeout = min(timeout, self._core.options.api_timeout)

        def expire(now: float) -> None:
            why = "; ".join(self.explain(now))
            outcome.fail(TimeoutExpired(f"not committed within {timeout:g} s: {why}"))

        self._queue.wait(outcome, None if places is None else frozenset(places))
        outcome.when_done(self._core.later(now + timeout, expire).cancel)
        self._core.fail_on_close(outcome)
        return outcome

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """The offsets that are not acknowledged yet."""
        return {place: each.commit.offset for place, each in self._queue.unfinished.items()}

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
        pending = self._queue.unfinished
        if not pending:
            return
        since = min(each.since for each in pending.values())
        places = ", ".join(f"{topic}-{partition}" for topic, partition in list(pending)[:3])
        more = f" and {len(pending) - 3} more" if len(pending) > 3 else ""
        where = self._core.coordinators.where(self.group)
        what = "for an answer" if self._queue.in_flight else "to be sent"
        if self.identity() is None:
            what = "for the rebalance to end"
        trouble = f"; last error: {self._sender.trouble}" if self._sender.trouble else ""
        yield (f"group {self.group!r}: offsets of {places}{more} wait {what} for {now - since:.1f} s; {where}{trouble}")

    # -- in transactions ---------------------------------------------------------------------------------------------

    def identified(self, places: Collection[TopicPartition]) -> Steps[CommittingMember]:
        """Wait until a transaction can commit offsets of these partitions: OffsetCommits have ended, and there is an
        identity that commits; during SyncGroup there is none.
        """
        while True:
            if not (ended := self._queue.ended(places)).done:
                yield ended
            elif (identity := self.identity()) is None:
                yield own(self._identified)
            else:
                return identity

    def committed_in_transaction(self, holder: Holder, offsets: Mapping[Assignment, CommittedOffset]) -> None:
        """Take note that a transaction has committed these offsets."""
        for assignment, each in offsets.items():
            if assignment.committed_in_transaction(holder, each):
                self._repeat_later(assignment)
        if self._on_taken is not None and offsets:
            self._on_taken({assignment.place: each for assignment, each in offsets.items()})

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Send pending commits soon, and tell waiters to look for an identity."""
        identified, self._identified = self._identified, Outcome()
        identified.succeed(None)
        self._sender.wake()

    def acknowledged(self, commits: PendingCommits, now: float) -> None:
        """Take note that the coordinator has acknowledged these offsets."""
        if not commits:
            return
        self._metrics.commits.add(len(commits), now)
        for each in commits.values():
            if each.assignment.acknowledge(each.commit):
                self._repeat_later(each.assignment)
        if self._on_taken is not None:
            self._on_taken({place: each.commit for place, each in commits.items()})

    def _repeat_later(self, assignment: Assignment) -> None:
        self._core.later(self._core.now + self._core.options.request_timeout, partial(self._repeat, assignment))

    def _repeat(self, assignment: Assignment, now: float) -> None:
        """Send the last acknowledged offset a second time, unless a newer one is pending or in flight."""
        under_way = self._queue.newest(assignment.place) is not None
        if assignment.is_held and not assignment.over:
            self._repeat_later(assignment)
        elif assignment.taken is not None and not assignment.over and not under_way:
            self._queue.add({assignment: assignment.taken}, now)
            self.wake()

    def fail(self, commits: PendingCommits, error: OttlaError) -> None:
        """Fail commits because of an error of the coordinator, for which a retry does not help."""
        self._fail(commits, f"{_NOT_COMMITTED}: {error}", cause=error)

    def _fail(self, commits: PendingCommits, why: str, *, cause: OttlaError | None = None, quiet: bool = False) -> None:
        """Fail commits. Waiting callers get the error; without any, the user's next call does, unless ``quiet``."""
        error = CommitFailed(why, {place: each.commit.offset for place, each in commits.items()}, cause)
        self._metrics.failed.add(len(commits))
        reason = str(error).removeprefix(_NOT_COMMITTED).lstrip(",: ").removeprefix("because ")
        log.warning(_NOT_COMMITTED, extra={"group": self.group, "why": reason})
        reported = self._queue.fail(commits.values(), error)
        if not reported and not quiet:
            self._failed = self._failed or error
        if reported or not quiet:
            for each in commits.values():
                each.assignment.report_loss(each.commit.offset)
        self._queue.settle()
