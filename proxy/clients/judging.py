"""Judges a client's batch before its first part goes to upstream, so that no part of a refused batch is stored.

Rules:
- A broker refuses a whole batch because of one record. The proxy divides batches, so it judges them as a whole first.
- It knows the topic's configuration, but not the broker's clock: only times that are off by more than a minute are
  refused here.
- A batch may be too large, and its parts not: only a single record that is too large alone is refused. Records of
  compressed batches are not: how large they are alone, only compressing them would tell.

Source: LogValidator.java (validateKey, validateTimestamp), UnifiedLog.java (RecordTooLargeException).
"""

from ottla.codec.records import HEADER_SIZE, BatchBuilder, RecordBatch, Records
from ottla.errors import BrokerError, InvalidRecord, InvalidTimestamp, MessageTooLarge
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.topic_configs import NO_LIMITS, Limits

MOST_WRONG = 1000
"""The most records that a refusal names. The loops over all records are the codec's: a batch may have a million."""
CLOCKS = 60_000
"""Milliseconds by which the clocks of broker and proxy may differ."""
_OVERHEAD = 60
"""The most bytes of a record beside its key, value and headers."""

Wrong = list[tuple[int, str]]
"""The index of each refused record in its batch, and the reason."""


def judged(batch: RecordBatch, records: Records, limits: Limits, time_ms: int | None) -> PartResult | None:
    """Why upstream would refuse a batch, ``None`` if no reason is known.

    Args:
        time_ms: the Unix time; ``None``: unknown.
    """
    if limits is NO_LIMITS:
        return None
    if limits.keyed and records.keyless and (wrong := _without_key(records)):
        return _refused(InvalidRecord, wrong)
    if time_ms is not None and (wrong := _out_of_time(batch, records, limits, time_ms)):
        return _refused(InvalidTimestamp, wrong)
    if records.memory + HEADER_SIZE > limits.largest and (wrong := _too_large(batch, records, limits.largest)):
        return _refused(MessageTooLarge, wrong)
    return None


def _refused(error: type[BrokerError], wrong: Wrong) -> PartResult:
    return PartResult(error.code, message=wrong[0][1], record_errors=tuple(wrong))


def _without_key(records: Records) -> Wrong:
    return [(n, "a compacted topic needs a key") for n in records.without_key(MOST_WRONG)]


def _out_of_time(batch: RecordBatch, records: Records, limits: Limits, time_ms: int) -> Wrong:
    latest = batch.max_timestamp
    first, last = time_ms - limits.before_max - CLOCKS, time_ms + limits.after_max + CLOCKS
    if latest <= last and latest - records.time_span >= first:  # so that most batches need no other look
        return []
    why = "the record's time is too far from the broker's"
    return [(n, why) for n in records.outside(max(first, -(2**63)), min(last, 2**63 - 1), MOST_WRONG)]


def _too_large(batch: RecordBatch, records: Records, largest: int) -> Wrong:
    if batch.compression:  # to find out would take as long as compressing all of it
        return []
    return [
        (n, f"alone, the record takes more than the {largest} bytes of max.message.bytes")
        for n in records.larger(largest - HEADER_SIZE - _OVERHEAD, MOST_WRONG)
        if _size(records[n : n + 1]) > largest
    ]


def _size(record: Records) -> int:
    """The bytes of a batch with one record."""
    builder = BatchBuilder()
    builder.extend(record)
    return len(builder.build())
