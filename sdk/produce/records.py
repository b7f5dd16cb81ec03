"""One record: on its way in, and what became of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ottla.codec.records import Headers
from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.logs import logger
from ottla.sdk.outcome import AfterCallbacks

log = logger("ottla.sdk.producer")

Timestamp = int | datetime
"""Milliseconds since 1970, or a time that knows its zone."""


class Receipt(NamedTuple):
    """Where a record was stored.

    Attributes:
        offset: -1 where the broker did not say (acks=0, or a repeat of a batch long stored).
        timestamp: milliseconds since 1970, the broker's own if the topic stamps records itself.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


DeliveryCallback = Callable[[Receipt | OttlaError], object]
"""Is called once with what became of a record."""


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


class Awaited(AfterCallbacks[Receipt]):
    """What becomes of a record, for a caller that awaits it."""

    __slots__ = ("unseen",)

    def __init__(self) -> None:
        super().__init__()
        self.unseen = False
        """The caller was cancelled, so a failure would be seen by nobody."""

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
        finally:  # Ctrl-C, of which nothing is known here, is no answer
            returned = None if self.callback is None else self.callback(result)
        return returned

    def intercept(self, result: Receipt | OttlaError) -> None:
        """Call the interceptors alone, where the user gets an exception."""
        for each in self._interceptors:
            try:
                each.on_acknowledgement(self._record, result)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # the user's own code, which must not keep the others from being called
                log.exception("an interceptor's on_acknowledgement raised")


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A record on its way in.

    Attributes:
        callback: is called with what became of it.
        size: bytes that it takes at the most; the core's to fill in, as are the others.
        deadline: when delivery is given up.
        refused: what the user's partitioner is guilty of.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers
    timestamp: int
    callback: DeliveryCallback | None = None
    size: int = 0
    deadline: float = 0.0
    refused: OttlaError | None = None

    @property
    def aim(self) -> TopicPartition:
        """Where it was to go; partition -1 where none is chosen yet."""
        return self.topic, -1 if self.partition is None else self.partition

    def await_by(self, awaited: Awaited) -> None:
        """Settle ``awaited`` with what becomes of it."""
        if isinstance(self.callback, Acknowledgement):
            self.callback.callback = awaited
        else:
            self.callback = awaited

    def freeze(self) -> None:
        """Copy what the caller may change: a record that is not encoded at once is kept as it was when accepted."""
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
    """Whether the user does not notice what it is called with: of an interceptor's, or once its caller is cancelled."""
    return bool(getattr(callback, "unseen", False))


def awaited_by(callback: DeliveryCallback) -> Awaited | None:
    """The outcome that it settles, if that is what it is for."""
    inner = callback.callback if isinstance(callback, Acknowledgement) else callback
    return inner if isinstance(inner, Awaited) else None
