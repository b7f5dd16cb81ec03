"""The face of a consumer, on whatever loop its driver is for: it awaits, and passes on to `ConsumerCore`.

Rules:
- Only ``async for`` may wait for ever, for records that nobody sends; what keeps it from reading is logged, or raised
  where no waiting helps. Everything else ends within `api_timeout`.
- The listener is called between two batches, so a batch in hand keeps its partition until the next is asked for.
- Leaving the block commits what was asked to be, and leaves the group, within a deadline.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.codec.columns import Columns
from ottla.codec.records import Record, Records
from ottla.errors import LocalProtocolError
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.arguments import by_place, listed, seconds
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.committing import Claim
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.fetcher import Fetched, Fetcher, Start
from ottla.sdk.consume.options import ConsumerOptions
from ottla.sdk.consume.places import Where, start_at
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.logs import logger
from ottla.sdk.steps import Outside, Steps

T = TypeVar("T")

log = logger("ottla.sdk.consumer")


class RebalanceListener:
    """Called back, between two batches, when partitions come and go; override what you want to know.

    Every method is given the consumer that has the partitions, and may await: a seek, a pause or a commit of it is
    welcome there, and only to ask it for a batch is not. An error ends the loop. A name that is almost that of a method
    you did not write, as Java's ``onPartitionsAssigned``, is refused when the consumer is made.

    Each partition that comes goes once: one call of `revoked` or `lost` names it. It counts as gone from the moment of
    that call, so where yours raises, or is cancelled (by a ``move_on_after`` around the loop, say), what it left undone
    is yours to finish: it is not called again, and no other is. An `assigned` that did not return is called again,
    before any record of its partitions is handed out.
    """

    async def assigned(self, consumer: "Consumer", places: Sequence[TopicPartition]) -> None:
        """These are this consumer's now; their positions are known, and nothing of them was handed out yet."""

    async def revoked(self, consumer: "Consumer", places: Sequence[TopicPartition]) -> None:
        """These are about to be given up: finish and commit; their next owner begins there."""

    async def lost(self, consumer: "Consumer", places: Sequence[TopicPartition]) -> None:
        """These are gone, and somebody else may have them already: commit nothing, undo what is half done."""


class _Listening:
    """A listener, with the consumer that it is given."""

    def __init__(self, listener: RebalanceListener, consumer: "Consumer") -> None:
        self.name = type(listener).__name__
        self.assigned = partial(listener.assigned, consumer)
        self.revoked = partial(listener.revoked, consumer)
        self.lost = partial(listener.lost, consumer)


class ConsumerInterceptor:
    """Sees every batch on its way to the loop, and every offset that the group has taken; override what you want.

    What it raises is logged, and keeps nobody from anything.
    """

    def on_consume(self, batch: "Batch") -> None:
        """``batch`` is about to be handed out. Where this is cut short by Ctrl-C, it is read again."""

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

    def __init__(self, fetched: Fetched, claim: Claim | None, consumer: "Consumer") -> None:
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
        """The records, decoded at the first use.

        Raises:
            DecodeError: a batch is damaged; says which.
            MemoryLimitExceeded: a batch takes more than ``fetch_batch_memory`` of `connect`.
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
            MemoryLimitExceeded: a batch takes more than ``fetch_batch_memory`` of `connect`.
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
        core, batch = self._consumer._core, self._committed_as(metadata)
        self._consumer._driver.do(lambda: core.committer.commit_batch_soon(*batch))

    async def commit(self, metadata: str = "") -> None:
        """As `commit_soon`, and wait until the coordinator has it, and everything asked for before.

        Raises:
            CommitFailed: the partition was lost, or the coordinator refused: these records will be read again.
            TimeoutExpired: no answer within `api_timeout`; says what was tried.
        """
        await self._consumer._driver.run(self._consumer._core.committer.commit_batch(*self._committed_as(metadata)))

    def _committed_as(self, metadata: str) -> tuple[TopicPartition, CommittedOffset, Claim | None]:
        at = CommittedOffset(self.next_offset, self.leader_epoch, metadata)
        return (self.topic, self.partition), at, self._claim

    def __iter__(self) -> Iterator[Record]:
        """The records; each is made when its turn comes, unless `records` has them already."""
        return chain.from_iterable(self._parts) if self._records is None else iter(self._records)

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

    Left normally, the block notifies the listener that everything is revoked (lost, where it is lost already), waits
    until what was asked to be committed is, and leaves the group; within 30 s, and then raises what is not committed.
    What the listener raised is raised after that. Left by an error or a cancellation the block does so for a moment
    only, and notifies the listener that everything is lost; the error then carries a note of what is not committed, and
    is raised even where `lost` raises, too. The batch in hand is not committed by itself. A task that waits for a batch
    while another one leaves the block gets `Closed` at once. A block that is never left ends with its client.
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
        self._driver, self._options, self._fetcher = driver, options, fetcher
        self._assignment, self._listener, self._interceptors = dict(assignment), listener, tuple(interceptors)
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
            raise LocalProtocolError("a consumer is opened once: make another one with client.consumer(...)")
        driver = self._driver
        core = self._opened = driver.do(self._open)
        await driver.run(core.enter(self._assignment, driver.current_task()))
        if core.polls.blocked_after is not None:
            core.ended.when_done(driver.watch(core.polls.blocked_after, core.polls.report_blocked))
        return self

    def _open(self) -> ConsumerCore:
        on_commit = self._on_commit if self._interceptors else None
        listener = _Listening(self._listener, self) if self._listener is not None else None
        core = ConsumerCore(self._driver.core, self._options, self._fetcher(), self._driver, listener, on_commit)
        # Interceptors belong to the call that takes a batch, so that an interrupt finds it taken or not at all.
        if self._driver.core.threaded and not self._interceptors:
            core.read_ahead(self._batch)
        return core

    def _batch(self, fetched: Fetched, claim: Claim | None) -> Batch:
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
        """The next batch of some partition; waits until there is one. The batch before it counts as done.

        Raises:
            OffsetOutOfRange: a position is outside the log, and ``reset`` is ``"error"``.
            FencedInstanceId, GroupAuthorizationFailed, InconsistentGroupProtocol, …: the group refuses this member.
            CommitFailed: a commit that nobody awaited was refused.
            UnknownTopicOrPartition, TopicAuthorizationFailed, DecodeError, …: a partition cannot be read on.
            LocalProtocolError: another task waits for a batch, or a method of the listener asks; in a group also while
                another task has a batch in hand that it has not committed.
        """
        batch = await self._next(None)
        assert batch is not None
        return batch

    async def poll(self, timeout: float) -> Batch | None:
        """As `__anext__`, but ``None`` if there is no batch within ``timeout`` seconds.

        The batch before it counts as done in any case. What a rebalance asks for is done first, however long it takes:
        a listener's methods, and the commit before partitions are given up. Raises as `__anext__`.
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
        """A batch of what is taken; within the call, so that an interrupt finds it taken or not at all."""
        taken = yield from steps
        if taken is None:
            return None
        batch, fetched = self._batch(*taken), taken[0]
        if self._interceptors:
            try:
                yield Outside(partial(self._intercept, batch))
            except BaseException:  # Ctrl-C, say: the batch has not reached the loop
                self._core.put_back(fetched)
                raise
        return batch, fetched  # which an interceptor may have opened

    def _put_back(self, made: tuple[Batch, Fetched] | None) -> None:
        if made is not None:
            self._core.put_back(made[1])

    def _intercept(self, batch: Batch) -> None:
        for each in self._interceptors:
            _guarded(partial(each.on_consume, batch))

    def _on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for each in self._interceptors:
            _guarded(partial(each.on_commit, offsets))

    # -- places ------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        fetcher = self._core.fetcher
        return self._driver.read(lambda: fetcher.assignment)

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that the loop gets from the partition.

        Raises:
            LocalProtocolError: it is not assigned to this consumer: in a group it comes, and goes, while the loop runs;
                or it is being looked up.
        """
        core = self._core
        return self._driver.do(lambda: core.navigation.position((topic, partition)))

    @property
    def lag(self) -> dict[TopicPartition, int | None]:
        """Per partition, how many offsets the loop is behind the end that it may read; ``None`` while unknown."""
        fetcher = self._core.fetcher
        return self._driver.read(lambda: {place: fetcher.lag(place) for place in fetcher.assignment})

    async def seek(self, places: Mapping[TopicPartition, Where]) -> None:
        """Go on elsewhere: ``{("t", 0): "beginning"}``, ``"end"``, a datetime, a timedelta (so long ago) or an offset.

        Returns once the offsets are known. Commits follow, also backwards: a seek says that this is meant. What was to
        be committed before still is, until something newer is. In a group partitions may be lost at any moment: a seek
        in one before the listener is notified of that is dropped with a line in the log.

        Raises:
            Closed: the consumer is, or its client.
            LocalProtocolError: a partition is not assigned to this consumer: in a group it comes while the loop runs,
                and the place to seek is `RebalanceListener.assigned`.
        """
        starts = {place: start_at(where) for place, where in by_place("places", places).items()}
        await self._driver.run(self._core.navigation.seek(starts))

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`; they stay this consumer's.

        A rebalance that revokes a partition forgets that it was paused, also where it comes back; and eager assignors,
        such as the default, revoke all. So in a group pause in `RebalanceListener.assigned`, or use
        ``"cooperative-sticky"``, by which what stays is not touched. One that is lost before the loop, or the listener,
        is notified of that is left out, with a line in the log.

        Raises:
            LocalProtocolError: one is not assigned to this consumer: in a group it comes while the loop runs, and the
                place to pause it is `RebalanceListener.assigned`.
        """
        core = self._core
        asked = listed("places", places)  # here: an iterator may call the consumer
        self._driver.do(lambda: core.navigation.pause(asked))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions; errors as `pause`."""
        core = self._core
        asked = listed("places", places)
        self._driver.do(lambda: core.navigation.resume(asked))

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        fetcher = self._core.fetcher
        return self._driver.read(lambda: fetcher.paused)

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit_soon(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Have the group go on behind every batch handed out so far, the one in hand included; or at ``offsets``.

        Returns at once; see `Batch.commit_soon`: what was lost is dropped, with a line in the log.

        Raises:
            Closed: the block was left, or the client's.
            LocalProtocolError: the consumer has no group, or does not have one of the partitions; or an offset is lower
                than one that was committed already: to go back, seek there first.
        """
        core = self._core
        given = None if offsets is None else by_place("offsets", offsets)
        self._driver.do(lambda: core.committer.commit_soon(given))

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """As `commit_soon`, and wait until the coordinator has it, and everything asked for before.

        Raises:
            CommitFailed: a partition was lost, and batches of it that were handed out are not committed, which is
                raised once, when the others are; or the coordinator refused.
            TimeoutExpired: no answer within `api_timeout`; says what was tried.
        """
        given = None if offsets is None else by_place("offsets", offsets)
        await self._driver.run(self._core.committer.commit(given))

    async def committed(
        self, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Where the group stands, of these partitions or of all that are assigned; ``None``: it never committed.

        Raises:
            LocalProtocolError: the consumer has no group.
            TimeoutExpired: no answer within `api_timeout`.
        """
        asked = None if places is None else listed("places", places)
        return await self._driver.run(self._core.committer.committed(asked))


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # the user's own code, which must not keep records and commits from anybody
        log.exception("an interceptor raised")
