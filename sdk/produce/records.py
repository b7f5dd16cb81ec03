"""One record on its way into the producer, and its result."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.records import HEADER_SIZE, Headers, check_bytes
from ottla.errors import EncodeError, OttlaError, RecordTooLarge
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.logs import logger
from ottla.sdk.outcome import AfterCallbacks

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

log = logger("ottla.sdk.producer")

RECORD_OVERHEAD = 32
"""Bytes that a record takes at most besides its key, value and headers."""

_LATEST = 2**63 - 1
Timestamp = int | datetime
"""Milliseconds since 1970, or a datetime with a time zone."""


class Receipt(NamedTuple):
    """Where a record was stored.

    Attributes:
        offset: -1 if the broker did not say (acks=0, or a duplicate of a batch stored long ago).
        timestamp: milliseconds since 1970; the broker's time if the topic stamps records itself.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


DeliveryCallback = Callable[[Receipt | OttlaError], object]
"""Called once with the result of a record."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as interceptors see it: after the serializers, before a partition is chosen (unless it was given)."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers
    timestamp: int


class ProducerInterceptor:
    """Sees every record before it is sent, and its result; derive from it and override what you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead of ``record``."""
        return record

    def on_acknowledgement(self, record: ProducerRecord, result: Receipt | OttlaError) -> None:
        """Called when ``record`` was stored, or failed."""


class AwaitedReceipt(AfterCallbacks[Receipt]):
    """The result of a record, for a caller that awaits it."""

    __slots__ = ("unseen",)

    def __init__(self) -> None:
        super().__init__()
        self.unseen = False
        """The caller was cancelled, so no caller would see a failure."""

    def abandon(self) -> None:
        """Note that the caller was cancelled: it does not see the result."""
        self.unseen = True

    def __call__(self, result: Receipt | OttlaError) -> None:
        self.settle(result)


class Acknowledgement:
    """Calls the interceptors of a record, then the user's own callback, if there is one."""

    def __init__(
        self, interceptors: Sequence[ProducerInterceptor], record: ProducerRecord, callback: DeliveryCallback | None
    ) -> None:
        self._interceptors, self._record, self.callback = interceptors, record, callback

    @property
    def unseen(self) -> bool:
        return self.callback is None or unseen(self.callback)

    def __call__(self, result: Receipt | OttlaError) -> object:
        try:
            self.intercept(result)
        finally:  # an interceptor's Ctrl-C must not suppress the user's callback
            returned = None if self.callback is None else self.callback(result)
        return returned

    def before(self, callback: DeliveryCallback) -> "Acknowledgement":
        """An acknowledgement with the same interceptors that then calls ``callback``."""
        return Acknowledgement(self._interceptors, self._record, callback)

    def intercept(self, result: Receipt | OttlaError) -> None:
        """Call only the interceptors, because the caller gets an exception."""
        for each in self._interceptors:
            try:
                each.on_acknowledgement(self._record, result)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # from the user's code; the others have to be called in any case
                log.exception("interceptor's on_acknowledgement raised")


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A record on its way into the producer.

    Attributes:
        callback: called with the result.
        transaction: the number of the transaction that was open when the call began: the record is part of no other.
        size: an upper limit of its bytes; set by `prepare`.
        deadline: when its delivery times out; set by `prepare`.
        refused: the error of the user's partitioner.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers
    timestamp: int
    callback: DeliveryCallback | None = None
    transaction: int | None = None
    size: int = 0
    deadline: float = 0.0
    refused: OttlaError | None = None

    @property
    def aim(self) -> TopicPartition:
        """The record's topic and partition; partition -1 if none is chosen yet."""
        return self.topic, -1 if self.partition is None else self.partition

    def await_by(self, awaited: AwaitedReceipt) -> None:
        """Settle ``awaited`` with the result."""
        self.callback = self.callback.before(awaited) if isinstance(self.callback, Acknowledgement) else awaited

    def prepare(self, limit: int, deadline: float) -> None:
        """Check whether the record can be sent at all, and set its size and its deadline.

        Args:
            limit: the maximum size of a request.

        Raises:
            RecordTooLarge: the record would never fit a request.
            EncodeError: key, value or a header is not bytes, or the timestamp does not fit.
        """
        key, value = self.key, self.value
        if not isinstance(self.topic, str) or not self.topic:
            raise EncodeError(f"a topic's name must be a non-empty str, not {self.topic!r}")
        if not isinstance(self.timestamp, int) or not 0 <= self.timestamp <= _LATEST:
            raise EncodeError(
                f"the timestamp is {self.timestamp!r:.80}, but must be from 0 to 2**63 - 1 (milliseconds)"
            )
        if self.partition is not None and type(self.partition) is not int:
            raise EncodeError(f"a partition must be an int, not {self.partition!r}")
        if self.headers != () or type(value) is not bytes or not (key is None or type(key) is bytes):
            check_bytes(key, value, self.headers)
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in self.headers:
            size += 10 + (len(name) if name.isascii() else 4 * len(name)) + (len(content) if content else 0)
        if HEADER_SIZE + size > limit:
            raise RecordTooLarge(
                f"a record for {self.topic!r} has about {size} bytes, and max_request_size is {limit}: raise it, and "
                "the topic's max.message.bytes, or make the record smaller"
            )
        self.size, self.deadline = size, deadline

    def choose(self, partition: int) -> None:
        """Keep the partition that the user's partitioner has chosen."""
        self.partition = partition

    def refuse(self, error: OttlaError) -> None:
        """Keep the error of the user's partitioner, with which the record fails."""
        self.refused = error

    def freeze(self) -> None:
        """Copy mutable contents, so that a record that is encoded later is sent as it was when accepted."""
        if self.value is not None and type(self.value) is not bytes:
            self.value = memoryview(self.value).tobytes()
        if self.key is not None and type(self.key) is not bytes:
            self.key = memoryview(self.key).tobytes()
        if self.headers != ():
            copied = (
                (name, None if content is None else memoryview(content).tobytes()) for name, content in self.headers
            )
            self.headers = tuple(copied)


def unseen(callback: DeliveryCallback) -> bool:
    """Whether the user does not see the result: only an interceptor does, or the caller was cancelled."""
    return bool(getattr(callback, "unseen", False))


def awaited_by(callback: DeliveryCallback) -> AwaitedReceipt | None:
    """The outcome that the callback settles, if that is its purpose."""
    inner = callback.callback if isinstance(callback, Acknowledgement) else callback
    return inner if isinstance(inner, AwaitedReceipt) else None
