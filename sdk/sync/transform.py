"""Consume, transform, produce, for code that blocks.

Made of `ottla.sdk.transform` by tests/sdk/faces.py: change it there.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Generic, Self

from ottla.codec.records import Record
from ottla.errors import LocalProtocolError
from ottla.sdk.arguments import seconds
from ottla.sdk.consume.core import Taken
from ottla.sdk.drivers.threads import ThreadDriver
from ottla.sdk.producer import K, V
from ottla.sdk.steps import Steps
from ottla.sdk.sync.consumer import Batch, Consumer
from ottla.sdk.sync.producer import Producer, Transaction
from ottla.sdk.transaction.transform import TransformCore, TransformOptions, TransformTransactionCore


class Batches:
    """What one transaction is about: batches of one partition or several, put together. Iterate over their records.

    Attributes:
        batches: each of one partition, with `Batch.columns` and all that it knows; of one partition there may be
            several, one behind the other. Their own ``commit`` is not for here: offsets go with the transaction.
    """

    __slots__ = ("_taken", "batches")

    def __init__(self, taken: Sequence[Taken], consumer: Consumer) -> None:
        self._taken = taken
        self.batches = tuple(Batch(fetched, claim, consumer) for fetched, claim in taken)

    def __iter__(self) -> Iterator[Record]:
        """The records, partition by partition as they came; each is made when its turn comes.

        Raises:
            DecodeError: a batch is damaged; says which.
        """
        return chain.from_iterable(self.batches)

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __repr__(self) -> str:
        return f"<Batches: {', '.join(f'{each.topic}-{each.partition}' for each in self.batches)}, {len(self)} records>"


class TransformTransaction(Transaction[K, V]):
    """A transaction about what a transform's loop has returned; made by `Transform.transaction`.

    The end of the block commits, with the offsets; left by an error or a cancellation, it aborts. An error that may
    pass (the broker was away, a record was not delivered in time, partitions were lost) ends the block without being
    raised: the loop returns the same records again, or their next owner reads them. `committed` says which it was.
    All else is raised, and if you catch it and go on, the records come again, too.

    Raises:
        TransactionAborted: an error that does not pass (a record was too large, say), or passed too late:
            ``attempts`` are used up.
        TransactionOutcomeUnknown: the coordinator did not say in time whether it is committed. Ask for the next
            batches, and the loop goes on from where the group stands as soon as that is known.
        ProducerFenced: another producer with this transactional id has come: this one has to end.
    """

    _core: TransformTransactionCore

    def __exit__(  # type: ignore[override] # of which the base raises all errors
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            self._close()
            return False if self._driver.is_gone(error) else self._driver.run(self._core.end(error))
        except BaseException:
            self._undo()
            raise


class Transform(Generic[K, V]):
    """Reads batches as a member of a group, and commits what is made of them together with how far they are read.

    Made by `Client.transform`, used as ``with client.transform(...) as transform``. Leaving the block leaves the
    group, and what was not committed is read by the next owner of its partitions.
    """

    def __init__(
        self, driver: ThreadDriver, consumer: Consumer, producer: Producer[K, V], options: TransformOptions
    ) -> None:
        self._driver, self._consumer, self._producer, self._options = driver, consumer, producer, options
        self._opened: TransformCore | None = None

    @property
    def _core(self) -> TransformCore:
        if self._opened is None:
            raise LocalProtocolError(
                "the transform was not opened: use it as `with client.transform(...) as transform`"
            )
        return self._opened

    def __enter__(self) -> Self:
        if self._opened is not None:
            raise LocalProtocolError("a transform is opened once: make another one with client.transform(...)")
        driver, producer = self._driver, self._producer.__enter__()
        try:
            consumer = self._consumer.__enter__()
        except BaseException as error:  # a cancellation included
            self._producer.__exit__(type(error), error, error.__traceback__)
            raise
        self._opened = driver.do(lambda: TransformCore(driver.core, consumer._core, producer._core, self._options))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._consumer.__exit__(kind, error, traceback)
        finally:
            self._producer.__exit__(kind, error, traceback)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batches:
        """What the next transaction is to be about; waits until there is something, and a transaction can begin.

        Raises:
            LocalProtocolError: what was returned before was not part of a transaction, or that is still open.
            OttlaError: as `Consumer.__next__`; or the producer can never send again, such as `ProducerFenced`.
        """
        core = self._core
        return self._driver.run(self._made(core.next(self._driver.current_task())), lambda _: core.give_back())

    def poll(self, timeout: float) -> Batches | None:
        """As `__next__`, but ``None`` if there is nothing within ``timeout`` seconds, once a transaction can begin."""
        core, within = self._core, seconds("timeout", timeout)
        steps = self._made(core.next(self._driver.current_task(), within))
        batches = self._driver.run(steps, lambda _: core.give_back())
        return batches if batches.batches else None

    def _made(self, steps: Steps[Sequence[Taken]]) -> Steps[Batches]:
        taken = yield from steps
        return Batches(taken, self._consumer)

    def transaction(self, batches: Batches) -> TransformTransaction[K, V]:
        """A transaction about ``batches``, which the loop has returned last: ``with transform.transaction(...)``.

        An empty block passes over them.

        Raises:
            LocalProtocolError: they are not the last, or were part of a transaction already.
        """
        if not isinstance(batches, Batches):
            raise LocalProtocolError(f"a transaction is about what the loop has returned, not {batches!r:.80}")
        core = self._core
        transaction = self._driver.do(lambda: core.transaction(batches._taken))
        return TransformTransaction(self._producer, self._driver, transaction)

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads: its ``assignment``, ``lag``, ``position``.

        Its batches are the transform's, and commits are the transactions': both are refused here, also of a listener.
        """
        return self._consumer
