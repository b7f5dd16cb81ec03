# Generated, do not edit: `make faces` writes this file from sdk/producer.py.
"""The face of a producer, for blocking code."""

import random
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, cast

from ottla.codec.records import Headers
from ottla.errors import Closed, LocalProtocolError, OttlaError
from ottla.sdk.blocks import BlockingBlock, ProducerNames, TransactionNames
from ottla.sdk.drivers.threads import ThreadDriver
from ottla.sdk.produce.append import AppendFastPath, BlockingSendSoon
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import named
from ottla.sdk.produce.records import (
    AwaitedReceipt,
    DeliveryCallback,
    K,
    PendingRecord,
    Receipt,
    Timestamp,
    V,
)
from ottla.sdk.producer import ProducerHooks
from ottla.sdk.sync.consumer import Batch

if TYPE_CHECKING:
    from ottla.sdk.transaction.core import TransactionCore


_MANY = 2**14


class Unopened:
    """Placeholder until a producer is opened."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed("the producer was never opened: use it as `with client.producer(...) as producer`")


class Transaction(TransactionNames, BlockingBlock, BlockingSendSoon[K, V], Generic[K, V]):
    """Records that are stored all together or not at all; created by `Producer.transaction`, used as
    ``with producer.transaction() as txn``.

    Raises:
        TransactionAborted: at the end of the block, if a record failed: readers of committed records see nothing of the
            transaction.
        TransactionOutcomeUnknown: the coordinator did not say in time whether it is committed.
        ProducerFenced: there is a newer producer with this transactional id, or, with brokers before Kafka 4.0, the
            transaction took longer than ``transaction_timeout``; says which, and the coordinator's current epoch.
        TimeoutExpired: the transaction could not begin.
    """

    def __init__(self, producer: "Producer[K, V]", driver: ThreadDriver, core: "TransactionCore") -> None:
        self._producer, self._driver, self._core = producer, driver, core

    def __enter__(self) -> Self:
        try:
            self._driver.refuse_within_callback()  # the end of the block waits for callbacks
            self._driver.run(self._core.begin(), lambda _: self._core.undo())
            producer = self._producer
            # Records of an open transaction need the same checks as all of its producer's. So the fast path skips the
            # producer's `send_soon`, unless a subclass or a tracer has replaced it: those expect every record.
            if producer._preparation.plain and type(producer).send_soon is BlockingSendSoon.send_soon:
                self._open_fast_path(producer._appends, time.time_ns)
            return self
        except BaseException as error:
            if not isinstance(error, OttlaError):  # an OttlaError means that it has not begun
                self._undo()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._close_fast_path()
            if not self._driver.is_gone(error):
                self._driver.run(self._core.leave(error))
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        """Abort the transaction if it is open: Ctrl-C came between two lines, and no block will end it."""
        with suppress(Closed):
            self._driver.do(self._core.undo)

    @property
    def committed(self) -> bool | None:
        """Whether it is committed; ``None`` if that is not known yet. Inside the block it is not."""
        return self._core.committed

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
    ) -> Receipt:
        """Like `Producer.send`. It waits until the record is stored; readers see it after the commit."""
        self._core.check()
        return self._producer.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)

    def _send_soon(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        headers: Headers,
        timestamp: Timestamp | None,
        on_delivery: DeliveryCallback | None,
    ) -> None:
        """Accept a record that the fast path of `send_soon` has left."""
        self._core.check()
        self._producer.send_soon(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp=timestamp,
            on_delivery=on_delivery,
        )

    def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Like `Producer.send_many`."""
        self._core.check()
        self._producer.send_many(topic, values, keys=keys, timestamp=timestamp, on_delivery=on_delivery)

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
        """Like `Producer.send_nowait`."""
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
        """Commit the offsets after these batches, for their groups, if and only if the transaction commits.

        Returns at once: the offsets are sent when the transaction commits, together with the group's generation and the
        member's id (KIP-447), so that a member that has lost its partitions cannot commit. The highest
        offset of each partition counts; after a seek, the newest. Until the transaction has ended, all other commits of
        these partitions are refused, of the consumer and of other transactions. Needs Kafka 2.5.

        Args:
            batches: of consumers of the same client, which have a group and no ``auto_commit``. After an abort they are
                not handed out again automatically: seek, or use `Client.transform`, which does.
            metadata: as in `Batch.commit_soon`.

        Raises:
            TransactionAborted: a partition was lost, so its next owner reads the batch again: nothing of this
                transaction can be committed. If the coordinator refuses, the end of the block raises it.
            LocalProtocolError: a consumer has no group, belongs to another client, or has ``auto_commit``; a later
                offset of a partition is committed; or another transaction commits one. Nothing is added then.
        """
        from ottla.sdk.transaction.core import BatchOffset  # only here: most producers have no transactions

        offsets = list[BatchOffset]()
        for batch in batches:
            if not isinstance(batch, Batch):
                takes = "commit_offsets takes batches of a consumer, as in commit_offsets(batch, another)"
                raise LocalProtocolError(f"{takes}, not {batch!r:.80}")
            offsets.append(BatchOffset(batch._consumer._core.committer, *batch._committed_as(metadata)))
        self._driver.do(partial(self._core.commit_offsets, offsets))


class Producer(ProducerNames, BlockingBlock, BlockingSendSoon[K, V], Generic[K, V]):
    """Sends records; created by `Client.producer`, used as ``with client.producer() as producer``.

    Leaving the block flushes. A failure that neither a caller nor a callback received is never silent: the next `send`,
    `send_soon`, `send_nowait`, `flush`, or the end of the block raises `DeliveryFailed`. If the block ends by an error,
    such as Ctrl-C, the producer flushes for a moment; undelivered records are logged, and noted on the error.
    """

    def __init__(
        self,
        driver: ThreadDriver,
        options: ProducerOptions,
        rng: random.Random,
        hooks: ProducerHooks[K, V],
    ) -> None:
        named(options.partitioner, rng)  # refuse an unknown name now, and not only when the producer is opened
        self._driver = driver
        # Only here: clients that only read need no producer's machines.
        from ottla.sdk.produce.core import ProducerCore
        from ottla.sdk.produce.preparation import Preparation

        self._make = partial(ProducerCore, driver.core, options, rng)
        self._prepare = partial(
            Preparation,
            clock=time.time_ns,
            key_serializer=hooks.key_serializer,
            value_serializer=hooks.value_serializer,
            interceptors=tuple(hooks.interceptors),
        )
        self._preparation: Preparation = cast(Preparation, Unopened())
        self._core: ProducerCore = cast(ProducerCore, Unopened())
        self._appends: AppendFastPath = cast(AppendFastPath, Unopened())

    def __enter__(self) -> Self:
        if not isinstance(self._core, Unopened):
            raise LocalProtocolError("a producer can be opened only once: create another one with client.producer(...)")
        core = self._core = self._driver.do(self._make)
        self._appends = core.appends
        self._preparation = self._prepare(core.placing, core.appends.check)
        if self._preparation.plain:
            self._open_fast_path(core.appends, time.time_ns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._driver.is_gone(error):
            self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        self._driver.refuse_within_callback()
        self._driver.run(self._core.leave(error))

    def close(self) -> None:
        """Flush and close; within `delivery_timeout`, or twice that if records arrive meanwhile.

        Records that callbacks send meanwhile are flushed as well, and so are records from their callbacks: up to a
        hundred links of such a chain, for `delivery_timeout` at most. After that records are refused.

        Raises:
            DeliveryFailed: records were not stored.
        """
        self._leave(None)

    def send(
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

        If interrupted before the record is accepted, the record is not sent. If interrupted after that, delivery goes
        on in the background, and if it fails the next call or the end of the block raises `DeliveryFailed`.

        Args:
            value: ``None`` is a tombstone.
            key: decides the partition, unless ``partition`` is given; without either the producer chooses.
            timestamp: milliseconds since 1970, or a datetime with a zone; now by default.

        Returns:
            Where it was stored.

        Raises:
            DeliveryTimeout: not acknowledged within `delivery_timeout`; it says whether the record may be in the log.
            RecordTooLarge, EncodeError, UnknownTopicOrPartition, MessageTooLarge, …: the record was refused, and why.
        """
        core, driver, preparation = self._core, self._driver, self._preparation
        driver.refuse_within_callback()
        transaction = core.transaction
        if preparation.plain and partition is None and timestamp is None and headers == ():
            awaited, aim = AwaitedReceipt(), (topic, -1)
            try:
                if driver.may_append() and self._appends.append(
                    topic, value, key, time.time_ns() // 1_000_000, awaited, True
                ):
                    return driver.receive(core, awaited, aim)
            except BaseException as raised:
                if raised is not awaited.error:  # a cancellation: delivery goes on
                    driver.unwind(partial(core.abandon, awaited, aim))
                raise
        record = preparation.record(topic, value, key, partition, headers, timestamp, None, transaction)
        return driver.run(core.send(record))

    def _send_soon(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        headers: Headers,
        timestamp: Timestamp | None,
        on_delivery: DeliveryCallback | None,
    ) -> None:
        """Accept a record that the fast path of `send_soon` has left."""
        core = self._core
        prepare, transaction = self._preparation.record, core.transaction
        record = prepare(topic, value, key, partition, headers, timestamp, on_delivery, transaction)
        self._driver.run(core.send_soon(record))

    def send_many(
        self,
        topic: str,
        values: Iterable[V | None],
        *,
        keys: Iterable[K | None] | None = None,
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Accept many records, in order, waiting for space if needed: a loop around `send_soon`, but faster.

        If an error is raised, or the call is interrupted, records that were accepted before stay accepted.

        Args:
            keys: as many as ``values``.
            timestamp: of all of them.

        Raises:
            ValueError: the numbers of keys and values differ; with iterators, the records before that are accepted.
            DeliveryFailed, DeliveryTimeout, RecordTooLarge, EncodeError: as in `send_soon`.
        """
        core, preparation = self._core, self._preparation
        if isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
            raise ValueError(f"{len(values)} values and {len(keys)} keys: give each value a key, or leave out keys")
        pairs: Iterator[Any] = zip(values, repeat(None)) if keys is None else zip(values, keys, strict=True)
        if (transaction := core.transaction) is not None:
            pairs = core.within(transaction, pairs)
        append_many = self._appends.append_many if preparation.plain else lambda topic, pairs, *_: next(pairs, None)

        def take() -> Any:
            return append_many(topic, pairs, preparation.stamp(timestamp), on_delivery, _MANY)

        def make(value: Any, key: Any) -> PendingRecord:
            return preparation.record(topic, value, key, None, (), timestamp, on_delivery, transaction)

        self._driver.send_many(core, take, make)

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
        """Accept a record at once; arguments and errors as in `send_soon`.

        It never overtakes a `send_soon`, `send` or `send_many` that waits for space in another thread. If records of
        several threads have to keep their order, send them all by calls that wait.

        Raises:
            BufferFull: there is no space, or other records wait for it.
        """
        core, preparation, transaction = self._core, self._preparation, self._core.transaction
        plain = preparation.plain and partition is None and timestamp is None and headers == ()
        if plain and self._appends.append(topic, value, key, time.time_ns() // 1_000_000, on_delivery):
            return
        record = preparation.record(topic, value, key, partition, headers, timestamp, on_delivery, transaction)
        self._driver.do(lambda: core.send_nowait(record))

    def transaction(self) -> Transaction[K, V]:
        """A transaction; use it as ``with producer.transaction() as txn``, one after the other.

        Raises:
            LocalProtocolError: the producer was created without ``transactional_id``.
        """
        from ottla.sdk.transaction.core import TransactionCore  # only here: most producers have no transactions

        return Transaction(self, self._driver, TransactionCore(self._driver.core, self._core))

    def flush(self) -> None:
        """Send lingering batches, and wait until every record accepted so far is stored; within `delivery_timeout`.

        Raises:
            DeliveryFailed: some records were not stored.
            TimeoutExpired: in blocking code, a callback has not returned within `delivery_timeout`.
        """
        self._driver.refuse_within_callback()
        self._driver.run(self._core.flush())
