"""Makes batches from other batches, as a broker does after they were produced.

    recompressed    a topic has its own compression (`compression.type`)
    with_max_timestamp
                    the header's maximum timestamp differs from the records'
    retained        compaction removes some of the records, and sets the delete horizon
    emptied         compaction removes all of them, and keeps the producer's last sequence or the end offset
    numbered        a proxy sends a batch as another producer's

Rules:
- Offsets, sequences, producer, leader epoch and kind of the batch do not change, except in `numbered`.
  `last_offset_delta` stays at the original batch's last record. A batch with fewer records has gaps between their
  offsets.
- The bytes of a record are copied unchanged. Only a delete horizon changes its timestamp delta, because the horizon
  takes the place of the base timestamp.

Source: MemoryRecords.java (filterTo, buildRetainedRecordsInto), DefaultRecordBatch.java (writeEmptyHeader),
LogValidator.java, KIP-534.
"""

from collections.abc import Iterator, Sequence

from ottla.codec._loops import LOG_APPEND_TIME, _varint
from ottla.codec.compression import DECOMPRESSED_LIMIT, Compression, compress
from ottla.codec.records import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    NO_TIMESTAMP,
    RecordBatch,
    build_header,
)
from ottla.codec.wire import Buffer
from ottla.errors import EncodeError


def recompressed(
    batch: RecordBatch,
    compression: Compression,
    level: int | None = None,
    limit: int = DECOMPRESSED_LIMIT,
    *,
    body: Buffer | None = None,
) -> bytes:
    """Return the batch with its records compressed in another way.

    Args:
        level: see `ottla.codec.compression.LEVELS`; ``None`` for the default.
        limit: bytes that the records may take, decompressed.
        body: the decompressed records, if the caller has them.

    Raises:
        DecodeError: the records cannot be decompressed, or would take more than ``limit``.
        EncodeError: the compression or level does not exist.
    """
    packed = compress(compression, batch.body(limit) if body is None else body, level)
    attributes = batch.attributes & ~COMPRESSION_MASK | compression
    return _rebuilt(batch, packed, attributes, batch.base_timestamp, batch.max_timestamp, batch.count)


def retained(
    batch: RecordBatch, keep: Sequence[bool], delete_horizon: int | None = None, limit: int = DECOMPRESSED_LIMIT
) -> bytes:
    """Return the batch with only some of its records, compressed as before.

    Args:
        keep: whether to keep each record; at least one is kept (otherwise use `emptied`).
        delete_horizon: the horizon to set, in milliseconds since 1970; ``None``: do not change it.
        limit: bytes that the records may take, decompressed and as objects.

    Raises:
        DecodeError: the records are damaged, or would take more than ``limit``.
        EncodeError: ``keep`` does not fit the batch, or a timestamp is too far from the horizon.
    """
    if len(batch.records(limit)) != len(keep) or not any(keep):
        raise EncodeError(f"cannot keep {sum(keep)} of {len(keep)} records: the batch has {batch.count}")
    base, attributes = batch.base_timestamp, batch.attributes
    if delete_horizon is not None:
        base, attributes = delete_horizon, attributes | DELETE_HORIZON
    body = bytes(batch.body(limit))
    shift = batch.base_timestamp - base
    parts, deltas = [], []
    for stays, (start, end) in zip(keep, _places(body), strict=True):
        if stays:
            delta, behind = _read_varint(body, start + 1)
            parts.append(
                body[start:end] if shift == 0 else body[start : start + 1] + _encoded(delta + shift) + body[behind:end]
            )
            deltas.append(delta)
    kept = compress(Compression(batch.compression), b"".join(_varint(len(part)) + part for part in parts))
    largest = batch.max_timestamp if batch.log_append_time else batch.base_timestamp + max(deltas)
    return _rebuilt(batch, kept, attributes, base, largest, len(parts))


def emptied(batch: RecordBatch) -> bytes:
    """Return the batch without records."""
    attributes = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return _rebuilt(batch, b"", attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def stamped(batch: RecordBatch, timestamp: int) -> bytes:
    """Return the batch with the broker's time, in milliseconds since 1970, for each record (LogAppendTime)."""
    attributes = batch.attributes | LOG_APPEND_TIME
    return _rebuilt(batch, batch.data[HEADER_SIZE:], attributes, batch.base_timestamp, timestamp, batch.count)


def cut(batch: RecordBatch, size: int) -> bytes:
    """Return the batch with only the first ``size`` bytes of its compressed records, to drop padding after them."""
    fields = batch.attributes, batch.base_timestamp, batch.max_timestamp, batch.count
    return _rebuilt(batch, batch.data[HEADER_SIZE : HEADER_SIZE + size], *fields)


def with_create_time(batch: RecordBatch) -> bytes:
    """Return the batch with its records' own timestamps (CreateTime), not stamped by a broker."""
    attributes = batch.attributes & ~LOG_APPEND_TIME
    return _rebuilt(batch, batch.data[HEADER_SIZE:], attributes, batch.base_timestamp, batch.max_timestamp, batch.count)


def with_max_timestamp(batch: RecordBatch, timestamp: int) -> bytes:
    """Return the batch with another maximum timestamp in its header, in milliseconds since 1970."""
    return _rebuilt(batch, batch.data[HEADER_SIZE:], batch.attributes, batch.base_timestamp, timestamp, batch.count)


def numbered(batch: RecordBatch, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """Return the batch as another producer's, or with another sequence; its base offset is 0, as in a new batch."""
    fields = batch.attributes, batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp
    body = batch.data[HEADER_SIZE:]
    return b"".join(
        (build_header(body, 0, -1, (*fields, producer_id, producer_epoch, base_sequence, batch.count)), body)
    )


def _rebuilt(
    batch: RecordBatch, body: Buffer, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    fields = attributes, batch.last_offset_delta, base_timestamp, max_timestamp
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    header = build_header(body, batch.base_offset, batch.partition_leader_epoch, (*fields, *producer, count))
    return b"".join((header, body))


def _places(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield start (after the length) and end of each record. The records are known to be intact."""
    end = 0
    while end < len(body):
        size, start = _read_varint(body, end)
        end = start + size
        yield start, end


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    """Return a varint of up to 64 bits, and the position of its end."""
    value = shift = 0
    while (byte := body[position]) > 0x7F:
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1


def _encoded(delta: int) -> bytes:
    try:
        return _varint(delta)
    except ValueError:
        raise EncodeError("a timestamp is too far from the delete horizon for 64 bits") from None
