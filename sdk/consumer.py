"""The face of a consumer, for any loop that has a driver: it awaits, and passes calls on to `ConsumerCore`.

Rules:
- Only ``async for`` may wait for ever, for records that no producer sends; obstacles to reading are logged, or raised
  if waiting cannot help. Everything else ends within `api_timeout`.
- The listener is called between two batches, so the loop keeps a batch's partition until it asks for the next batch.
- Leaving the block commits all requested offsets, and leaves the group, within a deadline.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.codec.columns import Columns
from ottla.codec.records import Record, Records
from ottla.errors import LocalProtocolError, OttlaError
from ottla.late_dataclass import dataclass
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.arguments import by_topic_partition, derived, listed, seconds
from ottla.sdk.blocks import AsyncBlock, BatchNames, ConsumerNames, Suggesting
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.assignment.committing import BatchAssignment
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.options import ConsumerPlan
from ottla.sdk.consume.partitions.starts import Where, start_at
from ottla.sdk.consume.reading.fetcher import Fetched, Fetcher, Start
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.logs import logger
from ottla.sdk.steps import Outside, Steps

T = TypeVar("T")

log = logger("ottla.sdk.consumer")

_RAISED = {
    "on_consume": "interceptor's on_consume raised; the batch is handed out unchanged",
    "on_commit": "interceptor's on_commit raised; the offsets are committed",
}


class RebalanceListener:
    """Callbacks between two batches for partitions that are assigned, revoked or lost; override what you need.

    Every method is passed the consumer, and may await: it may seek, pause or commit, but not ask the consumer for a
    batch. An error ends the loop. A misspelt method, or one with a name of Java's such as ``onPartitionsAssigned``, is
    refused when the consumer is created.

    Every assigned partition is revoked or lost exactly once: one call of `revoked` or `lost` names it. It counts as
    gone from the moment of that call, so if your method raises, or is cancelled (say by a ``move_on_after`` around the
    loop), finishing its work is up to you: neither it nor another method is called again. An `assigned` that did not
    return is called again before any record of its partitions is handed out.
    """

    async def assigned(self, consumer: "Consumer", places: Sequence[TopicPartition]) -> None:
        """The partitions now belong to this consumer, and no record of them has been handed out yet.

        Their positions are known, unless the lookup takes longer than a second, for example because a partition has no
        leader: until then `Consumer.position` raises `LocalProtocolError`, and the partition waits.
        """

    async def revoked(self, consumer: "Consumer", places: Sequence[TopicPartition]) -> None:
        """The partitions are about to be given up: finish and commit; the next owner continues from there.

        A `commit` in this method raises `TimeoutExpired` after half of the time that is left of `max_poll_interval`:
        the group removes a member that takes longer to give up its partitions, and the member loses all of them.
        """

    async def lost(self, consumer: "Consumer", places: Sequence[TopicPartition]) -> None:
        """The partitions are gone, and another member may have them already: commit nothing, undo partial work."""


class _Listening:
    """A listener, bound to the consumer that its methods are passed."""

    def __init__(self, listener: RebalanceListener, consumer: "Consumer") -> None:
        self.name = type(listener).__name__
        self.assigned = partial(listener.assigned, consumer)
        self.revoked = partial(listener.revoked, consumer)
        self.lost = partial(listener.lost, consumer)


class ConsumerInterceptor:
    """Sees every batch before the loop gets it, and every offset that the group has committed; override what you need.

    Its errors are logged, and stop neither records nor commits.
    """

    def on_consume(self, batch: "Batch") -> None:
        """``batch`` is about to be handed out. If Ctrl-C interrupts this call, the batch is handed out again."""

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The coordinator has committed these offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHooks:
    """Options of `Client.consumer` that are the user's objects, which the consumer calls."""

    listener: RebalanceListener | None = None
    """Is notified when partitions are assigned, revoked or lost."""
    interceptors: Sequence[ConsumerInterceptor] = ()
    """See every batch and every commit."""

    def __post_init__(self) -> None:
        if self.listener is not None:
            derived(self.listener, RebalanceListener)
        for each in self.interceptors:
            derived(each, ConsumerInterceptor)


class Batch(BatchNames):
    """Records of one partition, in order; iterate over it, or take `records` or `columns`.

    Attributes:
        topic, partition: where the records come from.
        high_watermark: one past the last record that could be read when they were fetched.
        next_offset: one past the last of these records: the offset that a commit of this batch stores.
        leader_epoch: of the last record; -1 if unknown.
    """

    __slots__ = (
        "_claim",
        "_consumer",
        "_count",
        "_fetched",
        "_opened",
        "_records",
        "high_watermark",
        "leader_epoch",
        "next_offset",
        "partition",
        "topic",
    )

    def __init__(self, fetched: Fetched, claim: BatchAssignment | None, consumer: "Consumer") -> None:
        self.topic, self.partition = fetched.topic, fetched.partition
        self.high_watermark = fetched.high_watermark
        self.next_offset, self.leader_epoch = fetched.next_offset, fetched.leader_epoch
        self._fetched: Fetched | None = fetched
        self._opened: list[Records] = []
        self._records: list[Record] | None = None
        self._count: int | None = None
        self._claim, self._consumer = claim, consumer

    @property
    def records(self) -> list[Record]:
        """The records, decoded on first access.

        Raises:
            DecodeError: a batch is damaged; names it.
            MemoryLimitExceeded: a batch takes more than ``fetch_batch_memory`` of `connect`.
        """
        if self._records is None:
            self._records = list(chain.from_iterable(self._parts))
        return self._records

    def columns(self) -> Columns:
        """The same records field by field, in the layout of Arrow, without creating an object for each: much faster.

        There is a row for each record; offsets are among the columns. Keys and values are the bytes that were sent,
        before any deserializer. Each call returns new buffers, which stay valid while anything refers to them.

        Raises:
            DecodeError: a batch is damaged; names it.
            MemoryLimitExceeded: a batch takes more than ``fetch_batch_memory`` of `connect`.
            LocalProtocolError: a column would take more than 2 GiB: lower ``partition_max_bytes`` of `connect`.
        """
        columns = Columns.of(self._opened) if self._fetched is None else self._fetched.columns()
        self._count = len(columns)
        return columns

    @property
    def _parts(self) -> list[Records]:
        """The fetched record sets, opened on first access; after that the bytes live only as long as the records."""
        if self._fetched is not None:
            self._opened, self._fetched = self._fetched.parts(), None
        return self._opened

    def commit_soon(self, metadata: str = "") -> None:
        """Commit the offset after this batch for the group. Returns at once.

        Of several commits of a partition only the highest is sent, and never an older one after a newer. If the
        partition was lost meanwhile, the commit is dropped and logged: its next owner reads these records again. Any
        other failure is raised by the next `commit`, or by the loop.

        Args:
            metadata: stored with the offset by the coordinator (up to 4,096 bytes by default).

        Raises:
            Closed: the block has ended, or the client's.
            LocalProtocolError: the consumer has no group, or a transaction commits an offset of the partition.
        """
        core, batch = self._consumer._core, self._committed_as(metadata)
        self._consumer._driver.do(lambda: core.committer.commit_batch_soon(*batch))

    async def commit(self, metadata: str = "") -> None:
        """Like `commit_soon`, and wait until the coordinator has stored it, and all earlier commits.

        Raises:
            CommitFailed: the partition was lost, or the coordinator refused: these records will be read again.
            LocalProtocolError: as in `commit_soon`.
            TimeoutExpired: no answer within `api_timeout`; says which requests were tried.
        """
        await self._consumer._driver.run(self._consumer._core.committer.commit_batch(*self._committed_as(metadata)))

    def _committed_as(self, metadata: str) -> tuple[TopicPartition, CommittedOffset, BatchAssignment | None]:
        at = CommittedOffset(self.next_offset, self.leader_epoch, metadata)
        return (self.topic, self.partition), at, self._claim

    def __iter__(self) -> Iterator[Record]:
        """The records; each is created when the iteration reaches it, unless `records` has been accessed."""
        return chain.from_iterable(self._parts) if self._records is None else iter(self._records)

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(map(len, self._parts))
        return self._count

    def __repr__(self) -> str:
        return f"<Batch of {self.topic}-{self.partition}, {counted([self])}>"


def counted(batches: Iterable[Sized]) -> str:
    """The number of records in the batches, for people; also if they cannot be opened."""
    try:
        return f"{sum(map(len, batches))} records"
    except OttlaError as error:
        return f"records that cannot be opened ({type(error).__name__})"


class Consumer(Suggesting, ConsumerNames, AsyncBlock):
    """Reads partitions; created by `Client.consumer`, used as ``async with client.consumer("t") as consumer``.

        async for batch in consumer:
            for record in batch:
                handle(record)
            batch.commit_soon()

    Without a group all positions are known when the block is entered: ``start="end"`` means the end at that moment. In
    a group, partitions are assigned and revoked while the loop runs.

    When the block ends normally, it notifies the listener that all partitions are revoked (or lost, if they already
    are), waits for all requested commits, and leaves the group. That takes at most 30 s; offsets still uncommitted then
    raise an error, and after it the listener's own error is raised. When the block ends by an error or a cancellation,
    all this takes only a moment, and the listener is notified that all partitions are lost; the error then carries a
    note about uncommitted offsets, and is raised even if `lost` raises, too. The batch in hand is not committed
    automatically. If another task waits for a batch when the block ends, it gets `Closed` at once. If the block never
    ends, the consumer ends with its client.
    """

    def __init__(
        self,
        driver: Driver[Any],
        plan: ConsumerPlan,
        fetcher: Callable[[], Fetcher],
        assignment: Mapping[TopicPartition, Start | None],
        hooks: ConsumerHooks,
    ) -> None:
        self._driver, self._plan, self._fetcher = driver, plan, fetcher
        self._assignment = dict(assignment)
        self._listener, self._interceptors = hooks.listener, tuple(hooks.interceptors)
        self._opened: ConsumerCore | None = None

    @property
    def _core(self) -> ConsumerCore:
        if self._opened is None:
            raise LocalProtocolError(
                "the consumer was not opened: use it as `async with client.consumer(...) as consumer`"
            )
        return self._opened

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise LocalProtocolError("a consumer can be opened only once: create another one with client.consumer(...)")
        driver = self._driver
        core = self._opened = driver.do(self._open)
        await driver.run(core.enter(self._assignment, driver.current_task()))
        if core.polls.blocked_after is not None:
            core.ended.when_done(driver.watch(core.polls.blocked_after, core.polls.report_blocked))
        return self

    def _open(self) -> ConsumerCore:
        on_commit = self._on_commit if self._interceptors else None
        listener = _Listening(self._listener, self) if self._listener is not None else None
        core = ConsumerCore(self._driver.core, self._plan, self._fetcher(), self._driver, listener, on_commit)
        # Interceptors run in the call that takes a batch, so that an interrupted call either took the batch or did not.
        if self._driver.core.threaded and not self._interceptors:
            core.read_ahead(self._batch)
        return core

    def _batch(self, fetched: Fetched, claim: BatchAssignment | None) -> Batch:
        return Batch(fetched, claim, self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._driver.is_gone(error):
            await self._driver.run(self._core.leave(error, self._driver.current_task()))

    # -- reading -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The next batch of any partition; waits until there is one. The batch before it counts as processed.

        Raises:
            OffsetOutOfRange: a position is outside the log, and ``reset`` is ``"error"``.
            FencedInstanceId, GroupAuthorizationFailed, InconsistentGroupProtocol, …: the group refuses this member.
            CommitFailed: a commit that was not awaited was refused.
            UnknownTopicOrPartition, TopicAuthorizationFailed, DecodeError, …: a partition cannot be read further.
            LocalProtocolError: another task waits for a batch, or a method of the listener asks for one; in a group
                also while another task has a batch that it has not committed.
        """
        batch = await self._next(None)
        assert batch is not None
        return batch

    async def poll(self, timeout: float) -> Batch | None:
        """Like `__anext__`, but ``None`` if there is no batch within ``timeout`` seconds.

        In either case the batch before it counts as processed. A rebalance is completed first, however long it takes:
        the listener's methods, and the commit before partitions are given up. Raises the same errors as `__anext__`.
        """
        return await self._next(seconds("timeout", timeout))

    async def _next(self, timeout: float | None) -> Batch | None:
        core, driver = self._core, self._driver
        batch: Batch | None = None
        if core.ahead is not None:
            batch = core.ahead.take(driver.current_task(), driver.now())
        if batch is None:
            task = driver.current_task()
            steps = core.next_batch(task) if timeout is None else core.poll(task, timeout)
            made = await driver.run(self._made(steps), self._put_back)
            batch = None if made is None else made[0]
        return batch

    def _made(self, steps: Steps[Taken | None]) -> Steps[tuple[Batch, Fetched] | None]:
        """Create the batch within the call, so that an interrupted call either took the batch or did not."""
        taken = yield from steps
        if taken is None:
            return None
        batch, fetched = self._batch(*taken), taken[0]
        if self._interceptors:
            try:
                yield Outside(partial(self._intercept, batch))
            except BaseException:  # such as Ctrl-C: the loop has not received the batch
                self._core.put_back(fetched)
                raise
        return batch, fetched  # not batch._fetched: an interceptor may have opened it

    def _put_back(self, made: tuple[Batch, Fetched] | None) -> None:
        if made is not None:
            self._core.put_back(made[1])

    def _intercept(self, batch: Batch) -> None:
        for each in self._interceptors:
            _guarded("on_consume", partial(each.on_consume, batch))

    def _on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for each in self._interceptors:
            _guarded("on_commit", partial(each.on_commit, offsets))

    # -- places ------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads, sorted."""
        fetcher = self._core.fetcher
        return self._driver.read(lambda: fetcher.assignment)

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that the loop gets from the partition.

        Raises:
            LocalProtocolError: the partition is not assigned to this consumer (in a group, assignments change while
                the loop runs), or its position is being looked up.
        """
        core = self._core
        return self._driver.do(lambda: core.navigation.position((topic, partition)))

    @property
    def lag(self) -> dict[TopicPartition, int | None]:
        """Per partition, how many offsets the loop is behind the end that it can read; ``None`` while unknown."""
        fetcher = self._core.fetcher
        return self._driver.read(lambda: {place: fetcher.lag(place) for place in fetcher.assignment})

    async def seek(self, places: Mapping[TopicPartition, Where]) -> None:
        """Change positions: ``{("t", 0): "beginning"}``, ``"end"``, a datetime, a timedelta (so long ago) or an offset.

        Returns once the offsets are known. Later commits may go backwards, because a seek shows that this is intended.
        Commits requested before still go out, until a newer one replaces them. In a group, partitions may be lost at
        any moment: a seek in a lost partition, before the listener is notified, is dropped and logged.

        Raises:
            Closed: the consumer is closed, or its client.
            LocalProtocolError: a partition is not assigned to this consumer. In a group it is assigned while the loop
                runs, so seek in `RebalanceListener.assigned`.
        """
        starts = {place: start_at(where) for place, where in by_topic_partition("places", places).items()}
        await self._driver.run(self._core.navigation.seek(starts))

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Hand out no records of these partitions until `resume`; they stay assigned.

        A rebalance that revokes a partition forgets that it was paused, even if the partition is assigned to this
        consumer again; and eager assignors, such as the default, revoke all partitions. So in a group pause in
        `RebalanceListener.assigned`, or use ``"cooperative-sticky"``, which leaves partitions that stay untouched. A
        partition that is already lost, before the loop or the listener is notified, is skipped and logged.

        Raises:
            LocalProtocolError: a partition is not assigned to this consumer. In a group it is assigned while the loop
                runs, so pause it in `RebalanceListener.assigned`.
        """
        core = self._core
        asked = listed("places", places)  # here: an iterator may call the consumer
        self._driver.do(lambda: core.navigation.pause(asked))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Resume paused partitions; raises the same errors as `pause`."""
        core = self._core
        asked = listed("places", places)
        self._driver.do(lambda: core.navigation.resume(asked))

    @property
    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted."""
        fetcher = self._core.fetcher
        return self._driver.read(lambda: fetcher.paused)

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit_soon(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit the offset after every batch handed out so far, the current one included; or the given ``offsets``.

        Returns at once; see `Batch.commit_soon`: commits of lost partitions are dropped and logged.

        Raises:
            Closed: the block has ended, or the client's.
            LocalProtocolError: the consumer has no group, or one of the partitions is not assigned to it; or an offset
                is lower than a committed one: to go back, seek first; or a transaction commits an offset of one of the
                partitions: commit after its end.
        """
        core = self._core
        given = None if offsets is None else by_topic_partition("offsets", offsets)
        self._driver.do(lambda: core.committer.commit_soon(given))

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Like `commit_soon`, and wait until the coordinator has stored it, and all earlier commits.

        Raises:
            CommitFailed: a partition was lost while batches of it were uncommitted (raised once, after the other
                partitions are committed); or the coordinator refused.
            LocalProtocolError: as in `commit_soon`.
            TimeoutExpired: no answer within `api_timeout`; says which requests were tried.
        """
        given = None if offsets is None else by_topic_partition("offsets", offsets)
        await self._driver.run(self._core.committer.commit(given))

    async def committed(
        self, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """The group's committed offsets, of these partitions or of all assigned ones; ``None`` if there is none.

        Raises:
            LocalProtocolError: the consumer has no group.
            TimeoutExpired: no answer within `api_timeout`.
        """
        asked = None if places is None else listed("places", places)
        return await self._driver.run(self._core.committer.committed(asked))


def _guarded(method: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # the user's own code, which must not stop records or commits
        log.exception(_RAISED[method])
