"""Batches made from other batches: what a broker does to a batch after it was produced.

    recompressed    a topic has a compression of its own (`compression.type`)
    with_max_timestamp
                    the header claims another than the records have
    retained        compaction removes some of the records, and sets the delete horizon
    emptied         compaction removes all of them, and keeps the producer's last sequence or the end offset
    numbered        a proxy sends it as another producer's

Rules:
- Offsets, sequences, producer, leader epoch and kind of the batch stay, but for `numbered`; `last_offset_delta` is that
  of the last record that the batch ever had. A batch with fewer records has gaps between their offsets.
- A record's bytes are copied as they are. Only a delete horizon changes its timestamp delta, because the horizon takes
  the place of the base timestamp.

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
    """The batch with its records compressed in another way.

    Args:
        level: as `ottla.codec.compression.LEVELS` says; ``None`` for the default.
        limit: bytes that the records may take, decompressed.
        body: the records, decompressed, if they are at hand.

    Raises:
        DecodeError: the records cannot be decompressed, or would take more than ``limit``.
        EncodeError: there is no such compression or level.
    """
    packed = compress(compression, batch.body(limit) if body is None else body, level)
    attributes = batch.attributes & ~COMPRESSION_MASK | compression
    return _rebuilt(batch, packed, attributes, batch.base_timestamp, batch.max_timestamp, batch.count)


def retained(
    batch: RecordBatch, keep: Sequence[bool], delete_horizon: int | None = None, limit: int = DECOMPRESSED_LIMIT
) -> bytes:
    """The batch with some of its records only, compressed as it was.

    Args:
        keep: for each record whether it stays; at least one does (otherwise `emptied`).
        delete_horizon: set it, in milliseconds since 1970; ``None``: as the batch has it, or not.
        limit: bytes that the records may take, decompressed and as objects.

    Raises:
        DecodeError: the records are damaged, or would take more than ``limit``.
        EncodeError: ``keep`` does not fit the batch, or a timestamp is too far from the horizon.
    """
    if len(batch.records(limit)) != len(keep) or not any(keep):
        raise EncodeError(f"{sum(keep)} of {len(keep)} records are kept in a batch of {batch.count}")
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
    """The batch without records."""
    attributes = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return _rebuilt(batch, b"", attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def stamped(batch: RecordBatch, timestamp: int) -> bytes:
    """The batch with the broker's time, in milliseconds since 1970, for each record (LogAppendTime)."""
    attributes = batch.attributes | LOG_APPEND_TIME
    return _rebuilt(batch, batch.data[HEADER_SIZE:], attributes, batch.base_timestamp, timestamp, batch.count)


def cut(batch: RecordBatch, size: int) -> bytes:
    """The batch with only the first ``size`` bytes of its compressed records, without the padding behind them."""
    fields = batch.attributes, batch.base_timestamp, batch.max_timestamp, batch.count
    return _rebuilt(batch, batch.data[HEADER_SIZE : HEADER_SIZE + size], *fields)


def with_create_time(batch: RecordBatch) -> bytes:
    """The batch with the times of its records (CreateTime), and no claim that a broker stamped them."""
    attributes = batch.attributes & ~LOG_APPEND_TIME
    return _rebuilt(batch, batch.data[HEADER_SIZE:], attributes, batch.base_timestamp, batch.max_timestamp, batch.count)


def with_max_timestamp(batch: RecordBatch, timestamp: int) -> bytes:
    """The batch with another largest timestamp in its header, in milliseconds since 1970."""
    return _rebuilt(batch, batch.data[HEADER_SIZE:], batch.attributes, batch.base_timestamp, timestamp, batch.count)


def numbered(batch: RecordBatch, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """The batch as one of another producer, or with another sequence, and with no offset."""
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
    """Where each record begins, behind its length, and ends; they were found whole before."""
    end = 0
    while end < len(body):
        size, start = _read_varint(body, end)
        end = start + size
        yield start, end


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    """A varint of up to 64 bits, and where it ends."""
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
