"""Frames and headers, for clients and brokers: a 4-byte length, a header, a message.

Rules:
- A request header has v2 in flexible versions, else v1; a response header v1 or v0. The ApiVersions response always has
  header v0, so that a client can read it before it knows anything about the broker (KIP-511).
- The client id has a 2-byte length in every version, so a header can be read before its API is known.
- Extra bytes after a request are counted, not refused: librdkafka has sent some.

Source: RequestHeader.json, ResponseHeader.json, ApiKeys.java.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from ottla.codec import messages, wire
from ottla.codec.apis import APIS
from ottla.codec.wire import Buffer, Int16, Int32, LegacyString, M, Part, message
from ottla.errors import DecodeError, EncodeError, RemoteProtocolError

MAX_FRAME = 100 * 2**20
"""In bytes. Kafka's default for `socket.request.max.bytes`, and the largest response of librdkafka and Java."""
API_VERSIONS = 18
MOST_VERSIONS = 32
"""More than any API has, and the first printable character of ASCII."""
LARGE_FIELD = 64 * 2**10
"""Size in bytes at which a field is written separately, which is then cheaper than to copy it."""

_LENGTH = struct.Struct(">i")
_ASKED = struct.Struct(">hh")
"""API key and version. Every version of the request header begins with them."""


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
"""How a `ResponseHeader` is built: v0, and v1, which has an empty set of tagged fields."""


class FrameTooLong(EncodeError):
    """A frame is 2 GiB or longer, too long for its length field."""


class Request(NamedTuple):
    """A request as a broker reads it."""

    header: RequestHeader
    message: Any
    leftover: int
    """Number of extra bytes after the message."""


class UnknownApi(RemoteProtocolError):
    """The request's API key or version is not served; ``header`` holds the header as far as it could be read."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"API key {header.api_key} {version_text(header.api_version)} is not served")
        self.header = header


def version_text(api_version: int) -> str:
    """Return the version of a request for an error or the log.

    A frame with a version that no API has is probably no request. It may be a SASL token without a header: behind a
    user of one character, the first byte of the password is in the place of the version.
    """
    return f"version {api_version}" if 0 <= api_version < MOST_VERSIONS else "with a version that no API has"


def is_known(api_key: int, api_version: int) -> bool:
    """Whether the codec has the messages of an API in a version."""
    known = APIS.get(api_key)
    return known is not None and api_version in wire.api(known.request).versions


@cache
def header_version(api_key: int, api_version: int) -> int:
    """Return the version of the request's header."""
    return 2 if api_version in wire.api(APIS[api_key].request).flexible else 1


def parse_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a request frame (without its length) and the offset of the message.

    If the API or the version is unknown, the offset is the one after the client id, because the rest of the header
    cannot be interpreted. A broker must be able to refuse an ApiVersions request of any version.
    """
    known = asked(frame)
    return messages.parse(RequestHeader, header_version(*known) if is_known(*known) else 1, frame)


def asked(frame: Buffer) -> tuple[int, int]:
    """Return the API key and version of a request; (-1, -1), which is never served, if the frame is too short."""
    return _ASKED.unpack_from(frame) if len(frame) >= _ASKED.size else (-1, -1)


def parse_request(frame: Buffer, serves: Callable[[int, int], bool] = is_known) -> Request:
    """Parse a request frame without its length.

    Args:
        serves: whether an API key is served in a version. If not, only the header up to the client id is parsed.

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
    """Build a request frame, with its length."""
    return b"".join(build_request_parts(body, version, correlation_id, client_id))


def build_request_parts(body: Any, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """Build a request frame in parts: length and header, then the message, with its large fields as separate parts.

    This avoids copying megabytes, for example the batches of Produce.
    """
    key = wire.api(type(body)).key
    header = RequestHeader(api_key=key, api_version=version, correlation_id=correlation_id, client_id=client_id)
    return wire.in_memory(_parts(messages.build(header, header_version(key, version)), body, version))


@cache
def response_header_version(api_key: int, api_version: int) -> int:
    return int(api_key != API_VERSIONS and api_version in wire.api(APIS[api_key].response).flexible)


def parse_response(cls: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """Parse a response frame without its length; return the correlation id and the message.

    Raises:
        DecodeError: the bytes are not such a response, or bytes are left over.
    """
    header, offset = messages.parse(ResponseHeader, response_header_version(wire.api(cls).key, version), frame)
    body, end = messages.parse(cls, version, frame, offset)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes left over", cls.__name__, end)
    return header.correlation_id, body


def build_response(body: Any, version: int, correlation_id: int) -> bytes:
    """Build a response frame, with its length."""
    return b"".join(wire.in_memory(build_response_parts(body, version, correlation_id)))


def build_response_parts(body: Any, version: int, correlation_id: int) -> list[Part]:
    """Build a response frame in parts, as `build_request_parts`, so that Fetch records are neither copied nor read."""
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
    """Put a 4-byte length in front of ``payload``.

    Raises:
        FrameTooLong: the payload is 2 GiB or longer.
    """
    return _length(len(payload)) + payload


def _length(size: int) -> bytes:
    if size >= 1 << 31:
        raise FrameTooLong(f"a frame of {size} bytes is too long for its length field")
    return size.to_bytes(4, "big")


class FrameReader:
    """Cuts a stream of bytes into frames.

    Args:
        limit: the largest frame in bytes; a longer one raises `RemoteProtocolError`.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def limit_frames(self, limit: int) -> None:
        """Refuse frames above ``limit`` bytes from now on."""
        self._limit = limit

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Add ``data``; iterate over the frames that are complete now, without their lengths.

        Frames that the caller does not take are the first of the next call.

        Raises:
            RemoteProtocolError: (while iterating) the length is invalid; the message guesses the protocol.
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
        """Number of bytes of an incomplete frame."""
        return len(self._buffer)

    def take_begun(self, least: int) -> tuple[int, bytes] | None:
        """Take out an incomplete frame if it will have at least ``least`` bytes: its size, and its bytes so far."""
        if len(self._buffer) < 8 or (size := int.from_bytes(self._buffer[:4], "big", signed=True)) < least:
            return None  # 8, so that a frame that is passed on in pieces has begun with its correlation id
        if size > self._limit or len(self._buffer) >= 4 + size:
            return None  # the next `feed` raises the error, or returns the frame
        start, self._buffer = bytes(memoryview(self._buffer)[4:]), bytearray()
        return size, start

    def _complaint(self, size: int) -> str:
        if seems := looks_like(bytes(self._buffer[:8])):
            return f"this is not Kafka's protocol: it looks like {seems}"
        if size < 0:
            return f"a frame of {size} bytes: this is not Kafka's protocol"
        return f"a frame of {size} bytes is over the limit of {self._limit}"


def looks_like(start: bytes) -> str | None:
    """Guess the protocol from the first bytes of a connection; ``None`` if it is not a well-known one."""
    if start[:2] == b"\x16\x03":
        return "a TLS hello (TLS is on at the client, but not on this port)"
    if start[:2] == b"\x15\x03":
        return (
            "a TLS alert (TLS is on at the other side, but not at this one; clients give tls=ottla.TLS(…), or "
            "security.protocol=SSL or SASL_SSL)"
        )
    if start[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN"):
        return "an HTTP request"
    if start[:4] == b"SSH-":
        return "an SSH client"
    if start[:5] == b"HTTP/":
        return "an HTTP server"
    return None
