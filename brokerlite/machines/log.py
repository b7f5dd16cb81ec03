"""One partition: which record sets it takes, at which offsets, and what a reader may see.

Rules:
- A produced record set is exactly one batch of magic 2, whole, with base offset 0, as many records as it says, no
  control batch, and a CRC that matches. The records are counted, compressed ones after a bounded decompression, and
  looked into only where a rule needs it (keys of compacted topics, timestamps outside the topic's range).
- A repeat of a remembered batch is answered with its first offset; nothing is written.
- With one replica everything stored is committed: the high watermark is the end offset. Without transactions the
  last stable offset is, too.
- This class decides, a `Segments` stores: it is handed in, so nothing here knows of files.

Source: UnifiedLog.java (analyzeAndValidateRecords, append), LogValidator.java, ProduceRequest.java (validateRecords).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crc32c import crc32c

from ottla.brokerlite.machines.epochs import LeaderEpochs
from ottla.brokerlite.machines.producers import Producers
from ottla.codec.compression import Compression
from ottla.codec.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
    parse_batch,
    rebased,
    records_end,
)
from ottla.codec.stored.indexes import AbortedTxn
from ottla.codec.wire import Buffer
from ottla.errors import (
    CorruptMessage,
    DecodeError,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnsupportedCompressionType,
)

ZSTD_SINCE = 7
"""The version of Produce and, in Kafka, of brokers that knew zstd."""
DECOMPRESSED_LIMIT = 64 * 2**20
"""Bytes that the records of one batch may take; what claims more is refused."""
MAX_RELATIVE_OFFSET = 2**31 - 1
"""Indexes hold offsets relative to the segment's first, in 32 bits."""

_CRC = slice(17, 21)
_ATTRIBUTES = slice(21, 23)
_MAX_TIMESTAMP = slice(35, 43)
_LOG_APPEND_TIME = 0x08
_NOTHING = memoryview(b"")


class Segments(Protocol):
    """Where a partition's batches are kept, in order and in segments; the last segment is the active one."""

    @property
    def epochs(self) -> LeaderEpochs: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """One past the last record."""

    @property
    def active_base_offset(self) -> int: ...

    @property
    def active_size(self) -> int:
        """Bytes of the active segment."""

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        """Store a batch at the end.

        Raises:
            KafkaStorageError: the disk refused; nothing is stored.
        """

    def roll(self, producers: Producers) -> None:
        """Begin a new active segment at the end offset; keep ``producers`` as they are there.

        Raises:
            KafkaStorageError: the disk refused; the segment goes on.
        """

    @property
    def synced_offset(self) -> int:
        """What lies before this offset is on the disk, not merely in the page cache."""

    def set_start_offset(self, offset: int) -> None:
        """Have no records before ``offset``; a lower one than `start_offset` changes nothing.

        Segments that lie wholly before it are removed, as soon as the disk holds what comes after them.
        """

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Note that a transaction was aborted; its marker, at ``entry.last_offset``, is the last batch stored.

        Raises:
            KafkaStorageError: the disk refused; nothing is noted.
        """

    def aborted(self, first_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions that a reader from ``first_offset`` to before ``upper_bound`` needs to know.

        Source: LogSegment.java and LocalLog.java (collectAbortedTransactions).

        Raises:
            KafkaStorageError: the disk refused.
        """

    def read(self, offset: int, max_bytes: int, at_least_one: bool, up_to: int | None = None) -> memoryview:
        """The bytes from the batch that holds ``offset`` on, or from the next if none does; of one segment.

        CRCs are not compared: readers do. The memory is used again when nobody holds the view, or a part of it.

        Args:
            max_bytes: no more than this; the last batch may be cut.
            at_least_one: the first batch is whole, even if it is larger.
            up_to: an offset; batches that begin there or behind it are not given.

        Raises:
            CorruptMessage: what holds ``offset`` is damaged beyond that.
            KafkaStorageError: the disk refused.
        """

    def batches(self) -> Iterator[RecordBatch]:
        """Every whole batch; what lies between them is told in the log.

        Raises:
            KafkaStorageError: the disk refused.
        """

    def batches_since(self, timestamp: int) -> Iterator[RecordBatch]:
        """The batches whose largest timestamp is ``timestamp`` (milliseconds) or later, in order.

        Raises:
            KafkaStorageError: the disk refused.
        """

    @property
    def max_timestamp(self) -> int:
        """The largest in the log, in milliseconds; -1 for none."""


class InvalidRecords(InvalidRecord):
    """Some records of the batch are not what the topic takes.

    Attributes:
        indexes: which, counted within the batch.
    """

    def __init__(self, detail: str, indexes: tuple[int, ...]) -> None:
        super().__init__(detail)
        self.indexes = indexes


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What a topic's configuration says to its partitions; bytes and milliseconds."""

    compacted: bool = False
    max_message_bytes: int = 2**20 + 12
    segment_bytes: int = 2**30
    log_append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3600 * 1000


class Appended(NamedTuple):
    """Where a batch is stored."""

    base_offset: int
    append_time: int
    """When, in milliseconds, if the topic stamps records; otherwise -1."""
    size: int
    """Bytes that were added; 0 for a repeat."""


class PartitionLog:
    """One partition's log.

    Attributes:
        name: ``topic-partition``, for messages.
        settings: may be replaced at any time.
    """

    def __init__(
        self, name: str, segments: Segments, producers: Producers | None = None, settings: LogSettings | None = None
    ) -> None:
        self.name = name
        self.settings = settings or LogSettings()
        self.producers = producers or Producers()
        self._segments = segments

    @property
    def epochs(self) -> LeaderEpochs:
        return self._segments.epochs

    @property
    def start_offset(self) -> int:
        return self._segments.start_offset

    @property
    def end_offset(self) -> int:
        return self._segments.end_offset

    @property
    def high_watermark(self) -> int:
        return self._segments.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self._segments.end_offset

    def append(self, records: Buffer | None, *, version: int, timestamp: int) -> Appended:
        """Store a produced record set, and return where.

        Args:
            version: of the Produce request.
            timestamp: the time, in milliseconds since 1970.

        Raises:
            InvalidRecord: the record set breaks a rule (`InvalidRecords`: some of its records do).
            CorruptMessage: the CRC does not match.
            MessageTooLarge, RecordListTooLarge: the batch is larger than the topic takes, than a segment may be.
            UnsupportedCompressionType: zstd from a client too old for it.
            InvalidTimestamp: the timestamps are outside what the topic takes, or it should set them itself.
            InvalidTxnState: the batch is part of a transaction.
            InvalidProducerEpoch, OutOfOrderSequenceNumber: see `Producers`.
            KafkaStorageError: the disk refused.
        """
        batch = self._only_batch(records, version)
        self._check_records(batch, timestamp)
        stamp = timestamp if self.settings.log_append_time else -1
        if batch.producer_id >= 0:
            if (stored := self.producers.duplicate(batch)) is not None:
                return Appended(stored.first_offset, stored.timestamp if stamp >= 0 else -1, 0)
            self.producers.check(batch)
        data = batch.data if stamp < 0 else _stamped(batch.data, stamp)
        self._roll_if_full(len(data), batch.last_offset_delta)
        base_offset = self.end_offset
        stored_bytes = rebased(data, base_offset, self.epochs.current)
        max_timestamp = batch.max_timestamp if stamp < 0 else stamp
        self._segments.append(stored_bytes, base_offset + batch.last_offset_delta, max_timestamp)
        if batch.producer_id >= 0:
            self.producers.record(parse_batch(stored_bytes))
        return Appended(base_offset, stamp, len(stored_bytes))

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = False, up_to: int | None = None) -> memoryview:
        """Batches from the one that holds ``offset`` on; the last may be cut short.

        Args:
            max_bytes, at_least_one: with 0 and without it nothing is read.
            up_to: an offset; batches that begin there or behind it are not given.

        Raises:
            OffsetOutOfRange: ``offset`` is before the start or behind the end.
            CorruptMessage, KafkaStorageError: as `Segments.read`.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not within {self.start_offset} to {self.end_offset} of {self.name}")
        if offset == min(self.end_offset, self.end_offset if up_to is None else up_to):
            return _NOTHING
        if max_bytes <= 0 and not at_least_one:
            return _NOTHING
        return self._segments.read(offset, max_bytes, at_least_one, up_to)

    def batches(self) -> Iterator[RecordBatch]:
        """As `Segments.batches`."""
        return self._segments.batches()

    def divergence(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Whether a reader that came to ``offset``, with a last record of ``epoch`` (-1: unknown), read what is not in
        this log any more: the epoch and the offset up to which both have the same, or ``None``.

        Raises:
            OffsetOutOfRange: there is no telling.
        """
        if epoch < 0:
            return None
        known, end = self.epochs.end_of(epoch, self.end_offset)
        if end < 0:
            raise OffsetOutOfRange(f"{self.name} has no leader epoch {epoch}, nor a later one")
        return (known, end) if known < epoch or end < offset else None

    def roll(self) -> None:
        """Begin a segment.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if self._segments.active_size:
            self._segments.roll(self.producers)

    def forget(self, offset: int) -> None:
        """As `Segments.set_start_offset`."""
        self._segments.set_start_offset(offset)

    def in_active_segment(self, offset: int) -> bool:
        """Whether more may yet come behind what a read at ``offset`` gives."""
        return offset >= self._segments.active_base_offset

    def first_at(self, timestamp: int) -> Record | None:
        """The first record whose timestamp is ``timestamp`` (milliseconds) or later."""
        start = self.start_offset
        return next(
            (
                record
                for batch in self._segments.batches_since(timestamp)
                if batch.last_offset >= start
                for record in batch.records()
                if record.timestamp >= timestamp and record.offset >= start
            ),
            None,
        )

    def of_max_timestamp(self) -> Record | None:
        """The first record with the largest timestamp."""
        largest = self._segments.max_timestamp
        return self.first_at(largest) if largest >= 0 else None

    def _only_batch(self, records: Buffer | None, version: int) -> RecordBatch:
        batches = list(_whole_batches(records or b""))
        if len(batches) != 1:
            raise InvalidRecord(f"the record set of {self.name} has {len(batches)} batches instead of one")
        batch = batches[0]
        if batch.compression == Compression.ZSTD and version < ZSTD_SINCE:
            raise UnsupportedCompressionType(f"zstd needs Produce v{ZSTD_SINCE}, and this is v{version}")
        if batch.base_offset != 0:
            raise InvalidRecord(f"the base offset is {batch.base_offset} instead of 0")
        if len(batch.data) > self.settings.max_message_bytes:
            raise MessageTooLarge(
                f"{len(batch.data)} bytes; {self.name} takes batches of {self.settings.max_message_bytes}"
            )
        if not batch.crc_matches:
            raise CorruptMessage(f"the CRC of a batch for {self.name} does not match")
        if len(batch.data) > self.settings.segment_bytes:
            raise RecordListTooLarge(
                f"{len(batch.data)} bytes; segments of {self.name} have {self.settings.segment_bytes}"
            )
        return batch

    def _check_records(self, batch: RecordBatch, timestamp: int) -> None:
        if not 0 < batch.count == batch.last_offset_delta + 1:
            raise InvalidRecord(f"{batch.count} records, the last with offset {batch.last_offset_delta}")
        if batch.control:
            raise InvalidRecord("control records are the broker's to write")
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            raise InvalidRecord(f"sequence {batch.base_sequence} of producer {batch.producer_id}")
        if batch.transactional:
            raise InvalidTxnState("this broker has no transactions yet")
        if batch.log_append_time:
            raise InvalidTimestamp("LogAppendTime is the broker's to set")
        try:
            _count_records(batch)
            self._check_each(batch, timestamp)
        except DecodeError as error:
            raise InvalidRecord(str(error)) from None

    def _check_each(self, batch: RecordBatch, timestamp: int) -> None:
        """The rules that need the records themselves, where the header leaves a doubt."""
        settings = self.settings
        if settings.compacted:
            keyless = tuple(i for i, record in enumerate(batch.records(DECOMPRESSED_LIMIT)) if record.key is None)
            if keyless:
                raise InvalidRecords(f"{self.name} is compacted and takes no record without a key", keyless)
        if settings.log_append_time:
            return
        latest = timestamp + settings.timestamp_after_max_ms
        earliest = timestamp - settings.timestamp_before_max_ms
        if batch.max_timestamp <= latest and earliest <= 0:
            return
        for record in batch.records(DECOMPRESSED_LIMIT):
            if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
                raise InvalidTimestamp(f"{record.timestamp} is not within {earliest} to {latest}")

    def _roll_if_full(self, size: int, last_offset_delta: int) -> None:
        segments = self._segments
        last = segments.end_offset + last_offset_delta - segments.active_base_offset
        if segments.active_size and (
            segments.active_size > self.settings.segment_bytes - size or last > MAX_RELATIVE_OFFSET
        ):
            segments.roll(self.producers)


def _whole_batches(records: Buffer) -> Iterator[RecordBatch]:
    """The batches of a produced record set; bytes that are no whole batch at its end are left out, as Kafka does."""
    position = 0
    while len(records) - position >= HEADER_SIZE:
        magic = records[position + 16]
        if magic != MAGIC:
            raise InvalidRecord(f"record format (magic) {magic} instead of {MAGIC}")
        size = LENGTH_END + int.from_bytes(records[position + 8 : position + LENGTH_END], "big", signed=True)
        if size < HEADER_SIZE:
            raise CorruptMessage(f"a batch of {size} bytes")
        if size > len(records) - position:
            return
        yield parse_batch(records, position)
        position += size


def _stamped(data: memoryview, timestamp: int) -> bytes:
    """The batch as a topic with LogAppendTime keeps it."""
    batch = bytearray(data)
    attributes = int.from_bytes(batch[_ATTRIBUTES], "big") | _LOG_APPEND_TIME
    batch[_ATTRIBUTES] = attributes.to_bytes(2, "big")
    batch[_MAX_TIMESTAMP] = timestamp.to_bytes(8, "big", signed=True)
    batch[_CRC] = crc32c(memoryview(batch)[_CRC.stop :]).to_bytes(4, "big")
    return bytes(batch)


def _count_records(batch: RecordBatch) -> None:
    """Step from record to record by their lengths alone.

    Raises:
        DecodeError: they are not as many as the batch says, or do not end where it does.
    """
    body = batch.body(DECOMPRESSED_LIMIT)
    end = records_end(body, batch.count)
    if end < 0:
        raise DecodeError(f"the batch ends before its {batch.count} records do")
    if end != len(body):
        raise DecodeError(f"the {batch.count} records do not end where the batch does")
