"""A message behind its version: two bytes that tell the version, then the message.

So Kafka writes what no header stands before: records of internal topics, embedded protocols, files. A message that is
not flexible may grow at its end; its readers take a newer version for the newest they know and leave the rest.
"""

from ottla.codec import messages
from ottla.codec.wire import INT16, Buffer, Declared, M, api
from ottla.errors import DecodeError

SIZE = INT16.sizeof()
"""Bytes of the version."""


def version_of(data: Buffer, offset: int = 0) -> int:
    """The version that ``data[offset:]`` begins with.

    Raises:
        DecodeError: there are no two bytes.
    """
    if (left := len(data) - offset) < SIZE:
        raise DecodeError(f"{left} bytes, and a version takes {SIZE}", offset=offset)
    return int.from_bytes(data[offset : offset + SIZE], "big", signed=True)


def parse_prefixed(cls: type[M], data: Buffer, offset: int = 0, *, newer: bool = False) -> tuple[int, M, int]:
    """The version, the message, and where it ends.

    Args:
        newer: take an unknown newer version for the newest known one, as Kafka does where a format only grows.

    Raises:
        DecodeError: the version is not known, or the bytes are not such a message.
    """
    version = version_of(data, offset)
    versions = api(cls).versions
    if version not in versions and not (newer and version > versions.high):
        raise DecodeError(f"version {version}, known are {versions.text}", cls.__name__, offset)
    message, end = messages.parse(cls, min(version, versions.high), data, offset + SIZE)
    return version, message, end


def build_prefixed(message: Declared, version: int) -> bytes:
    """The opposite.

    Raises:
        EncodeError: the message does not fit the version.
        UnknownVersion: its class has no such version.
    """
    return version.to_bytes(SIZE, "big", signed=True) + messages.build(message, version)
