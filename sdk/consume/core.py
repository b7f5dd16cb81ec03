"""A consumer, as its user calls it: what each call does, and in which order. Nothing of it is left to a face.

    enter ──► next_batch ──► next_batch ──► … ──► leave
                  │ between two batches: what the group gives and takes (`Notices`)
                  └ a batch is taken from the `Fetcher`, or waited for

    topics, no group     every partition, also those that come later
    topics, a group      what the group gives this member (`Membership`)
    assigned by hand     these partitions; with a group its offsets, too

Rules:
- A partition is read only once its place to begin is known: what the group committed, else ``start`` (`Resuming`).
- News of the group are told between two batches, never during one: a batch in hand keeps its partition until the next
  is asked for, unless the group throws the member out.
- Lost partitions are not read for a moment longer, and what is left to commit of them is dropped (`Committing`).
- To ask for a batch says that the one before is done, so in a group only the task that has it can do so.
- A wait for a batch that is cancelled has taken nothing. `max_poll_interval` is counted from its end (`PollWatch`).

Source: KafkaConsumer.java, ConsumerCoordinator.java, SubscriptionState.java.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ottla.errors import Closed, CommitFailed, LocalProtocolError, OttlaError, TimeoutExpired, UnknownTopicOrPartition
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.consume.committing import Committing, given, log_dropped
from ottla.sdk.consume.fetcher import Fetched, Fetcher, Start
from ottla.sdk.consume.leaving import Leaving
from ottla.sdk.consume.notices import Listener, Notice, Notices
from ottla.sdk.consume.options import ConsumerOptions
from ottla.sdk.consume.polls import PollWatch
from ottla.sdk.consume.resuming import Resuming
from ottla.sdk.consume.subscription import Subscription
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commits import Assignment, Commits
from ottla.sdk.group.member import ClassicMember
from ottla.sdk.group.membership import Lose, Membership, Receive, Revoke, Step
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.steps import TURN, Steps, settled

log = logger("ottla.sdk.consumer")

BLOCKED = 1 / 3
"""Part of the session timeout for which the whole loop may stand still before that is reported."""
TURN_EVERY = 0.001
"""Seconds for which batches are handed out, where there are small ones, before other tasks run."""
_REVOKED = "a rebalance took it, and whoever has it now, be it this consumer again, went on from what was committed"


class Tasks(Protocol):
    """What a loop knows of its tasks, which are nothing to a machine but names: see `ottla.sdk.drivers.driver`."""

    def name_of(self, task: Any) -> str: ...
    def where(self, task: Any) -> str: ...
    def has_ended(self, task: Any) -> bool: ...


class ConsumerCore:
    """One consumer on a `ClientCore`; ``fetcher`` is its own.

    Args:
        on_commit: the user's, called outside of the core with the offsets that the coordinator has taken.

    Attributes:
        ended: settled when the consumer is closed, or its client.
    """

    def __init__(
        self,
        core: ClientCore,
        options: ConsumerOptions,
        fetcher: Fetcher,
        tasks: Tasks,
        listener: Listener | None = None,
        on_commit: Callable[[Mapping[TopicPartition, CommittedOffset]], None] | None = None,
    ) -> None:
        self._core, self._options, self.fetcher, self._tasks = core, options, fetcher, tasks
        self._on_commit = on_commit
        self.ended: Outcome[None] = Outcome()
        self._moved: Outcome[None] = Outcome()
        self._news: Outcome[None] = any_of((self._moved, fetcher.moved()))
        """Settled, and made anew, whenever there may be something to say."""
        self._failed: OttlaError | None = None
        self._holder: Any = None
        """The task that took the last batch."""
        self._asking: Any = None
        """The task that waits for a batch, or for the block to end."""
        self._turn = -math.inf
        """When other tasks had their turn last."""
        self.membership: Membership | None = None
        self.commits: Commits | None = None
        self._resuming: Resuming | None = None
        self._subscription = Subscription(core, options, self._subscribe)
        if options.group is not None:
            self._enter_group(options.group)
        ready = self._resuming.ready if self._resuming is not None else lambda place: True
        self.notices = Notices(self.membership, self.commits, listener, ready)
        self.committing = Committing(core, fetcher, self.commits, options.auto_commit)
        limit = options.member.max_poll_interval if options.member is not None and self.membership else None
        self._polls = PollWatch(core, limit, self._report_slow, self._absent)
        self._leaving = Leaving(core, self.committing, self.commits, self.membership, self.notices, self.explain)
        core.parts[self] = None
        self._forget_end = core.on_close(lambda error: self.close())
        fetcher.on_reset = self._reset

    def _enter_group(self, group: str) -> None:
        core, told = self._core, self._committed if self._on_commit is not None else None
        if self._options.member is None:
            self.commits = Commits(core, group, taken=told)
        else:
            channel = f"group-{self.fetcher.number}"
            membership = self.membership = ClassicMember(core, group, self._options.member, channel, self._heard)
            self.commits = Commits(core, group, lambda: membership.identity, membership.refused, told)
        self._resuming = Resuming(
            core, group, self.commits, self.fetcher, self._subscription.start, self._notify, self._fail
        )

    # -- the block ---------------------------------------------------------------------------------------------------

    def enter(self, starts: Mapping[TopicPartition, Start | None], task: Any) -> Steps[None]:
        """Open the consumer; without a group all positions are known then.

        Args:
            starts: partitions that are assigned by hand; ``None`` begins where the group stands.
        """
        core = self._core
        self._holder = task
        try:
            yield from self._know_topics(starts)
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
        self._polls.away(core.now)

    def _know_topics(self, starts: Mapping[TopicPartition, object]) -> Steps[None]:
        names = self._options.topics or sorted({topic for topic, _ in starts})
        topics = [self._core.topic(name, self._core.now) for name in names]  # all at once: they may be thousands
        try:
            for each in topics:
                yield from settled(each)
        finally:
            for each in topics:
                each.cancel()
        for name, partition in starts:
            topic: Topic = topics[names.index(name)].result()
            if partition not in topic.partitions:
                has = f"{name!r} has partitions 0 to {len(topic.partitions) - 1}"
                raise UnknownTopicOrPartition(f"{has}, not {partition!r}")

    def _assign(self, starts: Mapping[TopicPartition, Start | None], now: float) -> Outcome[None]:
        for place in starts:
            self.committing.own(place)
        self.fetcher.assign({place: start for place, start in starts.items() if start is not None}, now)
        committed = [place for place, start in starts.items() if start is None]
        if self._resuming is not None:
            return self._resuming.resume(committed, now)
        nothing: Outcome[None] = Outcome()
        nothing.succeed(None)
        return nothing

    def leave(self, error: BaseException | None, task: Any) -> Steps[None]:
        """The block is left, by ``error`` or normally; see `Leaving`.

        Raises:
            CommitFailed, TimeoutExpired: what could not be done, of a block that is left normally.
        """
        self._polls.stop()
        self._subscription.stop()
        self.committing.stop()
        self._asking = task
        try:
            yield from self._leaving.leave(error)
        finally:
            self._asking = None
            self.close()

    @property
    def closed(self) -> bool:
        return self.ended.done

    def close(self) -> None:
        """Of no more use: says good-bye to the group, if nothing else could."""
        if self.closed:
            return
        self.ended.succeed(None)
        self._forget_end()
        self._polls.stop()
        self._subscription.stop()
        self.committing.stop()
        if self.membership is not None:
            self.membership.close(self._core.now)
        self.fetcher.close()
        self._core.parts.pop(self, None)
        self._notify()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise Closed("the consumer is closed, or its client is")

    # -- batches -----------------------------------------------------------------------------------------------------

    def next_batch(self, task: Any) -> Steps[tuple[Fetched, Assignment | None]]:
        """The next batch, and the assignment under which it can be committed. The one before is done.

        Raises:
            OttlaError: the membership has ended, a partition cannot be read on, or commits have failed.
            LocalProtocolError: another task asks, or has a batch in hand.
        """
        self._refuse_closed()
        self._refuse_another_task(task)
        self._asking = task
        try:
            if self._core.now - self._turn >= TURN_EVERY:  # before a batch is taken: a cancellation loses none
                yield TURN
                self._turn = self._core.now
            while True:
                self._refuse_closed()
                self._polls.stop()
                if self.membership is not None:
                    self.membership.join(self._core.now)
                self.committing.finish()
                if (notice := self.notices.next()) is not None:
                    yield from self._follow(notice)
                elif (fetched := self._take()) is not None:
                    self._holder = task
                    return fetched, self.committing.hand_out(fetched)
                else:
                    yield self._wait()
                    self._turn = self._core.now
        finally:
            self._asking = None
            self._polls.away(self._core.now)

    def _take(self) -> Fetched | None:
        if self._failed is not None:
            raise self._failed
        if self.membership is not None and self.membership.failed is not None:
            raise self.membership.failed
        if self.commits is not None:
            self.commits.raise_failures()
        return self.fetcher.take(self._readable())

    def _wait(self) -> Outcome[None]:
        """Settled when there may be something to say. All who wait share it."""
        news = self.fetcher.wait(self._readable())
        if news.done:
            return news
        if self._news.done:
            self._news = any_of((news, self._moved))
        return self._news

    def _readable(self) -> Container[TopicPartition] | None:
        """Partitions of which the user knows; in a group, none of which it was not told yet."""
        return None if self.membership is None else self.notices.readable

    def _refuse_another_task(self, task: Any) -> None:
        if self._asking is task and task is not None:
            raise LocalProtocolError("a RebalanceListener is told between two batches: ask for none in its methods")
        in_parallel = "several consumers of the group"
        if self._options.group is None:
            in_parallel = "several consumers, each with partitions of its own (assign=) or all of one group"
        if self._asking is not None:
            raise LocalProtocolError(
                f"task {self._tasks.name_of(self._asking)!r} waits for a batch of this consumer: read it in one task, "
                f"which may hand out what it gets, and in parallel with {in_parallel}"
            )
        holder = self._holder
        if self._options.group is None or holder is None or holder is task:
            return
        if self.committing.in_hand is not None and not self._tasks.has_ended(holder):
            raise LocalProtocolError(
                f"task {self._tasks.name_of(holder)!r} has a batch of this consumer in hand, and to ask for the next "
                "would say that it is done: to hand over, let that task commit it (batch.commit_soon()) or end; to "
                f"read in parallel, open {in_parallel}"
            )

    def _follow(self, notice: Notice) -> Steps[None]:
        """Do what the group asks for, or tell what it did. A revocation that was interrupted goes on where it was."""
        step, places = notice
        self._polls.away(self._core.now)
        if isinstance(step, Receive):
            yield from self.notices.assigned(notice)
            self._done(step)
        elif isinstance(step, Lose):
            self._done(step)
            yield from self.notices.lost(places)
        else:
            self.committing.commit_done(self._core.now)
            yield from self.notices.revoked(places)
            failed = yield from self._commit_before_revocation()
            self._done(step)
            if failed is not None and failed.cause is not None:
                raise failed

    def _commit_before_revocation(self) -> Steps[CommitFailed | None]:
        try:
            yield from self._committed_all()
        except TimeoutExpired as error:
            log.error("partitions are given up with offsets that are not committed", extra={"why": str(error)})
        except CommitFailed as error:
            return error
        return None

    def _done(self, step: Step) -> None:
        """The user was told of a step. If a loss has overtaken it, that is told next."""
        if self.membership is None or step not in self.membership.steps:
            return
        if isinstance(step, Revoke):
            topics = self._core.cluster.topics
            self._end([each for each in step.places if each[0] in topics], _REVOKED)
            self._end([each for each in step.places if each[0] not in topics], "its topic is gone")
        self.membership.done(step, self._core.now)

    # -- places ------------------------------------------------------------------------------------------------------

    def position(self, place: TopicPartition) -> int:
        """The offset of the next record that is handed out of the partition.

        Raises:
            LocalProtocolError: it is not assigned to this consumer, or is being looked up.
        """
        self._refuse_closed()
        if place not in self.fetcher.places:
            raise self._not_assigned(place, "ask for its position")
        position = self.fetcher.position(place)
        if position is None:
            raise LocalProtocolError(f"the position of {place[0]}-{place[1]} is being looked up: await seek first")
        return position

    def seek(self, starts: Mapping[TopicPartition, Start]) -> Steps[None]:
        """Go on elsewhere, in partitions that are `_owned`; commits may go back there, too."""
        self._refuse_closed()
        owned = self._owned(starts, "seek")
        for place in owned:
            self.committing.move(place)
        self.fetcher.assign({place: starts[place] for place in owned}, self._core.now)
        yield from settled(self.fetcher.resolve(self._core.now, starts))

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._refuse_closed()
        self.fetcher.pause(self._owned(places, "pause"))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._refuse_closed()
        self.fetcher.resume(self._owned(places, "resume"))

    def _owned(self, places: Iterable[TopicPartition], what: str) -> list[TopicPartition]:
        """Those of the partitions that are read, to do with them what is asked for.

        In a group partitions are lost at any moment: what is asked for one of which the user thinks, for want of news,
        that it is here, is dropped with a line in the log.

        Raises:
            LocalProtocolError: a partition is not assigned to this consumer.
        """
        asked = list(places)
        gone = [place for place in asked if place not in self.fetcher.places]
        for place in gone:
            if not self.notices.believed(place):
                raise self._not_assigned(place, what)
        if gone:
            log.warning("a call is dropped, as its partitions were lost", extra={"call": what, "partitions": gone})
        return [place for place in asked if place not in gone]

    def _not_assigned(self, place: TopicPartition, what: str) -> LocalProtocolError:
        if self.membership is None:
            advice = "what it reads is said where it is made, in client.consumer(...)"
        elif self.notices.believed(place):
            advice = "the group has taken it, which the loop is told of next"
        else:
            advice = f"in a group, {what} once `assigned` of a RebalanceListener has told of it"
        has = f"which has {self.fetcher.assignment}"
        return LocalProtocolError(f"{place!r} is not assigned to this consumer, {has}: {advice}")

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit_soon(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> None:
        """Have the group go on behind all that was handed out, or at ``offsets``; what was lost is dropped.

        Raises:
            LocalProtocolError: the consumer has no group, or does not have one of the partitions; or an offset is lower
                than one that was committed already.
        """
        if lost := self._commit(offsets):
            log_dropped(lost.offsets, lost.reason)

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> Steps[None]:
        """As `commit_soon`, and wait; a caller that is cancelled waits no more, but the commit goes on.

        Raises:
            CommitFailed: what cannot be committed, once all else is.
        """
        lost = self._commit(offsets)
        yield from self._committed_all()
        if lost is not None:
            raise lost

    def _commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> CommitFailed | None:
        self._refuse_closed()
        commits = self.committing.commits
        if offsets is None:
            return self.committing.commit_all(self._core.now)
        assignments: dict[Assignment, CommittedOffset] = {}
        for place, each in given(offsets):
            assignment = commits.assignment(place)
            if assignment is None:
                raise self._not_assigned(place, "commit")
            assignments[assignment] = each
        self.committing.commit(assignments, self._core.now)
        return None

    def commit_batch_soon(
        self, place: TopicPartition, at: CommittedOffset, under: "Assignment | None", seeks: int
    ) -> None:
        """As `Committing.commit_batch`; what cannot be committed is dropped with a line in the log."""
        self._refuse_closed()
        if why := self.committing.commit_batch(under, seeks, at, self._core.now):
            log_dropped({place: at.offset}, why)

    def commit_batch(
        self, place: TopicPartition, at: CommittedOffset, under: "Assignment | None", seeks: int
    ) -> Steps[None]:
        self._refuse_closed()
        if why := self.committing.commit_batch(under, seeks, at, self._core.now):
            raise CommitFailed(f"not committed: {why}", {place: at.offset})
        yield from self._committed_all()

    def _committed_all(self) -> Steps[None]:
        """Wait until all that was asked for is committed; raise what failed."""
        if self.commits is None:
            return
        waiting = self.commits.settled(self._core.now)
        if waiting.done:
            yield TURN
        yield from settled(waiting)
        self.commits.raise_failures()

    def committed(self, places: Iterable[TopicPartition] | None) -> Steps[dict[TopicPartition, CommittedOffset | None]]:
        """Where the group stands, of these partitions or of all that are assigned; ``None``: it never committed."""
        group = self._options.group
        if group is None:
            raise LocalProtocolError(
                "a consumer without a group has committed nothing: name one, as in group='billing'"
            )
        self._refuse_closed()
        asked = list(self.fetcher.assignment if places is None else places)
        found = yield from settled(calls.committed(self._core, {group: asked}, self._core.now, stable=True))
        return {place: found[group].get(place) for place in asked}

    def _committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The coordinator has taken these."""
        if (told := self._on_commit) is not None:
            self._core.run(lambda: told(offsets))

    # -- the group's side --------------------------------------------------------------------------------------------

    def _subscribe(self, now: float) -> None:
        """It is known which topics there are."""
        topics = self._subscription.topics
        if self.membership is not None:
            self.membership.subscribe(topics, now)
            self.membership.join(now)
            return
        new = [place for place in self._subscription.partitions if place not in self.fetcher.places]
        self.fetcher.assign({place: self._subscription.start(place) for place in new}, now)
        self.fetcher.follow(topics)

    def _heard(self, step: Step | None, now: float) -> None:
        """The membership has news."""
        if isinstance(step, Lose):
            self._end(step.places, step.why)
        elif isinstance(step, Receive) and self._resuming is not None:
            for place in step.places:
                self.committing.own(place)
            self._resuming.receive(step.places, now)
        if self.commits is not None:
            self.commits.wake()
        self._notify()

    def _end(self, places: Sequence[TopicPartition], why: str) -> None:
        """These partitions are not this consumer's any more."""
        self.fetcher.unassign(places)
        for place in places:
            if self._resuming is not None:
                self._resuming.forget(place)
            self.committing.disown(place, why)

    def _reset(self, place: TopicPartition) -> None:
        """The fetcher goes on elsewhere there, by policy."""
        self.committing.renew(place, "the log is not the one that was read, and the position was reset")

    def _fail(self, error: OttlaError) -> None:
        self._failed = error

    def _notify(self) -> None:
        moved, self._moved = self._moved, Outcome()
        moved.succeed(None)

    # -- is anybody there? -------------------------------------------------------------------------------------------

    def _absent(self, now: float) -> None:
        if self.membership is None or self._options.member is None:
            return
        limit = self._options.member.max_poll_interval
        log.error(
            "the member leaves its group, because its loop did not ask for a batch in time",
            extra={"group": self._options.group, "seconds": limit},
        )
        self.membership.leave(f"no batch was asked for within max_poll_interval, {limit:g} s", now)

    def _report_slow(self, seconds: float) -> None:
        """No batch was asked for since long: say where the handler stands, while the group still waits."""
        member = self._options.member
        log.warning(
            "a batch is handled for so long that the group is about to give its partitions to others",
            extra={
                "group": self._options.group,
                "seconds": round(seconds, 1),
                "max_poll_interval": member.max_poll_interval if member else None,
                "handler": self._tasks.where(self._holder),
            },
        )

    @property
    def blocked_after(self) -> float | None:
        """Seconds after which a loop that stands still is reported; ``None``: no group waits for heartbeats."""
        return self._options.member.session_timeout * BLOCKED if self._options.member is not None else None

    def report_blocked(self, seconds: float, stack: str) -> None:
        """Called from a thread: nothing of the loop runs, so no heartbeat goes out."""
        log.error(
            "code that does not await keeps the event loop from sending heartbeats: run it in a thread",
            extra={"group": self._options.group, "seconds": round(seconds, 1), "handler": stack},
        )

    def explain(self, now: float) -> Iterator[str]:
        yield from self._subscription.explain(now)
        if self.membership is not None:
            yield from self.membership.explain(now)
            handled, counted = self.committing.in_hand, self._polls.counted(now)
            if handled is not None and counted is not None:
                place = f"{handled.topic}-{handled.partition}"
                yield f"group {self._options.group!r}: your loop handles a batch of {place} for {counted:.1f} s"
        if self.commits is not None:
            yield from self.commits.explain(now)
