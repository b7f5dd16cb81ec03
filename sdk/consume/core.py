"""A consumer: what is read, from where, and how far it is committed; the group, the fetcher and the commits in one.

    topics, no group     every partition, also those that come later
    topics, a group      what the group gives this member (`Membership`)
    assigned by hand     these partitions; with a group its offsets, too

Rules:
- A partition is read only once its place to begin is known: what the group committed, else ``start``. Partitions that
  come into being while the consumer runs are read from their beginning in any case: nobody can have read them.
- News of the group come as steps (`Revoke`, `Lose`, `Receive`) between two batches, never during one: who handles a
  batch owns its partition until the next is asked for, unless the group throws the member out.
- A batch is done when its successor is asked for. Auto commit commits what is done, and nothing of the batch in hand.
- Lost partitions are not read for a moment longer, and what is left to commit of them is dropped.

Source: ConsumerCoordinator.java, SubscriptionState.java.
"""

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import Closed, CommitFailed, ConfigurationError, LocalProtocolError, OttlaError
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.fetcher import Fetched, Fetcher, Offset, Start, Time
from ottla.sdk.core import ClientCore
from ottla.sdk.group.assignors import ASSIGNORS, Assignor
from ottla.sdk.group.commits import Assignment, Commits
from ottla.sdk.group.membership import Lose, MemberOptions, Membership, Receive, Revoke, Step
from ottla.sdk.logs import logger
from ottla.sdk.options import within_bounds
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

PATTERN_AGE = 30.0
"""Seconds between two looks for topics that match."""
PATIENCE = 1.0
"""Seconds in which positions are awaited before partitions are told of that have none yet, for want of a leader."""
SLOW = 2 / 3
"""Part of `max_poll_interval` after which a batch that is still in hand is reported."""
_REVOKED = "a rebalance took it, and whoever has it now, be it this consumer again, went on from what was committed"


class TopicFilter:
    """Whether a topic's whole name matches one of ``pattern`` and none of ``deny``; as text, for messages.

    Raises:
        ConfigurationError: one is no regular expression.
    """

    def __init__(self, pattern: str | Sequence[str], deny: str | Sequence[str] = ()) -> None:
        self._allowed, self._denied = _compiled(pattern), _compiled(deny)

    def __call__(self, name: str) -> bool:
        return any(each.fullmatch(name) for each in self._allowed) and not any(
            each.fullmatch(name) for each in self._denied
        )

    def __str__(self) -> str:
        allowed, denied = (" or ".join(repr(each.pattern) for each in some) for some in (self._allowed, self._denied))
        return f"{allowed} without {denied}" if denied else allowed


def _compiled(given: str | Sequence[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(each) for each in ([given] if isinstance(given, str) else given)]
    except re.error as error:
        raise ConfigurationError(f"{error.pattern!r} is no regular expression: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """See `ottla.sdk.client.Client.consumer`.

    Attributes:
        start: where to begin in a partition for which the group has no committed offset.
        matches: of topics by pattern, which; ``None`` where they are named.
        member: ``None`` where the partitions are not the group's to give.
        auto_commit: seconds between two commits of what is done.
    """

    start: Start
    topics: tuple[str, ...] = ()
    matches: TopicFilter | None = None
    group: str | None = None
    member: MemberOptions | None = None
    auto_commit: float | None = None

    def __post_init__(self) -> None:
        if self.group is not None and (not isinstance(self.group, str) or not self.group):
            raise ConfigurationError(f"a group needs a name, a string, not {self.group!r}")
        if self.auto_commit is None:
            return
        if self.group is None:
            raise ConfigurationError("auto_commit needs a group, as in group='billing'")
        if not self.auto_commit > 0:
            raise ConfigurationError(f"auto_commit must be a positive number of seconds, not {self.auto_commit!r}")


def member_options(
    assignors: Sequence[str | Assignor],
    instance_id: str | None,
    session_timeout: float,
    heartbeat_interval: float,
    max_poll_interval: float,
) -> MemberOptions:
    """Raises:
    ConfigurationError: an assignor is not known, or the durations contradict each other.
    """
    chosen: list[Assignor] = []
    for each in [assignors] if isinstance(assignors, str) else assignors:
        if isinstance(each, str) and each not in ASSIGNORS:
            raise ConfigurationError(f"assignor {each!r} is not one of {', '.join(ASSIGNORS)}, nor one of your own")
        chosen.append(ASSIGNORS[each] if isinstance(each, str) else each)
    if not chosen:
        raise ConfigurationError("a member of a group needs an assignor")
    if instance_id == "":
        raise ConfigurationError("instance_id names one member of the group, or is None: '' would be anybody's")
    options = MemberOptions(
        assignors=tuple(chosen),
        instance_id=instance_id,
        session_timeout=session_timeout,
        heartbeat_interval=heartbeat_interval,
        max_poll_interval=max_poll_interval,
    )
    within_bounds(options)
    if heartbeat_interval >= session_timeout:
        raise ConfigurationError("heartbeat_interval must be below session_timeout, best a third of it")
    return options


class ConsumerCore:
    """One consumer on a `ClientCore`; ``fetcher`` is its own.

    Args:
        slow: called with the seconds for which a batch is in hand already, before the group gives the partitions away.
        told: hears of offsets that the coordinator has taken.
    """

    def __init__(
        self,
        core: ClientCore,
        options: ConsumerOptions,
        fetcher: Fetcher,
        slow: Callable[[float], None] = lambda seconds: None,
        told: Callable[[Mapping[TopicPartition, CommittedOffset]], None] = lambda offsets: None,
    ) -> None:
        self._told = told
        self._core, self._options, self.fetcher, self._slow = core, options, fetcher, slow
        self.closed = False
        self.membership: Membership | None = None
        self.commits: Commits | None = None
        self._moved: Outcome[None] = Outcome()
        self._news: Outcome[None] = any_of((self._moved, fetcher.moved()))
        """Settled, and made anew, whenever there may be something to say."""
        self._failed: OttlaError | None = None
        self._known: tuple[str, ...] = options.topics
        self._first: frozenset[TopicPartition] | None = None
        """What there was at the first look; of what comes later nothing was there before, so it is read whole."""
        self._received: dict[TopicPartition, None] = {}
        """Partitions of which the user was told."""
        self._telling: tuple[TopicPartition, ...] = ()
        """Partitions of which he is being told."""
        self._left: dict[TopicPartition, Assignment] = {}
        """Tenures that ended before all was committed that was handed out, nor has it been since."""
        self._waited: dict[TopicPartition, Assignment] = {}
        """Partitions whose positions have been waited for long enough."""
        self._in_hand: Fetched | None = None
        self._done: dict[TopicPartition, CommittedOffset] = {}
        """Per partition, behind the last batch that is done, as far as it is not committed yet."""
        self._busy_timers: list[Timer] = []
        self._busy_since = math.nan
        self._auto: Timer | None = None
        self._pattern_due: Timer | None = None
        self._unmatched: int | None = None
        """How many topics there are, where none of them matches."""
        core.parts[self] = None
        if options.group is not None:
            self._enter_group(options.group, options.member)
        fetcher.on_reset = self._reset
        self._forget_client = core.on_close(lambda error: self.close(-math.inf))

    def _enter_group(self, group: str, member: MemberOptions | None) -> None:
        if member is None:
            self.commits = Commits(self._core, group, told=self._told)
            return
        channel = f"group-{self.fetcher.number}"
        membership = self.membership = Membership(self._core, group, member, channel, self._heard)
        self.commits = Commits(self._core, group, lambda: membership.identity, membership.refused, self._told)

    # -- beginning and end -------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start to read the topics; `assign` is for those who name partitions."""
        self._commit_by_itself(now)
        if self._options.matches is not None:
            self._look(now)
        else:
            self._subscribe(now)
        self.busy(now)

    def _subscribe(self, now: float) -> None:
        topics = self._core.cluster.topics
        places = [(name, each) for name in self._known if name in topics for each in topics[name].partitions]
        first = self._first is None
        self._first = frozenset(places) if self._first is None else self._first
        if self.membership is not None:
            self.membership.subscribe(self._known, now)
            self.membership.join(now)
            return
        # What comes later was not there before, not even if a topic of this name was: it is read whole.
        start = self._options.start if first else Time(EARLIEST)
        self.fetcher.assign({place: start for place in places if place not in self.fetcher.places}, now)
        self.fetcher.follow(self._known, may_go=self._options.matches is not None)

    def _start(self, place: TopicPartition) -> Start:
        """Where to begin without a committed offset."""
        return self._options.start if self._first is None or place in self._first else Time(EARLIEST)

    def assign(self, starts: Mapping[TopicPartition, Start | None], now: float) -> Outcome[None]:
        """Read these partitions; ``None`` begins where the group stands. Settled when all positions are known."""
        self._commit_by_itself(now)
        if self.commits is not None:
            for place in starts:
                self.commits.own(place)
        self.fetcher.assign({place: start for place, start in starts.items() if start is not None}, now)
        return self._resume([place for place, start in starts.items() if start is None], now)

    def stop(self, now: float) -> Outcome[None]:
        """Leave the group. What is to be committed must have been."""
        self._idle()
        for timer in (self._auto, self._pattern_due):
            if timer is not None:
                timer.cancel()
        if self.membership is None:
            done: Outcome[None] = Outcome()
            done.succeed(None)
            return done
        return self.membership.leave("the consumer was closed", now)

    def close(self, now: float) -> None:
        """Also called when the client closes before its consumer is left, at whatever time."""
        if not self.closed:
            self.closed = True
            self._forget_client()
            self._idle()
            if self.membership is not None:
                self.membership.close(now)
            self.fetcher.close()
            self._core.parts.pop(self, None)
            self._notify()

    # -- the user's side ---------------------------------------------------------------------------------------------

    def next_step(self) -> tuple[Step, tuple[TopicPartition, ...]] | None:
        """What the user must be told before the next batch, and of which partitions.

        A `Receive` is told once its positions are known, or have kept it waiting for `PATIENCE`. What comes behind it
        need not wait for that, and overtakes it; of what was never told to be the user's, neither the coming nor the
        going is.
        """
        if self.membership is None:
            return None
        for step in self.membership.steps:
            if not isinstance(step, Receive):
                return step, tuple(each for each in step.places if each in self._received)
            ours = [each for each in step.places if self.group_commits.assignment(each) and each not in self._received]
            if all(map(self._ready, ours)):
                self._telling = tuple(ours)
                return step, self._telling
        return None

    def _ready(self, place: TopicPartition) -> bool:
        """The user may be told of the partition."""
        waited = place in self.fetcher.places and self._waited.get(place) is self.group_commits.assignment(place)
        return self.fetcher.knows(place) or waited

    def done_with(self, step: Step, places: Sequence[TopicPartition], now: float) -> None:
        """The user was told of a step. If a loss has overtaken it, he is told of that next."""
        self._telling = ()
        if isinstance(step, Receive):
            self._received.update(dict.fromkeys(places))
        if self.membership is None or step not in self.membership.steps:
            return
        if not isinstance(step, Receive):
            for place in step.places:
                self._received.pop(place, None)
        if isinstance(step, Revoke):
            topics = self._core.cluster.topics
            self._end([each for each in step.places if each[0] in topics], _REVOKED)
            self._end([each for each in step.places if each[0] not in topics], "its topic is gone")
        self.membership.done(step, now)

    @property
    def in_hand(self) -> bool:
        """The user has a batch that may not be done: he has not committed it, nor asked for the next."""
        if self._in_hand is None:
            return False
        assignment = self.commits.assignment((self._in_hand.topic, self._in_hand.partition)) if self.commits else None
        return assignment is None or assignment.asked < self._in_hand.next_offset

    @property
    def received(self) -> tuple[TopicPartition, ...]:
        """What the user was told he has, of a group."""
        return tuple(self._received)

    def take(self, now: float) -> tuple[Fetched, Assignment | None] | None:
        """The next batch, and the assignment to commit it under; ``None`` if there is nothing. The one before is done.

        Raises:
            OttlaError: the membership has ended, or a partition cannot be read on, or commits have failed.
        """
        self.finish()
        if self._failed is not None:
            raise self._failed
        if self.membership is not None and self.membership.failed is not None:
            raise self.membership.failed
        if self.commits is not None:
            self.commits.raise_failures()
        fetched = self.fetcher.take(self._readable())
        if fetched is None:
            return None
        self._in_hand = fetched
        self.busy(now)
        assignment = self.commits.assignment((fetched.topic, fetched.partition)) if self.commits else None
        if assignment is not None:
            assignment.handed = fetched.next_offset
        return fetched, assignment

    def wait(self) -> Outcome[None]:
        """Settled when `next_step` or `take` may have something to say."""
        news = self.fetcher.wait(self._readable())
        if news.done:
            return news
        if self._news.done:
            self._news = any_of((news, self._moved))
        return self._news

    def finish(self) -> None:
        """The batch in hand is done."""
        fetched, self._in_hand = self._in_hand, None
        if fetched is not None and self._options.auto_commit is not None:
            self._done[fetched.topic, fetched.partition] = CommittedOffset(fetched.next_offset, fetched.leader_epoch)

    def end_loop(self, now: float) -> None:
        """The user asks for no batch any more: what is done is committed, the batch in hand is not."""
        self._in_hand = None
        self.commit_done(now)

    def commit_done(self, now: float) -> None:
        """Have what is done committed (auto commit)."""
        if self.commits is not None and self._done:
            done, self._done = self._done, {}
            self.commit(done, now)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], now: float, *, exactly: bool = False) -> None:
        """Have these offsets committed; lower ones than before change nothing, or are refused if meant ``exactly``.

        Raises:
            LocalProtocolError: the consumer has no group, or does not have one of the partitions; or an offset is lower
                than one that was committed already.
            CommitFailed: a partition was lost meanwhile.
        """
        commits = self.group_commits
        assignments: dict[Assignment, CommittedOffset] = {}
        if self.closed:
            raise Closed("the consumer is closed")
        for place, each in offsets.items():
            if not isinstance(each.offset, int) or each.offset < 0:
                raise LocalProtocolError(f"{each.offset!r} is no offset to commit: an integer from 0 on")
            assignment = commits.assignment(place)
            if assignment is None:
                raise self.not_assigned(place, "commit")
            if exactly and each.offset < assignment.asked:
                where = f"{place[0]}-{place[1]} at {each.offset}"
                raise LocalProtocolError(f"{where}: {assignment.asked} is committed; to go back, seek there first")
            assignments[assignment] = each
        commits.commit(assignments, now)

    def commit_all(self, now: float) -> CommitFailed | None:
        """Have all that was handed out committed. Returns, once, what of it cannot be any more.

        What a partition that came back has reached again is well; and who sought elsewhere wants no more of it.

        Raises:
            LocalProtocolError: the consumer has no group.
        """
        positions = self.positions()
        self.commit(positions, now)
        reached = {place: each.offset for place, each in positions.items()}
        left, self._left = self._left, {}
        lost = {place: each for place, each in left.items() if each.handed > reached.get(place, -1)}
        if not lost:
            return None
        whys = "; ".join(sorted({each.over for each in lost.values()}))
        reason = f"batches were handed out that cannot be committed any more: {whys}"
        return CommitFailed(reason, {place: each.handed for place, each in lost.items()})

    @property
    def group_commits(self) -> Commits:
        if self.commits is None:
            raise LocalProtocolError("a consumer without a group cannot commit: name one, as in group='billing'")
        return self.commits

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Behind the last batch that was handed out of each partition, the one in hand included."""
        return {
            place: CommittedOffset(offset, self.fetcher.position_epoch(place))
            for place in self.fetcher.assignment
            if (offset := self.fetcher.position(place)) is not None
        }

    def seek(self, starts: Mapping[TopicPartition, Start], now: float) -> None:
        """Go on elsewhere, in partitions that are `owned`; commits may go back there, too."""
        owned = self.owned(starts, "seek")
        for place in owned:
            if self.commits is not None:
                self.commits.rewind(place)
            self._forget(place)
        self.fetcher.assign({place: starts[place] for place in owned}, now)

    def owned(self, places: Iterable[TopicPartition], wish: str) -> list[TopicPartition]:
        """Those of the partitions that are read, to do with them what is wished.

        In a group partitions are lost while one looks away: a wish for one of which the user thinks, for want of news,
        that it is his, is dropped with a line in the log.

        Raises:
            LocalProtocolError: a partition is not assigned to this consumer.
        """
        asked = list(places)
        gone = [place for place in asked if place not in self.fetcher.places]
        for place in gone:
            if not self._untold(place):
                raise self.not_assigned(place, wish)
        if gone:
            log.warning("a wish is dropped, as its partitions were lost", extra={"wish": wish, "partitions": gone})
        return [place for place in asked if place not in gone]

    def not_assigned(self, place: TopicPartition, wish: str) -> LocalProtocolError:
        """What to tell who wishes for something of a partition that is not this consumer's."""
        if self.membership is None:
            advice = "what it reads is said where it is made, in client.consumer(...)"
        elif self._untold(place):
            advice = "the group has taken it, which the loop is told of next"
        else:
            advice = f"in a group, {wish} once `assigned` of a RebalanceListener has told of it"
        has = f"which has {self.fetcher.assignment}"
        return LocalProtocolError(f"{place!r} is not assigned to this consumer, {has}: {advice}")

    def _untold(self, place: TopicPartition) -> bool:
        """Of a partition that is not read: the user thinks that it is."""
        return place in self._received or place in self._telling

    def _reset(self, place: TopicPartition) -> None:
        """The fetcher goes on elsewhere there, by policy."""
        if self.commits is not None:
            self.commits.renew(place, "the log is not the one that was read, and the position was reset")
        self._forget(place)

    def _forget(self, place: TopicPartition) -> None:
        """What is done there, and a batch in hand, count no more."""
        self._done.pop(place, None)
        if self._in_hand is not None and (self._in_hand.topic, self._in_hand.partition) == place:
            self._in_hand = None

    # -- is the user there? ------------------------------------------------------------------------------------------

    def busy(self, now: float) -> None:
        """The user handles something, and should be back within `max_poll_interval`."""
        self._idle()
        if self.membership is None or self._options.member is None:
            return
        limit = self._options.member.max_poll_interval
        self._busy_since = now
        self._busy_timers = [
            self._core.later(now + limit * SLOW, lambda now: self._slow(now - self._busy_since)),
            self._core.later(now + limit, self._absent),
        ]

    def idle(self, now: float) -> None:
        """The user waits for the next batch."""
        self._idle()
        if self.membership is not None:
            self.membership.join(now)

    def _idle(self) -> None:
        for timer in self._busy_timers:
            timer.cancel()
        self._busy_timers = []
        self._busy_since = math.nan

    def _absent(self, now: float) -> None:
        if self.membership is None or self._options.member is None:
            return
        limit = self._options.member.max_poll_interval
        log.error(
            "the member leaves its group, because its loop did not ask for a batch in time",
            extra={"group": self._options.group, "seconds": limit},
        )
        self.membership.leave(f"no batch was asked for within max_poll_interval, {limit:g} s", now)

    # -- the group's side --------------------------------------------------------------------------------------------

    def _heard(self, step: Step | None, now: float) -> None:
        if isinstance(step, Lose):
            self._end(step.places, step.why)
        elif isinstance(step, Receive):
            for place in step.places:
                self.group_commits.own(place)
            self._receive(step.places, now)
        if self.commits is not None:
            self.commits.wake()
        self._notify()

    def _receive(self, places: Sequence[TopicPartition], now: float) -> None:
        """Read partitions that the group gave, however long it takes to learn from where."""
        commits = self.group_commits
        assignments = {place: assignment for place in places if (assignment := commits.assignment(place))}
        mine = list(assignments)
        found = self._resume(mine, now)

        def again(now: float) -> None:
            # What was given back and came again has a lookup of its own, and may be read already.
            self._receive([place for place in mine if commits.assignment(place) is assignments[place]], now)

        def arrived() -> None:
            error = found.error
            if error is not None and error.retriable and not self.closed:
                log.error(
                    "partitions cannot be read yet, because the group does not tell where it stands",
                    extra={"group": self._options.group, "partitions": mine, "why": str(error)},
                )
                self._core.soon(again)
            elif error is not None and any(self.group_commits.assignment(place) for place in mine):
                self._failed = error
            self._notify()

        found.when_done(arrived)

    def _resume(self, places: Sequence[TopicPartition], now: float) -> Outcome[None]:
        """Read these partitions from where the group stands, else from ``start``."""
        outcome: Outcome[None] = Outcome()
        if not places:
            outcome.succeed(None)
            return outcome
        commits = self.group_commits
        assignments = {place: commits.assignment(place) for place in places}
        group = self._options.group or ""
        found = calls.committed(self._core, {group: list(places)}, now, stable=True)

        def arrived() -> None:
            if found.error is not None:
                outcome.fail(found.error)
                return
            starts: dict[TopicPartition, Start] = {}
            for place, assignment in assignments.items():
                at = found.result()[group].get(place)
                if assignment is None or assignment.over:
                    continue
                starts[place] = Offset(at.offset, at.leader_epoch) if at else self._start(place)
                if at:
                    assignment.asked, assignment.taken = at.offset, at

            def assign(now: float) -> None:
                # Some may have been given up a moment ago.
                live = {
                    place: start for place, start in starts.items() if commits.assignment(place) is assignments[place]
                }
                self.fetcher.assign(live, now)
                outcome.succeed(None)
                self._core.later(now + PATIENCE, waited)

            def waited(now: float) -> None:
                self._waited.update(
                    (place, assignment) for place in assignments if (assignment := commits.assignment(place))
                )
                self._notify()

            self._core.soon(assign)

        found.when_done(arrived)
        return outcome

    def _end(self, places: Iterable[TopicPartition], why: str) -> None:
        """These partitions are not this consumer's any more."""
        gone = list(places)
        self.fetcher.unassign(gone)
        for place in gone:
            self._forget(place)
            self._waited.pop(place, None)
            assignment = self.commits.assignment(place) if self.commits is not None else None
            if self.commits is not None and assignment is not None:
                self.commits.disown(place, why)
                left = max(assignment, self._left.pop(place, assignment), key=lambda each: each.handed)
                if left.handed > assignment.committed:
                    self._left[place] = left

    def _readable(self) -> Container[TopicPartition] | None:
        """Partitions of which the user knows; in a group, none of which he was not told yet."""
        return None if self.membership is None else self._received

    def _notify(self) -> None:
        moved, self._moved = self._moved, Outcome()
        moved.succeed(None)

    # -- by itself ---------------------------------------------------------------------------------------------------

    def _commit_by_itself(self, now: float) -> None:
        """Every `auto_commit` seconds, if that is wanted."""
        if self._options.auto_commit is not None and not self.closed:
            self.commit_done(now)
            self._auto = self._core.later(now + self._options.auto_commit, self._commit_by_itself)

    def _look(self, now: float) -> None:
        """Topics by pattern: see which there are, and again after a while."""
        matches = self._options.matches
        if self.closed or matches is None:
            return
        self._pattern_due = self._core.later(now + PATTERN_AGE, self._look)
        found = calls.list_topics(self._core, now)

        def arrived() -> None:
            if found.error is not None:
                log.warning("topics could not be listed", extra={"why": str(found.error)})
                return
            self._known = tuple(name for name in found.result() if matches(name))
            self._tell_unmatched(matches, len(found.result()))
            self._core.soon(self._know)

        found.when_done(arrived)

    def _tell_unmatched(self, matches: TopicFilter, topics: int) -> None:
        """Once, that there is nothing to read: a pattern may be misspelt, or be no regular expression at all."""
        told, self._unmatched = self._unmatched is not None, None if self._known else topics
        if self._unmatched is not None and not told:
            log.warning(
                "no topic matches the pattern, a regular expression for the whole name as in 'orders-.*'",
                extra={"pattern": str(matches), "topics": topics},
            )

    def _know(self, now: float) -> None:
        """Subscribe once the partitions of the topics are known."""
        if self.closed:
            return
        left = len(self._known)

        def arrived() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._core.soon(self._subscribe)

        if not left:
            self._subscribe(now)
        for name in self._known:
            self._core.metadata.topic(name, now).when_done(arrived)

    def explain(self, now: float) -> Iterator[str]:
        if self._unmatched is not None:
            pattern = f"{self._options.matches}, a regular expression for the whole name"
            yield f"of {self._unmatched} topic(s) none matches the pattern {pattern}"
        if self.membership is not None:
            yield from self.membership.explain(now)
            if not math.isnan(self._busy_since) and self._in_hand is not None:
                place = f"{self._in_hand.topic}-{self._in_hand.partition}"
                waited = f"{now - self._busy_since:.1f} s"
                yield f"group {self._options.group!r}: your loop handles a batch of {place} for {waited}"
        if self.commits is not None:
            yield from self.commits.explain(now)
