"""How a producer accepts records, in Python. `ottla.sdk.produce._append` does the same in C, with the same names.

`ottla.sdk.produce.append` explains the classes, and chooses between the two.

Rule: the extension imports this module, so neither this module nor any that it imports may import the extension.
"""

import warnings
from _thread import get_ident  # no other import from threading: machines know nothing of threads
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import Any, Generic, NoReturn

from ottla.codec.layout import BinaryColumn, HeaderColumn
from ottla.codec.records import Appender, Headers
from ottla.sdk.produce.records import RECORD_OVERHEAD, DeliveryCallback, K, Timestamp, V

_INT32_MAX = (1 << 31) - 1


class OpenBatch:
    """A batch that accepts records up to a size.

    Attributes:
        builder: encodes the records.
        room: size of the batch in bytes.
        left: bytes of `room` that are still free; negative if the batch accepts no more records.
        callbacks: for each record its callback, or ``None``; ends with the last record that has one.
        timestamps: the timestamps of those records.
        hurried: whether a caller awaits one of its records, so that it does not wait for all of its linger.
    """

    __slots__ = ("builder", "callbacks", "hurried", "left", "room", "timestamps")

    def __init__(self, builder: Appender, room: int) -> None:
        self.builder = builder
        self.room = self.left = room
        self.hurried = False
        self.callbacks: list[Any] = []
        self.timestamps: list[int] = []

    def add(
        self,
        size: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        callback: Any = None,
    ) -> None:
        """Add a record of ``size`` bytes, even if not enough room is left.

        Raises:
            EncodeError: see `Appender.append`.
        """
        index = self.builder.append(timestamp, key, value, headers)
        self.left -= size
        if callback is not None:
            gap = index - len(self.callbacks)
            self.callbacks += [None] * gap
            self.timestamps += [0] * gap
            self.callbacks.append(callback)
            self.timestamps.append(timestamp)

    def add_columns(
        self, size: int, timestamps: memoryview, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn | None
    ) -> None:
        """Add records of ``size`` bytes together, without callbacks; only if the builder takes columns.

        Raises:
            EncodeError: see `BatchBuilder.extend_columns`.
        """
        self.builder.extend_columns(timestamps, keys, values, headers)
        self.left -= size

    def call_back(
        self,
        callbacks: list[Any],
        make: type[tuple[Any, ...]],
        topic: str,
        partition: int,
        base_offset: int,
        append_time: int,
        failed: Callable[[BaseException, Any], object],
        check_result: Callable[[Any], object] | None = None,
    ) -> None:
        """Call each of ``callbacks`` with where its record is now, and forget it.

        If Ctrl-C interrupts this between two callbacks, another call continues.

        Args:
            callbacks: like the attribute, or some of those, each at the index of its record.
            make: the named tuple that the callbacks get: made of topic, partition, offset and timestamp.
            base_offset: offset of the first record; -1: offsets are unknown.
            append_time: timestamp of all records; -1: each has its own.
            failed: called with the exception of a callback, and the tuple that it got.
            check_result: called with the result of a callback that is not ``None``; raises if the result is wrong.
        """
        known = base_offset >= 0
        for index, (callback, stamp) in enumerate(zip(callbacks, self.timestamps, strict=False)):
            if callback is None:
                continue
            offset = base_offset + index if known else -1
            receipt = tuple.__new__(make, (topic, partition, offset, stamp if append_time < 0 else append_time))
            try:
                callbacks[index] = None
                if (result := callback(receipt)) is not None and check_result is not None:
                    check_result(result)
            except BaseException as error:  # a callback's error must not stop the other callbacks
                failed(error, receipt)


class PartitionBuffer:
    """The part of a partition that accepting records needs: its ``open`` batch."""

    __slots__ = ("open",)

    def __init__(self, open: OpenBatch) -> None:
        self.open = open


class TopicBuffer:
    """The part of a topic that accepting records needs.

    Attributes:
        partitions: all of them; ``None`` for those without records so far.
        sticky: the partition for records without a key; ``None`` if it has to be chosen first.
    """

    __slots__ = ("partitions", "sticky")

    def __init__(self, partitions: int) -> None:
        self.partitions: list[PartitionBuffer | None] = [None] * partitions
        self.sticky: PartitionBuffer | None = None

    def stick_to(self, partition: PartitionBuffer) -> None:
        """Append records without a key to ``partition`` from now on."""
        self.sticky = partition


class AppendFastPath:
    """Appends records to the open batches of their partitions; only for the thread that created it.

    Args:
        hash: returns the partition of a key; ``None``: no record can be appended.
        free: bytes that all batches together may take.
        check_callback: raises if a function cannot be used as a callback.
        entered: bytes; while one of the first two is not 0, no record is appended.
        any_thread: other threads may append too. Only in C, where an append is atomic; in Python they never may.

    Attributes:
        topics: the usable topics by name.
        free: bytes that all batches together may still take; negative if they exceed the limit.
    """

    __slots__ = ("_check_callback", "_checked", "_entered", "_hash", "_thread", "free", "topics")

    def __init__(
        self,
        hash: Callable[[bytes, int], int] | None,
        free: int,
        check_callback: Callable[[Any], object] | None = None,
        entered: bytearray | None = None,
        any_thread: bool = False,
    ) -> None:
        self._hash, self._check_callback = hash, check_callback
        self._entered = bytearray(1) if entered is None else entered
        self._thread = get_ident()
        self._checked: object = None
        """Code object of the function that was checked last."""
        self.topics: dict[str, TopicBuffer] = {}
        self.free = free

    def show(self, topics: dict[str, TopicBuffer]) -> None:
        """Append to ``topics`` from now on, and to no others."""
        self.topics = topics

    def reserve(self, size: int) -> None:
        """Take bytes from those that are free, also if too few are."""
        self.free -= size

    def release(self, size: int) -> None:
        """Give bytes back."""
        self.free += size

    def check(self, callback: Any) -> None:
        """Check ``callback``, unless it has the code of the previous one: each record may have a new closure."""
        code = getattr(callback, "__code__", None)
        if code is None or code is not self._checked:
            if self._check_callback is not None:
                self._check_callback(callback)
            self._checked = code

    def append(
        self, topic: str, value: object, key: object, timestamp: int, callback: Any = None, awaited: bool = False
    ) -> bool:
        """Append a record to its batch; return ``False`` if the caller has to handle the record instead.

        Args:
            awaited: a caller awaits ``callback``, which is ours: append the record only to a batch that is hurried.

        Raises:
            EncodeError: the timestamp is invalid, or too far from the others in its batch.
            Exception: ``callback`` is not acceptable.
        """
        if any(self._entered) or get_ident() != self._thread:
            return False
        if callback is not None and not awaited:
            self.check(callback)
        if not isinstance(value, bytes | None) or not isinstance(key, bytes | None):
            return False
        try:
            buffer = self.topics[topic]
            if key is None:
                found = buffer.sticky
            elif key and (partition := self._hash(key, len(buffer.partitions))) >= 0:  # type: ignore[misc] # found out by failing
                found = buffer.partitions[partition]
            else:
                return False
            batch = found.open  # type: ignore[union-attr] # as above
        except Exception:  # the first record of a partition, or an error in a custom partitioner
            return False
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if batch.left < size or self.free < size or (awaited and not batch.hurried):
            return False
        batch.add(size, timestamp, key, value, (), callback)
        self.free -= size
        return True

    def append_many(
        self,
        topic: str,
        pairs: Iterator[tuple[Any, Any]],
        timestamp: int,
        callback: Any = None,
        most: int = _INT32_MAX,
    ) -> tuple[Any, Any] | tuple[()] | None:
        """Append records of ``(value, key)``, as long as `append` can.

        Returns:
            The pair that could not be appended; ``()`` after ``most`` pairs; ``None`` at the end of ``pairs``.

        Raises:
            EncodeError: see `append`.
            Exception: an error of ``pairs``.
        """
        if most <= 0:
            return ()
        for value, key in islice(pairs, most):
            if not self.append(topic, value, key, timestamp, callback):
                return value, key
            most -= 1
        return () if most == 0 else None


class Accepted:
    """The coroutine of an already accepted record: it ends at once. Warns if it is never awaited."""

    __slots__ = ("_awaited",)

    def __init__(self) -> None:
        self._awaited = False

    def __await__(self) -> "Accepted":
        return self

    def __iter__(self) -> "Accepted":
        return self

    def __next__(self) -> None:
        self._awaited = True
        raise StopIteration

    def send(self, value: object) -> None:
        """End."""
        self.__next__()

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> NoReturn:
        """Raise the given exception."""
        self._awaited = True
        raise kind if value is None else value

    def close(self) -> None:
        """End."""
        self._awaited = True

    def __del__(self) -> None:
        if not self._awaited:
            warnings.warn(NOT_AWAITED, RuntimeWarning, stacklevel=2)


NOT_AWAITED = "send_soon was never awaited: without `await` the producer gets no chance to send, nor to say what failed"


class _FastPath(Generic[K, V]):
    """The append fast path of `SendSoon` and `BlockingSendSoon`, closed at first."""

    _fast_path: AppendFastPath | None = None

    def _open_fast_path(self, appends: AppendFastPath, clock: Callable[[], int]) -> None:
        """Use ``appends`` from now on.

        Args:
            clock: returns the nanoseconds since 1970; the records' timestamps come from it.
        """
        self._fast_path, self._fast_clock, self._fast_stamp = appends, clock, 0

    def _close_fast_path(self) -> None:
        """Give each record to `_send_soon`."""
        self._fast_path = None


class SendSoon(_FastPath[K, V]):
    """Base of the producers and transactions that await: `send_soon`, one call in C for nearly every record.

    While the fast path is open, the call itself appends the record, and makes no coroutine. All other records go to
    `_send_soon`, and so does the first of each millisecond, so that other tasks get their turn.
    """

    def send_soon(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Accept a record, waiting only for buffer space; arguments as in `send`.

        If the record fails later, another call or the end of the block raises the error.

        If there is space, the call itself may accept the record, before you await it. Await it in any case: no record
        is sent while your task never waits.

        Records of `send`, `send_soon` and `send_many` are accepted in the order of the calls, across all tasks. Only
        `send_nowait` may overtake calls of other tasks, because it cannot wait as they do.

        Args:
            on_delivery: is called with the `Receipt` or the error, so no error is raised later.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            DeliveryTimeout: there was no space within `delivery_timeout`.
            RecordTooLarge, EncodeError: this record was refused.
            ConfigurationError: ``on_delivery`` is not callable, or is async.
        """
        if (fast_path := self._fast_path) is not None:  # once: another thread may close it
            stamp = self._fast_clock() // 1_000_000
            first, self._fast_stamp = stamp != self._fast_stamp, stamp
            plain = partition is None and timestamp is None and type(headers) is tuple and not headers
            if not first and plain and fast_path.append(topic, value, key, stamp, on_delivery):
                return Accepted()  # a coroutine by its methods, not by its bases
        return self._send_soon(topic, value, key, partition, headers, timestamp, on_delivery)

    def _send_soon(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        headers: Headers,
        timestamp: Timestamp | None,
        on_delivery: DeliveryCallback | None,
    ) -> Coroutine[Any, Any, None]:
        """Accept a record that the fast path has left."""
        raise NotImplementedError


class BlockingSendSoon(_FastPath[K, V]):
    """`SendSoon` for blocking code, where other tasks need no turn."""

    def send_soon(
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
        """Accept a record, waiting only for buffer space; arguments as in `send`.

        If the record fails later, another call or the end of the block raises the error.

        It waits for space only; the client's own thread sends the batches, whatever yours does.

        Records of `send`, `send_soon` and `send_many` are accepted in the order of the calls, across all threads. Only
        `send_nowait` may overtake calls of other threads, because it cannot wait as they do.

        Args:
            on_delivery: is called with the `Receipt` or the error, so no error is raised later: in your thread, or
                another that uses the client, within a call of it.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            DeliveryTimeout: there was no space within `delivery_timeout`.
            RecordTooLarge, EncodeError: this record was refused.
            ConfigurationError: ``on_delivery`` is not callable, or is async.
        """
        if (fast_path := self._fast_path) is not None:  # once: another thread may close it
            plain = partition is None and timestamp is None and type(headers) is tuple and not headers
            if plain and fast_path.append(topic, value, key, self._fast_clock() // 1_000_000, on_delivery):
                return
        self._send_soon(topic, value, key, partition, headers, timestamp, on_delivery)

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
        """Accept a record that the fast path has left."""
        raise NotImplementedError
