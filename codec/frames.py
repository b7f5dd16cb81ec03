"""Frames and headers, for both roles: a 4-byte length, a header, a message.

Rules:
- A request header is v2 in flexible versions and v1 before; a response header v1 and v0. ApiVersions always answers
  with header v0, so that a client can read the answer of a broker that it knows nothing of yet (KIP-511).
- The client id keeps its 2-byte length in every version, so a header can be read before its API is known.
- Bytes left over behind a request are counted, not refused: librdkafka has sent some.

Source: RequestHeader.json, ResponseHeader.json, ApiKeys.java.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from ottla.codec import messages, wire
from ottla.codec.apis import APIS
from ottla.codec.wire import INT16, Buffer, Int16, Int32, M, Part, Text, WireType, message
from ottla.errors import DecodeError, EncodeError, RemoteProtocolError

MAX_FRAME = 100 * 2**20
"""Bytes; Kafka's `socket.request.max.bytes`, and what librdkafka and Java take as a response."""
API_VERSIONS = 18
LARGE_FIELD = 64 * 2**10
"""Bytes of a field from which on it is cheaper to write it by itself than to copy it."""

_LENGTH = struct.Struct(">i")
_ASKED = struct.Struct(">hh")
"""The API key and the version, at the start of a request's header in every version of that."""

LegacyString = WireType(lambda version, flexible, null: Text(INT16, null), "")
"""A string whose length stays two bytes in flexible versions too."""


@message(key=-1, versions="1-2", flexible="2+")
class RequestHeader:
    api_key: int = wire.wire(Int16)
    api_version: int = wire.wire(Int16)
    correlation_id: int = wire.wire(Int32)
    client_id: str | None = wire.wire(LegacyString, null="0+", default=None)


@message(key=-1, versions="0-1", flexible="1+")
class ResponseHeader:
    correlation_id: int = wire.wire(Int32)


_RESPONSE_HEADERS = struct.Struct(">i"), struct.Struct(">ix")
"""What a `ResponseHeader` is built to in v0 and in v1, which has tagged fields: none."""


class FrameTooLong(EncodeError):
    """A frame would be 2 GiB or longer, which its length field cannot say."""


class Request(NamedTuple):
    """A request as a broker reads it."""

    header: RequestHeader
    message: Any
    leftover: int
    """Bytes behind the message."""


class UnknownApi(RemoteProtocolError):
    """A request of an API key or version that is not served; ``header`` is what could be read of it."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"API key {header.api_key} version {header.api_version} is not served")
        self.header = header


def is_known(api_key: int, api_version: int) -> bool:
    """Whether the codec has the messages of an API in a version."""
    known = APIS.get(api_key)
    return known is not None and api_version in wire.api(known.request).versions


@cache
def header_version(api_key: int, api_version: int) -> int:
    """Of the request's header."""
    return 2 if api_version in wire.api(APIS[api_key].request).flexible else 1


def parse_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its length) and the offset of the message.

    Of an API or a version that is not known, the offset is that behind the client id: what follows there cannot be
    told, and a broker must be able to refuse an ApiVersions request of any version.
    """
    known = asked(frame)
    return messages.parse(RequestHeader, header_version(*known) if is_known(*known) else 1, frame)


def asked(frame: Buffer) -> tuple[int, int]:
    """The API key and version of a request; what nobody serves, where the frame is too short for them."""
    return _ASKED.unpack_from(frame) if len(frame) >= _ASKED.size else (-1, -1)


def parse_request(frame: Buffer, serves: Callable[[int, int], bool] = is_known) -> Request:
    """A request frame without its length.

    Args:
        serves: whether an API key is served in a version: nothing behind the client id is read of one that is not.

    Raises:
        UnknownApi: the key or the version is not served.
        DecodeError: the bytes are not such a request.
    """
    api_key, api_version = asked(frame)
    if not serves(api_key, api_version):
        raise UnknownApi(messages.parse(RequestHeader, 1, frame)[0])
    header, offset = messages.parse(RequestHeader, header_version(api_key, api_version), frame)
    body, end = messages.parse(APIS[api_key].request, api_version, frame, offset)
    return Request(header, body, len(frame) - end)


def build_request(body: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request frame, with its length."""
    return b"".join(build_request_parts(body, version, correlation_id, client_id))


def build_request_parts(body: Any, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """A request frame in parts: length and header, and the message, whose large fields are parts of their own.

    To send megabytes, such as the batches of Produce, they need not be copied.
    """
    key = wire.api(type(body)).key
    header = RequestHeader(api_key=key, api_version=version, correlation_id=correlation_id, client_id=client_id)
    return wire.in_memory(_parts(messages.build(header, header_version(key, version)), body, version))


@cache
def response_header_version(api_key: int, api_version: int) -> int:
    return int(api_key != API_VERSIONS and api_version in wire.api(APIS[api_key].response).flexible)


def parse_response(cls: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """The correlation id and the message of a response frame without its length.

    Raises:
        DecodeError: the bytes are not such a response, or some are left over.
    """
    header, offset = messages.parse(ResponseHeader, response_header_version(wire.api(cls).key, version), frame)
    body, end = messages.parse(cls, version, frame, offset)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes left over", cls.__name__, end)
    return header.correlation_id, body


def build_response(body: Any, version: int, correlation_id: int) -> bytes:
    """A response frame, with its length."""
    return b"".join(wire.in_memory(build_response_parts(body, version, correlation_id)))


def build_response_parts(body: Any, version: int, correlation_id: int) -> list[Part]:
    """A response frame in parts, as `build_request_parts`: the records of a Fetch need not be copied, nor even read."""
    header_version = response_header_version(wire.api(type(body)).key, version)
    try:
        head = _RESPONSE_HEADERS[header_version].pack(correlation_id)
    except struct.error as error:
        raise EncodeError(f"the correlation id {correlation_id!r}: {error}") from None
    return _parts(head, body, version)


def _parts(head: bytes, body: Any, version: int) -> list[Part]:
    parts = messages.build_parts(body, version, LARGE_FIELD)
    return [_length(len(head) + sum(map(len, parts))) + head, *parts]


def framed(payload: Buffer) -> bytes:
    """``payload`` behind its 4-byte length.

    Raises:
        FrameTooLong: it is 2 GiB or longer.
    """
    return _length(len(payload)) + payload


def _length(size: int) -> bytes:
    if size >= 1 << 31:
        raise FrameTooLong(f"a frame of {size} bytes is longer than its length field can say")
    return size.to_bytes(4, "big")


class FrameReader:
    """Cuts a stream of bytes into frames.

    Args:
        limit: the largest frame in bytes; a longer one is a `RemoteProtocolError`.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Add ``data``; iterate over the frames that are whole now, without their lengths.

        Frames that are not taken come first the next time.

        Raises:
            RemoteProtocolError: (while iterating) the length cannot be one; the message says what the bytes look like.
        """
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[bytes]:
        while len(buffer := self._buffer) >= 4:
            [size] = _LENGTH.unpack_from(buffer)
            if not 0 <= size <= self._limit:
                raise RemoteProtocolError(self._complaint(size))
            if len(buffer) < (end := 4 + size):
                return
            frame = bytes(memoryview(buffer)[4:end])
            del buffer[:end]
            yield frame

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer)

    def take_begun(self, least: int) -> tuple[int, bytes] | None:
        """Take out a frame that is not whole, if it will have at least ``least`` bytes: its size, and what there is."""
        if len(self._buffer) < 4 or (size := int.from_bytes(self._buffer[:4], "big", signed=True)) < least:
            return None
        if size > self._limit or len(self._buffer) >= 4 + size:
            return None  # the next `feed` says what is wrong with it, or has it
        start, self._buffer = bytes(memoryview(self._buffer)[4:]), bytearray()
        return size, start

    def _complaint(self, size: int) -> str:
        if seems := looks_like(bytes(self._buffer[:8])):
            return f"this is not Kafka's protocol: it looks like {seems}"
        if size < 0:
            return f"a frame of {size} bytes: this is not Kafka's protocol"
        return f"a frame of {size} bytes is over the limit of {self._limit}"


def looks_like(start: bytes) -> str | None:
    """What speaks there, judged by the first bytes of a connection, where it is something well known."""
    if start[:2] == b"\x16\x03":
        return "a TLS hello (the client has TLS on, this port has not)"
    if start[:2] == b"\x15\x03":
        return "a TLS alert (the other side has TLS on, this one has not)"
    if start[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN"):
        return "an HTTP request"
    if start[:4] == b"SSH-":
        return "an SSH client"
    if start[:5] == b"HTTP/":
        return "an HTTP server"
    return None
