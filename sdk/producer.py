"""The trio face of a producer.

Three ways to send, which differ in what they wait for:

    receipt = await producer.send("orders", b"...")        # until it is stored; raises why it was not
    await producer.send_soon("orders", b"...")             # for room only; many at once: send_many
    producer.send_nowait("orders", b"...")                 # for nothing; BufferFull where there is no room

The latter take ``on_delivery``, which is called with the `Receipt` or the error. Without it, what fails is raised by
the next call, by `flush`, or at the end of the block: never silently gone.

Rules:
- Cancelled before a record is accepted, it is not sent; after that delivery goes on, and what fails is raised by the
  next call, as it is for who does not await the record.
- ``on_delivery`` and interceptors run in trio's thread, between two checkpoints: they must not block. An error of
  ``on_delivery`` is logged and raised by the next call; one of an interceptor is only logged, as in Java.
- `send_soon` and `send_many` pass a checkpoint whenever they wait, and else every two milliseconds, so that a loop
  around them does not starve the tasks that send.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, cast

import trio

from ottla.codec.intake import Door, Intake
from ottla.codec.records import Headers
from ottla.errors import Closed, DeliveryFailed, EncodeError, OttlaError
from ottla.sdk.drivers.driver import Driver
from ottla.sdk.logs import logger
from ottla.sdk.produce.accumulator import DeliveryCallback, Receipt
from ottla.sdk.produce.core import Awaited, PendingRecord, ProducerCore, ProducerOptions, unseen

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

log = logger("ottla.sdk.producer")

CLOSE_TIMEOUT = 1.5
"""Seconds for what is on its way when the block is left by an error or a cancellation."""
_BREATH = 2
"""Milliseconds between two checkpoints of somebody who sends without waiting."""
_MANY = 256
"""Records of `send_many` between two looks at the clock."""

Timestamp = int | datetime
"""Milliseconds since 1970, or a time that knows its zone."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as interceptors see it: after the serializers, before it has a partition (unless that was given)."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers
    timestamp: int


class ProducerInterceptor:
    """Sees every record on its way in and what became of it; derive from it and replace what you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What is to be sent instead of ``record``."""
        return record

    def on_acknowledgement(self, record: ProducerRecord, result: Receipt | OttlaError) -> None:
        """``record`` was stored, or failed."""


class Intercepted:
    """Tells the interceptors of a record, then whoever asked about it."""

    def __init__(
        self, interceptors: Sequence[ProducerInterceptor], record: ProducerRecord, told: DeliveryCallback | None
    ) -> None:
        self._interceptors, self._record, self._told = interceptors, record, told

    @property
    def unseen(self) -> bool:
        """The user hears nothing of it by this."""
        return self._told is None or unseen(self._told)

    def __call__(self, result: Receipt | OttlaError) -> None:
        self.hear(result)
        if self._told is not None:
            self._told(result)

    def hear(self, result: Receipt | OttlaError) -> None:
        """Tell the interceptors alone, where the user is told by an exception."""
        for each in self._interceptors:
            try:
                each.on_acknowledgement(self._record, result)
            except Exception:  # the user's own code, which must not keep the others from hearing
                log.exception("an interceptor's on_acknowledgement raised")


class Unopened:
    """Stands where a producer's machine will be."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed("the producer was never opened: use it as `async with client.producer(...) as producer`")


class Producer(Generic[K, V]):
    """Sends records; made by `Client.producer`, used as ``async with client.producer() as producer``.

    Leaving the block flushes. A record that failed and that nobody was told of is never silently gone: the next `send`,
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
        self._driver = driver
        self._made = ProducerCore(driver.core, options, rng)
        self._machine: ProducerCore = cast(ProducerCore, Unopened())
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._interceptors = tuple(interceptors)
        self._plain = not (key_serializer or value_serializer or interceptors)
        self._intake: Intake = cast(Intake, Unopened())
        self._breath = 0
        """The millisecond of the last checkpoint."""

    async def __aenter__(self) -> Self:
        self._machine = self._made
        self._intake = self._machine.intake
        if self._plain and type(self).send_soon is _SEND_SOON:  # and nobody put something before it
            door = Door(self._intake, _SEND_SOON.__get__(self), time.time_ns)
            self.send_soon = door.send_soon  # type: ignore[method-assign] # which is the point
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
            return
        try:
            await self._hurry(error)
        finally:
            self._close()

    async def aclose(self) -> None:
        """Flush, and be done; within `delivery_timeout`, or twice that where records come in meanwhile.

        What is accepted while the flush goes on, such as by a callback, is flushed as well; then records are refused.

        Raises:
            DeliveryFailed: records were not stored.
        """
        try:
            await self._driver.call(self._machine.flush)
            await self._driver.call(self._machine.shut)
            self._machine.raise_failures()
        except BaseException as error:  # a cancellation included
            await self._hurry(error)
            raise
        finally:
            self._close()

    def _close(self) -> None:
        self._machine.close(Closed("the producer is closed"))
        vars(self).pop("send_soon", None)  # with the circle that it makes

    async def _hurry(self, error: BaseException) -> None:
        """Give what is on its way a moment, and tell what was not delivered: nothing is lost without a word."""
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._driver.call(self._machine.shut)
        if left := self._machine.pending:
            log.error("records are given up, because the producer was left", extra={"records": left})
            error.add_note(f"{left} record(s) of the producer that was left may not have been stored")
        for _ in range(2):  # records that failed, and what a callback raised
            try:
                self._machine.raise_failures()
            except Exception as failed:  # whatever it is, it must not hide the error that is under way
                log.error("records were not delivered", extra={"why": str(failed)})
                error.add_note(str(failed) if isinstance(failed, DeliveryFailed) else repr(failed))

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
        await trio.lowlevel.checkpoint_if_cancelled()
        awaited = Awaited()
        record = self._record(topic, value, key, partition, headers, timestamp, awaited)
        try:
            await self._accept(record)
            return await self._driver.wait(awaited)
        except (trio.Cancelled, KeyboardInterrupt):
            self._machine.leave(record, awaited)
            raise

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

        Args:
            on_delivery: is called with the `Receipt` or the error; who gives it is told, so nothing is raised later.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            DeliveryTimeout: there was no room within `delivery_timeout`.
            RecordTooLarge, EncodeError, UnknownTopicOrPartition: this one was refused.
            ConfigurationError: ``on_delivery`` cannot be called, or would have to be awaited.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._accept(self._record(topic, value, key, partition, headers, timestamp, on_delivery))
        await self._breathe()

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
            DeliveryFailed, DeliveryTimeout, RecordTooLarge, EncodeError, UnknownTopicOrPartition: as `send_soon`.
        """
        stamp = _stamp(timestamp)
        if isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
            raise ValueError(f"{len(values)} values and {len(keys)} keys")
        pairs: Iterator[Any] = zip(values, repeat(None)) if keys is None else zip(values, keys, strict=True)
        put_many = self._intake.put_many if self._plain else lambda topic, pairs, *_: next(pairs, None)
        await trio.lowlevel.checkpoint_if_cancelled()
        while (refused := put_many(topic, pairs, stamp, on_delivery, _MANY)) is not None:
            if refused:
                value, key = refused
                await self._accept(self._record(topic, value, key, None, (), stamp, on_delivery))
            await self._breathe()
            await trio.lowlevel.checkpoint_if_cancelled()
            if timestamp is None:
                stamp = _stamp(None)

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

        Raises:
            BufferFull: there is no room; nothing is sent while your task does not await something.
        """
        plain = self._plain and partition is None and timestamp is None and headers == ()
        if plain and self._intake.put(topic, value, key, time.time_ns() // 1_000_000, on_delivery):
            return
        self._driver.refuse_another_loop()
        self._machine.raise_failures()
        record = self._record(topic, value, key, partition, headers, timestamp, on_delivery)
        with _refusals(record):
            self._machine.append(record, trio.current_time())
        self._driver.nudge()

    async def flush(self) -> None:
        """Send what lingers, and wait until every record accepted so far is stored; within `delivery_timeout`.

        Raises:
            DeliveryFailed: some were not.
        """
        await self._driver.call(self._machine.flush)
        self._machine.raise_failures()

    async def _accept(self, record: PendingRecord) -> None:
        self._driver.refuse_another_loop()
        self._machine.raise_failures()
        accepted = self._machine.offer(record, trio.current_time())
        try:
            with _refusals(record):
                await self._driver.wait(accepted) if not accepted.done else accepted.result()
        except BaseException:  # a cancellation included: it is not waited for, and what came before it is sent
            self._machine.withdraw(accepted)
            self._driver.nudge()
            raise

    async def _breathe(self) -> None:
        """See to it that what was accepted is sent, and let the others run if they have not for a while.

        Who is cancelled hears so at the next call: a record that is in must not look as if it were not.
        A record after a lull is sent at once. Of many, those after the first are sent together, in a turn of their own.
        """
        stamp = time.time_ns() // 1_000_000
        if 0 <= stamp - self._breath < _BREATH:
            self._driver.nudge()
            return
        self._breath = stamp
        self._driver.catch_up()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _record(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        headers: Headers,
        timestamp: Timestamp | None,
        told: DeliveryCallback | None,
    ) -> PendingRecord:
        """The record, serialized and past the interceptors."""
        if told is not None and type(told) is not Awaited:
            self._intake.check(told)
        of_value: Any = self._value_serializer(value) if self._value_serializer and value is not None else value
        of_key: Any = self._key_serializer(key) if self._key_serializer and key is not None else key
        stamp = _stamp(timestamp)
        if not self._interceptors:
            return PendingRecord(topic, of_value, of_key, partition, headers, stamp, told=told)
        record = ProducerRecord(topic, of_value, of_key, partition, headers, stamp)
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
            except Exception:  # the user's own code, which must not keep the record from being sent
                log.exception("an interceptor's on_send raised; the record is sent as it was before")
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                what = f"{type(each).__name__}.on_send returned {changed!r}, and not a ProducerRecord"
                log.error("an interceptor is at fault; the record is sent as it was before", extra={"why": what})
        return PendingRecord(
            record.topic,
            record.value,
            record.key,
            record.partition,
            record.headers,
            record.timestamp,
            told=Intercepted(self._interceptors, record, told),
        )


_SEND_SOON = Producer.send_soon


@contextlib.contextmanager
def _refusals(record: PendingRecord) -> Iterator[None]:
    """Interceptors hear of a record that is refused; who sends a str hears of serializers."""
    try:
        yield
    except OttlaError as error:
        for what, given in (("key", record.key), ("value", record.value)):
            if isinstance(given, str):
                error.add_note(f"or give the producer a serializer: client.producer({what}_serializer=str.encode)")
        if isinstance(record.told, Intercepted):
            record.told.hear(error)
        raise


def _stamp(timestamp: Timestamp | None) -> int:
    """Milliseconds since 1970.

    Raises:
        EncodeError: a datetime without a zone could be any of 24 moments; before 1970 Kafka knows no time.
    """
    if timestamp is None:
        return time.time_ns() // 1_000_000
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise EncodeError(f"{timestamp} has no time zone: give it one, as in datetime.now(UTC)")
        stamp = int(timestamp.timestamp() * 1000)
    elif isinstance(timestamp, int) and not isinstance(timestamp, bool):
        stamp = timestamp
    else:
        raise EncodeError(f"the timestamp is {timestamp!r:.80}, and must be an int of milliseconds, or a datetime")
    if stamp < 0:
        raise EncodeError(f"the timestamp {timestamp} is before 1970, where Kafka knows no time")
    return stamp
