"""The face of a transaction, the same for all loops.

    async with client.producer(transactional_id="billing-1") as producer:
        async with producer.transaction() as txn:
            await txn.send_soon("debits", b"...", key=b"alice")
            await txn.send_soon("credits", b"...", key=b"bob")

The end of the block commits: readers with ``isolation="read_committed"`` see both records, or neither. Left by an error
or a cancellation, it aborts.

Rule: everything is decided by `ottla.sdk.transaction.core.TransactionCore`.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from ottla.codec.records import Headers
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.produce.records import DeliveryCallback, Receipt, Timestamp
from ottla.sdk.transaction.core import TransactionCore

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ottla.sdk.producer import Producer

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")


class Transaction(Generic[K, V]):
    """Records that are stored all together or not at all; made by `Producer.transaction`, used as
    ``async with producer.transaction() as txn``.

    Raises:
        TransactionAborted: at the end of the block, if a record failed: nothing of the transaction is there for those
            that read committed records.
        TransactionOutcomeUnknown: the coordinator did not say in time whether it is committed.
        ProducerFenced: another producer with this transactional id has come.
        TimeoutExpired: the transaction could not begin.
    """

    def __init__(self, producer: "Producer[K, V]", driver: Driver[Any], core: TransactionCore) -> None:
        self._producer, self._driver, self._core = producer, driver, core

    async def __aenter__(self) -> Self:
        await self._driver.run(self._core.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._driver.is_gone(error):
            await self._driver.run(self._core.leave(error))

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
