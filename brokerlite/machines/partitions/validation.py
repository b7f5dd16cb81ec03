"""Validates a produced record set: returns the batch to store, or raises the reason for refusing it.

Rules:
- A produced record set must be exactly one whole batch of magic 2 with base offset 0, the claimed number of records and
  a matching CRC, and not a control batch. The records are counted, if compressed after a bounded decompression.
- Compressed records must be readable by every client. An LZ4 frame that the Java client refuses is invalid. Bytes after
  the compressed data, which the Java client ignores, are cut off, because other clients fail there.
- The batch is stored as it was produced, unless the topic has a compression of its own, or the header's largest
  timestamp is wrong. Even then sequences and offsets stay the same. With LogAppendTime, records get their timestamp
  when they are appended.
- A batch that claims LogAppendTime is refused if the topic uses LogAppendTime; otherwise the claim is removed.
- Nothing here depends on a log: the same record set and settings give the same result in any thread. `work` estimates
  the effort beforehand.

Source: UnifiedLog.java (analyzeAndValidateRecords), LogValidator.java, ProduceRequest.java (validateRecords).
"""

import math
from collections.abc import Iterator
from itertools import islice

from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.codec.compression import (
    DEFAULT_LEVELS,
    Compression,
    decompressed_bound,
    gzip_end,
    lz4_end,
    snappy_end,
)
from ottla.codec.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_TIMESTAMP,
    RecordBatch,
    parse_batch,
    scan_records,
)
from ottla.codec.rewrite import cut, recompressed, with_create_time, with_max_timestamp
from ottla.codec.wire import Buffer
from ottla.errors import (
    CorruptMessage,
    DecodeError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)

ZSTD_SINCE = 7
"""The first version of Produce that allows zstd."""
DECOMPRESSED_LIMIT = 64 * 2**20
"""The most bytes of the decompressed records of one batch; a batch that claims more is refused."""
MOST_INDEXES = 100
"""The most invalid records that an error names."""
_TO_STEP_OVER = 8
"""Roughly, the bytes of records that are scanned in the time of decompressing one byte, with the smallest records."""
_TO_COMPRESS = 6
"""Roughly, how many times more work compressing is than decompressing, with gzip, which is the slowest in both."""
_WITH_EFFORT = 8
"""How many times more work compressing is with a level above the default."""
_KNOWN_ATTRIBUTES = 0x3F
"""The attributes that a recompressed batch keeps: compression, timestamp type, transactional, control."""
_MAGIC_END, _LEAST_OF_OLD = 17, LENGTH_END + 14
"""The offset after a batch's magic byte; the size of the smallest message of magic 0."""
_ATTRIBUTES_AT = 22
"""The offset of the header byte with the compression."""


class NotOneBatch(InvalidRecord):
    """The record set is not one batch of magic 2."""


class InvalidRecords(InvalidRecord):
    """Some records of the batch are invalid for the topic.

    Attributes:
        indexes: their indexes within the batch; the first `MOST_INDEXES`.
    """

    def __init__(self, detail: str, indexes: tuple[int, ...]) -> None:
        super().__init__(detail)
        self.indexes = indexes


class InvalidTimestamps(InvalidTimestamp):
    """The timestamps of some records are out of the topic's range; other records may lack a required key.

    Attributes:
        indexes: as in `InvalidRecords`.
    """

    def __init__(self, detail: str, indexes: tuple[int, ...]) -> None:
        super().__init__(detail)
        self.indexes = indexes


def work(records: Buffer | None, settings: LogSettings) -> int:
    """Estimate the most work of `validated`, in decompressed bytes: a million take 1 to 3 milliseconds.

    The estimate takes microseconds: it uses the sizes claimed in the headers of the compressed data. If a header claims
    too little, the record set is invalid, and decompression stops at the claimed size.
    """
    if records is None or len(records) < HEADER_SIZE:
        return 0
    again = settings.compression not in (None, records[_ATTRIBUTES_AT] & COMPRESSION_MASK)
    if not again and not records[_ATTRIBUTES_AT] & COMPRESSION_MASK:
        return len(records) // _TO_STEP_OVER
    try:
        batch = parse_batch(records)
    except DecodeError:
        return 0
    if len(batch.data) > min(settings.max_message_bytes, settings.segment_bytes):
        return 0
    size = min(decompressed_bound(batch.compression, batch.data[HEADER_SIZE:]), DECOMPRESSED_LIMIT)
    effort = size
    if again and settings.compression is not None:
        high = (settings.compression_level or 0) > DEFAULT_LEVELS.get(settings.compression, 0)
        effort += size * _TO_COMPRESS * (_WITH_EFFORT if high else 1)
    return effort


def validated(
    records: Buffer | None,
    *,
    version: int,
    settings: LogSettings,
    timestamp: int,
    name: str,
    limit: int = DECOMPRESSED_LIMIT,
) -> RecordBatch:
    """Validate a produced record set; return the batch to store, still without offset, leader epoch and append time.

    Args:
        version: the version of the Produce request.
        timestamp: the time, in milliseconds since 1970.
        name: the partition's name, for messages.
        limit: the most bytes to decompress; a record set with more is invalid.

    Raises:
        InvalidRecord: the record set breaks a rule (`InvalidRecords`: some of its records do).
        CorruptMessage: the CRC does not match.
        MessageTooLarge, RecordListTooLarge: the batch is larger than the topic allows, or than a segment may be.
        UnsupportedCompressionType: zstd in a version of Produce before `ZSTD_SINCE`.
        InvalidTimestamp: the batch claims LogAppendTime, which only the broker may set (`InvalidTimestamps`: some
            timestamps are out of the topic's range).
    """
    batch = _only_batch(records, version, settings, name)
    _check_header(batch, settings)
    if batch.log_append_time:
        batch = parse_batch(with_create_time(batch))
    try:
        batch, body = _opened(batch, limit)
        max_timestamp = _check_records(batch, body, settings, timestamp, name)
    except DecodeError as error:
        raise InvalidRecord(str(error)) from None
    if settings.compression is not None and settings.compression != batch.compression:
        batch.max_timestamp, batch.attributes = max_timestamp, batch.attributes & _KNOWN_ATTRIBUTES
        return _compressed_again(batch, body, Compression(settings.compression), settings, name)
    if max_timestamp != batch.max_timestamp and not settings.log_append_time:  # otherwise the append time replaces it
        return parse_batch(with_max_timestamp(batch, max_timestamp))
    return batch


def _opened(batch: RecordBatch, limit: int) -> tuple[RecordBatch, Buffer]:
    """Return the batch and its decompressed records; cut off bytes after the data, which the Java client ignores.

    Raises:
        DecodeError: the Java client would refuse the data, or it decompresses to more than ``limit`` bytes.
    """
    compressed = batch.data[HEADER_SIZE:]
    if batch.compression == Compression.LZ4:
        if (end := lz4_end(compressed)) < len(compressed):
            batch = parse_batch(cut(batch, end))
        return batch, batch.body(DECOMPRESSED_LIMIT, limit)
    try:
        return batch, batch.body(DECOMPRESSED_LIMIT, limit)
    except DecodeError:
        end = 0
        if batch.compression == Compression.GZIP:
            end = gzip_end(compressed, limit)
        elif batch.compression == Compression.SNAPPY:
            end = snappy_end(compressed)
        if not 0 < end < len(compressed):
            raise
    batch = parse_batch(cut(batch, end))
    return batch, batch.body(DECOMPRESSED_LIMIT, limit)


def _only_batch(records: Buffer | None, version: int, settings: LogSettings, name: str) -> RecordBatch:
    records = b"" if records is None else records
    batch = RecordBatch()
    if not batch.read(memoryview(records), 0) or len(batch.data) < len(records):  # otherwise it is exactly one
        batches = list(_whole_batches(records))
        if len(batches) != 1:
            raise NotOneBatch(f"the record set of {name} has {len(batches)} batches instead of one")
        batch = batches[0]
    if batch.compression == Compression.ZSTD and version < ZSTD_SINCE:
        raise UnsupportedCompressionType(f"zstd needs Produce v{ZSTD_SINCE}; the request is v{version}")
    if batch.base_offset != 0:
        raise InvalidRecord(f"the base offset must be 0, not {batch.base_offset}")
    if (size := len(batch.data)) > settings.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes; {name} takes at most {settings.max_message_bytes}")
    if not batch.crc_matches:
        raise CorruptMessage(f"the CRC of a batch for {name} does not match its bytes")
    if size > settings.segment_bytes:
        raise RecordListTooLarge(f"a batch of {size} bytes; segments of {name} have at most {settings.segment_bytes}")
    return batch


def _whole_batches(records: Buffer) -> Iterator[RecordBatch]:
    """Yield the whole batches of a produced record set; like Kafka, ignore an incomplete batch at its end."""
    position = 0
    while len(records) - position >= _MAGIC_END:
        magic = records[position + _MAGIC_END - 1]
        size = LENGTH_END + int.from_bytes(records[position + 8 : position + LENGTH_END], "big", signed=True)
        if size < _LEAST_OF_OLD:
            raise CorruptMessage(f"a batch of {size} bytes is too short to be one")
        if magic > MAGIC:
            raise CorruptMessage(f"unknown record format (magic) {magic}")
        if size > len(records) - position:
            return
        if magic < MAGIC:
            raise NotOneBatch(f"the record format (magic) is {magic}; the broker accepts only {MAGIC}")
        if size < HEADER_SIZE:
            raise CorruptMessage(f"a batch of {size} bytes is too short to be one")
        yield parse_batch(records, position)
        position += size


def _check_header(batch: RecordBatch, settings: LogSettings) -> None:
    if not 0 < batch.count == batch.last_offset_delta + 1:
        raise InvalidRecord(f"{batch.count} records, the last with offset {batch.last_offset_delta}")
    if batch.control:
        raise InvalidRecord("only the broker may write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecord(f"invalid sequence {batch.base_sequence} of producer {batch.producer_id}")
    if batch.log_append_time and (settings.log_append_time or batch.max_timestamp == NO_TIMESTAMP):
        raise InvalidTimestamps("only the broker may set LogAppendTime", tuple(range(min(batch.count, MOST_INDEXES))))


def _check_records(batch: RecordBatch, body: Buffer, settings: LogSettings, timestamp: int, name: str) -> int:
    """Count the records, check them against the topic's settings, and return their largest timestamp.

    Raises:
        DecodeError: their number differs from the header's, or they do not end where the batch ends.
    """
    end, smallest, largest, keyless = scan_records(body, batch.count, batch.base_timestamp)
    if end < 0:
        raise DecodeError(f"one of the batch's {batch.count} records is damaged or has a wrong offset")
    if end != len(body):
        raise DecodeError(f"the {batch.count} records do not end where the batch does")
    earliest, latest = -math.inf, math.inf
    if not settings.log_append_time:
        earliest = timestamp - settings.timestamp_before_max_ms
        latest = timestamp + settings.timestamp_after_max_ms
    needs_keys = settings.compacted and keyless > 0
    if needs_keys or smallest < earliest or largest > latest:
        _check_each(batch, name, needs_keys, (smallest, largest), earliest, latest)
    return largest


def _check_each(
    batch: RecordBatch, name: str, needs_keys: bool, times: tuple[int, int], earliest: float, latest: float
) -> None:
    """Raise an error that names the records that the topic does not accept.

    Args:
        needs_keys: the topic requires keys, and some records have none.
        times: the smallest timestamp and the largest.
    """

    def is_early_or_late(each: int) -> bool:
        return each != NO_TIMESTAMP and not earliest <= each <= latest

    of_other_times = [each for each in times if is_early_or_late(each)]
    if needs_keys or of_other_times:
        rows = (
            row
            for row, record in enumerate(batch.records(DECOMPRESSED_LIMIT))
            if (needs_keys and record.key is None) or is_early_or_late(record.timestamp)
        )
        indexes = tuple(islice(rows, MOST_INDEXES))
        if of_other_times:
            raise InvalidTimestamps(f"timestamp {of_other_times[0]} is not within {earliest} to {latest}", indexes)
        raise InvalidRecords(f"{name} is compacted and takes no record without a key", indexes)


def _compressed_again(
    batch: RecordBatch, body: Buffer, compression: Compression, settings: LogSettings, name: str
) -> RecordBatch:
    data = recompressed(batch, compression, settings.compression_level, body=body)
    if len(data) > settings.max_message_bytes:
        raise MessageTooLarge(
            f"{len(data)} bytes with the topic's compression; {name} takes at most {settings.max_message_bytes}"
        )
    if len(data) > settings.segment_bytes:
        raise RecordListTooLarge(
            f"{len(data)} bytes with the topic's compression; segments have at most {settings.segment_bytes}"
        )
    return parse_batch(data)
