"""The face of a producer, the same for all loops.

Three ways to send, which differ in what they wait for:

    receipt = await producer.send("orders", b"...")        # until it is stored; raises why it was not
    await producer.send_soon("orders", b"...")             # for room only; many at once: send_many
    producer.send_nowait("orders", b"...")                 # for nothing; BufferFull where there is no room

The latter take ``on_delivery``, which is called with the `Receipt` or the error. Without it, what fails is raised by
the next call, by `flush`, or at the end of the block: never silently gone.

With a transactional id it sends within transactions, of which readers with ``isolation="read_committed"`` see all or
nothing. The end of the block commits; left by an error or a cancellation, it aborts:

    async with client.producer(transactional_id="billing-1") as producer:
        async with producer.transaction() as txn:
            await txn.send_soon("debits", b"...", key=b"alice")
            await txn.send_soon("credits", b"...", key=b"bob")

Rules:
- Everything is decided by `ottla.sdk.produce.core.ProducerCore`, whose rules say what a cancellation means, and
  `ottla.sdk.transaction.core.TransactionCore`.
- ``on_delivery`` and interceptors are called in the loop's thread, and may call anything, this producer too; but they
  must not block. An error of ``on_delivery`` is logged and raised by the next call; one of an interceptor is only
  logged, as in Java. `flush` and the end of the block return after the callbacks of what they waited for.
- Serializers, `on_send` and a partitioner of your own run in the call that sends.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, cast

from ottla.codec.append import AppendFastPath, SendFastPath
from ottla.codec.records import Headers
from ottla.errors import Closed, LocalProtocolError, OttlaError
from ottla.sdk.consumer import Batch
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import named
from ottla.sdk.produce.prepare import Preparation
from ottla.sdk.produce.records import (
    DeliveryCallback,
    PendingRecord,
    ProducerInterceptor,
    ProducerRecord,
    Receipt,
    Timestamp,
)
from ottla.sdk.transaction.core import TransactionCore

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

__all__ = ["Producer", "ProducerInterceptor", "ProducerRecord", "Timestamp", "Transaction"]

_MANY = 256
"""Records of `send_many` between two looks at the clock."""


class Unopened:
    """Stands where a producer's core will be."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed("the producer was never opened: use it as `async with client.producer(...) as producer`")


class Transaction(Generic[K, V]):
    """Records that are stored all together or not at all; made by `Producer.transaction`, used as
    ``async with producer.transaction() as txn``.

    Raises:
        TransactionAborted: at the end of the block, if a record failed: nothing of the transaction is there for those
            that read committed records.
        TransactionOutcomeUnknown: the coordinator did not say in time whether it is committed.
        ProducerFenced: another producer with this transactional id has come, or, with brokers before Kafka 4.0, the
            transaction took longer than ``transaction_timeout``; says which, and what the coordinator has.
        TimeoutExpired: the transaction could not begin.
    """

    def __init__(self, producer: "Producer[K, V]", driver: Driver[Any], core: TransactionCore) -> None:
        self._producer, self._driver, self._core = producer, driver, core
        self._fast: SendFastPath | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._driver.run(self._core.begin(), lambda _: self._core.undo())
            if "send_soon" in vars(self._producer):  # nor is there more to see to within a transaction
                again = Transaction.send_soon.__get__(self)
                fast = self._fast = SendFastPath(self._producer._appends, again, time.time_ns)
                self.send_soon = fast.send_soon  # type: ignore[method-assign] # as the producer's
            return self
        except BaseException as error:
            if not isinstance(error, OttlaError):  # of which one says that it has not begun
                self._undo()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._close()
            if not self._driver.is_gone(error):
                await self._driver.run(self._core.leave(error))
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        """Abort it if it is open: Ctrl-C has come between two lines, and no block ends it any more."""
        with suppress(Closed):
            self._driver.do(self._core.undo)

    def _close(self) -> None:
        """What is sent from now on is looked at first."""
        if self._fast is not None:
            self._fast.close()
            vars(self).pop("send_soon", None)  # with the circle that it makes

    @property
    def committed(self) -> bool | None:
        """Whether it is; ``None`` if nobody knows that yet. While the block goes on it is not."""
        return self._core.committed

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
    ) -> Receipt:
        """As `Producer.send`. What it waits for is that the record is stored; others see it after the commit."""
        self._core.check()
        return await self._producer.send(
            topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
        )

    async def send_soon(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """As `Producer.send_soon`; a record that fails later is raised by the end of the block."""
        self._core.check()
        await self._producer.send_soon(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp=timestamp,
            on_delivery=on_delivery,
        )

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """As `Producer.send_many`."""
        self._core.check()
        await self._producer.send_many(topic, values, keys=keys, timestamp=timestamp, on_delivery=on_delivery)

    def send_nowait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """As `Producer.send_nowait`."""
        self._core.check()
        self._producer.send_nowait(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp=timestamp,
            on_delivery=on_delivery,
        )

    def commit_offsets(self, *batches: Batch, metadata: str = "") -> None:
        """Have the groups of these batches go on behind them if the transaction commits, and only then.

        Returns at once: the offsets are sent when the transaction commits, together with the group's generation and the
        member's id (KIP-447), so that a member that has lost its partitions cannot commit. Of each partition the
        highest counts. Needs Kafka 2.5.

        Args:
            batches: of consumers of the same client, which have a group and no ``auto_commit``. After an abort they are
                not handed out once more by themselves: seek, or use `Client.transform`, which does.
            metadata: as in `Batch.commit_soon`.

        Raises:
            TransactionAborted: a partition was lost, so its next owner reads the batch again: nothing of this
                transaction can be committed. At the end of the block for what the coordinator refuses.
            LocalProtocolError: a consumer has no group, is another client's, or commits by itself.
        """
        for batch in batches:
            if not isinstance(batch, Batch):
                takes = "commit_offsets takes batches of a consumer, as in commit_offsets(batch, another)"
                raise LocalProtocolError(f"{takes}, not {batch!r:.80}")
            place, at, claim = batch._committed_as(metadata)
            committer = batch._consumer._core.committer
            self._driver.do(partial(self._core.commit_offsets, committer, place, at, claim))


class Producer(Generic[K, V]):
    """Sends records; made by `Client.producer`, used as ``async with client.producer() as producer``.

    Leaving the block flushes. A failure of which no caller or callback was notified is never silent: the next `send`,
    `send_soon`, `send_nowait`, `flush`, or the end of the block raises `DeliveryFailed`. Left by an error or a
    cancellation, the producer flushes for a moment; what was not delivered is logged, and noted on the error.
    """

    def __init__(
        self,
        driver: Driver[Any],
        options: ProducerOptions,
        rng: random.Random,
        *,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        named(options.partitioner, rng)  # refused now, and not only when it is opened
        self._driver = driver
        self._make = partial(ProducerCore, driver.core, options, rng)
        self._prepare = partial(
            Preparation,
            clock=time.time_ns,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
        )
        self._preparation: Preparation = cast(Preparation, Unopened())
        self._core: ProducerCore = cast(ProducerCore, Unopened())
        self._appends: AppendFastPath = cast(AppendFastPath, Unopened())

    async def __aenter__(self) -> Self:
        if not isinstance(self._core, Unopened):
            raise LocalProtocolError("a producer is opened once: make another one with client.producer(...)")
        core = self._core = self._driver.do(self._make)
        self._appends = core.appends
        self._preparation = self._prepare(core.placing, core.appends.check)
        if self._preparation.plain and type(self).send_soon is _SEND_SOON:  # and nobody put something before it
            fast = SendFastPath(self._appends, _SEND_SOON.__get__(self), time.time_ns)
            self.send_soon = fast.send_soon  # type: ignore[method-assign] # which is the point
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._driver.is_gone(error):
            return
        try:
            await self._driver.run(self._core.leave(error))
        finally:
            vars(self).pop("send_soon", None)  # with the circle that it makes

    async def aclose(self) -> None:
        """Flush, and be done; within `delivery_timeout`, or twice that where records come in meanwhile.

        What callbacks send meanwhile is flushed as well, and what the callbacks of that send: up to a hundred links of
        such a chain, for `delivery_timeout` at most. Then records are refused.

        Raises:
            DeliveryFailed: records were not stored.
        """
        try:
            await self._driver.run(self._core.aclose())
        finally:
            vars(self).pop("send_soon", None)

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
    ) -> Receipt:
        """Send a record and wait until it is stored.

        Cancelled before the record is accepted, it is not sent; after that delivery goes on without you, and if it
        fails the next call or the end of the block raises `DeliveryFailed`.

        Args:
            value: ``None`` is a tombstone.
            key: decides the partition, unless ``partition`` is given; without either the producer chooses.
            timestamp: milliseconds since 1970, or a datetime with a zone; now by default.

        Returns:
            Where it was stored.

        Raises:
            DeliveryTimeout: not acknowledged within `delivery_timeout`; it says whether it may be in the log.
            RecordTooLarge, EncodeError, UnknownTopicOrPartition, MessageTooLarge, …: it was refused, and why.
        """
        core = self._core
        record = self._preparation.record(topic, value, key, partition, headers, timestamp)
        return await self._driver.run(core.send(record))

    async def send_soon(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Accept a record, waiting only for room in the buffer; arguments as `send`.

        A record for which there is room may be accepted by the call already. Await it in any case: nothing is sent
        while your task never waits.

        Records of `send`, `send_soon` and `send_many` are accepted in the order of the calls, from whichever tasks.
        Only `send_nowait` may overtake calls of other tasks, because it cannot wait as they do.

        Args:
            on_delivery: is called with the `Receipt` or the error, so nothing is raised later.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            DeliveryTimeout: there was no room within `delivery_timeout`.
            RecordTooLarge, EncodeError: this one was refused.
            ConfigurationError: ``on_delivery`` cannot be called, or would have to be awaited.
        """
        core = self._core
        record = self._preparation.record(topic, value, key, partition, headers, timestamp, on_delivery)
        await self._driver.run(core.send_soon(record))

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Accept many records, in order, waiting for room where there is none: a loop around `send_soon`, but faster.

        What is accepted when an error is raised, or the call is cancelled, stays so.

        Args:
            keys: as many as ``values``.
            timestamp: of all of them.

        Raises:
            ValueError: there are not as many keys as values; of iterators the records up to there are accepted.
            DeliveryFailed, DeliveryTimeout, RecordTooLarge, EncodeError: as `send_soon`.
        """
        core, preparation = self._core, self._preparation
        if isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
            raise ValueError(f"{len(values)} values and {len(keys)} keys")
        pairs: Iterator[Any] = zip(values, repeat(None)) if keys is None else zip(values, keys, strict=True)
        append_many = self._appends.append_many if preparation.plain else lambda topic, pairs, *_: next(pairs, None)

        def take() -> Any:
            return append_many(topic, pairs, preparation.stamp(timestamp), on_delivery, _MANY)

        def make(value: Any, key: Any) -> PendingRecord:
            return preparation.record(topic, value, key, None, (), timestamp, on_delivery)

        await self._driver.send_many(core, take, make)

    def send_nowait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Accept a record at once; arguments and errors as `send_soon`.

        A `send_soon`, `send` or `send_many` that another task called before may be waiting only to let other tasks run:
        this record is accepted before theirs. It never overtakes one that waits for room. If records of several tasks
        have to keep their order, send them all by calls that wait.

        Raises:
            BufferFull: there is no room, or others wait for it; nothing is sent while your task does not await
                something.
        """
        core, preparation = self._core, self._preparation
        plain = preparation.plain and partition is None and timestamp is None and headers == ()
        if plain and self._appends.append(topic, value, key, time.time_ns() // 1_000_000, on_delivery):
            return
        record = preparation.record(topic, value, key, partition, headers, timestamp, on_delivery)
        self._driver.do(lambda: core.send_nowait(record))

    def transaction(self) -> Transaction[K, V]:
        """A transaction; use it as ``async with producer.transaction() as txn``, one after the other.

        Raises:
            LocalProtocolError: the producer was made without ``transactional_id``.
        """
        return Transaction(self, self._driver, TransactionCore(self._driver.core, self._core))

    async def flush(self) -> None:
        """Send what lingers, and wait until every record accepted so far is stored; within `delivery_timeout`.

        Raises:
            DeliveryFailed: some were not.
        """
        await self._driver.run(self._core.flush())


_SEND_SOON = Producer.send_soon
