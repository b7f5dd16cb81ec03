"""Implements a consumer's calls: what each does, and in which order. The faces only pass calls on.

    enter ──► next_batch ──► next_batch ──► … ──► leave
                  │ between two batches: assign, revoke and lose partitions (`Notices`)
                  └ take a batch from the `Fetcher`, or wait for one

    topics, no group     reads all partitions, those created later included
    topics, a group      reads the partitions that the group assigns to this member (`Membership`)
    manual assignment    reads these partitions; with a group, its committed offsets can be used

Rules:
- A partition is read only once its start offset is known: the group's committed offset, else ``start`` (`Resuming`).
- The listener is called between two batches, never during one: the partition of the batch in hand stays assigned until
  the next batch is asked for, unless the group expels the member.
- Reading of lost partitions stops at once, and their pending commits are dropped (`Committing`).
- Other calls are in `Navigation` (seek, pause, …), `CommitCalls`, and `Leaving` (the end of the block).
- Asking for a batch marks the previous one as done, so in a group only the task that holds it may ask (`Asking`).
- A cancelled wait takes no batch. `max_poll_interval` counts from the end of the wait (`PollWatch`).
- In the blocking client, a thread may take batches without a call if that call would return them at once (`Ahead`).

Source: KafkaConsumer.java, ConsumerCoordinator.java, SubscriptionState.java.
"""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from ottla.errors import Closed, CommitFailed, LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.ahead import Ahead
from ottla.sdk.consume.asking import Asking, Tasks
from ottla.sdk.consume.assignment.committing import BatchAssignment, Committing
from ottla.sdk.consume.assignment.leaving import CLOSED, Leaving
from ottla.sdk.consume.assignment.notices import Notice, Notices, UserListener
from ottla.sdk.consume.assignment.resuming import Resuming
from ottla.sdk.consume.assignment.subscription import Subscription, know_topics
from ottla.sdk.consume.commit_calls import CommitCalls
from ottla.sdk.consume.navigation import Navigation
from ottla.sdk.consume.options import ConsumerPlan
from ottla.sdk.consume.poll_watch import PollWatch
from ottla.sdk.consume.reading.fetcher import Fetched, Fetcher, Start
from ottla.sdk.core import ClientCore
from ottla.sdk.events import RunMode
from ottla.sdk.flow import Flow
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import AssignmentChange, Lose, Membership, Receive, Revoke
from ottla.sdk.logs import logger, named
from ottla.sdk.outcome import Outcome, any_of, settled_with
from ottla.sdk.steps import TURN, Steps, settled

log = logger("ottla.sdk.consumer")

Taken = tuple[Fetched, BatchAssignment | None]
"""A batch; in a group also the claim with which it can be committed."""
TURN_EVERY = 0.001
"""Seconds for which small batches are handed out before other tasks run."""
_AHEAD = 16
"""Batches, over all partitions, that a thread may take without a call."""
_REVOKED = (
    "a rebalance revoked the partition; its next owner, perhaps this consumer again, resumed at the committed offset"
)


class ConsumerCore:
    """Runs one consumer on a `ClientCore`; no other consumer uses its ``fetcher``.

    Args:
        on_commit: the user's callback, called outside of the core with the offsets that the coordinator has stored.

    Attributes:
        ended: settled when the consumer is closed, or its client.
    """

    def __init__(
        self,
        core: ClientCore,
        plan: ConsumerPlan,
        fetcher: Fetcher,
        tasks: Tasks,
        listener: UserListener | None = None,
        on_commit: Callable[[Mapping[TopicPartition, CommittedOffset]], None] | None = None,
    ) -> None:
        options = plan.options
        self._core, self._plan, self._options, self.fetcher = core, plan, options, fetcher
        self._on_commit = on_commit
        self.ended: Outcome[None] = Outcome()
        self._moved: Outcome[None] = Outcome()
        self._news: Outcome[None] = any_of((self._moved, fetcher.moved()))
        """Settled, and then replaced, whenever there may be news."""
        self._failed: OttlaError | None = None
        self._reader: object = None
        """The only object that may ask for batches, for example a transform; ``None``: any caller may."""
        self.ahead: Ahead[Any] | None = None
        """Batches that the reading thread may take without a call."""
        self._others_ran_at = -math.inf
        """When other tasks last ran."""
        self.membership: Membership | None = None
        self.commits: Commits | None = None
        self._resuming: Resuming | None = None
        self._waits: tuple[Revoke, float] | None = None
        """The last revocation that waited for commits, and until when."""
        self._subscription = Subscription(core, plan, self._subscribe)
        if options.group is not None:
            self._enter_group(options.group)
        ready = self._resuming.ready if self._resuming is not None else lambda place: True
        self.notices = Notices(self.membership, self.commits, listener, ready)
        self.committing = Committing(core, fetcher, self.commits, options.auto_commit)
        self._asking = Asking(tasks, self.committing, grouped=options.group is not None)
        member = plan.member if self.membership is not None else None
        self.polls = PollWatch(core, options.group, member, self.membership, self._asking.where)
        self.navigation = Navigation(
            core, fetcher, self.committing, self.notices, self._refuse_closed, member=member is not None
        )
        self.committer = CommitCalls(
            core, options.group, self.commits, fetcher, self.committing, self.navigation, self._refuse_closed
        )
        self._leaving = Leaving(core, self.committing, self.commits, self.membership, self.notices, self.explain)
        core.parts[self] = None
        self._forget_end = core.on_close(lambda error: self.close())
        fetcher.report_to(self.committing)

    def _enter_group(self, group: str) -> None:
        core, taken = self._core, self._taken if self._on_commit is not None else None
        if self._plan.member is None:
            self.commits = Commits(core, group, taken=taken)
        else:
            from ottla.sdk.group.protocol_choice import member_of  # only here: most readers join no group

            channel, regex = f"group-{self.fetcher.number}", self._options.pattern_re2
            membership = self.membership = member_of(
                core, group, self._plan.member, channel, self._on_assignment_change, regex
            )
            self.commits = Commits(core, group, lambda: membership.identity, membership.refused, taken)
        self._resuming = Resuming(core, group, self.commits, self.fetcher, self._subscription, self._notify, self._fail)

    # -- the block ---------------------------------------------------------------------------------------------------

    def enter(self, starts: Mapping[TopicPartition, Start | None], task: Any) -> Steps[None]:
        """Open the consumer. Without a group, all positions are known when this returns.

        Args:
            starts: manually assigned partitions; ``None`` as a start means the group's committed offset.
        """
        core = self._core
        self._asking.enter(task)
        try:
            yield from know_topics(core, self._plan.topics, starts)
            self.committing.begin(core.now)
            if starts:
                yield from settled(self._assign(starts, core.now))
            else:
                self._subscription.begin(core.now)
            if self.membership is None:
                yield from settled(self.fetcher.resolve(core.now))
        except BaseException:  # a cancellation included
            self.close()
            raise
        self.polls.away(core.now)
        if self.commits is not None:
            core.members[self._leave_with_client] = None

    def _assign(self, starts: Mapping[TopicPartition, Start | None], now: float) -> Outcome[None]:
        for place in starts:
            self.committing.own(place)
        self.fetcher.assign({place: start for place, start in starts.items() if start is not None}, now)
        committed = [place for place, start in starts.items() if start is None]
        if self._resuming is not None:
            return self._resuming.resume(committed)
        return settled_with(None)

    def leave(self, error: BaseException | None, task: Any) -> Steps[None]:
        """End the consumer's block, normally or by ``error``; see `Leaving`.

        Raises:
            CommitFailed, TimeoutExpired: the block ended normally, but some of the work failed.
        """
        self._stop_timers()
        within_listener = self._asking.asks(task)
        self._asking.leave(task)
        self._notify()
        try:
            yield from self._leaving.leave(error, within_listener=within_listener)
        finally:
            self.close()

    def _leave_with_client(self, why: str, now: float, until: float) -> Outcome[None]:
        """Commit and leave the group, because the client is left before this consumer."""
        # A process that was frozen for longer than `max_poll_interval` would leave the group before it commits.
        self._stop_timers()
        return Flow(self._core, self._leaving.with_client(why, until)).outcome

    def _stop_timers(self) -> None:
        """Stop the timers that run while the consumer's block lasts."""
        self.polls.stop()
        self._subscription.stop()
        self.committing.stop()

    @property
    def closed(self) -> bool:
        return self.ended.done

    def close(self) -> None:
        """Close the consumer and all its parts; leave the group if `leave` has not done so."""
        if self.closed:
            return
        self.ended.succeed(None)
        self._forget_end()
        self._stop_timers()
        self._core.members.pop(self._leave_with_client, None)
        if self.membership is not None:
            self.membership.close(CLOSED, self._core.now)
        if self.commits is not None:
            self.commits.close()
        self.fetcher.close()
        self._core.parts.pop(self, None)
        self._core.gate.offering.pop(self, None)
        self._notify()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise Closed("the consumer is closed, or its client is")

    # -- batches -----------------------------------------------------------------------------------------------------

    def read_by(self, reader: object) -> None:
        """Let only ``reader`` ask for batches, for example a transform; only its transactions commit their offsets."""
        self._reader = reader
        self.ahead = None  # a thread that takes offered batches is not asked who it is
        self._core.gate.offering.pop(self, None)
        self.committer.refuse_all_but_transactions()

    def next_batch(self, task: Any, reader: object = None) -> Steps[Taken]:
        """The next batch, like `poll` without a timeout."""
        taken = yield from self.poll(task, reader=reader)
        assert taken is not None
        return taken

    def poll(self, task: Any, timeout: float | None = None, reader: object = None) -> Steps[Taken | None]:
        """The next batch, or ``None`` if there is none within ``timeout`` seconds. The previous batch counts as done.

        Args:
            reader: the object that reads the consumer on behalf of the user, if any; see `read_by`.

        Raises:
            OttlaError: the membership has ended, a partition cannot be read any further, or commits have failed.
            Closed: the consumer or its client is closed, or another task is leaving the block.
            LocalProtocolError: another task waits for a batch or has one in hand.
        """
        self._refuse_closed()
        if reader is not self._reader:
            raise LocalProtocolError(
                "a transform reads this consumer: take batches from the transform, or it misses them"
            )
        self._asking.begin(task)
        abandoned, over = False, None if timeout is None else self._core.at(self._core.now + timeout)
        try:
            # Other tasks run before a batch is taken, so that a cancellation here loses none.
            if self._core.now - self._others_ran_at >= TURN_EVERY:
                yield TURN
                self._others_ran_at = self._core.now
            while True:
                self._refuse_closed()
                self._asking.refuse_left()
                self.polls.stop()
                if self.membership is not None:
                    self.membership.join(self._core.now)
                self.committing.finish()
                if (notice := self.notices.next()) is not None:
                    yield from self._follow(notice)
                elif (fetched := self._take()) is not None:
                    self._asking.hand_out(task)
                    return fetched, self.committing.hand_out(fetched)
                elif over is None:
                    yield self._wait()
                    self._others_ran_at = self._core.now
                elif over.done:
                    return None
                else:
                    yield any_of((self._wait(), over))
                    self._others_ran_at = self._core.now
        except GeneratorExit:  # the event loop has gone away and dropped the call
            abandoned = True
            raise
        finally:
            if over is not None:
                over.succeed(None)
            self._asking.end()
            if not (abandoned or self.closed or self._asking.left):
                self.polls.away(self._core.now)

    @property
    def has_batch(self) -> bool:
        """Whether a call of `poll` would probably return at once."""
        return self.fetcher.wait(self._readable()).done

    def put_back(self, fetched: Fetched) -> None:
        """Take back the batch that `next_batch` returned last, because it has not reached the caller."""
        self.committing.take_back(fetched)
        self.fetcher.put_back(fetched)

    def _take(self) -> Fetched | None:
        if self._failed is not None:
            raise self._failed
        if self.membership is not None and self.membership.failed is not None:
            raise self.membership.failed
        if self.commits is not None:
            self.commits.raise_failures()
        return self.fetcher.take(self._readable(), self._options.max_records)

    # -- batches ahead -----------------------------------------------------------------------------------------------

    def read_ahead(self, make: Callable[[Fetched, BatchAssignment | None], Any]) -> None:
        """Let the reading thread take batches without a call, each converted by ``make``."""
        self.ahead = Ahead(make, self._core.gate.entered)
        self._core.gate.offering[self] = None

    def offer(self) -> None:
        """Offer the batches that the next calls of `poll` would return at once."""
        if self.ahead is not None and (task := self._asking.reader) is not None and not self._has_news():
            batches = self.fetcher.ahead(self._readable(), self._options.max_records, _AHEAD)
            self.ahead.offer(task, [(each, self.committing.claim(each)) for each in batches])

    def _has_news(self) -> bool:
        """Whether a call of `poll` would do or raise anything before it returns the next batch."""
        if self.closed or self._failed is not None or self.polls.absent:
            return True
        if self.commits is not None and self.commits.failed:
            return True
        membership = self.membership
        return membership is not None and (membership.failed is not None or self.notices.next() is not None)

    def settle(self) -> None:
        """Account for the batches that the thread took, as if `poll` had returned each of them."""
        if self.ahead is None:
            return
        at = self.ahead.at
        for expected in self.ahead.settle():
            self.committing.finish()
            taken = self._take()
            assert taken is expected
            self.committing.hand_out(taken)
            self.polls.away(at)

    def _wait(self) -> Outcome[None]:
        """Settled when there may be news. All waiters share it, so it is never cancelled."""
        news = self.fetcher.wait(self._readable())
        if news.done:
            return news
        if self._news.done:
            self._news = any_of((news, self._moved))
        return self._news

    def _readable(self) -> Container[TopicPartition] | None:
        """In a group, the partitions for which the listener's `assigned` has returned; ``None``: all."""
        return None if self.membership is None else self.notices.readable

    def _follow(self, notice: Notice) -> Steps[None]:
        """Call the listener about a change of the assignment; for a revocation, also wait for commits.

        A revocation that was cancelled is continued by the next call.
        """
        change, places = notice
        self.polls.away(self._core.now)
        if isinstance(change, Receive):
            yield from self.notices.assigned(notice)
            self._done(change)  # after the call: if `assigned` raises or is cancelled, it is called again
        elif isinstance(change, Lose):
            self._done(change)  # before the call: `lost` is called once, even if it raises or is cancelled
            yield from self.notices.lost(places)
        else:
            self.committing.commit_done(self._core.now)
            with self.committer.within(change):
                yield from self.notices.revoked(places)  # may commit, too
            failed = yield from self._commit_before_revocation(change)
            self._done(change)  # last: from now on, the next owner may begin at the committed offsets
            # Without a cause, the assignments ended meanwhile, and their commits were dropped with a line in the log.
            if failed is not None and failed.cause is not None:
                raise failed

    def _commit_before_revocation(self, change: Revoke) -> Steps[CommitFailed | None]:
        # A member that waits too long is removed, and loses its other partitions, too. (ConsumerCoordinator,
        # onJoinPrepare) A call that continues a cancelled wait keeps its end.
        now = self._core.now
        if self._waits is None or self._waits[0] is not change:
            self._waits = change, now + min(change.commit_timeout(now), self._core.options.api_timeout)
        try:
            yield from self.committer.settled(change.places, max(self._waits[1] - now, 0.0))
        except TimeoutExpired as error:
            group = self.commits.group if self.commits is not None else None
            extra = {"group": group, "partitions": named(change.places), "why": str(error)}
            log.error("partitions are revoked with uncommitted offsets", extra=extra)
        except CommitFailed as error:
            return error
        return None

    def _done(self, change: AssignmentChange) -> None:
        """Finish with a change whose listener call has returned. If the partitions were lost meanwhile, do nothing."""
        if self.membership is None or change not in self.membership.changes:
            return
        if isinstance(change, Revoke):
            topics = self._core.cluster.topics
            self._end([each for each in change.places if each[0] in topics], _REVOKED)
            self._end([each for each in change.places if each[0] not in topics], "its topic was deleted")
        self.membership.done(change, self._core.now)

    # -- the group's side --------------------------------------------------------------------------------------------

    def _taken(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Call the user's callback with the offsets that the coordinator has stored."""
        if (on_commit := self._on_commit) is not None:
            self._core.run(lambda: on_commit(offsets), RunMode.CALLBACK)

    def _subscribe(self, now: float) -> None:
        """Act on the subscription's current topics: join the group, or read their partitions."""
        topics = self._subscription.topics
        if self._plan.matches is not None:
            self.fetcher.let_go(topics)
        if self.membership is not None:
            self.membership.subscribe(topics, now)
            if not self.polls.absent:
                self.membership.join(now)
            return
        new = [place for place in self._subscription.partitions if place not in self.fetcher.places]
        self.fetcher.assign({place: self._subscription.start_again(place) for place in new}, now)
        self.fetcher.follow(topics)

    def _on_assignment_change(self, change: AssignmentChange | None, now: float) -> None:
        """Act on a change of the assignment, before the user is notified."""
        if isinstance(change, Lose):
            self._end(change.places, change.why)
        elif isinstance(change, Receive) and self._resuming is not None:
            if self._options.pattern_re2 is not None:
                self.fetcher.let_go({topic for topic, _ in change.places})
            for place in change.places:
                self.committing.own(place)
            self._resuming.receive(change.places)
        if self.commits is not None:
            self.commits.wake()
        self._notify()

    def _end(self, places: Sequence[TopicPartition], why: str) -> None:
        """Stop reading partitions that are no longer assigned, and drop their pending commits."""
        self.fetcher.unassign(places)
        for place in places:
            if self._resuming is not None:
                self._resuming.forget(place)
            self.committing.disown(place, why)

    def _fail(self, error: OttlaError) -> None:
        self._failed = error

    def _notify(self) -> None:
        moved, self._moved = self._moved, Outcome()
        moved.succeed(None)

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Nothing: the consumer's fetcher counts its partitions."""
        return {}

    def explain(self, now: float) -> Iterator[str]:
        yield from self._subscription.explain(now)
        if self.membership is not None:
            yield from self.membership.explain(now)
            handled, counted = self.committing.in_hand, self.polls.counted(now)
            if handled is not None and counted is not None:
                place = f"{handled.topic}-{handled.partition}"
                yield f"group {self._options.group!r}: your loop has handled a batch of {place} for {counted:.1f} s"
        if self.commits is not None:
            yield from self.commits.explain(now)
