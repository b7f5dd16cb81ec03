# Generated, do not edit: `make faces` writes this file from sdk/share_consumer.py.
"""The face of a share consumer, for blocking code."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.codec.records import Headers
from ottla.errors import LocalProtocolError
from ottla.sdk.arguments import seconds
from ottla.sdk.blocks import BlockingBlock, Suggesting
from ottla.sdk.drivers.threads import ThreadDriver
from ottla.sdk.share.options import ShareConsumerOptions

if TYPE_CHECKING:
    from ottla.sdk.share.core import ShareConsumerCore
    from ottla.sdk.share.locked_record import LockedRecord


class SharedRecord(Suggesting, BlockingBlock):
    """A record that is locked for this consumer; `ShareConsumer` hands it out.

        with record:
            work(record.value)

    When the block ends normally, it accepts the record. An error (Ctrl-C, too) releases the record, and any member
    gets it again. If you acknowledge the record inside the block, the block's end does nothing.

    Attributes:
        topic, partition, offset: where the record comes from.
        timestamp: milliseconds since 1970; -1 if the record has none.
        delivery_count: 1 at the first delivery; after ``group.share.delivery.count.limit`` (5) deliveries the broker
            archives the record.
    """

    __slots__ = ("_consumer", "_locked", "delivery_count", "offset", "partition", "timestamp", "topic")

    def __init__(self, locked: "LockedRecord", consumer: "ShareConsumer") -> None:
        self.topic, self.partition = locked.place
        self.offset, self.timestamp = locked.offset, locked.record.timestamp
        self.delivery_count = locked.delivery_count
        self._locked, self._consumer = locked, consumer

    @property
    def key(self) -> bytes | None:
        """As its producer sent it."""
        return self._locked.record.key

    @property
    def value(self) -> bytes | None:
        """As its producer sent it."""
        return self._locked.record.value

    @property
    def headers(self) -> Headers:
        """Pairs in the producer's order; names may repeat."""
        return self._locked.record.headers

    @property
    def lock_left(self) -> float:
        """Seconds for which the record is surely still locked for this consumer; 0: not any more."""
        core, driver = self._consumer._core, self._consumer._driver
        return core.lock_left(self._locked, driver.now())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None and self._locked.kind is None:
                self.accept()
        finally:
            # Also if a cancellation was pending, and `accept` had no effect.
            if self._locked.kind is None and self.lock_left:
                self.release_soon()

    def accept(self) -> None:
        """The record is processed: no member gets it again. Waits until its leader has stored that.

        Raises:
            AcknowledgementFailed: it does not count, because the lock expired, the leader moved or the connection
                broke; or, if ``outcome_unknown``, it may count. The record is delivered again.
            LocalProtocolError: the record is acknowledged already.
        """
        self._consumer._driver.run(self._consumer._core.accept(self._locked))

    def release(self) -> None:
        """The record is not processed: any member gets it again. Raises as `accept`."""
        self._consumer._driver.run(self._consumer._core.release(self._locked))

    def reject(self) -> None:
        """The record cannot be processed: no member gets it again. Raises as `accept`."""
        self._consumer._driver.run(self._consumer._core.reject(self._locked))

    def renew(self) -> None:
        """Lock the record for as long again, from now on; for work that takes longer than a lock (KIP-1222).

        Raises:
            AcknowledgementFailed: the record is not locked any more, and is delivered again.
            LocalProtocolError: the record is acknowledged already.
            UnsupportedVersion: the broker is older than Kafka 4.2.
        """
        self._consumer._driver.run(self._consumer._core.renew(self._locked))

    def accept_soon(self) -> None:
        """Like `accept`, without waiting: if it fails later, the next call of the consumer raises that.

        Raises:
            AcknowledgementFailed: the record is not locked any more.
            LocalProtocolError: the record is acknowledged already.
        """
        core, locked = self._consumer._core, self._locked
        self._consumer._driver.do(lambda: core.accept_soon(locked))

    def release_soon(self) -> None:
        """Like `release`, without waiting; raises as `accept_soon`."""
        core, locked = self._consumer._core, self._locked
        self._consumer._driver.do(lambda: core.release_soon(locked))

    def reject_soon(self) -> None:
        """Like `reject`, without waiting; raises as `accept_soon`."""
        core, locked = self._consumer._core, self._locked
        self._consumer._driver.do(lambda: core.reject_soon(locked))

    def __repr__(self) -> str:
        return f"<SharedRecord of {self.topic}-{self.partition} at {self.offset}, delivery {self.delivery_count}>"


class ShareConsumer(Suggesting, BlockingBlock):
    """A member of a share group; created by `Client.share_consumer`.

        with client.share_consumer("jobs", group="workers") as jobs:
            for record in jobs:
                with record:
                    work(record.value)

    The members of the group share the records, not the partitions: each record is locked for one of them, which
    acknowledges it. Any number of threads may ask one consumer for records.

    When the block ends normally, it waits for all acknowledgements, releases the records that are not acknowledged, and
    leaves the group. That takes at most 30 s, and raises failed acknowledgements. When an error (Ctrl-C, too) ends the
    block, all this takes only a moment, and the error carries a note about failed acknowledgements. If another thread
    waits for a record when the block ends, it gets `Closed` at once.
    """

    def __init__(self, driver: ThreadDriver, topics: tuple[str, ...], options: ShareConsumerOptions) -> None:
        self._driver, self._topics, self._options = driver, topics, options
        self._opened: ShareConsumerCore | None = None

    @property
    def _core(self) -> "ShareConsumerCore":
        if self._opened is None:
            raise LocalProtocolError(
                "the share consumer was not opened: use it as `with client.share_consumer(...) as consumer`"
            )
        return self._opened

    def __enter__(self) -> Self:
        if self._opened is not None:
            raise LocalProtocolError(
                "a share consumer can be opened only once: create another one with client.share_consumer(...)"
            )
        from ottla.sdk.share.activity_watch import BLOCKED_AFTER  # only here: most clients share no records
        from ottla.sdk.share.core import ShareConsumerCore

        driver = self._driver
        core = self._opened = driver.do(lambda: ShareConsumerCore(driver.core, self._topics, self._options))
        driver.run(core.enter())
        core.ended.when_done(driver.watch(BLOCKED_AFTER, core.watch.report_blocked))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._driver.is_gone(error):
            self._driver.run(self._core.leave(error))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SharedRecord:
        """The next record; waits until there is one.

        Raises:
            AcknowledgementFailed: acknowledgements that no call waited for do not count, or may not.
            UnsupportedVersion: the cluster has no share groups: they need Kafka 4.2 or newer.
            GroupAuthorizationFailed, GroupMaxSizeReached, GroupIdNotFound, …: the group refuses this member.
            TopicAuthorizationFailed, DecodeError, …: a partition cannot be read.
            LocalProtocolError: with ``acknowledge="implicit"``, another thread waits for a record.
        """
        record = self._next(None)
        assert record is not None
        return record

    def poll(self, timeout: float) -> SharedRecord | None:
        """Like `__next__`, but ``None`` if there is no record within ``timeout`` seconds."""
        return self._next(seconds("timeout", timeout))

    def flush(self) -> None:
        """Wait until every acknowledgement so far has a result.

        Raises:
            AcknowledgementFailed: some do not count, or may not; names their records.
            TimeoutExpired: not all have a result within `api_timeout`.
        """
        self._driver.run(self._core.flush())

    def _next(self, timeout: float | None) -> SharedRecord | None:
        core, driver = self._core, self._driver
        locked = driver.run(core.next_record(driver.current_task(), timeout), core.put_back)
        return None if locked is None else SharedRecord(locked, self)
