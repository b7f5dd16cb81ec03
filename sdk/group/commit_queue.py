"""The offsets of each assignment, the commits that are not acknowledged yet, and the callers that wait for them.

    add ──► pending ── send ──► in flight ── acknowledge ──► (gone)
               ▲                    │
               └─ retry, take_back ─┘   a newer commit of the partition is sent in place of the older

Rules:
- The requested offset of an assignment never goes down, so a retry never contains an older one. Only a seek, by which
  the user asks to go back, lowers it.
- After a commit with an unknown outcome an older offset may still arrive, so the next acknowledged one is repeated.
- A transaction that commits an offset holds the assignment until its block has ended and its outcome is known.
  Meanwhile all other commits of the partition are refused. They do not wait, so there is no deadlock; and the
  transaction need not be doomed later, so no results are lost. A higher offset would commit records whose results may
  yet be aborted, and the transaction's offset would then take the group back: Kafka keeps the offset whose request
  arrived last, not the highest one.
- An acknowledged offset that was requested before a seek does not count after it.
- For each partition at most one commit is pending, and one in flight.
- Each call of `add` has a number. A commit keeps the number of the oldest call that it covers, and a caller waits for
  commits up to a number: for its own and for earlier ones.
"""

import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import field, replace
from typing import NamedTuple

from ottla.errors import LocalProtocolError, OttlaError, UnknownTopicOrPartition
from ottla.late_dataclass import dataclass
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE, Metadata
from ottla.sdk.outcome import Outcome


@dataclass(slots=True, eq=False)
class Holder:
    """Stands for one transaction, towards the assignments whose offsets it commits."""

    transactional_id: str


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
    _handed_before: int = -1
    """`handed` before the last batch was handed out."""
    _holder: Holder | None = None
    """The transaction that commits an offset of this assignment."""
    _sought: bool = False
    """The user has sought since that offset was added."""
    _undecided: bool = False
    """The client cannot learn whether that transaction was committed."""

    @property
    def committed(self) -> int:
        """The last offset that the coordinator acknowledged; -1: none."""
        return self.taken.offset if self.taken else -1

    def end(self, why: str) -> None:
        """End the assignment."""
        self.over = why
        self.ended.succeed(None)

    # -- batches ------------------------------------------------------------------------------------------------------

    def hand_out(self, offset: int) -> None:
        """Take note that the user gets the records before ``offset``."""
        self._handed_before, self.handed = self.handed, offset

    def take_back(self) -> None:
        """Undo the last `hand_out`: the batch has not reached the user."""
        self.handed = self._handed_before

    def rewind(self) -> None:
        """Take note of the user's seek: from now on, lower offsets may be committed."""
        self.asked, self.taken, self.handed = -1, None, -1
        self.seeks += 1
        self._sought = True
        if self._undecided:
            self._holder, self._undecided = None, False

    def report_loss(self, offset: int | None = None) -> None:
        """Take note that an error tells the user that records up to ``offset`` (``None``: all) are not committed."""
        if offset is None or self.handed <= offset:
            self.handed = -1

    # -- commits ------------------------------------------------------------------------------------------------------

    def resume(self, at: CommittedOffset) -> None:
        """Begin at the group's committed offset."""
        self.asked, self.taken = at.offset, at

    def request(self, offset: int) -> bool:
        """Request a commit of this offset; ``False`` if a higher one was requested before."""
        if offset < self.asked:
            return False
        self.asked = offset
        return True

    def withdraw(self) -> None:
        """Allow the requested offset to be requested again, because its commit has failed."""
        self.asked = self.committed

    def lose_answer(self) -> None:
        """Take note that a commit may still arrive at the coordinator, because it was not answered."""
        self.outcome_unknown = True

    def acknowledge(self, commit: CommittedOffset) -> bool:
        """Take note of an acknowledged commit; return whether to repeat it: an older offset may still arrive."""
        if commit.offset > self.asked:
            return False  # the user has sought since
        self.taken = commit
        repeat, self.outcome_unknown = self.outcome_unknown, False
        return repeat

    # -- transactions -------------------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether a transaction commits an offset of this assignment, or may have."""
        return self._holder is not None

    def refuse_held(self, holder: Holder | None = None) -> None:
        """Raise `LocalProtocolError` if a transaction other than ``holder`` commits an offset of this assignment."""
        held, where = self._holder, f"{self.place[0]}-{self.place[1]}"
        if held is None or held is holder:
            return
        if self._undecided:
            raise LocalProtocolError(
                f"it is not known whether a transaction of {held.transactional_id!r} has committed an offset of "
                f"{where}: seek to the offset that consumer.committed() returns, and go on from there"
            )
        raise LocalProtocolError(
            f"a transaction of {held.transactional_id!r} commits an offset of {where}: commit further offsets in the "
            "same transaction, or after its end"
        )

    def supersedes(self, commit: CommittedOffset, before: CommittedOffset | None) -> bool:
        """Whether a transaction commits ``commit`` instead of ``before``: it is higher, or the user has sought back."""
        return before is None or self._sought or before.offset <= commit.offset

    def hold(self, holder: Holder) -> None:
        """Take note that a transaction commits an offset that is requested now."""
        self._holder, self._sought, self._undecided = holder, False, False

    def release(self, holder: Holder) -> None:
        """Take note that the transaction is not committed."""
        if self._holder is holder:
            self._holder = None

    def committed_in_transaction(self, holder: Holder, commit: CommittedOffset) -> bool:
        """Take note that a transaction has committed this offset; return whether to repeat it, as in `acknowledge`."""
        if self._holder is not holder:
            return False
        self._holder = None
        if self._sought:
            return False
        self.asked = commit.offset
        return self.acknowledge(commit)

    def leave_undecided(self, holder: Holder) -> None:
        """Take note that the client cannot learn the transaction's outcome: only a seek allows commits again."""
        if self._holder is holder:
            self._holder, self._undecided = (None, False) if self._sought else (holder, True)


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

    def retry(self, at: float) -> None:
        """Send the commit again at this time, because it was refused."""
        self.failures += 1
        self.retry_at = at

    def cover(self, older: "PendingCommit") -> None:
        """Stand for an older commit of the same partition, whose retry this one replaces."""
        self.number, self.since = min(self.number, older.number), min(self.since, older.since)
        self.failures, self.retry_at, self.topic = older.failures, older.retry_at, older.topic

    def is_gone(self, metadata: Metadata, now: float) -> bool:
        """Whether other brokers do not know the topic either; the first call asks them."""
        found = self.topic
        if found is not None and isinstance(found.error, UnknownTopicOrPartition):
            return True
        if found is None or found.done:
            self.topic = metadata.topic(self.assignment.place[0], now, fresh=True, grace=KNOWN_TOPIC_GRACE)
        return False


PendingCommits = dict[TopicPartition, PendingCommit]


def lasting(commits: PendingCommits) -> PendingCommits:
    """The commits whose assignments have not ended."""
    return {place: each for place, each in commits.items() if not each.assignment.over}


class CommitQueue:
    """Holds the commits of one consumer until they are acknowledged, or given up.

    Attributes:
        pending: the commits for the next OffsetCommit.
        in_flight: the commits of the last OffsetCommit that are not acknowledged, until its response is processed.
    """

    def __init__(self) -> None:
        self.pending: PendingCommits = {}
        self.in_flight: PendingCommits = {}
        self._number = 0
        self._waiting: dict[Outcome[None], CommitWaiter] = {}

    @property
    def unfinished(self) -> PendingCommits:
        """The newest commit of each partition that is not acknowledged."""
        return self.in_flight | self.pending

    def newest(self, place: TopicPartition) -> PendingCommit | None:
        """The newest commit of the partition that is not acknowledged."""
        return self.pending.get(place) or self.in_flight.get(place)

    @property
    def next_at(self) -> float:
        """When the first pending commit may be sent; inf: there is none."""
        return min((each.retry_at for each in self.pending.values()), default=math.inf)

    def add(self, commits: Mapping[Assignment, CommittedOffset], now: float) -> None:
        """Add the commits of one call; each replaces the pending one of its partition, and covers it for waiters."""
        self._number += 1
        for assignment, each in commits.items():
            before = self.pending.get(assignment.place) or PendingCommit(each, assignment, self._number, now)
            self.pending[assignment.place] = replace(before, commit=each)

    def drop(self, place: TopicPartition) -> PendingCommit | None:
        """Drop the partition's pending commit; return the newest commit that fails with the end of the assignment."""
        sent, newer = self.in_flight.get(place), self.pending.pop(place, None)
        last = newer or sent
        return None if last is None else replace(last, number=(sent or last).number)

    def send(self, now: float) -> PendingCommits:
        """Move the commits that are due from `pending` to `in_flight`."""
        self.in_flight = {place: each for place, each in self.pending.items() if each.retry_at <= now}
        self.pending = {place: each for place, each in self.pending.items() if place not in self.in_flight}
        return self.in_flight

    def acknowledge(self, stored: Container[TopicPartition]) -> PendingCommits:
        """Remove the commits in flight of these partitions; return those whose assignments last."""
        acknowledged = {place: each for place, each in self.in_flight.items() if place in stored}
        self.in_flight = {place: each for place, each in self.in_flight.items() if place not in stored}
        return lasting(acknowledged)

    def end_flight(self) -> None:
        """Take note that the response of the last OffsetCommit is processed, or that there is none."""
        self.in_flight = {}

    def retry(self, commits: PendingCommits, at: float) -> None:
        """Send these commits again at this time; a newer one is sent in place of an older one."""
        for each in commits.values():
            each.retry(at)
        self.take_back(commits)

    def take_back(self, commits: PendingCommits) -> None:
        """Make these commits pending again; a newer one is sent in place of an older one."""
        for place, each in commits.items():
            if newer := self.pending.get(place):
                newer.cover(each)
            elif not each.assignment.over:  # commits of an ended assignment are dropped
                self.pending[place] = each

    def give_up(self, commits: PendingCommits) -> None:
        """Remove these commits from the pending ones; newer ones of their partitions stay."""
        for place, each in commits.items():
            if self.pending.get(place) is each:
                del self.pending[place]

    # -- callers that wait --------------------------------------------------------------------------------------------

    def ended(self, places: Collection[TopicPartition]) -> Outcome[None]:
        """Settled once all commits so far of these partitions have ended; an error is not reported here."""
        outcome: Outcome[None] = Outcome()
        self._waiting[outcome] = CommitWaiter(self._number, frozenset(places), reports=False)
        outcome.when_done(lambda: self._waiting.pop(outcome, None))
        self.settle()
        return outcome

    def wait(self, outcome: Outcome[None], places: frozenset[TopicPartition] | None) -> None:
        """Settle ``outcome`` once all commits so far of these partitions (``None``: of all) have ended."""
        self._waiting[outcome] = CommitWaiter(self._number, places)
        outcome.when_done(lambda: self._waiting.pop(outcome, None))

    def settle(self) -> None:
        """Settle the callers that wait for none of the unfinished commits."""
        left = [*self.pending.values(), *self.in_flight.values()]
        for outcome in [each for each, waiter in self._waiting.items() if not waiter.waits_for(left)]:
            outcome.succeed(None)

    def fail(self, commits: Collection[PendingCommit], error: OttlaError) -> bool:
        """Fail the callers that wait for these commits; return whether there is any."""
        concerned = [each for each, waiter in self._waiting.items() if waiter.reports and waiter.waits_for(commits)]
        for outcome in concerned:
            outcome.fail(error)
        return bool(concerned)


class CommitWaiter(NamedTuple):
    """A caller that waits for the commits up to a number, of some partitions or (``None``) of all."""

    number: int
    places: frozenset[TopicPartition] | None
    reports: bool = True
    """The caller reports the error of a failed commit to the user."""

    def waits_for(self, commits: Iterable[PendingCommit]) -> bool:
        """Whether the caller waits for any of these commits."""
        number, places, _ = self
        return any(each.number <= number and (places is None or each.assignment.place in places) for each in commits)
