"""The trio face of a consumer.

Rules:
- Only ``async for`` may wait for ever, for records that nobody sends; what keeps it from reading is logged, or raised
  where no waiting helps. Everything else ends within `api_timeout`.
- News of the group are told between two batches, so a batch in hand keeps its partition until the next is asked for.
- Leaving the block commits what was asked to be, and leaves the group, within a deadline.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Self

import trio

from ottla.codec.columns import Columns
from ottla.codec.records import Record, Records
from ottla.errors import Closed, CommitFailed, LocalProtocolError, OttlaError, TimeoutExpired, UnknownTopicOrPartition
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.arguments import checked
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.consume.core import ConsumerCore, ConsumerOptions
from ottla.sdk.consume.fetcher import Fetched, Fetcher, Start
from ottla.sdk.consume.places import Where, start_at
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.group.commits import Assignment
from ottla.sdk.group.membership import Lose, Receive, Revoke, Step
from ottla.sdk.logs import logger
from ottla.sdk.outcome import all_of

log = logger("ottla.sdk.consumer")

BLOCKED = 1 / 3
"""Part of the session timeout for which the whole trio loop may stand still before that is reported."""
LEAVE_TIMEOUT = 30.0
"""Seconds to commit and to leave the group when the block is left normally, listener included: Java's."""
BREATH = 0.001
"""Seconds for which batches are handed out, where there are small ones, before other tasks run."""
CLOSE_TIMEOUT = 1.5
"""Seconds to commit and to leave the group when the block is left by an error or a cancellation."""


class RebalanceListener:
    """DeliveryCallback, between two batches, which partitions come and go; override what you want to know.

    Every method may await, and a seek or a commit of the consumer is welcome there. An error ends the loop. A name that
    is almost that of a method you did not write, as Java's ``onPartitionsAssigned``, is refused when the consumer is
    made.
    """

    async def assigned(self, places: Sequence[TopicPartition]) -> None:
        """These are this consumer's now; their positions are known, and nothing of them was handed out yet."""

    async def revoked(self, places: Sequence[TopicPartition]) -> None:
        """These are about to be given up: finish and commit; who gets them begins there."""

    async def lost(self, places: Sequence[TopicPartition]) -> None:
        """These are gone, and somebody else may have them already: commit nothing, undo what is half done."""


class ConsumerInterceptor:
    """Sees every batch on its way to the loop, and every offset that the group has taken; override what you want.

    What it raises is logged, and keeps nobody from anything.
    """

    def on_consume(self, batch: "Batch") -> None:
        """``batch`` is about to be handed out."""

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The coordinator has taken these offsets."""


class Batch:
    """Records of one partition, in order; iterate over it, or take `records` or `columns`.

    Attributes:
        topic, partition: where they come from.
        high_watermark: one past the last record that could be read when they were fetched.
        next_offset: behind these records: what a commit of this batch says.
        leader_epoch: of the last of them, -1 where it is not known.
    """

    __slots__ = (
        "_assignment",
        "_consumer",
        "_count",
        "_fetched",
        "_opened",
        "_records",
        "_seeks",
        "high_watermark",
        "leader_epoch",
        "next_offset",
        "partition",
        "topic",
    )

    def __init__(self, fetched: Fetched, assignment: Assignment | None, consumer: "Consumer") -> None:
        self.topic, self.partition = fetched.topic, fetched.partition
        self.high_watermark = fetched.high_watermark
        self.next_offset, self.leader_epoch = fetched.next_offset, fetched.leader_epoch
        self._fetched: Fetched | None = fetched
        self._opened: list[Records] = []
        self._records: list[Record] | None = None
        self._count: int | None = None
        self._assignment, self._consumer = assignment, consumer
        self._seeks = assignment.seeks if assignment else 0

    @property
    def records(self) -> list[Record]:
        """The records, decoded at the first use.

        Raises:
            DecodeError: a batch is damaged; says which.
        """
        if self._records is None:
            self._records = list(chain.from_iterable(self._parts))
        return self._records

    def columns(self) -> Columns:
        """The same records field by field, in the layout of Arrow, without making an object of any: many times faster.

        A row for each record, offsets among the columns. Keys and values are the bytes that were sent, whatever
        serializer made them. The buffers are new ones at each call, and stay whole for as long as anybody has them.

        Raises:
            DecodeError: a batch is damaged; says which.
            LocalProtocolError: a column would take more than 2 GiB: lower ``partition_max_bytes`` of `connect`.
        """
        columns = Columns.of(self._opened) if self._fetched is None else self._fetched.columns()
        self._count = len(columns)
        return columns

    @property
    def _parts(self) -> list[Records]:
        """What was fetched, opened at the first use; the bytes are let go of with what is made of them."""
        if self._fetched is not None:
            self._opened, self._fetched = self._fetched.parts(), None
        return self._opened

    def commit_soon(self, metadata: str = "") -> None:
        """Have the group go on behind this batch. Returns at once.

        Of several commits only the highest of each partition is sent, and an older one never after a newer. If the
        partition was lost meanwhile, the commit is dropped with a line in the log: its next owner reads these records
        again. Any other failure is raised by the next `commit`, or by the loop.

        Args:
            metadata: kept with the offset by the coordinator (up to 4,096 bytes by default).

        Raises:
            Closed: the block was left, or the client's.
            LocalProtocolError: the consumer has no group.
        """
        assignment, why = self._standing()
        if why:
            _log_dropped((self.topic, self.partition), self.next_offset, why)
        else:
            self._consumer._commit({assignment: CommittedOffset(self.next_offset, self.leader_epoch, metadata)})

    async def commit(self, metadata: str = "") -> None:
        """As `commit_soon`, and wait until the coordinator has it, and everything asked for before.

        Raises:
            CommitFailed: the partition was lost, or the coordinator refused: these records will be read again.
            TimeoutExpired: no answer within `api_timeout`; says what was tried.
        """
        assignment, why = self._standing()
        if why:
            raise CommitFailed(f"not committed: {why}", {(self.topic, self.partition): self.next_offset})
        self._consumer._commit({assignment: CommittedOffset(self.next_offset, self.leader_epoch, metadata)})
        await self._consumer._settled()

    def _standing(self) -> tuple[Assignment, str]:
        """As what to commit, and why that cannot be any more, which is then told."""
        commits, assignment = self._consumer._open.commits, self._assignment
        if commits is None or assignment is None:
            raise LocalProtocolError("a consumer without a group cannot commit: name one, as in group='billing'")
        if assignment.over:
            assignment.handed = -1
        elsewhere = "the consumer went elsewhere after the batch was handed out"
        return assignment, assignment.over or (elsewhere if assignment.seeks != self._seeks else "")

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(map(len, self._parts))
        return self._count

    def __repr__(self) -> str:
        return f"<Batch of {self.topic}-{self.partition}, {len(self)} records>"


class Consumer:
    """Reads partitions; made by `Client.consumer`, used as ``async with client.consumer("t") as consumer``.

        async for batch in consumer:
            for record in batch:
                handle(record)
            batch.commit_soon()

    Without a group all positions are known when the block is entered: ``start="end"`` means the end at that moment. In
    a group the partitions come, and go, while the loop runs.

    Left normally, the block tells the listener that everything is revoked, waits until what was asked to be committed
    is, and leaves the group; within 30 s, and then raises what is not committed. Left by an error or a cancellation it
    does so for a moment only, and tells the listener that everything is lost; the error then carries a note of what is
    not committed. The batch in hand is not committed by itself.
    """

    def __init__(
        self,
        driver: Driver[Any],
        options: ConsumerOptions,
        fetcher: Callable[[], Fetcher],
        assignment: Mapping[TopicPartition, Start | None],
        listener: RebalanceListener | None,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._driver, self._options, self._assignment, self._listener = driver, options, dict(assignment), listener
        self._interceptors, self._fetcher = tuple(interceptors), fetcher
        self._entered: ConsumerCore | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._task: trio.lowlevel.Task | None = None
        """Who took the last batch."""
        self._asking: trio.lowlevel.Task | None = None
        """Who waits for a batch."""
        self._telling = ""
        """The listener's method that is being awaited."""
        self._breath = -math.inf
        """When others had their turn last."""

    @property
    def _machine(self) -> ConsumerCore:
        if self._entered is None:
            raise LocalProtocolError(
                "the consumer was not opened: use it as `async with client.consumer(...) as consumer`"
            )
        return self._entered

    @property
    def _open(self) -> ConsumerCore:
        """What every call of the user goes through: nothing is touched from elsewhere, or when all is over."""
        self._driver.refuse_another_loop()
        machine = self._machine
        if machine.closed or machine.fetcher.closed:
            raise Closed("the consumer is closed, or its client is")
        return machine

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise LocalProtocolError("a consumer is opened once: make another one with client.consumer(...)")
        core = self._driver.core
        machine = ConsumerCore(core, self._options, self._fetcher(), self._report_slow, self._tell_commit)
        self._entered = machine
        try:
            names = self._options.topics or sorted({topic for topic, _ in self._assignment})
            topics = [
                core.metadata.topic(name, trio.current_time()) for name in names
            ]  # all at once: they may be thousands
            await self._driver.call(lambda now: all_of(topics))
            for topic in topics:
                self._check_partitions(topic.result())
            if self._assignment:
                await self._driver.call(lambda now: machine.assign(self._assignment, now))
            else:
                machine.begin(trio.current_time())
                self._driver.step()
            if machine.membership is None:
                await self._driver.call(lambda now: machine.fetcher.resolve(now))
        except BaseException:  # a cancellation included
            machine.close(trio.current_time())
            raise
        self._task = trio.lowlevel.current_task()
        if self._options.member is not None:
            self._unwatch = self._driver.watch(self._options.member.session_timeout * BLOCKED, self._report_blocked)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        machine = self._machine
        try:
            if error is None:
                limit = min(LEAVE_TIMEOUT, self._driver.core.options.api_timeout)
                with trio.move_on_after(limit) as scope:
                    await self._leave()
                if scope.cancelled_caught:
                    told = [*self._unfinished(), *machine.explain(trio.current_time())]
                    raise TimeoutExpired(f"the consumer could not finish within {limit:g} s: {'; '.join(told)}")
            else:
                await self._leave_at_once(error)
        except trio.Cancelled as cancelled:
            await self._leave_at_once(cancelled)
            raise
        finally:
            self._unwatch()
            machine.close(trio.current_time())  # which says good-bye to the group, if nothing else could
            self._driver.step()

    def _check_partitions(self, topic: Topic) -> None:
        for name, partition in self._assignment:
            if name == topic.name and partition not in topic.partitions:
                has = f"{name!r} has partitions 0 to {len(topic.partitions) - 1}"
                raise UnknownTopicOrPartition(f"{has}, not {partition!r}")

    async def _leave(self) -> None:
        """As if everything were revoked; then say good-bye."""
        machine = self._machine
        machine.end_loop(trio.current_time())
        failed: OttlaError | None = None
        if machine.received and self._listener is not None:
            await self._tell(self._listener.revoked, machine.received)
        try:
            await self._settled()
        except (CommitFailed, TimeoutExpired) as error:
            failed = error
        await self._driver.call(machine.stop)
        if failed is not None:
            raise failed

    async def _leave_at_once(self, error: BaseException) -> None:
        """Half of the time for the commits, the other for the good-bye; the listener has as much as either."""
        machine = self._machine
        if self._driver.core.closed:
            return
        with trio.move_on_after(CLOSE_TIMEOUT / 2, shield=True) as scope:
            try:
                machine.end_loop(trio.current_time())
                await self._settled()
            except OttlaError as failed:
                error.add_note(f"ottla: {failed}")
        if scope.cancelled_caught:
            log.error("commits are given up, because the consumer was left", extra={"why": self._uncommitted()})
            error.add_note(f"ottla: {self._uncommitted()}")
        with trio.move_on_after(CLOSE_TIMEOUT / 2, shield=True):
            await self._driver.call(machine.stop)
        if machine.received and self._listener is not None:
            with trio.move_on_after(CLOSE_TIMEOUT / 2, shield=True):
                await self._tell(self._listener.lost, machine.received)

    async def _tell(
        self, method: Callable[[Sequence[TopicPartition]], Awaitable[None]], places: Sequence[TopicPartition]
    ) -> None:
        """Await a method of the listener."""
        self._telling = f"{type(self._listener).__name__}.{method.__name__}"
        before, self._asking = self._asking, trio.lowlevel.current_task()
        try:
            await method(places)
        finally:
            self._asking = before
        self._telling = ""  # only now: who hangs and is cancelled is still to be named

    def _unfinished(self) -> Iterator[str]:
        """What keeps the consumer from leaving its group."""
        commits = self._machine.commits
        if commits is not None and commits.pending:
            yield self._uncommitted()
        if self._telling:
            yield f"{self._telling} of your listener has not returned"

    def _uncommitted(self) -> str:
        """What is not acknowledged of what was to be committed."""
        commits = self._machine.commits
        left = commits.pending.items() if commits is not None else ()
        places = ", ".join(f"{topic}-{partition} at {offset}" for (topic, partition), offset in sorted(left))
        return f"not committed, so to be read again: {places or 'nothing'}"

    # -- reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The next batch of some partition; waits until there is one. The batch before it counts as done.

        Raises:
            OffsetOutOfRange: a position is outside the log, and ``reset`` is ``"error"``.
            FencedInstanceId, GroupAuthorizationFailed, InconsistentGroupProtocol, …: the group refuses this member.
            CommitFailed: a commit that nobody awaited was refused.
            UnknownTopicOrPartition, TopicAuthorizationFailed, DecodeError, …: a partition cannot be read on until a
                seek. Raised once: the next call goes on with the others, and raises it again if there are none.
            LocalProtocolError: another task waits for a batch, or a method of the listener asks; in a group also while
                another task has a batch in hand that it has not committed.
        """
        self._refuse_another_task()
        before, self._asking = self._asking, trio.lowlevel.current_task()
        try:
            return await self._next()
        finally:
            self._asking = before

    async def _next(self) -> Batch:
        while True:
            machine = self._open
            # Cancelled before a batch is taken, or not at all: what is taken counts as read.
            await trio.lowlevel.checkpoint_if_cancelled()
            now = trio.current_time()
            machine.idle(now)
            machine.finish()
            if (news := machine.next_step()) is not None:
                await self._follow(*news)
                continue
            taken = machine.take(now)
            if taken is not None:
                batch = Batch(*taken, self)  # at once: when others have their turn they may seek
                self._driver.catch_up()
                self._task = trio.lowlevel.current_task()
                if now - self._breath >= BREATH:
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    self._breath = trio.current_time()
                for each in self._interceptors:
                    _guarded(partial(each.on_consume, batch))
                return batch
            await self._driver.wait(self._machine.wait())

    def _refuse_another_task(self) -> None:
        """Who asks for a batch says that the one before is done: in a group, only who has it can say so."""
        holder, me = self._task, trio.lowlevel.current_task()
        if self._asking is me:
            raise LocalProtocolError("a RebalanceListener is told between two batches: ask for none in its methods")
        in_parallel = "several consumers of the group"
        if self._options.group is None:
            in_parallel = "several consumers, each with partitions of its own (assign=) or all of one group"
        if self._asking is not None:
            raise LocalProtocolError(
                f"task {self._asking.name!r} waits for a batch of this consumer: read it in one task, which may hand "
                f"out what it gets, and in parallel with {in_parallel}"
            )
        if self._options.group is None or holder is None or holder is me:
            return
        if self._machine.in_hand and getattr(holder.coro, "cr_frame", None) is not None:
            raise LocalProtocolError(
                f"task {holder.name!r} has a batch of this consumer in hand, and to ask for the next would say that it "
                "is done: to hand over, let that task commit it (batch.commit_soon()) or end; to read in parallel, "
                f"open {in_parallel}"
            )

    async def _follow(self, step: Step, places: tuple[TopicPartition, ...]) -> None:
        """Do what the group asks for, or tell what it did. DeliveryCallback again if the telling is cancelled."""
        machine, listener = self._machine, self._listener if places else None
        machine.busy(trio.current_time())
        failed: CommitFailed | None = None
        match step:
            case Receive():
                if listener is not None:
                    await self._tell(listener.assigned, places)
            case Revoke():
                machine.commit_done(trio.current_time())
                if listener is not None:
                    await self._tell(listener.revoked, places)
                try:
                    await self._settled()
                except TimeoutExpired as error:
                    log.error("partitions are given up with offsets that are not committed", extra={"why": str(error)})
                except CommitFailed as error:
                    failed = error
            case Lose():
                if listener is not None:
                    await self._tell(listener.lost, places)
        machine.done_with(step, places, trio.current_time())
        self._driver.step()
        if failed is not None and failed.cause is not None:
            raise failed

    def _tell_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for each in self._interceptors:
            _guarded(partial(each.on_commit, offsets))

    def _report_slow(self, seconds: float) -> None:
        """A batch is in hand for long: say where its handler stands, while the group still waits."""
        member = self._options.member
        log.warning(
            "a batch is handled for so long that the group is about to give its partitions to others",
            extra={
                "group": self._options.group,
                "seconds": round(seconds, 1),
                "max_poll_interval": member.max_poll_interval if member else None,
                "handler": _where(self._task),
            },
        )

    def _report_blocked(self, seconds: float, stack: str) -> None:
        """Called from a thread: nothing of trio runs, so no heartbeat goes out."""
        log.error(
            "code that does not await keeps the trio loop from sending heartbeats: do it in trio.to_thread.run_sync",
            extra={"group": self._options.group, "seconds": round(seconds, 1), "handler": stack},
        )

    # -- places ------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return self._machine.fetcher.assignment

    @checked
    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that the loop gets from the partition.

        Raises:
            LocalProtocolError: it is not assigned to this consumer: in a group it comes, and goes, while the loop runs;
                or it is being looked up.
        """
        machine, place = self._open, (topic, partition)
        if place not in machine.fetcher.places:
            raise machine.not_assigned(place, "ask for its position")
        position = machine.fetcher.position(place)
        if position is None:
            raise LocalProtocolError(f"the position of {topic}-{partition} is being looked up: await seek first")
        return position

    @property
    def lag(self) -> dict[TopicPartition, int | None]:
        """Per partition, how many offsets the loop is behind the end that it may read; ``None`` while unknown."""
        fetcher = self._machine.fetcher
        return {place: fetcher.lag(place) for place in fetcher.assignment}

    @checked
    async def seek(self, places: Mapping[TopicPartition, Where]) -> None:
        """Go on elsewhere: ``{("t", 0): "beginning"}``, ``"end"``, a datetime, a timedelta (so long ago) or an offset.

        Returns once the offsets are known. Commits follow, also backwards: a seek says that this is meant. What was to
        be committed before still is, until something newer is. In a group partitions may be lost at any moment: a seek
        in one before the loop, or the listener, is told of that is dropped with a line in the log.

        Raises:
            Closed: the consumer is, or its client.
            LocalProtocolError: a partition is not assigned to this consumer: in a group it comes while the loop runs,
                and the place to seek is `RebalanceListener.assigned`.
        """
        starts = {place: start_at(where) for place, where in places.items()}
        self._open.seek(starts, trio.current_time())
        await self._driver.call(lambda now: self._machine.fetcher.resolve(now, starts))

    @checked
    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`; they stay this consumer's.

        A rebalance that revokes a partition forgets that it was paused, also where it comes back; and eager assignors,
        such as the default, revoke all. So in a group pause in `RebalanceListener.assigned`, or use
        ``"cooperative-sticky"``, by which what stays is not touched. One that is lost before the loop, or the listener,
        is told of that is left out, with a line in the log.

        Raises:
            LocalProtocolError: one is not assigned to this consumer: in a group it comes while the loop runs, and the
                place to pause it is `RebalanceListener.assigned`.
        """
        machine = self._open
        machine.fetcher.pause(machine.owned(places, "pause"))
        self._driver.step()

    @checked
    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions; errors as `pause`."""
        machine = self._open
        machine.fetcher.resume(machine.owned(places, "resume"))
        self._driver.step()

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return self._machine.fetcher.paused

    # -- commits -----------------------------------------------------------------------------------------------------

    @checked
    def commit_soon(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Have the group go on behind every batch handed out so far, the one in hand included; or at ``offsets``.

        Returns at once; see `Batch.commit_soon`: what was lost is dropped, with a line in the log.

        Raises:
            Closed: the block was left, or the client's.
            LocalProtocolError: the consumer has no group, or does not have one of the partitions; or an offset is lower
                than one that was committed already: to go back, seek there first.
        """
        if lost := self._wish(offsets):
            for place, offset in lost.offsets.items():
                _log_dropped(place, offset, lost.reason)

    def _wish(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None) -> CommitFailed | None:
        """As `commit_soon`; returns what cannot be committed."""
        given = {
            place: each if isinstance(each, CommittedOffset) else CommittedOffset(each)
            for place, each in (offsets or {}).items()
        }
        machine, now, lost = self._open, trio.current_time(), None
        if offsets is None:
            lost = machine.commit_all(now)
        else:
            machine.commit(given, now, exactly=True)
        self._driver.nudge()
        return lost

    @checked
    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """As `commit_soon`, and wait until the coordinator has it, and everything asked for before.

        Raises:
            CommitFailed: a partition was lost, and batches of it that were handed out are not committed, which is
                raised once, when the others are; or the coordinator refused.
            TimeoutExpired: no answer within `api_timeout`; says what was tried.
        """
        lost = self._wish(offsets)
        await self._settled()
        if lost is not None:
            raise lost

    @checked
    async def committed(
        self, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Where the group stands, of these partitions or of all that are assigned; ``None``: it never committed.

        Raises:
            LocalProtocolError: the consumer has no group.
            TimeoutExpired: no answer within `api_timeout`.
        """
        if self._options.group is None:
            raise LocalProtocolError(
                "a consumer without a group has committed nothing: name one, as in group='billing'"
            )
        group, asked = self._options.group, list(self._open.fetcher.assignment if places is None else places)
        core = self._driver.core
        found = await self._driver.call(lambda now: calls.committed(core, {group: asked}, now, stable=True))
        return {place: found[group].get(place) for place in asked}

    def _commit(self, offsets: Mapping[Assignment, CommittedOffset]) -> None:
        self._open.group_commits.commit(offsets, trio.current_time())
        self._driver.nudge()

    async def _settled(self) -> None:
        commits = self._machine.commits
        if commits is not None:
            await self._driver.call(commits.settled)
            commits.raise_failures()


def _log_dropped(place: TopicPartition, offset: int, why: str) -> None:
    where = f"{place[0]}-{place[1]}"
    log.warning("a commit is dropped", extra={"partition": where, "offset": offset, "why": why})


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # the user's own code, which must not keep records and commits from anybody
        log.exception("an interceptor raised")


def _where(task: trio.lowlevel.Task | None) -> str:
    """Where a task stands: the innermost line of its own code, and how it got there."""
    places: list[str] = []
    coroutine: Any = task.coro if task is not None else None
    while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if "/trio/" not in frame.f_code.co_filename:
            places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        coroutine = coroutine.cr_await
    return " > ".join(places[-3:]) or "unknown"
