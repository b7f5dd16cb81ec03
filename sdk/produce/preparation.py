"""Prepares a record before it enters the core, in the caller's own call; all code of the user's runs here.

    serializers ──► interceptors' on_send ──► the user's own partitioner ──► `PendingRecord`

It runs outside of the core's gate, so it may call anything, also the producer.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ottla.codec.records import Headers
from ottla.errors import EncodeError
from ottla.sdk.logs import logger
from ottla.sdk.produce.placing import Placing
from ottla.sdk.produce.records import (
    Acknowledgement,
    DeliveryCallback,
    PendingRecord,
    ProducerInterceptor,
    ProducerRecord,
    Timestamp,
)

log = logger("ottla.sdk.producer")


class Preparation:
    """Makes records from the arguments of calls; ``clock`` returns the nanoseconds since 1970."""

    def __init__(
        self,
        placing: Placing,
        check_callback: Callable[[Any], object],
        clock: Callable[[], int],
        *,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        interceptors: tuple[ProducerInterceptor, ...] = (),
    ) -> None:
        self._placing, self._check_callback, self._clock = placing, check_callback, clock
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._interceptors = interceptors
        self.plain = not (key_serializer or value_serializer or interceptors)
        """Whether records are sent without serializers and interceptors."""

    def record(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp: Timestamp | None,
        callback: DeliveryCallback | None = None,
        transaction: int | None = None,
    ) -> PendingRecord:
        """Prepare a record.

        Args:
            transaction: `ProducerCore.transaction` when the call began: the user's code here may take long.

        Raises:
            ConfigurationError: ``callback`` is not callable, or is async.
            EncodeError: the timestamp is invalid, or the partitioner failed.
            Exception: a serializer's own error.
        """
        if callback is not None:
            self._check_callback(callback)
        if self._value_serializer and value is not None:
            value = self._value_serializer(value)
        if self._key_serializer and key is not None:
            key = self._key_serializer(key)
        stamp = self.stamp(timestamp)
        if self._interceptors:
            given = self._intercepted(ProducerRecord(topic, value, key, partition, headers, stamp))
            topic, value, key, partition = given.topic, given.value, given.key, given.partition
            headers, stamp = given.headers, given.timestamp
            callback = Acknowledgement(self._interceptors, given, callback)
        record = PendingRecord(topic, value, key, partition, headers, stamp, callback, transaction)
        if self._placing.asks_user(record):
            self._placing.choose(record)
            if record.refused is not None:
                raise record.refused
        return record

    def _intercepted(self, record: ProducerRecord) -> ProducerRecord:
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
            except Exception:  # from the user's code; the record has to be sent in any case
                log.exception("interceptor's on_send raised; the record is sent unchanged")
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                what = f"{type(each).__name__}.on_send returned {changed!r}, which is not a ProducerRecord"
                log.error("interceptor's on_send failed; the record is sent unchanged", extra={"why": what})
        return record

    def stamp(self, timestamp: Timestamp | None) -> int:
        """The timestamp in milliseconds since 1970; now by default.

        Raises:
            EncodeError: a datetime without a zone is ambiguous; Kafka has no times before 1970.
        """
        if timestamp is None:
            return self._clock() // 1_000_000
        if isinstance(timestamp, datetime):
            if timestamp.tzinfo is None:
                raise EncodeError(f"{timestamp} has no time zone: give it one, as in datetime.now(UTC)")
            stamp = int(timestamp.timestamp() * 1000)
        elif isinstance(timestamp, int) and not isinstance(timestamp, bool):
            stamp = timestamp
        else:
            raise EncodeError(f"the timestamp is {timestamp!r:.80}, but must be an int of milliseconds, or a datetime")
        if stamp < 0:
            raise EncodeError(f"the timestamp {timestamp} is before 1970, which Kafka does not support")
        return stamp
