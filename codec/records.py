"""Record batches (magic 2): the declaration, and the loops over records written by hand.

A batch is a header of 61 bytes and the records, compressed or not. The records' loops are the one place where the
declaration is not what runs: the tests prove them equal to it.

Rules:
- The CRC covers everything from `attributes` on; `base_offset` and `partition_leader_epoch` lie before it, so that a
  broker can set them without touching the rest.
- Offsets and timestamps of records are deltas to the batch's; with LogAppendTime every record has `max_timestamp`.
- `read_batches` stops silently before a torn last batch, because the answer to a Fetch may end in one.

Source: DefaultRecordBatch.java, DefaultRecord.java.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from crc32c import crc32c

from ottla.codec import wire
from ottla.codec.compression import DECOMPRESSED_LIMIT, Compression, compress, decompress
from ottla.codec.wire import Buffer, Int8, VarArray, VarBytes, VarInt, VarLong, VarString
from ottla.errors import CorruptMessage, DecodeError, EncodeError

Headers = Sequence[tuple[str, bytes | None]]

MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
NO_SEQUENCE = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size
"""Bytes of a batch before its records."""
LENGTH_END = 12
"""The length field counts the bytes from here on."""
_MAGIC_AT = 16
_CRC_START = 21
_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@wire.struct
class RecordHeader:
    key: str = wire.wire(VarString)
    value: bytes | None = wire.wire(VarBytes, null="0+")


@wire.message(key=-1, versions="2")
class RecordBody:
    """A record of a batch, behind its length (`VarInt`)."""

    attributes: int = wire.wire(Int8)
    """Unused, 0."""
    timestamp_delta: int = wire.wire(VarLong)
    offset_delta: int = wire.wire(VarInt)
    key: bytes | None = wire.wire(VarBytes, null="0+")
    value: bytes | None = wire.wire(VarBytes, null="0+")
    headers: tuple[RecordHeader, ...] = wire.wire(VarArray(RecordHeader))


@dataclass(slots=True)
class Record:
    """One record as a consumer sees it.

    Attributes:
        offset: its place in the partition.
        timestamp: milliseconds since 1970; -1 where there is none.
        key, value: bytes, or ``None`` (a null value is a tombstone in compacted topics).
        headers: pairs in the producer's order; names may repeat.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Columns:
    """The records of one batch as lists of equal length, one per field of `Record`."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]


@dataclass(slots=True)
class RecordBatch:
    """The header of a batch, and its bytes in `data` (header included)."""

    base_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    data: memoryview

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
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
        return self.attributes & _COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        """The broker stamped the records (otherwise the producer did: CreateTime)."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """The batch holds a transaction marker or the like, never a user's records."""
        return bool(self.attributes & _CONTROL)

    @property
    def crc_matches(self) -> bool:
        return crc32c(self.data[_CRC_START:]) == self.crc

    def records(self, limit: int = DECOMPRESSED_LIMIT) -> list[Record]:
        """The records, decompressed. Arguments and errors are those of `columns`."""
        columns = self.columns(limit)
        return list(map(Record, columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers))

    def columns(self, limit: int = DECOMPRESSED_LIMIT) -> Columns:
        """The records, decompressed, field by field: faster than one object for each.

        Args:
            limit: bytes that they may take when decompressed.

        Raises:
            DecodeError: they are damaged, not as many as `count` says, or larger than ``limit``.
        """
        body = decompress(self.compression, self.data[HEADER_SIZE:], limit)
        columns = _parse_columns(body, self.count)
        columns.offsets = _based(self.base_offset, columns.offsets, "offset")
        if self.log_append_time:
            columns.timestamps = [self.max_timestamp] * self.count
        else:
            columns.timestamps = _based(self.base_timestamp, columns.timestamps, "timestamp")
        return columns


def parse_batch(data: Buffer, offset: int = 0) -> RecordBatch:
    """The batch that begins at ``data[offset]``; its CRC is not looked at.

    Raises:
        DecodeError: it is torn, or not a batch of magic 2.
    """
    view = memoryview(data)
    left = len(view) - offset
    if left > _MAGIC_AT and (magic := view[offset + _MAGIC_AT]) != MAGIC:
        old = "; message sets, of Kafka before 0.11, are not read" if magic < MAGIC else ""
        raise DecodeError(f"record format (magic) {magic} instead of {MAGIC}{old}", offset=offset + _MAGIC_AT)
    if left < HEADER_SIZE:
        raise DecodeError(f"{left} bytes are no record batch", offset=offset)
    base_offset, length, epoch, _, crc, attributes, delta, base_ts, max_ts, pid, pepoch, seq, count = (
        _HEADER.unpack_from(view, offset)
    )
    end = offset + LENGTH_END + length
    if length < HEADER_SIZE - LENGTH_END or end > len(view):
        raise DecodeError(f"batch of {length + LENGTH_END} bytes with {left} left", offset=offset)
    return RecordBatch(
        base_offset, epoch, crc, attributes, delta, base_ts, max_ts, pid, pepoch, seq, count, view[offset:end]
    )


def read_batches(data: Buffer, *, verify: bool = True) -> Iterator[RecordBatch]:
    """The batches of a record set; a torn one at the end is left out.

    Args:
        verify: compare each CRC.

    Raises:
        CorruptMessage: a CRC does not match.
        DecodeError: something that is no batch of magic 2 stands where one should.
    """
    view, offset = memoryview(data), 0
    while len(view) - offset > _MAGIC_AT:
        length = int.from_bytes(view[offset + 8 : offset + LENGTH_END], "big", signed=True)
        if length > len(view) - offset - LENGTH_END and view[offset + _MAGIC_AT] == MAGIC:
            return
        batch = parse_batch(view, offset)
        if verify and not batch.crc_matches:
            raise CorruptMessage(f"batch at offset {batch.base_offset}")
        yield batch
        offset += len(batch.data)


def rebased(batch: Buffer, base_offset: int, partition_leader_epoch: int) -> bytes:
    """``batch`` as a log stores it: with its offset and leader epoch, which the CRC does not cover."""
    head = base_offset.to_bytes(8, "big") + bytes(memoryview(batch)[8:LENGTH_END])
    return b"".join((head, partition_leader_epoch.to_bytes(4, "big", signed=True), memoryview(batch)[16:]))


class BatchBuilder:
    """Collects records and builds one batch of them."""

    __slots__ = ("_base_timestamp", "_body", "_max_timestamp", "count")

    def __init__(self) -> None:
        self.count = 0
        self._body = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    @property
    def size(self) -> int:
        """Bytes of the batch before compression."""
        return HEADER_SIZE + len(self._body)

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add a record; return its index in the batch. ``timestamp`` in milliseconds since 1970.

        Raises:
            EncodeError: a key, value or header is not bytes, or the timestamp is no integer of 64 bits or too far from
                the first one's; nothing is added.
        """
        index = self.count
        try:
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise EncodeError(f"the timestamp {timestamp} does not fit 64 bits")
            record = b"".join(
                (
                    b"\0",
                    _varint(timestamp - (self._base_timestamp if index else timestamp)),
                    _varint(index),
                    b"\1" if key is None else _varint(len(key)) + key if type(key) is bytes else _sized(key),
                    b"\1" if value is None else _varint(len(value)) + value if type(value) is bytes else _sized(value),
                    _header_bytes(headers) if headers else b"\0",
                )
            )
        except (TypeError, ValueError):  # found out by failing, so that a good record pays nothing
            check_bytes(key, value, headers)
            raise EncodeError(f"the timestamp is {timestamp!r}, and must be an int of milliseconds") from None
        if index == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        self._body += _varint(len(record)) + record
        self.count = index + 1
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        return index

    def build(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        partition_leader_epoch: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytes:
        """The batch's bytes.

        Raises:
            EncodeError: a number does not fit its field, or the records the 2 GiB of a batch.
        """
        body = compress(compression, self._body, level)
        attributes = compression | (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
        try:
            head = _HEADER.pack(
                base_offset,
                HEADER_SIZE - LENGTH_END + len(body),
                partition_leader_epoch,
                MAGIC,
                0,
                attributes,
                self.count - 1,
                self._base_timestamp,
                self._max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                self.count,
            )
        except struct.error as error:
            raise EncodeError(f"a field of the batch's header does not fit: {error}") from None
        batch = bytearray(head)
        batch += body
        batch[_CRC_START - 4 : _CRC_START] = crc32c(memoryview(batch)[_CRC_START:]).to_bytes(4, "big")
        return bytes(batch)


def build_batch(records: Iterable[Record], *, compression: Compression = Compression.NONE) -> bytes:
    """One batch of ``records``, numbered from offset 0."""
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build(compression=compression)


# ---------------------------------------------------------------------------------------------------------------------
# The loops.


def _encode_varint(value: int) -> bytes:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise EncodeError(f"{value} does not fit a varint of 64 bits")
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [_encode_varint(value) for value in range(8192)]


def _varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < 8192 else _encode_varint(value)


def _sized(data: object) -> bytes:
    """``data`` behind its length."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError
    data = bytes(data)
    return _varint(len(data)) + data


def _header_bytes(headers: Headers) -> bytes:
    parts = [_varint(len(headers))]
    for key, value in headers:
        parts += (_sized(str.encode(key)), b"\1" if value is None else _sized(value))
    return b"".join(parts)


def check_bytes(key: object, value: object, headers: object) -> None:
    """Raise `EncodeError`, which says what to do, unless key and value are bytes and headers pairs of str and bytes."""
    for what, given in (("key", key), ("value", value)):
        if given is None or isinstance(given, bytes | bytearray | memoryview):
            continue
        if isinstance(given, str):
            raise EncodeError(f"the {what} is a str: encode it first, as in {given[:20]!r}.encode()")
        raise EncodeError(f"the {what} is {type(given).__name__}, and must be bytes or None")
    if not isinstance(headers, tuple | list):
        raise EncodeError(f"headers are a tuple of pairs, not {type(headers).__name__}")
    for header in headers:
        match header:
            case (str(name), None | bytes() | bytearray() | memoryview()):
                try:
                    name.encode()
                except UnicodeEncodeError as error:
                    raise EncodeError(f"the header name {name!r:.80} is not encodable: {error.reason}") from None
            case _:
                raise EncodeError(f"headers are pairs of a str and bytes or None, not {header!r:.80}")


def _parse_columns(body: bytes, count: int) -> Columns:
    """The records of a decompressed body; offsets and timestamps are still deltas to the batch's."""
    size = len(body)
    if not 0 <= count <= size:
        raise DecodeError(f"{count} records in {size} bytes")
    columns = Columns([], [], [], [], [])
    try:
        end = _fill_columns(columns, body, count)
    except IndexError:
        raise DecodeError("bytes end within a record", offset=size) from None
    except DecodeError as error:
        error.path = f"records[{len(columns.headers)}]"
        raise
    if end != size:
        raise DecodeError(f"{size - end} bytes behind the last of {count} records", offset=end)
    return columns


def _fill_columns(columns: Columns, body: bytes, count: int) -> int:
    """Parse ``count`` records; return where the last one ends."""
    # Varints of two bytes are read in place: a call would cost more than the rest of the field. No length is compared
    # with what is left: a slice stops at the end of the body, and the record does not end where its length says.
    add_offset, add_timestamp = columns.offsets.append, columns.timestamps.append
    add_key, add_value, add_headers = columns.keys.append, columns.values.append, columns.headers.append
    at = 0
    for _ in range(count):
        n = body[at]
        at += 1
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 32)
        end = at + ((n >> 1) ^ -(n & 1))
        n = body[at + 1]  # behind the attributes
        at += 2
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 64)
        add_timestamp((n >> 1) ^ -(n & 1))
        n = body[at]
        at += 1
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 32)
        add_offset((n >> 1) ^ -(n & 1))
        n = body[at]
        at += 1
        if n > 0x7F:
            n, at = _long_varint(body, at, 32)
        if n & 1:
            add_key(None if n == 1 else _bad_null(n, at))
        else:
            add_key(body[at : (at := at + (n >> 1))])
        n = body[at]
        at += 1
        if n > 0x7F:
            if (m := body[at]) < 0x80:
                n, at = n + ((m - 1) << 7), at + 1
            else:
                n, at = _long_varint(body, at, 32)
        if n & 1:
            add_value(None if n == 1 else _bad_null(n, at))
        else:
            add_value(body[at : (at := at + (n >> 1))])
        headers: Headers = ()
        if body[at]:
            headers, at = _read_headers(body, at, min(end, len(body)))
        else:
            at += 1
        if at != end:
            raise DecodeError(f"record ends at byte {at}, its length says {end}", offset=at)
        add_headers(headers)
    return at


def _long_varint(body: bytes, position: int, bits: int) -> tuple[int, int]:
    """The varint whose first of several bytes lies before ``position``, before zigzag, and where it ends."""
    value, shift = body[position - 1] & 0x7F, 7
    while shift < bits:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, position
        shift += 7
    raise DecodeError(f"varint of more than {bits} bits", offset=position - 1)


def _bad_null(length: int, position: int) -> NoReturn:
    raise DecodeError(f"bytes length of {-(length + 1 >> 1)}", offset=position - 1)


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    value, position = body[position], position + 1
    if value > 0x7F:
        value, position = _long_varint(body, position, 32)
    return (value >> 1) ^ -(value & 1), position


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, start = _read_varint(body, position)
    if size == -1:
        return None, start
    if not 0 <= size <= end - start:
        raise DecodeError(f"{size} bytes wanted, {end - start} left in the record", offset=position)
    return body[start : start + size], start + size


def _read_headers(body: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _read_varint(body, position)
    if not 0 <= count <= end - position:
        raise DecodeError(f"{count} headers with {end - position} bytes left", offset=position)
    headers = []
    for _ in range(count):
        start = position
        data, position = _read_bytes(body, position, end)
        if data is None:
            raise DecodeError("a header without a name", offset=start)
        try:
            name = data.decode()
        except UnicodeDecodeError:
            raise DecodeError("a header's name is not UTF-8", offset=start) from None
        value, position = _read_bytes(body, position, end)
        headers.append((name, value))
    return tuple(headers), position


def _based(base: int, deltas: list[int], what: str) -> list[int]:
    """What ``deltas`` to ``base`` mean; a peer may send such that overflow."""
    values = [base + delta for delta in deltas]
    if values and not _INT64_MIN <= min(values) <= max(values) <= _INT64_MAX:
        raise DecodeError(f"a record's {what} does not fit 64 bits")
    return values
