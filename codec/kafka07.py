"""The protocol of Kafka 0.7, which Jafka still speaks: messages, and the requests that carry them.

A request is a frame: a 4-byte length, a 2-byte type, the body. The answers come in the order of the requests, without
correlation ids: a 4-byte length, a 2-byte error code, the body. Produce and MultiProduce have no answer at all.

    fetch = FetchRequest(topic="flights", partition=0, offset=0, max_size=2**20)
    send(build_request(fetch))
    response = parse_fetch_response(frame)
    for message in read_messages(response.message_set, fetch.offset): ...

Rules:
- An offset is a position in bytes: that of a message is where it begins, the next one's is where it ends.
- A message is behind its 4-byte size: magic, attributes (magic 1 only), the CRC-32 of the payload, the payload to the
  end. There are no keys and no timestamps.
- Attributes are the compression: a wrapper's payload is messages again, compressed. They have no offsets of their own;
  a reader starts over with the wrapper's, or goes on behind it.
- An answer to Fetch may end in a torn message, which is left out.
- What is wrong in a message is told with its offset and the byte: of the message, or of what is in a wrapper.

Source: Kafka 0.7's Message.scala, ByteBufferMessageSet.scala, RequestKeys.scala, and Jafka 1.4.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ottla.codec import messages
from ottla.codec.compression import DECOMPRESSED, DECOMPRESSED_LIMIT, Compression, checked_level, compress, decompress
from ottla.codec.frames import framed
from ottla.codec.records import NO_TIMESTAMP, Record
from ottla.codec.wire import (
    INT16,
    Array,
    Buffer,
    Int8,
    Int16,
    Int32,
    Int64,
    M,
    Records,
    Sequence,
    String,
    UInt32,
    WireType,
    api,
    message,
    tree,
    wire,
)
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError, MemoryLimitExceeded

LATEST, EARLIEST = -1, -2
"""Times of an `OffsetsRequest` that stand for an end of the log."""
ANY_PARTITION = -1
"""Of a `ProduceRequest`: the broker chooses."""
COMPRESSIONS = (Compression.GZIP, Compression.SNAPPY)
"""Those that there were."""


class ErrorCode(IntEnum):
    """What an answer begins with."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    """The log has been deleted up to behind the offset, or does not reach it yet."""
    INVALID_MESSAGE = 2
    """A message has a wrong CRC."""
    WRONG_PARTITION = 3
    """The broker has no such partition."""
    INVALID_FETCH_SIZE = 4
    """`max_size` is too small for the next message."""


# ---------------------------------------------------------------------------------------------------------------------
# Messages.


@message(versions="0-1")
class MessageHead:
    """What stands before the payload; the version is the magic."""

    size: int = wire(Int32)
    """Bytes of the message behind this field."""
    magic: int = wire(Int8)
    attributes: int = wire(Int8, "1+", default=0)
    """Bits 0 and 1: the compression."""
    crc: int = wire(UInt32)
    """Of the payload."""


MESSAGE_MEMORY = 160
"""Bytes that a message within a wrapper takes beside those of its payload: as a `Record`."""
_MAGIC_AT, _ATTRIBUTES_AT = 4, 5
_COMPRESSION_MASK = 0x03


@dataclass(slots=True)
class Message:
    """A message, plain or a wrapper, and where it lies."""

    offset: int
    next_offset: int
    head: MessageHead
    payload: memoryview

    @property
    def compression(self) -> int:
        """As `Compression` numbers them; any but 0 makes this a wrapper."""
        return self.head.attributes & _COMPRESSION_MASK

    @property
    def crc_matches(self) -> bool:
        return zlib.crc32(self.payload) == self.head.crc

    def check_crc(self, at: int = 0) -> None:
        """Compare the CRC with the payload.

        Args:
            at: where the message begins, for the offset in the error.

        Raises:
            ChecksumMismatch: it is not the payload's.
        """
        if (computed := zlib.crc32(self.payload)) != self.head.crc:
            raise ChecksumMismatch(self.head.crc, computed, "Message.crc", at + self.crc_at, self._name)

    @property
    def crc_at(self) -> int:
        """Where in the message the CRC stands."""
        return self.payload_at - 4

    @property
    def payload_at(self) -> int:
        """Where in the message the payload begins."""
        return self.next_offset - self.offset - len(self.payload)

    @property
    def _name(self) -> str:
        """For errors."""
        return f"message at offset {self.offset}"

    def records(self, limit: int = DECOMPRESSED_LIMIT) -> list[Record]:
        """The payload, or those of the messages within, as values of records, all at this message's offset.

        Args:
            limit: bytes that they may take, decompressed and as objects.

        Raises:
            DecodeError: they are damaged.
            MemoryLimitExceeded: they would take more than ``limit``.
            ChecksumMismatch: the CRC of one does not match.
        """
        return [Record(self.offset, NO_TIMESTAMP, None, payload) for payload in self._payloads(limit)]

    def _payloads(self, limit: int) -> Iterator[bytes]:
        if self.compression == Compression.NONE:
            yield bytes(self.payload)
            return
        if self.compression not in COMPRESSIONS:
            reason = f"compression {self.compression} is not known in Kafka 0.7"
            raise DecodeError(reason, "Message.attributes", _ATTRIBUTES_AT, self._name)
        try:
            body = bytes(decompress(self.compression, self.payload, limit))
        except DecodeError as error:
            raise type(error)(error.reason, "Message.payload", self.payload_at, self._name) from None
        try:
            yield from _payloads_within(body, limit)
        except DecodeError as error:
            error.within = f"{DECOMPRESSED} payload of the {self._name}"
            raise


def _payloads_within(body: bytes, limit: int) -> Iterator[bytes]:
    """Those of a wrapper's messages; offsets in errors are those in ``body``."""
    count = end = 0
    try:
        for inner in read_messages(body):
            if len(body) + (count + 1) * MESSAGE_MEMORY > limit:
                reason = f"more than {count} messages would take more memory than the limit of {limit} bytes"
                raise MemoryLimitExceeded(reason, "Message", end)
            if inner.compression != Compression.NONE:
                raise DecodeError("a wrapper within a wrapper", "Message.attributes", inner.offset + _ATTRIBUTES_AT)
            yield bytes(inner.payload)
            count, end = count + 1, inner.next_offset
        if end != len(body) or end == 0:
            raise DecodeError(f"a wrapper ends in {len(body) - end} bytes of a message", "Message", end)
    except DecodeError as error:
        error.path = f"Message.payload[{count}]{error.path.removeprefix('Message')}"
        raise


def read_messages(data: Buffer, offset: int = 0, *, verify: bool = True) -> Iterator[Message]:
    """The messages of an answer or of a file; a torn one at the end is left out.

    Args:
        offset: where ``data`` begins in the log.
        verify: compare each CRC.

    Raises:
        ChecksumMismatch: a CRC does not match; the offset is that in ``data``.
        DecodeError: something that is no message stands where one should.
    """
    view, at = memoryview(data), 0
    while len(view) - at > _MAGIC_AT:
        size = int.from_bytes(view[at : at + _MAGIC_AT], "big", signed=True)
        end = at + _MAGIC_AT + size
        if end > len(view):
            return
        if size < 1:
            raise DecodeError(f"message of {size} bytes", "Message.size", at)
        if (magic := view[at + _MAGIC_AT]) > 1:
            reason = f"format (magic) {magic}, a message of Kafka 0.7 has 0 or 1"
            raise DecodeError(reason, "Message.magic", at + _MAGIC_AT)
        try:
            head, used = messages.parse(MessageHead, magic, view[at:end])
        except DecodeError as error:
            error.path = f"Message{error.path.removeprefix('MessageHead')}"
            error.offset += at
            raise
        each = Message(offset + at, offset + end, head, view[at + used : end])
        if verify:
            each.check_crc(at)
        yield each
        at = end


def build_message(payload: Buffer, *, magic: int = 1, attributes: int = 0) -> bytes:
    """One message; ``payload`` is compressed already if ``attributes`` say so.

    Raises:
        EncodeError: the payload is not bytes, or too long, or there is no such magic, or it has no attributes.
    """
    if magic not in (0, 1):
        raise EncodeError(f"magic {magic!r}: a message of Kafka 0.7 has 0 or 1")
    payload = _bytes(payload, "Message.payload")
    head = MessageHead(size=0, magic=magic, attributes=attributes, crc=zlib.crc32(payload))
    head.size = len(messages.build(head, magic)) - _MAGIC_AT + len(payload)
    return messages.build(head, magic) + payload


def _bytes(data: Buffer, path: str) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise EncodeError(f"bytes wanted, not {type(data).__name__}", path)
    return bytes(data)


def build_messages(
    payloads: Iterable[Buffer], *, compression: Compression = Compression.NONE, level: int | None = None
) -> bytes:
    """A message set of ``payloads``; any ``compression`` but NONE makes one wrapper of them.

    Raises:
        EncodeError: 0.7 has no such compression, or it has no such level, or a message is too long.
    """
    body = b"".join(map(build_message, payloads))
    if compression == Compression.NONE:
        checked_level(compression, level)
    if compression == Compression.NONE or not body:
        return body
    if compression not in COMPRESSIONS:
        names = " and ".join(each.name.lower() for each in COMPRESSIONS)
        raise EncodeError(f"Kafka 0.7 does not know {compression.name.lower()}, but {names}")
    return build_message(compress(compression, body, level), attributes=compression)


# ---------------------------------------------------------------------------------------------------------------------
# Requests.


def ShortArray(item: Any) -> WireType:  # reads as a type in declarations
    """An array of a declared struct behind a count of two bytes."""
    return WireType(lambda version, flexible, null: Sequence(INT16, null, tree(item, version, flexible)), ())


@message(versions="0")
class RequestHeader:
    request_type: int = wire(Int16)
    """The `key` of the request's class."""


@message(key=0, versions="0")
class ProduceRequest:
    """Append messages to a partition. There is no answer."""

    topic: str = wire(String)
    partition: int = wire(Int32)
    """Or `ANY_PARTITION`."""
    message_set: Buffer = wire(Records)


@message(key=1, versions="0")
class FetchRequest:
    """Read messages from a position on; a `FetchResponse` comes at once, empty at the end of the log."""

    topic: str = wire(String)
    partition: int = wire(Int32)
    offset: int = wire(Int64)
    """Where a message begins, or where the last one ends."""
    max_size: int = wire(Int32)
    """Bytes of messages, the last one possibly torn."""


@message(key=2, versions="0")
class MultiFetchRequest:
    """Several fetches, answered in one `MultiFetchResponse`."""

    fetches: tuple[FetchRequest, ...] = wire(ShortArray(FetchRequest))


@message(key=3, versions="0")
class MultiProduceRequest:
    """Several produces. There is no answer."""

    produces: tuple[ProduceRequest, ...] = wire(ShortArray(ProduceRequest))


@message(key=4, versions="0")
class OffsetsRequest:
    """Ask for positions where segments begin; `OffsetsResponse`."""

    topic: str = wire(String)
    partition: int = wire(Int32)
    time: int = wire(Int64)
    """Milliseconds since 1970: of segments last changed before it; or `LATEST`, or `EARLIEST`."""
    max_offsets: int = wire(Int32)
    """How many positions to answer at most."""


REQUESTS: dict[int, type[Any]] = {
    api(each).key: each
    for each in (ProduceRequest, FetchRequest, MultiFetchRequest, MultiProduceRequest, OffsetsRequest)
}
"""By their types."""


def parse_request(frame: Buffer) -> Any:
    """A request, an instance of one of `REQUESTS`, from its frame without the length.

    Raises:
        DecodeError: the bytes are not such a request, or some are left over.
    """
    header, at = messages.parse(RequestHeader, 0, frame)
    if header.request_type not in REQUESTS:
        raise DecodeError(f"{header.request_type} is not one of {list(REQUESTS)}", "RequestHeader.request_type", 0)
    return _whole(REQUESTS[header.request_type], frame, at)


def build_request(request: Any) -> bytes:
    """The frame of a request, with its length.

    Raises:
        EncodeError: a field does not fit.
    """
    header = RequestHeader(request_type=api(type(request)).key)
    return framed(messages.build(header, 0) + messages.build(request, 0))


# ---------------------------------------------------------------------------------------------------------------------
# Responses.


@message(versions="0")
class ResponseHeader:
    error_code: int = wire(Int16)
    """An `ErrorCode`."""


@dataclass(slots=True)
class FetchResponse:
    """Messages from the offset asked for on, the last one possibly torn: `read_messages` reads them."""

    error_code: int
    message_set: Buffer = b""


@dataclass(slots=True)
class MultiFetchResponse:
    """One response for each of the fetches, in their order."""

    error_code: int
    responses: tuple[FetchResponse, ...] = ()


@message(versions="0")
class OffsetsResponse:
    """Positions, the latest first."""

    error_code: int = wire(Int16)
    offsets: tuple[int, ...] = wire(Array(Int64))


def parse_fetch_response(frame: Buffer) -> FetchResponse:
    """The answer to a `FetchRequest` from its frame without the length.

    Raises:
        DecodeError: the bytes are no such response.
    """
    header, at = messages.parse(ResponseHeader, 0, frame)
    return FetchResponse(header.error_code, memoryview(frame)[at:])


def parse_multi_fetch_response(frame: Buffer) -> MultiFetchResponse:
    """The answer to a `MultiFetchRequest`: an error code, and then the frame of a response for each fetch.

    Raises:
        DecodeError: the bytes are no such response.
    """
    header, at = messages.parse(ResponseHeader, 0, frame)
    view = memoryview(frame)
    responses: list[FetchResponse] = []
    while at != len(view):
        start = at + 4
        at = start + int.from_bytes(view[at:start], "big", signed=True)
        if not start <= at <= len(view):
            path = f"MultiFetchResponse.responses[{len(responses)}]"
            raise DecodeError(f"{at - start} bytes with {len(view) - start} left", path, start)
        responses.append(parse_fetch_response(view[start:at]))
    return MultiFetchResponse(header.error_code, tuple(responses))


def parse_offsets_response(frame: Buffer) -> OffsetsResponse:
    """The answer to an `OffsetsRequest`.

    Raises:
        DecodeError: the bytes are no such response.
    """
    return _whole(OffsetsResponse, frame)


def build_response(response: FetchResponse | MultiFetchResponse | OffsetsResponse) -> bytes:
    """The frame of a response, with its length.

    Raises:
        EncodeError: a field does not fit.
    """
    match response:
        case OffsetsResponse():
            return framed(messages.build(response, 0))
        case FetchResponse():
            rest = _bytes(response.message_set, "FetchResponse.message_set")
        case MultiFetchResponse():
            rest = b"".join(map(build_response, response.responses))
    return framed(messages.build(ResponseHeader(error_code=response.error_code), 0) + rest)


def _whole(cls: type[M], frame: Buffer, offset: int = 0) -> M:
    """A message that fills its frame."""
    parsed, end = messages.parse(cls, 0, frame, offset)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes left over", cls.__name__, end)
    return parsed
