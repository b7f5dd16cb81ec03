"""Message sets, the record format before Kafka 0.11, and record sets of mixed formats.

A message set is a sequence of messages: magic 0 in Kafka 0.8 and 0.9, magic 1 in 0.10, which added timestamps. A log
that lived through upgrades holds both, and then record batches; `read_record_set` reads all of them.

Rules:
- Compression makes one message of many: the value of this wrapper is a compressed message set. Wrappers are not nested.
- A wrapper's offset is its last message's. In magic 0 the inner offsets are absolute. In magic 1 they
  count from the first message, so that a broker can assign offsets to a wrapper without opening it (KIP-31).
- The timestamp of a magic-1 wrapper with LogAppendTime applies to every message within.
- The CRC-32 covers everything after it, from the magic on.
- The LZ4 frames of magic 0 have a wrong header checksum (`lz4_rechecked`), which brokers of that time verify.
- A truncated message at the end is left out, because a Fetch response may end in one; within a wrapper it is an error.
- An error names the message's offset and a byte: of the message, or of the contents of a wrapper.

Source: LegacyRecord.java, AbstractLegacyRecordBatch.java, KIP-31 (relative offsets), KIP-32 (timestamps).
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE
from ottla.codec.columns import Columns
from ottla.codec.compression import (
    DECOMPRESSED,
    DECOMPRESSED_LIMIT,
    Compression,
    checked_level,
    compress,
    decompress,
    decompressed_bound,
    lz4_rechecked,
)
from ottla.codec.messages import build, parse
from ottla.codec.records import (
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
    RecordBody,
    RecordLength,
    Records,
    memory_of,
    parse_batch,
)
from ottla.codec.wire import Buffer, Bytes, Int8, Int32, Int64, UInt32, message, wire
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError, MemoryLimitExceeded

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import parse_records
else:
    from ottla.codec._records import parse_records

COMPRESSIONS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
"""The compressions that message sets can have."""
CRC_AT = LENGTH_END
_MAGIC_AT, _ATTRIBUTES_AT = 16, 17
LEAST = {0: 26, 1: 34}
"""Size in bytes of the shortest message of each magic: everything but the key and the value."""
MESSAGE_MEMORY = 480
"""Bytes of memory for a message in a wrapper besides its key and value: for the `Message` and the `Record`."""
_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_INT32_MAX, _INT64_MIN, _INT64_MAX = (1 << 31) - 1, -(1 << 63), (1 << 63) - 1


@message(versions="0-1")
class Message:
    """A message of magic 0 or 1 (the magic is also the version of this declaration), plain or a wrapper.

    It takes the place of a `RecordBatch`, and a consumer can use it as one.
    """

    offset: int = wire(Int64)
    """For a wrapper, the offset of the last message within."""
    message_size: int = wire(Int32, default=0)
    """Bytes from the CRC on. This and the CRC are correct in parsed messages; `build_message` computes them."""
    crc: int = wire(UInt32, default=0)
    magic: int = wire(Int8)
    attributes: int = wire(Int8, default=0)
    """Bits 0 to 2: the compression. Bit 3 (magic 1): LogAppendTime."""
    timestamp: int = wire(Int64, "1+", default=NO_TIMESTAMP, ignorable=True)
    """Milliseconds since 1970; -1 for none. For a wrapper: the latest within, or 0, or anything its writer chose."""
    key: bytes | None = wire(Bytes, null="0+")
    """``None`` in wrappers."""
    value: bytes | None = wire(Bytes, null="0+")
    """``None`` is a tombstone. For a wrapper: the compressed message set."""

    @property
    def compression(self) -> int:
        """Number of a `Compression`; any but 0 makes this message a wrapper."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker set the timestamp (otherwise the producer did: CreateTime)."""
        return self.magic > 0 and bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def data(self) -> memoryview:
        """The bytes of the message, built again."""
        return memoryview(build(self, self.magic))

    @property
    def crc_matches(self) -> bool:
        """Whether the CRC matches the bytes."""
        return zlib.crc32(self.data[_MAGIC_AT:]) == self.crc

    def check_crc(self, at: int = 0) -> None:
        """Compare the CRC with the bytes.

        Args:
            at: where the message begins; the offset in the error includes it.

        Raises:
            ChecksumMismatch: the CRC does not match the bytes.
        """
        _check_crc(self.data, at=at)

    def unwrapped(self, limit: int = DECOMPRESSED_LIMIT) -> list["Message"]:
        """Return the messages within, with offsets and timestamps as a consumer sees them; a plain message itself.

        Args:
            limit: bytes that they may take, decompressed and as objects.

        Raises:
            DecodeError: they are damaged.
            MemoryLimitExceeded: they would take more than ``limit``.
            ChecksumMismatch: the CRC of a message does not match.
        """
        if self.compression == Compression.NONE:
            return [self]
        body = self._decompressed(limit)
        try:
            messages = _messages_within(body, limit)
        except DecodeError as error:
            error.within = f"{DECOMPRESSED} value of the {self._name}"
            raise
        if not messages:
            raise self._damaged("a wrapper without messages", "value")
        if self.magic > 0:
            base = self._base_offset(messages[-1].offset)
            for each in messages:
                each.unwrap(base, self.timestamp if self.log_append_time else None)
        low, high = min(each.offset for each in messages), max(each.offset for each in messages)
        if high - low > _INT32_MAX or not _INT64_MIN <= low <= high <= _INT64_MAX:
            raise self._damaged(f"offsets from {low} to {high} are too large, or too far apart", "value")
        return messages

    def unwrap(self, base: int, append_time: int | None) -> None:
        """Take the offset, and the timestamp if there is one, that a wrapper of magic 1 gives this message.

        Magic 0 within such a wrapper is no error: only the timestamp is missing.
        """
        self.offset += base
        if append_time is not None and self.magic > 0:
            self.timestamp = append_time

    def stamp(self, append_time: int) -> None:
        """Set the timestamp, as a broker does with LogAppendTime."""
        self.attributes |= _LOG_APPEND_TIME
        self.timestamp = append_time

    def _decompressed(self, limit: int) -> bytes:
        limit = min(limit, _INT32_MAX)  # as sizes are
        if self.value is None:
            raise self._damaged("a wrapper without a value", "value")
        if self.compression not in COMPRESSIONS:
            raise self._damaged(f"compression {self.compression} is not known in message sets", "attributes")
        old = self.compression == Compression.LZ4 and self.magic == 0
        try:
            value = lz4_rechecked(self.value, old=False) if old else self.value
            return bytes(decompress(self.compression, value, limit))
        except DecodeError as error:
            raise self._damaged(error.reason, "value", type(error)) from None

    @property
    def memory_bound(self) -> int:
        """See `RecordBatch.memory_bound`."""
        value = self.value or b""
        if self.compression == Compression.NONE:
            return memory_of(len(self.key or b"") + len(value), 1)
        size = decompressed_bound(self.compression, value)
        return memory_of(size, size // LEAST[0])

    def _base_offset(self, last: int) -> int:
        """Return the base of the inner offsets; ``last`` is the last of them."""
        if self.offset == 0:  # some producers (librdkafka) leave it at 0 for the broker to assign
            return 0
        if self.offset < last:
            raise self._damaged(f"offset {self.offset} is less than the last one within, {last}", "offset")
        return self.offset - last

    @property
    def _name(self) -> str:
        """The message's name in errors."""
        return f"message at offset {self.offset}"

    def _damaged(self, reason: str, field: str, kind: type[DecodeError] = DecodeError) -> DecodeError:
        value_at = LEAST[min(self.magic, 1)] + len(self.key or b"")
        at = {"offset": 0, "attributes": _ATTRIBUTES_AT, "value": value_at}[field]
        return kind(reason, f"Message.{field}", at, self._name)

    @property
    def base_offset(self) -> int:
        """Offset of the first record. Use `last_offset` to identify a batch: this one needs the wrapper to be opened.

        Raises:
            DecodeError: the message is a wrapper that cannot be read.
        """
        return self.unwrapped()[0].offset

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.offset

    @property
    def next_offset(self) -> int:
        """Offset at which the next message or batch begins."""
        return self.offset + 1

    @property
    def transactional(self) -> bool:
        """Always ``False``: transactions came with magic 2."""
        return False

    @property
    def control(self) -> bool:
        """Always ``False``: transactions and their markers came with magic 2."""
        return False

    @property
    def producer_id(self) -> int:
        """Always -1: idempotent producers came with magic 2."""
        return NO_PRODUCER_ID

    def records(self, limit: int = DECOMPRESSED_LIMIT) -> Records:
        """Return the records, checked. For arguments and errors see `unwrapped`."""
        messages = self.unwrapped(limit)
        first = messages[0].offset
        body = b"".join(_as_record(each, first) for each in messages)
        return parse_records(body, len(messages), first, 0)

    def columns(self, limit: int = DECOMPRESSED_LIMIT) -> Columns:
        """Return the records, field by field. For arguments and errors see `unwrapped`."""
        return Columns.of((self.records(limit),))


def _as_record(message: Message, base_offset: int) -> bytes:
    """Convert ``message`` to a record of magic 2, so that it can be read like any other."""
    record = RecordBody(
        attributes=0,
        timestamp_delta=message.timestamp,
        offset_delta=message.offset - base_offset,
        key=message.key,
        value=message.value,
        headers=(),
    )
    body = build(record, MAGIC)
    return build(RecordLength(length=len(body)), MAGIC) + body


def parse_message(data: Buffer, offset: int = 0) -> Message:
    """Parse the message that begins at ``data[offset]``, without checking its CRC.

    Raises:
        DecodeError: the message is truncated, or not of magic 0 or 1.
    """
    view = memoryview(data)
    left = len(view) - offset
    if left <= _MAGIC_AT:
        raise DecodeError(f"{left} bytes are too few for a message", "Message", offset)
    if (magic := view[offset + _MAGIC_AT]) >= MAGIC:
        raise DecodeError(f"format (magic) {magic}, a message has 0 or 1", "Message.magic", offset + _MAGIC_AT)
    end = _end(view, offset)
    if not offset + _MAGIC_AT < end <= len(view):
        raise DecodeError(f"message of {end - offset} bytes with {left} left", "Message.message_size", offset + 8)
    try:
        parsed, used = parse(Message, magic, view[offset:end])
    except DecodeError as error:
        error.offset += offset
        raise
    if used != end - offset:
        raise DecodeError(f"{end - offset - used} bytes after the value of a message", "Message", offset + used)
    return parsed


def _end(view: memoryview, start: int) -> int:
    """Return where the message or batch at ``start`` claims to end; every format begins with offset and size."""
    return start + LENGTH_END + int.from_bytes(view[start + 8 : start + LENGTH_END], "big", signed=True)


def read_record_set(
    data: Buffer, at: int = 0, *, verify: bool | Callable[[RecordBatch], bool] = True
) -> Iterator[RecordBatch | Message]:
    """Yield the batches of a record set, of any format, in order, without a truncated one at the end.

    Args:
        at: where to begin, in bytes.
        verify: check each CRC; or a function that says for which batches to check it, and messages are always checked.

    Raises:
        ChecksumMismatch: a CRC does not match; the error's offset counts in ``data``.
        DecodeError: the bytes where a batch should begin are neither a batch nor a message.
    """
    view = memoryview(data)
    while len(view) - at > _MAGIC_AT:
        batch = RecordBatch()
        if batch.read(view, at):  # nearly always
            if verify is True or (verify and verify(batch)):
                batch.check_crc(at)
            yield batch
            at += len(batch.data)
            continue
        magic, end = view[at + _MAGIC_AT], _end(view, at)
        if end > len(view) and magic <= MAGIC:
            return
        if magic >= MAGIC:
            parse_batch(view, at)  # raises an error with the reason
            raise DecodeError("a batch that cannot be read", "RecordBatch", at)
        if verify:
            _check_crc(view[at:end], at=at)
        yield parse_message(view, at)
        at = end


def _check_crc(message: memoryview, path: str = "Message", *, at: int = 0) -> None:
    """Check the CRC before the message is parsed, so that damage is not reported as a mistake of the writer."""
    stored, computed = int.from_bytes(message[CRC_AT:_MAGIC_AT], "big"), zlib.crc32(message[_MAGIC_AT:])
    if stored != computed:
        within = f"message at offset {int.from_bytes(message[:8], 'big', signed=True)}"
        raise ChecksumMismatch(stored, computed, f"{path}.crc", at + CRC_AT, within)


def _messages_within(body: bytes, limit: int) -> list[Message]:
    """Parse the messages of a wrapper as they are stored; offsets in errors count in ``body``."""
    view, at, messages = memoryview(body), 0, list[Message]()
    while at < len(view):
        path = f"Message.value[{len(messages)}]"
        if len(body) + (len(messages) + 1) * MESSAGE_MEMORY > limit:
            reason = f"more than {len(messages)} messages would take more memory than the limit of {limit} bytes"
            raise MemoryLimitExceeded(reason, path, at)
        try:
            each = parse_message(view, at)
            if each.compression != Compression.NONE:
                raise DecodeError("a wrapper within a wrapper", "Message.attributes", at + _ATTRIBUTES_AT)
        except DecodeError as error:
            error.path = f"{path}{error.path.removeprefix('Message')}"
            raise
        end = _end(view, at)
        _check_crc(view[at:end], path, at=at)
        messages.append(each)
        at = end
    return messages


# ---------------------------------------------------------------------------------------------------------------------
# Building, for brokers of that time.


def build_message(message: Message) -> bytes:
    """Build ``message``, with the right size and CRC.

    Raises:
        EncodeError: a field does not fit.
    """
    if message.magic not in (0, 1):
        raise EncodeError(f"{message.magic!r} is not the magic of a message: 0 or 1", "Message.magic")
    data = bytearray(build(message, message.magic))
    data[8:LENGTH_END] = (len(data) - LENGTH_END).to_bytes(4, "big")
    data[CRC_AT:_MAGIC_AT] = zlib.crc32(memoryview(data)[_MAGIC_AT:]).to_bytes(4, "big")
    return bytes(data)


def wrapper(messages: Sequence[Message], compression: Compression, level: int | None = None) -> Message:
    """Wrap ``messages``, which have the same magic, in one message; the opposite of `Message.unwrapped`.

    Args:
        level: see `ottla.codec.compression.LEVELS`.

    Raises:
        EncodeError: there are no messages, or message sets have no such compression, or it has no such level, or a
            field does not fit.
    """
    if not messages:
        raise EncodeError("a wrapper needs messages")
    if compression not in COMPRESSIONS:
        known = ", ".join(each.name.lower() for each in COMPRESSIONS)
        asked = compression.name.lower() if isinstance(compression, Compression) else repr(compression)
        raise EncodeError(f"message sets cannot be compressed with {asked}, only with {known}")
    magic, base = messages[0].magic, messages[0].offset
    inner = [replace(each, offset=each.offset - base) for each in messages] if magic > 0 else messages
    value = compress(compression, b"".join(map(build_message, inner)), level)
    return Message(
        offset=messages[-1].offset,
        magic=magic,
        attributes=compression,
        timestamp=max(each.timestamp for each in messages),
        key=None,
        value=lz4_rechecked(value, old=True) if compression == Compression.LZ4 and magic == 0 else value,
    )


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    log_append_time: int | None = None,
) -> bytes:
    """Build the message set of ``records``, as producers (with offsets from 0 on) and brokers of that time did.

    Args:
        records: their offsets ascend; magic 0 drops their timestamps.
        magic: 0 for Kafka 0.8 and 0.9, 1 for 0.10.
        compression: any but NONE puts the records in one wrapper.
        level: see `ottla.codec.compression.LEVELS`.
        log_append_time: the broker's timestamp for all records, in milliseconds since 1970 (magic 1 only).

    Raises:
        EncodeError: a record has headers, a field is too long, or the format does not support an argument.
    """
    messages: list[Message] = []
    for each in records:
        if each.headers:
            raise EncodeError("a message cannot carry headers: they came with record batches, in Kafka 0.11")
        offset, timestamp = _integer(each.offset, "offset"), _integer(each.timestamp, "timestamp")
        if messages and offset <= messages[-1].offset:
            raise EncodeError(f"offset {offset} after {messages[-1].offset}: offsets in a message set must ascend")
        messages.append(Message(offset=offset, magic=magic, timestamp=timestamp, key=each.key, value=each.value))
    if compression == Compression.NONE:
        checked_level(compression, level)
    elif messages:
        messages = [wrapper(messages, compression, level)]
    if log_append_time is not None:
        if magic == 0:
            raise EncodeError("messages of magic 0 have no timestamps, so a broker cannot stamp them")
        for stamped in messages:
            stamped.stamp(log_append_time)
    return b"".join(map(build_message, messages))


def _integer(value: int, field: str) -> int:
    try:
        return index(value)
    except TypeError:
        raise EncodeError(f"int wanted, not {type(value).__name__}", f"Message.{field}") from None
