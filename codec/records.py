"""Record batches (magic 2): the declaration, and the classes around the loops over records.

A batch is a header (`BatchHeader`) and the records (each a `RecordBody` after its length), which may be compressed
together. Only for records does the declaration not run itself: the loops in `ottla.codec._loops` (Python) and
`ottla.codec._records` (C) are written by hand, and the tests compare them with the declaration. If the loops find
damage, the declaration parses that record again and describes the error.

    data ──read_batches──► RecordBatch ──records()──► Records ──Columns.of──► Columns
                                └──────────────read_columns──────────────────────┘
    BatchBuilder ◄──append, extend, extend_columns── records         ──build──► bytes

Rules:
- The CRC covers everything from `attributes` on. `base_offset` and `partition_leader_epoch` come before it, so that a
  broker can set them without touching the rest.
- Offsets and timestamps of records are deltas to the batch's; with LogAppendTime every record has `max_timestamp`.
- `read_batches` stops silently before a truncated last batch, because a Fetch response may end in one.
- A batch takes at most ``limit`` bytes of memory: for the decompressed bytes, and for records and headers as objects.
  Uncompressed bytes are not counted, because their sender has sent all of them.
- The caller has to limit what several batches take together, and has `memory_bound` for it.
- `Records` are checked as a whole when a batch is opened; iterating over them never raises.
- An error names the batch's base offset and a byte: of the batch, or of its decompressed records.

Source: DefaultRecordBatch.java, DefaultRecord.java; KIP-534 for the delete horizon.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, overload

from ottla.codec import wire
from ottla.codec._engine import ENGINE
from ottla.codec._loops import (
    BEYOND,
    HEADER_SIZE,
    LEAST_RECORD,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    RECORD_MEMORY,
    DamagedRecord,
    TooMuchMemory,
    check_bytes,
)
from ottla.codec.checksums import crc32c
from ottla.codec.columns import BinaryColumn, Columns, HeaderColumn, laid_out
from ottla.codec.compression import (
    DECOMPRESSED,
    DECOMPRESSED_LIMIT,
    Compression,
    compress,
    decompress,
    decompressed_bound,
)
from ottla.codec.layout import Headers
from ottla.codec.messages import build, parse
from ottla.codec.ops import LETTERS
from ottla.codec.program import program
from ottla.codec.wire import Buffer, Int8, Int16, Int32, Int64, UInt32, VarArray, VarBytes, VarInt, VarLong, VarString
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError, MemoryLimitExceeded

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import (
        Appender,
        BatchHead,
        Record,
        Records,
        count_keys,
        lay_out,
        read_heads,
        scan_keys,
        scan_records,
    )
else:
    from ottla.codec._records import (
        Appender,
        BatchHead,
        Record,
        Records,
        count_keys,
        lay_out,
        read_heads,
        scan_keys,
        scan_records,
    )

__all__ = [
    "BEYOND",
    "HEADER_SIZE",
    "LENGTH_END",
    "MAGIC",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "Appender",
    "BatchBuilder",
    "BatchHeader",
    "BinaryColumn",
    "Columns",
    "HeaderColumn",
    "Headers",
    "Record",
    "RecordBatch",
    "RecordBody",
    "RecordHeader",
    "RecordLength",
    "Records",
    "build_batch",
    "check_bytes",
    "count_keys",
    "parse_batch",
    "read_batches",
    "read_columns",
    "rebased",
    "scan_keys",
    "scan_records",
]

MAGIC = 2
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1


@wire.message(versions="2")
class BatchHeader:
    """The fields before the records of a batch."""

    base_offset: int = wire.wire(Int64)
    """Offset of the first record; the broker sets it."""
    length: int = wire.wire(Int32)
    """Bytes of the batch after this field."""
    partition_leader_epoch: int = wire.wire(Int32)
    """Epoch of the leader that appended the batch; the broker sets it."""
    magic: int = wire.wire(Int8)
    """2. The older formats have their magic at the same position."""
    crc: int = wire.wire(UInt32)
    """CRC-32C of everything after it."""
    attributes: int = wire.wire(Int16)
    """Bits 0-2: compression; 3: LogAppendTime; 4: transactional; 5: control; 6: `base_timestamp` is a delete horizon"""
    last_offset_delta: int = wire.wire(Int32)
    """From `base_offset` to the last record of the original batch; compaction may have removed that record."""
    base_timestamp: int = wire.wire(Int64)
    """Base of the records' timestamps: the timestamp of the first record, unless bit 6 is set."""
    max_timestamp: int = wire.wire(Int64)
    """The largest timestamp; with LogAppendTime the timestamp of every record."""
    producer_id: int = wire.wire(Int64)
    """-1 if the producer is not idempotent."""
    producer_epoch: int = wire.wire(Int16)
    base_sequence: int = wire.wire(Int32)
    """Sequence of the first record; -1 if the producer is not idempotent."""
    count: int = wire.wire(Int32)
    """Number of records that follow."""


@wire.struct
class RecordHeader:
    key: str = wire.wire(VarString)
    value: bytes | None = wire.wire(VarBytes, null="0+")


@wire.message(versions="2")
class RecordLength:
    """The length before each record."""

    length: int = wire.wire(VarInt)
    """Bytes of the `RecordBody` that follows."""


@wire.message(versions="2")
class RecordBody:
    """A record of a batch."""

    attributes: int = wire.wire(Int8)
    """Unused, 0."""
    timestamp_delta: int = wire.wire(VarLong)
    offset_delta: int = wire.wire(VarInt)
    key: bytes | None = wire.wire(VarBytes, null="0+")
    value: bytes | None = wire.wire(VarBytes, null="0+")
    headers: tuple[RecordHeader, ...] = wire.wire(VarArray(RecordHeader))


@wire.struct
class _RawRecordHeader:
    key: bytes = wire.wire(VarBytes)
    value: bytes | None = wire.wire(VarBytes, null="0+")


@wire.message(versions="2")
class _RawRecordBody:
    """A `RecordBody` with any bytes as header names."""

    attributes: int = wire.wire(Int8)
    timestamp_delta: int = wire.wire(VarLong)
    offset_delta: int = wire.wire(VarInt)
    key: bytes | None = wire.wire(VarBytes, null="0+")
    value: bytes | None = wire.wire(VarBytes, null="0+")
    headers: tuple[_RawRecordHeader, ...] = wire.wire(VarArray(_RawRecordHeader))


_FIELDS = program(BatchHeader, 2).fields


def _end_of(field: str) -> int:
    """Return the position at which a field of `BatchHeader` ends."""
    index = [name for name, _ in _FIELDS].index(field)
    return sum(op.least for _, op in _FIELDS[: index + 1])


def _packer(start: int, stop: int) -> struct.Struct:
    """Return a `struct` for the fields of `BatchHeader` between two positions."""
    return struct.Struct(">" + "".join(LETTERS[op.code] for name, op in _FIELDS if start < _end_of(name) <= stop))


LENGTH_END = _end_of("length")
"""The length field counts the bytes from this position on."""
_EPOCH_END = _MAGIC_AT = _end_of("partition_leader_epoch")
_CRC_END = _end_of("crc")
CRC_AT = _CRC_END - 4
_ATTRIBUTES_AT, _COUNT_AT = _CRC_END, HEADER_SIZE - 4
_BEFORE_MAGIC, _BEFORE_CRC = _packer(0, _MAGIC_AT), _packer(0, _CRC_END)
_BEHIND_CRC = _packer(_CRC_END, HEADER_SIZE)
COMPRESSION_MASK = 0x07
DELETE_HORIZON = 0x40
"""Bits of `attributes`."""
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_INT32_MAX = (1 << 31) - 1
_BATCH_MEMORY = 512
"""Bytes of memory that an opened batch takes at least."""
_MEMORY_PER_RECORD = 224 if ENGINE == "python" else 160
"""Bytes of memory for each record besides those for its body: its position, the `Record`, and its columns."""
_MEMORY_PER_BYTE = 40 if ENGINE == "python" else 6
"""Bytes of memory for each byte of records, at most. In C: the body, a copy in columns, and there eight bytes for each
header, which has at least two bytes. Python makes objects of the headers when it opens a batch."""
_EXPLAINED = 64 * 2**10
"""The largest damaged record, in bytes, for which an error says where the damage is: parsing makes an object of each
header."""
_CHANGED = "the bytes have changed while they were read"
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class RecordBatch(BatchHead):
    """The fields of a `BatchHeader`, and the bytes of the batch in `data` (header included)."""

    __slots__ = ()

    def __repr__(self) -> str:
        names = (name for name, _ in _FIELDS if hasattr(self, name))
        return f"RecordBatch({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    @property
    def parts(self) -> tuple[bytes, Buffer]:
        """The batch as a log stores it, in two parts: with this object's `base_offset` and `partition_leader_epoch`,
        which may differ from the ones in `data`. The CRC does not cover them."""
        head = _BEFORE_MAGIC.pack(self.base_offset, len(self.data) - LENGTH_END, self.partition_leader_epoch)
        return head, self.data[_MAGIC_AT:]

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset at which the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2**31 - 1 to 0. -1 if the batch has no sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Number of a `Compression`; 5 to 7 are undefined."""
        return self.attributes & COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker set the timestamps of the records (otherwise the producer did: CreateTime)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch holds control records, like a transaction marker, and so no records of a user."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may remove the batch's tombstones or marker, in ms since 1970; ``None`` if it is not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def crc_matches(self) -> bool:
        """Whether the CRC matches the bytes."""
        return crc32c(self.data[_CRC_END:]) == self.crc

    def check_crc(self, at: int = 0) -> None:
        """Compare the CRC with the bytes.

        Args:
            at: where the batch begins; the offset in the error includes it.

        Raises:
            ChecksumMismatch: the CRC does not match the bytes.
        """
        if (computed := crc32c(self.data[_CRC_END:])) != self.crc:
            raise ChecksumMismatch(self.crc, computed, "RecordBatch.crc", at + CRC_AT, self._name)

    @property
    def _name(self) -> str:
        """The batch's name in errors."""
        return f"batch at offset {self.base_offset}"

    def records(self, limit: int = DECOMPRESSED_LIMIT, most: int | None = None, *, any_names: bool = False) -> Records:
        """Decompress and check the records.

        Args:
            limit: bytes that they may take, decompressed and as objects.
            most: bytes to decompress at most, if ``limit`` would allow more.
            any_names: accept any bytes as names of headers, as brokers do. Invalid UTF-8 becomes U+FFFD, as in Java
                clients. Otherwise such a record counts as damaged.

        Raises:
            DecodeError: they are damaged, or their number is not `count`.
            MemoryLimitExceeded: they would take more than ``limit``.
        """
        body, room = self._opened(limit, most)
        try:
            return self._parse(body, room, limit)
        except DamagedRecord as damaged:
            if any_names and (legible := self._with_legible_names(bytes(body))) is not None:
                with suppress(DamagedRecord):
                    return self._parse(legible, room - (len(legible) - len(body)), limit)
            raise self.in_records(self._explained(bytes(body), damaged.row, damaged.at)) from None

    def _parse(self, body: Buffer, room: int, limit: int) -> Records:
        try:
            return self.parse(body, room)
        except TooMuchMemory:
            raise self._too_much("records with their headers", limit) from None

    def _with_legible_names(self, body: bytes) -> bytes | None:
        """Return ``body`` with U+FFFD for invalid UTF-8 in the names of headers; ``None`` if it has other damage."""
        parts, at = [], 0
        try:
            for _ in range(self.count):
                head, size = parse(RecordLength, 2, body[at : at + 5])
                start, at = at + size, at + size + head.length
                raw, size = parse(_RawRecordBody, 2, body[start:at])
                if size != head.length:
                    return None
                headers = (
                    RecordHeader(key=each.key.decode(errors="replace"), value=each.value) for each in raw.headers
                )
                fields = {name: getattr(raw, name) for name, _ in program(_RawRecordBody, 2).fields}
                record = build(RecordBody(**fields | {"headers": tuple(headers)}), 2)
                parts += [build(RecordLength(length=len(record)), 2), record]
        except DecodeError:
            return None
        return b"".join(parts) if at == len(body) else None

    def body(self, limit: int = DECOMPRESSED_LIMIT, most: int | None = None) -> Buffer:
        """Return the bytes of the records, decompressed but not parsed.

        Args:
            limit, most: see `records`.

        Raises:
            DecodeError: see `records`.
        """
        return self._opened(limit, most)[0]

    def _opened(self, limit: int, most: int | None = None) -> tuple[Buffer, int]:
        """Return the bytes of the records, and how much of ``limit`` is left for their headers."""
        if self.attributes & COMPRESSION_MASK:
            body = self._decompressed(limit if most is None else min(most, limit))
            room = limit - len(body)
        else:
            body, room = self.data[HEADER_SIZE:], limit
        count = self.count
        if not 0 <= count * LEAST_RECORD <= len(body) <= _INT32_MAX:
            raise DecodeError(f"{count} records in {len(body)} bytes", "RecordBatch.count", _COUNT_AT, self._name)
        room -= count * RECORD_MEMORY
        if room < 0:
            raise self._too_much("records", limit)
        return body, room

    @property
    def memory_bound(self) -> int:
        """Bytes of memory that the records may take, opened and as objects and columns, all at once.

        Computed from sizes in the headers (`decompressed_bound`), without decompressing; often a few times the actual
        memory.
        """
        size = len(self.data) - HEADER_SIZE
        if self.attributes & COMPRESSION_MASK:
            size = decompressed_bound(self.compression, self.data[HEADER_SIZE:])
        return memory_of(size, min(max(self.count, 0), size // LEAST_RECORD))

    def _decompressed(self, limit: int) -> Buffer:
        try:
            return decompress(self.compression, self.data[HEADER_SIZE:], limit)
        except DecodeError as error:
            known = self.compression in list(Compression)
            path, at = ("RecordBatch.records", HEADER_SIZE) if known else ("RecordBatch.attributes", _ATTRIBUTES_AT)
            raise type(error)(error.reason, path, at, self._name) from None

    def _too_much(self, what: str, limit: int) -> DecodeError:
        reason = f"{self.count} {what} would take more memory than the limit of {limit} bytes"
        return MemoryLimitExceeded(reason, "RecordBatch.records", HEADER_SIZE, self._name)

    def columns(self, limit: int = DECOMPRESSED_LIMIT) -> Columns:
        """Return the records, decompressed, field by field. For arguments and errors see `records`."""
        return read_columns((self,), limit=limit)

    def in_records(self, error: DecodeError) -> DecodeError:
        """Return an error about the decompressed records as an error about this batch."""
        path = f"RecordBatch.{error.path}"
        if self.compression == Compression.NONE:
            return DecodeError(error.reason, path, HEADER_SIZE + error.offset, self._name)
        return DecodeError(error.reason, path, error.offset, f"{DECOMPRESSED} records of the {self._name}")

    def _explained(self, body: bytes, row: int, at: int) -> DecodeError:
        """Describe the error in record ``row``, the first damaged one, which begins at ``body[at]``."""
        if row == self.count:
            return DecodeError(f"{len(body) - at} bytes after the last of {row} records", "records", at)
        path, start = f"records[{row}]", at
        try:
            head, size = parse(RecordLength, 2, body[at : at + 5])
            start += size
            if not 0 <= head.length <= len(body) - start:
                return DecodeError(f"record of {head.length} bytes with {len(body) - start} left", path, at)
            if head.length > _EXPLAINED:
                return DecodeError(f"record of {head.length} bytes is damaged", path, at)
            read, size = parse(RecordBody, 2, body[start : start + head.length])
        except DecodeError as error:
            _, dot, field = error.path.partition(".")
            return DecodeError(error.reason, path + dot + field, start + error.offset)
        if size != head.length:
            return DecodeError(f"record of {head.length} bytes ends after {size}", path, start + size)
        if not _INT64_MIN <= self.base_offset + read.offset_delta <= _INT64_MAX:
            return DecodeError("the offset does not fit 64 bits", f"{path}.offset_delta", start)
        if not self.log_append_time and not _INT64_MIN <= self.base_timestamp + read.timestamp_delta <= _INT64_MAX:
            return DecodeError("the timestamp does not fit 64 bits", f"{path}.timestamp_delta", start)
        return DecodeError(_CHANGED, path, start)


def memory_of(size: int, count: int) -> int:
    """Return the memory of ``count`` records with a body of ``size`` bytes: opened, and as objects and columns."""
    return _BATCH_MEMORY + _MEMORY_PER_BYTE * size + _MEMORY_PER_RECORD * count


def parse_batch(data: Buffer, offset: int = 0) -> RecordBatch:
    """Parse the batch that begins at ``data[offset]``, without checking its CRC.

    Raises:
        DecodeError: the batch is truncated, or not a batch of magic 2.
        ValueError: ``offset`` is outside ``data``.
    """
    view, batch = memoryview(data), RecordBatch()
    if not 0 <= offset <= len(view):
        raise ValueError(f"offset {offset} lies outside of the {len(view)} bytes")
    if not batch.read(view, offset):
        raise _no_batch(view, offset)
    return batch


def _no_batch(data: memoryview, offset: int) -> DecodeError:
    """Say why no complete batch begins at ``data[offset]``."""
    left = len(data) - offset
    if left > _MAGIC_AT and (magic := data[offset + _MAGIC_AT]) != MAGIC:
        old = "; read message sets, from before Kafka 0.11, with ottla.codec.message_sets" if magic < MAGIC else ""
        reason = f"record format (magic) {magic} instead of {MAGIC}{old}"
        return DecodeError(reason, "RecordBatch.magic", offset + _MAGIC_AT)
    if left < HEADER_SIZE:
        return DecodeError(f"{left} bytes are too few for a record batch", "RecordBatch", offset)
    size = _length_at(data, offset) + LENGTH_END
    return DecodeError(f"batch of {size} bytes with {left} left", "RecordBatch.length", offset + LENGTH_END - 4)


def _length_at(data: memoryview, offset: int) -> int:
    return int.from_bytes(data[offset + LENGTH_END - 4 : offset + LENGTH_END], "big", signed=True)


def read_batches(data: Buffer, *, verify: bool = True) -> Iterator[RecordBatch]:
    """Yield the batches of a record set, without a truncated one at the end.

    Args:
        verify: check each CRC.

    Raises:
        ChecksumMismatch: a CRC does not match; the error's offset counts in ``data``.
        DecodeError: the bytes where a batch should begin are not a batch of magic 2.
    """
    view, offset = memoryview(data), 0
    while True:
        batch = RecordBatch()
        if not batch.read(view, offset):
            break
        if verify:
            batch.check_crc(offset)
        yield batch
        offset += len(batch.data)
    left = len(view) - offset
    torn = left > _MAGIC_AT and view[offset + _MAGIC_AT] == MAGIC and _length_at(view, offset) > left - LENGTH_END
    if left > _MAGIC_AT and not torn:
        raise _no_batch(view, offset)


def read_plain(data: Buffer, offset: int, *, transactional: bool) -> tuple[list[RecordBatch], int]:
    """Return the batches at the start of a record set that need no special treatment, and where they end, in bytes. No
    CRC is checked.

    Stops at the first batch that ends before ``offset``, overlaps with the previous one, is a control batch or, unless
    ``transactional``, belongs to a transaction; also at an older format, a truncated batch, or anything else.
    """
    mask = _CONTROL if transactional else _CONTROL | _TRANSACTIONAL
    return read_heads(RecordBatch, memoryview(data), offset, mask)


def read_columns(batches: Iterable[RecordBatch], start: int | None = None, limit: int = DECOMPRESSED_LIMIT) -> Columns:
    """Return the records of ``batches``, field by field. Faster than `Columns.of` with their `records`.

    Args:
        start: leave out records with lower offsets.
        limit: bytes that the records of each batch may take, decompressed and as objects.

    Raises:
        DecodeError: a batch is damaged.
        MemoryLimitExceeded: a batch would take more than ``limit``.
        LocalProtocolError: a column would take more than 2 GiB: pass fewer batches at a time.
    """
    batches, start = list(batches), -BEYOND if start is None else min(max(start, -BEYOND), BEYOND - 1)
    try:
        return laid_out(lay_out(batches, [each._opened(limit) for each in batches], start))
    except (DamagedRecord, TooMuchMemory, DecodeError):
        for each in batches:
            each.records(limit)  # raises the error of the first damaged batch
        raise DecodeError(_CHANGED, "RecordBatch.records") from None


def rebased(batch: Buffer, base_offset: int, partition_leader_epoch: int) -> bytes:
    """Return ``batch`` as a log stores it: with its offset and leader epoch, which the CRC does not cover.

    Raises:
        EncodeError: the offset or the epoch is out of range.
    """
    if not 0 <= base_offset <= _INT64_MAX:
        raise EncodeError(f"the offset {base_offset} is not between 0 and 2**63 - 1")
    if not -1 <= partition_leader_epoch <= _INT32_MAX:
        raise EncodeError(f"the leader epoch {partition_leader_epoch} is not between 0 and 2**31 - 1, or -1 for none")
    head = base_offset.to_bytes(8, "big") + bytes(memoryview(batch)[8:LENGTH_END])
    return b"".join((head, partition_leader_epoch.to_bytes(4, "big", signed=True), memoryview(batch)[16:]))


def build_header(body: Buffer, base_offset: int, partition_leader_epoch: int, fields: tuple[int, ...]) -> bytes:
    """Build the header for ``body``, the records as stored; ``fields`` are the fields of `BatchHeader` after `crc`.

    Raises:
        EncodeError: a number does not fit its field.
    """
    try:
        covered = _BEHIND_CRC.pack(*fields)
        crc = crc32c(body, crc32c(covered))
        length = HEADER_SIZE - LENGTH_END + len(body)
        return _BEFORE_CRC.pack(base_offset, length, partition_leader_epoch, MAGIC, crc) + covered
    except struct.error as error:
        raise EncodeError(f"a field of the batch header does not fit: {error}") from None


class BatchBuilder(Appender):
    """Collects records and builds one batch of them."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Size of the batch before compression, in bytes."""
        return HEADER_SIZE + len(self.body)

    @overload
    def extend_columns(self, columns: Columns, /) -> int: ...
    @overload
    def extend_columns(
        self, timestamps: Buffer, keys: BinaryColumn, values: BinaryColumn, headers: HeaderColumn | None = None
    ) -> int: ...
    def extend_columns(
        self,
        timestamps: Columns | Buffer,
        keys: BinaryColumn | None = None,
        values: BinaryColumn | None = None,
        headers: HeaderColumn | None = None,
    ) -> int:
        """Add a record for each row of some columns, or none if one does not fit; return the index of the first.

        Args:
            timestamps: 64-bit integers, in milliseconds since 1970. Or `Columns`, instead of all arguments; their
                offsets are ignored.

        Raises:
            EncodeError: the columns do not fit together, or see `append`.
        """
        if isinstance(timestamps, Columns):
            if (keys, values, headers) != (None, None, None):
                raise TypeError("pass Columns alone: they have keys, values and headers")
            columns = timestamps
            return super().extend_columns(columns.timestamps, columns.keys, columns.values, columns.headers_if_any)
        if keys is None or values is None:
            raise TypeError("pass keys and values too, or Columns")
        return super().extend_columns(timestamps, keys, values, headers)

    def build(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        partition_leader_epoch: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytes:
        """Return the batch's bytes.

        Raises:
            EncodeError: a number does not fit its field, or the records do not fit the 2 GiB of a batch; the
                compression or level does not exist (NONE has no levels); a sequence is given, but there are no records.
        """
        ids = producer_id, producer_epoch, base_sequence
        kind = (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
        return b"".join(self._parts(compression, level, ids, kind, base_offset, partition_leader_epoch))

    def build_in_place(
        self,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> Buffer:
        """Build as `build` does, but from one thread only, and without copying uncompressed records.

        As long as the caller holds such a result, no record can be added. Results returned before never change. Raises
        as `build`.
        """
        kind = _TRANSACTIONAL if transactional else 0
        header, body = self._parts(compression, level, (producer_id, producer_epoch, base_sequence), kind)
        if compression != Compression.NONE:
            return b"".join((header, body))
        if isinstance(body, memoryview):
            body.release()  # an open view of the records would force a copy
        return self._seal(header)

    def _parts(
        self,
        compression: Compression,
        level: int | None,
        ids: tuple[int, int, int],
        kind: int = 0,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
    ) -> tuple[bytes, Buffer]:
        """Return the header and the rest; ``ids`` are the producer's id and epoch, and the first sequence."""
        producer_id, producer_epoch, base_sequence = ids
        body: Buffer = self.body
        if len(body) > _INT32_MAX - HEADER_SIZE:
            raise EncodeError(f"{len(body)} bytes of records exceed the 2 GiB of a batch")
        if self.count == 0 and base_sequence != NO_SEQUENCE:
            raise EncodeError(f"a sequence ({base_sequence}) for a batch without records")
        if compression != Compression.NONE or level is not None:
            body = compress(compression, body, level)
        fields = (
            compression | kind,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        return build_header(body, base_offset, partition_leader_epoch, fields), body


def build_batch(records: Iterable[Record], *, compression: Compression = Compression.NONE) -> bytes:
    """Build one batch of ``records``, numbered from offset 0."""
    builder = BatchBuilder()
    builder.extend(records)
    return builder.build(compression=compression)
