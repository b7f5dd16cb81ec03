"""Offsets on their way to the coordinator: they never go backwards.

    commit ──► wanted ── sent ──► in flight ── acknowledged ──► (gone)
                 ▲                    │
                 └───── retriable ────┘   newer wishes win

Rules:
- At most one OffsetCommit of a consumer is in flight. What is wished for meanwhile is coalesced, and goes next.
- Per partition only the highest offset that was wished for is kept, so a repetition never carries an older one. (The
  classic bug: 2000 fails, 3000 succeeds, and the repetition of 2000 rewinds the group.) Only a seek, which says that
  going back is meant, lowers the mark; what was wished for before goes out nevertheless, unless something newer does.
- A commit belongs to one ownership of its partition, an `Assignment`. What is not acknowledged when it ends is dropped
  and never sent again: the next owner has begun where the group stood.
- An offset that was sent and never answered may still arrive: a machine that was stopped reads what lies in its sockets
  when it goes on, and no order holds between two connections. So behind a commit in doubt the newest is sent once more,
  `request_timeout` later. Between those two nothing can be promised.
- Nothing is sent without a generation: while the members synchronize, commits wait and go out in the next one.
- Who waits on a commit waits for everything that was wished for before, too.

Source: ConsumerCoordinator.java, OffsetCommitResponseHandler.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.codec.apis.offset_commit import (
    OffsetCommitResponse,
)
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
    broker_error,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import COMMIT_BY_NAME
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_OF_THE_MEMBER = (RebalanceInProgress, IllegalGeneration, UnknownMemberId, FencedInstanceId)
"""Errors that say something of the member rather than of a partition."""
_OF_THE_COORDINATOR = (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress, GroupAuthorizationFailed)


class Identity(NamedTuple):
    """Who commits; that of nobody's member is the default."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(slots=True, eq=False)
class Assignment:
    """One ownership of a partition, from its assignment to its end."""

    place: TopicPartition
    asked: int = -1
    """The highest offset that was wished for."""
    taken: CommittedOffset | None = None
    """What the coordinator took last."""
    doubtful: bool = False
    """An older offset may still be under way somewhere."""
    handed: int = -1
    """Behind what was handed out since the last seek; -1 also where it is told already that it was not committed."""
    seeks: int = 0
    """Counts the moves after which lower offsets are meant."""
    over: str = ""
    """Why it ended; empty while it lasts."""

    @property
    def committed(self) -> int:
        """What the coordinator took last; -1: nothing."""
        return self.taken.offset if self.taken else -1


@dataclass(slots=True)
class PendingCommit:
    """An offset that is not acknowledged yet."""

    commit: CommittedOffset
    assignment: Assignment
    number: int
    """Of the oldest request to commit that it stands for."""
    since: float


class Commits:
    """The commits of one consumer.

    Args:
        identity: who commits now; ``None``: wait.
        refused: told of errors that concern the member, and whom they were for; whether it will do something about
            them: end the assignments, or keep them in a new generation.
        told: hears of offsets that the coordinator has taken.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        identity: Callable[[], Identity | None] = Identity,
        refused: Callable[[OttlaError, Identity, float], bool] = lambda error, identity, now: False,
        told: Callable[[Mapping[TopicPartition, CommittedOffset]], None] = lambda offsets: None,
    ) -> None:
        self._core, self._group, self._identity, self._refused = core, group, identity, refused
        self._told = told
        self._assignments: dict[TopicPartition, Assignment] = {}
        self._wanted: dict[TopicPartition, PendingCommit] = {}
        self._in_flight: dict[TopicPartition, PendingCommit] = {}
        self._waiters: list[tuple[int, Outcome[None]]] = []
        self._number = 0
        self._failures = 0
        """Attempts in a row that brought nothing."""
        self._trouble = ""
        self._due: Timer | None = None
        self._failed: CommitFailed | None = None
        self._done = core.metrics.meter("commit", group=group)
        self._latency = core.metrics.timing("commit-latency", group=group)
        self._dropped = core.metrics.counter("commit-failed-total", group=group)

    # -- assignments -------------------------------------------------------------------------------------------------

    def own(self, place: TopicPartition) -> Assignment:
        """The partition is ours from now on."""
        assignment = self._assignments[place] = Assignment(place)
        return assignment

    def assignment(self, place: TopicPartition) -> Assignment | None:
        return self._assignments.get(place)

    def disown(self, place: TopicPartition, why: str) -> None:
        """It is not any more: what is not acknowledged will not be."""
        assignment = self._assignments.pop(place, None)
        if assignment is None:
            return
        assignment.over = why
        wishes = [each for each in (self._in_flight.get(place), self._wanted.pop(place, None)) if each is not None]
        if wishes:
            wishes[-1].number = wishes[0].number
            self._fail({place: wishes[-1]}, f"offsets were not committed, because {why}", quiet=True)

    def rewind(self, place: TopicPartition) -> None:
        """The user seeks: from here on lower offsets are meant."""
        if assignment := self._assignments.get(place):
            assignment.asked, assignment.taken, assignment.handed = -1, None, -1
            assignment.seeks += 1

    def renew(self, place: TopicPartition, why: str) -> None:
        """The log is not what it was: nothing that was wished for holds any more, and lower offsets are meant."""
        if assignment := self._assignments.get(place):
            doubtful = assignment.doubtful or place in self._in_flight
            self.disown(place, why)
            self.own(place).doubtful = doubtful

    # -- the user's side ---------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Assignment, CommittedOffset], now: float) -> None:
        """PendingCommit for these offsets; one that is lower than was wished for already changes nothing.

        Raises:
            CommitFailed: a assignment is over; none of the offsets is taken.
        """
        over = {assignment.place: each.offset for assignment, each in offsets.items() if assignment.over}
        if over:
            why = next(assignment.over for assignment in offsets if assignment.over)
            raise CommitFailed(f"this ownership of the partitions is over: {why}", over)
        self._number += 1
        for assignment, each in offsets.items():
            if each.offset < assignment.asked:
                continue
            assignment.asked = each.offset
            before = self._wanted.get(assignment.place)
            number, since = (before.number, before.since) if before else (self._number, now)
            self._wanted[assignment.place] = PendingCommit(each, assignment, number, since)
        self.wake()

    def settled(self, now: float) -> Outcome[None]:
        """Settled when everything wished for so far is acknowledged.

        Fails with `CommitFailed`, or with `TimeoutExpired` after `api_timeout`.
        """
        outcome: Outcome[None] = Outcome()
        if not self._wanted and not self._in_flight:
            outcome.succeed(None)
            return outcome
        self._waiters.append((self._number, outcome))

        def expire(now: float) -> None:
            told = "; ".join(self.explain(now))
            outcome.fail(TimeoutExpired(f"not committed within {self._core.options.api_timeout:g} s: {told}"))

        outcome.when_done(self._core.later(now + self._core.options.api_timeout, expire).cancel)
        self._core.fail_on_close(outcome)
        return outcome

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """What is not acknowledged."""
        wishes = {**self._in_flight, **self._wanted}
        return {place: wish.commit.offset for place, wish in wishes.items()}

    def raise_failures(self) -> None:
        """Raise `CommitFailed` for what failed since the last time and nobody waited for."""
        if (failed := self._failed) is not None:
            self._failed = None
            raise failed

    def explain(self, now: float) -> Iterator[str]:
        wishes = {**self._in_flight, **self._wanted}
        if not wishes:
            return
        since = min(each.since for each in wishes.values())
        places = ", ".join(f"{topic}-{partition}" for topic, partition in list(wishes)[:3])
        more = f" and {len(wishes) - 3} more" if len(wishes) > 3 else ""
        where = self._core.coordinators.where(self._group)
        what = "for an answer" if self._in_flight else "to be sent"
        if self._identity() is None:
            what = "for the rebalance to end"
        trouble = f"; last trouble: {self._trouble}" if self._trouble else ""
        yield (
            f"group {self._group!r}: offsets of {places}{more} wait {what} for {now - since:.1f} s; {where}{trouble}"
        )

    # -- sending -----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Send soon, if there is anything and anybody to send it as."""
        if self._wanted and not self._in_flight and (self._due is None or self._due.call is None):
            self._due = self._core.soon(self._find)

    def _find(self, now: float) -> None:
        if self._in_flight or not self._wanted or self._identity() is None:
            return
        found = self._core.coordinators.find(self._group, now)

        def arrived() -> None:
            if found.error is not None:
                self._core.soon(lambda now: self._judge(found.error, self._wanted, now))
            else:
                self._core.soon(lambda now: self._send(found.result(), now))

        found.when_done(arrived)

    def _send(self, node: Node, now: float) -> None:
        identity = self._identity()
        if self._in_flight or not self._wanted or identity is None:
            return
        self._in_flight, self._wanted = self._wanted, {}
        sent = self._in_flight
        request = requests.commit_offsets(
            self._group,
            {each: (w.commit.offset, w.commit.leader_epoch, w.commit.metadata) for each, w in sent.items()},
            generation=identity.generation,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
        )

        def ended(answer: OffsetCommitResponse | OttlaError, answered: float) -> None:
            self._latency.record(answered - now, answered)
            self._answered(sent, identity, answer, answered)
            self._in_flight = {}  # only now: until then nobody who waits for these may be told that all is well
            self._settle()
            self.wake()

        deadline = now + self._core.options.request_timeout
        self._core.submit(node, Exchange(request, ended, deadline, versions=COMMIT_BY_NAME), now)

    def _answered(
        self,
        sent: dict[TopicPartition, PendingCommit],
        identity: Identity,
        answer: OffsetCommitResponse | OttlaError,
        now: float,
    ) -> None:
        sent = {place: wish for place, wish in sent.items() if not wish.assignment.over}
        if isinstance(answer, OttlaError):
            self._core.coordinators.heard(self._group, answer)
            self._judge(answer, sent, now)
            return
        codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
        errors: dict[int | None, dict[TopicPartition, PendingCommit]] = {}
        for place, wish in sent.items():
            if codes.get(place) != 0:
                errors.setdefault(codes.get(place), {})[place] = wish
        taken = {place: wish.commit for place, wish in sent.items() if codes.get(place) == 0}
        self._done.add(len(taken), now)
        for place in taken:
            self._taken(sent[place], now)
        if taken:
            self._told(taken)
        if not errors:
            self._failures, self._trouble = 0, ""
        for code, wishes in errors.items():
            places = ", ".join(f"{topic}-{partition}" for topic, partition in wishes)
            if code is None:
                self._judge(RemoteProtocolError(f"OffsetCommit was answered without {places}"), wishes, now)
                continue
            error = broker_error(code, f"group {self._group!r}, {places}")
            self._core.coordinators.heard(self._group, error)
            if isinstance(error, _OF_THE_MEMBER) and self._refused(error, identity, now):
                self._again(wishes)
                self._later(now)
            else:
                self._judge(error, wishes, now)

    def _taken(self, wish: PendingCommit, now: float) -> None:
        assignment = wish.assignment
        if wish.commit.offset > assignment.asked:
            return  # a seek overtook it
        assignment.taken = wish.commit
        if not assignment.doubtful:
            return
        assignment.doubtful = False
        self._core.later(now + self._core.options.request_timeout, lambda now: self._repeat(assignment, now))

    def _repeat(self, assignment: Assignment, now: float) -> None:
        """Once more what was taken last, unless something newer is under way."""
        pending = assignment.place in self._wanted or assignment.place in self._in_flight
        if assignment.taken is not None and not assignment.over and not pending:
            self._number += 1
            self._wanted[assignment.place] = PendingCommit(assignment.taken, assignment, self._number, now)
            self.wake()

    def _judge(self, error: OttlaError | None, wishes: dict[TopicPartition, PendingCommit], now: float) -> None:
        """Repeat, or give up, what was not acknowledged."""
        if error is None:
            return
        self._trouble = str(error)
        if isinstance(error, ConnectionLost | TimeoutExpired | RemoteProtocolError):
            for wish in wishes.values():
                wish.assignment.doubtful = True
        mine = isinstance(error, BrokerError) and not isinstance(error, _OF_THE_COORDINATOR)
        old = {
            place: wish
            for place, wish in wishes.items()
            if not error.retriable or (mine and now - wish.since > self._core.options.api_timeout)
        }
        if old:
            for place, wish in old.items():
                if self._wanted.get(place) is wish:
                    del self._wanted[place]
            self._fail(old, f"offsets were not committed: {error}", cause=error)
            for place, wish in old.items():
                if place not in self._wanted:
                    wish.assignment.asked = wish.assignment.committed
        if left := {place: wish for place, wish in wishes.items() if place not in old}:
            self._again(left)
            self._later(now)

    def _later(self, now: float) -> None:
        self._due = self._core.later(now + self._core.backoff(self._failures), self._find)
        self._failures += 1

    def _again(self, wishes: dict[TopicPartition, PendingCommit]) -> None:
        """Take wishes back; newer ones win, but stand for the older, too. What an end overtook is gone."""
        for place, wish in wishes.items():
            if newer := self._wanted.get(place):
                newer.number, newer.since = min(newer.number, wish.number), min(newer.since, wish.since)
            elif not wish.assignment.over:
                self._wanted[place] = wish

    # -- ends --------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        wishes = [*self._wanted.values(), *self._in_flight.values()]
        oldest = min((each.number for each in wishes), default=self._number + 1)
        done = [outcome for number, outcome in self._waiters if number < oldest]
        self._waiters = [each for each in self._waiters if each[0] >= oldest and not each[1].done]
        for outcome in done:
            outcome.succeed(None)

    def _fail(
        self,
        wishes: dict[TopicPartition, PendingCommit],
        why: str,
        *,
        cause: OttlaError | None = None,
        quiet: bool = False,
    ) -> None:
        """Give wishes up; who waits for them hears it, else the next call of the user, unless that is no news."""
        error = CommitFailed(why, {place: wish.commit.offset for place, wish in wishes.items()}, cause)
        self._dropped.add(len(wishes))
        log.warning("offsets were not committed", extra={"group": self._group, "why": str(error)})
        oldest = min(each.number for each in wishes.values())
        concerned = [outcome for number, outcome in self._waiters if number >= oldest and not outcome.done]
        for outcome in concerned:
            outcome.fail(error)
        if not concerned and not quiet:
            self._failed = self._failed or error
        if concerned or not quiet:
            for each in wishes.values():
                each.assignment.handed = -1
        self._settle()
