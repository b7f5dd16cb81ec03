"""The protocol of Kafka 0.7, which Jafka still uses: messages, and the requests that carry them.

A request is a frame: a 4-byte length, a 2-byte type, the body. Responses come in the order of the requests, without
correlation ids: a 4-byte length, a 2-byte error code, the body. Produce and MultiProduce have no response at all.

    fetch = FetchRequest(topic="flights", partition=0, offset=0, max_size=2**20)
    send(build_request(fetch))
    response = parse_fetch_response(frame)
    for message in read_messages(response.message_set, fetch.offset): ...

Rules:
- An offset is a position in bytes: a message's offset is where it begins, and the next one's is where it ends.
- A message has a 4-byte size in front. Then come magic, attributes (magic 1 only), the CRC-32 of the payload, and the
  payload. There are no keys and no timestamps.
- Attributes are the compression. A wrapper's payload is compressed messages without offsets of their own: a reader can
  only restart at the wrapper's offset, or continue after it.
- A Fetch response may end in a truncated message, which is left out.
- An error names the message's offset and a byte: of the message, or of the contents of a wrapper.

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
    Array,
    Buffer,
    Int8,
    Int16,
    Int32,
    Int64,
    M,
    Records,
    ShortArray,
    String,
    UInt32,
    api,
    message,
    wire,
)
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError, MemoryLimitExceeded

LATEST, EARLIEST = -1, -2
"""Values of `OffsetsRequest.time` for the two ends of the log."""
ANY_PARTITION = -1
"""In a `ProduceRequest`: the broker chooses the partition."""
COMPRESSIONS = (Compression.GZIP, Compression.SNAPPY)
"""The compressions of Kafka 0.7."""


class ErrorCode(IntEnum):
    """The error code at the start of a response."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    """Retention has deleted the log past this offset, or the log does not reach it yet."""
    INVALID_MESSAGE = 2
    """A message has a wrong CRC."""
    WRONG_PARTITION = 3
    """The broker does not have the partition."""
    INVALID_FETCH_SIZE = 4
    """`max_size` is too small for the next message."""


# ---------------------------------------------------------------------------------------------------------------------
# Messages.


@message(versions="0-1")
class MessageHead:
    """The fields before the payload; the version of this message is the magic."""

    size: int = wire(Int32)
    """Bytes of the message after this field."""
    magic: int = wire(Int8)
    attributes: int = wire(Int8, "1+", default=0)
    """Bits 0 and 1: the compression."""
    crc: int = wire(UInt32)
    """CRC-32 of the payload."""


MESSAGE_MEMORY = 160
"""Bytes of memory for a message in a wrapper besides its payload: for the `Record`."""
_MAGIC_AT, _ATTRIBUTES_AT = 4, 5
_COMPRESSION_MASK = 0x03


@dataclass(slots=True)
class Message:
    """A message, plain or a wrapper, and its place in the log."""

    offset: int
    next_offset: int
    head: MessageHead
    payload: memoryview

    @property
    def compression(self) -> int:
        """Number of a `Compression`; any but 0 makes this message a wrapper."""
        return self.head.attributes & _COMPRESSION_MASK

    @property
    def crc_matches(self) -> bool:
        return zlib.crc32(self.payload) == self.head.crc

    def check_crc(self, at: int = 0) -> None:
        """Compare the CRC with the payload.

        Args:
            at: where the message begins; the offset in the error includes it.

        Raises:
            ChecksumMismatch: the CRC does not match the payload.
        """
        if (computed := zlib.crc32(self.payload)) != self.head.crc:
            raise ChecksumMismatch(self.head.crc, computed, "Message.crc", at + self.crc_at, self._name)

    @property
    def crc_at(self) -> int:
        """Position of the CRC in the message."""
        return self.payload_at - 4

    @property
    def payload_at(self) -> int:
        """Position of the payload in the message."""
        return self.next_offset - self.offset - len(self.payload)

    @property
    def _name(self) -> str:
        """The message's name in errors."""
        return f"message at offset {self.offset}"

    def records(self, limit: int = DECOMPRESSED_LIMIT) -> list[Record]:
        """Return the payload, or the payloads of the messages within, as records, all with this message's offset.

        Args:
            limit: bytes that they may take, decompressed and as objects.

        Raises:
            DecodeError: they are damaged.
            MemoryLimitExceeded: they would take more than ``limit``.
            ChecksumMismatch: the CRC of a message does not match.
        """
        return [Record(self.offset, NO_TIMESTAMP, None, payload) for payload in self._payloads(limit)]

    def _payloads(self, limit: int) -> Iterator[bytes]:
        if self.compression == Compression.NONE:
            yield bytes(self.payload)
            return
        if self.compression not in COMPRESSIONS:
            reason = f"compression {self.compression} is unknown in Kafka 0.7"
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
    """Yield the payloads of a wrapper's messages; offsets in errors count in ``body``."""
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
    """Yield the messages of a response or of a file, without a truncated one at the end.

    Args:
        offset: where ``data`` begins in the log.
        verify: check each CRC.

    Raises:
        ChecksumMismatch: a CRC does not match; the error's offset counts in ``data``.
        DecodeError: the bytes where a message should begin are not a message.
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
    """Build one message; ``payload`` must already be compressed as ``attributes`` say.

    Raises:
        EncodeError: the payload is not bytes or is too long, the magic does not exist, or it has no attributes.
    """
    if magic not in (0, 1):
        raise EncodeError(f"magic {magic!r}: a message of Kafka 0.7 has 0 or 1")
    payload = _bytes(payload, "Message.payload")

    def head(size: int) -> bytes:
        made = MessageHead(size=size, magic=magic, attributes=attributes, crc=zlib.crc32(payload))
        return messages.build(made, magic)

    return head(len(head(0)) - _MAGIC_AT + len(payload)) + payload


def _bytes(data: Buffer, path: str) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise EncodeError(f"bytes wanted, not {type(data).__name__}", path)
    return bytes(data)


def build_messages(
    payloads: Iterable[Buffer], *, compression: Compression = Compression.NONE, level: int | None = None
) -> bytes:
    """Build a message set of ``payloads``; any ``compression`` but NONE puts them in one wrapper.

    Raises:
        EncodeError: 0.7 does not have the compression, or it has no such level, or a message is too long.
    """
    body = b"".join(map(build_message, payloads))
    if compression == Compression.NONE:
        checked_level(compression, level)
    if compression == Compression.NONE or not body:
        return body
    if compression not in COMPRESSIONS:
        names = " and ".join(each.name.lower() for each in COMPRESSIONS)
        raise EncodeError(f"Kafka 0.7 does not support {compression.name.lower()}, only {names}")
    return build_message(compress(compression, body, level), attributes=compression)


# ---------------------------------------------------------------------------------------------------------------------
# Requests.


@message(versions="0")
class RequestHeader:
    request_type: int = wire(Int16)
    """The `key` of the request's class."""


@message(key=0, versions="0")
class ProduceRequest:
    """Append messages to a partition. There is no response."""

    topic: str = wire(String)
    partition: int = wire(Int32)
    """Or `ANY_PARTITION`."""
    message_set: Buffer = wire(Records)


@message(key=1, versions="0")
class FetchRequest:
    """Read messages from a position on. The `FetchResponse` comes at once, and is empty at the end of the log."""

    topic: str = wire(String)
    partition: int = wire(Int32)
    offset: int = wire(Int64)
    """The beginning of a message, or the end of the log."""
    max_size: int = wire(Int32)
    """Maximum bytes of messages; the last message may be truncated."""


@message(key=2, versions="0")
class MultiFetchRequest:
    """Several fetches, answered in one `MultiFetchResponse`."""

    fetches: tuple[FetchRequest, ...] = wire(ShortArray(FetchRequest))


@message(key=3, versions="0")
class MultiProduceRequest:
    """Several produces. There is no response."""

    produces: tuple[ProduceRequest, ...] = wire(ShortArray(ProduceRequest))


@message(key=4, versions="0")
class OffsetsRequest:
    """Ask for the positions where segments begin; the response is an `OffsetsResponse`."""

    topic: str = wire(String)
    partition: int = wire(Int32)
    time: int = wire(Int64)
    """Milliseconds since 1970, for segments last changed before then; or `LATEST`, or `EARLIEST`."""
    max_offsets: int = wire(Int32)
    """Maximum number of positions to return."""


REQUESTS: dict[int, type[Any]] = {
    api(each).key: each
    for each in (ProduceRequest, FetchRequest, MultiFetchRequest, MultiProduceRequest, OffsetsRequest)
}
"""Request classes by their types."""


def parse_request(frame: Buffer) -> Any:
    """Parse a request, an instance of one of `REQUESTS`, from its frame without the length.

    Raises:
        DecodeError: the bytes are not such a request, or bytes are left over.
    """
    header, at = messages.parse(RequestHeader, 0, frame)
    if header.request_type not in REQUESTS:
        raise DecodeError(f"{header.request_type} is not one of {list(REQUESTS)}", "RequestHeader.request_type", 0)
    return _whole(REQUESTS[header.request_type], frame, at)


def build_request(request: Any) -> bytes:
    """Build the frame of a request, with its length.

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
    """Messages from the requested offset on, the last one possibly truncated; `read_messages` reads them."""

    error_code: int
    message_set: Buffer = b""


@dataclass(slots=True)
class MultiFetchResponse:
    """The responses to the fetches, in their order."""

    error_code: int
    responses: tuple[FetchResponse, ...] = ()


@message(versions="0")
class OffsetsResponse:
    """Positions, the latest first."""

    error_code: int = wire(Int16)
    offsets: tuple[int, ...] = wire(Array(Int64))


def parse_fetch_response(frame: Buffer) -> FetchResponse:
    """Parse the response to a `FetchRequest` from its frame without the length.

    Raises:
        DecodeError: the bytes are not such a response.
    """
    header, at = messages.parse(ResponseHeader, 0, frame)
    return FetchResponse(header.error_code, memoryview(frame)[at:])


def parse_multi_fetch_response(frame: Buffer) -> MultiFetchResponse:
    """Parse the response to a `MultiFetchRequest`: an error code, then the frame of a response for each fetch.

    Raises:
        DecodeError: the bytes are not such a response.
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
    """Parse the response to an `OffsetsRequest`.

    Raises:
        DecodeError: the bytes are not such a response.
    """
    return _whole(OffsetsResponse, frame)


def build_response(response: FetchResponse | MultiFetchResponse | OffsetsResponse) -> bytes:
    """Build the frame of a response, with its length.

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
    """Parse a message that must fill its frame."""
    parsed, end = messages.parse(cls, 0, frame, offset)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes left over", cls.__name__, end)
    return parsed
