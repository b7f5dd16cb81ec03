"""Record batches (magic 2): the declaration, and the classes around the loops over records.

A batch is a header (`BatchHeader`) and the records (`RecordBody`, each behind its length), compressed together or not.
The records' loops are the one place where the declaration is not what runs: `ottla.codec._loops`, in Python, and
`ottla.codec._records`, in C, are written by hand, and the tests prove them equal to it. It has the last word all the
same: what the loops find damaged, it explains.

    data ──read_batches──► RecordBatch ──records()──► Records ──Columns.of──► Columns
                                └──────────────read_columns──────────────────────┘
    BatchBuilder ◄──append, extend, extend_columns── records         ──build──► bytes

Rules:
- The CRC covers everything from `attributes` on; `base_offset` and `partition_leader_epoch` lie before it, so that a
  broker can set them without touching the rest.
- Offsets and timestamps of records are deltas to the batch's; with LogAppendTime every record has `max_timestamp`.
- `read_batches` stops silently before a torn last batch, because the answer to a Fetch may end in one.
- A batch takes no more memory than ``limit`` bytes: what decompression makes, and what is made of that, by what records
  and headers take as objects. What a batch without compression has of its own is what its sender has sent.
- What several batches take together is for the caller to bound, who has `memory_bound` for it.
- A batch of `Records` is checked as a whole when it is opened; iterating over them raises no more.
- What is wrong in a batch is told with its base offset and the byte: of the batch, or of its decompressed records.

Source: DefaultRecordBatch.java, DefaultRecord.java; KIP-534 for the delete horizon.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, overload

from crc32c import crc32c

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
from ottla.codec.wire import Buffer, Int8, Int16, Int32, Int64, UInt32, VarArray, VarBytes, VarInt, VarLong, VarString
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError, MemoryLimitExceeded

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import Appender, BatchHead, Record, Records, lay_out, read_heads, scan_records
else:
    from ottla.codec._records import Appender, BatchHead, Record, Records, lay_out, read_heads, scan_records

__all__ = [
    "BEYOND",
    "HEADER_SIZE",
    "LENGTH_END",
    "MAGIC",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
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
    "parse_batch",
    "read_batches",
    "read_columns",
    "rebased",
    "scan_records",
]

MAGIC = 2
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1


@wire.message(versions="2")
class BatchHeader:
    """What stands before the records of a batch."""

    base_offset: int = wire.wire(Int64)
    """Offset of the first record; the broker sets it."""
    length: int = wire.wire(Int32)
    """Bytes of the batch behind this field."""
    partition_leader_epoch: int = wire.wire(Int32)
    """Of the leader that appended the batch; the broker sets it."""
    magic: int = wire.wire(Int8)
    """2. It is at the same place in the older formats."""
    crc: int = wire.wire(UInt32)
    """CRC-32C of all that follows it."""
    attributes: int = wire.wire(Int16)
    """Bits 0-2: compression; 3: LogAppendTime; 4: transactional; 5: control; 6: `base_timestamp` is a delete horizon"""
    last_offset_delta: int = wire.wire(Int32)
    """From `base_offset` to the last record that the batch ever had: compaction may have removed it."""
    base_timestamp: int = wire.wire(Int64)
    """What the records' timestamps count from: the first's, unless bit 6 is set."""
    max_timestamp: int = wire.wire(Int64)
    """The largest; with LogAppendTime that of every record."""
    producer_id: int = wire.wire(Int64)
    """-1 without idempotence."""
    producer_epoch: int = wire.wire(Int16)
    base_sequence: int = wire.wire(Int32)
    """Of the first record; -1 without idempotence."""
    count: int = wire.wire(Int32)
    """Records that follow."""


@wire.struct
class RecordHeader:
    key: str = wire.wire(VarString)
    value: bytes | None = wire.wire(VarBytes, null="0+")


@wire.message(versions="2")
class RecordLength:
    """What stands before each record."""

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
    """A `RecordBody` whose headers may have any bytes for names."""

    attributes: int = wire.wire(Int8)
    timestamp_delta: int = wire.wire(VarLong)
    offset_delta: int = wire.wire(VarInt)
    key: bytes | None = wire.wire(VarBytes, null="0+")
    value: bytes | None = wire.wire(VarBytes, null="0+")
    headers: tuple[_RawRecordHeader, ...] = wire.wire(VarArray(_RawRecordHeader))


_FIELDS = wire.tree(BatchHeader, 2, False).members


def _end_of(field: str) -> int:
    """Where a field of `BatchHeader` ends."""
    index = [name for name, _ in _FIELDS].index(field)
    return sum(node.sizeof() for _, node in _FIELDS[: index + 1])


def _packer(start: int, stop: int) -> struct.Struct:
    """The fields of `BatchHeader` within some bytes, as `struct` writes them at once."""
    return struct.Struct(">" + "".join(node.fmtstr[1] for name, node in _FIELDS if start < _end_of(name) <= stop))


LENGTH_END = _end_of("length")
"""The length field counts the bytes from here on."""
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
"""Bytes that an opened batch takes, however few its records are."""
_MEMORY_PER_RECORD = 224 if ENGINE == "python" else 160
"""Bytes that a record takes beside those of its body: where it lies, as a `Record`, and in columns."""
_MEMORY_PER_BYTE = 40 if ENGINE == "python" else 6
"""Bytes for each byte of records, at most. In C: the body, a copy in columns, and there twice four bytes for each
header, which has two bytes or more. Python makes objects of the headers when it opens a batch."""
_EXPLAINED = 64 * 2**10
"""Bytes of a record up to which it is said where it is damaged: that makes an object of each header."""
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
        """The batch as a log stores it, in two parts: with its `base_offset` and `partition_leader_epoch`, which may be
        others than those in `data`. The CRC covers neither."""
        head = _BEFORE_MAGIC.pack(self.base_offset, len(self.data) - LENGTH_END, self.partition_leader_epoch)
        return head, self.data[_MAGIC_AT:]

    @property
    def last_offset(self) -> int:
        """Of the last record, or of where it was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Of the last record; sequences wrap from 2**31 - 1 to 0. -1 where the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """As `Compression` numbers them; 5 to 7 mean nothing."""
        return self.attributes & COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        """The broker stamped the records (otherwise the producer did: CreateTime)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Its records belong to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """The batch holds a transaction marker or the like, never a user's records."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may remove the batch's tombstones or marker, in ms since 1970; ``None`` where none is set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def crc_matches(self) -> bool:
        """Whether the bytes are those that were written."""
        return crc32c(self.data[_CRC_END:]) == self.crc

    def check_crc(self, at: int = 0) -> None:
        """Compare the CRC with the bytes.

        Args:
            at: where the batch begins, for the offset in the error.

        Raises:
            ChecksumMismatch: it is not theirs.
        """
        if (computed := crc32c(self.data[_CRC_END:])) != self.crc:
            raise ChecksumMismatch(self.crc, computed, "RecordBatch.crc", at + CRC_AT, self._name)

    @property
    def _name(self) -> str:
        """For errors."""
        return f"batch at offset {self.base_offset}"

    def records(self, limit: int = DECOMPRESSED_LIMIT, most: int | None = None, *, any_names: bool = False) -> Records:
        """The records, decompressed and found whole.

        Args:
            limit: bytes that they may take, decompressed and as objects.
            most: bytes that are decompressed, where ``limit`` would allow more.
            any_names: names of headers may be any bytes, which brokers store: in place of what is not UTF-8 they have
                U+FFFD, as Java clients read them. Otherwise such a record is damaged.

        Raises:
            DecodeError: they are damaged, or not as many as `count` says.
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
        """``body`` with U+FFFD for what is not UTF-8 in the names of headers; ``None`` if it has other damage."""
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
                fields = {name: getattr(raw, name) for name, _ in wire.tree(_RawRecordBody, 2, False).members}
                record = build(RecordBody(**fields | {"headers": tuple(headers)}), 2)
                parts += [build(RecordLength(length=len(record)), 2), record]
        except DecodeError:
            return None
        return b"".join(parts) if at == len(body) else None

    def body(self, limit: int = DECOMPRESSED_LIMIT, most: int | None = None) -> Buffer:
        """The bytes of the records, decompressed; none of them is read.

        Args:
            limit, most: as those of `records`.

        Raises:
            DecodeError: as `records`.
        """
        return self._opened(limit, most)[0]

    def _opened(self, limit: int, most: int | None = None) -> tuple[Buffer, int]:
        """The bytes of the records, and those that are left of ``limit`` for their headers."""
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
        """Bytes that the records may take, opened and as objects and columns, all at once.

        It is computed from the sizes in the headers, without decompressing anything (`decompressed_bound`), so it is
        often a few times more than they take.
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
        """The records, decompressed, field by field. Arguments and errors are those of `records`."""
        return read_columns((self,), limit=limit)

    def in_records(self, error: DecodeError) -> DecodeError:
        """An error whose path and offset are those in the decompressed records, told as one of this batch."""
        path = f"RecordBatch.{error.path}"
        if self.compression == Compression.NONE:
            return DecodeError(error.reason, path, HEADER_SIZE + error.offset, self._name)
        return DecodeError(error.reason, path, error.offset, f"{DECOMPRESSED} records of the {self._name}")

    def _explained(self, body: bytes, row: int, at: int) -> DecodeError:
        """What is wrong with record ``row``, the first that is damaged, which begins at ``body[at]``."""
        if row == self.count:
            return DecodeError(f"{len(body) - at} bytes behind the last of {row} records", "records", at)
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
    """Bytes that ``count`` records may take, opened and as objects and columns, whose body has ``size`` bytes."""
    return _BATCH_MEMORY + _MEMORY_PER_BYTE * size + _MEMORY_PER_RECORD * count


def parse_batch(data: Buffer, offset: int = 0) -> RecordBatch:
    """The batch that begins at ``data[offset]``; its CRC is not looked at.

    Raises:
        DecodeError: it is torn, or not a batch of magic 2.
        ValueError: ``offset`` lies outside of ``data``.
    """
    view, batch = memoryview(data), RecordBatch()
    if not 0 <= offset <= len(view):
        raise ValueError(f"offset {offset} lies outside of the {len(view)} bytes")
    if not batch.read(view, offset):
        raise _no_batch(view, offset)
    return batch


def _no_batch(data: memoryview, offset: int) -> DecodeError:
    """Why no whole batch begins at ``data[offset]``."""
    left = len(data) - offset
    if left > _MAGIC_AT and (magic := data[offset + _MAGIC_AT]) != MAGIC:
        old = "; message sets, of Kafka before 0.11, are read by ottla.codec.message_sets" if magic < MAGIC else ""
        reason = f"record format (magic) {magic} instead of {MAGIC}{old}"
        return DecodeError(reason, "RecordBatch.magic", offset + _MAGIC_AT)
    if left < HEADER_SIZE:
        return DecodeError(f"{left} bytes are no record batch", "RecordBatch", offset)
    size = _length_at(data, offset) + LENGTH_END
    return DecodeError(f"batch of {size} bytes with {left} left", "RecordBatch.length", offset + LENGTH_END - 4)


def _length_at(data: memoryview, offset: int) -> int:
    return int.from_bytes(data[offset + LENGTH_END - 4 : offset + LENGTH_END], "big", signed=True)


def read_batches(data: Buffer, *, verify: bool = True) -> Iterator[RecordBatch]:
    """The batches of a record set; a torn one at the end is left out.

    Args:
        verify: compare each CRC.

    Raises:
        ChecksumMismatch: a CRC does not match; the offset is that in ``data``.
        DecodeError: something that is no batch of magic 2 stands where one should.
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
    """The batches at the beginning of a record set, as far as there is nothing to think about, and where they end, in
    bytes; no CRC is compared.

    That is up to the first that does not reach behind ``offset``, overlaps with the one before, is a control batch or,
    unless ``transactional``, belongs to a transaction; or is of an older format, or torn, or none.
    """
    mask = _CONTROL if transactional else _CONTROL | _TRANSACTIONAL
    return read_heads(RecordBatch, memoryview(data), offset, mask)


def read_columns(batches: Iterable[RecordBatch], start: int | None = None, limit: int = DECOMPRESSED_LIMIT) -> Columns:
    """The records of ``batches``, field by field: what `Columns.of` makes of their `records`, in one go, so faster.

    Args:
        start: leave out records with lower offsets.
        limit: bytes that the records of each batch may take, decompressed and as objects.

    Raises:
        DecodeError: a batch is damaged.
        MemoryLimitExceeded: a batch would take more than ``limit``.
        LocalProtocolError: a column would take more than 2 GiB: take fewer batches at a time.
    """
    batches, start = list(batches), -BEYOND if start is None else min(max(start, -BEYOND), BEYOND - 1)
    try:
        return laid_out(lay_out(batches, [each._opened(limit) for each in batches], start))
    except (DamagedRecord, TooMuchMemory, DecodeError):
        for each in batches:
            each.records(limit)  # which says what is wrong with the first that is damaged
        raise DecodeError(_CHANGED, "RecordBatch.records") from None


def rebased(batch: Buffer, base_offset: int, partition_leader_epoch: int) -> bytes:
    """``batch`` as a log stores it: with its offset and leader epoch, which the CRC does not cover.

    Raises:
        EncodeError: there is no such offset or epoch.
    """
    if not 0 <= base_offset <= _INT64_MAX:
        raise EncodeError(f"the offset {base_offset} is not one from 0 to 2**63 - 1")
    if not -1 <= partition_leader_epoch <= _INT32_MAX:
        raise EncodeError(f"the leader epoch {partition_leader_epoch} is not one from 0 to 2**31 - 1, or -1 for none")
    head = base_offset.to_bytes(8, "big") + bytes(memoryview(batch)[8:LENGTH_END])
    return b"".join((head, partition_leader_epoch.to_bytes(4, "big", signed=True), memoryview(batch)[16:]))


def build_header(body: Buffer, base_offset: int, partition_leader_epoch: int, fields: tuple[int, ...]) -> bytes:
    """The header for the records in ``body``, compressed as ``fields`` say: those of `BatchHeader` behind `crc`.

    Raises:
        EncodeError: a number does not fit its field.
    """
    try:
        covered = _BEHIND_CRC.pack(*fields)
        crc = crc32c(body, crc32c(covered))
        length = HEADER_SIZE - LENGTH_END + len(body)
        return _BEFORE_CRC.pack(base_offset, length, partition_leader_epoch, MAGIC, crc) + covered
    except struct.error as error:
        raise EncodeError(f"a field of the batch's header does not fit: {error}") from None


class BatchBuilder(Appender):
    """Collects records and builds one batch of them."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes of the batch before compression."""
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
        """Add a record for each row of some columns, or none of them; return the index of the first.

        Args:
            timestamps: integers of 64 bits, in milliseconds since 1970. Or `Columns` instead of all arguments, of which
                the offsets are left out.

        Raises:
            EncodeError: the columns do not fit together, or as `append`.
        """
        if isinstance(timestamps, Columns):
            if (keys, values, headers) != (None, None, None):
                raise TypeError("Columns are given alone: they have keys, values and headers")
            columns = timestamps
            return super().extend_columns(columns.timestamps, columns.keys, columns.values, columns.headers_if_any)
        if keys is None or values is None:
            raise TypeError("timestamps need keys and values, unless they are Columns")
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
        """The batch's bytes.

        Raises:
            EncodeError: a number does not fit its field, or the records the 2 GiB of a batch; there is no such
                compression or level (NONE has no levels); there is a sequence, but no record that has it.
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
        """As `build`, for one thread, and without a copy where none is needed.

        Where it is none, no record can be added while somebody holds it. What was returned before never changes. Raises
        as `build`.
        """
        kind = _TRANSACTIONAL if transactional else 0
        header, body = self._parts(compression, level, (producer_id, producer_epoch, base_sequence), kind)
        if compression != Compression.NONE:
            return b"".join((header, body))
        if isinstance(body, memoryview):
            body.release()  # or the records would be held, and so copied
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
        """The header and the rest; ``ids`` are the producer's id and epoch, and the first sequence."""
        producer_id, producer_epoch, base_sequence = ids
        body: Buffer = self.body
        if len(body) > _INT32_MAX - HEADER_SIZE:
            raise EncodeError(f"{len(body)} bytes of records are more than the 2 GiB of a batch")
        if self.count == 0 and base_sequence != NO_SEQUENCE:
            raise EncodeError(f"the sequence {base_sequence} for a batch without records")
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
    """One batch of ``records``, numbered from offset 0."""
    builder = BatchBuilder()
    builder.extend(records)
    return builder.build(compression=compression)
