"""Consume, transform, produce: the results of each record are stored exactly once. The face of `TransformCore`.

    async with client.transform("orders", group="billing", transactional_id="billing-1") as transform:
        async for batches in transform:
            async with transform.transaction(batches) as txn:
                for record in batches:
                    await txn.send_soon("invoices", invoice(record.value), key=record.key)

Each turn of the loop is a transaction: the records sent in it, and the offsets after the batches that it processes, are
committed together or not at all. Batches that were not committed are read again.

Rules:
- All decisions are in `ottla.sdk.transaction.transform.TransformCore`, whose rules explain retries.
- Exactly once holds for readers of the output topics with ``isolation="read_committed"``. Any other effect of the block
  (a mail, a row in a database) is repeated with each retry.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from ottla.codec.records import Record
from ottla.errors import LocalProtocolError
from ottla.sdk.arguments import seconds
from ottla.sdk.blocks import AsyncBlock, Suggesting
from ottla.sdk.consume.core import Taken
from ottla.sdk.consumer import Batch, Consumer, counted
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.produce.records import K, V
from ottla.sdk.producer import Producer, Transaction, Unopened
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.options import TransformOptions

if TYPE_CHECKING:
    from ottla.sdk.transaction.transform import TransformCore, TransformTransactionCore

__all__ = ["Batches", "Transform", "TransformTransaction"]


class Batches:
    """The batches that one transaction processes, of one partition or several. Iterate over their records.

    Attributes:
        batches: each of one partition, with `Batch.columns` and its other attributes; a partition may have several, in
            order. Do not call their ``commit``: the offsets are part of the transaction.
    """

    __slots__ = ("_taken", "batches")

    def __init__(self, taken: Sequence[Taken], consumer: Consumer) -> None:
        self._taken = taken
        self.batches = tuple(Batch(fetched, claim, consumer) for fetched, claim in taken)

    def __iter__(self) -> Iterator[Record]:
        """The records, partition by partition, as fetched; each is created when the iteration reaches it.

        Raises:
            DecodeError: a batch is damaged; names it.
        """
        return chain.from_iterable(self.batches)

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __repr__(self) -> str:
        places = ", ".join(f"{each.topic}-{each.partition}" for each in self.batches)
        return f"<Batches: {places}, {counted(self.batches)}>"


class TransformTransaction(Transaction[K, V]):
    """A transaction about the batches of a transform's loop; created by `Transform.transaction`.

    The end of the block commits, with the offsets; if it ends by an error or a cancellation, it aborts. A transient
    error (the broker was away, a record was not delivered in time, partitions were lost) ends the block without being
    raised: the loop returns the same records again, or their next owner reads them. `committed` tells the two apart.
    All other errors are raised; if you catch one and continue, the records are read again, too.

    Raises:
        TransactionAborted: the error is not transient (a record was too large, say), or ``attempts`` are used up.
        TransactionOutcomeUnknown: the coordinator did not say in time whether it is committed. Ask for the next
            batches, and the loop continues from the group's committed offsets as soon as the outcome is known.
        ProducerFenced: there is a newer producer with this transactional id: this one has to end.
    """

    _core: "TransformTransactionCore"

    async def __aexit__(  # type: ignore[override] # the base class raises all errors, and returns None
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            self._close_fast_path()
            return False if self._driver.is_gone(error) else await self._driver.run(self._core.end(error))
        except BaseException:
            self._undo()
            raise


class Transform(Suggesting, AsyncBlock, Generic[K, V]):
    """Reads batches as a member of a group, and commits the records sent for them together with their offsets.

    Created by `Client.transform`, used as ``async with client.transform(...) as transform``. Leaving the block leaves
    the group; batches that were not committed go to the next owner of their partitions.
    """

    def __init__(
        self, driver: Driver[Any], consumer: Consumer, producer: Producer[K, V], options: TransformOptions
    ) -> None:
        self._driver, self._consumer, self._producer, self._options = driver, consumer, producer, options
        self._opened: TransformCore | None = None

    @property
    def _core(self) -> "TransformCore":
        if self._opened is None:
            raise LocalProtocolError(
                "the transform was not opened: use it as `async with client.transform(...) as transform`"
            )
        return self._opened

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise LocalProtocolError("a transform can be opened only once: create another with client.transform(...)")
        from ottla.sdk.transaction.transform import TransformCore  # only here: most clients transform nothing

        driver = self._driver
        try:
            producer = await self._producer.__aenter__()
            consumer = await self._consumer.__aenter__()
            self._opened = driver.do(lambda: TransformCore(driver.core, consumer._core, producer._core, self._options))
        except BaseException as error:  # a cancellation included, wherever it comes
            await self._undo(error)
            raise
        return self

    async def _undo(self, error: BaseException) -> None:
        """Leave the opened blocks: otherwise the member would keep its partitions and read nothing."""
        consumer, producer = self._consumer, self._producer
        try:
            if consumer._opened is not None and not consumer._opened.closed:
                await consumer.__aexit__(type(error), error, error.__traceback__)
        finally:
            if not isinstance(producer._core, Unopened):
                await producer.__aexit__(type(error), error, error.__traceback__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._consumer.__aexit__(kind, error, traceback)
        finally:
            await self._producer.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batches:
        """The batches for the next transaction; waits until there are some, and a transaction can begin.

        Raises:
            LocalProtocolError: the previous batches were not part of a transaction, or that is still open.
            OttlaError: as in `Consumer.__anext__`; or the producer can never send again, such as `ProducerFenced`.
        """
        core = self._core
        return await self._driver.run(self._made(core.next(self._driver.current_task())), lambda _: core.give_back())

    async def poll(self, timeout: float) -> Batches | None:
        """Like `__anext__`, but ``None`` if no batch comes within ``timeout`` seconds once a transaction can begin."""
        core, within = self._core, seconds("timeout", timeout)
        steps = self._made(core.next(self._driver.current_task(), within))
        batches = await self._driver.run(steps, lambda _: core.give_back())
        return batches if batches.batches else None

    def _made(self, steps: Steps[Sequence[Taken]]) -> Steps[Batches]:
        taken = yield from steps
        return Batches(taken, self._consumer)

    def transaction(self, batches: Batches) -> TransformTransaction[K, V]:
        """A transaction about ``batches``, the last ones from the loop: ``async with transform.transaction(...)``.

        An empty block skips them.

        Raises:
            LocalProtocolError: they are not the last ones, or were part of a transaction already.
        """
        if not isinstance(batches, Batches):
            raise LocalProtocolError(f"a transaction takes the batches from the loop, not {batches!r:.80}")
        core = self._core
        transaction = self._driver.do(lambda: core.transaction(batches._taken))
        return TransformTransaction(self._producer, self._driver, transaction)

    @property
    def consumer(self) -> Consumer:
        """The transform's consumer: its ``assignment``, ``lag``, ``position``.

        The transform takes its batches, and transactions commit its offsets: here both are refused, also in a listener.
        """
        return self._consumer
