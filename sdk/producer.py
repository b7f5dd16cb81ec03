"""The trio face of a producer."""

import logging
import random
import time
from types import TracebackType
from typing import Self

import trio

from ottla.codec.records import Headers
from ottla.errors import BufferFull, Closed, DeliveryFailed
from ottla.sdk.drivers.trio import TrioDriver
from ottla.sdk.machines.accumulator import Receipt
from ottla.sdk.machines.outcome import Outcome
from ottla.sdk.machines.producer import Outgoing, ProducerMachine, ProducerOptions

log = logging.getLogger("ottla.sdk.producer")

CLOSE_TIMEOUT = 1.5
"""Seconds for what is on its way when the block is left by an error or a cancellation."""
_BREATH = 100
"""Records between two checkpoints of `send_soon`: a loop around it must not starve the tasks that send."""


class Producer:
    """Sends records; made by `Client.producer`, used as ``async with client.producer() as producer``.

    Leaving the block flushes. A record that failed and that nobody awaited is never silently gone: the next `send`,
    `send_soon`, `send_nowait`, `flush`, or the end of the block raises `DeliveryFailed`. Left by an error or a
    cancellation, the producer flushes for a moment; what was not delivered is logged, and noted on the error.
    """

    def __init__(self, driver: TrioDriver, options: ProducerOptions, rng: random.Random) -> None:
        self._driver = driver
        self._machine = ProducerMachine(driver.core, options, rng)
        self._breath = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        except trio.Cancelled as cancelled:
            error = cancelled
            raise
        finally:
            if error is not None:
                await self._hurry(error)
            self._machine.close(Closed("the producer is closed"))

    async def _hurry(self, error: BaseException) -> None:
        """Give what is on its way a moment, and tell what was not delivered: nothing is lost without a word."""
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._driver.call(self._machine.flush)
        if left := self._machine.pending:
            log.error("records are given up, because the producer was left", extra={"records": left})
            error.add_note(f"{left} record(s) of the producer that was left may not have been stored")
        try:
            self._machine.raise_failures()
        except DeliveryFailed as failed:
            log.error("records were not delivered", extra={"why": str(failed)})
            error.add_note(str(failed))

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Receipt:
        """Send a record and wait until it is stored.

        Cancelled before the record is accepted, it is not sent; after that delivery goes on without you.

        Args:
            value: ``None`` is a tombstone.
            key: decides the partition, unless ``partition`` is given; without either the producer chooses.
            timestamp: milliseconds since 1970; now by default.

        Returns:
            Where it was stored.

        Raises:
            DeliveryTimeout: not acknowledged within `delivery_timeout`; it may be in the log or not.
            RecordTooLarge, EncodeError, UnknownTopicOrPartition, MessageTooLarge, …: it was refused, and why.
        """
        outcome: Outcome[Receipt] = Outcome()
        await self._append(Outgoing(topic, value, key, partition, headers, _stamp(timestamp), outcome))
        self._driver.nudge()
        return await self._driver.wait(outcome)

    async def send_soon(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        """Accept a record, waiting only for room in the buffer; arguments as `send`.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            RecordTooLarge, EncodeError, UnknownTopicOrPartition: this one was refused.
        """
        await self._append(Outgoing(topic, value, key, partition, headers, _stamp(timestamp)))
        self._breath += 1
        if self._driver.nudge() or self._breath >= _BREATH:
            self._breath = 0
            await trio.lowlevel.checkpoint()

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        """Accept a record at once; arguments and errors as `send_soon`.

        Raises:
            BufferFull: there is no room; nothing is sent while your task does not await something.
        """
        self._machine.raise_failures()
        record = Outgoing(topic, value, key, partition, headers, _stamp(timestamp))
        self._machine.append(record, trio.current_time())
        self._driver.nudge()

    async def flush(self) -> None:
        """Wait until every record accepted so far is stored.

        Raises:
            DeliveryFailed: some were not.
        """
        await self._driver.call(self._machine.flush)
        self._machine.raise_failures()

    async def _append(self, record: Outgoing) -> None:
        while True:
            self._machine.raise_failures()
            try:
                self._machine.append(record, trio.current_time())
                return
            except BufferFull:
                self._driver.nudge()
                await self._driver.wait(self._machine.room())


def _stamp(timestamp: int | None) -> int:
    return time.time_ns() // 1_000_000 if timestamp is None else timestamp
